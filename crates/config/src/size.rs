//! Sizes as people write them. Knows bytes, no blocks.

/// Why a text is no size.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SizeRule {
    /// No digits where a size is needed.
    #[error("size {text:?}: no number; write it as 512, 64k, 1M, 2G or 1T")]
    NotANumber {
        /// The size as written.
        text: String,
    },
    /// A suffix other than k, M, G and T.
    #[error("size {text:?}: unknown suffix {suffix:?}; use k, M, G or T")]
    SuffixUnknown {
        /// The size as written.
        text: String,
        /// What stands behind the digits.
        suffix: String,
    },
    /// More bytes than a file can have.
    #[error("size {text:?} is too large; the largest is {max_bytes} bytes")]
    TooLarge {
        /// The size as written.
        text: String,
        /// The largest size in bytes.
        max_bytes: u64,
    },
    /// A size of nothing.
    #[error("size {text:?} is 0 bytes; give at least one block")]
    Zero {
        /// The size as written.
        text: String,
    },
}

/// The largest size of a store in bytes: the largest offset the system calls can express.
pub const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

/// Reads a size such as `512`, `64k`, `1M`, `2GiB` or `1TB` into bytes.
///
/// Every suffix is a power of 1024, with or without `i`: capacities of disks are counted in
/// blocks of 512 or 4096 bytes, which no power of ten divides.
///
/// # Errors
///
/// No number, an unknown suffix, zero, or more than [`SIZE_BYTES_MAX`].
pub fn parse_size(text: &str) -> Result<u64, SizeRule> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err(SizeRule::NotANumber {
            text: text.to_owned(),
        });
    }
    let shift = suffix_shift(suffix).ok_or_else(|| SizeRule::SuffixUnknown {
        text: text.to_owned(),
        suffix: suffix.to_owned(),
    })?;
    let too_large = || SizeRule::TooLarge {
        text: text.to_owned(),
        max_bytes: SIZE_BYTES_MAX,
    };
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|&bytes| bytes <= SIZE_BYTES_MAX)
        .ok_or_else(too_large)?;
    if bytes == 0 {
        return Err(SizeRule::Zero {
            text: text.to_owned(),
        });
    }
    Ok(bytes)
}

/// The power of two that a suffix stands for.
fn suffix_shift(suffix: &str) -> Option<u32> {
    let mut letters = suffix.chars();
    let Some(first) = letters.next() else {
        return Some(0);
    };
    let shift = match first.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        'b' if letters.as_str().is_empty() => return Some(0),
        _ => return None,
    };
    matches!(letters.as_str(), "" | "iB" | "B" | "i").then_some(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_at_both_edges() {
        for (text, bytes) in [
            ("1", 1),
            ("512", 512),
            ("512B", 512),
            ("64k", 64 << 10),
            ("64K", 64 << 10),
            ("64kiB", 64 << 10),
            ("1M", 1 << 20),
            ("2GiB", 2 << 30),
            ("1TB", 1 << 40),
            ("1Ti", 1 << 40),
            ("9223372036854775807", SIZE_BYTES_MAX),
            ("8388607T", 8_388_607 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_names_the_rule() {
        #[rustfmt::skip]
        let cases = [
            ("", "size \"\": no number; write it as 512, 64k, 1M, 2G or 1T"),
            ("-1", "size \"-1\": no number; write it as 512, 64k, 1M, 2G or 1T"),
            ("10X", "size \"10X\": unknown suffix \"X\"; use k, M, G or T"),
            ("1.5G", "size \"1.5G\": unknown suffix \".5G\"; use k, M, G or T"),
            ("1MM", "size \"1MM\": unknown suffix \"MM\"; use k, M, G or T"),
            ("0", "size \"0\" is 0 bytes; give at least one block"),
            ("0G", "size \"0G\" is 0 bytes; give at least one block"),
            ("9223372036854775808", "size \"9223372036854775808\" is too large; the largest is 9223372036854775807 bytes"),
            ("8388608T", "size \"8388608T\" is too large; the largest is 9223372036854775807 bytes"),
            ("99999999999999999999", "size \"99999999999999999999\" is too large; the largest is 9223372036854775807 bytes"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_size(text).unwrap_err().to_string(), message);
        }
    }
}
