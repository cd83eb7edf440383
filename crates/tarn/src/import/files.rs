//! The files of `tarn import`: those of the other target, and those that are made.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ::import::{FILE_BYTES_MAX, Format, Imported, Include, Source};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::error::ImportError;

/// Most files that are read, with those that others include.
const FILES_MAX: usize = 1000;

/// A file that was read.
pub(super) struct Text {
    name: String,
    path: PathBuf,
    /// It may hold secrets.
    text: Zeroizing<String>,
}

impl Text {
    /// The file as the importer takes it.
    pub(super) fn source(&self) -> Source<'_> {
        Source {
            name: &self.name,
            text: &self.text,
        }
    }
}

/// Reads the files, and behind each those that it includes. An included file that is no configuration ends that: it may
/// be any file that this user may read, so nothing of it is to be shown.
pub(super) fn read_all(
    format: Option<Format>,
    paths: &[PathBuf],
) -> Result<Vec<Text>, ImportError> {
    let mut texts = Vec::new();
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<(PathBuf, bool)> = paths
        .iter()
        .rev()
        .cloned()
        .map(|path| (path, false))
        .collect();
    while let Some((path, is_included)) = waiting.pop() {
        // A file that includes itself is read once.
        if !seen.insert(path.clone()) {
            continue;
        }
        if texts.len() >= FILES_MAX {
            return Err(ImportError::Files { max: FILES_MAX });
        }
        let text = read(&path)?;
        let format = format.or_else(|| Format::detect(&[text.source()]).ok());
        // A file that only includes others does not show its format; only tgt has such files.
        let format = format.unwrap_or(Format::Tgt);
        if is_included {
            ::import::check_included(format, text.source()).map_err(ImportError::from)?;
        }
        let includes = ::import::includes(format, text.source());
        for include in includes.iter().rev() {
            let paths = expand(&path, include)?.into_iter().rev();
            waiting.extend(paths.map(|path| (path, true)));
        }
        texts.push(text);
    }
    Ok(texts)
}

/// Reads a file. A pipe could keep this waiting, and a device could do anything, so neither is opened for long.
fn read(path: &Path) -> Result<Text, ImportError> {
    let failed = |source| ImportError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ImportError::NoRegularFile {
            path: path.to_owned(),
        });
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
    // One more, which the importer refuses.
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let text = std::str::from_utf8(&bytes).map_err(|_not_utf8| {
        let message = "it is not text in UTF-8";
        failed(io::Error::new(io::ErrorKind::InvalidData, message))
    })?;
    Ok(Text {
        name: path.display().to_string(),
        path: path.to_owned(),
        text: Zeroizing::new(text.to_owned()),
    })
}

/// The files that an include means, in the order of their names. A pattern may match none, and a directory means the
/// files in it.
fn expand(including: &Path, include: &Include) -> Result<Vec<PathBuf>, ImportError> {
    let directory = including.parent().unwrap_or_else(|| Path::new(""));
    let path = directory.join(&include.pattern);
    let is_pattern = |text: &str| text.contains(['*', '?']);
    if !is_pattern(&include.pattern) {
        return Ok(if path.is_dir() {
            files_of(&path, |_| true)
        } else {
            vec![path]
        });
    }
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    let name = path.file_name().and_then(|name| name.to_str());
    let unusable = || ImportError::Include {
        place: include.place.to_string(),
        pattern: include.pattern.clone(),
    };
    let name = name.ok_or_else(unusable)?;
    let pattern = config::NamePattern::parse(name).map_err(|_rule| unusable())?;
    if is_pattern(&parent.to_string_lossy()) {
        return Err(unusable());
    }
    Ok(files_of(parent, |name| pattern.matches(name)))
}

/// The files of a directory with names that are meant; those with a dot in front never are.
fn files_of(directory: &Path, is_meant: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name());
    let names = names.filter(|name| {
        let name = name.to_string_lossy();
        !name.starts_with('.') && is_meant(&name)
    });
    let mut paths: Vec<PathBuf> = names
        .map(|name| directory.join(name))
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths
}

/// Files with secrets in them that others may read.
pub(super) fn exposed(texts: &[Text], imported: &Imported) -> Vec<String> {
    const OTHERS: u32 = 0o044;
    let holds_secret = |text: &Text| {
        let mut secrets = imported
            .secrets
            .iter()
            .filter_map(|file| file.secret.as_ref());
        secrets.any(|secret| text.text.contains(secret.as_str()))
    };
    let is_exposed = |text: &&Text| {
        let mode = fs::metadata(&text.path).map_or(0, |metadata| metadata.mode());
        mode & OTHERS != 0 && holds_secret(text)
    };
    texts
        .iter()
        .filter(is_exposed)
        .map(|text| text.name.clone())
        .collect()
}

/// Writes the secrets, then the configuration. If one cannot be written, those before it are taken
/// away again.
pub(super) fn write_all(output: &Path, imported: &Imported) -> Result<(), ImportError> {
    let mut made = Vec::new();
    let written = write_each(output, imported, &mut made);
    if written.is_err() {
        for path in made {
            let _left = fs::remove_file(path);
        }
    }
    written
}

fn write_each(
    output: &Path,
    imported: &Imported,
    made: &mut Vec<PathBuf>,
) -> Result<(), ImportError> {
    for file in &imported.secrets {
        if let Some(secret) = &file.secret {
            let line = Zeroizing::new(format!("{}\n", secret.as_str()));
            write_new(&output.with_file_name(&file.name), 0o600, &line, made)?;
        }
    }
    write_new(output, 0o644, &imported.toml, made)
}

/// Writes a file that was not there.
fn write_new(
    path: &Path,
    mode: u32,
    text: &str,
    made: &mut Vec<PathBuf>,
) -> Result<(), ImportError> {
    let failed = |source| ImportError::Unwritable {
        path: path.to_owned(),
        source,
    };
    durable::make(path, text.as_bytes(), mode).map_err(failed)?;
    made.push(path.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use durable::scratch::Scratch;

    #[test]
    fn an_include_reads_the_files_it_matches_once_and_in_order() {
        let scratch = Scratch::new();
        let put = |name: &str, text: &str| fs::write(scratch.path().join(name), text).unwrap();
        fs::create_dir(scratch.path().join("conf.d")).unwrap();
        put(
            "targets.conf",
            "include conf.d/*.conf\ninclude targets.conf\n",
        );
        put("conf.d/b.conf", "<target iqn.b>\n</target>\n");
        put("conf.d/a.conf", "<target iqn.a>\n</target>\n");
        put("conf.d/no", "");
        let texts = read_all(None, &[scratch.path().join("targets.conf")]).unwrap();
        let names: Vec<_> = texts
            .iter()
            .map(|text| text.path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["targets.conf", "a.conf", "b.conf"]);
    }

    #[test]
    fn an_included_directory_is_its_files_and_one_that_is_no_configuration_is_not_shown() {
        let scratch = Scratch::new();
        let put = |name: &str, text: &str| fs::write(scratch.path().join(name), text).unwrap();
        fs::create_dir(scratch.path().join("conf.d")).unwrap();
        put("targets.conf", "include conf.d\n");
        put("conf.d/b", "<target iqn.b>\n</target>\n");
        put("conf.d/.a", "hidden\n");
        let path = scratch.path().join("targets.conf");
        assert_eq!(
            read_all(Some(Format::Tgt), std::slice::from_ref(&path))
                .unwrap()
                .len(),
            2
        );
        for secret in [
            "root:$6$secret:1\n",
            "</secret>\n",
            "<secret x>\n",
            "= secret\n",
        ] {
            put("conf.d/c", secret);
            let error = read_all(Some(Format::Tgt), std::slice::from_ref(&path)).map(|_| ());
            let message = error.unwrap_err().to_string();
            assert!(
                message.contains("conf.d/c:1: this included file"),
                "{message}"
            );
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let scratch = Scratch::new();
        let pipe = scratch.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), scratch.path()] {
            let error = read(path).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn a_byte_too_many_is_read_and_no_more() {
        let scratch = Scratch::new();
        let path = scratch.path().join("long");
        let file = File::create(&path).unwrap();
        for (len, expected) in [(0, 0), (1, 1), (2, 1)] {
            file.set_len(FILE_BYTES_MAX as u64 + len).unwrap();
            assert_eq!(read(&path).unwrap().text.len(), FILE_BYTES_MAX + expected);
        }
    }

    #[test]
    fn nothing_is_left_when_a_file_is_in_the_way() {
        let scratch = Scratch::new();
        let mut made = Vec::new();
        let path = scratch.path().join("a");
        write_new(&path, 0o600, "x", &mut made).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(write_new(&path, 0o600, "y", &mut made).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
        assert_eq!(made, [path]);
    }

    #[test]
    fn what_cannot_be_a_pattern_is_refused_and_what_matches_nothing_is_none() {
        let scratch = Scratch::new();
        let put = |name: &str, text: &str| fs::write(scratch.path().join(name), text).unwrap();
        put("a.conf", "<target iqn.a>\n</target>\n");
        for (pattern, count) in [
            ("?.conf", Some(2)),
            ("b*", Some(1)),
            ("?/a.conf", None),
            ("a?/..", None),
            ("b.conf", None),
        ] {
            put("targets.conf", &format!("include {pattern}\n"));
            let texts = read_all(Some(Format::Tgt), &[scratch.path().join("targets.conf")]);
            assert_eq!(texts.ok().map(|texts| texts.len()), count, "{pattern}");
        }
    }

    /// A file of tgt with a disk and a secret.
    fn imported(path: &Path) -> (Vec<Text>, Imported) {
        let disk = path.with_file_name("disk");
        fs::write(&disk, [0; 512]).unwrap();
        let disk = format!("backing-store {}", disk.display());
        let text = format!(
            "<target iqn.2026-11.example:a>\n{disk}\nincominguser alice correct-horse-1\n</target>\n"
        );
        fs::write(path, text).unwrap();
        let texts = read_all(None, &[path.to_owned()]).unwrap();
        let sources: Vec<_> = texts.iter().map(Text::source).collect();
        let options = ::import::Options::default();
        let imported = ::import::import(Format::Tgt, &sources, &options).unwrap();
        (texts, imported)
    }

    #[test]
    fn a_file_with_secrets_that_others_may_read_is_named() {
        let scratch = Scratch::new();
        let path = scratch.path().join("targets.conf");
        let (texts, mut imported) = imported(&path);
        for (mode, is_exposed) in [(0o600, false), (0o622, false), (0o640, true), (0o604, true)] {
            rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(mode)).unwrap();
            let expected: &[String] = if is_exposed {
                &[path.display().to_string()]
            } else {
                &[]
            };
            assert_eq!(exposed(&texts, &imported), expected, "{mode:o}");
        }
        imported.secrets.clear();
        assert!(exposed(&texts, &imported).is_empty());
    }

    #[test]
    fn secrets_are_private_and_go_again_where_the_configuration_cannot_be_written() {
        let scratch = Scratch::new();
        let (_, imported) = imported(&scratch.path().join("targets.conf"));
        let (output, secret) = (
            scratch.path().join("t.toml"),
            scratch.path().join("alice.secret"),
        );
        fs::write(&output, "x").unwrap();
        assert!(write_all(&output, &imported).is_err());
        assert!(!secret.exists());
        assert_eq!(fs::read_to_string(&output).unwrap(), "x");
        fs::remove_file(&output).unwrap();
        write_all(&output, &imported).unwrap();
        assert_eq!(fs::read_to_string(&output).unwrap(), imported.toml);
        assert_eq!(fs::read_to_string(&secret).unwrap(), "correct-horse-1\n");
        let mode = |path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&output) & 0o700, mode(&secret)), (0o600, 0o600));
    }
}
