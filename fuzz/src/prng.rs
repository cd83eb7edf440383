//! Random numbers from a seed.

/// SplitMix64: equal seeds give equal numbers, on every machine.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// The stream of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; zero when there is none.
    #[expect(clippy::cast_possible_truncation, reason = "below a usize")]
    pub const fn below(&mut self, limit: usize) -> usize {
        match self.next_u64().checked_rem(limit as u64) {
            Some(rest) => rest as usize,
            None => 0,
        }
    }

    /// Eight bits.
    pub const fn byte(&mut self) -> u8 {
        self.next_u64().to_be_bytes()[0]
    }
}
