//! Compares what the documentation says about the configuration with the code.

use std::fs;
use std::path::{Path, PathBuf};

use config::{Limits, Model, keys};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The TOML blocks of a Markdown text.
fn toml_blocks(text: &str) -> Vec<&str> {
    text.split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

/// To take over what the code says: `BLESS=1 cargo test -p config --test docs`.
#[test]
fn the_reference_lists_exactly_the_keys_and_stores_of_the_code() {
    for (file, name, reference) in [
        ("docs/reference/configuration.md", "keys", keys::reference()),
        ("docs/guide/stores.md", "stores", config::store_reference()),
    ] {
        let text = read(file);
        let (begin, end) = (
            format!("<!-- {name}: begin -->\n"),
            format!("<!-- {name}: end -->\n"),
        );
        let (before, rest) = text.split_once(&begin).expect("begin mark");
        let (written, after) = rest.split_once(&end).expect("end mark");
        if std::env::var_os("BLESS").is_some() {
            let text = format!("{before}{begin}{reference}{end}{after}");
            fs::write(project(file), &text).expect("docs is writable");
        } else {
            assert!(
                written == reference,
                "{file} is not what the code says; run BLESS=1 cargo test -p config --test docs"
            );
        }
    }
}

/// To take over what the code says: `BLESS=1 cargo test -p config --test docs`.
#[test]
fn the_schema_is_that_of_the_code() {
    const FILE: &str = "docs/tarn.schema.json";
    if std::env::var_os("BLESS").is_some() {
        fs::write(project(FILE), config::schema()).expect("docs is writable");
    } else {
        assert!(
            read(FILE) == config::schema(),
            "{FILE} is not what the code says; run BLESS=1 cargo test -p config --test docs"
        );
    }
}

#[test]
fn every_example_of_the_documentation_is_a_configuration() {
    for file in [
        "README.md",
        "docs/reference/configuration.md",
        "docs/guide/stores.md",
        "docs/guide/remote-stores.md",
        "docs/guide/quotas.md",
        "docs/guide/operating.md",
    ] {
        let text = read(file);
        let blocks = toml_blocks(&text);
        assert!(!blocks.is_empty(), "{file} shows no configuration");
        for block in blocks {
            if let Err(error) = Model::from_toml(block, Path::new(file)) {
                panic!("{error}\n{block}");
            }
        }
    }
}

#[test]
fn the_example_file_is_good_and_shows_every_section() {
    let text = read("examples/tarn.toml");
    let model = Model::from_toml(&text, Path::new("examples/tarn.toml")).expect("good");
    assert_eq!(model.warnings(), []);
    assert_eq!(
        *model.limits(),
        Limits::default(),
        "it says these are the defaults"
    );
    for section in keys::SECTIONS.iter().filter(|s| s.heading.starts_with('[')) {
        assert!(text.contains(section.heading), "{}", section.heading);
    }
}

/// The example file is where people copy from, so it must show what a key looks like.
#[test]
fn the_example_file_names_every_key() {
    let text = read("examples/tarn.toml");
    for section in keys::SECTIONS {
        for key in section.keys {
            assert!(
                text.contains(key.name),
                "{} of {}",
                key.name,
                section.heading
            );
        }
    }
}
