//! Frames on a stream. A frame arrives completely by its deadline, or the connection ends.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::wire::{BODY_MAX, Message, WireError};

impl From<WireError> for io::Error {
    fn from(e: WireError) -> Self {
        Self::new(io::ErrorKind::InvalidData, e)
    }
}

/// The time that the next message may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// The last byte must arrive before this moment.
    Until(Instant),
    /// The first byte may take any time, and the rest this long.
    ForFirstByte(Duration),
}

/// Returns the next body, or `None` if the other side has closed the stream between two messages.
pub(crate) fn receive(stream: &mut TcpStream, wait: Wait) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    let (mut got, mut deadline) = (0, Instant::now());
    match wait {
        Wait::Until(until) => deadline = until,
        Wait::ForFirstByte(most) => {
            stream.set_read_timeout(None)?;
            got = read_some(stream, &mut length)?;
            if got == 0 {
                return Ok(None);
            }
            deadline += most.saturating_add(deadline.elapsed());
        }
    }
    while got < 4 {
        set_read_deadline(stream, deadline)?;
        match read_some(stream, length.get_mut(got..).unwrap_or_default())? {
            0 if got == 0 => return Ok(None),
            0 => return Err(WireError::Cut.into()),
            n => got += n,
        }
    }
    let length = u32::from_le_bytes(length);
    if !(1..=BODY_MAX).contains(&(length as usize)) {
        return Err(WireError::Length(length).into());
    }
    let mut body = vec![0; length as usize];
    let mut rest = body.as_mut_slice();
    while !rest.is_empty() {
        set_read_deadline(stream, deadline)?;
        match read_some(stream, rest)? {
            0 => return Err(WireError::Cut.into()),
            n => rest = rest.get_mut(n..).unwrap_or_default(),
        }
    }
    Ok(Some(body))
}

/// Sends a message in one piece, within `most`.
pub(crate) fn send(stream: &mut TcpStream, message: &Message, most: Duration) -> io::Result<()> {
    let body = message.encode();
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&body);
    stream.set_write_timeout(Some(most))?;
    stream.write_all(&frame)
}

fn read_some(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(into) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // A read reports its timeout in this way.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            other => return other,
        }
    }
}

fn set_read_deadline(stream: &TcpStream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))
}
