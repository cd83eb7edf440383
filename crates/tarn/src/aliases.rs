//! Other names of verbs, for people who come from other targets: the one table of them.

use clap::Command;

/// A verb of a noun, and what else it may be called.
#[rustfmt::skip]
pub(crate) const TABLE: &[(&str, &[&str])] = &[
    ("list", &["ls"]),
    ("show", &["info"]),
    ("add", &["create"]),
    ("create", &["add"]),
    ("set", &["modify"]),
    ("rm", &["delete", "remove"]),
    ("resize", &["grow"]),
    ("rename", &["mv"]),
];

/// The command with the other names of all verbs below its nouns. The commands of the top level have none: `tarn show`
/// and `tarn lun show` are different verbs.
pub(crate) fn added(command: Command) -> Command {
    command.mut_subcommands(|noun| noun.mut_subcommands(verb))
}

fn verb(command: Command) -> Command {
    let row = TABLE.iter().find(|(name, _)| *name == command.get_name());
    // A noun below a noun, as of tarn hyperscsi, has verbs too.
    let command = command.mut_subcommands(verb);
    match row {
        Some((_, aliases)) => command.visible_aliases(aliases.iter().copied()),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use crate::cli;

    fn names(command: &clap::Command) -> Vec<&str> {
        let aliases = command.get_all_aliases();
        std::iter::once(command.get_name()).chain(aliases).collect()
    }

    #[test]
    fn no_name_means_two_verbs() {
        let command = cli::command();
        for noun in command.get_subcommands() {
            let mut all: Vec<_> = noun.get_subcommands().flat_map(names).collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "{}", noun.get_name());
        }
    }

    #[test]
    fn a_verb_is_found_by_its_other_names() {
        for line in [
            "tarn lun ls",
            "tarn lun create a mem:1M",
            "tarn lun delete a --yes",
            "tarn target remove iqn.2026-11.example:a",
            "tarn snapshot add a",
            "tarn hyperscsi group ls",
        ] {
            assert!(cli::parse(line.split(' ')).is_ok(), "{line}");
        }
        assert!(cli::parse(["tarn", "ls"]).is_err());
    }
}
