//! The world: one agenda, in which everything that happens has its place.
//!
//! A run is a pure function of a seed and of how many actions it may take. After the last action
//! the faults stop, everyone finishes and logs out, and nothing may be left.

mod administrator;
mod answers;
mod carry;
mod known;
mod last;
mod losses;
mod past;
mod play;
mod saving;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Weak;
use std::time::Duration;

use engine::{Save, SaveError, Version};
use iscsi::framing::PduBuffer;
use iscsi::login::LoginInitiator;
use iscsi::pdu::{Cid, Tsih};

use crate::agenda::Agenda;
use crate::authority::Authority;
use crate::disk::{Disk, Fate, RequestId};
use crate::host::Host;
use crate::initiator::{Breach, Session, Task};
use crate::ledger::{Handle, Ledger};
use crate::letter::Letter;
use crate::network::{Link, Side};
use crate::plan::UNIT;
use crate::prng::Prng;
use crate::sabotage::Sabotage;
use crate::scenario::Scenario;
use crate::trace::{Actor, Trace};

use self::known::{Administrator, Losses, Past, Rights, SaveFate, Saving};

/// More events than any run needs: one that takes more goes round in circles.
const EVENTS_MAX: usize = 2_000_000;

/// What can happen.
#[derive(Debug)]
enum Event {
    /// Something may have arrived at a side of a link.
    Arrive { link: usize, side: Side },
    /// A letter reaches a core.
    Deliver { core: usize, letter: Box<Letter> },
    /// The disk is done with a request.
    Disk { request: RequestId, fate: Fate },
    /// The authority comes to a state of the unit that is to be saved.
    Save {
        save: Save,
        fate: SaveFate,
        answer_after: Duration,
    },
    /// The answer reaches the target.
    Saved { outcome: Result<Version, SaveError> },
    /// The target wanted to be woken. Only the latest alarm counts.
    Alarm { number: u64 },
    /// An initiator does something.
    Act { initiator: usize },
    /// An initiator sends data it owes.
    PayBursts { initiator: usize },
    /// A connection listens again.
    Listen { link: usize },
    /// A LUN that was taken from a session comes back to it.
    GiveBack { initiator: usize, tsih: Tsih },
    /// A session that was dismissed must be over.
    ReceiptDue { receipt: Weak<()> },
    /// Everyone is to finish.
    Finish,
    /// Who has not finished is pushed out.
    PushOut,
}

/// A TCP connection, and whose it is.
#[derive(Debug)]
struct Line {
    link: Link,
    initiator: usize,
    /// The world did something to it that may end it.
    is_excused: bool,
    /// The target has closed it.
    is_closed_by_target: bool,
    /// Arrivals that are on the agenda already, by side.
    scheduled: [Option<Duration>; 2],
}

/// A login under way.
#[derive(Debug)]
struct LoggingIn {
    login: LoginInitiator,
    link: usize,
    buffer: PduBuffer,
    cid: Cid,
}

/// An initiator, with or without a session.
#[derive(Debug)]
struct Player {
    logging_in: Option<LoggingIn>,
    session: Option<Session>,
    tsih: Tsih,
    next_cid: u16,
    /// Commands that nobody will answer, and the session they belonged to: what they do to the
    /// blocks is not over before the target has dropped them.
    lost: Vec<(Tsih, Vec<Task>)>,
    /// Its reservation key.
    key: u64,
    prng: Prng,
    has_paid: bool,
    /// What an administrator has done to its session.
    rights: Rights,
    /// LOGICAL UNIT RESETs under way, and the requests of the past that were there before the first.
    resets: usize,
    left_before_reset: BTreeSet<(usize, u64)>,
}

impl Player {
    fn new(seed: u64, number: usize) -> Self {
        Self {
            logging_in: None,
            session: None,
            tsih: Tsih::NONE,
            next_cid: 0,
            lost: Vec::new(),
            key: 0x1000 + number as u64,
            prng: Prng::stream(seed, &format!("initiator {number}")),
            has_paid: true,
            rights: Rights::default(),
            resets: 0,
            left_before_reset: BTreeSet::new(),
        }
    }
}

/// What a run found.
#[derive(Debug)]
pub struct Report {
    /// How many actions were taken.
    pub actions: usize,
    /// How many events there were.
    pub events: usize,
    /// Commands that ended with GOOD.
    pub good: usize,
    /// How long it took, for those inside.
    pub simulated: Duration,
    /// Requests for blocks that were begun while an orphan was in the disk of the same core.
    pub beside_orphans: usize,
    /// What the run was like: equal runs have equal ones.
    pub fingerprint: u64,
    /// The rule that was broken, if one was.
    pub breach: Option<Breach>,
    /// The diary, if it was kept.
    pub trace: Trace,
}

/// Everything there is.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    agenda: Agenda<Event>,
    trace: Trace,
    host: Host,
    authority: Authority,
    saving: Saving,
    disk: Disk,
    ledger: Ledger,
    lines: Vec<Line>,
    players: Vec<Player>,
    network_prng: Prng,
    disk_prng: Prng,
    mail_prng: Prng,
    keeper_prng: Prng,
    patience_prng: Prng,
    past_prng: Prng,
    /// When the last letter between two cores arrives: letters do not overtake each other. The last row is
    /// the administrator's.
    last_mail: Vec<Duration>,
    hanging: Vec<RequestId>,
    /// Until when the disk takes requests and does nothing.
    outage_until: Duration,
    alarm: (u64, Option<Duration>),
    actions_left: usize,
    actions: usize,
    events: usize,
    next_handle: Handle,
    good: usize,
    beside_orphans: usize,
    fingerprint: u64,
    is_finishing: bool,
    /// LOGICAL UNIT RESETs that were sent and not answered.
    resets: usize,
    /// A reset was sent and its answer lost: it may come to pass any time.
    reset_at_large: bool,
    /// The write cache is off for certain, for the time that has this number.
    cache_off: Option<u64>,
    /// How many times it was switched off.
    cache_times: u64,
    /// Commands under way that switch the cache.
    cache_switches: usize,
    /// The last of them, if none was under way beside it: which of two comes last, nobody knows.
    sole_switch: Option<Handle>,
    /// Writes that were sent while the cache was off.
    sent_uncached: std::collections::BTreeMap<Handle, u64>,
    /// What a COMPARE AND WRITE has found and replaced.
    swapped: BTreeSet<(usize, u64)>,
    past: Past,
    losses: Losses,
    administrator: Administrator,
    seed: u64,
    boots: u64,
}

impl World {
    /// The world of this seed, before anything has happened.
    pub fn new(seed: u64, actions_max: usize, trace: Trace) -> Self {
        Self::made(seed, Scenario::draw(seed), actions_max, trace)
    }

    /// The same with something wrong in the target.
    pub fn sabotaged(seed: u64, sabotage: Sabotage) -> Self {
        let mut scenario = Scenario::draw(seed);
        scenario.target.sabotage = Some(sabotage);
        Self::made(seed, scenario, usize::MAX, Trace::default())
    }

    fn made(seed: u64, scenario: Scenario, actions_max: usize, trace: Trace) -> Self {
        let disk = Disk::new(
            scenario.blocks,
            scenario.volatile_cache,
            scenario.disk_queue_max,
            Prng::stream(seed, "disk effects"),
        );
        if let Some(sabotage) = scenario.target.sabotage {
            disk.sabotage(sabotage);
        }
        if scenario.losses > 0 {
            disk.be_forgetful();
        }
        let host_prng = Prng::stream(seed, "host 0");
        let host = Host::new(&scenario.target, &[(disk.clone(), None)], &host_prng);
        let players = (0..scenario.initiators).map(|number| Player::new(seed, number));
        let cores = scenario.target.cores;
        Self {
            actions_left: scenario.actions.min(actions_max),
            ledger: Ledger::new(scenario.blocks),
            players: players.collect(),
            administrator: Administrator::new(
                Prng::stream(seed, "administrator"),
                scenario.target.rules(),
            ),
            last_mail: vec![Duration::ZERO; (cores + 1) * cores],
            scenario,
            agenda: Agenda::default(),
            trace,
            saving: Saving::new(host.state_in_force(UNIT).unwrap_or_default()),
            host,
            authority: Authority::default(),
            disk,
            lines: Vec::new(),
            network_prng: Prng::stream(seed, "network"),
            disk_prng: Prng::stream(seed, "disk"),
            mail_prng: Prng::stream(seed, "mail"),
            keeper_prng: Prng::stream(seed, "keeper"),
            patience_prng: Prng::stream(seed, "patience"),
            past_prng: Prng::stream(seed, "past"),
            hanging: Vec::new(),
            outage_until: Duration::ZERO,
            alarm: (0, None),
            actions: 0,
            events: 0,
            next_handle: 1,
            good: 0,
            beside_orphans: 0,
            fingerprint: 0,
            is_finishing: false,
            resets: 0,
            reset_at_large: false,
            cache_off: None,
            cache_times: 0,
            cache_switches: 0,
            sole_switch: None,
            sent_uncached: std::collections::BTreeMap::new(),
            swapped: BTreeSet::new(),
            past: Past::default(),
            losses: Losses::new(seed),
            seed,
            boots: 0,
        }
    }

    /// Lives through it.
    pub fn run(mut self) -> Report {
        let lived = catch_unwind(AssertUnwindSafe(|| self.live()));
        let is_whole = lived.is_ok();
        let breach = match lived {
            Ok(lived) => lived.err(),
            Err(panic) => Some(Breach::new("no-panic", words(&*panic))),
        };
        if let Some(breach) = &breach {
            self.note(
                Actor::World,
                format_args!("BREACH {}: {}", breach.rule, breach.detail),
            );
        }
        let report = Report {
            actions: self.actions,
            events: self.events,
            good: self.good,
            simulated: self.agenda.now(),
            beside_orphans: self.beside_orphans,
            fingerprint: self.fingerprint,
            breach,
            trace: std::mem::take(&mut self.trace),
        };
        if !is_whole {
            // What a panic has left half done may panic again.
            drop(catch_unwind(AssertUnwindSafe(|| drop(self))));
        }
        report
    }

    fn live(&mut self) -> Result<(), Breach> {
        if self.trace.is_on() {
            let (seed, scenario) = (self.seed, format!("{:?}", self.scenario));
            self.note(Actor::World, format_args!("seed {seed}: {scenario}"));
        }
        if self.actions_left == 0 {
            self.agenda.after(Duration::ZERO, Event::Finish);
        }
        for initiator in 0..self.players.len() {
            self.agenda.after(Duration::ZERO, Event::Act { initiator });
        }
        while let Some(event) = self.agenda.next_event() {
            self.events += 1;
            self.mark(u64::try_from(self.agenda.now().as_nanos()).unwrap_or(u64::MAX));
            if self.events > EVENTS_MAX {
                let detail = format!("still {:?} after {EVENTS_MAX} events", event);
                return Err(Breach::new("it-ends", detail));
            }
            self.trace.set_now(self.agenda.now());
            self.happen(event)?;
            self.carry()?;
            self.check_the_past()?;
            self.check_administration()?;
            self.check_what_is_saved(false)?;
            self.settle_lost();
        }
        self.check_the_end()
    }

    fn happen(&mut self, event: Event) -> Result<(), Breach> {
        let now = self.agenda.now();
        match event {
            Event::Arrive { link, side } => self.arrive(link, side),
            Event::Deliver { core, letter } => {
                let is_order = matches!(*letter, Letter::Order(_));
                self.host.deliver(core, *letter, now);
                if is_order {
                    self.excuse_commands();
                }
                Ok(())
            }
            Event::Disk { request, fate } => {
                self.hanging.retain(|&other| other != request);
                if let Some(core) = self.disk.complete(request, fate) {
                    let outcome = format!("{fate:?}");
                    self.note(Actor::Disk, format_args!("{request:?} ends: {outcome}"));
                    self.host.wake_for_store(core, UNIT, now);
                }
                Ok(())
            }
            Event::Save {
                save,
                fate,
                answer_after,
            } => self.save(&save, fate, answer_after),
            Event::Saved { outcome } => {
                self.answer_save(&outcome);
                Ok(())
            }
            Event::Alarm { number } => {
                if number == self.alarm.0 {
                    self.alarm.1 = None;
                    self.host.handle_time(now);
                }
                Ok(())
            }
            Event::Act { initiator } => {
                self.act(initiator);
                Ok(())
            }
            Event::PayBursts { initiator } => {
                self.pay_bursts(initiator);
                Ok(())
            }
            Event::Listen { link } => {
                self.listen(link);
                Ok(())
            }
            Event::GiveBack { initiator, tsih } => {
                self.give_back(initiator, tsih);
                Ok(())
            }
            Event::ReceiptDue { receipt } => self.check_receipt(&receipt),
            Event::Finish => {
                self.finish();
                Ok(())
            }
            Event::PushOut => self.push_out(),
        }
    }

    fn note(&mut self, actor: Actor, what: std::fmt::Arguments<'_>) {
        self.trace.note(actor, what);
    }

    /// Adds to the digest that distinguishes this run from others.
    const fn mark(&mut self, value: u64) {
        self.fingerprint = (self.fingerprint ^ value)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(17);
    }

    const fn new_handle(&mut self) -> Handle {
        let handle = self.next_handle;
        self.next_handle += 1;
        handle
    }
}

/// What a panic said.
pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
