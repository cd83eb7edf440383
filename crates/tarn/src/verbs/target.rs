//! `tarn target`

use api::edit::{Edit, Keys, Thing};
use api::spec::{self, TargetLun};
use api::view::Target;
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::keys::{Change, New, marks};
use super::remote::Ask;
use super::table::{Column, fields, figures, mark, or_everyone, table, words};

/// `tarn target`
#[derive(Debug, Subcommand)]
pub enum TargetVerb {
    /// List all targets.
    List {},
    /// Show everything about a target.
    Show {
        /// The target.
        name: String,
    },
    /// Add a target.
    Add(Add),
    /// Change the configuration of a target.
    Set(Set),
    /// Remove a target and end its sessions.
    Rm {
        /// The target.
        name: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
    /// Export a unit under a LUN, or change which groups see it.
    Map(Map),
    /// Stop exporting the unit of a LUN.
    Unmap {
        /// The target.
        name: String,
        /// The logical unit number.
        lun: u16,
        /// The group that sees it no more, or '*' for the initiators that are in no group. Use it where each group
        /// sees another unit under the number.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

const ADD_HELP: &str = "\
Examples:
  tarn target add iqn.2026-11.example:web --portals 192.0.2.1:3260 --auth blades
  tarn target map iqn.2026-11.example:web 0 disk --groups blades";

/// `tarn target add`
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// TargetName, as iqn.2026-11.example:web.
    name: String,
    /// Its keys.
    #[command(flatten)]
    keys: New<spec::Target>,
}

/// `tarn target set`
#[derive(Args, Debug)]
pub struct Set {
    /// The target.
    name: String,
    /// What changes.
    #[command(flatten)]
    keys: Change<spec::Target>,
    /// Whether a person is asked.
    #[command(flatten)]
    consent: Consent,
}

const MAP_HELP: &str = "\
Examples:
  tarn target map iqn.2026-11.example:web 0 disk
  tarn target map iqn.2026-11.example:web 1 backup --groups vaults --readonly

Each group can have a disk of its own under one number, as for hosts that boot from LUN 0:
  tarn target map iqn.2026-11.example:boot 0 host1-root --groups host1
  tarn target map iqn.2026-11.example:boot 0 host2-root --groups host2";

/// `tarn target map`
#[derive(Args, Debug)]
#[command(after_help = MAP_HELP)]
pub struct Map {
    /// The target.
    name: String,
    /// The logical unit number, up to 16383.
    lun: u16,
    /// The unit.
    id: String,
    /// Groups that see it, separated by commas. Use it to export it to some initiators only.
    /// [default: every initiator that may log in]
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    groups: Vec<String>,
    /// Refuse writes under this LUN. Use it for disks that must only be read.
    #[arg(long)]
    readonly: bool,
    /// Whether a person is asked.
    #[command(flatten)]
    consent: Consent,
}

const COLUMNS: &[Column<Target>] = &[
    words("name", |t| t.spec.name.clone()),
    figures("luns", |t| t.spec.luns.len().to_string()),
    figures("sessions", |t| t.sessions.to_string()),
    words("login", |t| or_everyone(&t.spec.auth)),
    words("portals", |t| t.bound.join(", ")),
];

const FIELDS: &[Column<Target>] = &[
    words("target", |t| t.spec.name.clone()),
    words("alias", |t| t.spec.alias.clone().unwrap_or_default()),
    words("portals", |t| t.bound.join(", ")),
    words("login", |t| or_everyone(&t.spec.auth)),
    words("chap", |t| {
        t.spec
            .chap_algorithms
            .iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    }),
    words("flags", |t| marks(&t.spec)),
    words("sessions", |t| t.sessions.to_string()),
];

const LUNS: &[Column<TargetLun>] = &[
    figures("lun", |l| l.lun.to_string()),
    words("id", |l| l.id.clone()),
    words("groups", |l| or_everyone(&l.groups)),
    words("flags", |l| mark(l.readonly, "readonly")),
];

impl Ask for TargetVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["targets"]), COLUMNS),
            Self::Show { name } => api.show(&at(name), show),
            Self::Add(add) => add.ask(api),
            Self::Set(set) => set.ask(api),
            Self::Rm { name, consent } => {
                let question = format!("Remove target {name} and end its sessions?");
                api.remove(&at(name), *consent, &question)
            }
            Self::Map(map) => api.put(map.consent, &entry(&map.name, map.lun), &map.entry()),
            Self::Unmap {
                name,
                lun,
                group,
                consent,
            } => {
                let group = group.as_deref();
                let whom = group.map_or_else(String::new, |group| format!(" to group {group}"));
                let question = format!("Show no LUN {lun} at {name}{whom} any more?");
                let entry = entry(name, *lun).with("group", group);
                api.remove(&entry, *consent, &question)
            }
        }
    }
}

fn at(name: &str) -> Path {
    path(&["targets", name])
}

fn entry(target: &str, lun: u16) -> Path {
    path(&["targets", target, "luns", &lun.to_string()])
}

fn show(target: &Target) -> String {
    let text = fields(FIELDS, target);
    if target.spec.luns.is_empty() {
        return format!("{text}\nit shows no units; see tarn target map\n");
    }
    format!("{text}\n{}", table(LUNS, &target.spec.luns))
}

/// Printed where no portal is given.
const LOOPBACK: &str = "it listens on 127.0.0.1:3260, which only programs on this host reach; for other hosts use \
    --portals, or add one with tarn portal add";

impl Add {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let edits = vec![Edit::Add(Thing::Target(self.target()))];
        let done = api.edit(Consent::GIVEN, edits, None)?;
        if !self.keys.has("portals") {
            api.note(LOOPBACK);
        }
        Ok(done)
    }

    fn target(&self) -> spec::Target {
        spec::Target {
            name: self.name.clone(),
            ..self.keys.made()
        }
    }
}

impl Set {
    fn ask(&self, api: &ApiSession) -> Outcome {
        if self.keys.is_empty() {
            return Err(Failure::NothingGiven { noun: "target" });
        }
        let keys = self.keys.of([&self.name]);
        api.edit(self.consent, vec![Edit::Set(Keys::Target(keys))], None)
    }
}

impl Map {
    fn entry(&self) -> TargetLun {
        TargetLun {
            lun: self.lun,
            id: self.id.clone(),
            groups: self.groups.clone(),
            readonly: self.readonly,
        }
    }
}
