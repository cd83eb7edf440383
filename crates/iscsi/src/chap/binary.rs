//! Binary values as text, hexadecimal and base64.
//!
//! Spec: RFC 7143 section 6.1.

use crate::limits::{BINARY_TEXT_MAX_BYTES, BINARY_VALUE_MAX_BYTES};

/// Reads a binary value: `0x` and hexadecimal, or `0b` and base64.
///
/// An odd number of hexadecimal digits is read as if a zero stood in front. `None` when the text is
/// malformed, empty, or longer than 1024 bytes decoded.
#[must_use]
pub fn decode_binary(text: &str) -> Option<Vec<u8>> {
    if text.len() > BINARY_TEXT_MAX_BYTES {
        return None;
    }
    let (prefix, digits) = text.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => decode_hex(digits)?,
        "0b" | "0B" => decode_base64(digits)?,
        _ => return None,
    };
    (1..=BINARY_VALUE_MAX_BYTES)
        .contains(&bytes.len())
        .then_some(bytes)
}

fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let mut values = Vec::with_capacity(digits.len().saturating_add(1));
    if !digits.len().is_multiple_of(2) {
        values.push(0);
    }
    for digit in digits.chars() {
        values.push(u8::try_from(digit.to_digit(16)?).ok()?);
    }
    let (pairs, _) = values.as_chunks::<2>();
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn decode_base64(digits: &str) -> Option<Vec<u8>> {
    let padding = digits
        .len()
        .saturating_sub(digits.trim_end_matches('=').len());
    if !digits.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len());
    let mut gathered = 0_u32;
    let mut bits = 0_u32;
    for digit in digits.trim_end_matches('=').bytes() {
        let value = BASE64.iter().position(|&known| known == digit)?;
        gathered = gathered << 6 | u32::try_from(value).ok()?;
        bits = bits.saturating_add(6);
        if bits >= 8 {
            bits = bits.saturating_sub(8);
            let [.., byte] = gathered.wrapping_shr(bits).to_be_bytes();
            bytes.push(byte);
        }
    }
    // Left-over bits must be zero, else two texts would mean one value.
    let rest = gathered & 1_u32.wrapping_shl(bits).wrapping_sub(1);
    (rest == 0).then_some(bytes)
}

/// Writes a binary value in hexadecimal, which every peer reads.
#[must_use]
pub fn encode_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("0x");
    for byte in bytes {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

/// Writes a binary value in base64.
#[must_use]
pub fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::from("0b");
    for chunk in bytes.chunks(3) {
        let mut word = [0_u8; 4];
        for (slot, byte) in word.iter_mut().skip(1).zip(chunk) {
            *slot = *byte;
        }
        let word = u32::from_be_bytes(word);
        for (place, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let value = usize::try_from(word.wrapping_shr(shift) & 63).unwrap_or_default();
            let digit = BASE64.get(value).copied().unwrap_or(b'=');
            text.push(if place <= chunk.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn binary_values_read_in_both_forms_and_at_both_edges() {
        for (text, bytes) in [
            ("0x00ff", Some(vec![0x00, 0xff])),
            ("0XAbC", Some(vec![0x0a, 0xbc])),
            ("0bAP8=", Some(vec![0x00, 0xff])),
            ("0BAP8A", Some(vec![0x00, 0xff, 0x00])),
            ("0bAP9=", None),
            ("0bAP8", None),
            ("0bA===", None),
            ("0bA=8=", None),
            ("0x", None),
            ("0b", None),
            ("0xfg", None),
            ("ff", None),
            ("", None),
            ("0é", None),
        ] {
            assert_eq!(decode_binary(text), bytes, "{text:?}");
        }
        let long = |length: usize| format!("0x{}", "ab".repeat(length));
        assert!(decode_binary(&long(1024)).is_some());
        assert!(decode_binary(&long(1025)).is_none());
        assert!(decode_binary(&encode_base64(&[7; 1024])).is_some());
        assert!(decode_binary(&encode_base64(&[7; 1025])).is_none());
    }

    proptest! {
        #[test]
        fn binary_values_survive_both_forms(
            bytes in proptest::collection::vec(any::<u8>(), 1..=1024),
        ) {
            prop_assert_eq!(decode_binary(&encode_hex(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(decode_binary(&encode_base64(&bytes)), Some(bytes));
        }

        #[test]
        fn no_text_makes_the_decoder_panic(text in "(0x|0b|0B)?.{0,80}") {
            if let Some(bytes) = decode_binary(&text) {
                    prop_assert!(bytes.len() <= text.len());
                }
        }
    }
}
