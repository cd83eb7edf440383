//! `tarn hyperscsi`

use std::path::PathBuf;

use api::edit::{DeviceKeys, Edit, GroupDevice, HyperscsiKeys, Keys, Thing};
use api::spec;
use api::view::{Hyperscsi, Session};
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::exit::Exit;
use super::failure::Failure;
use super::remote::Ask;
use super::secrets::{self, Rule};
use super::table::{Column, fields, figures, mark, table, words};

/// `tarn hyperscsi`
#[derive(Debug, Subcommand)]
pub enum HyperscsiVerb {
    /// Groups of devices, which clients find by their name.
    #[command(subcommand)]
    Group(GroupVerb),
    /// Devices of a group.
    #[command(subcommand)]
    Device(DeviceVerb),
}

const ADD_HELP: &str = "\
PLACE is an interface, or udp:ADDRESS[:PORT]. Other verbs take the name of a group, or \"NAME at
PLACE\" where several have that name.

Examples:
  tarn hyperscsi group add ABC eth1 --devices demo,data --password-file /etc/tarn/abc.secret
  openssl rand -hex 16 | tarn hyperscsi group add ABC udp:192.0.2.1 --devices demo --password-from -";

const SET_HELP: &str = "\
An empty value takes the key out of the configuration.

Examples:
  tarn hyperscsi group set ABC --profile wireless
  tarn hyperscsi group set 'ABC at eth1' --user ''";

/// `tarn hyperscsi group`
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// List all groups and what each has.
    List {},
    /// Show a group, its devices and its sessions.
    Show {
        /// The group.
        group: String,
    },
    /// Serve units to clients of HyperSCSI.
    #[command(after_help = ADD_HELP)]
    Add(Add),
    /// Change a group.
    #[command(after_help = SET_HELP)]
    Set(Set),
    /// Remove a group; its sessions end.
    Rm {
        /// The group.
        group: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

/// What a group is served with.
#[derive(Args, Debug)]
pub(super) struct Given {
    /// Name that clients log in with. Use it to keep the name of the group from being enough.
    /// [default: the name of the group]
    #[arg(long)]
    user: Option<String>,
    /// File on the daemon's machine that holds the password, chmod 600. Use it to manage passwords
    /// as files of your own.
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// File to read the password from, - for the standard input; Tarn stores it itself. Use it in
    /// scripts.
    #[arg(long, value_name = "FILE", conflicts_with = "password_file")]
    password_from: Option<PathBuf>,
    /// Clients need no password. Use it where everybody who reaches the place may have the data.
    #[arg(long, conflicts_with_all = ["password_file", "password_from"])]
    open: bool,
    /// What is sent again after a loss: selective or window. Use it with window for simple clients.
    #[arg(long, value_name = "HOW")]
    retransmit: Option<String>,
    /// What the path is like: wired or wireless. Use it with wireless where losses are common.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

/// `tarn hyperscsi group add`
#[derive(Args, Debug)]
pub struct Add {
    /// Its name, 1 to 64 bytes.
    name: String,
    /// Where clients come in: an interface, or udp:ADDRESS[:PORT].
    place: String,
    /// Units that are its devices, separated by commas. Use it for each disk that is served.
    #[arg(long, value_name = "ID,...", value_delimiter = ',', required = true)]
    devices: Vec<String>,
    /// Least protection of these devices: none, crc, hash or encrypt. Use it to allow less than
    /// encrypt, which is the default.
    #[arg(long)]
    level: Option<String>,
    /// How it is served.
    #[command(flatten)]
    given: Given,
}

/// `tarn hyperscsi group set`
#[derive(Args, Debug)]
pub struct Set {
    /// The group.
    group: String,
    /// What changes.
    #[command(flatten)]
    given: Given,
    /// Whether a person is asked.
    #[command(flatten)]
    consent: Consent,
}

/// `tarn hyperscsi device`
#[derive(Debug, Subcommand)]
pub enum DeviceVerb {
    /// Give a unit to a group, as its last device.
    Add(Device),
    /// Change how a group has a unit. A higher level ends the sessions of the group.
    Set {
        /// What it is to have.
        #[command(flatten)]
        device: Device,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
    /// Take a unit from a group; commands on it end.
    Rm {
        /// The group.
        group: String,
        /// The unit.
        id: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

/// A device of a group.
#[derive(Args, Debug)]
pub struct Device {
    /// The group.
    group: String,
    /// The unit.
    id: String,
    /// Least protection that is accepted: none, crc, hash or encrypt. Use it to allow less than
    /// encrypt, which is the default.
    #[arg(long)]
    level: Option<String>,
    /// Refuse writes through this group. Use it to publish data.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    readonly: Option<bool>,
}

const COLUMNS: &[Column<Hyperscsi>] = &[
    words("group", |group| group.spec.name.clone()),
    words("place", |group| group.place.clone()),
    words("password", |group| password(group).to_owned()),
    words("devices", |group| {
        let ids = group.spec.device.iter().map(|device| device.id.as_str());
        ids.collect::<Vec<_>>().join(", ")
    }),
    figures("sessions", |group| group.sessions.len().to_string()),
];

const FIELDS: &[Column<Hyperscsi>] = &[
    words("group", |group| group.name.clone()),
    words("place", |group| group.place.clone()),
    words("user", |group| {
        group
            .spec
            .user
            .clone()
            .unwrap_or_else(|| group.spec.name.clone())
    }),
    words("password", |group| password(group).to_owned()),
    words("retransmit", |group| {
        group.spec.retransmit.clone().unwrap_or_default()
    }),
    words("profile", |group| {
        group.spec.profile.clone().unwrap_or_default()
    }),
];

const DEVICES: &[Column<spec::HyperscsiDevice>] = &[
    words("device", |device| device.id.clone()),
    words("level", |device| device.level.clone().unwrap_or_default()),
    words("access", |device| {
        let read_only = mark(device.readonly, "read only");
        if read_only.is_empty() {
            "read and write".to_owned()
        } else {
            read_only
        }
    }),
];

const SESSIONS: &[Column<Session>] = &[
    figures("session", |session| session.id.to_string()),
    words("client", |session| session.initiator.clone()),
    words("address", |session| session.address.clone()),
    figures("commands", |session| session.commands.to_string()),
];

fn password(group: &Hyperscsi) -> &str {
    let file = group.spec.password_file.as_deref();
    file.unwrap_or(match group.password.as_str() {
        "none" => "(needs none)",
        _ => "(in the configuration)",
    })
}

fn at(group: &str) -> Path {
    path(&["hyperscsi", group])
}

impl Ask for HyperscsiVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::Group(verb) => verb.ask(api),
            Self::Device(verb) => verb.ask(api),
        }
    }
}

impl Ask for GroupVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["hyperscsi"]), COLUMNS),
            Self::Show { group } => show(api, group),
            Self::Add(add) => add.ask(api),
            Self::Set(set) => set.ask(api),
            Self::Rm { group, consent } => {
                let question = format!("Remove the group {group} of HyperSCSI? Its sessions end.");
                api.remove(&at(group), *consent, &question)
            }
        }
    }
}

/// A group with its sessions, which are asked for only where people read the answer: they have an answer of their own.
fn show(api: &ApiSession, group: &str) -> Outcome {
    let answer = api.get::<Hyperscsi>(&at(group))?;
    let group = &answer.value;
    let mut sessions = Vec::new();
    if !api.output.is_json && !group.sessions.is_empty() {
        sessions = api.get::<Vec<Session>>(&path(&["sessions"]))?.value;
        sessions.retain(|session| group.sessions.contains(&session.id));
    }
    api.output.print(&answer.json, || {
        let mut text = fields(FIELDS, group);
        text += &format!("\n{}", table(DEVICES, &group.spec.device));
        if !sessions.is_empty() {
            text += &format!("\n{}", table(SESSIONS, &sessions));
        }
        text
    });
    Ok(Exit::Done)
}

impl Given {
    /// The password that is sent, if there is one.
    fn password(&self) -> Result<Option<spec::Secret>, Failure> {
        let from = self.password_from.as_ref();
        let read = from.map(|path| secrets::from_file(path, Rule::PASSWORD));
        Ok(read.transpose()?.map(spec::Secret::from))
    }
}

impl Add {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let given = &self.given;
        let mut password = given.password()?;
        if password.is_none() && given.password_file.is_none() && !given.open {
            let typed = secrets::from_person(&self.name, Rule::PASSWORD)?;
            let typed = typed.ok_or_else(|| Failure::NoPassword {
                name: self.name.clone(),
            })?;
            password = Some(typed.into());
        }
        let (interface, udp) = match self.place.strip_prefix("udp:") {
            Some(address) => (None, Some(address.to_owned())),
            None => (Some(self.place.clone()), None),
        };
        let device = |id: &String| spec::HyperscsiDevice {
            id: id.clone(),
            level: self.level.clone(),
            readonly: false,
        };
        let group = spec::Hyperscsi {
            name: self.name.clone(),
            interface,
            udp,
            user: given.user.clone(),
            password_file: given.password_file.clone(),
            password,
            open: given.open,
            retransmit: given.retransmit.clone(),
            profile: given.profile.clone(),
            device: self.devices.iter().map(device).collect(),
        };
        api.edit(
            Consent::GIVEN,
            vec![Edit::Add(Thing::Hyperscsi(group))],
            None,
        )
    }
}

impl Set {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let given = &self.given;
        let nothing = HyperscsiKeys {
            hyperscsi: self.group.clone(),
            ..HyperscsiKeys::default()
        };
        let keys = HyperscsiKeys {
            hyperscsi: self.group.clone(),
            user: given.user.clone(),
            password_file: given.password_file.clone(),
            password: given.password()?,
            open: given.open.then_some(true),
            retransmit: given.retransmit.clone(),
            profile: given.profile.clone(),
            device: None,
        };
        if keys == nothing {
            return Err(Failure::NothingGiven {
                noun: "hyperscsi group",
            });
        }
        api.edit(self.consent, vec![Edit::Set(Keys::Hyperscsi(keys))], None)
    }
}

impl Ask for DeviceVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::Add(device) => {
                let device = GroupDevice {
                    hyperscsi: device.group.clone(),
                    device: spec::HyperscsiDevice {
                        id: device.id.clone(),
                        level: device.level.clone(),
                        readonly: device.readonly.unwrap_or_default(),
                    },
                };
                api.edit(Consent::GIVEN, vec![Edit::Add(Thing::Device(device))], None)
            }
            Self::Set { device, consent } => {
                let keys = DeviceKeys::of([&device.group, &device.id])
                    .with_some("level", device.level.clone())
                    .with_some("readonly", device.readonly);
                if keys.is_empty() {
                    return Err(Failure::NothingGiven {
                        noun: "hyperscsi device",
                    });
                }
                api.edit(*consent, vec![Edit::Set(Keys::Device(keys))], None)
            }
            Self::Rm { group, id, consent } => api.remove(
                &path(&["hyperscsi", group, "devices", id]),
                *consent,
                &format!("Take {id} from the group {group} of HyperSCSI?"),
            ),
        }
    }
}
