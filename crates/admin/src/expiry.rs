//! What a certificate says of itself: until when it is valid, and whether it is one of a CA. Reads as much of its DER
//! as that takes, and verifies nothing.
//!
//! Spec: RFC 5280, Certificate, Validity, Basic Constraints; ITU-T X.690, identifier and length octets.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::time::{Duration, SystemTime};

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `version` of a certificate.
const VERSION: u8 = 0xa0;
/// `extensions` of a certificate.
const EXTENSIONS: u8 = 0xa3;

/// 2.5.29.19
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// The next element of a list: its tag, its contents, and the rest of the list.
fn next(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ 0..0x80 => (usize::from(short), rest),
        0x80 => return None,
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            if digits.len() > size_of::<u32>() {
                return None;
            }
            let sum = |sum: usize, digit: &u8| (sum << 8) | usize::from(*digit);
            (digits.iter().fold(0, sum), rest)
        }
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// The contents of the next element, which has this tag.
fn expect(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, contents, rest) = next(der)?;
    (tag == wanted).then_some((contents, rest))
}

/// The list of fields from `validity` on.
fn from_validity(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature, issuer.
    for _ in 0..3 {
        fields = next(fields)?.2;
    }
    Some(fields)
}

/// When the certificate is valid no longer; `None` where it cannot be read.
pub(crate) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let (validity, _) = expect(from_validity(certificate)?, SEQUENCE)?;
    let (_, _, rest) = next(validity)?;
    let (tag, text, _) = next(rest)?;
    let text = std::str::from_utf8(text).ok()?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (
                if year < 50 { 2000 } else { 1900_u64 }.checked_add(year)?,
                rest,
            )
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    moment(year, rest)
}

/// `MMDDHHMMSSZ` of a year.
fn moment(year: u64, text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.len() == 10)?;
    let part = |at: usize| {
        let part = digits.get(at..at.checked_add(2)?)?;
        part.parse::<u64>().ok()
    };
    let (month, day) = (part(0)?, part(2)?);
    if !(1..=12).contains(&month) || year < 1970 {
        return None;
    }
    // Days of the civil calendar, with years that begin in March.
    let (year, month) = match month {
        1 | 2 => (year.checked_sub(1)?, month.checked_add(9)?),
        _ => (year, month.checked_sub(3)?),
    };
    let leap = (year / 4)
        .checked_sub(year / 100)?
        .checked_add(year / 400)?;
    let of_month = month.checked_mul(153)?.checked_add(2)? / 5;
    let days = year.checked_mul(365)?.checked_add(leap)?;
    let days = days.checked_add(of_month)?.checked_add(day)?;
    let days = days.checked_sub(719_469)?;
    let minutes = part(4)?.checked_mul(60)?.checked_add(part(6)?)?;
    let seconds = minutes.checked_mul(60)?.checked_add(part(8)?)?;
    let seconds = days.checked_mul(86_400)?.checked_add(seconds)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Whether the certificate is one that may sign others. One without extensions is too old to say.
pub(crate) fn is_ca(certificate: &[u8]) -> bool {
    let Some(mut fields) = from_validity(certificate) else {
        return false;
    };
    let extensions = loop {
        let Some((tag, contents, rest)) = next(fields) else {
            return true;
        };
        if tag == EXTENSIONS {
            break contents;
        }
        fields = rest;
    };
    let Some((mut extensions, _)) = expect(extensions, SEQUENCE) else {
        return false;
    };
    while let Some((extension, rest)) = expect(extensions, SEQUENCE) {
        if let Some((BASIC_CONSTRAINTS, value)) = expect(extension, OBJECT_IDENTIFIER) {
            return may_sign(value).unwrap_or(false);
        }
        extensions = rest;
    }
    false
}

/// What follows the name of Basic Constraints: whether it is critical, if that is said, then `cA`.
fn may_sign(value: &[u8]) -> Option<bool> {
    let value = expect(value, BOOLEAN).map_or(value, |(_, rest)| rest);
    let (constraints, _) = expect(value, OCTET_STRING)?;
    let (constraints, _) = expect(constraints, SEQUENCE)?;
    let (ca, _) = expect(constraints, BOOLEAN)?;
    Some(ca.first().is_some_and(|&ca| ca != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    fn made(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["host".to_owned()]).unwrap();
        change(&mut params);
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        made.der().to_vec()
    }

    #[test]
    fn the_end_of_a_certificate_is_found_in_both_forms_of_time() {
        for (year, month, day, expected) in [
            (2026, 11, 29, 1_795_910_400),
            (2028, 2, 29, 1_835_395_200),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000_u64),
            (2400, 3, 1, 13_574_649_600),
        ] {
            let end = date_time_ymd(year, month, day);
            let der = made(|params| params.not_after = end);
            let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(expected);
            assert_eq!(not_after(&der), Some(expected), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn only_one_that_may_sign_is_a_ca() {
        let unconstrained = IsCa::Ca(BasicConstraints::Unconstrained);
        assert!(is_ca(&made(|params| params.is_ca = unconstrained)));
        let constrained = IsCa::Ca(BasicConstraints::Constrained(1));
        assert!(is_ca(&made(|params| params.is_ca = constrained)));
        assert!(!is_ca(&made(|params| params.is_ca = IsCa::ExplicitNoCa)));
        assert!(!is_ca(&made(|_| {})));
    }

    #[test]
    fn what_is_cut_short_says_nothing_and_breaks_nothing() {
        let whole = made(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        for length in 0..whole.len() {
            assert_eq!(not_after(&whole[..length]), None, "{length} bytes");
            assert!(!is_ca(&whole[..length]));
        }
        for at in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[at] ^= 0xff;
            let _any = (not_after(&wrong), is_ca(&wrong));
        }
    }
}
