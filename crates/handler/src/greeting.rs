//! The first bytes of a connection, in both directions.

use crate::ring::{
    COMPLETIONS, DATA, DATA_BYTES, ENTRY_BYTES, MEMORY_BYTES, SLOTS, SUBMISSIONS, as_u32,
};

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// Length of what Tarn sends first.
pub const HELLO_BYTES: usize = 64;
/// Length of the answer.
pub const ANSWER_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"TARNHDLR";

/// Why an answer is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GreetingError {
    /// Something else listens there.
    #[error("what listens there is no handler")]
    Magic,
    /// Another version of the protocol.
    #[error("the handler has version {0} of the protocol, Tarn has version {VERSION}")]
    Version(u32),
}

/// What Tarn sends, with the descriptor of the memory.
pub fn hello() -> [u8; HELLO_BYTES] {
    let fields = [
        VERSION,
        as_u32(SLOTS),
        as_u32(MEMORY_BYTES),
        as_u32(ENTRY_BYTES),
        as_u32(SUBMISSIONS),
        as_u32(COMPLETIONS),
        as_u32(DATA),
        as_u32(DATA_BYTES),
    ];
    let fields = fields.iter().flat_map(|field| field.to_le_bytes());
    let mut bytes = [0; HELLO_BYTES];
    for (place, byte) in bytes.iter_mut().zip(MAGIC.into_iter().chain(fields)) {
        *place = byte;
    }
    bytes
}

/// Whether what came back is the answer of a handler of this version.
///
/// # Errors
///
/// It is not.
pub fn check_answer(answer: &[u8; ANSWER_BYTES]) -> Result<(), GreetingError> {
    let [magic @ .., a, b, c, d, _, _, _, _] = answer;
    match u32::from_le_bytes([*a, *b, *c, *d]) {
        _ if *magic != MAGIC => Err(GreetingError::Magic),
        VERSION => Ok(()),
        other => Err(GreetingError::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tarn_says_first_is_as_documented() {
        let hello = hello();
        assert_eq!(hello[..8], *b"TARNHDLR");
        let fields = hello[8..40].chunks(4);
        let fields: Vec<_> = fields
            .map(|four| u32::from_le_bytes(four.try_into().unwrap()))
            .collect();
        let documented = [1, 64, 16_842_752, 320, 4096, 24_576, 65_536, 16_777_216];
        assert_eq!(fields, documented);
        assert_eq!(hello[40..], [0; 24]);
    }

    #[test]
    fn only_this_version_is_taken() {
        let mut answer = *b"TARNHDLR\x01\0\0\0\xff\xff\xff\xff";
        assert_eq!(check_answer(&answer), Ok(()));
        answer[8] = 2;
        assert_eq!(check_answer(&answer), Err(GreetingError::Version(2)));
        assert_eq!(check_answer(b"NBDMAGICIHAVEOPT"), Err(GreetingError::Magic));
    }
}
