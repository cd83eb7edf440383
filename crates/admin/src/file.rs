//! Files as answers: large, so each is sent in pieces, and keeps its place until its reader has it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// How much is given at a time, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// 200 with this file.
pub(crate) fn file(content: Vec<u8>, kind: &'static str, place: OwnedSemaphorePermit) -> Response {
    let reading = Reading {
        content,
        read_bytes: 0,
        _place: place,
    };
    ([(header::CONTENT_TYPE, kind)], Body::new(reading)).into_response()
}

/// A file on its way. Pieces are copies, so that what waits in a socket does not keep the whole.
#[derive(Debug)]
struct Reading {
    content: Vec<u8>,
    read_bytes: usize,
    _place: OwnedSemaphorePermit,
}

impl Reading {
    fn rest(&self) -> &[u8] {
        self.content.get(self.read_bytes..).unwrap_or_default()
    }
}

impl hyper::body::Body for Reading {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.rest().chunks(PIECE_BYTES).next();
        let piece = piece.map(Bytes::copy_from_slice);
        self.read_bytes += piece.as_ref().map_or(0, Bytes::len);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest().len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_file_arrives_whole_and_gives_its_place_back() {
        let places = Arc::new(Semaphore::new(1));
        let content: Vec<u8> = (0..=255).cycle().take(PIECE_BYTES * 2 + 1).collect();
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let answer = file(content.clone(), "text/plain", place);
        assert_eq!(places.available_permits(), 0);
        let read = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(read, content);
        assert_eq!(places.available_permits(), 1);
    }
}
