//! Both transports on one unit: sessions of iSCSI and of HyperSCSI on several cores, the logins and state machines
//! that ship at both ends, a wire that loses, repeats, changes, delays and replays frames, links that are cut, a disk
//! that is late, fails and loses what was not flushed, letters to a slow core, saves that fail, an administrator who
//! takes the device away and brings it back, a machine that stops.
//!
//! The host is that of the world of the target, which [`crate::host`] binds to cores. What happens next is drawn, one
//! thing at a time; time passes up to the next deadline of the target, which is never late, and beyond those of
//! clients.
//!
//! * `reads-give-what-was-written`: what was answered is there, also after a crash where it was durable. Nothing of a
//!   session is written once the next one of its client has begun, nor of a client that was preempted, nor of a command
//!   that was answered.
//! * `one-outcome`: each command of a session that stays is answered once, however it ended at the device server.
//! * `reservations-hold`, `reservations-are-as-they-were-made`: who is kept out by a reservation writes nothing, by
//!   either transport; who has made one has it.
//! * `every-status-has-a-reason`, `residuals-and-data-fit`: answers are those that a device server gives.
//! * `clients-are-served`: logins with the right password succeed or are silent; nobody is hung up on.
//! * `nothing-is-left`, `cores-agree`: when all sessions are over.

mod book;
mod caller;
pub(crate) mod carry;
mod talker;
mod target;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Weak;
use std::time::Duration;

use engine::{Save, StateAuthority as _};

use self::book::{Book, Outcomes};
use self::caller::Caller;
use self::talker::Talker;
use self::target::Served;
use self::wire::{Faults, Frame, Wire};
use crate::authority::Authority;
use crate::disk::{Disk, Fate, RequestId};
use crate::flush::Breach as FoundBreach;
use crate::host::Host;
use crate::initiator::Breach;
use crate::letter::Letter;
use crate::network::Arrival;
use crate::plan::UNIT;
use crate::prng::Prng;
use crate::sabotage::Sabotage;
use crate::setup::Settings;

const BLOCKS: usize = 32;
/// Things that happen in a life, before it comes to its end.
const STEPS: usize = 2500;
/// Things that may happen until all is answered, and until all is over.
const LAST_STEPS: usize = 60_000;
/// A connection may be ended by the target if nothing came over it for so long.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a life has seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// What came of commands.
    pub outcomes: Outcomes,
    /// Frames that a fault befell.
    pub harmed: u64,
    /// Sessions that clients began to log in for.
    pub logins: u64,
    /// Crashes of the machine.
    pub crashes: u64,
}

/// A connection of iSCSI.
#[derive(Debug)]
struct Pipe {
    to_target: VecDeque<u8>,
    to_initiator: VecDeque<u8>,
    /// The target has ended it.
    is_closed: bool,
    /// It was cut.
    is_cut: bool,
    /// When something came to the target last.
    last: Duration,
}

#[derive(Debug)]
struct World {
    prng: Prng,
    seed: u64,
    disk: Disk,
    settings: Settings,
    served: Served,
    host: Host,
    now: Duration,
    /// The most that time goes on at once.
    pace: Duration,
    /// Letters under way, by sender and receiver.
    mail: BTreeMap<(usize, usize), VecDeque<Letter>>,
    slow_core: Option<usize>,
    wire: Wire,
    dark_until: Duration,
    talkers: Vec<Talker>,
    callers: Vec<Caller>,
    pipes: BTreeMap<usize, Pipe>,
    links: usize,
    requests: Vec<RequestId>,
    /// Requests that hang, and until when.
    hanging: Vec<(Duration, RequestId)>,
    saves: VecDeque<Save>,
    authority: Authority,
    receipts: Vec<Weak<()>>,
    is_device_away: bool,
    book: Book,
    /// A reset or a preemption is under way, or was when its session was lost.
    resets_at_large: bool,
    /// Of 1000 requests of the disk that fail, and that hang.
    disk_faults: (u32, u32),
    /// Of 1000 steps that are crashes.
    crashes: u32,
    takes_devices: bool,
    manages_tasks: bool,
    is_young: bool,
    report: Report,
    diary: Option<Vec<String>>,
}

/// Lives one seed through.
///
/// # Errors
///
/// A rule was broken.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<Report, FoundBreach> {
    live(World::new(seed, sabotage, false)).0
}

/// The same, with a diary.
pub fn run_noted(
    seed: u64,
    sabotage: Option<Sabotage>,
) -> (Result<Report, FoundBreach>, Vec<String>) {
    live(World::new(seed, sabotage, true))
}

fn live(mut world: World) -> (Result<Report, FoundBreach>, Vec<String>) {
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
    let is_whole = lived.is_ok();
    let seed = world.seed;
    let outcome = lived.unwrap_or_else(|panic| {
        let words = crate::world::words(&*panic);
        Err(Breach::new("no-panic", words))
    });
    let outcome = outcome.map_err(|Breach { rule, detail }| FoundBreach { rule, seed, detail });
    let diary = world.diary.take().unwrap_or_default();
    if !is_whole {
        // What a panic has left half done may panic again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(world))));
    }
    (outcome, diary)
}

impl World {
    fn new(seed: u64, sabotage: Option<Sabotage>, is_noted: bool) -> Self {
        let mut prng = Prng::stream(seed, "hyperscsi");
        let settings = target::settings(&mut prng, sabotage);
        let volatile_cache = prng.chance(700);
        let queue = prng.pick(&[1, 4, 64]).unwrap_or(4);
        let disk = Disk::new(BLOCKS, volatile_cache, queue, Prng::stream(seed, "disk"));
        if let Some(sabotage) = sabotage {
            disk.sabotage(sabotage);
        }
        let mut rate = |most: u32| match prng.chance(500) {
            true => u32::try_from(prng.within(1, u64::from(most))).unwrap_or(0),
            false => 0,
        };
        let faults = Faults {
            loss: rate(100),
            twice: rate(60),
            changed: rate(40),
            old: rate(30),
            disorder: rate(600),
            frame_bytes_max: 9000,
        };
        let (disk_faults, crashes) = ((rate(40), rate(60)), rate(3));
        let host = Host::new(
            &settings,
            &[(disk.clone(), None)],
            &Prng::stream(seed, "host"),
        );
        let talkers = prng.size(1, 3);
        let callers = prng.size(1, 2);
        let talker = |player| Talker::new(player, Prng::stream(seed, &format!("talker {player}")));
        let caller = |player| Caller::new(player, Prng::stream(seed, &format!("caller {player}")));
        let mut world = Self {
            talkers: (0..talkers).map(talker).collect(),
            callers: (talkers..talkers + callers).map(caller).collect(),
            served: Served::draw(&mut prng),
            slow_core: prng.chance(400).then(|| prng.size(0, 2)),
            pace: Duration::from_millis(prng.pick(&[2, 40, 400]).unwrap_or(40)),
            wire: Wire::new(faults, Prng::stream(seed, "wire")),
            takes_devices: prng.chance(300),
            manages_tasks: prng.chance(400),
            prng,
            seed,
            disk,
            settings,
            host,
            now: Duration::from_secs(1),
            mail: BTreeMap::new(),
            dark_until: Duration::ZERO,
            pipes: BTreeMap::new(),
            links: 0,
            requests: Vec::new(),
            hanging: Vec::new(),
            saves: VecDeque::new(),
            authority: Authority::default(),
            receipts: Vec::new(),
            is_device_away: false,
            book: Book::new(BLOCKS, volatile_cache),
            resets_at_large: false,
            disk_faults,
            crashes,
            is_young: true,
            report: Report::default(),
            diary: is_noted.then(Vec::new),
        };
        world.serve();
        world
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(diary) = &mut self.diary {
            diary.push(format!("{:?} {}", self.now, line()));
        }
    }

    fn live(&mut self) -> Result<Report, Breach> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.finish()?;
        self.end()?;
        self.disk.crash();
        self.book.crash();
        self.book.check(&self.disk.content())?;
        self.report.outcomes = self.book.outcomes;
        self.report.harmed = self.wire.harmed;
        Ok(self.report)
    }

    // ---- what happens ------------------------------------------------------------------------

    fn step(&mut self) -> Result<(), Breach> {
        match self.prng.below(if self.is_young { 100 } else { 72 }) {
            0..25 => self.bring_frames()?,
            25..38 => self.deliver(),
            38..52 => self.bring_bytes()?,
            52..61 => self.end_request(),
            61..71 => self.pass_time()?,
            71 => self.end_save(),
            72..86 => self.ask(),
            86..89 => self.connect(),
            89..92 => self.reserve(),
            92 => self.manage(),
            93 if self.prng.chance(250) => self.leave()?,
            94 if self.prng.chance(200) => self.vanish(),
            95 if self.prng.chance(100) => self.darken(),
            96 if self.prng.chance(200) && self.takes_devices => self.take_device(),
            97 if self.prng.chance(self.crashes * 10) => self.crash(),
            _ => self.bring_frames()?,
        }
        self.carry();
        match self.host.broken() {
            Some(what) => Err(Breach::new("nothing-is-broken", what.to_owned())),
            None => Ok(()),
        }
    }

    /// Takes what leaves the target and its clients.
    fn carry(&mut self) {
        for (from, to, letter) in self.host.take_letters() {
            self.mail.entry((from, to)).or_default().push_back(letter);
        }
        let saves = self.host.take_saves().into_iter();
        self.saves.extend(saves.map(|(_, save)| save));
        for (station, bytes) in self.host.take_frames(self.now) {
            let is_to_target = false;
            self.wire.send(Frame {
                station,
                is_to_target,
                bytes,
            });
        }
        for talker in &mut self.talkers {
            let (station, is_to_target) = (talker.station, true);
            for bytes in talker.take_frames(self.now) {
                self.wire.send(Frame {
                    station,
                    is_to_target,
                    bytes,
                });
            }
        }
        for caller in &mut self.callers {
            let bytes = caller.take_output();
            if let Some(pipe) = caller.link.and_then(|link| self.pipes.get_mut(&link)) {
                pipe.to_target.extend(bytes);
            }
        }
        for link in self.host.take_closed() {
            if let Some(pipe) = self.pipes.get_mut(&link) {
                pipe.is_closed = true;
            }
        }
        let arrived = self.disk.take_arrivals();
        self.requests.extend(arrived);
        // What a preemption or a reset takes along is not answered over iSCSI.
        if self.book.aborts_others() || self.resets_at_large {
            self.callers.iter_mut().for_each(Caller::allow_vanishing);
        }
    }

    /// Some frames arrive.
    fn bring_frames(&mut self) -> Result<(), Breach> {
        for _ in 0..self.prng.size(1, 6) {
            let Some(frame) = self.wire.receive() else {
                return Ok(());
            };
            if frame.is_to_target {
                self.host
                    .handle_frame(frame.station, &frame.bytes, self.now);
            } else {
                let meant = self.talkers.iter_mut();
                let mut meant = meant.filter(|talker| talker.station == frame.station);
                if let Some(talker) = meant.next() {
                    talker.handle_frame(self.now, &frame.bytes, &mut self.book)?;
                }
            }
        }
        Ok(())
    }

    /// A letter comes. Those of one core to another stay in order.
    fn deliver(&mut self) {
        let with_mail = self.mail.iter().filter(|(_, mail)| !mail.is_empty());
        let with_mail: Vec<_> = with_mail.map(|(between, _)| *between).collect();
        let Some((from, to)) = self.prng.pick(&with_mail) else {
            return;
        };
        if self.slow_core == Some(to) && self.is_young && self.prng.chance(900) {
            return;
        }
        let letter = self.mail.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        if let Some(letter) = letter {
            self.host.deliver(to, letter, self.now);
        }
    }

    /// The disk is done with a request, or keeps it for a while.
    fn end_request(&mut self) {
        let due = self
            .hanging
            .iter()
            .position(|(until, _)| *until <= self.now);
        let id = match due {
            Some(at) => self.hanging.swap_remove(at).1,
            None if self.requests.is_empty() => return,
            None => {
                let at = self.prng.size(0, self.requests.len() - 1);
                let id = self.requests.swap_remove(at);
                if self.is_young && self.prng.chance(self.disk_faults.1) {
                    let until = self.now + Duration::from_millis(self.prng.within(1, 8000));
                    self.hanging.push((until, id));
                    return;
                }
                id
            }
        };
        let fate = match self.is_young && self.prng.chance(self.disk_faults.0) {
            false => Fate::Good,
            true => match self.prng.below(3) {
                0 => Fate::Failed,
                1 => Fate::Torn,
                _ => Fate::Away,
            },
        };
        let what = self.disk.describe(id);
        self.note(|| format!("{what} ends: {fate:?}"));
        if let Some(core) = self.disk.complete(id, fate) {
            self.host.wake_for_store(core, UNIT, self.now);
        }
    }

    fn end_save(&mut self) {
        let Some(save) = self.saves.pop_front() else {
            return;
        };
        let fails = self.is_young && self.prng.chance(100);
        let outcome = match fails {
            false => self.authority.save(&save),
            true => self.authority.save_uncertainly(&save),
        };
        self.host.handle_saved(UNIT, &outcome, self.now);
    }

    /// Time goes on, some deadlines far.
    fn pass_time(&mut self) -> Result<(), Breach> {
        for _ in 0..self.prng.size(1, 6) {
            self.now = self.next_moment();
            self.wire.is_dark = self.is_young && self.now < self.dark_until;
            self.host.handle_time(self.now);
            for talker in &mut self.talkers {
                if talker.deadline().is_some_and(|at| at <= self.now) {
                    talker.handle_time(self.now, &mut self.book)?;
                }
            }
            self.carry();
        }
        Ok(())
    }

    /// The next deadline of anybody, or a moment beside it. The target is never late; clients may be.
    fn next_moment(&mut self) -> Duration {
        let of_host = self.host.poll_timeout();
        let deadlines = self.talkers.iter().filter_map(Talker::deadline);
        let hanging = self.hanging.iter().map(|(until, _)| *until);
        let next = deadlines.chain(hanging).chain(of_host).min();
        let pace = u64::try_from(self.pace.as_micros()).unwrap_or(1);
        let drawn = self.now + Duration::from_micros(self.prng.within(1, pace));
        let most = of_host.map_or(drawn, |at| drawn.min(at)).max(self.now);
        let has_mail = self.mail.values().any(|mail| !mail.is_empty());
        let is_quiet = self.wire.is_empty() && self.requests.is_empty() && !has_mail;
        match next {
            Some(next) if is_quiet && !self.is_young => next.max(self.now),
            Some(next) if self.prng.chance(700) => next.clamp(self.now, most),
            Some(_) | None => most,
        }
    }

    // ---- connections of iSCSI ----------------------------------------------------------------

    /// Bytes go a step on some connection.
    fn bring_bytes(&mut self) -> Result<(), Breach> {
        let links: Vec<usize> = self.pipes.keys().copied().collect();
        let Some(link) = self.prng.pick(&links) else {
            return Ok(());
        };
        self.bring_to_target(link);
        let sent = self
            .host
            .take_output(link, self.prng.size(1, 4096), self.now);
        let Some(pipe) = self.pipes.get_mut(&link) else {
            return Ok(());
        };
        if !pipe.is_cut {
            pipe.to_initiator.extend(sent);
        }
        let count = match pipe.to_initiator.len() {
            0 => 0,
            there => self.prng.size(1, there),
        };
        let bytes: Vec<u8> = pipe.to_initiator.drain(..count).collect();
        let is_over = pipe.is_closed && pipe.to_initiator.is_empty();
        let was_silent = self.now.saturating_sub(pipe.last) > PATIENCE;
        if is_over {
            self.pipes.remove(&link);
        }
        let mut callers = self.callers.iter_mut();
        let Some(caller) = callers.find(|caller| caller.link == Some(link)) else {
            return Ok(());
        };
        let has_left = caller.hear(&bytes, &mut self.book)?;
        if is_over && !has_left && !was_silent && !caller.is_leaving() {
            let detail = format!("link {link} of {}", caller.state());
            return Err(Breach::new("clients-are-served", detail));
        }
        if is_over || has_left {
            caller.vanish(&mut self.book);
            if let Some(pipe) = self.pipes.get_mut(&link) {
                pipe.is_cut = true;
            }
        }
        Ok(())
    }

    fn bring_to_target(&mut self, link: usize) {
        let appetite = self.host.appetite(link);
        let Some(pipe) = self.pipes.get_mut(&link).filter(|_| appetite > 0) else {
            return;
        };
        if pipe.is_closed {
            return;
        }
        if pipe.is_cut {
            self.host.arrive(link, Arrival::End, self.now);
            return;
        }
        let there = pipe.to_target.len().min(appetite);
        if there > 0 {
            let count = self.prng.size(1, there);
            let bytes: Vec<u8> = pipe.to_target.drain(..count).collect();
            pipe.last = self.now;
            self.host.arrive(link, Arrival::Bytes(bytes), self.now);
        }
    }

    // ---- clients -----------------------------------------------------------------------------

    fn connect(&mut self) {
        let count = self.talkers.len();
        let at = self.prng.size(0, count + self.callers.len() - 1);
        if let Some(talker) = self.talkers.get_mut(at).filter(|talker| talker.is_away()) {
            talker.connect(self.now);
            self.report.logins += 1;
            self.note(|| format!("player {at} connects"));
        } else if let Some(caller) = self.callers.get_mut(at.wrapping_sub(count))
            && caller.is_away()
        {
            let link = self.links;
            self.links += 1;
            self.report.logins += 1;
            let pipe = Pipe {
                to_target: VecDeque::new(),
                to_initiator: VecDeque::new(),
                is_closed: false,
                is_cut: false,
                last: self.now,
            };
            self.pipes.insert(link, pipe);
            caller.log_in(self.now, link);
            self.host.accept(link, self.now);
            self.note(|| format!("player {at} connects: link {link}"));
        }
    }

    fn ask(&mut self) {
        let count = self.talkers.len();
        let at = self.prng.size(0, count + self.callers.len() - 1);
        let operation = self.book.draw(&mut self.prng);
        self.give(at, operation);
    }

    /// A player gives this command, if it can.
    fn give(&mut self, at: usize, operation: crate::initiator::Operation) {
        let count = self.talkers.len();
        let line = self.diary.is_some().then(|| format!("{operation:?}"));
        if let Some(talker) = self.talkers.get_mut(at).filter(|talker| talker.can_ask()) {
            talker.ask(self.now, &mut self.book, operation);
        } else if let Some(caller) = self.callers.get_mut(at.wrapping_sub(count))
            && caller.can_ask()
        {
            let may_vanish = self.resets_at_large || self.book.aborts_others();
            caller.ask(&mut self.book, operation, may_vanish);
        } else {
            return;
        }
        self.note(|| format!("player {at}: {}", line.unwrap_or_default()));
    }

    fn reserve(&mut self) {
        let at = self
            .prng
            .size(0, self.talkers.len() + self.callers.len() - 1);
        if let Some(operation) = self.book.draw_reservation(at, &mut self.prng) {
            self.give(at, operation);
        }
    }

    /// Task management. What it does to others is at large from then on: it may come to pass late.
    fn manage(&mut self) {
        let count = self.talkers.len();
        let at = self.prng.size(0, count + self.callers.len() - 1);
        if !self.manages_tasks || !self.prng.chance(300) {
            return;
        }
        if let Some(talker) = self.talkers.get_mut(at) {
            talker.manage(self.now, &mut self.book);
            self.resets_at_large = true;
        } else if let Some(caller) = self.callers.get_mut(at - count) {
            self.resets_at_large |= caller.manage(&mut self.book);
        }
        self.note(|| format!("player {at} manages tasks"));
    }

    /// A client ends its session.
    fn leave(&mut self) -> Result<(), Breach> {
        let count = self.talkers.len();
        let at = self.prng.size(0, count + self.callers.len() - 1);
        self.note(|| format!("player {at} leaves"));
        if let Some(talker) = self.talkers.get_mut(at) {
            return talker.leave(self.now, &mut self.book);
        }
        if let Some(caller) = self.callers.get_mut(at - count) {
            caller.log_out();
        }
        Ok(())
    }

    /// A client is gone, with all it had under way.
    fn vanish(&mut self) {
        let count = self.talkers.len();
        let at = self.prng.size(0, count + self.callers.len() - 1);
        self.note(|| format!("player {at} vanishes"));
        self.resets_at_large |= self.book.aborts_others();
        if let Some(talker) = self.talkers.get_mut(at) {
            talker.vanish(&mut self.book);
        } else if let Some(caller) = self.callers.get_mut(at - count) {
            if let Some(pipe) = caller.link.and_then(|link| self.pipes.get_mut(&link)) {
                pipe.is_cut = true;
            }
            caller.vanish(&mut self.book);
        }
    }

    /// Nothing gets through for a while.
    fn darken(&mut self) {
        self.dark_until = self.now + Duration::from_millis(self.prng.within(1, 3000));
        self.note(|| "it goes dark".to_owned());
    }

    // ---- the target --------------------------------------------------------------------------

    fn serve(&mut self) {
        let groups = match self.is_device_away {
            true => &self.served.empty,
            false => &self.served.whole,
        };
        let place = (&self.served.place, self.served.sizes);
        let receipt = self
            .host
            .set_groups((&self.served.server, groups), place, self.now);
        self.receipts.push(receipt);
    }

    fn take_device(&mut self) {
        self.is_device_away = !self.is_device_away;
        self.book.has_aborts = true;
        let is_away = self.is_device_away;
        self.note(|| format!("the device is away: {is_away}"));
        self.serve();
    }

    /// The machine of the target stops and starts again.
    fn crash(&mut self) {
        self.note(|| "the machine stops".to_owned());
        self.report.crashes += 1;
        self.disk.crash();
        self.requests.clear();
        self.hanging.clear();
        self.mail.clear();
        self.saves.clear();
        // The authority of this world always answers.
        let saved = self.authority.load().ok().flatten();
        let prng = Prng::stream(self.seed, &format!("host {}", self.report.crashes));
        self.host = Host::new(&self.settings, &[(self.disk.clone(), saved)], &prng);
        self.book.crash();
        for caller in &mut self.callers {
            caller.vanish(&mut self.book);
        }
        self.pipes.clear();
        self.receipts.clear();
        self.serve();
    }

    // ---- the end -----------------------------------------------------------------------------

    /// All that was asked is answered.
    fn finish(&mut self) -> Result<(), Breach> {
        self.note(|| "all are to finish".to_owned());
        self.is_young = false;
        self.wire.heal();
        for _ in 0..LAST_STEPS {
            self.step()?;
            let talkers = self.talkers.iter().any(Talker::is_waiting);
            if !talkers && !self.callers.iter().any(Caller::is_waiting) {
                return Ok(());
            }
        }
        let talkers = self.talkers.iter().filter(|one| one.is_waiting());
        let callers = self.callers.iter().filter(|one| one.is_waiting());
        let open = talkers.map(Talker::state).chain(callers.map(Caller::state));
        let open: Vec<String> = open.collect();
        Err(Breach::new("one-outcome", open.join("; ")))
    }

    /// All clients go, and nothing is left of them.
    fn end(&mut self) -> Result<(), Breach> {
        for talker in &mut self.talkers {
            talker.vanish(&mut self.book);
        }
        for caller in &mut self.callers {
            caller.vanish(&mut self.book);
        }
        self.pipes.values_mut().for_each(|pipe| pipe.is_cut = true);
        self.host.end_hyperscsi(self.now);
        let mut left = None;
        for _ in 0..LAST_STEPS {
            self.step()?;
            let has_mail = self.mail.values().any(|mail| !mail.is_empty());
            let is_busy = has_mail || !self.requests.is_empty() || !self.hanging.is_empty();
            if is_busy || !self.saves.is_empty() || !self.wire.is_empty() {
                continue;
            }
            left = self.host.leftovers();
            if left.is_none() && self.receipts.iter().all(|one| one.strong_count() == 0) {
                return self.check_the_end();
            }
        }
        let receipts = self.receipts.iter().filter(|one| one.strong_count() > 0);
        let detail = format!("{left:?}, {} receipts", receipts.count());
        Err(Breach::new("nothing-is-left", detail))
    }

    fn check_the_end(&mut self) -> Result<(), Breach> {
        if let Some(what) = self.host.disagreement() {
            return Err(Breach::new("cores-agree", what));
        }
        self.book.end_all();
        self.book.check(&self.disk.content())
    }
}
