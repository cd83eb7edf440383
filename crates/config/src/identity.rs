//! What identifies a logical unit to an initiator: serial number and NAA designator.

use std::fmt;

use crate::Rule;

/// Something that is no NAA designator.
///
/// Spec: SPC, NAA designator format.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "naa {text:?} {problem}; write 16 hex digits that begin with 2, 3 or 5, or 32 that begin with 6"
)]
pub struct NaaRule {
    /// The designator as written.
    pub(crate) text: String,
    /// What is wrong with it.
    pub(crate) problem: &'static str,
}

/// Serial number of a unit: 1 to 64 printable ASCII characters without blanks.
///
/// Blanks pad serial numbers on the wire, so that one with blanks could not be distinguished from
/// another.
///
/// Spec: SPC, Unit Serial Number VPD page.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Serial(String);

/// Longest serial number in bytes.
const SERIAL_BYTES_MAX: usize = 64;

impl Serial {
    /// Reads a serial number.
    ///
    /// # Errors
    ///
    /// Empty, too long, or a character that is not printable ASCII.
    pub fn parse(text: &str) -> Result<Self, Rule> {
        if text.is_empty() {
            return Err(Rule::EmptyName { what: "serial" });
        }
        if text.len() > SERIAL_BYTES_MAX {
            return Err(Rule::TooLong {
                what: "serial",
                got_bytes: text.len(),
                max_bytes: SERIAL_BYTES_MAX,
            });
        }
        if let Some(character) = text.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(Rule::Character {
                what: "serial",
                text: text.to_owned(),
                character,
                allowed: "letters, digits and signs of ASCII without blanks",
            });
        }
        Ok(Self(text.to_owned()))
    }

    /// The serial number that goes with a made designator: its digits without the first, which
    /// only shows the type, so that people see that the two belong together.
    pub fn of_naa(naa: Naa) -> Self {
        let mut digits = naa.to_string();
        digits.remove(0);
        Self(digits)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// NAA designator of a unit, by which multipath software knows that two paths lead to one disk.
///
/// Spec: SPC, NAA designator format.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Naa {
    /// NAA 2, 3 or 5.
    Short([u8; 8]),
    /// NAA 6.
    Long([u8; 16]),
}

impl Naa {
    /// Reads 16 or 32 hex digits, in either case.
    ///
    /// # Errors
    ///
    /// Another length, other characters, or a first digit that does not go with the length.
    pub fn parse(text: &str) -> Result<Self, NaaRule> {
        let wrong = |problem| NaaRule {
            text: text.to_owned(),
            problem,
        };
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong("has characters that are no hex digits"));
        }
        let digits = u128::from_str_radix(text, 16).unwrap_or_default();
        let bytes = digits.to_be_bytes();
        match (text.len(), text.as_bytes().first()) {
            (32, Some(b'6')) => Ok(Self::Long(bytes)),
            (16, Some(b'2' | b'3' | b'5')) => {
                let [.., a, b, c, d, e, f, g, h] = bytes;
                Ok(Self::Short([a, b, c, d, e, f, g, h]))
            }
            (16 | 32, _) => Err(wrong(
                "begins with a digit that does not go with its length",
            )),
            _ => Err(wrong("has another length")),
        }
    }

    /// A locally assigned designator (NAA 3) with 60 of the bits of `random`.
    pub const fn locally_assigned(random: [u8; 8]) -> Self {
        let [first, a, b, c, d, e, f, g] = random;
        Self::Short([0x30 | (first & 0x0f), a, b, c, d, e, f, g])
    }

    /// The designator as it goes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

impl fmt::Display for Naa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_printable_and_bounded() {
        assert_eq!(Serial::parse("A-1_~!").unwrap().as_str(), "A-1_~!");
        assert!(Serial::parse(&"x".repeat(64)).is_ok());
        for (text, message) in [
            (String::new(), "serial is empty"),
            (
                "x".repeat(65),
                "serial of 65 bytes is too long; the limit is 64",
            ),
            ("a b".to_owned(), "has the character ' '"),
            ("a\u{e9}".to_owned(), "has the character '\u{e9}'"),
            ("a\n".to_owned(), "has the character '\\n'"),
        ] {
            let got = Serial::parse(&text).unwrap_err().to_string();
            assert!(got.contains(message), "{got}");
        }
    }

    #[test]
    fn the_serial_number_of_a_designator_is_one() {
        for naa in ["3123456789abcdef", "600a0b8000c0ffee0123456789abcdef"] {
            let serial = Serial::of_naa(Naa::parse(naa).unwrap());
            assert_eq!(Serial::parse(&naa[1..]), Ok(serial));
        }
    }

    #[test]
    fn an_naa_designator_has_the_length_that_its_first_digit_asks_for() {
        for text in [
            "2000000000000001",
            "3000000000000001",
            "500a0b8000c0ffee",
            "600a0b8000c0ffee0123456789abcdef",
        ] {
            assert_eq!(Naa::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Naa::parse("500A0B8000C0FFEE").unwrap().to_string(),
            "500a0b8000c0ffee"
        );
        for (text, message) in [
            ("", "has another length"),
            ("300000000000001", "has another length"),
            ("30000000000000012", "has another length"),
            ("4000000000000001", "begins with a digit"),
            ("6000000000000001", "begins with a digit"),
            ("300a0b8000c0ffee0123456789abcdef", "begins with a digit"),
            ("0x30000000000000", "no hex digits"),
            ("+300000000000001", "no hex digits"),
        ] {
            let got = Naa::parse(text).unwrap_err().to_string();
            assert!(got.contains(message), "{text}: {got}");
        }
    }

    #[test]
    fn a_made_designator_is_locally_assigned_and_keeps_sixty_bits() {
        assert_eq!(
            Naa::locally_assigned([0xff; 8]).to_string(),
            "3fffffffffffffff"
        );
        assert_eq!(
            Naa::locally_assigned([0; 8]).to_string(),
            "3000000000000000"
        );
    }
}
