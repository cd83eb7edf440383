//! `tarn lun`

use api::edit::{Edit, Edits, Keys, LunKeys, Thing, View};
use api::plan::Applied;
use api::request::{Eject, NewClone, Rename, Resize};
use api::spec;
use api::view::{
    Lun, LunPath, LunService, LunTrouble, Medium, Registration, ReservationNexus, Reservations,
};
use clap::{Args, Subcommand};
use client::{Answer, ClientError, Path, path};
use config::{StoreKind, StoreSpec};

use super::api_session::{ApiSession, Consent};
use super::exit::Exit;
use super::failure::Failure;
use super::keys::{Change, New};
use super::remote::Ask;
use super::snapshot::Which;
use super::table::{self, Column, fields, figures, mark, table, words};
use super::{Outcome, human, terminal};
use crate::store_options::StoreOptions;

/// The largest logical unit number.
///
/// Spec: SAM-5, flat space addressing.
const LUN_MAX: u16 = 16_383;

/// `tarn lun`
#[derive(Debug, Subcommand)]
pub enum LunVerb {
    /// List all units.
    List {},
    /// Show everything about a unit.
    Show {
        /// The unit.
        id: String,
    },
    /// Add a unit; with --target also export it there, in the same change.
    Add(Add),
    /// Change the configuration of a unit.
    Set(Set),
    /// Remove a unit that no target exports. Its data is not deleted, unless it is in memory (mem:).
    Rm {
        /// The unit.
        id: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
    /// Grow a unit while it is in use.
    Resize {
        /// The unit.
        id: String,
        /// The new size, as 20G.
        #[arg(value_parser = config::parse_size)]
        size: u64,
    },
    /// Eject the medium of a unit, when commands at work on it have ended and it is flushed.
    Eject {
        /// The unit.
        id: String,
        /// Eject although initiators prevent it. Use it when one of them is gone or does not release it.
        #[arg(long)]
        force: bool,
    },
    /// Load the medium of a unit, or another STORE as its medium. Sessions, reservations and modes stay.
    #[command(after_help = LOAD_HELP)]
    Load {
        /// The unit.
        id: String,
        /// Another medium: the file of a disc for a CD or DVD drive, or a STORE with the option removable and the same
        /// block size for a disk. It is a change of the configuration. [default: the same one, as it is now]
        store: Option<String>,
        /// Exchange the medium although initiators prevent its removal. Use it when one of them is gone or does not
        /// release it.
        #[arg(long, requires = "store")]
        force: bool,
        /// What else is true of STORE.
        #[command(flatten)]
        options: StoreOptions,
    },
    /// Take the RBD image of a unit from another client, and serve it. The cluster refuses all that the other client
    /// sends from then on, for any image: use it when that client is dead.
    #[command(after_help = TAKEOVER_HELP)]
    Takeover {
        /// The unit.
        id: String,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
    /// Serve units that are not ready because what is at the place of their store is not what was served: another file
    /// system, another device, a shorter file or none. What is there counts from then on.
    #[command(after_help = ADOPT_HELP)]
    Adopt {
        /// The units.
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// All units that wait for it. Use it after a restore on other hardware.
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Write what their logs have to what is there. Use it where these are the stores of the logs.
        #[arg(long, conflicts_with = "discard")]
        replay: bool,
        /// Do without what their logs have: the last writes may be missing. Use it where the stores are older.
        #[arg(long)]
        discard: bool,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
    /// What to do about the log of a unit.
    #[command(subcommand)]
    Log(LogVerb),
    /// Who has reserved a unit, and the end of that.
    #[command(subcommand)]
    Reservation(ReservationVerb),
    /// Give a unit another id; it keeps its identity, and targets follow.
    Rename {
        /// The unit.
        id: String,
        /// Its new id.
        new_id: String,
    },
}

/// `tarn lun log`
#[derive(Debug, Subcommand)]
pub enum LogVerb {
    /// Serve a unit that is not ready because its log is lost, without what the log may have: the last
    /// writes may be missing. It gets a new log.
    Discard {
        /// The unit.
        id: String,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
    /// Serve a unit that is not ready because the state directory does not know of the changes that its log
    /// has, after these are written to its store.
    Replay {
        /// The unit.
        id: String,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
}

/// `tarn lun reservation`
#[derive(Debug, Subcommand)]
pub enum ReservationVerb {
    /// Show who has reserved a unit, and who is registered with it.
    Show {
        /// The unit.
        id: String,
    },
    /// End all reservations of a unit and all registrations. Initiators that lose one get a unit
    /// attention. Use it when their holder is gone for good: hosts that they keep apart may write
    /// at the same time afterwards.
    Clear {
        /// The unit.
        id: String,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
}

const ADD_HELP: &str = "\
STORE is as for tarn serve, for example /srv/disk.img?size=10G; see tarn serve --help.
A relative path begins at the directory of the daemon's configuration file.

Examples:
  tarn lun add web '/srv/web.img?size=10G'
  tarn lun add web /srv/web.img --size 10G --cache direct
  tarn lun add web '/srv/web.img?size=10G' --target iqn.2026-11.example:web --groups blades
  tarn lun add test /srv/test.img --clone web@before-upgrade";

const LOAD_HELP: &str = "\
Examples:
  tarn lun load cd /srv/iso/other.iso
  tarn lun eject cd
  tarn lun load cd
  tarn lun load stick '/srv/other.img?removable'";

const TAKEOVER_HELP: &str = "\
The unit has to be configured here, with takeover=wait in its STORE. A client that died loses
its images by itself after some 30 s; this does not wait for that.

Examples:
  tarn lun takeover web";

const ADOPT_HELP: &str = "\
Look at the store first: a file system that is not mounted, or a device that got another name, is
the usual cause, and its unit is served by itself when that is put right. This is for a server
that was restored on other hardware, for a disk that was meant to be replaced.
If the log of a unit has writes that were answered and are not in its store, say what becomes of
them: --replay where this is the store, or a copy of it of that moment; --discard otherwise.

Examples:
  tarn lun adopt web
  tarn lun adopt --all --yes";

/// `tarn lun add`
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// Id of the new unit.
    id: String,
    /// Store of its data.
    store: String,
    /// Snapshot whose data it begins with, LUN@NAME; STORE is a file that is not there, beside that of
    /// LUN, or for the snapshot of an RBD image another image of its cluster. Use it for a writable
    /// copy, or to look at the data of before.
    #[arg(long, value_name = "SNAPSHOT")]
    clone: Option<Which>,
    /// Its keys.
    #[command(flatten)]
    keys: New<spec::Lun>,
    /// Target that exports it. Use it to add and export a disk in one change.
    #[arg(long, value_name = "IQN")]
    target: Option<String>,
    /// Logical unit number at --target. Use it when the number matters. [default: the lowest free
    /// one]
    #[arg(long, value_name = "N", requires = "target",
          value_parser = clap::value_parser!(u16).range(..=i64::from(LUN_MAX)))]
    lun: Option<u16>,
    /// Groups that see it at --target, separated by commas. Use it to export it to some initiators
    /// only.
    #[arg(long, value_name = "GROUP", requires = "target", value_delimiter = ',')]
    groups: Vec<String>,
    /// Refuse writes at --target. Use it for disks that must only be read.
    #[arg(long, requires = "target")]
    readonly: bool,
    /// What else is true of STORE.
    #[command(flatten)]
    options: StoreOptions,
}

/// `tarn lun set`
#[derive(Args, Debug)]
pub struct Set {
    /// The unit.
    id: String,
    /// New STORE of its data, with all of its options; nothing is copied. Use it when the file or
    /// device has moved. [default: the one that it has, with the options below changed]
    #[arg(long)]
    store: Option<String>,
    /// What changes.
    #[command(flatten)]
    keys: Change<spec::Lun>,
    /// Whether a person is asked.
    #[command(flatten)]
    consent: Consent,
    /// Options of STORE that change, or of the new one.
    #[command(flatten)]
    options: StoreOptions,
}

const COLUMNS: &[Column<Lun>] = &[
    words("id", |l| l.spec.id.clone()),
    words("kind", |l| l.kind.clone()),
    words("type", |l| l.device_type.clone()),
    figures("size", size),
    figures("block", |l| match l.block_bytes {
        0 => "-".to_owned(),
        bytes => bytes.to_string(),
    }),
    figures("ways", |l| {
        (l.shown_by.len() + l.served_by.len()).to_string()
    }),
    words("serial", |l| l.serial.clone()),
    words("flags", |l| {
        let flags = [
            mark(l.readonly, "readonly"),
            mark(l.thin, "thin"),
            mark(is_out(l) && l.size_bytes > 0, "ejected"),
            mark(l.outage.is_some(), "lost"),
            mark(l.reservations.as_ref().is_some_and(is_reserved), "reserved"),
            l.trouble.as_ref().map_or("", |log| &log.code).to_owned(),
        ];
        table::joined(&flags, " ")
    }),
];

/// How large its medium is, if there is one.
fn size(lun: &Lun) -> String {
    match lun.size_bytes {
        0 => "-".to_owned(),
        bytes => human::size(bytes),
    }
}

const FIELDS: &[Column<Lun>] = &[
    words("id", |l| l.spec.id.clone()),
    words("store", |l| l.spec.store.clone()),
    words("kind", |l| l.kind.clone()),
    words("type", |l| l.device_type.clone()),
    words("size", |l| match l.size_bytes {
        0 => String::new(),
        bytes => format!("{} ({bytes} bytes)", human::size(bytes)),
    }),
    words("block", |l| match l.block_bytes {
        0 => String::new(),
        bytes => format!("{bytes} bytes"),
    }),
    words("serial", |l| l.serial.clone()),
    words("naa", |l| l.naa.clone()),
    words("owner", |l| l.spec.owner.clone().unwrap_or_default()),
    words("log", |l| l.spec.log.clone().unwrap_or_default()),
    words("trouble", |l| {
        let text = |log: &LunTrouble| format!("{}: {}", log.code, log.why);
        l.trouble.as_ref().map(text).unwrap_or_default()
    }),
    words("log bias", |l| l.spec.sync_bias.clone().unwrap_or_default()),
    words("schedule", |l| {
        l.spec.snapshots.as_ref().map_or_else(String::new, schedule)
    }),
    words("cache", |l| l.cache.clone().unwrap_or_default()),
    words("thin", |l| mark(l.thin, "yes")),
    words("readonly", |l| mark(l.readonly, "yes")),
    words("lost", |l| l.outage.clone().unwrap_or_default()),
    words("medium", medium),
    words("held by", |l| {
        let names = l
            .medium
            .as_ref()
            .map(|medium| medium.prevented_by.join(", "));
        names.unwrap_or_default()
    }),
];

const WAYS: &[Column<LunPath>] = &[
    words("target", |w| w.target.clone()),
    figures("lun", |w| w.lun.to_string()),
    words("groups", |w| table::or_everyone(&w.groups)),
    words("flags", |w| mark(w.readonly, "readonly")),
];

const SERVICES: &[Column<LunService>] = &[
    words("protocol", |s| s.protocol.clone()),
    words("server or group", |s| s.name.clone()),
    words("device", |s| s.device.clone()),
    words("clients", clients),
    words("level", |s| s.level.clone().unwrap_or_default()),
    words("flags", |s| mark(s.readonly, "readonly")),
];

const RESERVATION: &[Column<Reservations>] = &[
    words("reservation", |r| {
        r.kind.clone().unwrap_or_else(|| "none".to_owned())
    }),
    words("holder", |r| match (&r.kind, &r.holder) {
        (_, Some(holder)) => nexus(holder),
        (Some(_), None) => "all that are registered".to_owned(),
        (None, None) => String::new(),
    }),
    words("since", |r| since(r.kind.is_some(), r.since_ms)),
    words("reserved by", |r| {
        r.reserved_by.as_ref().map(nexus).unwrap_or_default()
    }),
    words("registered", |r| r.registered.to_string()),
    words("aptpl", |r| mark(r.aptpl, "yes")),
    words("lost", |r| mark(r.lost, "yes")),
];

const REGISTRATIONS: &[Column<Registration>] = &[
    words("initiator", |r| r.nexus.initiator.clone()),
    words("isid", |r| r.nexus.isid.clone().unwrap_or_default()),
    figures("port", |r| r.nexus.target_port.to_string()),
    words("key", |r| r.key.clone()),
    words("transport", |r| r.nexus.transport.clone()),
    words("since", |r| since(true, r.since_ms)),
    words("flags", |r| {
        let absent = r.nexus.has_session == Some(false);
        let flags = [mark(r.holder, "holder"), mark(absent, "no-session")];
        table::joined(&flags, " ")
    }),
];

fn is_reserved(reservations: &Reservations) -> bool {
    reservations.kind.is_some() || reservations.reserved_by.is_some()
}

fn nexus(nexus: &ReservationNexus) -> String {
    let absent = match nexus.has_session {
        Some(false) => " (no session)",
        Some(true) | None => "",
    };
    format!("{}{absent}", nexus.initiator)
}

fn since(is_held: bool, since_ms: Option<u64>) -> String {
    match since_ms {
        Some(ms) => human::moment(ms),
        None => mark(is_held, "before the start"),
    }
}

fn reservations(reservations: &Reservations) -> String {
    let mut text = fields(RESERVATION, reservations);
    if !reservations.registrations.is_empty() {
        text += &format!("\n{}", table(REGISTRATIONS, &reservations.registrations));
    }
    text
}

/// Who finds a unit at a server or in a group.
fn clients(service: &LunService) -> String {
    match service.protocol.as_str() {
        "hyperscsi" => "those of the group".to_owned(),
        _ => table::or_everyone(&service.groups),
    }
}

impl Ask for LunVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["luns"]), COLUMNS),
            Self::Show { id } => show_all(api, id),
            Self::Add(add) => add.ask(api),
            Self::Set(set) => set.ask(api),
            Self::Rm { id, consent } => {
                let question = format!("Remove lun {id}?");
                api.remove(&at(id), *consent, &question)
            }
            Self::Resize { id, size } => {
                let size_bytes = *size;
                api.post(
                    Consent::GIVEN,
                    &path(&["luns", id, "resize"]),
                    &Resize { size_bytes },
                )
            }
            Self::Eject { id, force } => {
                let (at, body) = (path(&["luns", id, "eject"]), Eject { force: *force });
                moved(api, || api.client.post(&at, &body, None))
            }
            Self::Load {
                id, store: None, ..
            } => moved(api, || api.client.order(&path(&["luns", id, "load"]))),
            Self::Load {
                id,
                store: Some(store),
                force,
                options,
            } => {
                let store = options.of(store).map_err(Failure::Store)?;
                exchange(api, id, (store, *force))
            }
            Self::Takeover { id, yes } => take_over(api, id, *yes),
            Self::Adopt {
                ids,
                all,
                replay,
                discard,
                yes,
            } => {
                let of_log = [(*replay, "replay"), (*discard, "discard")];
                let of_log = of_log.iter().find(|(is_chosen, _)| *is_chosen);
                let of_log = of_log.map(|(_, word)| *word);
                adopt(api, (!all).then_some(ids), of_log, *yes)
            }
            Self::Log(LogVerb::Discard { id, yes }) => {
                let question = format!(
                    "Serve lun {id} without what its log may have? Its last writes may be lost for good."
                );
                decide(api, id, "discard", *yes, &question)
            }
            Self::Log(LogVerb::Replay { id, yes }) => {
                let question = format!(
                    "Write the changes in the log of lun {id} to its store? Later data there is written over."
                );
                decide(api, id, "replay", *yes, &question)
            }
            Self::Reservation(ReservationVerb::Show { id }) => {
                api.show(&path(&["luns", id, "reservations"]), reservations)
            }
            Self::Reservation(ReservationVerb::Clear { id, yes }) => clear(api, id, *yes),
            Self::Rename { id, new_id } => {
                let body = Rename { id: new_id.clone() };
                api.post(Consent::GIVEN, &path(&["luns", id, "rename"]), &body)
            }
        }
    }
}

fn at(id: &str) -> Path {
    path(&["luns", id])
}

/// As it is written on a command line.
fn schedule(schedule: &spec::Schedule) -> String {
    let counts = [
        ("hourly", schedule.hourly),
        ("daily", schedule.daily),
        ("weekly", schedule.weekly),
    ];
    let counts = counts
        .into_iter()
        .filter_map(|(word, count)| Some(format!("{word}={}", count?)));
    let at = schedule.at.iter().map(|at| format!("at={at}"));
    counts.chain(at).collect::<Vec<_>>().join(",")
}

/// Where the medium is; empty for a fixed one.
fn medium(lun: &Lun) -> String {
    let word = |medium: &Medium| match medium.loaded {
        true => "loaded",
        false if lun.size_bytes == 0 => "none",
        false => "ejected",
    };
    lun.medium.as_ref().map(word).unwrap_or_default().to_owned()
}

/// Decides what becomes of what the log of a unit has.
fn decide(api: &ApiSession, id: &str, verdict: &str, yes: bool, question: &str) -> Outcome {
    api.confirm_loss(yes, question)?;
    let at = path(&["luns", id, "log", verdict]);
    let answer = terminal::busy("opening", || api.client.order::<Lun>(&at))?;
    api.output
        .print(&answer.json, || format!("lun {id}: served\n"));
    Ok(Exit::Done)
}

/// Takes the image of a unit from another client.
fn take_over(api: &ApiSession, id: &str, yes: bool) -> Outcome {
    let question = format!(
        "Take lun {id} from the client that has its image? That client loses all its images of the cluster."
    );
    api.confirm(yes, &question)?;
    let at = path(&["luns", id, "takeover"]);
    let order = || api.client.order::<Lun>(&at);
    let answer = terminal::busy("waiting for the cluster", order)?;
    api.output
        .print(&answer.json, || format!("lun {id}: served here\n"));
    Ok(Exit::Done)
}

/// Codes of units that wait until what is there is accepted.
const TO_ADOPT: [&str; 2] = ["medium-changed", "store-unopened"];

/// Has units served with what is there; `None`: all that wait for it. `of_log` is what becomes of writes that only
/// their logs have.
fn adopt(api: &ApiSession, ids: Option<&[String]>, of_log: Option<&str>, yes: bool) -> Outcome {
    let luns = api.get::<Vec<Lun>>(&path(&["luns"]))?.value;
    let waits = |lun: &&Lun| {
        let code = lun.trouble.as_ref().map(|trouble| trouble.code.as_str());
        code.is_some_and(|code| TO_ADOPT.contains(&code))
    };
    let all = || luns.iter().filter(waits).map(|lun| lun.spec.id.clone());
    let ids: Vec<String> = ids.map_or_else(|| all().collect(), <[String]>::to_vec);
    if ids.is_empty() {
        api.output.print(&serde_json::Value::Null, || {
            "no lun waits for it\n".to_owned()
        });
        return Ok(Exit::Done);
    }
    for lun in luns.iter().filter(|lun| ids.contains(&lun.spec.id)) {
        if let Some(trouble) = &lun.trouble {
            daemon::say(
                std::io::stderr().lock(),
                &format!("lun {}: {}\n", lun.spec.id, trouble.why),
            );
        }
    }
    let names = ids.join(", ");
    api.confirm(
        yes,
        &format!(
            "Serve what is there now as lun {names}? Initiators take it for the disk they know."
        ),
    )?;
    for id in &ids {
        let order = |words: &[&str]| {
            let at = path(&[&["luns", id.as_str()], words].concat());
            terminal::busy("opening", || api.client.order::<Lun>(&at))
        };
        let mut answer = order(&["adopt"])?;
        let waits_for_log = answer
            .value
            .trouble
            .as_ref()
            .is_some_and(|it| it.code == "log-lost");
        if let Some(word) = of_log.filter(|_| waits_for_log) {
            answer = order(&["log", word])?;
        }
        api.output
            .print(&answer.json, || match &answer.value.trouble {
                None => format!("lun {id}: served\n"),
                Some(trouble) => format!("lun {id}: {}: {}\n", trouble.code, trouble.why),
            });
    }
    Ok(Exit::Done)
}

/// A unit, and who has reserved it.
fn show_all(api: &ApiSession, id: &str) -> Outcome {
    let lun = api.get::<Lun>(&at(id))?;
    let mut text = show(&lun.value);
    if lun.value.reservations.is_some() && !api.output.is_json {
        let all = api.get::<Reservations>(&path(&["luns", id, "reservations"]))?;
        text += &format!("\n{}", reservations(&all.value));
    }
    api.output.print(&lun.json, || text);
    Ok(Exit::Done)
}

/// Ends reservations, whose holders are named first.
fn clear(api: &ApiSession, id: &str, yes: bool) -> Outcome {
    let held = api.get::<Reservations>(&path(&["luns", id, "reservations"]))?;
    if !yes {
        api.output.remark(&reservations(&held.value));
    }
    let question = format!(
        "End all reservations and registrations of lun {id}? Hosts that they keep apart may then write at once."
    );
    api.confirm(yes, &question)?;
    let at = path(&["luns", id, "reservations", "clear"]);
    let answer = terminal::busy("clearing", || api.client.order::<Lun>(&at))?;
    api.output
        .print(&answer.json, || format!("lun {id}: no reservations\n"));
    Ok(Exit::Done)
}

/// Moves a medium, and prints where it is.
fn moved(api: &ApiSession, order: impl FnOnce() -> Result<Answer<Lun>, ClientError>) -> Outcome {
    let answer = terminal::busy("waiting for commands and the flush", order)?;
    api.output.print(&answer.json, || {
        let lun = &answer.value;
        format!("lun {}: medium {}\n", lun.spec.id, medium(lun))
    });
    Ok(Exit::Done)
}

/// Gives a unit another medium. One that gets another file or device has it in; where only words of the STORE differ,
/// or nothing does, the same one is loaded, as it is now.
fn exchange(api: &ApiSession, id: &str, (store, force): (String, bool)) -> Outcome {
    let lun = api.get::<Lun>(&at(id))?.value;
    let store = medium_for(&lun, store)?;
    let keys = LunKeys::of([id]).with("store", store);
    let edits = Edits {
        edits: vec![Edit::Set(Keys::Lun(keys))],
        comment: None,
    };
    let load = || api.client.order(&path(&["luns", id, "load"]));
    let is_held = force && !is_out(&lun);
    if is_held {
        let (at, body) = (path(&["luns", id, "eject"]), Eject { force });
        terminal::busy("ejecting", || api.client.post::<Lun>(&at, &body, None))?;
    }
    let at_edits = path(&["config", "edits"]);
    let answer = terminal::busy("applying", || {
        api.client.post::<Applied>(&at_edits, &edits, None)
    });
    if answer.is_err() && is_held {
        // It is in as before, and the reason is what counts.
        drop(load());
    }
    let answer = answer?;
    if answer.value.steps.is_empty() {
        return moved(api, load);
    }
    api.applied(&answer)?;
    let lun = api.get::<Lun>(&at(id))?.value;
    if is_out(&lun) && lun.size_bytes > 0 {
        terminal::busy("loading", load)?;
    }
    Ok(Exit::Done)
}

fn is_out(lun: &Lun) -> bool {
    lun.medium.as_ref().is_some_and(|medium| !medium.loaded)
}

/// The STORE that is the next medium of a unit. A drive needs no more than the file.
fn medium_for(lun: &Lun, store: String) -> Result<String, Failure> {
    if lun.medium.is_none() {
        let id = lun.spec.id.clone();
        return Err(Failure::MediumFixed { id });
    }
    let mut wanted = StoreSpec::parse(&store).map_err(Failure::Store)?;
    if lun.kind == DRIVE && wanted.at.kind == StoreKind::Path {
        wanted = StoreSpec::parse(&format!("{DRIVE}:{store}")).map_err(Failure::Store)?;
    }
    if !wanted.removable {
        return Err(Failure::StoreFixed { store });
    }
    let (got, has) = (wanted.block_size.bytes(), lun.block_bytes);
    if got != has {
        return Err(Failure::OtherBlocks { got, has });
    }
    Ok(wanted.to_string())
}

/// The kind of a CD or DVD drive.
const DRIVE: &str = "cdrom";

fn show(lun: &Lun) -> String {
    let mut text = fields(FIELDS, lun);
    if lun.shown_by.is_empty() && lun.served_by.is_empty() {
        text += "\nnobody can reach it; see tarn target map, tarn nbd set and tarn hyperscsi device add\n";
    }
    if !lun.shown_by.is_empty() {
        text += &format!("\n{}", table(WAYS, &lun.shown_by));
    }
    if !lun.served_by.is_empty() {
        text += &format!("\n{}", table(SERVICES, &lun.served_by));
    }
    text
}

impl Add {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let lun = spec::Lun {
            id: self.id.clone(),
            store: self.options.of(&self.store).map_err(Failure::Store)?,
            ..self.keys.made()
        };
        let view = self.target.as_ref().map(|target| View {
            target: target.clone(),
            lun: self.lun,
            id: self.id.clone(),
            groups: self.groups.clone(),
            readonly: self.readonly,
        });
        if let Some(snapshot) = &self.clone {
            return api.post(
                Consent::GIVEN,
                &snapshot.path(&["clone"]),
                &NewClone { lun, view },
            );
        }
        let mut edits = vec![Edit::Add(Thing::Lun(lun))];
        edits.extend(view.map(|view| Edit::Add(Thing::View(view))));
        let comment = self.target.as_ref();
        let comment = comment.map(|target| format!("lun {} at {target}", self.id));
        api.edit(Consent::GIVEN, edits, comment)
    }
}

impl Set {
    fn ask(&self, api: &ApiSession) -> Outcome {
        if self.store.is_none() && self.keys.is_empty() && self.options.is_empty() {
            return Err(Failure::NothingGiven { noun: "lun" });
        }
        let store = match &self.store {
            Some(store) => Some(self.options.of(store)),
            None if self.options.is_empty() => None,
            None => {
                let lun = api.get::<Lun>(&at(&self.id))?.value;
                Some(self.options.changed(&lun.spec.store))
            }
        };
        let store = store.transpose().map_err(Failure::Store)?;
        let keys = self.keys.of([&self.id]).with_some("store", store);
        api.edit(self.consent, vec![Edit::Set(Keys::Lun(keys))], None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lun(medium: Option<Medium>) -> Lun {
        Lun {
            spec: spec::Lun {
                id: "cd".to_owned(),
                store: "/a.img?removable".to_owned(),
                serial: None,
                naa: None,
                ..spec::Lun::default()
            },
            kind: "file".to_owned(),
            device_type: "disk".to_owned(),
            size_bytes: 1 << 20,
            block_bytes: 512,
            readonly: false,
            cache: None,
            thin: true,
            serial: "S1".to_owned(),
            naa: "3000000000000001".to_owned(),
            medium,
            outage: None,
            trouble: None,
            reservations: None,
            shown_by: Vec::new(),
            served_by: Vec::new(),
        }
    }

    #[test]
    fn a_unit_that_only_nbd_and_hyperscsi_serve_is_not_unused_and_a_lost_log_is_seen() {
        let mut lun = lun(None);
        assert!(show(&lun).contains("nobody can reach it"));
        for (protocol, level) in [("nbd", None), ("hyperscsi", Some("crc".to_owned()))] {
            lun.served_by.push(LunService {
                protocol: protocol.to_owned(),
                name: format!("{protocol} server"),
                device: "cd".to_owned(),
                groups: Vec::new(),
                readonly: false,
                level,
            });
        }
        lun.trouble = Some(LunTrouble {
            code: "log-lost".to_owned(),
            why: "it is gone".to_owned(),
        });
        let row = table(COLUMNS, std::slice::from_ref(&lun));
        let words: Vec<_> = row.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            [
                "cd", "file", "disk", "1", "MiB", "512", "2", "S1", "thin", "log-lost"
            ],
            "{row}"
        );
        let text = show(&lun);
        for expected in [
            "log-lost: it is gone",
            "nbd server",
            "hyperscsi server",
            "crc",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(!text.contains("nobody"), "{text}");
    }

    fn with_medium(loaded: bool) -> Lun {
        lun(Some(Medium {
            loaded,
            prevented_by: vec!["iqn.a".to_owned()],
        }))
    }

    #[test]
    fn another_medium_is_taken_where_it_fits() {
        let removable = with_medium(true);
        let drive = Lun {
            kind: DRIVE.to_owned(),
            block_bytes: 2048,
            ..with_medium(true)
        };
        let fits = |lun: &Lun, store: &str| {
            medium_for(lun, store.to_owned()).map_err(|error| error.to_string())
        };
        for (lun, store, expected) in [
            (&removable, "/b.img?removable", "/b.img?removable"),
            (&drive, "/b.iso", "cdrom:/b.iso"),
            (&drive, "cdrom:/b.iso", "cdrom:/b.iso"),
            (&drive, "cdrom:", "cdrom:"),
        ] {
            assert_eq!(fits(lun, store).as_deref(), Ok(expected));
        }
        for (lun, store, expected) in [
            (&lun(None), "/b.img?removable", "is fixed"),
            (&removable, "/b.img", "option removable"),
            (&removable, "/b.img?removable&blocksize=4096", "4096"),
            (&removable, "cdrom:/b.iso", "2048"),
            (&removable, "?", "STORE"),
            (&drive, "/b.iso?size=1G", "STORE"),
            (&drive, "file:/b.img?removable", "512"),
        ] {
            let error = fits(lun, store).unwrap_err();
            assert!(error.contains(expected), "{store}: {error}");
        }
    }

    #[test]
    fn a_report_says_where_a_removable_medium_is_and_who_prevents_its_removal() {
        let text = show(&with_medium(false));
        assert!(text.contains("ejected") && text.contains("iqn.a"), "{text}");
        assert!(show(&with_medium(true)).contains("loaded"));
        let empty = Lun {
            size_bytes: 0,
            ..with_medium(false)
        };
        assert!(!show(&empty).contains("ejected"));
        assert!(!show(&lun(None)).contains("loaded"));
    }
}
