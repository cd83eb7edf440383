//! The request line as it was sent. The parser drops a fragment from it, and with that whatever was meant to follow:
//! `DELETE /luns/a#?plan=true` would be the deed.
//!
//! Spec: RFC 9112 section 3.2.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of a request line there is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Line {
    /// Nothing yet.
    #[default]
    Awaited,
    /// Its beginning.
    Begun,
    /// All of it.
    Over,
}

#[derive(Debug, Default)]
struct Seen {
    line: Line,
    has_fragment: bool,
}

/// What is seen of the line of each request of a connection, from the answer before it on.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLine(Arc<Mutex<Seen>>);

impl RequestLine {
    /// Every change is one value.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, bytes: &[u8]) {
        let mut seen = self.lock();
        for byte in bytes {
            seen.line = match (seen.line, byte) {
                (Line::Over, _) => return,
                (Line::Awaited, b'\r' | b'\n') => Line::Awaited,
                // What does not begin with a method is the rest of something else.
                (Line::Awaited, byte) if !byte.is_ascii_uppercase() => Line::Over,
                (Line::Begun, b'\n') => Line::Over,
                (Line::Awaited | Line::Begun, _) => Line::Begun,
            };
            seen.has_fragment |= seen.line == Line::Begun && *byte == b'#';
        }
    }

    /// Whether the target of the request has a fragment.
    pub(crate) fn has_fragment(&self) -> bool {
        self.lock().has_fragment
    }

    /// Until the value is gone, the request of this line is being answered.
    pub(crate) fn answered(&self) -> Answered {
        Answered(self.clone())
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Answered(RequestLine);

impl Drop for Answered {
    fn drop(&mut self) {
        *self.0.lock() = Seen::default();
    }
}

/// A stream of which the request lines are seen.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    line: RequestLine,
}

impl<S> Watched<S> {
    /// By this.
    pub(crate) const fn new(stream: S, line: RequestLine) -> Self {
        Self { stream, line }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let news = buffer.filled().get(before..).unwrap_or_default();
        self.line.see(news);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_is_seen_in_the_request_line_alone() {
        for (pieces, has_fragment) in [
            (&["DELETE /a#?plan=true HTTP/1.1\r\n"][..], true),
            (&["\r\nDELETE /a", "#b HTTP/1.1\r\n"], true),
            (&["PUT /a HTTP/1.1\r\nX: #\r\n\r\n{\"a\": \"#\"}"], false),
            (&["PUT /a HTTP/1.1\r", "\n", "#"], false),
            (&["{\"text\": \"# a\"}"], false),
            (&["# a\r\n"], false),
            (&["GET /%23 HTTP/1.1\r\n"], false),
        ] {
            let line = RequestLine::default();
            for _ in 0..2 {
                let answered = line.answered();
                pieces.iter().for_each(|piece| line.see(piece.as_bytes()));
                assert_eq!(line.has_fragment(), has_fragment, "{pieces:?}");
                drop(answered);
            }
        }
    }
}
