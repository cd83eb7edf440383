//! What `tarn import` prints: a list for people, JSON for programs.

use std::io::{self, BufWriter, Write};

use ::import::{Format, Imported, Note, ReadError, Severity};
use serde::Serialize;

use super::ImportArgs;
use daemon::say;

/// The result for programs.
#[derive(Serialize)]
struct Report<'a> {
    format: &'static str,
    notes: &'a [Note],
    secrets: Vec<SecretReport<'a>>,
    /// Files of the other target that hold secrets and that others may read.
    exposed: &'a [String],
    /// The configuration, unless it went to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    toml: Option<&'a str>,
    /// Why there is no configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct SecretReport<'a> {
    file: &'a str,
    purpose: &'a str,
    /// The file was written; otherwise it is to be made.
    written: bool,
}

/// How many things were left out.
pub(super) fn left_out(imported: &Imported) -> usize {
    let notes = imported.notes.iter();
    notes
        .filter(|note| note.severity == Severity::LeftOut)
        .count()
}

/// Prints why nothing was imported; the error itself comes last.
pub(super) fn tell_nothing(args: &ImportArgs, format: Format, error: &ReadError) {
    let notes = if let ReadError::Nothing { notes, .. } = error {
        notes.as_slice()
    } else {
        &[]
    };
    if args.json {
        print_json(&Report {
            format: format.as_str(),
            notes,
            secrets: Vec::new(),
            exposed: &[],
            toml: None,
            error: Some(error.to_string()),
        });
        return;
    }
    let mut out = BufWriter::new(io::stderr().lock());
    let _unread = notes
        .iter()
        .try_for_each(|note| write_note(&mut out, note))
        .and_then(|()| out.flush());
}

/// A report of many targets is large. A failure is that of the stream: nobody reads it any more.
fn print_json(report: &Report<'_>) {
    let mut out = BufWriter::new(io::stdout().lock());
    let _unread = serde_json::to_writer_pretty(&mut out, report)
        .map_err(io::Error::from)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
}

/// Prints the result.
pub(super) fn tell(args: &ImportArgs, imported: &Imported, is_detected: bool, exposed: &[String]) {
    let is_written = args.output.is_some();
    if args.json {
        print_json(&report(imported, is_written, exposed));
        return;
    }
    if !is_written {
        say(io::stdout().lock(), &imported.toml);
    }
    let mut out = BufWriter::new(io::stderr().lock());
    let _unread =
        list(&mut out, imported, is_detected, is_written, exposed).and_then(|()| out.flush());
}

fn report<'a>(imported: &'a Imported, is_written: bool, exposed: &'a [String]) -> Report<'a> {
    let secrets = imported.secrets.iter().map(|file| SecretReport {
        file: &file.name,
        purpose: &file.purpose,
        written: is_written && file.secret.is_some(),
    });
    Report {
        format: imported.format.as_str(),
        notes: &imported.notes,
        secrets: secrets.collect(),
        exposed,
        toml: (!is_written).then_some(imported.toml.as_str()),
        error: None,
    }
}

fn list(
    out: &mut impl Write,
    imported: &Imported,
    is_detected: bool,
    is_written: bool,
    exposed: &[String],
) -> io::Result<()> {
    if is_detected {
        let format = imported.format;
        writeln!(out, "read as {}: {}", format.as_str(), format.meaning())?;
    }
    for note in &imported.notes {
        write_note(out, note)?;
    }
    for file in &imported.secrets {
        let (name, purpose) = (plain(&file.name), plain(&file.purpose));
        if is_written && file.secret.is_some() {
            writeln!(out, "secret     {name}: written, for {purpose}")?;
        } else {
            writeln!(
                out,
                "secret     {name}: to be made (chmod 600), for {purpose}"
            )?;
        }
    }
    for name in exposed {
        let name = plain(name);
        writeln!(
            out,
            "warning    {name} holds secrets and others may read it; run chmod 600 {name}"
        )?;
    }
    let count = |severity| {
        imported
            .notes
            .iter()
            .filter(|note| note.severity == severity)
            .count()
    };
    writeln!(
        out,
        "{} carried, {} changed, {} left out",
        count(Severity::Carried),
        count(Severity::Changed),
        count(Severity::LeftOut)
    )
}

fn write_note(out: &mut impl Write, note: &Note) -> io::Result<()> {
    let severity = note.severity.as_str();
    let place = plain(&note.place.to_string());
    let (subject, message) = (plain(&note.subject), plain(&note.message));
    writeln!(out, "{severity:<10} {place}: {subject}: {message}")?;
    if note.remedy.is_empty() {
        return Ok(());
    }
    writeln!(out, "{:10} -> {}", "", plain(&note.remedy))
}

/// The text without characters that would break the line or colour the terminal.
fn plain(text: &str) -> String {
    daemon::error::plain(text)
}

#[cfg(test)]
mod tests {
    use ::import::{Options, Source};

    use super::*;

    #[test]
    fn the_list_says_what_is_to_be_done_and_counts() {
        let text = "<target iqn.2026-11.example:a>\nbacking-store /a\nincominguser alice correct-horse-1\n</target>\n";
        let source = Source { name: "a\r", text };
        let mut imported = ::import::import(Format::Tgt, &[source], &Options::default()).unwrap();
        assert_eq!(left_out(&imported), 0);
        imported.notes[0].severity = Severity::LeftOut;
        imported.notes[0].remedy = "do\r".to_owned();
        imported.notes[1].remedy = String::new();
        imported.notes.truncate(2);
        let [first, second] = [0, 1].map(|at: usize| imported.notes[at].message.clone());
        let kept = [0, 1].map(|at: usize| imported.notes[at].subject.clone());
        let places =
            [0, 1].map(|at: usize| imported.notes[at].place.to_string().replace('\r', "\\r"));
        let notes = format!(
            "left out   {}: {}: {first}\n           -> do\\r\n{:<10} {}: {}: {second}\n",
            places[0],
            kept[0],
            imported.notes[1].severity.as_str(),
            places[1],
            kept[1]
        );
        let count = match imported.notes[1].severity {
            Severity::Carried => "1 carried, 0 changed, 1 left out\n",
            Severity::Changed | Severity::LeftOut => "0 carried, 1 changed, 1 left out\n",
        };
        let exposed = ["a\r".to_owned()];
        let warning = "warning    a\\r holds secrets and others may read it; run chmod 600 a\\r\n";
        let to_be_made = "to be made (chmod 600), for user \"alice\"";
        for (is_detected, is_written, has_secret, made) in [
            (true, true, true, "written, for user \"alice\""),
            (false, true, false, to_be_made),
            (false, false, true, to_be_made),
        ] {
            if !has_secret {
                imported.secrets[0].secret = None;
            }
            let read = if is_detected {
                "read as tgt: targets.conf of tgt\n"
            } else {
                ""
            };
            let mut seen = Vec::new();
            list(&mut seen, &imported, is_detected, is_written, &exposed).unwrap();
            let expected =
                format!("{read}{notes}secret     alice.secret: {made}\n{warning}{count}");
            assert_eq!(String::from_utf8(seen).unwrap(), expected);
            let report = serde_json::to_value(report(&imported, is_written, &exposed)).unwrap();
            assert_eq!(report["secrets"][0]["written"], is_written && has_secret);
            assert_eq!(report.get("toml").is_some(), !is_written);
            assert_eq!(report["exposed"], serde_json::json!(exposed));
        }
    }
}
