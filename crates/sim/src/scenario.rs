//! What a seed decides before anything happens: how large the world is and what goes wrong in it.

use std::time::Duration;

use iscsi::negotiate::{DigestPolicy, OperationalPreferences};

use crate::initiator::Mischief;
use crate::network::NetworkHabits;
use crate::plan::Plan;
use crate::prng::Prng;
use crate::setup::{MANY, Settings};

/// The frame of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How many initiators there are.
    pub initiators: usize,
    /// What the initiators do or suffer before the end begins.
    pub actions: usize,
    /// The size of the disk.
    pub blocks: usize,
    /// The disk may lose what was not flushed.
    pub volatile_cache: bool,
    /// Actions of 1000 after which its cache goes, and the disk goes on.
    pub losses: u32,
    /// How many requests the disk takes at a time.
    pub disk_queue_max: usize,
    /// The longest time a request takes, unless it hangs.
    pub disk_delay_max: Duration,
    /// Requests of 1000 that fail or tear.
    pub disk_errors: u32,
    /// Requests of 1000 that hang for a while.
    pub disk_hangs: u32,
    /// The longest time that a request hangs.
    pub disk_hang_max: Duration,
    /// Actions of 1000 after which the disk does nothing for a while.
    pub outages: u32,
    /// Actions of 1000 by which an administrator takes something from a session, or gives it back.
    pub takes: u32,
    /// Stores are late here, and everyone has time: how long initiators wait between their actions at
    /// most, one of these.
    pub pauses: &'static [u64],
    /// Letters to this core take their time, if there is such a core.
    pub slow_core: Option<usize>,
    /// Actions of 1000 that are faults of the network.
    pub network_faults: u32,
    /// Actions of 1000 that are task management.
    pub management: u32,
    /// Commands of 1000 that reserve, register and the like.
    pub reservations: u32,
    /// Registrations of 1000 that are to be there after a restart.
    pub kept_registrations: u32,
    /// Commands of 1000 that are COMPARE AND WRITE of a block everyone wants.
    pub contests: u32,
    /// How many blocks everyone wants.
    pub contested_blocks: usize,
    /// Commands of 1000 that switch the write cache.
    pub cache_switches: u32,
    /// Commands of 1000 that eject or load the medium.
    pub ejects: u32,
    /// Actions of 1000 by which an administrator ejects or loads the medium.
    pub medium_moves: u32,
    /// Actions of 1000 by which an administrator ends a session.
    pub dismissals: u32,
    /// Actions of 1000 by which an administrator changes the rules of access.
    pub changes: u32,
    /// Actions of 1000 by which most initiators lose their links at one moment, when a change begins.
    pub storms: u32,
    /// Actions of 1000 that are crashes of the target's machine.
    pub crashes: u32,
    /// Times of 1000 that the state of the unit cannot be made safe.
    pub keep_failures: u32,
    /// Times of 1000 that another target has saved before.
    pub keep_conflicts: u32,
    /// The longest time that takes.
    pub keep_delay_max: Duration,
    /// What the first initiator does wrong now and then, if anything.
    pub mischief: Vec<Mischief>,
    /// The network.
    pub network: NetworkHabits,
    /// Letters between cores take up to so long.
    pub mail_delay_max: Duration,
    /// The target.
    pub target: Settings,
    /// What each initiator offers.
    pub offers: Vec<OperationalPreferences>,
}

/// Pools of a core: what is given beside the smallest is never enough for all.
const POOL_BYTES: [usize; 3] = [2560 * 1024, 3072 * 1024, 16 * 1024 * 1024];

impl Scenario {
    /// What the seed says.
    pub fn draw(seed: u64) -> Self {
        let mut scenario = Self::ordinary(seed);
        if scenario.volatile_cache {
            let mut far = Prng::stream(seed, "scenario of a disk that is far away");
            scenario.losses = far.pick(&[0, 0, 20, 100]).unwrap_or(0);
        }
        if seed % LATE == 3 {
            scenario.late(seed)
        } else if seed % SAVING == 6 {
            scenario.saving(seed)
        } else if seed % CROWDED == 1 {
            scenario.crowded(seed)
        } else if seed % CONTENDED == 10 {
            scenario.contended(seed)
        } else {
            scenario
        }
    }

    fn ordinary(seed: u64) -> Self {
        let mut prng = Prng::stream(seed, "scenario");
        let initiators = prng.size(1, 3);
        // Each kind of trouble is there in a part of the seeds only, so that in the others a
        // failure cannot be excused with it.
        let mut trouble = |share: u32, permille: u32| {
            if prng.chance(share) { permille } else { 0 }
        };
        let disk_errors = trouble(300, 40);
        let disk_hangs = trouble(250, 20);
        let network_faults = trouble(400, 30);
        let management = trouble(400, 50);
        let reservations = trouble(250, 80);
        let contests = trouble(200, 500);
        let cache_switches = trouble(200, 20);
        let crashes = trouble(250, 10);
        let has_mischief = trouble(300, 1) > 0;
        let mut kinds = Mischief::ALL.to_vec();
        kinds.retain(|_| has_mischief && prng.chance(400));
        let mut keeper = Prng::stream(seed, "scenario of the keeper");
        let keep_failures = keeper.pick(&[0, 0, 0, 300]).unwrap_or(0);
        let keep_delay_max = micros(keeper.pick(&[0, 200, 20_000, 10_000_000]).unwrap_or(0));
        let mut drive = Prng::stream(seed, "scenario of the drive");
        let ejects = drive.pick(&[0, 0, 0, 60]).unwrap_or(0);
        let mut administrator = Prng::stream(seed, "scenario of the administrator");
        let medium_moves = administrator.pick(&[0, 0, 0, 40]).unwrap_or(0);
        let dismissals = administrator.pick(&[0, 0, 0, 20]).unwrap_or(0);
        let changes = administrator.pick(&[0, 0, 0, 20]).unwrap_or(0);
        Self {
            initiators,
            actions: prng.size(20, 300),
            blocks: prng.pick(&[8, 64, 256]).unwrap_or(64),
            volatile_cache: prng.chance(700),
            losses: 0,
            disk_queue_max: prng.pick(&[1, 4, 64]).unwrap_or(64),
            disk_delay_max: micros(prng.pick(&[0, 100, 5_000]).unwrap_or(100)),
            disk_errors,
            disk_hangs,
            disk_hang_max: Duration::from_secs(8),
            outages: 0,
            takes: 0,
            pauses: &[0, 0, 10, 1_000, 30_000],
            slow_core: None,
            network_faults,
            management,
            reservations,
            kept_registrations: 300,
            contests,
            contested_blocks: 1,
            cache_switches,
            ejects,
            medium_moves,
            dismissals,
            changes,
            storms: 0,
            crashes,
            keep_failures,
            keep_conflicts: keeper.pick(&[0, 0, 0, 100]).unwrap_or(0),
            keep_delay_max,
            mischief: kinds,
            network: NetworkHabits {
                delay_max: micros(prng.pick(&[0, 50, 3_000]).unwrap_or(50)),
                piece_max_bytes: prng.pick(&[5, 100, 1460, 65_536]).unwrap_or(1460),
                window_bytes: prng.pick(&[100, 8_192, 1_000_000]).unwrap_or(8192),
            },
            mail_delay_max: micros(prng.pick(&[0, 10, 500]).unwrap_or(10)),
            target: target(&mut prng),
            offers: (0..initiators).map(|_| preferences(&mut prng)).collect(),
        }
    }

    /// The same with stores that are late: requests hang for longer than anybody waits, letters to one
    /// core take their time, and an administrator takes LUNs meanwhile.
    fn late(mut self, seed: u64) -> Self {
        let mut prng = Prng::stream(seed, "scenario of hanging stores");
        let cores = prng.size(1, 3);
        self.target.cores = cores;
        self.initiators = prng.size(2, 4);
        let offer = self.offers.first().cloned().into_iter().cycle();
        let more = offer.take(self.initiators.saturating_sub(self.offers.len()));
        self.offers.extend(more.collect::<Vec<_>>());
        self.actions = prng.size(60, 240);
        self.blocks = 8;
        self.disk_errors = 0;
        self.disk_hangs = prng.pick(&[20, 150, 300]).unwrap_or(150);
        self.disk_hang_max = Duration::from_secs(12);
        self.outages = prng.pick(&[0, 10, 30]).unwrap_or(10);
        self.takes = prng.pick(&[0, 30, 80]).unwrap_or(30);
        self.pauses = prng
            .pick(&[&[10, 1_000, 30_000, 300_000][..], &[0, 10, 1_000]])
            .unwrap_or_default();
        self.slow_core = prng.chance(600).then(|| prng.size(0, cores - 1));
        self.management = prng.pick(&[0, 60, 150]).unwrap_or(60);
        self.contests = prng.pick(&[0, 0, 300]).unwrap_or(0);
        self.cache_switches = 0;
        self.crashes = 0;
        // The administrator takes LUNs without a change of the rules here.
        self.changes = 0;
        self.keep_delay_max = self.keep_delay_max.min(Duration::from_millis(20));
        // Where a LUN may be missing, the answer of a wrong command is that of a right one.
        self.mischief.retain(|kind| *kind != Mischief::TagInUse);
        if prng.chance(500) {
            self.mischief.push(Mischief::UnaskedData);
        }
        self
    }

    /// The same with a state of the unit that changes often, and saves of it that fail, between crashes.
    fn saving(mut self, seed: u64) -> Self {
        let mut prng = Prng::stream(seed, "scenario of saves");
        self.actions = prng.size(100, 300);
        self.reservations = 300;
        self.kept_registrations = 700;
        self.keep_failures = 300;
        self.keep_conflicts = prng.pick(&[0, 0, 20]).unwrap_or(0);
        self.crashes = prng.pick(&[0, 10, 30]).unwrap_or(10);
        self
    }

    /// The same with many initiators, which lose their links at one moment again and again, while cores
    /// have other things to do than to lose them and an administrator changes the rules.
    fn crowded(mut self, seed: u64) -> Self {
        let mut prng = Prng::stream(seed, "scenario of the crowd");
        self.initiators = prng.size(6, 12);
        self.offers = (0..self.initiators)
            .map(|_| preferences(&mut prng))
            .collect();
        self.actions = prng.size(100, 300);
        self.storms = prng.pick(&[10, 40]).unwrap_or(40);
        self.changes = prng.pick(&[0, 20]).unwrap_or(0);
        self.pauses = &[0, 10, 1_000];
        self.crashes = 0;
        self.mischief.clear();
        self.target.is_busy = prng.chance(700);
        self
    }
}

impl Scenario {
    /// The same with initiators that never stop to compare blocks on a slow store, so that there is always a fence
    /// somewhere. A command that meets one has little time.
    fn contended(mut self, seed: u64) -> Self {
        let mut prng = Prng::stream(seed, "scenario of many fences");
        self.initiators = prng.size(4, 6);
        self.offers = (0..self.initiators)
            .map(|_| preferences(&mut prng))
            .collect();
        self.actions = prng.size(200, 400);
        self.blocks = 8;
        self.disk_queue_max = 64;
        self.disk_delay_max = Duration::from_millis(20);
        self.disk_errors = 0;
        self.disk_hangs = 0;
        self.network_faults = 0;
        self.management = prng.pick(&[0, 20]).unwrap_or(0);
        self.contests = 700;
        self.contested_blocks = 8;
        self.cache_switches = 0;
        self.crashes = 0;
        self.ejects = 0;
        self.medium_moves = 0;
        self.dismissals = 0;
        self.changes = 0;
        self.pauses = &[0, 10];
        self.mischief.clear();
        self.target.queue_depth = prng.pick(&[2, 8]).unwrap_or(2);
        self.target.fence_timeout = Duration::from_millis(100);
        self
    }

    /// A block that everyone wants.
    pub fn contested_block(&self, prng: &mut Prng) -> usize {
        match self.contested_blocks {
            1 => 0,
            wanted => prng.size(0, wanted - 1),
        }
    }

    /// Whether fences are so many that a command may wait for one beyond its deadline.
    pub const fn has_many_fences(&self) -> bool {
        self.contested_blocks > 1
    }
}

/// One world of so many has stores that are late.
const LATE: u64 = 7;

/// In one world of so many the state of the unit is saved often, unless its stores are late.
const SAVING: u64 = 16;

/// One world of so many is crowded, unless its stores are late.
const CROWDED: u64 = 8;

/// One world of so many has many fences, unless its stores are late.
const CONTENDED: u64 = 16;

impl Scenario {
    /// Whether the rules of access change.
    pub const fn changes_rules(&self) -> bool {
        self.changes > 0 || self.storms > 0
    }

    /// Whether making a state safe may take longer than a change may wait for it.
    pub const fn keeps_slowly(&self) -> bool {
        self.keep_delay_max.as_secs() > 0
    }
}

/// The target, which is short of something now and then.
fn target(prng: &mut Prng) -> Settings {
    Settings {
        plan: Plan::one(),
        cores: prng.size(1, 3),
        queue_depth: prng.pick(&[1, 2, 8, 32]).unwrap_or(8),
        preferences: preferences(prng),
        abort_timeout: Duration::from_secs(2),
        fence_timeout: Duration::from_secs(5),
        fence_waits: 1,
        login_timeout: Duration::from_secs(15),
        nop_interval: Duration::from_secs(5),
        nop_timeout: Duration::from_secs(5),
        pool_bytes: prng.pick(&POOL_BYTES).unwrap_or(3072 * 1024),
        is_busy: false,
        logins_max: MANY,
        sabotage: None,
    }
}

/// A side of a negotiation that takes small values seriously.
fn preferences(prng: &mut Prng) -> OperationalPreferences {
    let digests = [
        DigestPolicy::Allowed,
        DigestPolicy::Allowed,
        DigestPolicy::Preferred,
    ];
    let sizes = [512, 1024, 4096, 65_536];
    let mut size = || prng.pick(&sizes).unwrap_or(512);
    let (segment, first, burst) = (size(), size(), size().max(1024));
    OperationalPreferences {
        header_digest: prng.pick(&digests).unwrap_or_default(),
        data_digest: prng.pick(&digests).unwrap_or_default(),
        max_connections: u16::try_from(prng.within(1, 3)).unwrap_or(1),
        initial_r2t: prng.chance(500),
        immediate_data: prng.chance(700),
        max_recv_data_segment_length_bytes: segment,
        max_burst_length_bytes: burst,
        first_burst_length_bytes: first.min(burst),
        max_outstanding_r2t: u16::try_from(prng.within(1, 4)).unwrap_or(1),
        ..OperationalPreferences::default()
    }
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_trouble_comes_up_and_stays_away_in_turn() {
        let drawn: Vec<Scenario> = (0..200).map(Scenario::draw).collect();
        let facts: [fn(&Scenario) -> bool; 15] = [
            |scenario| scenario.disk_errors > 0,
            |scenario| scenario.disk_hangs > 0,
            |scenario| scenario.network_faults > 0,
            |scenario| scenario.management > 0,
            |scenario| scenario.reservations > 0,
            |scenario| scenario.crashes > 0,
            |scenario| scenario.ejects > 0,
            |scenario| scenario.medium_moves > 0,
            |scenario| scenario.dismissals > 0,
            |scenario| scenario.changes > 0,
            |scenario| scenario.storms > 0,
            |scenario| scenario.keep_conflicts > 0,
            |scenario| !scenario.mischief.is_empty(),
            |scenario| scenario.target.cores > 1,
            |scenario| scenario.losses > 0,
        ];
        for (number, fact) in facts.iter().enumerate() {
            let count = drawn.iter().filter(|scenario| fact(scenario)).count();
            assert!(
                (20..=180).contains(&count),
                "fact {number} in {count} of 200"
            );
        }
    }
}
