//! New inputs of old ones.

use crate::prng::Prng;

/// Values at which lengths, counts and codes tend to break.
const INTERESTING: &[u32] = &[
    0,
    1,
    2,
    3,
    4,
    16,
    47,
    48,
    49,
    255,
    256,
    511,
    512,
    513,
    4095,
    4096,
    8192,
    65_535,
    65_536,
    0x00ff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

/// Changes `input` in one to eight places. Pieces of `other` may find their way into it.
#[must_use]
pub fn mutate(prng: &mut Prng, input: &[u8], other: &[u8], bytes_max: usize) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=prng.below(8) {
        change(prng, &mut bytes, other);
    }
    bytes.truncate(bytes_max);
    bytes
}

fn change(prng: &mut Prng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = prng.below(bytes.len());
    let left = bytes.len().saturating_sub(at);
    let len = prng.below(left.min(64)) + 1;
    match prng.below(10) {
        0 | 1 if left > 0 => bytes[at] ^= 1 << prng.below(8),
        2 if left > 0 => bytes[at] = prng.byte(),
        3 if left > 0 => bytes[at] = bytes[at].wrapping_add(prng.byte() % 17).wrapping_sub(8),
        4 => {
            let value = INTERESTING[prng.below(INTERESTING.len())].to_be_bytes();
            let width = [1, 2, 3, 4][prng.below(4)];
            for (to, from) in bytes.iter_mut().skip(at).zip(&value[4 - width..]) {
                *to = *from;
            }
        }
        5 if left >= len => {
            bytes.drain(at..at + len);
        }
        6 => {
            let piece: Vec<u8> = (0..len).map(|_| prng.byte()).collect();
            bytes.splice(at..at, piece);
        }
        7 if left >= len => {
            let piece = bytes[at..at + len].to_vec();
            let to = prng.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        8 if !other.is_empty() => {
            let from = prng.below(other.len());
            let len = prng.below((other.len() - from).min(512)) + 1;
            bytes.splice(at..at, other[from..from + len].iter().copied());
        }
        _ => {
            let from = prng.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_inputs_within_the_limit() {
        let (mut a, mut b) = (Prng::new(3), Prng::new(3));
        let (mut input, mut longest) = (Vec::new(), 0);
        for _ in 0..10_000 {
            let next = mutate(&mut a, &input, b"0123456789", 100);
            assert_eq!(next, mutate(&mut b, &input, b"0123456789", 100));
            assert!(next.len() <= 100);
            longest = longest.max(next.len());
            input = next;
        }
        assert_eq!(longest, 100);
    }
}
