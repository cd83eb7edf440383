//! The effects of the steps of a plan on users. One variant for each reason, with its words and its effect.

use std::collections::BTreeSet;

use api::plan::{Action, DataFate, Effect, Kind, Step, Taken};
use plane::ReservationReport;

/// What a step does to those who work meanwhile, and why. It reads as the reason that a plan gives.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Consequence {
    /// Nobody loses anything.
    #[error("")]
    Nothing,
    /// A parameter of logins.
    #[error("only new sessions use it")]
    NextSessions,

    /// A write cache goes.
    #[error(
        "the disk is flushed first; then each write is on stable storage before it is answered"
    )]
    WritesThrough,
    /// A write cache comes.
    #[error(
        "initiators have to flush from then on: they get a unit attention, and one that does not read the mode page \
         again by itself needs a rescan of the disk (Linux: /sys/block/NAME/device/rescan)"
    )]
    WritesBack,
    /// A size below that of the disk.
    #[error("the disk keeps its {size_bytes} bytes: size= is the least that it has")]
    Keeps {
        /// What it has.
        size_bytes: u64,
    },
    /// A key that only the start reads.
    #[error("pending until Tarn is restarted")]
    Restart,

    // Something ends first.
    /// A target goes.
    #[error("its sessions end")]
    SessionsEnd,
    /// Sessions lose units that they see.
    #[error("sessions that see it lose it")]
    ViewEnds,
    /// The rules of access no longer let sessions be there.
    #[error("sessions that are no longer allowed end")]
    AccessEnds,
    /// A unit goes.
    #[error("commands on it end first, or are aborted; its store is flushed and closed{}", lost(*.in_memory))]
    UnitGoes {
        /// Its data ends with it.
        in_memory: bool,
    },
    /// A unit gets another store.
    #[error(
        "commands on the old store end first, or are aborted; then the lun has the data of the new one{}",
        lost(*.in_memory)
    )]
    OtherStore {
        /// The data of the old one ends with it.
        in_memory: bool,
    },

    /// A drive gets another medium.
    #[error(
        "commands on the medium end first, or are aborted; then initiators find another one in the drive (28h/00h), \
         and sessions, reservations and modes stay"
    )]
    OtherMedium,
    /// Another vendor, product or revision.
    #[error(
        "new for initiators: they get a unit attention (INQUIRY data has changed); device names that hosts build from \
         vendor and product (/dev/disk/by-id) change, and rules that match them (multipath.conf) may not apply"
    )]
    OtherNames,

    // It cannot be done while Tarn runs.
    /// Another serial number or designator.
    #[error(
        "initiators know the disk by its identity: remove the lun in one change, add it again in the next"
    )]
    OtherIdentity,
    /// Other options of an open store.
    #[error(
        "a store is not opened twice: remove the lun in one change, add it with the new options in the next"
    )]
    OpenTwice,
    /// Other options of a store whose data ends with it.
    #[error(
        "the data in memory would be lost: remove the lun in one change, add it again in the next"
    )]
    MemoryLost,
    /// The store of a unit that has it until the change is made.
    #[error(
        "its store is in use by lun {holder:?} until this change is made: free it in one change, use it in the next"
    )]
    StoreHeld {
        /// The unit that has it.
        holder: String,
    },
    /// An `id` that another unit has until the change is made.
    #[error(
        "another lun has the id {id:?} until this change is made: free it in one change, use it in the next"
    )]
    IdHeld {
        /// The `id`.
        id: String,
    },
    /// A member of which the data behind would be elsewhere.
    #[error(
        "store {id:?} is not the last member, so what is behind it would move: leave its size, and add a member behind \
         the last one"
    )]
    MemberMoves {
        /// The member.
        id: String,
    },
    /// Fewer blocks than initiators know of.
    #[error("the disk has {size_bytes} bytes and cannot shrink to {wanted_bytes}")]
    Shrinks {
        /// What it has.
        size_bytes: u64,
        /// What it would have.
        wanted_bytes: u64,
    },
    /// A cache that cannot be flushed.
    #[error(
        "a flush of the disk has failed, so its cache cannot be emptied: look at the disk and the kernel log, then \
         remove the lun in one change and add it again in the next"
    )]
    CacheStuck,
    /// A disk that is not served because of its log.
    #[error("it is not served now, see tarn doctor: put that right first")]
    NotServed,
    /// Another size while the medium is out.
    #[error("its medium is out: load it first (tarn lun load {lun})")]
    MediumOut {
        /// The unit.
        lun: String,
    },
    /// Another medium while initiators prevent the removal of the one that is in.
    #[error(
        "{} the removal of its medium: release it there (unmount, eject), ask for that (tarn lun eject {lun}), \
         or eject it by force first (tarn lun eject {lun} --force)",
        preventers(.names)
    )]
    MediumHeld {
        /// The unit.
        lun: String,
        /// The initiators.
        names: Vec<String>,
    },
    /// Disks that are larger together than a quota allows.
    #[error(
        "the disks of {quota} would have {wanted_bytes} bytes together, more than provisioned = {allowed_bytes}: \
         make them smaller, or raise the quota"
    )]
    OverQuota {
        /// What the quota counts.
        quota: String,
        /// What they would have.
        wanted_bytes: u64,
        /// What they may have.
        allowed_bytes: u64,
    },
    /// A store that the confined process cannot reach, in words.
    #[error("{0}")]
    OutOfReach(String),

    // It is not right as it is.
    /// What was found by looking at files, servers and addresses, in words.
    #[error("{0}")]
    Wrong(String),
}

impl Consequence {
    /// The effect that a plan shows.
    const fn effect(&self) -> Effect {
        match self {
            Self::Nothing
            | Self::NextSessions
            | Self::WritesThrough
            | Self::WritesBack
            | Self::OtherNames
            | Self::Keeps { .. } => Effect::Online,
            Self::Restart => Effect::Pending,
            Self::SessionsEnd
            | Self::ViewEnds
            | Self::AccessEnds
            | Self::UnitGoes { .. }
            | Self::OtherStore { .. }
            | Self::OtherMedium => Effect::Drains,
            Self::OtherIdentity
            | Self::OpenTwice
            | Self::MemoryLost
            | Self::StoreHeld { .. }
            | Self::IdHeld { .. }
            | Self::MemberMoves { .. }
            | Self::Shrinks { .. }
            | Self::CacheStuck
            | Self::NotServed
            | Self::MediumOut { .. }
            | Self::MediumHeld { .. }
            | Self::OverQuota { .. }
            | Self::OutOfReach(_)
            | Self::Wrong(_) => Effect::Refused,
        }
    }

    /// Whether a rule refuses it, whatever was found by looking.
    pub(super) const fn is_refused_by_rule(&self) -> bool {
        matches!(self.effect(), Effect::Refused) && !matches!(self, Self::Wrong(_))
    }

    /// What becomes of the data of a store that is no longer served.
    const fn data(&self) -> Option<DataFate> {
        match self {
            Self::UnitGoes { in_memory: true } | Self::OtherStore { in_memory: true } => {
                Some(DataFate::Lost)
            }
            Self::UnitGoes { in_memory: false }
            | Self::OtherStore { in_memory: false }
            | Self::OtherMedium => Some(DataFate::Stays),
            Self::Nothing
            | Self::NextSessions
            | Self::WritesThrough
            | Self::WritesBack
            | Self::CacheStuck
            | Self::NotServed
            | Self::Keeps { .. }
            | Self::SessionsEnd
            | Self::ViewEnds
            | Self::AccessEnds
            | Self::Restart
            | Self::OtherNames
            | Self::OtherIdentity
            | Self::OpenTwice
            | Self::MemoryLost
            | Self::StoreHeld { .. }
            | Self::IdHeld { .. }
            | Self::MemberMoves { .. }
            | Self::Shrinks { .. }
            | Self::MediumOut { .. }
            | Self::MediumHeld { .. }
            | Self::OverQuota { .. }
            | Self::OutOfReach(_)
            | Self::Wrong(_) => None,
        }
    }

    /// Whether it is without harm.
    pub(super) const fn is_harmless(&self) -> bool {
        matches!(self.effect(), Effect::Online)
    }
}

/// Who stands in the way of others, in words: one holder and its type, or several that are registered.
pub(super) fn blame(report: &ReservationReport) -> String {
    const NAMED: usize = 3;
    let holders = report.holders();
    let names: BTreeSet<_> = holders.iter().map(|one| &*one.initiator.name).collect();
    let mut text = names
        .iter()
        .take(NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > NAMED {
        text += &format!(" and {} more", names.len() - NAMED);
    }
    let verb = if names.len() > 1 {
        ("hold", "are")
    } else {
        ("holds", "is")
    };
    match (&report.reserved_by, report.kind) {
        (Some(_), _) => format!("{text} {} it (SPC-2 RESERVE)", verb.0),
        (None, Some(kind)) => format!("{text} {} it ({})", verb.0, kind.word()),
        (None, None) if names.is_empty() => "nobody holds it or is registered".to_owned(),
        (None, None) => format!("nobody holds it, and {text} {} registered", verb.1),
    }
}

/// Who prevents the removal of a medium, with the verb.
pub(super) fn preventers(names: &[String]) -> String {
    match names {
        [] => "an initiator prevents".to_owned(),
        [name] => format!("{name} prevents"),
        names => format!("{} prevent", names.join(", ")),
    }
}

const fn lost(in_memory: bool) -> &'static str {
    if in_memory {
        "; what is in memory is lost"
    } else {
        ""
    }
}

/// A step of a plan that is being made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PlannedStep {
    pub(crate) action: Action,
    pub(crate) kind: Kind,
    /// Its id, name, address or key.
    pub(crate) name: String,
    /// What differs, one line.
    pub(crate) detail: String,
    pub(crate) consequence: Consequence,
    /// The sessions that end with it.
    pub(crate) sessions_ended: Vec<u64>,
    /// What sessions lose by it.
    pub(crate) taken: Vec<Taken>,
}

impl PlannedStep {
    /// A step that hurts nobody.
    pub(crate) fn new(action: Action, kind: Kind, name: String, detail: String) -> Self {
        Self {
            action,
            kind,
            name,
            detail,
            consequence: Consequence::Nothing,
            sessions_ended: Vec::new(),
            taken: Vec::new(),
        }
    }
}

impl PlannedStep {
    /// What only a look at files, servers or addresses shows of it, if anything.
    pub(super) fn looks_at(&self) -> Option<String> {
        if self.action == Action::Remove {
            return None;
        }
        let name = &self.name;
        match self.kind {
            Kind::Lun | Kind::Store => Some(format!("the store of {name}")),
            Kind::Portal | Kind::Target => Some(format!("the addresses of {name}")),
            Kind::Nbd | Kind::HyperScsi => Some(format!("the address and the files of {name}")),
            Kind::User => Some(format!("the secrets of {name}")),
            Kind::Admin => Some(format!("what {name} names")),
            Kind::View
            | Kind::Group
            | Kind::Quota
            | Kind::Notify
            | Kind::Server
            | Kind::Limits
            | Kind::Confine => None,
        }
    }
}

/// What sessions lose that a step names.
const TAKEN_MAX: usize = 100;

impl From<PlannedStep> for Step {
    fn from(planned: PlannedStep) -> Self {
        let (consequence, mut taken) = (planned.consequence, planned.taken);
        let taken_count = taken.len();
        taken.sort_by_key(|one| std::cmp::Reverse(one.ios_per_second));
        taken.truncate(TAKEN_MAX);
        let says_nothing = matches!(
            consequence,
            Consequence::Nothing | Consequence::NextSessions
        );
        let consequence = if says_nothing && taken_count > 0 {
            Consequence::ViewEnds
        } else {
            consequence
        };
        let effect = consequence.effect();
        let effect = if effect != Effect::Refused && taken_count > 0 {
            Effect::TakesAway
        } else {
            effect
        };
        let reason = consequence.to_string();
        Self {
            action: planned.action,
            kind: planned.kind,
            name: planned.name,
            detail: planned.detail,
            effect,
            reason: (!reason.is_empty()).then_some(reason),
            sessions_ended: planned.sessions_ended,
            taken,
            taken_count: u64::try_from(taken_count).unwrap_or(u64::MAX),
            data: consequence.data(),
        }
    }
}
