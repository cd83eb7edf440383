//! Configurations of other targets.

use std::path::Path;
use std::str;

use ::import::{Format, Options, Source};
use config::Model;

/// Between the files of one input.
pub(crate) const BETWEEN: &str = "\x0c\n";

/// Names of the files of an input: the lists of IET are recognised by theirs.
const NAMES: [&str; 4] = [
    "a.conf",
    "initiators.allow",
    "initiators.deny",
    "targets.allow",
];

/// Texts as each of the formats. What is read gives a configuration that Tarn accepts, and a list in
/// which everything has a place; what is not read is reported in a line.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let sources: Vec<_> = NAMES
        .into_iter()
        .zip(text.split(BETWEEN))
        .map(|(name, text)| Source { name, text })
        .collect();
    // Whatever it finds, it finds one.
    let _format = Format::detect(&sources);
    for format in Format::ALL {
        for source in &sources {
            for include in ::import::includes(format, *source) {
                assert_eq!(*include.place.file, *source.name);
            }
            if let Err(error) = ::import::check_included(format, *source) {
                assert!(!error.to_string().contains('\n'));
            }
        }
        check(format, &sources);
    }
}

fn check(format: Format, sources: &[Source<'_>]) {
    let imported = match ::import::import(format, sources, &Options::default()) {
        Ok(imported) => imported,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    match Model::from_toml(&imported.toml, Path::new("/etc/tarn/tarn.toml")) {
        Ok(model) => assert!(
            !model.targets().is_empty() || !model.units().is_empty(),
            "{}",
            imported.toml
        ),
        Err(error) => panic!("{format:?}: {error}\n{}", imported.toml),
    }
    // As small as they may be: each is a configuration of its own.
    for part in imported.parts(1) {
        if let Err(error) = Model::from_toml(&part, Path::new("/etc/tarn/tarn.toml")) {
            panic!("{format:?}: {error}\n{part}");
        }
    }
    for note in &imported.notes {
        assert!(NAMES.contains(&&*note.place.file), "{note:?}");
        assert!(!note.subject.is_empty() && !note.message.is_empty());
    }
    for file in &imported.secrets {
        let is_plain = !file.name.is_empty() && !file.name.contains(['/', '\0']);
        assert!(is_plain && imported.toml.contains(&file.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused would lead nowhere.
    #[test]
    fn the_seeds_are_read() {
        for (name, bytes) in crate::seeds::of("import") {
            let text = str::from_utf8(&bytes).unwrap();
            let sources: Vec<_> = NAMES
                .into_iter()
                .zip(text.split(BETWEEN))
                .map(|(name, text)| Source { name, text })
                .collect();
            let format = Format::detect(&sources).unwrap();
            assert_eq!(format.as_str(), name);
            assert!(::import::import(format, &sources, &Options::default()).is_ok());
        }
    }
}
