//! The model as the types of the API say it. Texts are the administrator's where the model keeps
//! them, and their one form elsewhere.

use api::spec;

use crate::value::{initiators, user_name};
use crate::{
    Group, HyperScsiDevice, HyperScsiGroup, HyperScsiPassword, Model, Portal, Schedule, SecretFile,
    Target, TargetLun, Unit, User,
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
        Specs {
            luns: self.units.iter().map(lun).collect(),
            targets: self
                .targets
                .iter()
                .map(|target| self.target(target))
                .collect(),
            groups: self.groups.iter().map(|group| self.group(group)).collect(),
            users: self.users.iter().map(user).collect(),
            hyperscsi: self.hyperscsi().iter().map(hyperscsi).collect(),
        }
    }

    /// A target as the API says it, with its defaults filled in.
    fn target(&self, target: &Target) -> spec::Target {
        let auth = target.auth.iter();
        let algorithms = target.chap_algorithms.iter();
        spec::Target {
            name: target.name.to_string(),
            alias: target.alias.clone(),
            portals: Some(target.portals.iter().map(portal).collect()),
            auth: auth.map(|user| user_name(self, *user).to_owned()).collect(),
            chap_algorithms: Some(algorithms.map(|word| word.as_str().to_owned()).collect()),
            cold_reset: target.cold_reset,
            luns: target
                .luns
                .entries()
                .iter()
                .map(|entry| self.target_lun(entry))
                .collect(),
        }
    }

    fn target_lun(&self, entry: &TargetLun) -> spec::TargetLun {
        let unit = self.units.get(entry.unit.position());
        let groups = entry.groups.iter().map(|group| group.position());
        let groups = groups.filter_map(|position| self.groups.get(position));
        spec::TargetLun {
            lun: entry.lun.value(),
            id: unit.map(Unit::to_string).unwrap_or_default(),
            groups: groups.map(|group| group.id.clone()).collect(),
            readonly: entry.read_only,
        }
    }

    fn group(&self, group: &Group) -> spec::Group {
        spec::Group {
            id: group.id.clone(),
            initiators: initiators(self, group),
        }
    }
}

fn lun(unit: &Unit) -> spec::Lun {
    // What the STORE says itself is not said again beside it.
    let beside = unit.serial.as_ref().filter(|_| unit.store.serial.is_none());
    spec::Lun {
        id: unit.to_string(),
        store: unit.store.text.clone(),
        serial: beside.map(ToString::to_string),
        owner: unit.owner.clone(),
        naa: unit.naa.map(|naa| naa.to_string()),
        log: unit.log.as_ref().map(|log| log.store.text.clone()),
        sync_bias: unit.log.as_ref().map(|log| log.bias.as_str().to_owned()),
        snapshots: unit.snapshots.as_ref().map(Schedule::to_spec),
    }
}

fn portal(portal: &Portal) -> spec::Portal {
    spec::Portal {
        bind: portal.bind.to_string(),
        advertise: portal.advertise.as_ref().map(ToString::to_string),
        group: Some(portal.group_tag),
    }
}

fn user(user: &User) -> spec::User {
    spec::User {
        name: user.name.clone(),
        secret_file: file(&user.secret),
        secret: None,
        mutual: user.mutual.as_ref().map(|mutual| spec::Mutual {
            name: mutual.name.clone(),
            secret_file: file(&mutual.secret),
            secret: None,
        }),
        initiators: (!user.initiators.is_empty())
            .then(|| user.initiators.iter().map(ToString::to_string).collect()),
    }
}

fn hyperscsi(group: &HyperScsiGroup) -> spec::Hyperscsi {
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
            HyperScsiPassword::File(secret) => file(secret),
            HyperScsiPassword::Written { .. } | HyperScsiPassword::Open { .. } => None,
        },
        password: None,
        open: matches!(group.password, HyperScsiPassword::Open { .. }),
        retransmit: Some(group.retransmit.as_str().to_owned()),
        profile: Some(group.profile.as_str().to_owned()),
        device: group.devices.iter().map(device).collect(),
    }
}

fn file(secret: &SecretFile) -> Option<String> {
    Some(secret.text.clone())
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
