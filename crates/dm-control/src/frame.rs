//! Frames on a stream: a length of 4 bytes, then the body.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::wire::{BODY_MAX, WireError};

impl From<WireError> for io::Error {
    fn from(e: WireError) -> Self {
        Self::new(io::ErrorKind::InvalidData, e)
    }
}

/// The part of a frame that has arrived.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

/// The result of a read.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Got {
    /// The frame is not complete yet.
    Part,
    /// The frame is complete; this is its body.
    Body(Vec<u8>),
    /// The other side has closed the stream, and no frame was incomplete.
    End,
}

impl Inbox {
    /// Returns whether a frame has begun to arrive.
    pub(crate) fn has_begun(&self) -> bool {
        !self.0.is_empty()
    }

    /// Reads once, and never beyond the end of the frame.
    pub(crate) fn read(&mut self, from: &mut impl Read) -> io::Result<Got> {
        let wanted = match self.0.first_chunk() {
            None => 4,
            Some(length) => 4 + u32::from_le_bytes(*length) as usize,
        };
        let mut bytes = [0; 4 + BODY_MAX];
        let room = bytes.get_mut(..wanted - self.0.len()).unwrap_or_default();
        let got = match from.read(room) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Got::Part),
            other => other?,
        };
        if got == 0 {
            return match self.has_begun() {
                true => Err(WireError::Cut.into()),
                false => Ok(Got::End),
            };
        }
        self.0.extend_from_slice(room.get(..got).unwrap_or_default());
        match self.0.split_first_chunk() {
            Some((length, body)) => {
                let length = u32::from_le_bytes(*length);
                if !(1..=BODY_MAX).contains(&(length as usize)) {
                    return Err(WireError::Length(length).into());
                }
                if body.len() < length as usize {
                    return Ok(Got::Part);
                }
                let body = body.to_vec();
                self.0.clear();
                Ok(Got::Body(body))
            }
            None => Ok(Got::Part),
        }
    }
}

/// Returns the frame of a body.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Returns the next body, which must arrive before `deadline`, or `None` if the other side has closed the
/// stream.
pub(crate) fn receive(stream: &mut TcpStream, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut inbox = Inbox::default();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match inbox.read(stream) {
            Ok(Got::Part) => {}
            Ok(Got::Body(body)) => return Ok(Some(body)),
            Ok(Got::End) => return Ok(None),
            // This is how the system reports a read timeout.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e),
        }
    }
}

/// Sends the frame of a body. Each write to the stream may take at most `most`.
pub(crate) fn send(stream: &mut TcpStream, body: &[u8], most: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(most))?;
    stream.write_all(&frame(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns at most this number of bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let some = self.1.min(into.len());
            self.0.read(&mut into[..some])
        }
    }

    #[test]
    fn bodies_arrive_in_any_pieces_and_no_byte_of_the_next_one_is_taken() {
        let bodies = [vec![7; BODY_MAX], vec![1], vec![2; 5]];
        let stream: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
        for piece in [1, 2, 3, 4, 5, 7, 300, 4000] {
            let (mut from, mut inbox, mut found) = (Slow(&stream, piece), Inbox::default(), Vec::new());
            loop {
                match inbox.read(&mut from).unwrap() {
                    Got::Part => assert!(inbox.has_begun()),
                    Got::Body(body) => found.push(body),
                    Got::End => break,
                }
            }
            assert_eq!(found, bodies, "{piece}");
        }
    }

    #[test]
    fn a_length_that_no_message_has_ends_the_stream_before_the_body() {
        for length in [0, BODY_MAX as u32 + 1, u32::MAX] {
            let mut stream = length.to_le_bytes().to_vec();
            stream.extend([1; 400]);
            let mut from = stream.as_slice();
            let error = Inbox::default().read(&mut from).unwrap_err();
            assert_eq!(error.downcast::<WireError>().unwrap(), WireError::Length(length));
            assert_eq!(from.len(), 400);
        }
        let (mut inbox, mut from) = (Inbox::default(), [9, 0].as_slice());
        assert_eq!(inbox.read(&mut from).unwrap(), Got::Part);
        let error = inbox.read(&mut from).unwrap_err();
        assert_eq!(error.downcast::<WireError>().unwrap(), WireError::Cut);
    }
}
