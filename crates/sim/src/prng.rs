//! Random numbers from a seed. Equal seeds give equal numbers, on every machine.

/// SplitMix64. Small, good enough to draw faults with, and easy to split into streams.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// The stream of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for `purpose`, which does not depend on how much is drawn elsewhere.
    ///
    /// The network, the store and each initiator have their own, so that a change in one of them
    /// does not turn a run into quite another one.
    pub fn stream(seed: u64, purpose: &str) -> Self {
        let named = purpose
            .bytes()
            .fold(seed ^ 0x6a09_e667_f3bc_c908, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let mut stream = Self(named);
        Self(stream.next_u64())
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if there is none.
    pub const fn below(&mut self, limit: u64) -> u64 {
        match self.next_u64().checked_rem(limit) {
            Some(rest) => rest,
            None => 0,
        }
    }

    /// A number of the closed range.
    pub const fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// The same for sizes.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "not above `high`, which is a usize"
    )]
    pub const fn size(&mut self, low: usize, high: usize) -> usize {
        self.within(low as u64, high as u64) as usize
    }

    /// True in `permille` of 1000 cases.
    pub const fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < permille as u64
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let last = from.len().checked_sub(1)?;
        from.get(self.size(0, last)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_are_repeatable() {
        let draw = |purpose| Prng::stream(7, purpose).next_u64();
        assert_eq!(draw("network"), draw("network"));
        assert_ne!(draw("network"), draw("store"));
        assert_ne!(draw("network"), Prng::stream(8, "network").next_u64());
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_both_ends() {
        let mut prng = Prng::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| prng.within(3, 6)).collect();
        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&6));
        assert_eq!(prng.below(0), 0);
        assert_eq!(prng.pick::<u8>(&[]), None);
        assert!(!prng.chance(0) && prng.chance(1000));
    }
}
