//! From what was found to what Tarn allows: one unit per store, legal names, one unit per number.
//!
//! Nothing is dropped without a note. Where a limit of access is lost altogether, what it guarded is not shown: a
//! target that asked for CHAP never becomes one that does not. Its disks are written, with no target that shows them.

mod people;
mod targets;
mod units;

use std::collections::BTreeSet;

use crate::Options;
use crate::found::Found;

pub(crate) use people::{Secrets, secret_files};

/// Brings everything within Tarn's rules, and notes what that changes.
pub(crate) fn settle(found: &mut Found, options: &Options) {
    units::settle(found);
    people::settle(found);
    targets::settle(found, options);
    units::note_unseen(found);
    people::drop_unused(found);
    people::note_discovery(found);
    units::note_changes(found);
    units::note_identities(found);
}

/// Longest `id` in bytes; see docs/reference/configuration.md.
const ID_BYTES_MAX: usize = 64;

/// Makes names into `id`s: legal, short, and each only once.
#[derive(Default)]
struct Ids {
    taken: BTreeSet<String>,
}

impl Ids {
    fn make(&mut self, name: &str) -> String {
        let plain = legal(name);
        let mut id = plain.clone();
        let mut number = 1_u32;
        while !self.taken.insert(id.clone()) {
            number = number.saturating_add(1);
            let suffix = format!("-{number}");
            let room = ID_BYTES_MAX.saturating_sub(suffix.len());
            id = format!("{}{suffix}", plain.get(..room).unwrap_or(&plain));
        }
        id
    }
}

/// The name with a hyphen for whatever an `id` cannot have.
fn legal(name: &str) -> String {
    let legal: String = name
        .chars()
        .take(ID_BYTES_MAX)
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => c,
            _ => '-',
        })
        .collect();
    if legal.is_empty() {
        "disk".to_owned()
    } else {
        legal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_legal_short_and_unique() {
        let mut ids = Ids::default();
        let long = "x".repeat(100);
        for (name, id) in [
            ("data", "data".to_owned()),
            ("data", "data-2".to_owned()),
            ("a b/c", "a-b-c".to_owned()),
            ("", "disk".to_owned()),
            (&long, "x".repeat(64)),
            (&long, format!("{}-2", "x".repeat(62))),
        ] {
            assert_eq!(ids.make(name), id);
        }
    }
}
