//! More than one of each thing: targets, units, numbers of a unit, initiators, sessions and transports, on several
//! cores. The logins and state machines that ship at both ends, a wire that loses, repeats, changes, delays and
//! replays frames, links that are cut, disks that are late, fail, hang, go away and lose what was not flushed, some of
//! two parts or with a log, letters to a slow core, saves that fail, an administrator who moves numbers, changes views,
//! media and quotas, a machine that stops.
//!
//! What happens next is drawn, one thing at a time; time passes up to the next deadline of the target, which is never
//! late, and beyond those of clients. A life has several parts. After each, all is answered, the faults stop, and
//! nothing happens for a while ([`mod@quiet`]).
//!
//! * `reads-give-what-was-written`: what was answered is there, on the unit that was meant and on no other, also after
//!   a crash where it was durable. Nothing of a session is written once the next one of its client has begun, nor of a
//!   client that was preempted, nor of a command that was answered.
//! * `one-outcome`: each command of a session that stays is answered once, unless somebody has reset its unit,
//!   preempted its session or taken its number.
//! * `an-attention-comes-once`: not more often than there was a reason for.
//! * `what-is-preempted-is-over`: no write of it is in the store when PREEMPT AND ABORT ends with GOOD.
//! * `an-ejected-medium-is-left-alone`, `a-change-reaches-every-session`.
//! * `every-status-has-a-reason`, `residuals-and-data-fit`: what the reference does not judge of answers. No read fails
//!   for a part of a composition of which it has no blocks.
//! * `clients-are-served`: logins with the right password succeed or get no answer; no client is disconnected.
//! * `a-full-quota-takes-no-more`: once all cores know that a quota is used up, no block gets space that had none.
//! * `a-held-medium-is-left-alone`: nothing reads or writes it from when the hold is reported until it is released.
//! * `the-reference-allows-it`: the crate `reference`, which is written from the standards, allows each answer of a
//!   unit, up to where it cannot follow ([`mod@judge`]): reservations, unit attentions, media that are out or kept in,
//!   write protection.
//! * `who-is-idle-does-nothing`: no request, no letter, no timer that is due at once.
//! * `nothing-is-left`, `cores-agree`: when all is quiet, and when all sessions are over.

mod administration;
mod administrator;
mod attentions;
mod book;
mod books;
mod caller;
mod client;
mod exporter;
mod judge;
mod known;
mod logs;
mod orders;
mod outcomes;
mod quiet;
mod quota;
mod quotas;
mod reasons;
mod requests;
mod rivals;
mod seat;
mod served;
mod stores;
mod talker;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Weak;
use std::time::Duration;

use self::administrator::Administrator;
use self::book::{Book, Feud, key_of};
use self::books::Books;
use self::caller::Caller;
use self::client::{Client, FAIR};
use self::exporter::Exporter;
pub use self::judge::Score;
use self::logs::Log;
pub use self::outcomes::Outcomes;
use self::quota::Quota;
use self::rivals::Rivals;
use self::seat::{Door, Seat};
use self::served::Served;
use self::stores::Store;
use self::talker::Talker;
use self::wire::{Faults, Frame, Wire};
use crate::disk::BLOCK_BYTES;
use crate::flush::Breach as FoundBreach;
use crate::host::Host;
use crate::initiator::{Breach, Operation};
use crate::ledger::WriteId;
use crate::letter::Letter;
use crate::network::Arrival;
use crate::prng::Prng;
use crate::sabotage::Sabotage;
use crate::setup::Settings;

/// Parts of a life, and things that happen in each before all comes to rest.
const PARTS: usize = 3;
const STEPS: usize = 1200;
/// Of units on which requests of NBD have more than one part.
const BLOCKS_OF_LARGE: usize = 5000;
/// A connection may be ended by the target if nothing came over it for so long.
const PATIENCE: Duration = Duration::from_secs(4);

/// A bug on purpose; no seed draws one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Planted {
    /// In the target or in its disks.
    Target(Sabotage),
    /// A piece of what the target says over TCP is lost now and then.
    LosesBytes,
    /// The device server knows of no reservations.
    NoReservations,
}

/// What a life has seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// What came of commands.
    pub outcomes: Outcomes,
    /// What of it the reference has judged.
    pub score: Score,
    /// Frames that a fault befell.
    pub harmed: u64,
    /// Sessions that clients began to log in for.
    pub logins: u64,
    /// Crashes of the machine.
    pub crashes: u64,
    /// Changes of what players see.
    pub changes: u64,
    /// Times that a store went away.
    pub outages: u64,
    /// Times that all cores knew that a quota was used up.
    pub full: u64,
    /// Records of logs that starts have carried out again.
    pub replayed: u64,
    /// Timers that have fired while nothing was under way.
    pub idle_wakes: u64,
    /// How long it took, for those inside.
    pub simulated: Duration,
}

/// A connection.
#[derive(Debug)]
struct Pipe {
    to_target: VecDeque<u8>,
    to_client: VecDeque<u8>,
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
    stores: Vec<Store>,
    settings: Settings,
    served: Served,
    host: Host,
    now: Duration,
    /// The most that time goes on at once.
    pace: Duration,
    /// Letters under way, by sender and receiver, each with its number. The last sender is the administrator.
    mail: BTreeMap<(usize, usize), VecDeque<(u64, Letter)>>,
    letters: u64,
    slow_core: Option<usize>,
    wire: Wire,
    dark_until: Duration,
    clients: Vec<Box<dyn Client>>,
    pipes: BTreeMap<usize, Pipe>,
    links: usize,
    receipts: Vec<Weak<()>>,
    administrator: Administrator,
    quota: Option<Quota>,
    rivals: Option<Rivals>,
    books: Books,
    /// Of 1000 steps that are crashes.
    crashes: u32,
    planted: Option<Planted>,
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
pub fn run(seed: u64, planted: Option<Planted>) -> Result<Report, FoundBreach> {
    live(World::new(seed, planted, false)).0
}

/// The same, with a diary.
pub fn run_noted(
    seed: u64,
    planted: Option<Planted>,
) -> (Result<Report, FoundBreach>, Vec<String>) {
    live(World::new(seed, planted, true))
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
    fn new(seed: u64, planted: Option<Planted>, is_noted: bool) -> Self {
        let mut prng = Prng::stream(seed, "many");
        let sabotage = match planted {
            Some(Planted::Target(sabotage)) => Some(sabotage),
            Some(Planted::LosesBytes | Planted::NoReservations) | None => None,
        };
        let plan = served::draw_plan(&mut prng);
        let mut seats = served::draw_seats(&plan, &mut prng);
        let mut settings = served::settings(plan.clone(), &mut prng, sabotage);
        let blocks = draw_blocks(&mut seats, &mut prng);
        settings.pool_bytes = settings.pool_bytes.max(pool_bytes_min(blocks));
        let quota = Quota::draw(seed, &plan, blocks);
        settings.fence_waits += u32::from(quota.is_some());
        let draw = |unit| Store::draw(seed, (unit, blocks), sabotage);
        let stores: Vec<Store> = plan.units().map(draw).collect();
        let book = |(store, is_removable): (&Store, &bool)| {
            let mut book = Book::new(store.blocks, store.has_volatile_cache, *is_removable);
            book.faults = store.faults();
            book
        };
        let of_units = stores.iter().zip(&plan.removable).map(book).collect();
        let faults = draw_faults(&mut prng);
        let crashes = rate(&mut prng, 3);
        let units = stores.iter().map(|store| (store.disk.clone(), None));
        let units: Vec<_> = units.collect();
        let host = Host::new(&settings, &units, &Prng::stream(seed, "host"));
        let seated = seats.iter().enumerate();
        let clients = seated.map(|(player, seat)| sit_down((seed, player), seat, planted));
        let mut world = Self {
            clients: clients.collect(),
            served: Served::draw(&mut prng),
            slow_core: prng.chance(400).then(|| prng.size(0, 2)),
            pace: Duration::from_millis(prng.pick(&[2, 40, 400]).unwrap_or(40)),
            wire: Wire::new(faults, Prng::stream(seed, "wire")),
            manages_tasks: prng.chance(600),
            administrator: Administrator::draw(&mut prng),
            quota,
            rivals: Rivals::draw(seed, &seats),
            books: Books::new(of_units, plan, seats),
            prng,
            seed,
            stores,
            settings,
            host,
            now: Duration::from_secs(1),
            mail: BTreeMap::new(),
            letters: 0,
            dark_until: Duration::ZERO,
            pipes: BTreeMap::new(),
            links: 0,
            receipts: Vec::new(),
            crashes,
            planted,
            is_young: true,
            report: Report::default(),
            diary: is_noted.then(Vec::new),
        };
        world.books.notes = is_noted.then(Vec::new);
        world.note_plan();
        world.serve();
        world
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(diary) = &mut self.diary {
            diary.push(format!("{:?} {}", self.now, line()));
        }
    }

    fn note_plan(&mut self) {
        let plan = self.books.plan.clone();
        self.note(|| format!("the plan: {plan:?}"));
        let seats = self.books.seats.clone();
        self.note(|| format!("players: {seats:?}"));
    }

    fn live(&mut self) -> Result<Report, Breach> {
        for _ in 0..PARTS {
            for _ in 0..STEPS {
                self.step()?;
            }
            self.come_to_rest()?;
            self.idle()?;
        }
        self.end()?;
        for (store, book) in self.stores.iter_mut().zip(&mut self.books.units) {
            store.crash(&mut self.prng);
            self.report.replayed += store.log.as_ref().map_or(0, Log::replayed);
            book.crash();
            book.check(&store.disk.content())?;
            self.report.score.add(book.judge.score);
            self.books.outcomes.preempted += book.preempted;
        }
        self.books.check_judges()?;
        self.report.outcomes = self.books.outcomes;
        self.report.harmed = self.wire.harmed;
        self.report.simulated = self.now;
        Ok(self.report)
    }

    // ---- what happens ------------------------------------------------------------------------

    fn step(&mut self) -> Result<(), Breach> {
        match self.prng.below(if self.is_young { 100 } else { 72 }) {
            0..20 => self.bring_frames()?,
            20..34 => self.deliver(),
            34..52 => self.bring_bytes()?,
            52..62 => self.end_request(),
            62..70 => self.pass_time()?,
            70..72 => self.end_save(),
            72..89 => self.ask(),
            89..92 => self.connect()?,
            92 if self.manages_tasks && self.prng.chance(400) => self.manage(),
            93 if self.prng.chance(250) => self.leave()?,
            94 if self.prng.chance(200) => self.vanish(),
            95 if self.prng.chance(100) => self.darken(),
            96 => self.begin_outage(),
            97 => self.administer(),
            98 if self.prng.chance(self.crashes * 10) => self.crash(),
            _ => self.bring_bytes()?,
        }
        self.feud();
        self.carry();
        self.check_preempted()?;
        self.check_administration()?;
        self.books.check_judges()?;
        match self.host.broken() {
            Some(what) => Err(Breach::new("nothing-is-broken", what.to_owned())),
            None => Ok(()),
        }
    }

    /// Nothing of what was preempted is in a store when its preemption is answered.
    fn check_preempted(&mut self) -> Result<(), Breach> {
        let mut preempted = self.books.preempted.drain(..);
        let is_left = |(unit, id): &(usize, WriteId)| self.stores[*unit].disk.is_writing(*id);
        preempted.find(is_left).map_or(Ok(()), |(unit, id)| {
            let detail = format!("write {id} is still in the store of unit {unit}");
            Err(Breach::new("what-is-preempted-is-over", detail))
        })
    }

    /// Takes what leaves the target and its clients.
    fn carry(&mut self) {
        self.help_stores();
        for (from, to, letter) in self.host.take_letters() {
            self.post(from, to, letter);
        }
        for (unit, save) in self.host.take_saves() {
            self.stores[unit.as_usize()].saves.push_back(save);
        }
        for (station, bytes) in self.host.take_frames(self.now) {
            let is_to_target = false;
            self.wire.send(Frame {
                station,
                is_to_target,
                bytes,
            });
        }
        for client in &mut self.clients {
            let frames = client.take_frames(self.now);
            for (station, bytes) in client.station().into_iter().flat_map(|station| {
                let with = move |bytes| (station, bytes);
                frames.iter().cloned().map(with).collect::<Vec<_>>()
            }) {
                self.wire.send(Frame {
                    station,
                    is_to_target: true,
                    bytes,
                });
            }
            let bytes = client.take_output();
            if let Some(pipe) = client.link().and_then(|link| self.pipes.get_mut(&link)) {
                pipe.to_target.extend(bytes);
            }
        }
        for link in self.host.take_closed() {
            if let Some(pipe) = self.pipes.get_mut(&link) {
                pipe.is_closed = true;
            }
            let client = self.clients.iter().position(|one| one.link() == Some(link));
            client
                .into_iter()
                .for_each(|player| self.books.note_closed(player));
        }
        for store in &mut self.stores {
            store.requests.extend(store.disk.take_arrivals());
        }
        for client in &mut self.clients {
            client.allow_vanishing(&self.books);
        }
        if let (Some(diary), Some(notes)) = (&mut self.diary, &mut self.books.notes) {
            diary.extend(notes.drain(..).map(|line| format!("{:?} {line}", self.now)));
        }
    }

    fn post(&mut self, from: usize, to: usize, letter: Letter) {
        self.letters += 1;
        self.note(|| {
            let words = format!("core {from} to core {to}: {letter:?}");
            words.chars().take(100).collect()
        });
        let between = self.mail.entry((from, to)).or_default();
        between.push_back((self.letters, letter));
    }

    /// Some frames arrive.
    fn bring_frames(&mut self) -> Result<(), Breach> {
        for _ in 0..self.prng.size(1, 6) {
            if !self.bring_frame()? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn bring_frame(&mut self) -> Result<bool, Breach> {
        let Some(frame) = self.wire.receive() else {
            return Ok(false);
        };
        if frame.is_to_target {
            self.host
                .handle_frame(frame.station, &frame.bytes, self.now);
            return Ok(true);
        }
        let mut clients = self.clients.iter_mut();
        let meant = clients.find(|client| client.station() == Some(frame.station));
        if let Some(client) = meant {
            client.handle_frame(self.now, &frame.bytes, &mut self.books)?;
        }
        Ok(true)
    }

    /// A letter comes.
    fn deliver(&mut self) {
        let between: Vec<_> = self.due_mail().collect();
        let Some((from, to)) = self.prng.pick(&between) else {
            return;
        };
        if self.slow_core == Some(to) && self.is_young && self.prng.chance(900) {
            return;
        }
        let letter = self.mail.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        if let Some((_, letter)) = letter {
            self.host.deliver(to, letter, self.now);
        }
    }

    /// Whose letters may come. Those of one core to another stay in order, and those of the administrator overtake
    /// nobody's.
    fn due_mail(&self) -> impl Iterator<Item = (usize, usize)> {
        let first = |mail: &VecDeque<(u64, Letter)>| mail.front().map(|(number, _)| *number);
        let administrator = self.settings.cores;
        let heads = self.mail.iter().filter_map(move |(between, mail)| {
            let number = first(mail)?;
            Some((*between, number))
        });
        let is_due = move |((from, to), number): &((usize, usize), u64)| {
            let mut to_it = self.mail.iter().filter(|((_, other), _)| other == to);
            *from < administrator
                || to_it.all(|(_, mail)| first(mail).is_none_or(|other| other >= *number))
        };
        heads.filter(is_due).map(|(between, _)| between)
    }

    /// Time goes on, some deadlines far.
    fn pass_time(&mut self) -> Result<(), Breach> {
        for _ in 0..self.prng.size(1, 6) {
            self.now = self.next_moment();
            self.handle_time()?;
        }
        Ok(())
    }

    fn handle_time(&mut self) -> Result<(), Breach> {
        self.wire.is_dark = self.is_young && self.now < self.dark_until;
        self.host.handle_time(self.now);
        for client in &mut self.clients {
            if client.deadline().is_some_and(|at| at <= self.now) {
                client.handle_time(self.now, &mut self.books)?;
            }
        }
        self.carry();
        Ok(())
    }

    /// The next deadline of anybody.
    fn next_deadline(&mut self) -> Option<Duration> {
        let of_host = self.host.poll_timeout();
        let of_clients = self.clients.iter().filter_map(|client| client.deadline());
        let of_stores = self.stores.iter().filter_map(Store::deadline);
        of_clients.chain(of_stores).chain(of_host).min()
    }

    /// The next deadline of anybody, or a moment beside it. The target is never late; clients may be.
    fn next_moment(&mut self) -> Duration {
        let of_host = self.host.poll_timeout();
        let next = self.next_deadline();
        let pace = u64::try_from(self.pace.as_micros()).unwrap_or(1);
        let drawn = self.now + Duration::from_micros(self.prng.within(1, pace));
        let most = of_host.map_or(drawn, |at| drawn.min(at)).max(self.now);
        let is_quiet = self.wire.is_empty() && !self.has_requests() && !self.has_mail();
        match next {
            Some(next) if is_quiet && !self.is_young => next.max(self.now),
            Some(next) if self.prng.chance(700) => next.clamp(self.now, most),
            Some(_) | None => most,
        }
    }

    fn has_mail(&self) -> bool {
        self.mail.values().any(|mail| !mail.is_empty())
    }

    // ---- connections -------------------------------------------------------------------------

    /// Bytes go a step on some connection.
    fn bring_bytes(&mut self) -> Result<(), Breach> {
        let links: Vec<usize> = self.pipes.keys().copied().collect();
        match self.prng.pick(&links) {
            Some(link) => self.bring_bytes_of(link).map(|_| ()),
            None => Ok(()),
        }
    }

    /// False if none were there.
    fn bring_bytes_of(&mut self, link: usize) -> Result<bool, Breach> {
        let mut has_moved = self.bring_to_target(link);
        let limit = match self.prng.chance(300) {
            true => usize::MAX,
            false => self.prng.size(1, 4096),
        };
        let Some(pipe) = self.pipes.get_mut(&link) else {
            return Ok(has_moved);
        };
        if pipe.is_cut {
            self.host.fail_output(link, self.now);
        } else {
            let bytes = self.host.take_output(link, limit, self.now);
            let is_lost = self.planted == Some(Planted::LosesBytes) && self.prng.chance(20);
            pipe.to_client
                .extend(bytes.into_iter().filter(|_| !is_lost));
        }
        let count = match pipe.to_client.len() {
            0 => 0,
            there => self.prng.size(1, there),
        };
        let bytes: Vec<u8> = pipe.to_client.drain(..count).collect();
        has_moved |= count > 0;
        let is_over = pipe.is_closed && pipe.to_client.is_empty();
        let was_silent = self.now.saturating_sub(pipe.last) > PATIENCE;
        if is_over {
            self.pipes.remove(&link);
        }
        let player = self.clients.iter().position(|one| one.link() == Some(link));
        let Some(player) = player else {
            return Ok(has_moved || is_over);
        };
        let client = &mut self.clients[player];
        let has_left = client.hear(&bytes, &mut self.books)?;
        let may_end = was_silent || client.is_leaving() || self.books.may_end(player);
        if is_over && !has_left && !may_end {
            let detail = format!("link {link} of {}", client.state());
            return Err(Breach::new(FAIR, detail));
        }
        if is_over || has_left {
            client.vanish(&mut self.books);
            if let Some(pipe) = self.pipes.get_mut(&link) {
                pipe.is_cut = true;
            }
            self.note(|| format!("player {player} has left link {link}"));
        }
        Ok(has_moved || is_over)
    }

    fn bring_to_target(&mut self, link: usize) -> bool {
        let (appetite, is_exact) = (self.host.appetite(link), self.host.wants_all(link));
        let Some(pipe) = self.pipes.get_mut(&link).filter(|_| appetite > 0) else {
            return false;
        };
        if pipe.is_closed {
            return false;
        }
        if pipe.is_cut {
            self.host.arrive(link, Arrival::End, self.now);
            return true;
        }
        let there = pipe.to_target.len().min(appetite);
        if there == 0 || is_exact && there < appetite {
            return false;
        }
        let count = match is_exact {
            true => there,
            false => self.prng.size(1, there),
        };
        let bytes: Vec<u8> = pipe.to_target.drain(..count).collect();
        pipe.last = self.now;
        self.host.arrive(link, Arrival::Bytes(bytes), self.now);
        true
    }

    // ---- clients -----------------------------------------------------------------------------

    fn draw_player(&mut self) -> usize {
        self.prng.size(0, self.clients.len() - 1)
    }

    fn connect(&mut self) -> Result<(), Breach> {
        let player = self.draw_player();
        let client = &mut self.clients[player];
        if !client.is_away() {
            return Ok(());
        }
        let link = self.links;
        self.books.open_session(player);
        client.connect(self.now, link)?;
        self.report.logins += 1;
        if client.link().is_some() {
            self.links += 1;
            let pipe = Pipe {
                to_target: VecDeque::new(),
                to_client: VecDeque::new(),
                is_closed: false,
                is_cut: false,
                last: self.now,
            };
            self.pipes.insert(link, pipe);
            match client.is_nbd() {
                true => self.host.accept_nbd(link, self.now),
                false => self.host.accept(link, self.now),
            }
        }
        self.note(|| format!("player {player} connects, by link {link} if it takes one"));
        Ok(())
    }

    /// A player and one of its numbers.
    fn draw_door(&mut self) -> Option<(usize, u16)> {
        let player = self.draw_player();
        let number = self.prng.pick(&self.books.numbers(player))?;
        Some((player, number))
    }

    fn ask(&mut self) {
        let Some((player, number)) = self.draw_door() else {
            return;
        };
        for _ in 0..self.prng.size(1, 3) {
            if !self.clients[player].can_ask() {
                return;
            }
            let Some(operation) = self.books.draw((player, number), &mut self.prng) else {
                return;
            };
            self.submit((player, number), operation);
        }
    }

    fn submit(&mut self, (player, number): Door, operation: Operation) {
        let line = self.diary.is_some().then(|| format!("{operation:?}"));
        self.clients[player].ask(self.now, &mut self.books, number, operation);
        self.note(|| format!("player {player} by {number}: {}", line.unwrap_or_default()));
    }

    /// One of two players gets a reservation, the store hangs with a write of it, and the other one preempts it.
    fn feud(&mut self) {
        let Some(mut rivals) = self.rivals.take() else {
            return;
        };
        if self.is_young
            && rivals.is_time()
            && let Some((unit, doors)) = self.books.meeting(rivals.players)
            && let Some(step) = rivals.step(&self.books.units[unit])
        {
            let (player, operation) = self.next_of_feud(unit, step, &mut rivals.prng);
            let door = doors.into_iter().find(|door| door.0 == player);
            if let Some(door) = door.filter(|_| self.clients[player].can_ask()) {
                self.submit(door, operation);
            }
        }
        self.rivals = Some(rivals);
    }

    fn next_of_feud(&mut self, unit: usize, step: Feud, prng: &mut Prng) -> (usize, Operation) {
        let (holder, rival) = match step {
            Feud::Prepare(player, operation) => return (player, operation),
            Feud::Ready { holder, rival } => (holder, rival),
        };
        let store = &mut self.stores[unit];
        if !store.hangs(self.now) {
            store.hang(self.now, prng);
            self.report.outages += 1;
        }
        let mut writes = self.books.writes_of(key_of(holder), unit);
        let is_hanging = writes.any(|id| store.disk.is_writing(id));
        drop(writes);
        if is_hanging {
            let (key, other, kind) = (key_of(rival), key_of(holder), 1);
            return (rival, Operation::PreemptAndAbort { key, other, kind });
        }
        let id = self.books.new_handle();
        (holder, self.books.units[unit].draw_write(id, prng))
    }

    /// Task management. What it does to others is at large from then on: it may come to pass late.
    fn manage(&mut self) {
        if let Some((player, number)) = self.draw_door()
            && let Some(what) = self.clients[player].manage(self.now, &mut self.books, number)
        {
            self.note(|| format!("player {player}: {what}"));
        }
    }

    /// A client ends its session.
    fn leave(&mut self) -> Result<(), Breach> {
        let player = self.draw_player();
        self.note(|| format!("player {player} leaves"));
        self.clients[player].leave(self.now, &mut self.books)
    }

    /// A client is gone, with all it had under way. Its next session may find the old one still there.
    fn vanish(&mut self) {
        let player = self.draw_player();
        let is_cut = self.prng.chance(600);
        self.note(|| format!("player {player} vanishes, its link with it: {is_cut}"));
        self.remove(player, is_cut);
    }

    fn remove(&mut self, player: usize, is_cut: bool) {
        let client = &mut self.clients[player];
        if let Some(pipe) = client.link().and_then(|link| self.pipes.get_mut(&link)) {
            // A server of NBD does not ask whether somebody is there, and a login may overtake another one.
            pipe.is_cut |= is_cut || client.is_nbd() || client.is_leaving();
        }
        client.vanish(&mut self.books);
    }

    /// No frame gets through for a while.
    fn darken(&mut self) {
        self.dark_until = self.now + Duration::from_millis(self.prng.within(1, 3000));
        self.note(|| "it goes dark".to_owned());
    }

    // ---- the machine -------------------------------------------------------------------------

    /// The machine of the target stops and starts again.
    fn crash(&mut self) {
        self.note(|| "the machine stops".to_owned());
        self.report.crashes += 1;
        self.mail.clear();
        let units = self.stores.iter_mut();
        let units: Vec<_> = units.map(|store| store.crash(&mut self.prng)).collect();
        self.settings.plan = self.books.plan.clone();
        let prng = Prng::stream(self.seed, &format!("host {}", self.report.crashes));
        self.host = Host::new(&self.settings, &units, &prng);
        self.books.crash();
        self.administrator.restart();
        self.forget_quota();
        for client in &mut self.clients {
            if client.link().is_some() {
                client.vanish(&mut self.books);
            }
            client.note_crash();
        }
        self.pipes.clear();
        self.receipts.clear();
        self.serve();
    }
}

/// A pool that has room for the longest write, of which others hold something.
const fn pool_bytes_min(blocks: usize) -> usize {
    let most = blocks + orders::GROWTH_MAX + 2;
    2 * (most * BLOCK_BYTES).next_power_of_two()
}

/// How many blocks units have.
fn draw_blocks(seats: &mut Vec<Seat>, prng: &mut Prng) -> usize {
    if prng.chance(20) {
        // Frame by frame it would take for ever.
        seats.retain(|seat| !matches!(seat, Seat::Hyperscsi));
        return BLOCKS_OF_LARGE;
    }
    prng.pick(&[16, 32, 32, 200]).unwrap_or(32)
}

/// In times of 1000.
fn rate(prng: &mut Prng, most: u64) -> u32 {
    match prng.chance(500) {
        true => u32::try_from(prng.within(1, most)).unwrap_or(0),
        false => 0,
    }
}

/// What befalls frames.
fn draw_faults(prng: &mut Prng) -> Faults {
    Faults {
        loss: rate(prng, 100),
        twice: rate(prng, 60),
        changed: rate(prng, 40),
        old: rate(prng, 30),
        disorder: rate(prng, 600),
        frame_bytes_max: 9000,
    }
}

/// The client of a seat.
fn sit_down(
    (seed, player): (u64, usize),
    seat: &Seat,
    planted: Option<Planted>,
) -> Box<dyn Client> {
    let prng = Prng::stream(seed, &format!("player {player}"));
    match seat {
        Seat::Iscsi { host, target } => {
            let reserves = planted != Some(Planted::NoReservations);
            Box::new(Caller::new(player, (*host, *target), reserves, prng))
        }
        Seat::Hyperscsi => Box::new(Talker::new(player, prng)),
        Seat::Nbd { export } => Box::new(Exporter::new(player, export.clone(), prng)),
    }
}
