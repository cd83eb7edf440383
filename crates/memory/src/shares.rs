//! Who may take how much of a core's pool: the one place that decides.
//!
//! A *holder* is a session; what it holds is every buffer that was made for it and is not back:
//! data that comes in, data in a store, data in output that the kernel has not taken. Holders of one user, or of one
//! address that has no user, are a [`Party`](crate::Party): as many sessions as there are, they come from one peer. A
//! logical unit's share is decided by a like rule over what its store works on. Holders that nobody has to know before
//! they come, and that may be many, are a [`Crowd`](crate::Crowd): the same rule, over one part of the pool, among the
//! parties they come from. Who finds that part taken has its share ([`NoRoom::Share`]), so it waits apart, too.
//!
//! # Why nobody waits for ever
//!
//! 1. **One buffer for each party.** A party that holds nothing waits for the supply at most ([`NoRoom::Supply`]), in
//!    order of arrival. All others leave more, and wait apart ([`NoRoom::Share`]); first buffers of sessions count for
//!    their party as all do. In parts of 32, new work and data that comes unasked leave free
//!
//!    | | |
//!    |---|---|
//!    | 8 | of a holder that has something; it may have half of what is free, and no more than a quarter of the pool |
//!    | 6 | the first buffer of a holder whose party has something |
//!    | 5 | of a party that has, with that, no more than half of what it leaves |
//!    | 4 | of a party that has nothing, data that comes unasked |
//!    | 2 | of a party that has nothing, new work |
//!
//!    So one party alone, with however many holders, whatever they ask for, and if nothing comes back, leaves 6 parts.
//!    Parties that have little share one of these, and each other one finds its first buffer, of up to 3 parts (1 for
//!    data that comes unasked). A larger one, which only pools below 171 MiB cannot have in 3 parts, waits until enough
//!    came back; and one of more than 26 parts leaves less itself. Small ones pass large ones, which may have to wait
//!    for what holders have. Parties that act together take more than one. Holders that wait apart are asked in turn:
//!    that is likely to serve each, but it is no order.
//! 2. **No circle.** New work ([`Need::Begin`]) leaves 2 parts. Work that holds a buffer and needs a
//!    second one to end ([`Need::GoOn`]: what is read for a comparison) may take those, and stands
//!    before all new work. So no task that holds memory waits for one that waits for memory.
//! 3. **Data that has come** ([`Need::Arrived`]) does not wait at all: if it has no room, its
//!    command ends with TASK SET FULL. So no receive chunk waits for memory, and receiving, by which
//!    announced data comes in and its buffers go back, always goes on.
//! 4. **What is held comes back.** Announced data has a deadline, which data that comes moves by a time for its length,
//!    output that the peer does not take has one, and a unit whose store gives nothing back reaches its own
//!    share. Newcomers do not pass those who wait for the supply.
//!
//! Hence the first in the queue is served when enough came back, and then the next is the first.

/// What has to be left is counted in this many parts of the pool.
const PARTS: usize = 32;

/// So many are left by holders that have something.
const LEFT_BY_HOLDERS: usize = 8;

/// By holders that have nothing, in a party that has.
const LEFT_BY_FIRST_ONES: usize = 6;

/// By parties that have little.
const LEFT_BY_FEW: usize = 5;

/// By data that comes unasked for parties that have nothing.
const LEFT_BY_ARRIVED: usize = 4;

/// By new work of parties that have nothing.
const LEFT_BY_NEWCOMERS: usize = 2;

// Each leaves something to the next.
const _: () = assert!(PARTS > LEFT_BY_HOLDERS && LEFT_BY_HOLDERS > LEFT_BY_FIRST_ONES);
const _: () = assert!(LEFT_BY_FIRST_ONES > LEFT_BY_FEW && LEFT_BY_FEW > LEFT_BY_ARRIVED);
const _: () = assert!(LEFT_BY_ARRIVED > LEFT_BY_NEWCOMERS && LEFT_BY_NEWCOMERS > 0);

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

/// What is held by whom that asks for more, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// By the holder.
    pub own: usize,
    /// By all holders of its party, it among them.
    pub party: usize,
}

impl Held {
    /// By a holder that is a party by itself.
    #[must_use]
    pub const fn alone(own: usize) -> Self {
        Self { own, party: own }
    }

    /// What is in the way of a holder without room, whether by a share or because no buffer can be made.
    pub(crate) const fn why(self, need: Need) -> NoRoom {
        match need {
            Need::Begin | Need::Arrived if self.party > 0 => NoRoom::Share,
            Need::Begin | Need::Arrived | Need::GoOn => NoRoom::Supply,
        }
    }
}

impl Shares {
    /// Whether someone who holds so much may take `size` more of the `free` bytes.
    ///
    /// # Errors
    ///
    /// Which limit is in the way.
    pub const fn permit(
        self,
        need: Need,
        size: usize,
        free: usize,
        held: Held,
    ) -> Result<(), NoRoom> {
        let left = free.saturating_sub(size);
        let is_newcomer = held.party == 0;
        let is_fine = match need {
            Need::GoOn => true,
            // A buffer larger than the pool without that is given when nobody has anything:
            // else it would be waited for for ever.
            Need::Begin if is_newcomer => {
                left >= self.parts(LEFT_BY_NEWCOMERS) || free >= self.capacity
            }
            Need::Arrived if is_newcomer => left >= self.parts(LEFT_BY_ARRIVED),
            Need::Begin => self.permit_more(size, left, free / 2, held),
            Need::Arrived => self.permit_more(size, left, free, held),
        };
        if is_fine && size <= free {
            Ok(())
        } else {
            Err(held.why(need))
        }
    }

    /// The same for one of a party that has something. A holder may have `own_max` bytes.
    const fn permit_more(self, size: usize, left: usize, own_max: usize, held: Held) -> bool {
        let is_first = held.own == 0;
        let sum = held.own.saturating_add(size);
        let least = if held.party.saturating_add(size) <= left / 2 {
            LEFT_BY_FEW
        } else if is_first {
            LEFT_BY_FIRST_ONES
        } else {
            LEFT_BY_HOLDERS
        };
        left >= self.parts(least) && (is_first || (sum <= own_max && sum <= self.holder_max()))
    }

    const fn parts(self, count: usize) -> usize {
        self.capacity / PARTS * count
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: usize = 1 << 20;
    const SHARES: Shares = Shares { capacity: CAPACITY };

    /// What holders have, one list of sizes each. Each is a party, but for those that were put into one.
    #[derive(Debug)]
    struct Model {
        held: Vec<Vec<usize>>,
        party_of: Vec<usize>,
    }

    impl Model {
        fn of(holders: usize) -> Self {
            Self {
                held: vec![Vec::new(); holders],
                party_of: (0..holders).collect(),
            }
        }

        fn sum(&self, who: usize) -> usize {
            self.held[who].iter().sum()
        }

        fn sums(&self, who: usize) -> Held {
            let party =
                (0..self.held.len()).filter(|&one| self.party_of[one] == self.party_of[who]);
            Held {
                own: self.sum(who),
                party: party.map(|one| self.sum(one)).sum(),
            }
        }

        fn free(&self) -> usize {
            CAPACITY - self.held.iter().flatten().sum::<usize>()
        }

        fn take(&mut self, who: usize, need: Need, size: usize) -> Result<(), NoRoom> {
            SHARES.permit(need, size, self.free(), self.sums(who))?;
            self.held[who].push(size);
            Ok(())
        }

        /// These take all they get and give nothing back.
        fn be_greedy(&mut self, whos: std::ops::Range<usize>, sizes: &[usize]) {
            let mut is_progress = true;
            while is_progress {
                is_progress = false;
                for who in whos.clone() {
                    for &size in sizes {
                        is_progress |= self.take(who, Need::Begin, size).is_ok();
                        is_progress |= self.take(who, Need::Arrived, size).is_ok();
                    }
                }
            }
        }
    }

    fn need() -> impl Strategy<Value = Need> {
        prop_oneof![Just(Need::Begin), Just(Need::Arrived), Just(Need::GoOn)]
    }

    proptest! {
        /// Whatever was taken, nothing is given twice, and a party that has nothing is never over its share.
        #[test]
        fn nothing_is_given_twice_and_the_first_buffer_is_never_over_a_share(
            steps in prop::collection::vec((0..20_usize, need(), 1..CAPACITY, any::<bool>()), 1..300),
            parties in 1..20_usize,
        ) {
            let mut model = Model::of(20);
            model.party_of = (0..20).map(|who| who % parties).collect();
            for (who, need, size, gives_back) in steps {
                if gives_back {
                    model.held[who].pop();
                } else {
                    let held = model.sums(who);
                    let refused = model.take(who, need, size);
                    prop_assert!(held.party > 0 || refused != Err(NoRoom::Share));
                }
                prop_assert!(model.held.iter().flatten().sum::<usize>() <= CAPACITY);
            }
        }

        /// Holders of one party that take all they get and give nothing back leave room for each other party,
        /// though each of them also has its first buffer. And others that are as greedy leave room for the next.
        #[test]
        fn greedy_holders_leave_a_part_for_the_next(
            count in 1..200_usize,
            sizes in prop::collection::vec(1..=CAPACITY / 2, 1..6),
            small in 1..2000_usize,
        ) {
            let (other, last) = (count, count + 2);
            let mut model = Model::of(count + 3);
            model.party_of[..count].fill(0);
            model.party_of[other + 1] = other;
            model.be_greedy(0..count, &sizes);
            model.be_greedy(0..count, &[small, 1]);
            let part = CAPACITY / PARTS;
            prop_assert!(model.free() >= 6 * part, "{}", model.free());
            prop_assert_eq!(SHARES.permit(Need::Begin, 4 * part, model.free(), model.sums(last)), Ok(()));
            prop_assert_eq!(SHARES.permit(Need::Arrived, 2 * part, model.free(), model.sums(last)), Ok(()));
            // One buffer, and then more of them, in both of its holders.
            for who in [other, other, other, other + 1] {
                prop_assert_eq!(model.take(who, Need::Begin, part / 8), Ok(()));
                prop_assert_eq!(model.take(who, Need::Arrived, part / 8), Ok(()));
            }
            model.be_greedy(other..other + 2, &[small, 1]);
            prop_assert_eq!(SHARES.permit(Need::Arrived, part, model.free(), model.sums(last)), Ok(()));
            prop_assert_eq!(model.take(last, Need::Begin, 3 * part), Ok(()));
        }

        /// New work never takes what a second buffer needs.
        #[test]
        fn new_work_leaves_the_reserve(
            steps in prop::collection::vec((0..20_usize, 1..CAPACITY / 4), 1..300),
        ) {
            let mut model = Model::of(20);
            for (who, size) in steps {
                let _refused = model.take(who, Need::Begin, size);
            }
            prop_assert!(model.free() >= CAPACITY / PARTS * LEFT_BY_NEWCOMERS);
            prop_assert_eq!(model.take(0, Need::GoOn, CAPACITY / PARTS * LEFT_BY_NEWCOMERS), Ok(()));
        }

        /// A queue in order of arrival is served to its end, if each that was served gives back
        /// what it took, at last: nobody starves, and all is returned.
        #[test]
        fn a_queue_is_served_to_its_end(
            sizes in prop::collection::vec((0..8_usize, 1..=CAPACITY), 1..100),
        ) {
            let mut model = Model::of(8);
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
        let (half, part) = (CAPACITY / 2, CAPACITY / PARTS);
        let permit =
            |need, size, free, own, party| SHARES.permit(need, size, free, Held { own, party });
        let quarter = CAPACITY / HOLDER_MAX;
        assert_eq!(permit(Need::Begin, 1, CAPACITY, quarter - 1, half), Ok(()));
        assert_eq!(
            permit(Need::Begin, 1, CAPACITY, quarter, half),
            Err(NoRoom::Share)
        );
        assert_eq!(permit(Need::GoOn, 1, 1, quarter, half), Ok(()));
        assert_eq!(permit(Need::GoOn, 2, 1, quarter, half), Err(NoRoom::Supply));
        // What each must leave: one byte less, and it waits.
        for (need, own, party, parts, why) in [
            (Need::Begin, 1, half, LEFT_BY_HOLDERS, NoRoom::Share),
            (Need::Arrived, 1, half, LEFT_BY_HOLDERS, NoRoom::Share),
            (Need::Begin, 0, half, LEFT_BY_FIRST_ONES, NoRoom::Share),
            (Need::Arrived, 0, half, LEFT_BY_FIRST_ONES, NoRoom::Share),
            (Need::Begin, 1, part, LEFT_BY_FEW, NoRoom::Share),
            (Need::Arrived, 0, part, LEFT_BY_FEW, NoRoom::Share),
            (Need::Arrived, 0, 0, LEFT_BY_ARRIVED, NoRoom::Supply),
            (Need::Begin, 0, 0, LEFT_BY_NEWCOMERS, NoRoom::Supply),
        ] {
            let free = parts * part + 100;
            assert_eq!(permit(need, 100, free, own, party), Ok(()), "{parts}");
            assert_eq!(permit(need, 101, free, own, party), Err(why), "{parts}");
        }
        // Little is what is no more than half of what is left.
        let few = LEFT_BY_FEW * part;
        assert_eq!(permit(Need::Begin, 2, few + 2, 1, few / 2 - 2), Ok(()));
        assert_eq!(
            permit(Need::Begin, 2, few + 2, 1, few / 2 - 1),
            Err(NoRoom::Share)
        );
        assert!(SHARES.unit_may_go_on(0, 0));
        assert!(!SHARES.unit_may_go_on(100, 51));
    }
}
