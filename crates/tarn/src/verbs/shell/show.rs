//! What the commands of the shell print.

use clap::Command;
use tree::{Entry, EntryKind, Spot, WalkError, Walker};

use super::super::output::{Output, Tone};
use super::line;
use daemon::error::plain;

/// Characters of a value beside its name; `cat` shows all of it.
const VALUE_CHARACTERS_MAX: usize = 72;

/// What is in a directory, a line each: directories, where links lead, values.
pub(super) fn list(
    walker: &Walker,
    spot: &Spot,
    path: &str,
    output: Output,
) -> Result<String, WalkError> {
    let entries = walker.list(spot, path)?;
    let shown: Vec<String> = entries.iter().map(|entry| plain(&name(entry))).collect();
    let width = |entry: &Entry, name: &String| match entry.kind {
        EntryKind::Directory => 0,
        EntryKind::File | EntryKind::Link => name.chars().count(),
    };
    let width = entries
        .iter()
        .zip(&shown)
        .map(|(entry, name)| width(entry, name))
        .max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for (entry, name) in entries.iter().zip(&shown) {
        let below = match path {
            "" => entry.name.clone(),
            path => format!("{}/{}", path.trim_end_matches('/'), entry.name),
        };
        let line = match entry.kind {
            EntryKind::Directory => output.toned(Tone::Strong, name),
            EntryKind::Link => match walker.go(spot, &below) {
                Ok(target) => format!("{name:width$}  -> {}", plain(&target.path())),
                Err(error) => format!("{name:width$}  -> {}", plain(&error.to_string())),
            },
            // A value that cannot be read says so where it would stand: the others can.
            EntryKind::File => match walker.read(spot, &below) {
                Ok(value) => format!("{name:width$}  {}", value_line(&value)),
                Err(error) if error.client().is_some() => return Err(error),
                Err(error) => format!("{name:width$}  ({})", plain(&error.to_string())),
            },
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

fn name(entry: &Entry) -> String {
    match entry.kind {
        EntryKind::Directory => format!("{}/", entry.name),
        EntryKind::File | EntryKind::Link => entry.name.clone(),
    }
}

/// As much of a value as has room beside its name.
fn value_line(value: &str) -> String {
    let mut lines = value.lines();
    let first = lines.next().unwrap_or_default();
    let mut line: String = first.chars().take(VALUE_CHARACTERS_MAX).collect();
    let more = lines.count();
    if first.chars().count() > VALUE_CHARACTERS_MAX {
        line.push_str(" ...");
    } else if more > 0 {
        line.push_str(&format!("  (and {more} more lines)"));
    }
    plain(&line)
}

/// All commands that there are at a spot.
pub(super) fn help(command: &Command, spot: &Spot) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut text = String::new();
    let mut part = |title: &str, rows: &mut Vec<(String, String)>| {
        let width = rows
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0);
        text.push_str(&format!("{title}\n"));
        for (name, about) in rows.drain(..) {
            text.push_str(&format!("  {name:width$}  {about}\n"));
        }
    };
    let builtins = line::BUILTINS.iter();
    rows.extend(builtins.map(|one| (one.usage.to_owned(), one.about.to_owned())));
    part("The tree:", &mut rows);
    let about = |one: &Command| {
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        let line = about.lines().next().unwrap_or_default();
        (
            one.get_name().to_owned(),
            line.trim_end_matches('.').to_owned(),
        )
    };
    let subject = spot.subject();
    let noun = subject
        .as_ref()
        .and_then(|subject| line::noun(command, subject));
    if let Some((noun, subject)) = noun.zip(subject.as_ref()) {
        rows.extend(noun.get_subcommands().map(about));
        let title = match &subject.id {
            Some(id) => format!("Verbs for {} {}:", subject.noun, plain(id)),
            None => format!("Verbs for {}:", subject.noun),
        };
        part(&title, &mut rows);
    }
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    let visible = visible.filter(|one| one.get_name() != "shell");
    rows.extend(visible.map(about));
    part(
        "Everywhere, as on the command line (with tarn before it where a verb above has its name):",
        &mut rows,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn a_value_has_one_line_beside_its_name() {
        assert_eq!(value_line("16777216\n"), "16777216");
        assert_eq!(value_line(""), "");
        assert_eq!(value_line("a\nb\nc\n"), "a  (and 2 more lines)");
        assert_eq!(value_line("a\u{1b}[1m\n"), "a\\u{1b}[1m");
        let long = "x".repeat(VALUE_CHARACTERS_MAX + 1);
        assert!(value_line(&long).ends_with("x ..."));
    }

    #[test]
    fn help_lists_what_there_is() {
        let text = help(&cli::command(), &Spot::ROOT);
        for word in ["cd [PATH]", "write PATH VALUE", "lun ", "who-sees"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains("\n  shell"), "{text}");
        // As wide as the longest.
        let cd = format!(
            "  {:16}  go to a directory; without PATH to the root\n",
            "cd [PATH]"
        );
        assert!(text.contains(&cd), "{text}");
    }
}
