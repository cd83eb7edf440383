//! The corpus that is kept with the source does no harm.

use std::fs;

use fuzz::{TARGETS, corpus, seeds};

#[test]
fn every_target_stands_its_corpus() {
    for target in TARGETS {
        let folder = corpus().join(target.name);
        let mut count = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let input = fs::read(&path).unwrap();
            println!("{}", path.display());
            (target.run)(&input);
            count += 1;
        }
        assert!(count > 0, "{} has no corpus", target.name);
    }
}

#[test]
fn every_folder_of_the_corpus_has_a_target() {
    for entry in fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            TARGETS
                .iter()
                .any(|target| target.name == name.to_string_lossy()),
            "{name:?}"
        );
    }
}

/// A seed that differs from its file means that a format has changed: `--write-seeds`.
#[test]
fn the_seeds_are_those_of_the_source() {
    for target in TARGETS {
        let seeds = seeds::of(target.name);
        assert!(!seeds.is_empty(), "{}", target.name);
        for (name, content) in seeds {
            let kept = fs::read(corpus().join(target.name).join(&name)).unwrap_or_default();
            assert!(kept == content, "{}/{name}", target.name);
        }
    }
}
