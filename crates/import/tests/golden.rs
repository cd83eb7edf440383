//! The samples of every format, against what was made of them before.
//!
//! `TARN_BLESS=1 cargo test -p import --test golden` writes the expected files again; look at the difference.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::fs;
use std::path::{Path, PathBuf};

use config::Model;
use import::{Format, Imported, Options, Severity, Source};

/// The samples: the format, and its files in the order in which they are read.
const SAMPLES: &[(Format, &[&str])] = &[
    (
        Format::Tgt,
        &["tgt/targets.conf", "tgt/conf.d/archive.conf"],
    ),
    (Format::TgtShow, &["tgt-show/show.txt"]),
    (Format::Lio, &["lio/saveconfig.json"]),
    (Format::Scst, &["scst/scst.conf"]),
    (Format::Iet, &["iet/ietd.conf", "iet/initiators.allow"]),
    (Format::Istgt, &["istgt/istgt.conf", "istgt/auth.conf"]),
    (Format::Ctl, &["ctl/ctl.conf"]),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import")
}

fn import(format: Format, files: &[&str]) -> Imported {
    let texts: Vec<String> = files
        .iter()
        .map(|file| fs::read_to_string(directory().join(file)).unwrap())
        .collect();
    let sources: Vec<Source<'_>> = files
        .iter()
        .zip(&texts)
        .map(|(name, text)| Source { name, text })
        .collect();
    assert_eq!(Format::detect(&sources), Ok(format), "{files:?}");
    import::import(format, &sources, &Options::default()).unwrap()
}

/// The list as text: a paragraph for each note.
fn list(imported: &Imported) -> String {
    let notes = imported.notes.iter().map(|note| {
        let remedy = match note.remedy.as_str() {
            "" => String::new(),
            remedy => format!("\n    -> {remedy}"),
        };
        let severity = note.severity.as_str();
        let (place, subject, message) = (&note.place, &note.subject, &note.message);
        format!("{severity}: {place}: {subject}\n    {message}{remedy}\n")
    });
    let secrets = imported.secrets.iter().map(|file| {
        let state = file.secret.as_ref().map_or("missing", |_| "known");
        format!("secret: {}: {} ({state})\n", file.name, file.purpose)
    });
    notes.chain(secrets).collect()
}

fn compare(path: &Path, got: &str) {
    if std::env::var_os("TARN_BLESS").is_some() {
        fs::write(path, got).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap();
    assert_eq!(got, expected, "{}", path.display());
}

#[test]
fn samples_give_what_is_expected() {
    for (format, files) in SAMPLES {
        let imported = import(*format, files);
        let expected = directory().join("expected");
        let name = format.as_str();
        compare(&expected.join(format!("{name}.toml")), &imported.toml);
        compare(&expected.join(format!("{name}.list")), &list(&imported));
    }
}

#[test]
fn what_is_written_is_a_configuration() {
    for (format, files) in SAMPLES {
        let imported = import(*format, files);
        let model = Model::from_toml(&imported.toml, Path::new("tarn.toml"));
        assert!(!model.unwrap().targets().is_empty(), "{format:?}");
    }
}

#[test]
fn no_secret_is_in_the_text_or_the_list() {
    for (format, files) in SAMPLES {
        let imported = import(*format, files);
        let shown = imported.toml.clone() + &list(&imported);
        for file in &imported.secrets {
            if let Some(secret) = &file.secret {
                assert!(
                    !shown.contains(secret.as_str()),
                    "{format:?}: {}",
                    file.name
                );
            }
        }
        assert!(
            imported.secrets.iter().any(|file| file.secret.is_some()) || *format == Format::TgtShow
        );
    }
}

/// Every sample has something of each kind, so that no kind goes untested.
#[test]
fn samples_have_all_severities() {
    for (format, files) in SAMPLES {
        let notes = import(*format, files).notes;
        for severity in [Severity::LeftOut, Severity::Changed, Severity::Carried] {
            assert!(
                notes.iter().any(|note| note.severity == severity),
                "{format:?} {severity:?}"
            );
        }
    }
}

#[test]
fn parts_are_configurations_with_all_that_the_whole_has() {
    let read = |text: &str| Model::from_toml(text, Path::new("tarn.toml")).unwrap();
    let names = |model: &Model| -> Vec<String> {
        let targets = model.targets().iter().map(|target| target.name.to_string());
        targets.collect()
    };
    let ids = |model: &Model| -> Vec<String> {
        model
            .units()
            .iter()
            .filter_map(|unit| unit.id.clone())
            .collect()
    };
    for (format, files) in SAMPLES {
        let imported = import(*format, files);
        let whole = read(&imported.toml);
        for bytes in [1, 500, usize::MAX] {
            let parts: Vec<_> = imported.parts(bytes).map(|part| read(&part)).collect();
            let targets: Vec<_> = parts.iter().flat_map(names).collect();
            assert_eq!(targets, names(&whole), "{format:?}");
            let mut units: Vec<_> = parts.iter().flat_map(ids).collect();
            units.sort();
            units.dedup();
            let mut expected = ids(&whole);
            expected.sort();
            assert_eq!(units, expected, "{format:?}");
        }
    }
}

#[test]
fn many_targets_are_many_parts() {
    let target = |n: u32| {
        format!("<target iqn.2026-11.example:{n}>\nbacking-store /srv/{n}.img\n</target>\n")
    };
    let text: String = (0..50).map(target).collect();
    let source = Source {
        name: "targets.conf",
        text: &text,
    };
    let imported = import::import(Format::Tgt, &[source], &Options::default()).unwrap();
    let parts: Vec<_> = imported.parts(1).collect();
    assert!(parts.len() > 10, "{}", parts.len());
    for part in &parts {
        let model = Model::from_toml(part, Path::new("tarn.toml")).unwrap();
        // None has what the others need.
        assert_eq!(model.units().len(), model.targets().len(), "{part}");
    }
    assert_eq!(imported.parts(usize::MAX).count(), 1);
}
