//! The life of a command that has to wait: what it waited for, from when, and how long.
//!
//! Times are those of the turns in which something changed, so nothing here reads a clock, and a
//! change within a turn costs one comparison.

use std::time::Duration;

use scsi::Status;

/// What a command may wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// From its header to the whole command in its turn: immediate data, and the commands numbered
    /// before it.
    Arrival,
    /// Older commands of its initiator, as its task attribute asks.
    Order,
    /// Data from its initiator, and room for it.
    Data,
    /// A buffer for the store, or to answer from.
    Memory,
    /// Other commands on the same blocks, when one of them must be atomic.
    Fence,
    /// A change of state that all cores share.
    Owner,
    /// The store, and a turn of the core for its work.
    Store,
}

impl Phase {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Arrival,
        Self::Order,
        Self::Data,
        Self::Memory,
        Self::Fence,
        Self::Owner,
        Self::Store,
    ];

    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Order => "order",
            Self::Data => "data",
            Self::Memory => "memory",
            Self::Fence => "fence",
            Self::Owner => "owner",
            Self::Store => "store",
        }
    }
}

// The number of a phase is the place of its span.
const _: () = {
    let mut at = 0;
    while at < Phase::ALL.len() {
        assert!(Phase::ALL[at] as usize == at);
        at += 1;
    }
    assert!(at == Phase::Store as usize + 1, "a phase is missing");
};

/// How a command ended, if it has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// It was answered.
    Answered(Status),
    /// It was aborted, or its session ended.
    Aborted,
    /// It waits.
    Pending,
}

impl Ending {
    /// In words: its status, or `aborted`. `None` while it waits.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Answered(status) => Some(status.name()),
            Self::Aborted => Some("aborted"),
            Self::Pending => None,
        }
    }
}

/// How long a command waited for something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PhaseTime {
    /// For what.
    pub phase: Phase,
    /// When it began to, counted from its arrival.
    pub from: Duration,
    /// How long, all times taken together.
    pub took: Duration,
}

/// As kept: 71 minutes are the most that can be kept.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    from_us: u32,
    us: u32,
}

/// What a command has waited for so far.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    arrived: Duration,
    /// The turn in which it last began or ended to wait.
    entered: Duration,
    spans: [Span; Phase::ALL.len()],
}

impl Life {
    /// Of a command whose header came at `arrived` and which has its turn now.
    pub fn new(arrived: Duration, now: Duration) -> Self {
        let mut life = Self {
            arrived,
            entered: arrived,
            spans: Default::default(),
        };
        life.leave(Some(Phase::Arrival), now);
        life
    }

    /// It has waited for this, or for nothing, since the last call.
    pub fn leave(&mut self, phase: Option<Phase>, now: Duration) {
        if now == self.entered {
            return;
        }
        if let Some(phase) = phase {
            let span = &mut self.spans[phase as usize];
            if span.us == 0 {
                span.from_us = micros(self.entered.saturating_sub(self.arrived));
            }
            let waited = now.saturating_sub(self.entered);
            span.us = span.us.saturating_add(micros(waited));
        }
        self.entered = now;
    }

    /// The turn in which it last began or ended to wait.
    pub const fn waits_since(&self) -> Duration {
        self.entered
    }

    /// How long ago it came.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.arrived)
    }

    /// What it waited for at all, in the order in which it began to.
    pub fn phases(&self) -> Vec<PhaseTime> {
        let all = Phase::ALL.into_iter().zip(self.spans);
        let waited = all.filter(|(_, span)| span.us > 0);
        let mut phases: Vec<PhaseTime> = waited
            .map(|(phase, span)| PhaseTime {
                phase,
                from: Duration::from_micros(span.from_us.into()),
                took: Duration::from_micros(span.us.into()),
            })
            .collect();
        phases.sort_by_key(|one| one.from);
        phases
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn told(life: &Life) -> Vec<(Phase, u128, u128)> {
        let phases = life.phases().into_iter();
        phases
            .map(|one| (one.phase, one.from.as_millis(), one.took.as_millis()))
            .collect()
    }

    #[test]
    fn every_wait_is_told_from_its_first_beginning_and_as_a_whole() {
        let mut life = Life::new(ms(1000), ms(1005));
        life.leave(None, ms(1006));
        life.leave(Some(Phase::Data), ms(1016));
        life.leave(Some(Phase::Store), ms(1017));
        life.leave(Some(Phase::Fence), ms(1020));
        life.leave(Some(Phase::Store), ms(1040));
        assert_eq!(
            told(&life),
            [
                (Phase::Arrival, 0, 5),
                (Phase::Data, 6, 10),
                (Phase::Store, 16, 21),
                (Phase::Fence, 17, 3),
            ]
        );
        assert_eq!(life.age(ms(1041)), ms(41));
    }

    #[test]
    fn what_happens_within_a_turn_is_no_wait() {
        let mut life = Life::new(ms(7), ms(7));
        for phase in Phase::ALL {
            life.leave(Some(phase), ms(7));
        }
        assert_eq!(told(&life), []);
    }

    #[test]
    fn a_wait_too_long_to_be_kept_is_the_longest_that_can() {
        let mut life = Life::new(ms(0), ms(0));
        life.leave(Some(Phase::Store), Duration::from_secs(10_000));
        life.leave(Some(Phase::Store), Duration::from_secs(20_000));
        let longest = Duration::from_micros(u32::MAX.into());
        assert_eq!(life.phases()[0].took, longest);
    }

    #[test]
    fn phases_stand_where_their_numbers_say() {
        for (number, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, number, "{}", phase.as_str());
        }
    }
}
