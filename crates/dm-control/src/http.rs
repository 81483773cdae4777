//! A minimal HTTP server for metrics scrapers, without keep-alive.

use std::time::Duration;

/// The time that a scraper may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of bytes of a request. A longer request gets no response.
pub(crate) const REQUEST_MAX: usize = 4096;

/// Returns whether all lines of a request have arrived.
pub(crate) fn is_complete(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n")
}

/// Returns the response to a complete request.
pub(crate) fn respond(request: &[u8], text: impl FnOnce() -> String) -> Vec<u8> {
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", text())
    } else {
        ("404 Not Found", "only /metrics exists\n".to_owned())
    };
    let length = body.len();
    let kind = "text/plain; version=0.0.4";
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    (head + &body).into_bytes()
}
