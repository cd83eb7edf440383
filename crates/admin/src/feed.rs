//! Bodies that are made while they are sent, so that no answer lies in memory as a whole.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc;

/// What comes through a channel, until its sender is gone.
#[derive(Debug)]
pub(crate) struct Feed(pub(crate) mpsc::Receiver<Bytes>);

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// What an iterator gives, piece by piece, as fast as the peer takes it.
#[derive(Debug)]
pub(crate) struct Pieces<I>(pub(crate) I);

impl<I: Iterator<Item = String> + Unpin> Body for Pieces<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.next();
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece.into()))))
    }
}
