//! The model as the types of the API say it: what the API shows, what two models are compared by, and what the
//! effective configuration says.

use std::path::Path;

use api::spec;
use zeroize::Zeroizing;

use crate::group::{CERTIFICATE, EXCLUDED};
use crate::keys::size_text;
use crate::{
    Group, HyperScsiDevice, HyperScsiGroup, HyperScsiPassword, InitiatorMatch, Model, NamedStore,
    NbdServer, Portal, Quota, Schedule, SecretFile, StoreOption, StoreSpec, Target, TargetLun,
    Unit, User, UserIndex,
};

/// What is configured, list by list, in the order of the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Specs {
    /// Logical units. One of a command line has its STORE as `id`.
    pub luns: Vec<spec::Lun>,
    /// Targets, with their defaults filled in and their units in the order of the numbers.
    pub targets: Vec<spec::Target>,
    /// Groups of initiators.
    pub groups: Vec<spec::Group>,
    /// CHAP users, without their secrets.
    pub users: Vec<spec::User>,
    /// Groups of HyperSCSI, with their defaults filled in, without their passwords.
    pub hyperscsi: Vec<spec::Hyperscsi>,
}

impl Model {
    /// What is configured, as the types of the API say it.
    pub fn to_specs(&self) -> Specs {
        let said = Said::Written;
        Specs {
            luns: self.units.iter().map(|unit| lun(unit, said)).collect(),
            targets: self.targets.iter().map(|one| target(self, one)).collect(),
            groups: self.groups.iter().map(|one| group(self, one)).collect(),
            users: self.users.iter().map(|one| user(one, said)).collect(),
            hyperscsi: self
                .hyperscsi
                .iter()
                .map(|one| hyperscsi(one, said))
                .collect(),
        }
    }
}

/// How stores and paths are said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Said {
    /// In the administrator's words, where the model keeps them.
    Written,
    /// In one form, with every option and as paths that begin nowhere else than the model's.
    Whole,
}

impl Said {
    fn file(self, secret: &SecretFile) -> Option<String> {
        Some(match self {
            Self::Written => secret.text.clone(),
            Self::Whole => shown(&secret.path),
        })
    }
}

/// One that is not UTF-8 cannot be said; it is shown as near as may be.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The store as one STORE, with every option it can say. Its serial number stands beside it.
pub(crate) fn full_store(store: &StoreSpec) -> String {
    store.to_store(|row, _| row.option != StoreOption::Serial)
}

/// As the API says it.
pub(crate) fn lun(unit: &Unit, said: Said) -> spec::Lun {
    let (store, log) = match said {
        Said::Written => (
            unit.store.text.clone(),
            unit.log.as_ref().map(|log| log.store.text.clone()),
        ),
        Said::Whole => {
            let is_size = |log: &StoreSpec| log.to_store(|row, _| row.option == StoreOption::Size);
            let log = unit.log.as_ref().map(|log| is_size(&log.store));
            (full_store(&unit.store), log)
        }
    };
    // What the STORE says itself is not said again beside it.
    let is_beside = said == Said::Whole || unit.store.serial.is_none();
    let serial = unit.serial.as_ref().filter(|_| is_beside);
    spec::Lun {
        id: unit.to_string(),
        store,
        serial: serial.map(ToString::to_string),
        owner: unit.owner.clone(),
        naa: unit.naa.map(|naa| naa.to_string()),
        vendor: unit.inquiry.vendor.clone(),
        product: unit.inquiry.product.clone(),
        revision: unit.inquiry.revision.clone(),
        log,
        sync_bias: unit.log.as_ref().map(|log| log.bias.as_str().to_owned()),
        vendor_commands: unit.vendor_commands,
        snapshots: unit.snapshots.as_ref().map(Schedule::to_spec),
    }
}

pub(crate) fn store(named: &NamedStore) -> spec::Store {
    spec::Store {
        id: named.id.clone(),
        store: full_store(&named.store),
    }
}

pub(crate) fn ids_of_groups(model: &Model, groups: impl Iterator<Item = usize>) -> Vec<String> {
    let groups = groups.filter_map(|position| model.groups.get(position));
    groups.map(|group| group.id.clone()).collect()
}

/// A group, its exclusions last.
pub(crate) fn group(model: &Model, group: &Group) -> spec::Group {
    let members = group.initiators.iter();
    let members = members.map(|entry| initiator(model, entry));
    let excluded = group.excluded.iter();
    let excluded = excluded.map(|entry| format!("{EXCLUDED}{}", initiator(model, entry)));
    spec::Group {
        id: group.id.clone(),
        initiators: members.chain(excluded).collect(),
    }
}

fn initiator(model: &Model, entry: &InitiatorMatch) -> String {
    match entry {
        InitiatorMatch::Name(pattern) => pattern.as_str().to_owned(),
        InitiatorMatch::Address(network) => network.to_string(),
        InitiatorMatch::NameAt(pattern, network) => format!("{}@{network}", pattern.as_str()),
        InitiatorMatch::User(user) => format!("user:{}", user_name(model, *user)),
        InitiatorMatch::Certificate(pattern) => format!("{CERTIFICATE}{}", pattern.as_str()),
    }
}

pub(crate) fn user_name(model: &Model, user: UserIndex) -> &str {
    let user = model.users.get(user.position());
    user.map_or("", |user| user.name.as_str())
}

pub(crate) fn user(user: &User, said: Said) -> spec::User {
    spec::User {
        name: user.name.clone(),
        secret_file: said.file(&user.secret),
        secret: None,
        mutual: user.mutual.as_ref().map(|mutual| spec::Mutual {
            name: mutual.name.clone(),
            secret_file: said.file(&mutual.secret),
            secret: None,
        }),
        initiators: (!user.initiators.is_empty())
            .then(|| user.initiators.iter().map(ToString::to_string).collect()),
    }
}

/// A target, with its defaults filled in.
pub(crate) fn target(model: &Model, target: &Target) -> spec::Target {
    let auth = target.auth.iter();
    let algorithms = target.chap_algorithms.iter();
    let luns = target.luns.entries().iter();
    spec::Target {
        name: target.name.to_string(),
        alias: target.alias.clone(),
        portals: Some(target.portals.iter().map(portal).collect()),
        auth: auth
            .map(|user| user_name(model, *user).to_owned())
            .collect(),
        chap_algorithms: Some(algorithms.map(|word| word.as_str().to_owned()).collect()),
        cold_reset: target.cold_reset,
        luns: luns.map(|entry| target_lun(model, entry)).collect(),
    }
}

pub(crate) fn target_lun(model: &Model, entry: &TargetLun) -> spec::TargetLun {
    let unit = model.units.get(entry.unit.position());
    let groups = entry.groups.iter().map(|group| group.position());
    spec::TargetLun {
        lun: entry.lun.value(),
        id: unit.map(Unit::to_string).unwrap_or_default(),
        groups: ids_of_groups(model, groups),
        readonly: entry.read_only,
    }
}

pub(crate) fn portal(portal: &Portal) -> spec::Portal {
    spec::Portal {
        bind: portal.bind.to_string(),
        advertise: portal.advertise.as_ref().map(ToString::to_string),
        group: Some(portal.group_tag),
    }
}

pub(crate) fn nbd(model: &Model, server: &NbdServer) -> spec::Nbd {
    let units = server.luns.iter().map(|unit| unit.position());
    let units = units.filter_map(|position| model.units.get(position));
    let socket = server.at.socket();
    let tls = server.tls.as_ref();
    spec::Nbd {
        bind: server.at.address().map(|address| address.to_string()),
        socket: socket.map(|(path, _)| shown(path)),
        mode: socket.map(|(_, mode)| format!("{mode:04o}")),
        luns: units.map(Unit::to_string).collect(),
        groups: ids_of_groups(model, server.groups.iter().map(|group| group.position())),
        certificate: tls.map(|tls| shown(&tls.certificate.certificate)),
        key: tls.map(|tls| shown(&tls.certificate.key)),
        ca: tls.and_then(|tls| tls.ca.as_deref().map(shown)),
    }
}

pub(crate) fn quota(quota: &Quota) -> spec::Quota {
    let (key, value) = quota.of.key_and_value();
    spec::Quota {
        owner: Some(value.clone()).filter(|_| key == "owner"),
        pool: Some(value).filter(|_| key == "pool"),
        provisioned: quota.provisioned_bytes.map(size_text),
        used: quota.used_bytes.map(size_text),
        soft: quota.used_bytes.map(|_| quota.soft_percent.into()),
    }
}

pub(crate) fn hyperscsi(group: &HyperScsiGroup, said: Said) -> spec::Hyperscsi {
    let device = |device: &HyperScsiDevice| spec::HyperscsiDevice {
        id: device.name.clone(),
        level: Some(device.level.as_str().to_owned()),
        readonly: device.read_only,
    };
    spec::Hyperscsi {
        name: group.name.clone(),
        interface: group.at.interface().map(str::to_owned),
        udp: group.at.udp().map(|address| address.to_string()),
        user: group.user.clone(),
        password_file: match &group.password {
            HyperScsiPassword::File(secret) => said.file(secret),
            HyperScsiPassword::Written { .. } | HyperScsiPassword::Open { .. } => None,
        },
        // Nobody is shown it. What differs is compared beside the model.
        password: match (&group.password, said) {
            (HyperScsiPassword::Written { .. }, Said::Whole) => {
                Some(Zeroizing::new(crate::NOT_SHOWN.to_owned()).into())
            }
            _ => None,
        },
        open: matches!(group.password, HyperScsiPassword::Open { .. }),
        retransmit: Some(group.retransmit.as_str().to_owned()),
        profile: Some(group.profile.as_str().to_owned()),
        device: group.devices.iter().map(device).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn specs_say_what_the_file_says() {
        let text = r#"
            lun = [{ id = "a", store = "mem:1M?serial=S", naa = "3000000000000001" }]
            user = [{ name = "u", secret_file = "s", mutual = { name = "t", secret_file = "m" } }]
            group = [{ id = "g", initiators = ["IQN.x*", "192.0.2.1", "u"] }]
            [[target]]
            name = "iqn.2026-11.example.tarn:t"
            auth = ["u"]
            luns = [{ lun = 1, id = "a", groups = ["g"], readonly = true }]
        "#;
        let model = Model::from_toml(text, Path::new("/etc/tarn/tarn.toml")).unwrap();
        let specs = model.to_specs();
        assert_eq!(specs.luns[0].store, "mem:1M?serial=S");
        assert_eq!(specs.luns[0].serial, None);
        assert_eq!(specs.luns[0].naa.as_deref(), Some("3000000000000001"));
        assert_eq!(specs.users[0].secret_file.as_deref(), Some("s"));
        let mutual = specs.users[0].mutual.as_ref().unwrap();
        assert_eq!(
            (mutual.name.as_str(), mutual.secret_file.as_deref()),
            ("t", Some("m"))
        );
        assert_eq!(
            specs.groups[0].initiators,
            ["iqn.x*", "192.0.2.1/32", "user:u"]
        );
        let target = &specs.targets[0];
        assert_eq!(target.auth, ["u"]);
        assert_eq!(target.portals.as_ref().unwrap()[0].bind, "127.0.0.1:3260");
        assert_eq!(
            target.luns,
            [spec::TargetLun {
                lun: 1,
                id: "a".to_owned(),
                groups: vec!["g".to_owned()],
                readonly: true,
            }]
        );
    }
}
