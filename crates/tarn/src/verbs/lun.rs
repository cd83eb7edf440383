//! `tarn lun`

use api::edit::{Edit, Keys, LunKeys, Thing, View};
use api::request::{Rename, Resize};
use api::spec;
use api::view::{Lun, LunPath};
use clap::{Args, Subcommand};
use client::{Path, path};

use super::desk::Desk;
use super::failure::Failure;
use super::remote::Ask;
use super::table::{self, Column, fields, figures, mark, table, words};
use super::{Outcome, human};

/// The largest logical unit number.
///
/// Spec: SAM-5, flat space addressing.
const LUN_MAX: u16 = 16_383;

/// `tarn lun`
#[derive(Debug, Subcommand)]
pub enum LunVerb {
    /// List all units.
    List {},
    /// Tell all of one unit.
    Show {
        /// The unit.
        id: String,
    },
    /// Add a unit; with --target also show it there, in one change.
    Add(Add),
    /// Change what is configured of a unit.
    Set(Set),
    /// Remove a unit that no target shows. Its data stays where it is.
    Rm {
        /// The unit.
        id: String,
        /// Do not ask. For scripts.
        #[arg(long)]
        yes: bool,
    },
    /// Make a unit larger while it is in use.
    Resize {
        /// The unit.
        id: String,
        /// The new size, as 20G.
        #[arg(value_parser = config::parse_size)]
        size: u64,
    },
    /// Give a unit another id; it keeps its identity, and targets follow.
    Rename {
        /// The unit.
        id: String,
        /// Its new id.
        new_id: String,
    },
}

const ADD_HELP: &str = "\
STORE is what tarn serve takes, as /srv/disk.img?size=10G; see tarn serve --help.

Examples:
  tarn lun add web '/srv/web.img?size=10G'
  tarn lun add web '/srv/web.img?size=10G' --target iqn.2026-11.example:web --groups blades";

/// `tarn lun add`
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// What targets shall call the unit.
    id: String,
    /// Where its data lives.
    store: String,
    /// Unit serial number. For who moves a disk that others know already.
    #[arg(long, value_name = "TEXT")]
    serial: Option<String>,
    /// NAA designator, hexadecimal. For who moves a disk that others know already.
    #[arg(long, value_name = "HEX")]
    naa: Option<String>,
    /// Target that shows it from then on. For who wants disk and access in one change.
    #[arg(long, value_name = "IQN")]
    target: Option<String>,
    /// Its number at --target. For who needs a certain one. [default: the lowest that is free]
    #[arg(long, value_name = "N", requires = "target",
          value_parser = clap::value_parser!(u16).range(..=i64::from(LUN_MAX)))]
    lun: Option<u16>,
    /// Groups that see it at --target, joined by commas. For who shows it to some only.
    #[arg(long, value_name = "GROUP", requires = "target", value_delimiter = ',')]
    groups: Vec<String>,
    /// Refuse writes at --target. For disks that are only to be read.
    #[arg(long, requires = "target")]
    readonly: bool,
}

/// `tarn lun set`
#[derive(Args, Debug)]
pub struct Set {
    /// The unit.
    id: String,
    /// Where its data lives. For who changes options of the store.
    #[arg(long)]
    store: Option<String>,
    /// Unit serial number; empty for the one that was made. For who moves a disk.
    #[arg(long, value_name = "TEXT")]
    serial: Option<String>,
    /// NAA designator; empty for the one that was made. For who moves a disk.
    #[arg(long, value_name = "HEX")]
    naa: Option<String>,
}

const COLUMNS: &[Column<Lun>] = &[
    words("id", |l| l.spec.id.clone()),
    words("kind", |l| l.kind.clone()),
    figures("size", |l| human::size(l.size_bytes)),
    figures("block", |l| l.block_bytes.to_string()),
    figures("ways", |l| l.shown_by.len().to_string()),
    words("serial", |l| l.serial.clone()),
    words("flags", |l| {
        let flags = [mark(l.readonly, "readonly"), mark(l.thin, "thin")];
        table::joined(&flags, " ")
    }),
];

const FIELDS: &[Column<Lun>] = &[
    words("id", |l| l.spec.id.clone()),
    words("store", |l| l.spec.store.clone()),
    words("kind", |l| l.kind.clone()),
    words("size", |l| {
        format!("{} ({} bytes)", human::size(l.size_bytes), l.size_bytes)
    }),
    words("block", |l| format!("{} bytes", l.block_bytes)),
    words("serial", |l| l.serial.clone()),
    words("naa", |l| l.naa.clone()),
    words("cache", |l| l.cache.clone().unwrap_or_default()),
    words("thin", |l| mark(l.thin, "yes")),
    words("readonly", |l| mark(l.readonly, "yes")),
];

const WAYS: &[Column<LunPath>] = &[
    words("target", |w| w.target.clone()),
    figures("lun", |w| w.lun.to_string()),
    words("groups", |w| table::or_everyone(&w.groups)),
    words("flags", |w| mark(w.readonly, "readonly")),
];

impl Ask for LunVerb {
    fn ask(&self, desk: &Desk) -> Outcome {
        match self {
            Self::List {} => desk.list(&path(&["luns"]), COLUMNS),
            Self::Show { id } => desk.show(&at(id), show),
            Self::Add(add) => add.ask(desk),
            Self::Set(set) => set.ask(desk),
            Self::Rm { id, yes } => {
                let question = format!("Remove lun {id}? Its data stays where it is.");
                desk.remove(&at(id), *yes, &question)
            }
            Self::Resize { id, size } => {
                let size_bytes = *size;
                desk.post(&path(&["luns", id, "resize"]), &Resize { size_bytes })
            }
            Self::Rename { id, new_id } => {
                let body = Rename { id: new_id.clone() };
                desk.post(&path(&["luns", id, "rename"]), &body)
            }
        }
    }
}

fn at(id: &str) -> Path {
    path(&["luns", id])
}

fn show(lun: &Lun) -> String {
    let text = fields(FIELDS, lun);
    if lun.shown_by.is_empty() {
        return format!("{text}\nno target shows it; see tarn target map\n");
    }
    format!("{text}\n{}", table(WAYS, &lun.shown_by))
}

impl Add {
    fn ask(&self, desk: &Desk) -> Outcome {
        let lun = spec::Lun {
            id: self.id.clone(),
            store: self.store.clone(),
            serial: self.serial.clone(),
            naa: self.naa.clone(),
        };
        let mut edits = vec![Edit::Add(Thing::Lun(lun))];
        let view = self.target.as_ref().map(|target| View {
            target: target.clone(),
            lun: self.lun,
            id: self.id.clone(),
            groups: self.groups.clone(),
            readonly: self.readonly,
        });
        edits.extend(view.map(|view| Edit::Add(Thing::View(view))));
        let comment = self.target.as_ref();
        let comment = comment.map(|target| format!("lun {} at {target}", self.id));
        desk.edit(edits, comment)
    }
}

impl Set {
    fn ask(&self, desk: &Desk) -> Outcome {
        let is_given = [&self.store, &self.serial, &self.naa];
        if is_given.iter().all(|value| value.is_none()) {
            return Err(Failure::NothingGiven { noun: "lun" });
        }
        let keys = LunKeys {
            id: self.id.clone(),
            store: self.store.clone(),
            serial: self.serial.clone(),
            naa: self.naa.clone(),
        };
        desk.edit(vec![Edit::Set(Keys::Lun(keys))], None)
    }
}
