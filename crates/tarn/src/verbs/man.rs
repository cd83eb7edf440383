//! `tarn man`: a manual page for each command, from the same definition as the help, and one for the configuration
//! file, from the same tables as docs/reference/configuration.md.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use super::Outcome;
use super::exit::{self, Exit};
use super::failure::Failure;
use crate::cli;

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
    let mut command = cli::command();
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)?;
    pages.push(("tarn.toml.5".to_owned(), configuration().into_bytes()));
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

/// The page of the configuration file.
fn configuration() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        ".TH tarn.toml 5 \"\" \"tarn {version}\" \"Tarn\"\n\
         .SH NAME\ntarn.toml \\- configuration of the storage target tarn(1)\n\
         .SH DESCRIPTION\n\
         The file is TOML. tarn serve \\-\\-config FILE reads it; tarn check FILE finds its mistakes, each with its \
         line. Keys that are not known are mistakes. Changes by commands and by the console are written into the \
         file, and its comments stay.\n"
    );
    let (kinds, options) = config::store_help();
    let stores = format!("{kinds}\nOptions follow after '?', separated by '&':\n{options}");
    text.push_str(&section("STORE", &spoken(&stores)));
    for keys in config::keys::SECTIONS {
        let heading = escaped(&spoken(keys.heading));
        text.push_str(&format!(
            ".SH \"{heading}\"\n{}\n",
            escaped(&spoken(keys.meaning))
        ));
        for key in keys.keys {
            let lines = [
                format!("Takes {}.", key.form),
                format!("If left out: {}.", key.default_text()),
                key.meaning.to_owned(),
                format!("Set it {}.", key.set_it),
            ];
            let lines = lines.map(|line| format!("{}\n", escaped(&spoken(&line))));
            text.push_str(&format!(
                ".TP\n.B {}\n{}",
                escaped(key.name),
                lines.concat()
            ));
        }
    }
    text.push_str(
        ".SH FILES\n.TP\n/etc/tarn/tarn.toml\nThe file of the service.\n.TP\n/usr/share/tarn/tarn.schema.json\n\
         Its JSON schema, for editors.\n.TP\n\
         /usr/share/doc/tarn/reference/configuration.md\nAll of this with more words and examples.\n\
         .SH \"SEE ALSO\"\n.BR tarn (1),\n.BR tarn\\-serve (1),\n.BR tarn\\-check (1)\n",
    );
    text
}

/// Text of the documents without their marks: backquotes, and the addresses of links.
fn spoken(text: &str) -> String {
    let mut said = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link.split_once("](").and_then(|(name, behind)| {
            let (_, after) = behind.split_once(')')?;
            Some((name, after))
        });
        said.push_str(before);
        match parts {
            Some((name, after)) if !name.contains(['[', ']']) => {
                said.push_str(name);
                rest = after;
            }
            Some(_) | None => {
                said.push('[');
                rest = link;
            }
        }
    }
    said.push_str(rest);
    said.replace('`', "")
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
        for (name, page) in pages.iter().filter(|(name, _)| name.ends_with(".1")) {
            let page = String::from_utf8_lossy(page);
            assert!(page.contains("EXIT STATUS"), "{name}");
            let command = name.trim_end_matches(".1").replace('-', "\\-");
            assert!(page.contains(&command), "{name}");
        }
    }

    #[test]
    fn the_page_of_the_configuration_has_every_key_and_every_option() {
        let page = configuration();
        for section in config::keys::SECTIONS {
            for key in section.keys {
                let line = format!(".B {}\n", escaped(key.name));
                assert!(page.contains(&line), "{} {}", section.heading, key.name);
            }
        }
        for row in &config::OPTIONS {
            assert!(page.contains(row.word), "{}", row.word);
        }
        assert!(!page.contains('`') && !page.contains("]("));
        let is_request = |line: &&str| line.starts_with(['.', '\'']);
        let known = [".TH", ".SH", ".TP", ".B ", ".BR", ".nf", ".fi"];
        for line in page.lines().filter(is_request) {
            assert!(
                known.iter().any(|request| line.starts_with(request)),
                "{line}"
            );
        }
    }

    #[test]
    fn marks_of_documents_are_left_out() {
        assert_eq!(
            spoken("a `b`, see [C](C.md#d) and [[lun]]"),
            "a b, see C and [[lun]]"
        );
        assert_eq!(spoken("[server]"), "[server]");
    }

    #[test]
    fn text_is_nothing_but_text() {
        assert_eq!(escaped(".nf"), "\\&.nf");
        assert_eq!(escaped("a\\b --c"), "a\\eb \\-\\-c");
        assert_eq!(escaped("'a'"), "\\(aqa\\(aq");
    }
}
