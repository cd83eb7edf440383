//! Who may take how much of a core's pool: the one place that decides.
//!
//! A *holder* is a session; what it holds is every buffer that was made for it and is not back:
//! data that comes in, data in a store, data in output that the kernel has not taken. A logical
//! unit's share is decided by the same rule over what its store works on. Holders that nobody has to know before they
//! come, and that may be many, are a [`Crowd`](crate::Crowd): the same rule, over one part of the pool, among the
//! parties they come from. Who finds that part taken has its share ([`NoRoom::Share`]), so it waits apart, too.
//!
//! # Why nobody waits for ever
//!
//! 1. **One buffer each.** Who holds nothing waits for the supply at most ([`NoRoom::Supply`]), in order
//!    of arrival. Who holds something may have half of what is free, leaves a quarter of the pool, for data
//!    that comes unasked too, and waits apart ([`NoRoom::Share`]): so however many holders give nothing
//!    back, and whatever they ask for, there is room for the first buffer of the next one, and they are not
//!    before it. Small ones pass large ones, which may have to wait for what holders have.
//! 2. **No circle.** New work ([`Need::Begin`]) leaves half of a reserve. Work that holds a buffer and needs a
//!    second one to end ([`Need::GoOn`]: what is read for a comparison) may take that reserve, and stands
//!    before all new work. So no task that holds memory waits for one that waits for memory.
//! 3. **Data that has come** ([`Need::Arrived`]) does not wait at all: if it has no room, its
//!    command ends with TASK SET FULL. So no receive chunk waits for memory, and receiving, by which
//!    announced data comes in and its buffers go back, always goes on.
//! 4. **What is held comes back.** Announced data has a deadline, output that the peer does not take
//!    has one, and a unit whose store gives nothing back reaches its own share. Newcomers do not pass
//!    those who wait for the supply.
//!
//! Hence the first in the queue is served when enough came back, and then the next is the first.

/// One part in this many of the pool is left alone by new work.
const RESERVE: usize = 8;

/// A holder has at most one part in this many, however much is free.
const HOLDER_MAX: usize = 4;

/// One part in this many is small.
const SMALL: usize = 128;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Something new, which can wait where it costs nothing: data to be read or asked for.
    Begin,
    /// Data that has come, or is coming, and has no other place. It cannot wait.
    Arrived,
    /// The second buffer of work that holds one.
    GoOn,
}

/// Why there is no buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoRoom {
    /// The holder has its share; something of its own must come back.
    Share,
    /// The pool has no room now; something must come back, no matter whose.
    Supply,
}

/// The rule for a pool of this size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shares {
    /// In bytes.
    pub capacity: usize,
}

impl Shares {
    /// Whether someone who holds `held` bytes may take `size` more of the `free` ones.
    ///
    /// # Errors
    ///
    /// Which limit is in the way.
    pub const fn permit(
        self,
        need: Need,
        size: usize,
        free: usize,
        held: usize,
    ) -> Result<(), NoRoom> {
        let left = free.saturating_sub(size);
        let sum = held.saturating_add(size);
        let reserve = self.capacity / RESERVE;
        let is_first = held == 0;
        let is_fine = match need {
            Need::GoOn => return fits(size <= free, NoRoom::Supply),
            // A buffer larger than the pool without that is given when nobody has anything:
            // else it would be waited for for ever.
            Need::Begin if is_first => left >= reserve / 2 || free >= self.capacity,
            Need::Begin => left >= 2 * reserve && sum <= free / 2 && sum <= self.holder_max(),
            Need::Arrived if is_first => left >= reserve,
            Need::Arrived => left >= 2 * reserve && sum <= free && sum <= self.holder_max(),
        };
        let why = if is_first {
            NoRoom::Supply
        } else {
            NoRoom::Share
        };
        fits(is_fine && size <= free, why)
    }

    /// Whether so few bytes pass those who wait for more, who might wait for others.
    #[must_use]
    pub const fn is_small(self, size: usize) -> bool {
        size <= self.capacity / SMALL
    }

    const fn holder_max(self) -> usize {
        self.capacity / HOLDER_MAX
    }

    /// Whether `held` bytes in the store of one unit may become more while others need room.
    #[must_use]
    pub const fn unit_may_go_on(self, free: usize, held: usize) -> bool {
        held == 0 || (held <= free / 2 && held < 2 * self.holder_max())
    }
}

const fn fits(is_fine: bool, why: NoRoom) -> Result<(), NoRoom> {
    if is_fine { Ok(()) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: usize = 1 << 20;
    const SHARES: Shares = Shares { capacity: CAPACITY };

    /// What holders have, one list of sizes each.
    #[derive(Debug, Default)]
    struct Model {
        held: Vec<Vec<usize>>,
    }

    impl Model {
        fn sum(&self, who: usize) -> usize {
            self.held[who].iter().sum()
        }

        fn free(&self) -> usize {
            CAPACITY - self.held.iter().flatten().sum::<usize>()
        }

        fn take(&mut self, who: usize, need: Need, size: usize) -> Result<(), NoRoom> {
            SHARES.permit(need, size, self.free(), self.sum(who))?;
            self.held[who].push(size);
            Ok(())
        }
    }

    fn need() -> impl Strategy<Value = Need> {
        prop_oneof![Just(Need::Begin), Just(Need::Arrived), Just(Need::GoOn)]
    }

    proptest! {
        /// Whatever was taken, nothing is given twice, and who has nothing is never over its share.
        #[test]
        fn nothing_is_given_twice_and_the_first_buffer_is_never_over_a_share(
            steps in prop::collection::vec((0..20_usize, need(), 1..CAPACITY, any::<bool>()), 1..300),
        ) {
            let mut model = Model { held: vec![Vec::new(); 20] };
            for (who, need, size, gives_back) in steps {
                if gives_back {
                    model.held[who].pop();
                } else {
                    let held = model.sum(who);
                    let refused = model.take(who, need, size);
                    prop_assert!(held > 0 || refused != Err(NoRoom::Share));
                }
                prop_assert!(model.held.iter().flatten().sum::<usize>() <= CAPACITY);
            }
        }

        /// Holders that take all they get and give nothing back leave room for one more, though each
        /// of them also has its first buffer.
        #[test]
        fn greedy_holders_leave_a_part_for_the_next(count in 1..60_usize, size in 1..2000_usize) {
            let mut model = Model { held: vec![Vec::new(); count + 1] };
            let mut is_progress = true;
            while is_progress {
                is_progress = false;
                for who in 0..count {
                    is_progress |= model.take(who, Need::Begin, size).is_ok();
                    is_progress |= model.take(who, Need::Arrived, size).is_ok();
                }
            }
            prop_assert!(model.free() >= CAPACITY / RESERVE, "{}", model.free());
            prop_assert_eq!(model.take(count, Need::Begin, CAPACITY / RESERVE), Ok(()));
        }

        /// New work never takes what a second buffer needs.
        #[test]
        fn new_work_leaves_the_reserve(
            steps in prop::collection::vec((0..20_usize, 1..CAPACITY / 4), 1..300),
        ) {
            let mut model = Model { held: vec![Vec::new(); 20] };
            for (who, size) in steps {
                let _refused = model.take(who, Need::Begin, size);
            }
            prop_assert!(model.free() >= CAPACITY / RESERVE / 2);
            prop_assert_eq!(model.take(0, Need::GoOn, CAPACITY / RESERVE / 2), Ok(()));
        }

        /// A queue in order of arrival is served to its end, if each that was served gives back
        /// what it took, at last: nobody starves, and all is returned.
        #[test]
        fn a_queue_is_served_to_its_end(
            sizes in prop::collection::vec((0..8_usize, 1..=CAPACITY), 1..100),
        ) {
            let mut model = Model { held: vec![Vec::new(); 8] };
            let mut queue: std::collections::VecDeque<_> = sizes.into();
            let mut served = std::collections::VecDeque::new();
            while let Some(&(who, size)) = queue.front() {
                match model.take(who, Need::Begin, size) {
                    Ok(()) => {
                        queue.pop_front();
                        served.push_back(who);
                    }
                    Err(why) => {
                        let back: Option<usize> = served.pop_front();
                        prop_assert!(back.is_some(), "{size} of {}: {why:?}", model.free());
                        model.held[back.unwrap()].remove(0);
                    }
                }
            }
            for who in served {
                model.held[who].remove(0);
            }
            prop_assert_eq!(model.free(), CAPACITY);
        }
    }

    #[test]
    fn the_edges_of_a_share() {
        let half = CAPACITY / 2;
        assert_eq!(SHARES.permit(Need::Begin, 100, half, 0), Ok(()));
        let quarter = CAPACITY / HOLDER_MAX;
        assert_eq!(SHARES.permit(Need::Begin, 1, CAPACITY, quarter - 1), Ok(()));
        assert_eq!(
            SHARES.permit(Need::Begin, 1, CAPACITY, quarter),
            Err(NoRoom::Share)
        );
        assert_eq!(SHARES.permit(Need::GoOn, 1, 1, quarter), Ok(()));
        assert_eq!(
            SHARES.permit(Need::GoOn, 2, 1, quarter),
            Err(NoRoom::Supply)
        );
        assert!(SHARES.unit_may_go_on(0, 0));
        assert!(!SHARES.unit_may_go_on(100, 51));
    }
}
