//! Which arguments of which verbs name things that the daemon has.

use clap::{Arg, Command};

/// A kind of things that the daemon can list.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(in crate::verbs) enum Kind {
    /// Ids of units.
    Lun,
    /// Names of targets.
    Target,
    /// Addresses of targets.
    Portal,
    /// Ids of groups of initiators.
    Group,
    /// Ids of named stores.
    Store,
    /// Places of servers of NBD.
    Nbd,
    /// Names of quotas.
    Quota,
    /// Names of CHAP users.
    User,
    /// Ids of sessions.
    Session,
    /// Names of initiators that have sessions.
    Initiator,
    /// Sessions and initiators, for a new trace.
    Traceable,
    /// Subjects of traces.
    Trace,
    /// Names of tokens.
    Token,
    /// Snapshots, as `LUN@NAME`.
    Snapshot,
    /// Groups of HyperSCSI.
    HyperscsiGroup,
    /// Numbers of revisions.
    Revision,
}

/// A row: the verb, the id of its argument, what that names.
type Row = (&'static str, &'static str, Kind);

/// Every argument that names something that is there.
#[rustfmt::skip]
pub(super) const TABLE: &[Row] = &[
    ("lun show", "id", Kind::Lun),
    ("lun set", "id", Kind::Lun),
    ("lun rm", "id", Kind::Lun),
    ("lun resize", "id", Kind::Lun),
    ("lun eject", "id", Kind::Lun),
    ("lun load", "id", Kind::Lun),
    ("lun takeover", "id", Kind::Lun),
    ("lun reservation show", "id", Kind::Lun),
    ("lun reservation clear", "id", Kind::Lun),
    ("lun log discard", "id", Kind::Lun),
    ("lun log replay", "id", Kind::Lun),
    ("lun rename", "id", Kind::Lun),
    ("lun add", "target", Kind::Target),
    ("lun add", "groups", Kind::Group),
    ("lun add", "clone", Kind::Snapshot),
    ("lun adopt", "ids", Kind::Lun),
    ("snapshot create", "lun", Kind::Lun),
    ("snapshot create", "with", Kind::Lun),
    ("snapshot list", "lun", Kind::Lun),
    ("snapshot rollback", "snapshot", Kind::Snapshot),
    ("snapshot flatten", "lun", Kind::Lun),
    ("snapshot rm", "snapshot", Kind::Snapshot),
    ("target show", "name", Kind::Target),
    ("target add", "auth", Kind::User),
    ("target set", "name", Kind::Target),
    ("target set", "auth", Kind::User),
    ("target rm", "name", Kind::Target),
    ("target map", "name", Kind::Target),
    ("target map", "id", Kind::Lun),
    ("target map", "groups", Kind::Group),
    ("target unmap", "name", Kind::Target),
    ("target unmap", "group", Kind::Group),
    ("portal add", "target", Kind::Target),
    ("portal rm", "target", Kind::Target),
    ("portal rm", "bind", Kind::Portal),
    ("group show", "id", Kind::Group),
    ("group set", "id", Kind::Group),
    ("group rm", "id", Kind::Group),
    ("store show", "id", Kind::Store),
    ("store set", "id", Kind::Store),
    ("store rm", "id", Kind::Store),
    ("nbd show", "place", Kind::Nbd),
    ("nbd add", "luns", Kind::Lun),
    ("nbd add", "groups", Kind::Group),
    ("nbd set", "place", Kind::Nbd),
    ("nbd set", "luns", Kind::Lun),
    ("nbd set", "groups", Kind::Group),
    ("nbd rm", "place", Kind::Nbd),
    ("hyperscsi group show", "group", Kind::HyperscsiGroup),
    ("hyperscsi group add", "devices", Kind::Lun),
    ("hyperscsi group set", "group", Kind::HyperscsiGroup),
    ("hyperscsi group rm", "group", Kind::HyperscsiGroup),
    ("hyperscsi device add", "group", Kind::HyperscsiGroup),
    ("hyperscsi device add", "id", Kind::Lun),
    ("hyperscsi device set", "group", Kind::HyperscsiGroup),
    ("hyperscsi device set", "id", Kind::Lun),
    ("hyperscsi device rm", "group", Kind::HyperscsiGroup),
    ("hyperscsi device rm", "id", Kind::Lun),
    ("quota show", "of", Kind::Quota),
    ("quota set", "of", Kind::Quota),
    ("quota rm", "of", Kind::Quota),
    ("user show", "name", Kind::User),
    ("user set", "name", Kind::User),
    ("user rm", "name", Kind::User),
    ("session show", "id", Kind::Session),
    ("session rm", "id", Kind::Session),
    ("trace start", "subject", Kind::Traceable),
    ("trace save", "subject", Kind::Trace),
    ("trace stop", "subject", Kind::Trace),
    ("token rm", "name", Kind::Token),
    ("who-sees", "initiator", Kind::Initiator),
    ("who-sees", "user", Kind::User),
    ("events", "lun", Kind::Lun),
    ("events", "target", Kind::Target),
    ("events", "initiator", Kind::Initiator),
    ("events", "user", Kind::User),
    ("rollback", "revision", Kind::Revision),
    ("show", "revision", Kind::Revision),
];

/// What an argument of a verb names, if that is something that is there.
pub(in crate::verbs) fn kind_of(verb: &str, argument: &Arg) -> Option<Kind> {
    let id = argument.get_id().as_str();
    let row = TABLE
        .iter()
        .find(|(of, name, _)| *of == verb && *name == id);
    row.map(|(_, _, kind)| *kind)
}

/// What the first positional argument of a verb names.
pub(in crate::verbs) fn first_kind(verb: &str, command: &Command) -> Option<Kind> {
    kind_of(verb, command.get_positionals().next()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn command<'a>(command: &'a Command, verb: &str) -> &'a Command {
        let words = verb.split(' ');
        words.fold(command, |command, word| {
            command.find_subcommand(word).unwrap()
        })
    }

    #[test]
    fn every_row_is_of_an_argument_that_there_is() {
        let all = cli::command();
        for (verb, id, _) in TABLE {
            let mut arguments = command(&all, verb).get_arguments();
            assert!(
                arguments.any(|argument| argument.get_id() == *id),
                "{verb} {id}"
            );
        }
    }

    #[test]
    fn whoever_shows_sets_or_removes_a_thing_is_offered_those_that_are_there() {
        fn check(command: &Command, path: &str, seen: &mut usize) {
            for verb in command.get_subcommands() {
                let path = format!("{path} {}", verb.get_name()).trim().to_owned();
                let is_of_one = matches!(verb.get_name(), "show" | "set" | "rm");
                if path.contains(' ') && is_of_one {
                    assert!(first_kind(&path, verb).is_some(), "{path}");
                    *seen += 1;
                }
                check(verb, &path, seen);
            }
        }
        let mut seen = 0;
        check(&cli::command(), "", &mut seen);
        assert!(seen > 20, "{seen}");
    }
}
