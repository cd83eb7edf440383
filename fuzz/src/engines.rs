//! One to three cores with two units: commands, what stores answer and in which order, letters one by one,
//! time, task management, sessions that begin and end, LUNs that are taken, memory that is short.
//!
//! What must hold between events the engine looks at itself, at the end of each turn. Here: each command has
//! one outcome, no core that refuses access to blocks begins anything there, and nothing is left in the end.

use std::ops::Range;
use std::rc::{Rc, Weak};
use std::time::Duration;

use engine::agree::overlap;
use engine::testing::bench::{ABORT, Bench, FENCE, MOMENT, Who, visible};
use engine::testing::cdb::{self, Cdb};
use engine::testing::disk::{SIZE, Take, whole};
use engine::testing::outside::Came;
use engine::{Management, StoreWork, UnitIndex, VisibleLun};
use memory::{Buffer, Payload};
use scsi::{Outcome, Status, TaskAttribute};
use store::IoFailure;

use crate::input::Input;

const UNITS: u32 = 2;
/// Sessions that live at the same time, at most.
const SESSIONS_MAX: usize = 4;
/// Commands of one session under way, as a window allows them.
const WINDOW: usize = 16;
const ECANCELED: i32 = 125;

/// The blocks in a line of the store's log, which are written as `FIRST+COUNT` or `FIRST..END`.
fn blocks_of(line: &str) -> Option<Range<u64>> {
    line.split(' ').find_map(|word| {
        let (first, other) = word.split_once('+').or_else(|| word.split_once(".."))?;
        let (first, other): (u64, u64) = (first.parse().ok()?, other.parse().ok()?);
        let is_count = word.contains('+');
        Some(first..if is_count { first + other } else { other })
    })
}

struct Player {
    who: Who,
    /// Which units it sees, and whether it may not write there.
    luns: [Option<bool>; UNITS as usize],
    sent: Vec<u32>,
    /// How many answers and ends of its commands have been seen.
    over: usize,
    /// Commands whose data does not come along.
    later: Vec<u32>,
    /// Data that was asked for and has not been brought.
    owed: Vec<(u32, u32)>,
    is_ending: bool,
}

struct Play {
    bench: Bench,
    players: Vec<Player>,
    ballast: Vec<Buffer>,
    receipts: Vec<Weak<()>>,
    next_request: u32,
}

/// Plays the script; panics when something does not hold.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cores = usize::from(input.byte() % 3) + 1;
    let mut play = Play {
        bench: Bench::with_units(cores, UNITS as usize),
        players: Vec::new(),
        ballast: Vec::new(),
        receipts: Vec::new(),
        next_request: 0,
    };
    play.log_in(0);
    while !input.is_over() {
        let refusing = play.refusing();
        play.act(&mut input);
        play.end_turn(&refusing);
    }
    play.end();
}

impl Play {
    fn cores(&self) -> usize {
        self.bench.cores.len()
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.byte() % 20 {
            0..=5 => self.command(input),
            6 | 7 => self.deliver(input),
            8 | 9 => self.finish(input),
            10 => self.pass(input),
            11 => self.set_store(input),
            12 => self.manage(input),
            13 => self.bench.settle(),
            14 => self.begin_or_end(input),
            15 => self.administer(input),
            16 => self.bring(input),
            17 => self.keep(input),
            18 => self.look_at_store(input),
            _ => self.squeeze(input),
        }
    }

    // ---- sessions ----------------------------------------------------------------------------

    fn log_in(&mut self, core: usize) {
        let luns: Vec<VisibleLun> = (0..UNITS).map(|unit| visible(number(unit), unit)).collect();
        let who = self.bench.log_in_seeing(core, &luns, None);
        self.players.push(Player {
            who,
            luns: [Some(false); UNITS as usize],
            sent: Vec::new(),
            over: 0,
            later: Vec::new(),
            owed: Vec::new(),
            is_ending: false,
        });
    }

    fn begin_or_end(&mut self, input: &mut Input<'_>) {
        let alive = self
            .players
            .iter()
            .filter(|player| !player.is_ending)
            .count();
        let choice = input.byte();
        if alive < SESSIONS_MAX && choice & 1 == 0 {
            self.log_in(usize::from(choice >> 1) % self.cores());
        } else if let Some(at) = self.pick(input) {
            let player = &mut self.players[at];
            player.is_ending = true;
            let who = player.who;
            self.bench.cores[who.core].end_session(who.key);
            self.bench.step(who.core);
        }
    }

    /// A session that has not been ended.
    fn pick(&self, input: &mut Input<'_>) -> Option<usize> {
        let alive = self.players.iter().enumerate();
        let alive = alive.filter(|(_, player)| !player.is_ending);
        let alive: Vec<usize> = alive.map(|(at, _)| at).collect();
        let choice = usize::from(input.byte());
        (!alive.is_empty()).then(|| alive[choice % alive.len()])
    }

    // ---- commands ----------------------------------------------------------------------------

    fn command(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick(input) else {
            return;
        };
        let player = &self.players[at];
        if player.sent.len() - player.over >= WINDOW {
            return;
        }
        let command = draw_command(input);
        let (who, is_later) = (player.who, command.came == Came::Later);
        let id = self.bench.send_only(who, command);
        let player = &mut self.players[at];
        player.sent.push(id);
        if is_later {
            player.later.push(id);
        }
        self.note_asked(at);
    }

    /// Takes note of data that the engine has asked for and that is not there.
    fn note_asked(&mut self, at: usize) {
        let player = &mut self.players[at];
        let port = self.bench.port(player.who);
        let asked = std::mem::take(&mut port.asked);
        let later = asked
            .into_iter()
            .filter(|(id, _)| player.later.contains(id));
        player.owed.extend(later.collect::<Vec<_>>());
    }

    fn bring(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick(input) else {
            return;
        };
        let player = &mut self.players[at];
        let (who, choice) = (player.who, input.byte());
        if player.owed.is_empty() {
            return;
        }
        let (id, length) = player.owed.remove(usize::from(choice) % player.owed.len());
        let port = self.bench.port(who);
        let is_over =
            port.abandoned.contains(&id) || port.answers.iter().any(|(one, _)| *one == id);
        let core = &mut self.bench.cores[who.core];
        if is_over {
            // No transport says anything of a command that has ended.
            return;
        }
        if choice & 0x80 == 0 {
            let data = Payload::Heap(vec![choice; length as usize]);
            core.handle_data_out(who.key, id, data);
        } else {
            core.handle_data_fault(who.key, id, Outcome::status(Status::Busy));
        }
        self.bench.step(who.core);
    }

    fn manage(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick(input) else {
            return;
        };
        let player = &self.players[at];
        let (who, choice) = (player.who, input.byte());
        let lun = (u64::from(choice >> 4) % u64::from(UNITS)) << 48;
        let any = player
            .sent
            .get(usize::from(input.byte()) % player.sent.len().max(1));
        let request = match choice % 8 {
            0..=4 => Management::AbortTask(any.copied()),
            5 => Management::AbortTaskSet {
                lun,
                commands: player.sent.clone(),
            },
            6 => Management::LogicalUnitReset { lun },
            _ => Management::TargetReset { cold: None },
        };
        let id = self.next_request;
        self.next_request += 1;
        self.bench.cores[who.core].handle_management(who.key, id, request);
        self.bench.step(who.core);
    }

    // ---- what is outside ---------------------------------------------------------------------

    fn deliver(&mut self, input: &mut Input<'_>) {
        let ways = self.bench.ways();
        let choice = usize::from(input.byte());
        if let Some(way) = ways.get(choice % ways.len().max(1)) {
            self.bench.deliver(*way);
        }
    }

    /// An operation of some core ends, as it may.
    fn finish(&mut self, input: &mut Input<'_>) {
        let core = usize::from(input.byte()) % self.cores();
        let under_way = self.bench.under_way(core);
        let (which, how) = (usize::from(input.byte()), input.byte());
        let Some(&operation) = under_way.get(which % under_way.len().max(1)) else {
            if self.bench.disk(core).has_pending() {
                self.bench.finish_pending(core);
            }
            return;
        };
        let all = match &self.bench.cores[core].carrier.begun[operation].work {
            Some(StoreWork::Ring(work)) => whole(work),
            Some(StoreWork::Helper(_) | StoreWork::Socket { .. }) | None => 0,
        };
        let is_cancelled = self.bench.cancelled(core).contains(&operation);
        match how % 8 {
            0 if all > 1 => self.bench.finish_with_only(core, operation, all / 2),
            1 => self.bench.finish_with_only(core, operation, -5),
            2 | 3 if is_cancelled => self.bench.finish_with_only(core, operation, -ECANCELED),
            _ => self.bench.finish_only(core, operation),
        }
    }

    fn pass(&mut self, input: &mut Input<'_>) {
        let time = match input.byte() % 8 {
            0 => MOMENT,
            1 | 2 => Duration::from_millis(20),
            3 | 4 => Duration::from_secs(1),
            5 => ABORT,
            6 => FENCE,
            _ => Duration::from_secs(30),
        };
        self.bench.pass_only(time);
    }

    fn set_store(&mut self, input: &mut Input<'_>) {
        let (core, unit) = (input.byte(), input.byte());
        let (core, unit) = (usize::from(core) % self.cores(), usize::from(unit) % 2);
        let take = match input.byte() % 8 {
            0 | 1 => Take::Now,
            2 | 3 => Take::Ring,
            4 => Take::Helper,
            5 if unit == 0 => Take::Pending,
            5 | 6 => Take::Full,
            _ => Take::Fail(IoFailure::Medium { offset: 512 }),
        };
        self.bench.disk_of(unit, core).take(take);
    }

    /// The owner of a unit looks at the size of its store, or flushes it.
    fn look_at_store(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let unit = u32::from(choice >> 4) % UNITS;
        let core = unit as usize % self.cores();
        let disk = self.bench.disk_of(unit as usize, core);
        if choice & 1 == 0 {
            disk.resize(SIZE - u64::from(choice & 0x0e) * 4096);
            self.bench.cores[core].probe_some();
        } else if !self.bench.cores[core]
            .flushing_units()
            .any(|one| one == UnitIndex(unit))
        {
            self.bench.cores[core].flush_unit(UnitIndex(unit));
        }
        self.bench.step(core);
    }

    fn keep(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        if self.bench.to_keep().is_empty() {
            return;
        }
        match choice % 16 {
            0 => self.bench.save_too_late(),
            1..=4 => self.bench.keep_only(false),
            _ => self.bench.keep_only(true),
        }
    }

    /// Takes the memory of a core, or gives all of it back.
    fn squeeze(&mut self, input: &mut Input<'_>) {
        let choice = usize::from(input.byte());
        let pool = self.bench.cores[choice % self.cores()].pool().clone();
        if choice & 0x80 == 0 {
            self.ballast.clear();
            return;
        }
        let mut piece = 1 << 20;
        while piece >= 4096 << (choice >> 4 & 3) {
            match pool.allocate(piece) {
                Ok(buffer) => self.ballast.push(buffer),
                Err(_) => piece /= 2,
            }
        }
    }

    fn administer(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick(input) else {
            return;
        };
        let (choice, player) = (input.byte(), &mut self.players[at]);
        let unit = u32::from(choice >> 4) % UNITS;
        let (who, lun) = (player.who, number(unit));
        let receipt = Rc::new(());
        self.receipts.push(Rc::downgrade(&receipt));
        let core = &mut self.bench.cores[who.core];
        let sees = &mut player.luns[unit as usize];
        match (*sees, choice % 3) {
            (Some(read_only), 0) => {
                *sees = Some(!read_only);
                core.set_read_only(who.key, lun, !read_only, receipt);
            }
            (Some(_), _) => {
                *sees = None;
                core.take_lun(who.key, lun, receipt);
            }
            (None, _) => {
                *sees = Some(false);
                core.give_lun(who.key, visible(lun, unit), receipt);
            }
        }
        self.bench.step(who.core);
    }

    // ---- what must hold ----------------------------------------------------------------------

    /// Blocks of units that cores refuse access to.
    fn refusing(&self) -> Vec<(u32, usize, Range<u64>)> {
        let all = (0..UNITS).flat_map(|unit| (0..self.cores()).map(move |core| (unit, core)));
        all.flat_map(|(unit, core)| {
            let refused = self.bench.cores[core].refused_blocks(UnitIndex(unit));
            refused
                .iter()
                .map(move |blocks| (unit, core, blocks.clone()))
        })
        .collect()
    }

    /// Turns end; the engines look at themselves then.
    fn end_turn(&mut self, refused: &[(u32, usize, Range<u64>)]) {
        for core in 0..self.cores() {
            self.bench.cores[core].handle_memory();
            self.bench.step(core);
        }
        let refusing = self.refusing();
        for unit in 0..UNITS {
            for core in 0..self.cores() {
                let log = self.bench.disk_of(unit as usize, core).log();
                let of_core = |one: &&(u32, usize, Range<u64>)| (one.0, one.1) == (unit, core);
                for one in refused.iter().filter(of_core) {
                    // What another has taken apart meanwhile is refused no longer as a whole.
                    let is_refused = refusing.contains(one);
                    let meets =
                        |line: &String| blocks_of(line).is_some_and(|it| overlap(&it, &one.2));
                    let begun = log.iter().find(|line| is_refused && meets(line));
                    assert!(
                        begun.is_none(),
                        "core {core} refuses {one:?} and begins {begun:?}"
                    );
                }
            }
        }
        for at in 0..self.players.len() {
            self.note_asked(at);
            let player = &mut self.players[at];
            let port = self.bench.port(player.who);
            player.over = port.answers.len() + port.abandoned.len();
            assert!(
                player.over <= player.sent.len(),
                "more outcomes than commands"
            );
        }
    }

    fn end(mut self) {
        self.ballast.clear();
        for at in 0..self.players.len() {
            let who = self.players[at].who;
            if !self.players[at].is_ending {
                self.bench.end_session(who);
            }
        }
        self.bench.settle();
        for unit in 0..UNITS as usize {
            for core in 0..self.cores() {
                self.bench.disk_of(unit, core).take(Take::Now);
            }
        }
        self.bench.finish_everything();
        for player in &self.players {
            assert!(
                self.bench.is_over(player.who),
                "{:?} does not end",
                player.who
            );
            let left = self.bench.left_by(player.who);
            let port = self.bench.port(player.who);
            let mut outcomes: Vec<u32> = port.answers.iter().map(|(id, _)| *id).collect();
            outcomes.extend(&port.abandoned);
            outcomes.sort_unstable();
            let before = outcomes.len();
            outcomes.dedup();
            assert_eq!(outcomes.len(), before, "a command has two outcomes");
            assert!(
                before <= player.sent.len() && before + left >= player.sent.len(),
                "a command has no outcome"
            );
        }
        let receipts = self.receipts.iter();
        let kept = receipts
            .filter(|receipt| receipt.strong_count() > 0)
            .count();
        assert_eq!(kept, 0, "receipts are kept");
        self.bench.end();
    }
}

fn number(unit: u32) -> u16 {
    u16::try_from(unit).unwrap_or(0)
}

fn draw_command(input: &mut Input<'_>) -> Cdb {
    let (kind, place, how) = (input.byte(), input.byte(), input.byte());
    let (lba, blocks) = (u32::from(place >> 4), u16::from(place & 0x0f) + 1);
    let key = u64::from(how & 3) + 1;
    let few = u8::try_from(blocks.min(4)).unwrap_or(1);
    let command = match kind % 24 {
        0..=3 => cdb::write(lba, blocks, how),
        4..=6 => cdb::read(lba, blocks),
        7 => cdb::write_and_verify(lba, blocks, how),
        8 => cdb::verify(lba, blocks, how),
        9..=11 => cdb::compare_and_write(lba, few, 0, how),
        12 => cdb::write_same(lba, blocks, how),
        13 => cdb::unmap(lba, u32::from(blocks)),
        14 => cdb::synchronize(),
        15 => cdb::lba_status(),
        16 => cdb::reserve(),
        17 => cdb::release(),
        18 => cdb::stop(),
        19 => cdb::start(),
        20 => cdb::register(key),
        21 => cdb::reserve_out(1, 1 + (how >> 4 & 7), key, 0, false),
        22 => cdb::preempt_and_abort(key, u64::from(place & 3) + 1),
        _ => cdb::test_unit_ready(),
    };
    let came = match how >> 5 {
        0..=3 => Came::Chunk,
        4 | 5 => Came::Heap,
        _ => Came::Later,
    };
    let attribute = match kind >> 5 {
        0..=4 => Some(TaskAttribute::Simple),
        5 => Some(TaskAttribute::Ordered),
        6 => Some(TaskAttribute::HeadOfQueue),
        _ => None,
    };
    let lun = u16::from(kind & 0x18 == 0x18);
    command.coming(came).attribute(attribute).to(lun)
}
