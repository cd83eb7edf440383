//! How an error that no verb has made is reported: in one line for people, or as JSON for programs.

use std::ffi::OsString;
use std::io;

use crate::say;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
