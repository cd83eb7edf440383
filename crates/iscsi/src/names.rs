//! iSCSI names: `iqn.`, `eui.` and `naa.`, checked and folded so that they can be compared.
//!
//! Spec: RFC 7143 section 4.2.7.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::fmt;

use crate::limits::NAME_MAX_BYTES;

/// Why a text is no iSCSI name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NameError {
    /// More bytes than a name may have.
    #[error("iSCSI name of {got_bytes} bytes, limit is {NAME_MAX_BYTES}")]
    TooLong {
        /// Length given.
        got_bytes: usize,
    },
    /// Neither `iqn.` nor `eui.` nor `naa.` in front.
    #[error("iSCSI name begins with neither iqn. nor eui. nor naa.")]
    UnknownType,
    /// A character that the name profile forbids.
    #[error("iSCSI name has the forbidden character {character:?}")]
    ForbiddenCharacter {
        /// The first one found.
        character: char,
    },
    /// `iqn.` is not followed by `yyyy-mm.` and a naming authority.
    #[error("iqn. is not followed by yyyy-mm. and a reversed domain name")]
    MalformedIqn,
    /// `eui.` needs 16 hexadecimal digits.
    #[error("eui. is followed by {got_digits} characters, not by 16 hexadecimal digits")]
    MalformedEui {
        /// Characters given.
        got_digits: usize,
    },
    /// `naa.` needs 16 or 32 hexadecimal digits.
    #[error("naa. is followed by {got_digits} characters, not by 16 or 32 hexadecimal digits")]
    MalformedNaa {
        /// Characters given.
        got_digits: usize,
    },
}

/// The name of an iSCSI node. Two equal names compare equal however they were spelled.
///
/// The name profile asks for Unicode case folding and normalisation (RFC 3722). Here ASCII is
/// folded and other letters are taken as they come, because names outside ASCII are not met in
/// practice; a peer that spells one in two ways is then two peers, which only costs it access.
/// The underscore is let through although the profile forbids it: initiators in the field use it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct IscsiName(Box<str>);

impl IscsiName {
    /// Checks and folds a name.
    ///
    /// # Errors
    ///
    /// The first rule the text offends.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.len() > NAME_MAX_BYTES {
            return Err(NameError::TooLong {
                got_bytes: text.len(),
            });
        }
        if let Some(character) = text.chars().find(|&c| !is_name_character(c)) {
            return Err(NameError::ForbiddenCharacter { character });
        }
        let folded = text.to_ascii_lowercase();
        let (kind, rest) = folded.split_once('.').ok_or(NameError::UnknownType)?;
        let got_digits = rest.chars().count();
        let is_hex = rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        match kind {
            "iqn" if is_iqn_rest(rest) => {}
            "iqn" => return Err(NameError::MalformedIqn),
            "eui" if is_hex && got_digits == 16 => {}
            "eui" => return Err(NameError::MalformedEui { got_digits }),
            "naa" if is_hex && (got_digits == 16 || got_digits == 32) => {}
            "naa" => return Err(NameError::MalformedNaa { got_digits }),
            _ => return Err(NameError::UnknownType),
        }
        Ok(Self(folded.into()))
    }

    /// The folded name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for IscsiName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

fn is_name_character(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_')
    } else {
        c.is_alphanumeric()
    }
}

/// `yyyy-mm.authority`, where the authority may be followed by `:` and anything.
fn is_iqn_rest(rest: &str) -> bool {
    let Some((date, authority)) = rest.split_once('.') else {
        return false;
    };
    let Some((year, month)) = date.split_once('-') else {
        return false;
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    year.len() == 4
        && is_digits(year)
        && month.len() == 2
        && is_digits(month)
        && ("01"..="12").contains(&month)
        && authority.starts_with(|c: char| c != ':' && c != '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_three_types_are_folded() {
        #[rustfmt::skip]
        let cases = [
            ("iqn.2026-11.example.tarn:Demo", "iqn.2026-11.example.tarn:demo"),
            ("IQN.1993-08.org.debian:01:abc", "iqn.1993-08.org.debian:01:abc"),
            ("iqn.1991-05.com.microsoft:pc_1", "iqn.1991-05.com.microsoft:pc_1"),
            ("iqn.2001-04.com.example", "iqn.2001-04.com.example"),
            ("eui.02004567A425678D", "eui.02004567a425678d"),
            ("naa.52004567BA64678D", "naa.52004567ba64678d"),
            ("naa.62004567BA64678D0123456789ABCDEF", "naa.62004567ba64678d0123456789abcdef"),
            ("iqn.2001-04.com.example:größe", "iqn.2001-04.com.example:größe"),
        ];
        for (text, folded) in cases {
            assert_eq!(IscsiName::parse(text).unwrap().as_str(), folded);
        }
    }

    #[test]
    fn malformed_names_are_refused_with_the_rule() {
        #[rustfmt::skip]
        let cases = [
            ("", NameError::UnknownType),
            ("host", NameError::UnknownType),
            ("abc.2001-04.com.example", NameError::UnknownType),
            ("iqn.", NameError::MalformedIqn),
            ("iqn.2001-13.com.example", NameError::MalformedIqn),
            ("iqn.2001-00.com.example", NameError::MalformedIqn),
            ("iqn.201-04.com.example", NameError::MalformedIqn),
            ("iqn.2001-04", NameError::MalformedIqn),
            ("iqn.2001-04.", NameError::MalformedIqn),
            ("iqn.2001-04.:x", NameError::MalformedIqn),
            ("eui.02004567A425678", NameError::MalformedEui { got_digits: 15 }),
            ("eui.02004567A425678G", NameError::MalformedEui { got_digits: 16 }),
            ("naa.52004567BA64678D0", NameError::MalformedNaa { got_digits: 17 }),
            ("iqn.2001-04.com.example:a b", NameError::ForbiddenCharacter { character: ' ' }),
            ("iqn.2001-04.com.example:a/b", NameError::ForbiddenCharacter { character: '/' }),
            ("iqn.2001-04.com.example:\n", NameError::ForbiddenCharacter { character: '\n' }),
        ];
        for (text, error) in cases {
            assert_eq!(IscsiName::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn length_holds_at_both_edges() {
        let name = |length: usize| format!("iqn.2001-04.x:{}", "a".repeat(length - 14));
        assert!(IscsiName::parse(&name(223)).is_ok());
        assert_eq!(
            IscsiName::parse(&name(224)),
            Err(NameError::TooLong { got_bytes: 224 })
        );
    }
}
