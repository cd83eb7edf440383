//! Texts without what nobody should see who looks into a connection.

use crate::negotiate::Key;

/// What stands for a byte that is not shown.
const BLANK: u8 = b'*';

/// Blanks whatever is no key that this crate knows, and the answer to a challenge of CHAP: who has
/// both can try secrets at leisure. A pair that a text goes on with from the PDU before has no key
/// here, and so is blanked.
pub(super) fn blank(text: &mut [u8]) {
    for item in text.split_mut(|byte| *byte == 0) {
        let equals = item.iter().position(|byte| *byte == b'=');
        let key = equals.and_then(|end| item.get(..end)).and_then(key_of);
        let hidden = match key {
            Some(Key::ChapResponse) => equals.map_or(0, |at| at.saturating_add(1)),
            Some(_) => continue,
            None => 0,
        };
        item.get_mut(hidden..).unwrap_or_default().fill(BLANK);
    }
}

fn key_of(name: &[u8]) -> Option<Key> {
    Key::from_name(std::str::from_utf8(name).ok()?)
}
