//! Secrets on their way in: from a file, from the standard input, or from a person. Never from the
//! command line, which others can read.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use zeroize::Zeroizing;

use super::failure::Failure;
use super::terminal;
use daemon::secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};

/// What a secret may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// What people call it.
    noun: &'static str,
    min: usize,
    max: usize,
}

impl Rule {
    /// The CHAP secret of a user.
    pub(super) const SECRET: Self = Self {
        noun: "Secret",
        min: SECRET_BYTES_MIN,
        max: SECRET_BYTES_MAX,
    };
    /// The password of a group of HyperSCSI.
    pub(super) const PASSWORD: Self = Self {
        noun: "Password",
        min: config::PASSWORD_BYTES_MIN,
        max: config::PASSWORD_BYTES_MAX,
    };
}

/// The name of a file that means the standard input.
const STANDARD_INPUT: &str = "-";

/// The secret in a file, or in the standard input. A line end at its end does not belong to it.
pub(super) fn from_file(path: &Path, rule: Rule) -> Result<Zeroizing<String>, Failure> {
    let unreadable = |source| Failure::Unreadable {
        path: path.to_owned(),
        source,
    };
    // A byte too many shows that it is too long; two are the line end.
    let limit = rule.max as u64 + 3;
    let mut text = Zeroizing::new(String::with_capacity(rule.max + 3));
    if path.as_os_str() == STANDARD_INPUT {
        io::stdin().lock().take(limit).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text))
    }
    .map_err(unreadable)?;
    checked(&text, rule)
}

/// The secret that a person types twice; `None` when there is no person.
pub(super) fn from_person(whose: &str, rule: Rule) -> Result<Option<Zeroizing<String>>, Failure> {
    if !terminal::has_person() {
        return Ok(None);
    }
    let first = checked(
        &terminal::ask_secret(&format!("{} of {whose}: ", rule.noun))?,
        rule,
    )?;
    let second = terminal::ask_secret("The same again: ")?;
    if first.as_str() != without_line_end(&second) {
        return Err(Failure::SecretsDiffer);
    }
    Ok(Some(first))
}

fn checked(text: &str, rule: Rule) -> Result<Zeroizing<String>, Failure> {
    let secret = without_line_end(text);
    let got = secret.len();
    if !(rule.min..=rule.max).contains(&got) {
        return Err(Failure::SecretLength {
            got,
            min: rule.min,
            max: rule.max,
        });
    }
    Ok(Zeroizing::new(secret.to_owned()))
}

fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_its_length_without_the_line_end() {
        for (text, expected) in [
            ("0123456789a", None),
            ("0123456789ab", Some("0123456789ab")),
            ("0123456789ab\n", Some("0123456789ab")),
            ("0123456789ab\r\n", Some("0123456789ab")),
            ("0123456789ab \n", Some("0123456789ab ")),
            ("", None),
        ] {
            let secret = checked(text, Rule::SECRET).ok();
            assert_eq!(secret.as_deref().map(String::as_str), expected, "{text:?}");
        }
        let long = "x".repeat(SECRET_BYTES_MAX);
        assert!(checked(&long, Rule::SECRET).is_ok());
        assert!(checked(&format!("{long}x"), Rule::SECRET).is_err());
        assert!(checked("eight by\n", Rule::PASSWORD).is_ok());
        assert!(checked("seven b\n", Rule::PASSWORD).is_err());
    }
}
