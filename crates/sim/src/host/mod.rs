//! The target under test: real protocol machines, real device server, simulated cores.
//!
//! Crate `plane` carries engine and sessions over reactors and threads, this module over the simulated
//! world. It decides nothing: what leaves a core is put down for the world, bytes, letters, closed links.

mod carrier;
mod core;
mod line;
mod login;

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use engine::{SessionKey, UnitIndex, VisibleLun};
use front::iscsi::FrontLetter;
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::Tsih;
use scsi::{Identity, Limits, Owner, Profile, TargetPort};

use crate::disk::Disk;
use crate::network::Arrival;
use crate::prng::Prng;
use crate::sabotage::Sabotage;

use self::core::{Core, UNIT};
use self::line::Link;

/// The target's name.
pub const TARGET_NAME: &str = "iqn.2026-11.example.tarn:sim";

/// The number of the one unit.
const LUN: u16 = 0;

/// How the target is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many cores it has.
    pub cores: usize,
    /// Commands a session may have under way.
    pub queue_depth: u32,
    /// Limits of negotiation.
    pub preferences: OperationalPreferences,
    /// How long an abort waits for the store.
    pub abort_timeout: Duration,
    /// How long a command waits for its fence.
    pub fence_timeout: Duration,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// A connection silent for so long is pinged.
    pub nop_interval: Duration,
    /// A ping unanswered for so long ends the connection.
    pub nop_timeout: Duration,
    /// How much memory each core has for data, in bytes.
    pub pool_bytes: usize,
    /// Something it does wrong, to see whether that is noticed.
    pub sabotage: Option<Sabotage>,
}

/// What an administrator holds until what was asked for is done. The host drops it then.
#[derive(Debug, Default)]
pub struct Receipt(Rc<()>);

impl Receipt {
    /// Tells when it has gone.
    pub fn watch(&self) -> Weak<()> {
        Rc::downgrade(&self.0)
    }
}

/// Whose a request is that nobody waits for any longer, if it is a session's still.
pub type LeftBehind = Option<Tsih>;

/// Mail between cores.
#[derive(Debug)]
pub enum Letter {
    /// About a unit.
    Unit(UnitIndex, Box<engine::Letter>),
    /// Between the front and the sessions of a core.
    Front(FrontLetter<Link>),
}

/// The whole target.
#[derive(Debug)]
pub struct Host {
    cores: Vec<Core>,
    /// The core that has a link now. None while it is on its way between two.
    places: BTreeMap<usize, usize>,
}

impl Host {
    /// A target that has just started. `kept` is what [`Host::kept`] gave before it stopped.
    pub fn new(settings: &Settings, disk: &Disk, kept: Option<&[u8]>, prng: &Prng) -> Self {
        let mut cores: Vec<Core> = (0..settings.cores)
            .map(|index| {
                let random = Prng::stream(prng.clone().next_u64(), &format!("core {index}"));
                let store = disk.handle(index);
                Core::new(index, settings, owner(disk, kept), store, random)
            })
            .collect();
        if let Some(first) = cores.first_mut() {
            first.kept = kept.map(<[u8]>::to_vec);
        }
        Self {
            cores,
            places: BTreeMap::new(),
        }
    }

    /// A connection was accepted.
    pub fn accept(&mut self, link: usize, now: Duration) {
        self.places.insert(link, 0);
        self.cores[0].accept(link, now);
    }

    /// How many bytes of a link the target would receive now; zero while it is not listening.
    pub fn appetite(&mut self, link: usize) -> usize {
        match self.core_of(link) {
            Some(core) => core.appetite(link),
            None => 0,
        }
    }

    /// Something arrived.
    pub fn arrive(&mut self, link: usize, arrival: Arrival, now: Duration) {
        if let Some(core) = self.core_of(link) {
            core.arrive(link, arrival, now);
            core.end_turn(now);
        }
    }

    /// Takes up to `len` bytes that are to be sent.
    pub fn take_output(&mut self, link: usize, len: usize, now: Duration) -> Vec<u8> {
        let Some(core) = self.core_of(link) else {
            return Vec::new();
        };
        let taken = core.take_output(link, len, now);
        core.end_turn(now);
        taken
    }

    /// Links with something to send.
    pub fn links_with_output(&self) -> Vec<usize> {
        let cores = self.cores.iter();
        cores.flat_map(Core::links_with_output).collect()
    }

    /// A letter has come.
    pub fn deliver(&mut self, core: usize, letter: Letter, now: Duration) {
        if let Letter::Front(FrontLetter::Adopt(adoption)) = &letter {
            self.places.insert(adoption.line.0, core);
        }
        self.cores[core].receive_letter(letter, now);
        self.cores[core].end_turn(now);
    }

    /// Letters that were posted since the last call: from, to, letter.
    pub fn take_letters(&mut self) -> Vec<(usize, usize, Letter)> {
        let mut letters = Vec::new();
        for (from, core) in self.cores.iter_mut().enumerate() {
            let posted = core.engine.carrier.posted.drain(..);
            letters.extend(posted.map(|(to, letter)| (from, to, letter)));
        }
        letters
    }

    /// Links that the target has closed since the last call.
    pub fn take_closed(&mut self) -> Vec<usize> {
        let mut closed = Vec::new();
        for core in &mut self.cores {
            closed.append(&mut core.engine.carrier.closed);
        }
        for link in &closed {
            self.places.remove(link);
        }
        closed
    }

    /// The store has answers for a core.
    pub fn wake_for_store(&mut self, core: usize, now: Duration) {
        self.cores[core].wake_for_store(now);
        self.cores[core].end_turn(now);
    }

    /// When [`Host::handle_time`] is due, if ever.
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        self.cores.iter_mut().filter_map(Core::poll_timeout).min()
    }

    /// Time has come.
    pub fn handle_time(&mut self, now: Duration) {
        for core in &mut self.cores {
            core.handle_time(now);
            core.end_turn(now);
        }
    }

    /// States of the unit that are to be made safe since the last call, each before
    /// [`Host::handle_kept`].
    pub fn take_states_to_keep(&mut self) -> Vec<Vec<u8>> {
        let cores = self.cores.iter_mut();
        cores
            .filter_map(|core| core.engine.carrier.take_state())
            .collect()
    }

    /// A state of the unit is safe from now on, or could not be made so.
    pub fn handle_kept(&mut self, state: Vec<u8>, is_safe: bool, now: Duration) {
        if let Some(core) = self.cores.first_mut() {
            core.handle_kept(state, is_safe, now);
            core.end_turn(now);
        }
    }

    /// Requests that nobody waits for any longer but which may still take effect: core and number
    /// of each, and whose it is.
    pub fn left_behind(&self) -> BTreeMap<(usize, u64), LeftBehind> {
        let cores = self.cores.iter().enumerate();
        let all = cores.flat_map(|(index, core)| {
            let left = core.left_behind();
            left.map(move |(key, whose)| ((index, key), whose))
        });
        all.collect()
    }

    /// A bug that a core has found by itself.
    pub fn broken(&self) -> Option<&'static str> {
        let mut cores = self.cores.iter();
        cores.find_map(|core| core.engine.carrier.broken())
    }

    /// An administrator takes the LUN of a session.
    pub fn take_lun(&mut self, tsih: Tsih, receipt: Receipt, now: Duration) {
        self.administer(tsih, now, |core, key| {
            core.engine.take_lun(key, LUN, receipt)
        });
    }

    /// An administrator gives a session its LUN back.
    pub fn give_lun(&mut self, tsih: Tsih, receipt: Receipt, now: Duration) {
        let lun = VisibleLun {
            lun: LUN,
            unit: UNIT,
            read_only: false,
        };
        self.administer(tsih, now, |core, key| {
            core.engine.give_lun(key, lun, receipt)
        });
    }

    /// An administrator says whether a session may write.
    pub fn set_read_only(&mut self, tsih: Tsih, read_only: bool, receipt: Receipt, now: Duration) {
        self.administer(tsih, now, |core, key| {
            core.engine.set_read_only(key, LUN, read_only, receipt);
        });
    }

    fn administer(&mut self, tsih: Tsih, now: Duration, act: impl FnOnce(&mut Core, SessionKey)) {
        let mut cores = self.cores.iter_mut();
        let found = cores.find_map(|core| core.session_of(tsih).map(|key| (core, key)));
        if let Some((core, key)) = found {
            core.begin(now);
            act(core, key);
            core.end_turn(now);
        }
    }

    /// What the cores do not agree on, although nothing is under way.
    pub fn disagreement(&self) -> Option<String> {
        let first = self.cores.first()?;
        let owner = first.engine.owner(UNIT)?;
        if !owner.is_idle() {
            return Some("the owner of the unit has something under way".to_owned());
        }
        if !owner.allows_access() {
            return Some("the unit refuses access".to_owned());
        }
        let state = owner.shared();
        let differs = |core: &&Core| {
            let view = core.engine.view(UNIT);
            view.is_none_or(|view| view.shared() != state || view.refuses_access())
        };
        if let Some(core) = self.cores.iter().find(differs) {
            let index = core.index();
            return Some(format!(
                "core {index} sees the unit otherwise than its owner"
            ));
        }
        let kept = self.kept().filter(|_| !first.is_kept_state_old);
        let is_other = kept.is_some_and(|kept| kept != owner.kept_state());
        is_other.then(|| "what was kept is not the state in force".to_owned())
    }

    /// What must outlive a restart, if anything was kept.
    pub fn kept(&self) -> Option<Vec<u8>> {
        self.cores.first().and_then(|core| core.kept.clone())
    }

    /// True while a task of this session is not over, whatever became of the session.
    pub fn has_tasks_of(&self, tsih: Tsih) -> bool {
        self.cores.iter().any(|core| core.has_tasks_of(tsih))
    }

    /// What is left although every session has ended; `None` if nothing is.
    pub fn leftovers(&self) -> Option<String> {
        self.cores.iter().find_map(Core::leftovers)
    }

    fn core_of(&mut self, link: usize) -> Option<&mut Core> {
        let place = *self.places.get(&link)?;
        self.cores.get_mut(place)
    }
}

fn owner(disk: &Disk, kept: Option<&[u8]>) -> Owner {
    let profile = || Profile {
        identity: Identity {
            vendor: "TARN".to_owned(),
            product: "SIMULATED".to_owned(),
            revision: "1".to_owned(),
            serial: "sim".to_owned(),
            naa: vec![0x30, 0, 0, 0, 0, 0, 0, 1],
            eui: None,
            target_ports: vec![TargetPort {
                relative_id: 1,
                group: 1,
                scsi_name: format!("{TARGET_NAME},t,0x0001"),
                device_name: TARGET_NAME.to_owned(),
            }],
            protocol_identifier: 5,
            protocol_version: 0x0960,
            task_management: [0xf8, 0],
            removable: true,
        },
        limits: Limits::default(),
        capabilities: disk.capabilities(),
        keeps_state: true,
    };
    // What was kept is what this very program gave; the world damages no state files.
    Owner::new(profile(), kept).unwrap_or_else(|_| Owner::with_lost_reservations(profile()))
}
