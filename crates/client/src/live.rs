//! The stream of counters and events.

use api::event::Event;
use api::stats::Stats;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use crate::sse::{Frame, Parser};
use crate::{Client, ClientError};

/// A message of the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Counters, once a second.
    Stats(Box<Stats>),
    /// Something happened; with its JSON as it came.
    Event(Box<Event>, Value),
}

/// The messages of a stream, as they come. Ends when the daemon does.
#[derive(Debug)]
pub struct Live<'a> {
    client: &'a Client,
    body: Incoming,
    parser: Parser,
    is_over: bool,
}

impl<'a> Live<'a> {
    pub(crate) fn new(client: &'a Client, body: Incoming) -> Self {
        Self {
            client,
            body,
            parser: Parser::new(client.limits.answer_bytes_max),
            is_over: false,
        }
    }

    /// Waits for more bytes; false at the end of the stream.
    fn more(&mut self) -> Result<bool, ClientError> {
        let client = self.client;
        let silence = client.limits.silence;
        let frame = client
            .runtime
            .block_on(async { timeout(silence, self.body.frame()).await })
            .map_err(|_| client.late(silence))?;
        let Some(frame) = frame else {
            return Ok(false);
        };
        let frame = frame.map_err(|source| client.broken(source))?;
        let Some(bytes) = frame.data_ref() else {
            return Ok(true);
        };
        self.parser.feed(bytes).map_err(|_| ClientError::TooLarge {
            peer: client.endpoint.to_string(),
            limit: client.limits.answer_bytes_max,
        })?;
        Ok(true)
    }

    fn poll(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            while let Some(frame) = self.parser.next() {
                if let Some(message) = self.read(&frame)? {
                    return Ok(Some(message));
                }
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// `None` for a kind of message that a newer daemon sends.
    fn read(&self, frame: &Frame) -> Result<Option<Message>, ClientError> {
        let foreign = |_| ClientError::Foreign {
            peer: self.client.endpoint.to_string(),
            status: 200,
        };
        match frame.kind.as_str() {
            "stats" => {
                let stats = serde_json::from_str(&frame.data).map_err(foreign)?;
                Ok(Some(Message::Stats(stats)))
            }
            "event" => {
                let json: Value = serde_json::from_str(&frame.data).map_err(foreign)?;
                let event = serde_json::from_value(json.clone()).map_err(foreign)?;
                Ok(Some(Message::Event(event, json)))
            }
            _ => Ok(None),
        }
    }
}

impl Iterator for Live<'_> {
    type Item = Result<Message, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let message = self.poll().transpose();
        self.is_over = !matches!(message, Some(Ok(_)));
        message
    }
}
