//! The form of a mail: a text for people, in one part.
//!
//! Spec: RFC 5322; RFC 2045 section 6.7 for the body, which can be read as it goes over the wire; RFC 2047 for what of
//! the subject is not ASCII. Nothing that is put into a mail can become a line of its head: the addresses were checked,
//! and control characters of the subject are left out.

use std::fmt::Write as _;

/// Characters of a line after which it goes on in the next one: an escape of three and the sign of that make 76.
const LINE_MAX: usize = 72;

/// Bytes in an encoded word: with its frame it has to have 75 characters at most.
const WORD_BYTES: usize = 42;

/// Characters of a subject; what is longer is cut.
const SUBJECT_MAX: usize = 160;

/// A mail.
#[derive(Clone, Copy, Debug)]
pub struct Letter<'a> {
    /// What it is about.
    pub subject: &'a str,
    /// What it says.
    pub text: &'a str,
    /// When it was written, in seconds since 1970.
    pub at: u64,
    /// Its identity, the same when it is sent again: letters, digits, `-` and `.`.
    pub id: &'a str,
}

impl Letter<'_> {
    /// All of it, with lines that end as SMTP wants it. No line begins with a dot.
    pub(crate) fn to_bytes(self, from: &str, to: &str) -> Vec<u8> {
        let domain = from.rsplit('@').next().unwrap_or("localhost");
        let mut text = format!(
            "From: Tarn <{from}>\r\nTo: <{to}>\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{}@{domain}>\r\n\
             Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Transfer-Encoding: quoted-printable\r\n\r\n",
            subject(self.subject),
            date(self.at),
            self.id,
        );
        for line in self.text.lines() {
            quote(line.as_bytes(), &mut text);
        }
        text.into_bytes()
    }
}

/// One line as quoted-printable.
fn quote(line: &[u8], text: &mut String) {
    let mut width = 0;
    for (at, &byte) in line.iter().enumerate() {
        if width > LINE_MAX {
            *text += "=\r\n";
            width = 0;
        }
        // A blank at the end of a line is lost on the way, and a dot at its start ends a mail.
        let is_plain = match byte {
            b'=' => false,
            b'.' => width > 0,
            b' ' => at + 1 < line.len() && width < LINE_MAX,
            _ => byte.is_ascii_graphic(),
        };
        if is_plain {
            text.push(char::from(byte));
            width += 1;
        } else {
            // Writing to a String cannot fail.
            let _infallible = write!(text, "={byte:02X}");
            width += 3;
        }
    }
    *text += "\r\n";
}

fn subject(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one })
        .take(SUBJECT_MAX)
        .collect();
    // What looks like an encoded word would be taken for one.
    if text.is_ascii() && text.len() <= 60 && !text.contains("=?") {
        return text;
    }
    let mut words: Vec<String> = vec![String::new()];
    for one in text.chars() {
        let is_full = words
            .last()
            .is_none_or(|word| word.len() + one.len_utf8() > WORD_BYTES);
        if is_full {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(one);
        }
    }
    let encoded = words
        .iter()
        .map(|word| format!("=?utf-8?B?{}?=", base64(word.as_bytes())));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// Spec: RFC 4648 section 4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

/// A moment, in seconds since 1970, as a mail writes it: `Thu, 26 Nov 2026 11:00:00 +0000`.
#[must_use]
pub fn date(at: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (at / 86_400, at % 86_400);
    let (year, month, day) = civil(days);
    let name = |names: &[&'static str], at: u64| {
        let at = usize::try_from(at).unwrap_or(0);
        names.get(at).copied().unwrap_or_default()
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _infallible = write!(
        text,
        "{}, {day} {} {year} {:02}:{:02}:{:02} +0000",
        name(&DAYS, days % 7),
        name(&MONTHS, month - 1),
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    text
}

/// Year, month and day of a number of days since 1970-01-01, by the calendar of Gregory; a year begins with March
/// inside.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("\u{3ff}~", "z79+"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (at, text) in [
            (0, "Thu, 1 Jan 1970 00:00:00 +0000"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 +0000"),
            (1_795_690_799, "Thu, 26 Nov 2026 10:59:59 +0000"),
            (4_107_542_400, "Mon, 1 Mar 2100 00:00:00 +0000"),
        ] {
            assert_eq!(date(at), text);
        }
    }

    #[test]
    fn a_subject_stays_in_its_line_and_keeps_its_letters() {
        assert_eq!(subject("a finding of web"), "a finding of web");
        assert_eq!(subject("a\r\nBcc: b"), "a  Bcc: b");
        assert_eq!(subject("\u{fc}"), "=?utf-8?B?w7w=?=");
        let long = subject(&"\u{fc}".repeat(400));
        assert!(
            long.split("\r\n ")
                .all(|word| word.len() <= 75 && word.ends_with("?=")),
            "{long}"
        );
        assert!(long.len() < 800, "it is cut");
    }

    #[test]
    fn a_text_can_be_read_as_it_is_and_comes_back_whole() {
        let quoted = |line: &str| {
            let mut text = String::new();
            quote(line.as_bytes(), &mut text);
            text
        };
        for (line, text) in [
            ("lun web: disk full", "lun web: disk full\r\n"),
            ("a=b ", "a=3Db=20\r\n"),
            (".", "=2E\r\n"),
            ("\u{fc}\t\r", "=C3=BC=09=0D\r\n"),
            ("", "\r\n"),
        ] {
            assert_eq!(quoted(line), text);
        }
        for long in ["x".repeat(300), ". ".repeat(150), "\u{fc}".repeat(100)] {
            let text = quoted(&long);
            let lines: Vec<&str> = text.split("\r\n").collect();
            let is_fine =
                |line: &&str| line.len() <= 76 && !line.starts_with('.') && !line.ends_with(' ');
            assert!(lines.iter().all(is_fine), "{text}");
            let joined = text
                .replace("=\r\n", "")
                .replace("=2E", ".")
                .replace("=20", " ");
            assert_eq!(joined.replace("=C3=BC", "\u{fc}"), format!("{long}\r\n"));
        }
    }

    #[test]
    fn the_text_has_no_line_that_ends_a_mail() {
        let letter = Letter {
            subject: "s",
            text: "a\r\n.\r\nb\n.",
            at: 0,
            id: "1",
        };
        let text =
            String::from_utf8(letter.to_bytes("tarn@san.example", "ops@example.org")).unwrap();
        assert!(text.ends_with("\r\n\r\na\r\n=2E\r\nb\r\n=2E\r\n"), "{text}");
        assert!(text.contains("\r\nMessage-ID: <1@san.example>\r\n"));
        assert!(
            text.split("\r\n")
                .all(|line| !line.starts_with('.') && line.len() < 100)
        );
    }
}
