//! A minimal HTTP server for a metrics scraper: one request at a time, one second each, and no keep-alive.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The time that a scraper may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a request that are read.
const REQUEST_MAX: usize = 4096;

/// Replies to every request with `text`, until `stopping` returns true.
pub(crate) fn serve(listener: &TcpListener, text: impl Fn() -> String, stopping: impl Fn() -> bool) {
    for stream in listener.incoming() {
        if stopping() {
            return;
        }
        match stream {
            Ok(stream) => {
                if let Err(error) = answer(stream, &text) {
                    tracing::debug!(%error, "a scraper went away");
                }
            }
            Err(_) => dm_sync::thread::yield_now(),
        }
    }
}

fn answer(mut stream: TcpStream, text: impl Fn() -> String) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() >= REQUEST_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; 512];
        let got = stream.read(&mut bytes)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(bytes.get(..got).unwrap_or_default());
    }
    let first = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let (status, body) = if first.starts_with(b"GET /metrics ") {
        ("200 OK", text())
    } else {
        ("404 Not Found", "only /metrics is here\n".to_owned())
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.shutdown(Shutdown::Write)
}
