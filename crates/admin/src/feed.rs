//! Bodies that are made while they are sent, so that no answer lies in memory as a whole.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
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

/// A body with what it keeps until it is sent.
#[derive(Debug)]
pub(crate) struct Keeping<B, K> {
    body: B,
    _kept: K,
}

impl<B, K> Keeping<B, K> {
    pub(crate) const fn new(body: B, kept: K) -> Self {
        Self { body, _kept: kept }
    }
}

impl<B: Body + Unpin, K: Unpin> Body for Keeping<B, K> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn frames<B: Body<Data = Bytes, Error = Infallible> + Unpin>(body: &mut B) -> Vec<Bytes> {
        let mut all = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            all.push(frame.into_data().unwrap());
        }
        all
    }

    #[tokio::test]
    async fn a_body_is_what_comes_and_what_it_keeps_goes_with_it() {
        let kept = Arc::new(());
        let pieces = Pieces(["a", "b"].map(str::to_owned).into_iter());
        let mut body = Keeping::new(pieces, Arc::clone(&kept));
        assert_eq!(frames(&mut body).await, ["a", "b"]);
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(body);
        assert_eq!(Arc::strong_count(&kept), 1);
        let (sender, receiver) = mpsc::channel(2);
        for text in ["c", "d"] {
            sender.send(Bytes::from(text)).await.unwrap();
        }
        drop(sender);
        assert_eq!(frames(&mut Feed(receiver)).await, ["c", "d"]);
        let mut whole = Keeping::new(http_body_util::Full::new(Bytes::from("abc")), ());
        assert_eq!(
            (whole.size_hint().exact(), whole.is_end_stream()),
            (Some(3), false)
        );
        assert_eq!(frames(&mut whole).await, ["abc"]);
        assert!(whole.is_end_stream());
    }
}
