//! Sessions of NBD on several cores: the host of the first world, with its handshakes and sessions that ship, clients
//! that are those of the crate `nbd`, connections that come in pieces and are cut, letters that wait, a disk that is
//! late, fails and loses what was not flushed.
//!
//! An initiator of iSCSI has the same unit: its PERSISTENT RESERVE OUT reaches the owner as from a core of its own.
//! While a reservation of it is in force, writes of clients fail and change nothing.
//!
//! Rules: what was answered is there, also after a crash where it was flushed (`reads-give-what-was-written`); each
//! request of a client that stays is answered once (`one-outcome`); a reservation keeps clients out
//! (`reservations-hold`); the server speaks the protocol and hangs up on nobody (`clients-are-served`); nothing is left
//! of sessions that are over (`nothing-is-left`).

mod carry;
mod client;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::agree::{ToCore, ToOwner};
use engine::{RequestNumber, Ticket};
use front::testing::Mail;
use iscsi::negotiate::OperationalPreferences;
use nbd::ServerError;
use scsi::{Cdb, Change, ChangeKind, Nexus, NexusId, PortName, Principal, Status};

use self::carry::peer;
use self::client::{Asked, Talk};
use crate::disk::{Disk, Fate, RequestId};
use crate::flush::Breach;
use crate::host::Host;
use crate::ledger::{Ended as EndOfWrite, Ledger};
use crate::letter::Letter;
use crate::network::Arrival;
use crate::plan::{Plan, UNIT};
use crate::prng::Prng;
use crate::sabotage::Sabotage;
use crate::setup::Settings;

const BLOCKS: usize = 64;
/// Things that happen in a life, before it comes to its end.
const STEPS: usize = 3000;
/// Things that may happen until all is answered.
const LAST_STEPS: usize = 40_000;
/// No handshake takes so long.
const HANDSHAKE_MAX: Duration = Duration::from_secs(100_000);
const ABORT_MAX: Duration = Duration::from_secs(3);
/// The key of the initiator's registration.
const KEY: u64 = 0xabc;

/// What a life has seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Requests of clients that ended well.
    pub good: u64,
    /// That ended with an error.
    pub failed: u64,
    /// That were kept out by a reservation.
    pub kept_out: u64,
    /// Connections that were cut.
    pub cut: u64,
    /// Connections in all.
    pub links: u64,
}

/// A bug on purpose; no seed draws one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Planted {
    /// In the disk.
    Disk(Sabotage),
    /// A piece of what the server says is lost.
    LosesBytes,
    /// The device server does not know of reservations.
    NoReservations,
}

/// A connection.
#[derive(Debug, Default)]
struct Pipe {
    /// To the server, and to the client.
    outbound: VecDeque<u8>,
    inbound: VecDeque<u8>,
    /// The server has ended it.
    is_shut: bool,
    /// It was cut.
    is_cut: bool,
}

/// The reservation of the initiator, as far as it knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reserved {
    No,
    /// It has asked for another state and has no answer.
    Unknown,
    /// Nobody else writes.
    Yes,
}

#[derive(Debug)]
struct World {
    prng: Prng,
    disk: Disk,
    volatile_cache: bool,
    host: Host,
    cores: usize,
    now: Duration,
    /// Mail under way, by sender and receiver.
    mail: BTreeMap<(usize, usize), VecDeque<Letter>>,
    pipes: BTreeMap<usize, Pipe>,
    links: usize,
    talks: Vec<Option<Talk>>,
    /// Of connections that were cut: what they had asked for, until their session is over.
    lost: BTreeMap<usize, Vec<(u64, Asked)>>,
    over: BTreeSet<usize>,
    waiting: Vec<RequestId>,
    ledger: Ledger,
    tags: u64,
    reserved: Reserved,
    /// The initiator waits for an answer, after which it has this.
    awaited: Option<Reserved>,
    is_registered: bool,
    /// Requests that a reservation has kept out from their beginning on, so far.
    kept_out: BTreeSet<u64>,
    faults: u32,
    planted: Option<Planted>,
    report: Report,
    diary: Option<Vec<String>>,
}

/// Lives one seed through.
///
/// # Errors
///
/// A rule was broken.
pub fn run(seed: u64, planted: Option<Planted>) -> Result<Report, Breach> {
    let lived = World::new(seed, planted, false).live();
    lived.map_err(|breach| Breach { seed, ..breach })
}

/// The same, with a diary.
pub fn run_noted(seed: u64, planted: Option<Planted>) -> (Result<Report, Breach>, Vec<String>) {
    let mut world = World::new(seed, planted, true);
    let outcome = world.live().map_err(|breach| Breach { seed, ..breach });
    (outcome, world.diary.unwrap_or_default())
}

/// How the server is set up.
fn settings(prng: &mut Prng) -> Settings {
    Settings {
        plan: Plan::one(),
        cores: prng.size(1, 3),
        queue_depth: u32::try_from(prng.size(1, 4)).unwrap_or(1),
        preferences: OperationalPreferences::default(),
        abort_timeout: ABORT_MAX,
        fence_timeout: ABORT_MAX,
        login_timeout: HANDSHAKE_MAX,
        nop_interval: HANDSHAKE_MAX,
        nop_timeout: HANDSHAKE_MAX,
        pool_bytes: prng.pick(&[512 << 10, 4 << 20]).unwrap_or(4 << 20),
        is_busy: false,
        sabotage: None,
    }
}

impl World {
    fn new(seed: u64, planted: Option<Planted>, is_noted: bool) -> Self {
        let mut prng = Prng::stream(seed, "nbd");
        let settings = settings(&mut prng);
        let volatile_cache = prng.chance(700);
        let disk = Disk::new(BLOCKS, volatile_cache, 4, Prng::stream(seed, "nbd disk"));
        if let Some(Planted::Disk(sabotage)) = planted {
            disk.sabotage(sabotage);
        }
        Self {
            host: Host::new(
                &settings,
                &[(disk.clone(), None)],
                &Prng::stream(seed, "nbd host"),
            ),
            cores: settings.cores,
            disk,
            volatile_cache,
            now: Duration::from_secs(1),
            mail: BTreeMap::new(),
            pipes: BTreeMap::new(),
            links: 0,
            talks: (0..prng.size(1, 4)).map(|_| None).collect(),
            lost: BTreeMap::new(),
            over: BTreeSet::new(),
            waiting: Vec::new(),
            ledger: Ledger::new(BLOCKS),
            tags: 0,
            reserved: Reserved::No,
            awaited: None,
            is_registered: false,
            kept_out: BTreeSet::new(),
            faults: u32::try_from(prng.size(0, 60)).unwrap_or(0),
            planted,
            report: Report::default(),
            diary: is_noted.then(Vec::new),
            prng,
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(diary) = &mut self.diary {
            diary.push(line());
        }
    }

    fn live(&mut self) -> Result<Report, Breach> {
        for _ in 0..STEPS {
            self.step(true)?;
        }
        self.finish()?;
        self.end()?;
        self.disk.crash();
        self.ledger.crash();
        self.hold_against_book("after the crash")?;
        Ok(self.report)
    }

    /// Something happens.
    fn step(&mut self, is_young: bool) -> Result<(), Breach> {
        match self.prng.below(if is_young { 100 } else { 70 }) {
            0..15 => self.deliver(),
            15..30 => self.bring_to_server(),
            30..42 => self.bring_from_server(),
            42..52 => self.bring_to_client()?,
            52..66 => self.end_request(is_young),
            66..70 => self.pass_time(),
            70..90 => self.ask()?,
            90..94 => self.connect()?,
            94 if self.prng.chance(300) => self.cut(),
            95 if self.prng.chance(100) => self.leave(),
            94..96 => self.deliver(),
            _ => self.reserve(),
        }
        self.look_after()
    }

    // ---- cores -------------------------------------------------------------------------------

    /// What has left the cores goes on its way.
    fn carry(&mut self) {
        for (from, to, letter) in self.host.take_letters() {
            self.mail.entry((from, to)).or_default().push_back(letter);
        }
        for link in self.host.take_closed() {
            if let Some(pipe) = self.pipes.get_mut(&link) {
                pipe.is_shut = true;
            }
        }
    }

    /// A letter comes. Those of one core to another stay in order.
    fn deliver(&mut self) {
        let with_mail = self.mail.iter().filter(|(_, mail)| !mail.is_empty());
        let with_mail: Vec<_> = with_mail.map(|(between, _)| *between).collect();
        let Some((from, to)) = self.prng.pick(&with_mail) else {
            return;
        };
        let mail = self.mail.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        let Some(mail) = mail else {
            return;
        };
        self.note(|| format!("a letter from {from} to {to}"));
        if to == self.cores {
            self.answer_initiator(mail);
        } else {
            self.host.deliver(to, mail, self.now);
        }
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_millis(self.prng.within(1, 400));
        self.host.handle_time(self.now);
    }

    fn end_request(&mut self, is_young: bool) {
        let arrived = self.disk.take_arrivals();
        self.waiting.extend(arrived);
        if self.waiting.is_empty() {
            return;
        }
        let at = self.prng.size(0, self.waiting.len() - 1);
        let id = self.waiting.swap_remove(at);
        let fate = match self.prng.chance(self.faults) && is_young {
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

    // ---- connections -------------------------------------------------------------------------

    fn connect(&mut self) -> Result<(), Breach> {
        let free = self.talks.iter().position(Option::is_none);
        let Some(at) = free else {
            return Ok(());
        };
        let link = self.links;
        self.links += 1;
        self.report.links += 1;
        self.pipes.insert(link, Pipe::default());
        let talk = Talk::new(link).map_err(|why| breach("clients-are-served", why))?;
        self.talks[at] = Some(talk);
        self.note(|| format!("client {at} connects: link {link}"));
        self.host.accept_nbd(link, self.now);
        Ok(())
    }

    /// A connection is cut: what is on its way is lost, both ways.
    fn cut(&mut self) {
        let at = self.prng.size(0, self.talks.len() - 1);
        let Some(talk) = self.talks[at].take() else {
            return;
        };
        let link = talk.link;
        self.note(|| format!("link {link} is cut"));
        self.report.cut += 1;
        if let Some(pipe) = self.pipes.get_mut(&link) {
            pipe.is_cut = true;
            pipe.outbound.clear();
            pipe.inbound.clear();
        }
        self.lost.insert(link, talk.asked.into_iter().collect());
    }

    fn leave(&mut self) {
        let at = self.prng.size(0, self.talks.len() - 1);
        if let Some(talk) = &mut self.talks[at] {
            talk.leave();
            self.say(at);
        }
    }

    /// What a client has to say goes on its way.
    fn say(&mut self, at: usize) {
        if let Some(talk) = &mut self.talks[at]
            && let Some(pipe) = self.pipes.get_mut(&talk.link)
        {
            talk.say(&mut pipe.outbound);
        }
    }

    /// A piece comes to the server, or the end of a connection that was cut.
    fn bring_to_server(&mut self) {
        let mut meant = Vec::new();
        for (link, pipe) in &self.pipes {
            let is_wanted = self.host.appetite(*link) > 0;
            if is_wanted && (pipe.is_cut || !pipe.outbound.is_empty()) {
                meant.push(*link);
            }
        }
        let Some(link) = self.prng.pick(&meant) else {
            return;
        };
        let (most, is_exact) = (self.host.appetite(link), self.host.wants_all(link));
        let Some(pipe) = self.pipes.get_mut(&link) else {
            return;
        };
        if pipe.is_cut {
            self.host.arrive(link, Arrival::Reset, self.now);
            return;
        }
        let there = pipe.outbound.len().min(most);
        if is_exact && there < most {
            return;
        }
        let count = match is_exact || self.prng.chance(600) {
            true => there,
            false => self.prng.size(1, there),
        };
        let bytes = pipe.outbound.drain(..count).collect();
        self.host.arrive(link, Arrival::Bytes(bytes), self.now);
    }

    /// What the server sends leaves it.
    fn bring_from_server(&mut self) {
        let Some(link) = self.prng.pick(&self.host.links_with_output()) else {
            return;
        };
        let loses = self.planted == Some(Planted::LosesBytes) && self.prng.chance(20);
        let Some(pipe) = self.pipes.get_mut(&link) else {
            return;
        };
        if pipe.is_cut {
            self.host.fail_output(link, self.now);
            return;
        }
        let count = match self.prng.chance(700) {
            true => usize::MAX,
            false => self.prng.size(1, 2000),
        };
        let bytes = self.host.take_output(link, count, self.now);
        if !loses {
            pipe.inbound.extend(bytes);
        }
    }

    // ---- clients -----------------------------------------------------------------------------

    fn bring_to_client(&mut self) -> Result<(), Breach> {
        let at = self.prng.size(0, self.talks.len() - 1);
        let Some(talk) = &mut self.talks[at] else {
            return Ok(());
        };
        let (link, is_leaving) = (talk.link, talk.is_leaving);
        let Some(pipe) = self.pipes.get_mut(&link) else {
            return Ok(());
        };
        let count = match pipe.inbound.len() {
            0 => 0,
            there => self.prng.size(1, there),
        };
        let bytes: Vec<u8> = pipe.inbound.drain(..count).collect();
        let is_over = pipe.is_shut && pipe.inbound.is_empty();
        let ended = talk.receive(&bytes);
        let ended = ended.map_err(|why| breach("clients-are-served", why))?;
        for one in ended {
            self.judge(at, one)?;
        }
        self.say(at);
        if is_over && is_leaving {
            let talk = self.talks[at].take();
            let asked = talk.map(|talk| talk.asked.into_iter().collect());
            self.lost.insert(link, asked.unwrap_or_default());
        } else if is_over {
            return Err(breach(
                "clients-are-served",
                format!("the server ends link {link}"),
            ));
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<(), Breach> {
        let at = self.prng.size(0, self.talks.len() - 1);
        if !self.talks[at].as_ref().is_some_and(Talk::can_ask) {
            return Ok(());
        }
        self.tags += 1;
        let tag = self.tags;
        let start = self.prng.size(0, BLOCKS - 1);
        let blocks = start..(start + self.prng.size(1, 8)).min(BLOCKS);
        let durable = self.prng.chance(300);
        let asked = match self.prng.below(10) {
            0..4 => Asked::Write {
                blocks,
                id: tag,
                durable,
            },
            4 => Asked::Write {
                blocks,
                id: 0,
                durable,
            },
            5 => Asked::Flush,
            6 => Asked::Status,
            _ => Asked::Read(blocks),
        };
        self.note(|| format!("client {at} asks, {tag}: {asked:?}"));
        match &asked {
            Asked::Read(blocks) => self.ledger.begin_read(tag, blocks.clone()),
            Asked::Write { blocks, id, .. } => self.ledger.begin_write(tag, *id, blocks.clone()),
            Asked::Flush => self.ledger.begin_flush(tag),
            Asked::Status => {}
        }
        if asked.writes() && self.reserved == Reserved::Yes {
            self.kept_out.insert(tag);
        }
        if let Some(talk) = &mut self.talks[at] {
            let taken = talk.ask(tag, asked, &mut self.prng);
            taken.map_err(|why| breach("clients-are-served", why))?;
        }
        self.say(at);
        Ok(())
    }

    fn judge(&mut self, at: usize, ended: client::Ended) -> Result<(), Breach> {
        let client::Ended { tag, result, data } = ended;
        self.note(|| format!("client {at} gets the end of {tag}: {result:?}"));
        let talk = self.talks[at].as_mut();
        let Some(asked) = talk.and_then(|talk| talk.asked.remove(&tag)) else {
            return Err(breach("one-outcome", format!("{tag} ends twice")));
        };
        match result {
            Ok(()) => self.report.good += 1,
            Err(_) => self.report.failed += 1,
        }
        let is_kept_out = self.kept_out.remove(&tag);
        if is_kept_out {
            self.report.kept_out += 1;
            if result != Err(ServerError::NOT_PERMITTED) {
                let what = format!("write {tag} in spite of a reservation: {result:?}");
                return Err(breach("reservations-hold", what));
            }
        }
        match asked {
            Asked::Read(_) => {
                let data = result.is_ok().then_some(data).flatten();
                let checked = self.ledger.end_read(tag, data.as_deref());
                checked.map_err(|wrong| {
                    breach("reads-give-what-was-written", format!("{tag}: {wrong:?}"))
                })?;
            }
            Asked::Write { durable, .. } => {
                let durable = durable || !self.volatile_cache;
                self.ledger.end_write(
                    tag,
                    match result {
                        Ok(()) => EndOfWrite::Good { durable },
                        Err(_) if is_kept_out => EndOfWrite::Refused,
                        Err(_) => EndOfWrite::Uncertain,
                    },
                );
            }
            Asked::Flush => self.ledger.end_flush(tag, result.is_ok()),
            Asked::Status => {}
        }
        Ok(())
    }

    // ---- the initiator -----------------------------------------------------------------------

    /// It registers, reserves, releases or leaves.
    fn reserve(&mut self) {
        if self.awaited.is_some() {
            return;
        }
        // Action, type, key, new key, what it has then.
        let (action, kind, key, new, then) = match (self.is_registered, self.reserved) {
            (false, _) => (0, 0, 0, KEY, Reserved::No),
            (true, Reserved::No) if self.prng.chance(800) => (1, 1, KEY, 0, Reserved::Yes),
            (true, Reserved::Yes) if self.prng.chance(700) => (2, 1, KEY, 0, Reserved::No),
            (true, _) => (3, 0, KEY, 0, Reserved::No),
        };
        self.is_registered = action != 3;
        self.note(|| format!("the initiator sends PERSISTENT RESERVE OUT {action}"));
        // What ends a reservation may end it at any time from now on, and what begins one begins it with its answer.
        if self.reserved == Reserved::Yes {
            self.kept_out.clear();
        }
        self.reserved = Reserved::Unknown;
        self.awaited = Some(then);
        let mut cdb = vec![0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        if self.planted == Some(Planted::NoReservations) && action == 1 {
            // A reservation that lets everybody write who is registered, and no core knows of it.
            cdb = vec![0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        }
        let mut parameters = vec![0; 24];
        parameters[..8].copy_from_slice(&key.to_be_bytes());
        parameters[8..16].copy_from_slice(&new.to_be_bytes());
        if cdb[1] != action {
            parameters[8..16].copy_from_slice(&KEY.to_be_bytes());
        }
        let from = Some(Nexus {
            id: NexusId(u32::MAX - 1),
            port: PortName {
                transport_id: Arc::from(&b"an initiator of iSCSI   "[..]),
                target_port: 1,
                principal: Principal::Nobody,
            },
            read_only: false,
        });
        let cdb = Cdb::new(&cdb);
        let kind = ChangeKind::Command { cdb, parameters };
        let ticket = Ticket {
            core: self.cores,
            request: RequestNumber(1),
        };
        let change = Change { from, kind };
        let letter = engine::Letter::ToOwner(ToOwner::Change { ticket, change });
        let mail = Mail::Unit(UNIT, Box::new(letter));
        let between = self.mail.entry((self.cores, 0)).or_default();
        between.push_back(Letter::Mail(mail));
    }

    fn answer_initiator(&mut self, mail: Letter) {
        let Letter::Mail(Mail::Unit(_, letter)) = mail else {
            return;
        };
        if let engine::Letter::ToCore(ToCore::Changed { reply, .. }) = *letter {
            let then = self.awaited.take().unwrap_or(Reserved::Unknown);
            let is_good = reply.status == Status::Good;
            self.reserved = if is_good { then } else { Reserved::No };
            let status = reply.status;
            self.note(|| format!("the initiator gets {status:?}"));
        }
    }

    // ---- what must hold ----------------------------------------------------------------------

    fn look_after(&mut self) -> Result<(), Breach> {
        self.carry();
        if let Some(what) = self.host.broken() {
            return Err(breach("nothing-is-broken", what.to_owned()));
        }
        if !self.host.take_saves().is_empty() {
            let what = "nothing here has to survive a restart".to_owned();
            return Err(breach("nothing-is-broken", what));
        }
        for at in self.host.take_over() {
            let link = self.pipes.keys().find(|link| peer(**link) == at);
            self.over.extend(link.copied());
        }
        let arrived = self.disk.take_arrivals();
        self.waiting.extend(arrived);
        // No request of a session that is over is in the disk any more.
        if self.waiting.is_empty() {
            let over: Vec<usize> = self.over.iter().copied().collect();
            for link in over {
                for (tag, asked) in self.lost.remove(&link).unwrap_or_default() {
                    self.give_up(tag, &asked);
                    self.over.remove(&link);
                }
            }
        }
        Ok(())
    }

    /// Nobody gets the end of a request, and it has no effect from now on.
    fn give_up(&mut self, tag: u64, asked: &Asked) {
        self.kept_out.remove(&tag);
        match asked {
            Asked::Write { .. } => self.ledger.end_write(tag, EndOfWrite::Uncertain),
            Asked::Read(_) => drop(self.ledger.end_read(tag, None)),
            Asked::Flush => self.ledger.end_flush(tag, false),
            Asked::Status => {}
        }
    }

    /// All that was asked is answered.
    fn finish(&mut self) -> Result<(), Breach> {
        for _ in 0..LAST_STEPS {
            self.step(false)?;
            let is_open = |talk: &Talk| !talk.is_leaving && !talk.asked.is_empty();
            if !self.talks.iter().flatten().any(is_open) {
                return Ok(());
            }
        }
        let open = self.talks.iter().flatten();
        let open: Vec<_> = open.flat_map(|talk| &talk.asked).collect();
        Err(breach("one-outcome", format!("not answered: {open:?}")))
    }

    /// All clients go, and nothing is left of them.
    fn end(&mut self) -> Result<(), Breach> {
        for talk in std::mem::take(&mut self.talks).into_iter().flatten() {
            if let Some(pipe) = self.pipes.get_mut(&talk.link) {
                pipe.is_cut = true;
            }
            self.lost
                .insert(talk.link, talk.asked.into_iter().collect());
        }
        self.talks.push(None);
        self.host.end_nbd(self.now);
        for _ in 0..LAST_STEPS {
            self.step(false)?;
            let has_mail = self.mail.values().any(|mail| !mail.is_empty());
            let is_quiet = !has_mail && self.waiting.is_empty();
            if is_quiet && self.host.leftovers().is_none() {
                let lost = std::mem::take(&mut self.lost);
                for (tag, asked) in lost.into_values().flatten() {
                    self.give_up(tag, &asked);
                }
                return self.hold_against_book("at the end");
            }
        }
        let left = self.host.leftovers().unwrap_or_default();
        Err(breach("nothing-is-left", left))
    }

    fn hold_against_book(&mut self, when: &str) -> Result<(), Breach> {
        let content = self.disk.content();
        let checked = self.ledger.check_all(&content);
        checked.map_err(|wrong| breach("reads-give-what-was-written", format!("{when}: {wrong:?}")))
    }
}

/// The seed is said where it is known.
const fn breach(rule: &'static str, detail: String) -> Breach {
    let seed = 0;
    Breach { rule, seed, detail }
}
