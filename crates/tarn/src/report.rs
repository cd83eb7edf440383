//! How an error that no verb has made is reported: in one line for people, or as JSON for programs.

use std::ffi::OsString;
use std::io;
use std::num::{IntErrorKind, ParseIntError};

use daemon::error::plain;
use daemon::say;

/// Whether an error is for a program: the command line asks for JSON.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    words.any(|word| word == "--json")
}

/// Reports an error of one line, for people or for programs, and with which code the process ends.
pub(crate) fn report(line: &str, status: u8, is_json: bool) {
    let text = if is_json {
        let detail = line.strip_prefix("tarn: ").unwrap_or(line);
        let kind = if status == 2 { "wrong" } else { "failed" };
        let json =
            serde_json::json!({ "error": { "type": kind, "detail": detail, "exit": status } });
        format!("{json}\n")
    } else {
        format!("{line}\n")
    };
    say(io::stderr().lock(), &text);
}

/// What clap says, with what is expected of a number in place of what the library that reads it says.
pub(crate) fn plain_numbers(error: &clap::Error, text: &str) -> String {
    let source = std::error::Error::source(error);
    let Some(number) = source.and_then(|source| source.downcast_ref::<ParseIntError>()) else {
        return text.to_owned();
    };
    let expected = if *number.kind() == IntErrorKind::PosOverflow {
        "the number is too large"
    } else {
        "a whole number is expected"
    };
    text.replace(&number.to_string(), expected)
}

/// What clap says about a wrong command line, with its tip, in exactly one line. `command` is the
/// one that was given, as `tarn lun add`.
pub(crate) fn usage_line(text: &str, command: &str) -> String {
    let mut paragraphs = text.split("\n\n");
    let message = paragraphs.next().unwrap_or_default().trim();
    let message = message.trim_start_matches("error: ");
    let mut line = format!("tarn: {message}");
    // Other tips, such as how to pass a value that looks like a flag, would mislead.
    let tips = paragraphs.flat_map(str::lines).map(str::trim);
    if let Some(tip) = tips
        .filter_map(|line| line.strip_prefix("tip: "))
        .find(|tip| tip.contains("similar"))
    {
        line = format!("{line}; {tip}");
    }
    let words: Vec<_> = line.split_whitespace().collect();
    plain(&format!("{}; see {command} --help", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn json_is_wanted_by_a_flag_and_not_by_an_argument() {
        let wants = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            wants_json(&words)
        };
        assert!(wants("tarn lun --json list"));
        assert!(!wants("tarn lun show -- --json"));
        assert!(!wants("tarn lun list"));
    }

    /// Every flag and argument of every command whose value is a number, by its real parser.
    #[test]
    fn no_wrong_number_is_answered_with_the_words_of_a_library() {
        use clap::error::ErrorKind;

        fn numbers(command: &clap::Command, path: &[String], found: &mut Vec<Vec<String>>) {
            for argument in command.get_arguments() {
                let value = |flag: String| [path, &[flag]].concat();
                match argument.get_long() {
                    Some(long) if argument.get_action().takes_values() => {
                        found.extend(
                            ["x", "0x1", "", "99999999999999999999"]
                                .map(|number| value(format!("--{long}={number}"))),
                        );
                    }
                    Some(_) | None => {}
                }
            }
            for one in command.get_subcommands() {
                let path = [path, &[one.get_name().to_owned()]].concat();
                numbers(one, &path, found);
            }
        }
        let mut command = cli::command();
        command.build();
        let mut lines = Vec::new();
        numbers(&command, &["tarn".to_owned()], &mut lines);
        let mut refused = 0;
        for line in lines {
            let Err(error) = cli::parse(&line) else {
                continue;
            };
            if error.kind() == ErrorKind::ValueValidation {
                let text = plain_numbers(&error, &error.render().to_string());
                for raw in [
                    "invalid digit",
                    "parse integer",
                    "too large to fit",
                    "ParseIntError",
                ] {
                    assert!(!text.contains(raw), "{line:?}: {text}");
                }
                refused += usize::from(text.contains("a whole number is expected"));
            }
        }
        assert!(refused > 10, "{refused}");
    }

    #[test]
    fn usage_errors_are_one_line_too() {
        assert_eq!(
            usage_line("error: invalid\n  value\n\nUsage: tarn\n", "tarn"),
            "tarn: invalid value; see tarn --help"
        );
        let tips = "error: what is --x\n\n  tip: put it last\n  tip: a similar one is --y\n";
        assert_eq!(
            usage_line(tips, "tarn lun add"),
            "tarn: what is --x; a similar one is --y; see tarn lun add --help"
        );
    }
}
