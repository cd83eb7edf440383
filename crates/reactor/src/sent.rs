//! The event of a send that has ended with a completion.

use memory::Message;
use rustix::io::Errno;

use crate::event::{Event, Token};
use crate::operation::check;

/// Whether a message has been sent. What moves nothing of something has no way to go on.
fn sent(result: i32, message: &Message) -> Result<(), Errno> {
    match check(result)? {
        0 if !message.is_empty() => Err(Errno::PIPE),
        _ => Ok(()),
    }
}

#[inline]
pub(crate) fn sent_event(token: Token, message: Message, result: i32) -> Event {
    let result = sent(result, &message);
    Event::Sent {
        token,
        message,
        result,
        at_once: false,
    }
}
