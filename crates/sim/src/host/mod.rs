//! The target under test: real protocol machines, real device server, simulated cores.
//!
//! Crate `plane` carries engine and sessions over reactors and threads, this module over the simulated
//! world. It decides nothing: what leaves a core is put down for the world, bytes, letters, closed links.

mod carrier;
mod core;
mod frames;
mod line;
mod nbd;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Engine, FlushFailure, Losses, MediumFailure, Save, SaveError, SavedState, SessionKey,
    StoreWork, UnitIndex, Version,
};
use front::iscsi::FrontLetter;
use front::testing::{Mail, TestLine};
use iscsi::pdu::Tsih;

use crate::disk::Disk;
use crate::network::Arrival;
use crate::prng::Prng;
use crate::setup::{self, Settings};

pub use self::carrier::Outside;
pub(crate) use self::core::Core;
pub use self::core::{Letter, Order, Receipt};

/// The whole target.
#[derive(Debug)]
pub struct Host {
    pub(crate) cores: Vec<Core>,
    /// The core that has a link now. None while it is on its way between two.
    pub(crate) places: BTreeMap<usize, usize>,
}

impl Host {
    /// A target that has just started. Each unit has its disk, and what was saved of it.
    pub fn new(settings: &Settings, units: &[(Disk, Option<SavedState>)], prng: &Prng) -> Self {
        let core = |index| {
            let random = Prng::stream(prng.clone().next_u64(), &format!("core {index}"));
            let all = settings.plan.units().zip(units);
            let units = all.map(|(unit, (disk, saved))| {
                let state = saved.as_ref().map(|saved| saved.state.as_slice());
                let version = saved.as_ref().map(|saved| saved.version);
                let owner = setup::owner(&settings.plan, unit, disk, state);
                (owner, version, disk.handle(index))
            });
            Core::new(index, settings, units.collect(), random)
        };
        let mut cores: Vec<Core> = (0..settings.cores).map(core).collect();
        for unit in settings.plan.units() {
            let losses = Arc::<Losses>::default();
            for core in &mut cores {
                core.engine.share_losses(unit, &losses);
            }
        }
        Self {
            cores,
            places: BTreeMap::new(),
        }
    }

    // ---- links -------------------------------------------------------------------------------

    /// A connection was accepted.
    pub fn accept(&mut self, link: usize, now: Duration) {
        self.places.insert(link, 0);
        self.cores[0].turn(now, |core| core.accept(link));
    }

    /// How many bytes of a link the target would receive now; zero while it is not listening.
    pub fn appetite(&mut self, link: usize) -> usize {
        let core = self.core_of(link);
        core.map_or(0, |core| core.appetite(link))
    }

    /// Something arrived.
    pub fn arrive(&mut self, link: usize, arrival: Arrival, now: Duration) {
        if let Some(core) = self.core_of(link) {
            core.turn(now, |core| core.arrive(link, arrival));
        }
    }

    /// Takes up to `len` bytes that are to be sent.
    pub fn take_output(&mut self, link: usize, len: usize, now: Duration) -> Vec<u8> {
        let core = self.core_of(link);
        core.map_or_else(Vec::new, |core| match core.take_buffered(link, len) {
            taken if taken.is_empty() => core.turn(now, |core| core.take_output(link, len)),
            taken => taken,
        })
    }

    /// Links with something to send.
    pub fn links_with_output(&self) -> Vec<usize> {
        let cores = self.cores.iter();
        let links = cores.flat_map(|core| &core.engine.carrier.lines.all);
        let sending = links.filter(|(_, way)| way.sending.is_some() || !way.buffered.is_empty());
        sending.map(|(link, _)| *link).collect()
    }

    /// Links that the target has closed since the last call.
    pub fn take_closed(&mut self) -> Vec<usize> {
        let cores = self.cores.iter_mut();
        let closed = cores.flat_map(|core| core.engine.carrier.lines.shut.drain(..));
        let closed: Vec<usize> = closed.collect();
        for link in &closed {
            self.places.remove(link);
        }
        closed
    }

    pub(crate) fn core_of(&mut self, link: usize) -> Option<&mut Core> {
        let place = *self.places.get(&link)?;
        self.cores.get_mut(place)
    }

    // ---- letters -----------------------------------------------------------------------------

    /// A letter has come.
    pub fn deliver(&mut self, core: usize, letter: Letter, now: Duration) {
        if let Some(letter) = self.note_place(core, letter) {
            self.cores[core].turn(now, |core| core.handle_letter(letter));
        }
    }

    /// A link that comes with a letter has its place there.
    fn note_place(&mut self, core: usize, letter: Letter) -> Option<Letter> {
        match letter {
            Letter::Mail(Mail::Iscsi(FrontLetter::Adopt(adoption))) => {
                self.places.insert(adoption.line.number, core);
                let letter = FrontLetter::Adopt(adoption);
                Some(Letter::Mail(Mail::Iscsi(letter)))
            }
            Letter::Mail(Mail::Nbd(letter)) => {
                let seen = |line: TestLine| {
                    self.places.insert(line.number, core);
                    Some(line)
                };
                letter.with_line(seen).map(Mail::Nbd).map(Letter::Mail)
            }
            letter @ (Letter::Mail(_) | Letter::Order(_)) => Some(letter),
        }
    }

    /// Letters that were posted since the last call: from, to, letter.
    pub fn take_letters(&mut self) -> Vec<(usize, usize, Letter)> {
        let cores = self.cores.iter_mut().enumerate();
        let letters = cores.flat_map(|(from, core)| {
            let posted = core.posted.drain(..);
            posted.map(move |(to, mail)| (from, to, Letter::Mail(mail)))
        });
        letters.collect()
    }

    /// An administrator does something about a session, if it is there.
    pub fn administer(
        &mut self,
        tsih: Tsih,
        now: Duration,
        act: impl FnOnce(&mut Engine<Outside>, SessionKey),
    ) {
        let mut cores = self.cores.iter_mut();
        let found = cores.find_map(|core| core.session_of(tsih).map(|key| (core, key)));
        if let Some((core, key)) = found {
            core.turn(now, |core| act(&mut core.engine, key));
        }
    }

    /// What has come of moving the medium since the last call.
    pub fn take_moved(&mut self) -> Vec<(UnitIndex, Result<(), MediumFailure>)> {
        let cores = self.cores.iter_mut();
        cores.flat_map(|core| core.moved.drain(..)).collect()
    }

    /// Units that were flushed for the last time since the last call, and what went wrong.
    pub fn take_flushed(&mut self) -> Vec<(UnitIndex, Option<FlushFailure>)> {
        let cores = self.cores.iter_mut();
        cores.flat_map(|core| core.flushed.drain(..)).collect()
    }

    /// Whether a core has nothing to do with a unit.
    pub fn is_unit_idle(&self, core: usize, unit: UnitIndex) -> bool {
        let core = &self.cores[core];
        core.engine.is_unit_idle(unit) && !core.sessions.has_grants()
    }

    // ---- the store, and the state that is saved ----------------------------------------------

    /// The store of a unit has answers for a core.
    pub fn wake_for_store(&mut self, core: usize, unit: UnitIndex, now: Duration) {
        self.cores[core].turn(now, |core| core.engine.handle_store_wake(unit));
    }

    /// Stores that others want to be looked after since the last call, with the core of each.
    pub fn take_wakes(&self) -> Vec<(usize, UnitIndex)> {
        let cores = self.cores.iter().enumerate();
        let wakes = cores.flat_map(|(index, core)| {
            let woken = core.engine.carrier.wakes.1.try_iter();
            woken.map(move |unit| (index, unit))
        });
        wakes.collect()
    }

    /// Does something that a store has a helper thread do. False where there is nothing.
    pub fn help_store(&mut self, now: Duration) -> bool {
        for core in &mut self.cores {
            let mut begun = core.engine.carrier.begun.iter_mut();
            let Some((part, work)) = begun.find_map(|it| Some((it.part, it.work.take()?))) else {
                continue;
            };
            if let StoreWork::Helper(operation) = work {
                let result = (operation.work)();
                core.turn(now, |core| core.engine.handle_helper_result(part, result));
            }
            return true;
        }
        false
    }

    /// States of units that are to be saved since the last call, each before
    /// [`Host::handle_saved`].
    pub fn take_saves(&mut self) -> Vec<(UnitIndex, Save)> {
        let cores = self.cores.iter_mut();
        let saves = cores.flat_map(|core| core.engine.carrier.to_keep.drain(..));
        saves.collect()
    }

    /// What became of a state of a unit that was to be saved.
    pub fn handle_saved(
        &mut self,
        unit: UnitIndex,
        outcome: &Result<Version, SaveError>,
        now: Duration,
    ) {
        let owner = unit.owner(self.cores.len());
        self.cores[owner].turn(now, |core| core.engine.handle_saved(unit, outcome));
    }

    /// The state of a unit that is in force, as it is saved.
    pub fn state_in_force(&self, unit: UnitIndex) -> Option<Vec<u8>> {
        let owner = unit.owner(self.cores.len());
        let owner = self.cores.get(owner)?.engine.owner(unit)?;
        Some(owner.kept_state())
    }

    // ---- time --------------------------------------------------------------------------------

    /// When [`Host::handle_time`] is due, if ever.
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        self.cores.iter_mut().filter_map(Core::poll_timeout).min()
    }

    /// Time has come.
    pub fn handle_time(&mut self, now: Duration) {
        for core in &mut self.cores {
            core.turn(now, Core::handle_time);
        }
    }
}
