//! Sequence numbers that wrap.

use zerocopy::byteorder::big_endian::U32;

/// A 32-bit serial number that wraps (CmdSN, StatSN, DataSN and their kin).
///
/// There is no `Ord`: serial order is not transitive, so a sort or a `max()` over it would be a
/// bug that the compiler cannot see. Ask [`SerialNumber::is_before`] instead.
///
/// Spec: RFC 7143 section 4.2.2.1, which borrows the arithmetic of RFC 1982.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SerialNumber(pub u32);

impl SerialNumber {
    /// The number after this one; `u32::MAX` is followed by zero.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number before this one; zero is preceded by `u32::MAX`.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.minus(1)
    }

    /// The number `count` places later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number `count` places earlier.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }

    /// True when `self` comes earlier than `other` within half of the number space.
    ///
    /// Two numbers exactly half the space apart are neither before nor after each other.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        let distance = other.0.wrapping_sub(self.0);
        distance != 0 && distance < 1 << 31
    }

    /// True when `self` comes later than `other` within half of the number space.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// Steps from `earlier` up to `self`; a huge number when `self` is in truth the earlier one.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// True when `self` lies in `first..=last`. The range is empty when `last` is just before
    /// `first`, which is how a closed command window looks.
    #[must_use]
    pub const fn is_within(self, first: Self, last: Self) -> bool {
        let size = last.0.wrapping_sub(first.0).wrapping_add(1);
        size != 0 && self.0.wrapping_sub(first.0) < size
    }
}

impl From<U32> for SerialNumber {
    fn from(wire: U32) -> Self {
        Self(wire.get())
    }
}

impl From<SerialNumber> for U32 {
    fn from(number: SerialNumber) -> Self {
        Self::new(number.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sn(value: u32) -> SerialNumber {
        SerialNumber(value)
    }

    #[test]
    fn order_holds_across_the_wrap_and_ends_at_half_the_space() {
        for (a, b, before) in [
            (0, 1, true),
            (1, 0, false),
            (5, 5, false),
            (u32::MAX, 0, true),
            (0, u32::MAX, false),
            (0xffff_fff0, 0x10, true),
            (0, 0x7fff_ffff, true),
            (0, 0x8000_0000, false),
            (0x8000_0000, 0, false),
        ] {
            assert_eq!(sn(a).is_before(sn(b)), before, "{a:#x} before {b:#x}");
            assert_eq!(sn(b).is_after(sn(a)), before, "{b:#x} after {a:#x}");
        }
    }

    #[test]
    fn steps_wrap_both_ways() {
        assert_eq!(sn(u32::MAX).next(), sn(0));
        assert_eq!(sn(0).previous(), sn(u32::MAX));
        assert_eq!(sn(0xffff_fffe).plus(4), sn(2));
        assert_eq!(sn(2).minus(4), sn(0xffff_fffe));
        assert_eq!(sn(2).distance_from(sn(0xffff_fffe)), 4);
    }

    #[test]
    fn a_window_holds_both_ends_and_a_closed_window_holds_nothing() {
        for (n, first, last, inside) in [
            (10, 10, 10, true),
            (9, 10, 12, false),
            (10, 10, 12, true),
            (12, 10, 12, true),
            (13, 10, 12, false),
            (10, 10, 9, false),
            (9, 10, 9, false),
            (0, 0xffff_ffff, 1, true),
            (2, 0xffff_ffff, 1, false),
            (0xffff_fffe, 0xffff_ffff, 1, false),
        ] {
            assert_eq!(
                sn(n).is_within(sn(first), sn(last)),
                inside,
                "{n} in {first}..={last}"
            );
        }
    }
}
