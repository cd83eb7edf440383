//! `tarn import`: reads the files, writes the configuration and its secrets, prints the list.

mod devices;
mod error;
mod files;
mod report;

use std::path::{Path, PathBuf};

use ::import::{Format, Imported, Options, Source};
use clap::Args;

pub(crate) use error::ImportError;

const IMPORT_HELP: &str = "\
FORMAT is only needed where the first file does not show it:
  tgt             targets.conf, or what tgt-admin --dump writes
  tgt-show        what tgtadm --op show --mode target prints
  lio             saveconfig.json of LIO (targetcli)
  scst            scst.conf of SCST (scstadmin)
  iet             ietd.conf, with initiators.allow
  istgt           istgt.conf, with auth.conf
  ctl             ctl.conf of FreeBSD
Included files are read, too.

Exit code 0: everything was imported, or changed as the list says; 1: something was left out;
2: nothing was imported; the list says why if the files could be read.
docs/guide/migration.md describes a move step by step.

Examples:
  tarn import /etc/tgt/targets.conf -o tarn.toml
  tarn import iet /etc/iet/ietd.conf /etc/iet/initiators.allow
  tarn import saveconfig.json --listen 127.0.0.1:3270 -o rehearsal.toml";

/// `tarn import`.
#[derive(Args, Debug)]
#[command(after_help = IMPORT_HELP)]
pub struct ImportArgs {
    /// The format, if it cannot be recognised, and the files of the other target.
    #[arg(value_name = "[FORMAT] FILE", required = true)]
    pub words: Vec<PathBuf>,

    /// Write the configuration to this file, and the secrets to private files beside it; none of
    /// them may exist. Use it to serve the result. [default: the configuration to the standard
    /// output, and no secrets]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Address to listen on instead of those in the files; repeat the flag for several; IPv6 in
    /// brackets. 0.0.0.0 stands for all IPv4 addresses, [::] for all IPv6 addresses. Use it to move to other
    /// addresses, or to rehearse the move.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,

    /// Directory that has the file system of the other target's machine, with its /sys and /dev: there devices that a
    /// file names by their SCSI address (scst.conf) are looked up. Use it to import on another machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// Print the result as JSON on the standard output, with the configuration unless --output is given. Use it in
    /// programs.
    #[arg(long)]
    pub json: bool,
}

/// Something was left out, which the list shows.
#[derive(Debug, thiserror::Error)]
#[error("{count} left out; see the list for what to do about each")]
struct LeftOut {
    count: usize,
}

/// Runs `tarn import`.
///
/// # Errors
///
/// An [`ImportError`] if nothing was imported; another error if something was left out.
pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<()> {
    let (word, paths) = split_format(&args.words)?;
    let texts = files::read_all(word, &paths)?;
    let sources: Vec<Source<'_>> = texts.iter().map(files::Text::source).collect();
    let format = match word {
        Some(format) => format,
        None => Format::detect(&sources).map_err(ImportError::from)?,
    };
    let options = Options {
        listen: listen(&args.listen)?,
        secret_prefix: args.output.as_deref().map(prefix).unwrap_or_default(),
        devices: devices::find(&args.root),
    };
    let imported = match ::import::import(format, &sources, &options) {
        Ok(imported) => imported,
        Err(error) => {
            report::tell_nothing(args, format, &error);
            return Err(ImportError::from(error).into());
        }
    };
    check(&imported, args.output.as_deref())?;
    if let Some(output) = &args.output {
        files::write_all(output, &imported)?;
    }
    let exposed = files::exposed(&texts, &imported);
    report::tell(args, &imported, word.is_none(), &exposed);
    let count = report::left_out(&imported);
    if count == 0 {
        Ok(())
    } else {
        Err(LeftOut { count }.into())
    }
}

/// The format, if the first word names one, and the files.
fn split_format(words: &[PathBuf]) -> Result<(Option<Format>, Vec<PathBuf>), ImportError> {
    let first = words.first().and_then(|word| word.to_str());
    let Some(format) = first.and_then(Format::parse) else {
        return Ok((None, words.to_vec()));
    };
    let paths = words.get(1..).unwrap_or_default().to_vec();
    if paths.is_empty() {
        return Err(ImportError::NoFile {
            format: format.as_str(),
        });
    }
    Ok((Some(format), paths))
}

/// The addresses, as the configuration will read them.
fn listen(listen: &[String]) -> Result<Vec<String>, ImportError> {
    for text in listen {
        text.parse::<std::net::SocketAddr>()
            .map_err(|_no_address| ImportError::Listen { text: text.clone() })?;
    }
    Ok(listen.to_vec())
}

/// Secrets of two imports into one directory are kept apart by the name of the configuration.
fn prefix(output: &Path) -> String {
    let stem = output.file_stem().map(|stem| stem.to_string_lossy());
    stem.map(|stem| format!("{stem}.")).unwrap_or_default()
}

/// How much of the result is read at once: as a tree a text takes some fifty times its size.
const CHECK_BYTES: usize = 512 << 10;

/// What Tarn could not read itself must not be handed out as its configuration.
fn check(imported: &Imported, output: Option<&Path>) -> Result<(), ImportError> {
    let path = output.unwrap_or_else(|| Path::new("tarn.toml"));
    for part in imported.parts(CHECK_BYTES) {
        config::Model::from_toml(&part, path).map_err(|source| ImportError::Wrong { source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(words: &[&str]) -> Vec<PathBuf> {
        words.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_first_word_may_name_the_format() {
        let (format, files) = split_format(&paths(&["lio", "a", "b"])).unwrap();
        assert_eq!((format, files), (Some(Format::Lio), paths(&["a", "b"])));
        let (format, files) = split_format(&paths(&["a", "lio"])).unwrap();
        assert_eq!((format, files), (None, paths(&["a", "lio"])));
        assert!(split_format(&paths(&["lio"])).is_err());
    }

    #[test]
    fn secrets_are_named_after_the_configuration() {
        assert_eq!(prefix(Path::new("/etc/tarn/tarn.toml")), "tarn.");
        assert_eq!(prefix(Path::new("x")), "x.");
    }
}
