//! Text segments: `key=value` pairs that end in NUL, as login and text PDUs carry them.
//!
//! This module owns the form: splitting, limits on lengths and counts, gathering a text that the
//! C bit spreads over PDUs, and cutting an answer to what the peer can take. It does not know
//! what any key means, apart from which ones carry long binary values.
//!
//! Spec: RFC 7143 sections 6.1 and 6.2.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::limits::{
    BINARY_TEXT_MAX_BYTES, KEY_NAME_MAX_BYTES, TEXT_KEYS_MAX, TEXT_MAX_BYTES, VALUE_MAX_BYTES,
};

/// What a peer's text does against the rules of form.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TextError {
    /// The whole text of one sequence is too long.
    #[error("text of {got_bytes} bytes, limit is {limit_bytes}")]
    TooLong {
        /// Length so far.
        got_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// Too many pairs in one sequence.
    #[error("more than {limit} keys in one text")]
    TooManyKeys {
        /// The limit.
        limit: usize,
    },
    /// A pair without an equals sign.
    #[error("pair at byte {offset_bytes} has no equals sign")]
    NoEqualsSign {
        /// Place of the pair in the text.
        offset_bytes: usize,
    },
    /// The name of a key is empty, too long, has no capital in front, or an illegal character.
    #[error("pair at byte {offset_bytes} has a malformed key name")]
    MalformedKey {
        /// Place of the pair in the text.
        offset_bytes: usize,
    },
    /// The value is longer than this key may have.
    #[error("value of {got_bytes} bytes at byte {offset_bytes}, limit is {limit_bytes}")]
    ValueTooLong {
        /// Place of the pair in the text.
        offset_bytes: usize,
        /// Length of the value.
        got_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The value is not UTF-8.
    #[error("value of the pair at byte {offset_bytes} is not UTF-8")]
    NotUtf8 {
        /// Place of the pair in the text.
        offset_bytes: usize,
    },
}

/// One `key=value`, borrowed from the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pair<'a> {
    /// Name of the key; its form is checked.
    pub key: &'a str,
    /// The value; only its length and encoding are checked.
    pub value: &'a str,
}

/// Splits a complete text into pairs.
///
/// A missing NUL at the end and surplus NULs anywhere are forgiven, because initiators in the
/// field send both.
///
/// # Errors
///
/// The first offence against form; nothing of the text is to be used then.
pub fn parse(text: &[u8]) -> Result<Vec<Pair<'_>>, TextError> {
    if text.len() > TEXT_MAX_BYTES {
        return Err(TextError::TooLong {
            got_bytes: text.len(),
            limit_bytes: TEXT_MAX_BYTES,
        });
    }
    let mut pairs = Vec::new();
    let mut offset_bytes = 0_usize;
    for item in text.split(|&byte| byte == 0) {
        if !item.is_empty() {
            if pairs.len() == TEXT_KEYS_MAX {
                return Err(TextError::TooManyKeys {
                    limit: TEXT_KEYS_MAX,
                });
            }
            pairs.push(parse_pair(item, offset_bytes)?);
        }
        offset_bytes = offset_bytes.saturating_add(item.len()).saturating_add(1);
    }
    Ok(pairs)
}

fn parse_pair(item: &[u8], offset_bytes: usize) -> Result<Pair<'_>, TextError> {
    let equals = item
        .iter()
        .position(|&byte| byte == b'=')
        .ok_or(TextError::NoEqualsSign { offset_bytes })?;
    let (key, rest) = item.split_at(equals);
    let value = rest.get(1..).unwrap_or_default();
    let key = std::str::from_utf8(key)
        .ok()
        .filter(|key| is_key_name(key))
        .ok_or(TextError::MalformedKey { offset_bytes })?;
    let limit_bytes = value_limit(key);
    if value.len() > limit_bytes {
        return Err(TextError::ValueTooLong {
            offset_bytes,
            got_bytes: value.len(),
            limit_bytes,
        });
    }
    let value = std::str::from_utf8(value).map_err(|_| TextError::NotUtf8 { offset_bytes })?;
    Ok(Pair { key, value })
}

/// True for a name that has the form of a key: a capital first, 63 bytes at most.
///
/// `#` is let through because the extension keys of the registry (`X#...`) have it.
#[must_use]
pub fn is_key_name(name: &str) -> bool {
    // Two names of the RFC itself begin with a small letter: iSCSIProtocolLevel and
    // iSERHelloRequired.
    let begins_well = name.starts_with(|c: char| c.is_ascii_uppercase()) || name.starts_with("iS");
    begins_well
        && name.len() <= KEY_NAME_MAX_BYTES
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte))
}

fn value_limit(key: &str) -> usize {
    if key.starts_with("CHAP_") || key.starts_with("SRP_") || key.starts_with("KRB_") {
        BINARY_TEXT_MAX_BYTES
    } else {
        VALUE_MAX_BYTES
    }
}

/// Gathers a text that the C bit spreads over several PDUs.
#[derive(Debug, Default)]
pub struct TextAccumulator {
    text: Vec<u8>,
}

impl TextAccumulator {
    /// Takes the data segment of one more PDU in.
    ///
    /// # Errors
    ///
    /// The sequence grows over [`TEXT_MAX_BYTES`]; what was gathered is dropped.
    pub fn push(&mut self, segment: &[u8]) -> Result<(), TextError> {
        let got_bytes = self.text.len().saturating_add(segment.len());
        if got_bytes > TEXT_MAX_BYTES {
            self.text = Vec::new();
            return Err(TextError::TooLong {
                got_bytes,
                limit_bytes: TEXT_MAX_BYTES,
            });
        }
        self.text.extend_from_slice(segment);
        Ok(())
    }

    /// The whole text; the accumulator is empty afterwards and holds no memory.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    /// True when nothing was gathered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// How much was gathered, in bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.text.len()
    }
}

/// Writes pairs, and hands the text out in pieces that the peer can take.
#[derive(Debug, Default)]
pub struct TextWriter {
    text: Vec<u8>,
}

impl TextWriter {
    /// A writer with nothing in it.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: Vec::new() }
    }

    /// Appends one pair.
    pub fn push(&mut self, key: &str, value: &str) {
        debug_assert!(is_key_name(key), "malformed key {key:?}");
        debug_assert!(!value.contains('\0'), "NUL in the value of {key}");
        self.text.extend_from_slice(key.as_bytes());
        self.text.push(b'=');
        self.text.extend_from_slice(value.as_bytes());
        self.text.push(0);
    }

    /// Appends one pair with a decimal number.
    pub fn push_number(&mut self, key: &str, value: u32) {
        self.push(key, &value.to_string());
    }

    /// True when there is nothing (left) to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Bytes not handed out yet.
    #[must_use]
    pub const fn left_bytes(&self) -> usize {
        self.text.len()
    }

    /// The next piece of at most `limit_bytes`, and whether more follows (the C bit).
    ///
    /// A limit of zero is taken as one, so that the text always ends.
    #[must_use]
    pub fn next_segment(&mut self, limit_bytes: usize) -> (Vec<u8>, bool) {
        let end = limit_bytes.max(1).min(self.text.len());
        let rest = self.text.split_off(end);
        let segment = std::mem::replace(&mut self.text, rest);
        (segment, !self.is_empty())
    }

    /// The whole text that is left.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.next_segment(usize::MAX).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
        Ok(parse(text)?.iter().map(|p| (p.key, p.value)).collect())
    }

    #[test]
    fn missing_and_surplus_nuls_are_forgiven() {
        let wanted = Ok(vec![("A", "1"), ("InitialR2T", "Yes")]);
        for text in [
            &b"A=1\0InitialR2T=Yes\0"[..],
            b"A=1\0InitialR2T=Yes",
            b"A=1\0\0InitialR2T=Yes\0\0\0",
            b"\0A=1\0InitialR2T=Yes\0",
        ] {
            assert_eq!(pairs(text), wanted);
        }
        assert_eq!(pairs(b""), Ok(vec![]));
        assert_eq!(pairs(b"\0\0"), Ok(vec![]));
    }

    #[test]
    fn only_the_first_equals_sign_splits() {
        assert_eq!(
            pairs(b"Key=a=b\0Empty=\0"),
            Ok(vec![("Key", "a=b"), ("Empty", "")])
        );
    }

    #[test]
    fn offences_against_form_are_named_with_their_place() {
        let offset_bytes = 4;
        for (item, error) in [
            (&b"novalue"[..], TextError::NoEqualsSign { offset_bytes }),
            (b"=x", TextError::MalformedKey { offset_bytes }),
            (b"small=x", TextError::MalformedKey { offset_bytes }),
            (b"9Nine=x", TextError::MalformedKey { offset_bytes }),
            (b"Spa ce=x", TextError::MalformedKey { offset_bytes }),
            (b"K\xff=x", TextError::MalformedKey { offset_bytes }),
            (b"K=\xff", TextError::NotUtf8 { offset_bytes }),
        ] {
            let text = [&b"A=1\0"[..], item].concat();
            assert_eq!(pairs(&text), Err(error), "{item:02x?}");
        }
    }

    #[test]
    fn lengths_hold_at_both_edges() {
        let long_key = |length: usize| format!("{}=v", "K".repeat(length)).into_bytes();
        assert!(parse(&long_key(63)).is_ok());
        assert!(parse(&long_key(64)).is_err());
        let long_value = |key: &str, length: usize| format!("{key}={}", "v".repeat(length));
        assert!(parse(long_value("Alias", 255).as_bytes()).is_ok());
        assert!(parse(long_value("Alias", 256).as_bytes()).is_err());
        assert!(parse(long_value("CHAP_C", 2050).as_bytes()).is_ok());
        assert!(parse(long_value("CHAP_C", 2051).as_bytes()).is_err());
        let many = |count: usize| "K=\0".repeat(count).into_bytes();
        assert_eq!(
            parse(&many(TEXT_KEYS_MAX)).map(|p| p.len()),
            Ok(TEXT_KEYS_MAX)
        );
        assert!(parse(&many(TEXT_KEYS_MAX + 1)).is_err());
        assert!(parse(&vec![0; TEXT_MAX_BYTES]).is_ok());
        assert!(parse(&vec![0; TEXT_MAX_BYTES + 1]).is_err());
    }

    #[test]
    fn keys_of_the_standard_with_odd_names_are_keys() {
        assert!(is_key_name("iSCSIProtocolLevel"));
        assert!(is_key_name("X#NodeArchitecture"));
        assert!(is_key_name("CHAP_A"));
        assert!(!is_key_name(""));
    }

    #[test]
    fn an_endless_text_is_cut_off_and_forgotten() {
        let mut accumulator = TextAccumulator::default();
        for _ in 0..8 {
            accumulator.push(&[b'x'; 8192]).unwrap();
        }
        assert_eq!(
            accumulator.push(b"x"),
            Err(TextError::TooLong {
                got_bytes: 65537,
                limit_bytes: 65536
            })
        );
        assert!(accumulator.is_empty());
    }

    #[test]
    fn a_long_answer_is_cut_anywhere_and_the_last_piece_says_so() {
        let mut writer = TextWriter::new();
        writer.push("A", "12");
        writer.push_number("Bc", 7);
        assert_eq!(writer.next_segment(4), (b"A=12".to_vec(), true));
        assert_eq!(writer.next_segment(4), (b"\0Bc=".to_vec(), true));
        assert_eq!(writer.next_segment(4), (b"7\0".to_vec(), false));
        assert!(writer.is_empty());
        assert_eq!(writer.next_segment(4), (vec![], false));
        writer.push("D", "");
        assert_eq!(writer.into_bytes(), b"D=\0");
    }

    proptest! {
        #[test]
        fn written_pairs_are_read_back(
            written in proptest::collection::vec(("[A-Z][A-Za-z0-9._+@-]{0,62}", "[^\0]{0,60}"), 0..40),
            cut in 1_usize..100,
        ) {
            let mut writer = TextWriter::new();
            for (key, value) in &written {
                writer.push(key, value);
            }
            let mut accumulator = TextAccumulator::default();
            loop {
                let (segment, more) = writer.next_segment(cut);
                prop_assert!(segment.len() <= cut);
                accumulator.push(&segment).unwrap();
                if !more {
                    break;
                }
            }
            let text = accumulator.take();
            let read: Vec<(String, String)> = parse(&text)
                .unwrap()
                .iter()
                .map(|p| (p.key.to_owned(), p.value.to_owned()))
                .collect();
            prop_assert_eq!(read, written);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(text in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(pairs) = parse(&text) {
                prop_assert!(pairs.iter().all(|pair| is_key_name(pair.key)));
            }
        }
    }
}
