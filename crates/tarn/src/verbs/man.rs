//! `tarn man`: a manual page for each command, from the same definition as the help.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;

use super::Outcome;
use super::exit::{self, Exit};
use super::failure::Failure;
use crate::cli::Cli;

const AFTER_HELP: &str = "\
Examples:
  tarn man /usr/local/share/man/man1";

/// `tarn man`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Pages {
    /// Directory for the pages; it is created if it is missing.
    directory: PathBuf,
}

impl Pages {
    pub(super) fn write(&self) -> Outcome {
        let unwritable = |path: &Path, source| Failure::Unwritable {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(&self.directory)
            .map_err(|source| unwritable(&self.directory, source))?;
        for (name, page) in pages().map_err(|source| unwritable(&self.directory, source))? {
            let path = self.directory.join(name);
            fs::write(&path, page).map_err(|source| unwritable(&path, source))?;
        }
        Ok(Exit::Done)
    }
}

/// All pages with their file names.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    pages.push(page(command)?);
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        collect(subcommand, pages)?;
    }
    Ok(())
}

fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    // What follows the help has lines that are to stay as they are.
    let after = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command.clone().after_help(""))
        .source(concat!("tarn ", env!("CARGO_PKG_VERSION")))
        .manual("Tarn");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = after {
        text.extend_from_slice(section("NOTES", &after).as_bytes());
    }
    text.extend_from_slice(exit_codes().as_bytes());
    Ok((man.get_filename(), text))
}

fn exit_codes() -> String {
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    for (exit, meaning) in exit::TABLE {
        // Writing to a String cannot fail.
        let _infallible = write!(text, ".TP\n{}\n{}\n", exit.code(), escaped(meaning));
    }
    text
}

/// A section whose lines stay as they are.
fn section(title: &str, text: &str) -> String {
    let lines = text.lines().map(escaped).collect::<Vec<_>>().join("\n");
    format!(".SH {title}\n.nf\n{lines}\n.fi\n")
}

/// A line that roff takes for nothing but text.
///
/// Spec: groff(7): `\&` before a dot at the start, `\e` for a backslash, `\-` and `\(aq` for a minus
/// and a quote that can be copied.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    let line = line.replace('\'', "\\(aq");
    if line.starts_with('.') {
        format!("\\&{line}")
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_exit_codes() {
        let pages = pages().unwrap();
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["tarn.1", "tarn-serve.1", "tarn-lun.1", "tarn-lun-add.1"] {
            assert!(names.contains(&name), "{name} of {names:?}");
        }
        for (name, page) in &pages {
            let page = String::from_utf8_lossy(page);
            assert!(page.contains("EXIT STATUS"), "{name}");
            let command = name.trim_end_matches(".1").replace('-', "\\-");
            assert!(page.contains(&command), "{name}");
        }
    }

    #[test]
    fn text_is_nothing_but_text() {
        assert_eq!(escaped(".nf"), "\\&.nf");
        assert_eq!(escaped("a\\b --c"), "a\\eb \\-\\-c");
        assert_eq!(escaped("'a'"), "\\(aqa\\(aq");
    }
}
