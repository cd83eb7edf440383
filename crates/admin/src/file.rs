//! Files as answers: large, so only some at once, each in pieces until its reader has it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::problem::{Problem, ProblemKind};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// How much is given at a time, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Places for files.
#[derive(Debug)]
pub(crate) struct Files(Arc<Semaphore>);

impl Default for Files {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::FILES_MAX)))
    }
}

impl Files {
    /// A place for one, to be taken before there is a file.
    ///
    /// # Errors
    ///
    /// All are taken.
    pub(crate) fn place(&self) -> Result<Place, Problem> {
        let place = Arc::clone(&self.0).try_acquire_owned();
        place.map(|held| Place { _held: held }).map_err(|_| {
            let detail = "too many files are being read; try again in a second";
            Problem::new(ProblemKind::Unavailable, detail)
        })
    }
}

/// Kept until its file has been read.
#[derive(Debug)]
pub(crate) struct Place {
    _held: OwnedSemaphorePermit,
}

/// 200 with this file.
pub(crate) fn file(content: Vec<u8>, kind: &'static str, place: Place) -> Response {
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
    _place: Place,
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
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_file_arrives_whole_and_gives_its_place_back() {
        let files = Files::default();
        let content: Vec<u8> = (0..=255).cycle().take(PIECE_BYTES * 2 + 1).collect();
        let answer = file(content.clone(), "text/plain", files.place().unwrap());
        let others: Vec<Place> = std::iter::from_fn(|| files.place().ok()).collect();
        assert_eq!(others.len(), limits::FILES_MAX - 1);
        let read = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(read, content);
        assert!(files.place().is_ok());
    }
}
