//! Values of a checked model as TOML: what two models are compared by, and what the effective
//! configuration says. One table per kind of thing; every value has exactly one form.

use std::path::Path;

use crate::file::{CERTIFICATE, EXCLUDED};
use crate::keys::size_text;
use crate::{
    Group, HyperScsiDevice, HyperScsiGroup, HyperScsiPassword, InitiatorMatch, Mail, Model, Mutual,
    NamedStore, NbdServer, Notify, NotifyTo, Portal, Quota, Schedule, SecretFile, Server,
    StoreOption, StoreSpec, Target, TargetLun, Unit, User, UserIndex,
};

/// A key of a thing of the model and how to read its value.
#[derive(Debug)]
pub(crate) struct KeyOf<T: 'static> {
    /// The key as the file has it.
    pub(crate) name: &'static str,
    /// The value as TOML; `None` where there is none.
    pub(crate) value: fn(&Model, &T) -> Option<String>,
}

const fn key<T>(name: &'static str, value: fn(&Model, &T) -> Option<String>) -> KeyOf<T> {
    KeyOf { name, value }
}

/// A unit, with the options of its store as keys of their own.
pub(crate) const UNIT: &[KeyOf<Unit>] = &[
    key("store", |_, unit| {
        Some(quoted(&unit.store.at.without_size()))
    }),
    key("size", |_, unit| {
        unit.store.configured_size_bytes().map(size)
    }),
    key("members", |_, unit| {
        let members = unit.store.members().iter();
        let texts = members.map(|one| quoted(&full_store(&one.store)));
        (!unit.store.members().is_empty()).then(|| list(texts))
    }),
    key("chunk", |_, unit| StoreOption::Chunk.toml(&unit.store)),
    key("blocksize", |_, unit| {
        StoreOption::BlockSize.toml(&unit.store)
    }),
    key("readonly", |_, unit| {
        StoreOption::ReadOnly.toml(&unit.store)
    }),
    key("cache", |_, unit| StoreOption::Cache.toml(&unit.store)),
    key("thin", |_, unit| StoreOption::Thin.toml(&unit.store)),
    key("removable", |_, unit| {
        StoreOption::Removable.toml(&unit.store)
    }),
    key("format", |_, unit| StoreOption::Format.toml(&unit.store)),
    key("socket", |_, unit| StoreOption::Socket.toml(&unit.store)),
    key("ca", |_, unit| StoreOption::Ca.toml(&unit.store)),
    key("connections", |_, unit| {
        StoreOption::Connections.toml(&unit.store)
    }),
    key("retry", |_, unit| StoreOption::Retry.toml(&unit.store)),
    key("takeover", |_, unit| {
        StoreOption::Takeover.toml(&unit.store)
    }),
    key("conf", |_, unit| StoreOption::Conf.toml(&unit.store)),
    key("user", |_, unit| StoreOption::User.toml(&unit.store)),
    key("keyring", |_, unit| StoreOption::Keyring.toml(&unit.store)),
    key("server", |_, unit| StoreOption::Server.toml(&unit.store)),
    key("udp", |_, unit| StoreOption::Udp.toml(&unit.store)),
    key("interface", |_, unit| {
        StoreOption::Interface.toml(&unit.store)
    }),
    key("password_file", |_, unit| {
        StoreOption::PasswordFile.toml(&unit.store)
    }),
    key("level", |_, unit| StoreOption::Level.toml(&unit.store)),
    key("initiator", |_, unit| {
        StoreOption::Initiator.toml(&unit.store)
    }),
    key("mutual_user", |_, unit| {
        StoreOption::MutualUser.toml(&unit.store)
    }),
    key("mutual_password_file", |_, unit| {
        StoreOption::MutualPasswordFile.toml(&unit.store)
    }),
    key("owner", unit_owner),
    key("serial", unit_serial),
    key("naa", unit_naa),
    key("log", unit_log),
    key("sync_bias", unit_bias),
    key("snapshots", unit_schedule),
];

/// A named store.
pub(crate) const STORE: &[KeyOf<NamedStore>] = &[key("store", |_, named| {
    Some(quoted(&full_store(&named.store)))
})];

/// A unit, as the file has it.
pub(crate) const UNIT_SECTION: &[KeyOf<Unit>] = &[
    key("store", |_, unit| Some(quoted(&full_store(&unit.store)))),
    key("owner", unit_owner),
    key("serial", unit_serial),
    key("naa", unit_naa),
    key("log", unit_log),
    key("sync_bias", unit_bias),
    key("snapshots", unit_schedule),
];

/// A target, without what it is found by and without its lists.
pub(crate) const TARGET: &[KeyOf<Target>] = &[
    key("alias", |_, target| target.alias.as_deref().map(quoted)),
    key("auth", |model, target| {
        Some(user_names(model, &target.auth))
    }),
    key("chap_algorithms", |_, target| {
        let words = target.chap_algorithms.iter().map(|word| word.as_str());
        Some(list(words.map(quoted)))
    }),
    key("cold_reset", |_, target| {
        Some(target.cold_reset.to_string())
    }),
];

/// A portal, without what it is found by.
pub(crate) const PORTAL: &[KeyOf<Portal>] = &[
    key("advertise", |_, portal| {
        let advertise = portal.advertise.as_ref()?;
        Some(quoted(&advertise.to_string()))
    }),
    key("group", |_, portal| Some(portal.group_tag.to_string())),
];

/// A unit of a target, without what it is found by.
pub(crate) const TARGET_LUN: &[KeyOf<TargetLun>] = &[
    key("id", |model, entry| {
        let unit = model.units.get(entry.unit.position())?;
        Some(quoted(&unit.to_string()))
    }),
    key("groups", |model, entry| {
        let groups = entry.groups.iter().map(|group| group.position());
        let ids = groups.filter_map(|position| model.groups.get(position));
        Some(list(ids.map(|group| quoted(&group.id))))
    }),
    key("readonly", |_, entry| Some(entry.read_only.to_string())),
];

/// A user, without what it is found by.
pub(crate) const USER: &[KeyOf<User>] = &[
    key("secret_file", |_, user| Some(secret_path(&user.secret))),
    key("mutual", |_, user| user.mutual.as_ref().map(mutual)),
    key("initiators", |_, user| {
        let names = user.initiators.iter();
        (!user.initiators.is_empty()).then(|| list(names.map(|name| quoted(&name.to_string()))))
    }),
];

/// A group, without what it is found by.
pub(crate) const GROUP: &[KeyOf<Group>] = &[key("initiators", |model, group| {
    Some(list(
        initiators(model, group).iter().map(|entry| quoted(entry)),
    ))
})];

/// A server of NBD, without what it is found by.
pub(crate) const NBD: &[KeyOf<NbdServer>] = &[
    key("certificate", |_, server| {
        Some(path(&server.tls.as_ref()?.certificate.certificate))
    }),
    key("key", |_, server| {
        Some(path(&server.tls.as_ref()?.certificate.key))
    }),
    key("ca", |_, server| {
        server.tls.as_ref()?.ca.as_deref().map(path)
    }),
    key("mode", |_, server| {
        let (_, mode) = server.at.socket()?;
        Some(quoted(&format!("{mode:04o}")))
    }),
    key("luns", |model, server| {
        let units = server.luns.iter().map(|unit| unit.position());
        let units = units.filter_map(|position| model.units.get(position));
        Some(list(units.map(|unit| quoted(&unit.to_string()))))
    }),
    key("groups", |model, server| {
        let groups = server.groups.iter().map(|group| group.position());
        let groups = groups.filter_map(|position| model.groups.get(position));
        Some(list(groups.map(|group| quoted(&group.id))))
    }),
];

/// A group of HyperSCSI, without what it is found by.
pub(crate) const HYPERSCSI: &[KeyOf<HyperScsiGroup>] = &[
    key("user", |_, group| group.user.as_deref().map(quoted)),
    key("password_file", |_, group| match &group.password {
        HyperScsiPassword::File(file) => Some(secret_path(file)),
        HyperScsiPassword::Written { .. } | HyperScsiPassword::Open { .. } => None,
    }),
    key("password", |_, group| match &group.password {
        // Nobody is shown it. What differs is compared beside the model.
        HyperScsiPassword::Written { .. } => Some(quoted(crate::NOT_SHOWN)),
        HyperScsiPassword::File(_) | HyperScsiPassword::Open { .. } => None,
    }),
    key("open", |_, group| match &group.password {
        HyperScsiPassword::Open { .. } => Some("true".to_owned()),
        HyperScsiPassword::File(_) | HyperScsiPassword::Written { .. } => None,
    }),
    key("retransmit", |_, group| {
        Some(quoted(group.retransmit.as_str()))
    }),
    key("profile", |_, group| Some(quoted(group.profile.as_str()))),
    key("device", |_, group| {
        let device = |device: &HyperScsiDevice| {
            let (id, level) = (quoted(&device.name), quoted(device.level.as_str()));
            let read_only = device.read_only;
            format!("{{ id = {id}, level = {level}, readonly = {read_only} }}")
        };
        Some(list(group.devices.iter().map(device)))
    }),
];

/// Somebody who gets events, without what they are found by.
pub(crate) const NOTIFY: &[KeyOf<Notify>] = &[
    key("secret_file", |_, notify| match &notify.to {
        NotifyTo::Webhook { secret, .. } => Some(path(&secret.path)),
        NotifyTo::Mail(_) => None,
    }),
    key("smtp", |_, notify| Some(quoted(&mail(notify)?.smtp.text))),
    key("from", |_, notify| {
        Some(quoted(mail(notify)?.from.as_ref()?))
    }),
    key("smtp_user", |_, notify| {
        Some(quoted(&mail(notify)?.login.as_ref()?.user))
    }),
    key("smtp_password_file", |_, notify| {
        Some(path(&mail(notify)?.login.as_ref()?.password.path))
    }),
    key("events", |_, notify| {
        Some(list(notify.events.iter().map(|kind| quoted(kind))))
    }),
];

/// What is said of the mail of one who gets mail.
const fn mail(notify: &Notify) -> Option<&Mail> {
    match &notify.to {
        NotifyTo::Mail(mail) => Some(mail),
        NotifyTo::Webhook { .. } => None,
    }
}

/// A quota, without what it is found by.
pub(crate) const QUOTA: &[KeyOf<Quota>] = &[
    key("provisioned", |_, quota| quota.provisioned_bytes.map(size)),
    key("used", |_, quota| quota.used_bytes.map(size)),
    key("soft", |_, quota| {
        quota.used_bytes.map(|_| quota.soft_percent.to_string())
    }),
];

/// The process itself.
pub(crate) const SERVER: &[KeyOf<Server>] = &[
    key("state", |_, server| server.state.as_deref().map(path)),
    key("cores", |_, server| {
        server.cores.map(|cores| cores.to_string())
    }),
    key("busy_poll_us", |_, server| {
        Some(server.busy_poll_us.to_string())
    }),
    key("coalescing", |_, server| {
        Some(quoted(server.coalescing.as_str()))
    }),
    key("log", |_, server| {
        server.log.map(|level| quoted(level.as_str()))
    }),
    key("discovery_auth", |model, server| {
        Some(user_names(model, &server.discovery_auth))
    }),
];

fn unit_owner(_: &Model, unit: &Unit) -> Option<String> {
    unit.owner.as_deref().map(quoted)
}

fn unit_serial(_: &Model, unit: &Unit) -> Option<String> {
    let serial = unit.serial.as_ref()?;
    Some(quoted(serial.as_str()))
}

fn unit_naa(_: &Model, unit: &Unit) -> Option<String> {
    unit.naa.map(|naa| quoted(&naa.to_string()))
}

/// The store as one STORE, with every option it can say. Its serial number stands beside it.
fn unit_log(_: &Model, unit: &Unit) -> Option<String> {
    unit.log
        .as_ref()
        .map(|log| quoted(&log.store.to_store(|row, _| row.option == StoreOption::Size)))
}

fn unit_bias(_: &Model, unit: &Unit) -> Option<String> {
    unit.log.as_ref().map(|log| quoted(log.bias.as_str()))
}

fn unit_schedule(_: &Model, unit: &Unit) -> Option<String> {
    unit.snapshots.as_ref().map(Schedule::to_string)
}

fn full_store(store: &StoreSpec) -> String {
    store.to_store(|row, _| row.option != StoreOption::Serial)
}

/// The entries of a group as the file has them, exclusions last.
pub(crate) fn initiators(model: &Model, group: &Group) -> Vec<String> {
    let members = group.initiators.iter();
    let members = members.map(|entry| initiator(model, entry));
    let excluded = group.excluded.iter();
    let excluded = excluded.map(|entry| format!("{EXCLUDED}{}", initiator(model, entry)));
    members.chain(excluded).collect()
}

fn initiator(model: &Model, entry: &InitiatorMatch) -> String {
    match entry {
        InitiatorMatch::Name(pattern) => pattern.as_str().to_owned(),
        InitiatorMatch::Address(network) => network.to_string(),
        InitiatorMatch::User(user) => format!("user:{}", user_name(model, *user)),
        InitiatorMatch::Certificate(pattern) => format!("{CERTIFICATE}{}", pattern.as_str()),
    }
}

pub(crate) fn user_name(model: &Model, user: UserIndex) -> &str {
    let user = model.users.get(user.position());
    user.map_or("", |user| user.name.as_str())
}

fn user_names(model: &Model, users: &[UserIndex]) -> String {
    list(users.iter().map(|user| quoted(user_name(model, *user))))
}

fn mutual(mutual: &Mutual) -> String {
    let (name, file) = (quoted(&mutual.name), secret_path(&mutual.secret));
    format!("{{ name = {name}, secret_file = {file} }}")
}

fn secret_path(secret: &SecretFile) -> String {
    path(&secret.path)
}

/// A path as a TOML string. One that is not UTF-8 cannot be said in TOML; it is shown as near as
/// may be.
pub(crate) fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// A number of bytes as a size.
pub(crate) fn size(bytes: u64) -> String {
    quoted(&size_text(bytes))
}

pub(crate) fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Whether a character is no sign of its own but changes how others are shown: control characters, line and paragraph
/// separators, and what turns the direction of writing. A name with one could pass for another, or break a line.
#[must_use]
pub fn is_invisible(character: char) -> bool {
    // Spec: Unicode, general category Cc, U+2028 and U+2029, property Bidi_Control.
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// A text as a basic string of TOML, always on one line.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            hidden if is_invisible(hidden) => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(hidden)));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_turns_other_characters_is_in_no_name() {
        for hidden in [
            "a\u{202e}b",
            "a\u{2028}b",
            "a\u{2066}b",
            "a\u{85}b",
            "a\u{1b}[31m",
        ] {
            assert!(
                crate::file::check_text("a name", 64, hidden).is_err(),
                "{hidden:?}"
            );
        }
        for plain in ["a b", "\u{e9}\u{301}", "\u{5e9}\u{5dc}", "\u{1f600}"] {
            assert!(
                crate::file::check_text("a name", 64, plain).is_ok(),
                "{plain:?}"
            );
        }
    }

    #[test]
    fn a_quoted_text_is_one_line_of_toml_and_reads_back() {
        for text in [
            "",
            "a",
            "a\"b\\c",
            "a\nb\u{7f}\u{85}\t\u{202e}",
            "\u{e9}\u{1f600}",
        ] {
            let line = format!("x = {}", quoted(text));
            assert_eq!(line.lines().count(), 1, "{line}");
            let table: toml::Table = line.parse().unwrap();
            assert_eq!(table["x"].as_str(), Some(text));
        }
    }

    #[test]
    fn a_difference_in_any_option_of_a_store_has_a_key() {
        for row in &crate::OPTIONS {
            assert!(UNIT.iter().any(|key| key.name == row.word), "{}", row.word);
        }
    }

    #[test]
    fn a_full_store_reads_back_as_the_same_store() {
        for text in [
            "disk.img",
            "./mem:1",
            "file:a%3Fb%25?size=1M&serial=S",
            "/srv/a:b?cache=direct&readonly&thin=false&format=raw",
            "block:/dev/sdx?blocksize=4096",
            "mem:1G?thin",
            "null:512",
            "nbd://h/a%3Fb?retry=0&removable",
            "rbd:p/i?size=1M&takeover=wait",
            "nbds://[::1]:1?ca=/a%26b&connections=4&readonly",
            "nbd+unix:///a?thin=false&socket=/run/s",
            "stripe:a,b,c?chunk=16k&readonly",
            "concat:a?serial=S&removable",
        ] {
            let store = StoreSpec::parse(text).unwrap();
            let again = StoreSpec::parse(&full_store(&store)).unwrap();
            let expected = StoreSpec {
                text: again.text.clone(),
                serial: None,
                ..store
            };
            assert_eq!(again, expected, "{text}");
        }
    }
}
