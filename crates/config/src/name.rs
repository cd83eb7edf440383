//! iSCSI names, and patterns that match them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use crate::Rule;

/// Why a text is no iSCSI name, or no pattern of such names.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NameRule {
    /// An iSCSI name of a form that the standard does not have.
    ///
    /// Spec: RFC 7143 section 4.2.7.
    #[error(
        "iSCSI name {name:?} {problem}; write it as iqn.2026-11.com.example:disk, eui. with 16 or naa. with 16 or 32 \
         hex digits"
    )]
    Iscsi {
        /// The name as written.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A name pattern with a character that no iSCSI name can have.
    #[error(
        "initiator pattern {pattern:?} has the character {character:?}, which no iSCSI name has; remove it"
    )]
    Pattern {
        /// The pattern as written.
        pattern: String,
        /// The offender.
        character: char,
    },
    /// A text that is none.
    #[error(transparent)]
    Text(#[from] Rule),
}

/// Longest iSCSI name in bytes.
///
/// Spec: RFC 7143 section 4.2.7.2.
const NAME_BYTES_MAX: usize = 223;

/// Longest host part in a target name made from a host name, in bytes.
const HOST_BYTES_MAX: usize = 64;

/// Name of an iSCSI node, folded to lower case as the standard asks.
///
/// Tarn accepts the ASCII characters of the standard's profile; a name in another script has to
/// be given in a form of those (an internationalised domain name as `xn--...`).
///
/// Spec: RFC 7143 section 4.2.7.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct IscsiName(String);

impl IscsiName {
    /// Reads a name of one of the three types `iqn.`, `eui.` and `naa.`.
    ///
    /// # Errors
    ///
    /// Another type, too long, characters outside `a-z 0-9 - . : _`, a date that is none, or a
    /// wrong number of hex digits.
    ///
    /// The name profile (RFC 3722) has no underscore; targets of other programs have, and must keep
    /// their names when they are moved.
    pub fn parse(text: &str) -> Result<Self, NameRule> {
        let name = text.to_ascii_lowercase();
        let wrong = |problem| NameRule::Iscsi {
            name: text.to_owned(),
            problem,
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(NameRule::Text(Rule::TooLong {
                what: "iSCSI name",
                got_bytes: name.len(),
                max_bytes: NAME_BYTES_MAX,
            }));
        }
        if !name.bytes().all(is_name_byte) {
            return Err(wrong(
                "has characters other than letters, digits, - . : and _",
            ));
        }
        if let Some(rest) = name.strip_prefix("iqn.") {
            check_iqn(rest).map_err(wrong)?;
        } else if let Some(rest) = name.strip_prefix("eui.") {
            check_hex(rest, &[16]).map_err(wrong)?;
        } else if let Some(rest) = name.strip_prefix("naa.") {
            check_hex(rest, &[16, 32]).map_err(wrong)?;
        } else {
            return Err(wrong("does not begin with iqn., eui. or naa."));
        }
        Ok(Self(name))
    }

    /// The name, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_')
}

/// What stands behind `iqn.`: year, month, a reversed domain name, and what its owner likes.
fn check_iqn(rest: &str) -> Result<(), &'static str> {
    const DATE: &str = "has no date of the form yyyy-mm after iqn.";
    const DOMAIN: &str = "has no reversed domain name after the date";
    let (date, rest) = rest.split_once('.').ok_or(DATE)?;
    let (year, month) = date.split_once('-').ok_or(DATE)?;
    let is_number =
        |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_month = matches!(month.parse(), Ok(1..=12));
    if !is_number(year, 4) || !is_number(month, 2) || !is_month {
        return Err(DATE);
    }
    let domain = rest.split_once(':').map_or(rest, |(domain, _)| domain);
    let is_label =
        |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    if !domain.split('.').all(is_label) {
        return Err(DOMAIN);
    }
    Ok(())
}

fn check_hex(rest: &str, lengths: &[usize]) -> Result<(), &'static str> {
    if !lengths.contains(&rest.len()) || !rest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("has a wrong number of hex digits");
    }
    Ok(())
}

/// The name of a target that nobody named: `iqn.2026-11.example.tarn:HOST`.
///
/// Characters of the host name that no iSCSI name can have become hyphens.
pub fn default_target_name(host: &str) -> IscsiName {
    let host: String = host
        .bytes()
        .take(HOST_BYTES_MAX)
        .map(|byte| match byte.to_ascii_lowercase() {
            byte if is_name_byte(byte) && !matches!(byte, b':' | b'_') => char::from(byte),
            _ => '-',
        })
        .collect();
    let host = match host.trim_matches(['-', '.']) {
        "" => "localhost",
        host => host,
    };
    IscsiName(format!("iqn.2026-11.example.tarn:{host}"))
}

/// A pattern for initiator names: `*` for any characters, `?` for one, case does not count.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamePattern(String);

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamePattern {
    /// Whether `text` looks like a pattern for names rather than an address or a user.
    pub(crate) fn looks_like(text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        ["iqn.", "eui.", "naa.", "*", "?"]
            .iter()
            .any(|start| text.starts_with(start))
    }

    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// Empty, longer than a name, or with blanks, control characters, an `@` or letters that are not ASCII.
    pub fn parse(text: &str) -> Result<Self, NameRule> {
        if text.is_empty() {
            return Err(NameRule::Text(Rule::EmptyName {
                what: "initiator pattern",
            }));
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameRule::Text(Rule::TooLong {
                what: "initiator pattern",
                got_bytes: text.len(),
                max_bytes: NAME_BYTES_MAX,
            }));
        }
        // Initiators are known to use signs that the standard's profile leaves out, such as the
        // underscore; a pattern must be able to name them.
        if let Some(character) = text.chars().find(|c| !c.is_ascii_graphic() || *c == '@') {
            return Err(NameRule::Pattern {
                pattern: text.to_owned(),
                character,
            });
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The pattern, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name that both patterns match, if there is one.
    pub fn common(&self, other: &Self) -> Option<String> {
        let (one, two) = (self.0.as_bytes(), other.0.as_bytes());
        if !may_begin_alike(one, two) {
            return None;
        }
        // From how much of each has been matched to what was matched before, and by which character.
        let mut reached: HashMap<State, Option<(State, Option<u8>)>> = HashMap::new();
        let mut open = vec![(0, 0)];
        reached.insert((0, 0), None);
        while let Some(state) = open.pop() {
            if state == (one.len(), two.len()) {
                return Some(way(&reached, state));
            }
            for (next, byte) in steps(one, two, state).into_iter().flatten() {
                if let Entry::Vacant(entry) = reached.entry(next) {
                    entry.insert(Some((state, byte)));
                    open.push(next);
                }
            }
        }
        None
    }

    /// Whether the whole of `name` matches. Takes at most pattern times name steps.
    pub fn matches(&self, name: &str) -> bool {
        let mut pattern = self.0.as_bytes();
        let mut name = name.as_bytes();
        // Where to go on when what was tried after the last star fails: only the last star needs
        // another try, since an earlier one could only have left more for it.
        let mut retry: Option<(&[u8], &[u8])> = None;
        loop {
            match (pattern, name) {
                ([], []) => return true,
                ([b'*', after @ ..], _) => {
                    retry = Some((after, name));
                    pattern = after;
                }
                ([want, after @ ..], [got, rest @ ..])
                    if *want == b'?' || *want == got.to_ascii_lowercase() =>
                {
                    pattern = after;
                    name = rest;
                }
                _ => match retry {
                    Some((after, [_, rest @ ..])) => {
                        retry = Some((after, rest));
                        pattern = after;
                        name = rest;
                    }
                    Some((_, [])) | None => return false,
                },
            }
        }
    }
}

/// How much of two patterns has been matched.
type State = (usize, usize);

/// Without a character that differs before the first `*` or `?`.
fn may_begin_alike(one: &[u8], two: &[u8]) -> bool {
    let plain = |pattern: &[u8]| pattern.iter().position(|byte| matches!(byte, b'*' | b'?'));
    let ends = [plain(one), plain(two)].map(|end| end.unwrap_or(usize::MAX));
    let both = one
        .iter()
        .zip(two)
        .take(ends.into_iter().min().unwrap_or(0));
    both.into_iter().all(|(one, two)| one == two)
}

/// What comes next, and the character that a common name has there.
fn steps(one: &[u8], two: &[u8], (i, j): State) -> [Option<(State, Option<u8>)>; 2] {
    match (one.get(i), two.get(j)) {
        (Some(b'*'), Some(b'*')) => [Some(((i + 1, j), None)), Some(((i, j + 1), None))],
        (Some(b'*'), next) => [
            next.map(|byte| ((i, j + 1), Some(*byte))),
            Some(((i + 1, j), None)),
        ],
        (next, Some(b'*')) => [
            next.map(|byte| ((i + 1, j), Some(*byte))),
            Some(((i, j + 1), None)),
        ],
        (Some(b'?'), Some(byte)) | (Some(byte), Some(b'?')) => {
            [Some(((i + 1, j + 1), Some(*byte))), None]
        }
        (Some(one), Some(two)) if one == two => [Some(((i + 1, j + 1), Some(*one))), None],
        (_, _) => [None, None],
    }
}

/// The characters on the way to a state; for any one character, an `x`.
fn way(reached: &HashMap<State, Option<(State, Option<u8>)>>, end: State) -> String {
    let mut bytes = Vec::new();
    let mut state = end;
    while let Some((before, byte)) = reached.get(&state).copied().flatten() {
        bytes.extend(byte.map(|byte| if byte == b'?' { 'x' } else { char::from(byte) }));
        state = before;
    }
    bytes.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_patterns_have_in_common_is_found() {
        for (one, two, common) in [
            ("iqn.a:b", "IQN.a:B", Some("iqn.a:b")),
            ("iqn.a:b", "iqn.a:c", None),
            ("iqn.a:b", "iqn.a:bc", None),
            ("iqn.a:*", "iqn.a:b", Some("iqn.a:b")),
            ("iqn.a:*", "iqn.b:*", None),
            ("*", "*", Some("")),
            ("*", "iqn.a:?", Some("iqn.a:x")),
            ("iqn.a*c", "iqn.ab*", Some("iqn.abc")),
            ("*a", "*b", None),
            ("*a*b", "?b*", Some("aab")),
            ("iqn.?", "iqn.", None),
            ("a?c", "?b?", Some("abc")),
            ("iqn.a:*1", "iqn.a:*2", None),
        ] {
            let [one, two] = [one, two].map(|text| NamePattern::parse(text).unwrap());
            for (one, two) in [(&one, &two), (&two, &one)] {
                let found = one.common(two);
                assert_eq!(found.is_some(), common.is_some(), "{one} {two} {found:?}");
                let is_in_both = |name: &String| one.matches(name) && two.matches(name);
                assert!(
                    found.as_ref().is_none_or(is_in_both),
                    "{one} {two} {found:?}"
                );
            }
        }
        let long = |end: &str| NamePattern::parse(&format!("{}{end}", "a*".repeat(111))).unwrap();
        assert_eq!(long("c").common(&long("b")), None);
        assert!(long("").common(&long("b")).is_some());
    }

    #[test]
    fn names_of_the_three_types_are_read_and_folded() {
        #[rustfmt::skip]
        let cases = [
            ("iqn.2026-11.example.tarn:demo", "iqn.2026-11.example.tarn:demo"),
            ("iqn.1993-08.org.debian", "iqn.1993-08.org.debian"),
            ("IQN.2001-04.com.Example:Disk:1.2-3", "iqn.2001-04.com.example:disk:1.2-3"),
            ("iqn.2001-04.com.example:Data_1", "iqn.2001-04.com.example:data_1"),
            ("eui.02004567A425678D", "eui.02004567a425678d"),
            ("naa.52004567BA64678D", "naa.52004567ba64678d"),
            ("naa.62004567BA64678D0123456789ABCDEF", "naa.62004567ba64678d0123456789abcdef"),
        ];
        for (text, name) in cases {
            assert_eq!(IscsiName::parse(text).unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_name_may_have_223_bytes_and_no_more() {
        let name = |bytes: usize| {
            let start = "iqn.2026-11.example.tarn:";
            format!("{start}{}", "x".repeat(bytes - start.len()))
        };
        assert!(IscsiName::parse(&name(223)).is_ok());
        assert_eq!(
            IscsiName::parse(&name(224)),
            Err(NameRule::Text(Rule::TooLong {
                what: "iSCSI name",
                got_bytes: 224,
                max_bytes: 223,
            }))
        );
    }

    #[test]
    fn what_is_no_name_says_which_part_is_wrong() {
        for (text, message) in [
            ("", "does not begin with"),
            ("disk", "does not begin with"),
            ("iqn", "does not begin with"),
            ("iqn.", "no date"),
            ("iqn.2026", "no date"),
            ("iqn.2026-1.com.example", "no date"),
            ("iqn.2026-00.com.example", "no date"),
            ("iqn.2026-13.com.example", "no date"),
            ("iqn.26-11.com.example", "no date"),
            ("iqn.+026-11.com.example", "has characters other than"),
            ("iqn.2026-11", "no date"),
            ("iqn.2026-11.", "no reversed domain"),
            ("iqn.2026-11.:x", "no reversed domain"),
            ("iqn.2026-11.com..example", "no reversed domain"),
            ("iqn.2026-11.-com", "no reversed domain"),
            ("iqn.2026-11.com.example:a/b", "has characters other than"),
            ("iqn.2026-11.com.example:a b", "has characters other than"),
            (
                "iqn.2026-11.com.example:\u{e9}",
                "has characters other than",
            ),
            ("eui.02004567A425678", "wrong number of hex digits"),
            ("eui.02004567A425678DD", "wrong number of hex digits"),
            ("eui.02004567A425678G", "wrong number of hex digits"),
            ("naa.52004567BA64678D00", "wrong number of hex digits"),
        ] {
            let got = IscsiName::parse(text).unwrap_err().to_string();
            assert!(got.contains(message), "{text}: {got}");
        }
    }

    #[test]
    fn the_default_name_of_any_host_is_a_name() {
        for (host, name) in [
            ("box", "iqn.2026-11.example.tarn:box"),
            ("Box_1.Example", "iqn.2026-11.example.tarn:box-1.example"),
            ("", "iqn.2026-11.example.tarn:localhost"),
            ("_", "iqn.2026-11.example.tarn:localhost"),
            ("a:b", "iqn.2026-11.example.tarn:a-b"),
        ] {
            let made = default_target_name(host);
            assert_eq!(made.as_str(), name);
            assert_eq!(IscsiName::parse(name), Ok(made));
        }
        let long = default_target_name(&"x".repeat(1000));
        assert!(IscsiName::parse(long.as_str()).is_ok());
    }

    #[test]
    fn patterns_match_whole_names_in_any_case() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "iqn.x", true),
            (
                "iqn.1993-08.org.debian:*",
                "iqn.1993-08.org.debian:01:abc",
                true,
            ),
            ("iqn.1993-08.org.debian:*", "iqn.1993-08.org.debian:", true),
            ("iqn.1993-08.org.debian:*", "iqn.1993-08.org.debian", false),
            ("IQN.x", "iqn.X", true),
            ("iqn.x", "iqn.xy", false),
            ("iqn.xy", "iqn.x", false),
            ("iqn.?", "iqn.x", true),
            ("iqn.?", "iqn.", false),
            ("*:a*b", "iqn.x:aXb", true),
            ("*:a*b", "iqn.x:aXbc", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "abaab", true),
            ("*ab*ab", "ab", false),
            ("**", "anything", true),
        ] {
            let got = NamePattern::parse(pattern).unwrap().matches(name);
            assert_eq!(got, expected, "{pattern} on {name}");
        }
    }

    /// The classic trap: a matcher that tries every split needs more than the age of the world.
    #[test]
    fn a_pattern_of_many_stars_does_not_explode() {
        let pattern = NamePattern::parse(&format!("{}b", "a*".repeat(100))).unwrap();
        assert!(!pattern.matches(&"a".repeat(100_000)));
    }

    #[test]
    fn a_pattern_refuses_what_no_name_has() {
        for (text, message) in [
            ("", "initiator pattern is empty"),
            ("iqn. x", "has the character ' '"),
            ("iqn.\u{e9}", "has the character '\u{e9}'"),
        ] {
            let got = NamePattern::parse(text).unwrap_err().to_string();
            assert!(got.contains(message), "{got}");
        }
        assert!(NamePattern::parse(&"*".repeat(223)).is_ok());
        assert!(NamePattern::parse(&"*".repeat(224)).is_err());
    }
}
