//! Bodies of probes and acknowledgements.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::time::Duration;

use crate::bytes::{Reader, short};

/// In the place of an opcode: a short acknowledgement, which is no PDU and has no header.
pub(crate) const SHORT_ACK: u8 = 0x22;
/// All of the PDU has arrived.
const WHOLE: u16 = 0xffff;
/// The bytes of an acknowledgement before its entries.
pub(crate) const ACK_BYTES: usize = 12;
/// Tags in a probe.
pub(crate) const TAGS_ASKED_MAX: usize = 64;

/// Asks what has arrived. Padding may follow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Probe {
    /// Comes back in the answer; never 0.
    pub(crate) id: u32,
    /// The tags that the sender waits for.
    pub(crate) tags: Vec<u16>,
}

impl Probe {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = self.id.to_be_bytes().to_vec();
        body.extend(short(self.tags.len()).to_be_bytes());
        for tag in &self.tags {
            body.extend(tag.to_be_bytes());
        }
        body
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let id = reader.u32()?;
        let count = usize::from(reader.u16()?);
        (id != 0 && count <= TAGS_ASKED_MAX).then_some(())?;
        let tags = (0..count).map(|_| reader.u16()).collect::<Option<_>>()?;
        Some(Self { id, tags })
    }
}

/// What has arrived of the PDU under one tag.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    pub(crate) tag: u16,
    pub(crate) sequence: u32,
    /// The size of fragments that this counts in; 0 where there are none.
    pub(crate) fragment_bytes: u16,
    /// Fragments before the first that is missing; `None`: the PDU is whole.
    pub(crate) contiguous: Option<u16>,
    /// From that one on.
    pub(crate) bitmap: Vec<u8>,
}

impl Entry {
    /// Whether this fragment has arrived.
    pub(crate) fn has(&self, fragment: u16) -> bool {
        let Some(contiguous) = self.contiguous else {
            return true;
        };
        let Some(at) = fragment.checked_sub(contiguous) else {
            return true;
        };
        let byte = self.bitmap.get(usize::from(at / 8));
        byte.is_some_and(|byte| byte & 0x80_u8.wrapping_shr(u32::from(at)) != 0)
    }

    /// The bytes that it takes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.bitmap.len().saturating_add(11)
    }
}

/// Says what has arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ack {
    /// The probe that this answers; 0 for none.
    pub(crate) probe: u32,
    /// Frames that may be under way.
    pub(crate) window: u16,
    /// How long the newest frame waited for this, in microseconds.
    pub(crate) delay_us: u32,
    pub(crate) entries: Vec<Entry>,
}

impl Ack {
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_micros(u64::from(self.delay_us))
    }

    /// The bytes of it at length.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let bytes = self.entries.iter().map(Entry::encoded_bytes);
        bytes.fold(ACK_BYTES, usize::saturating_add)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = self.probe.to_be_bytes().to_vec();
        body.extend(self.window.to_be_bytes());
        body.extend(self.delay_us.to_be_bytes());
        body.extend(short(self.entries.len()).to_be_bytes());
        for entry in &self.entries {
            body.extend(entry.tag.to_be_bytes());
            body.extend(entry.sequence.to_be_bytes());
            body.extend(entry.fragment_bytes.to_be_bytes());
            body.extend(entry.contiguous.unwrap_or(WHOLE).to_be_bytes());
            body.push(u8::try_from(entry.bitmap.len()).unwrap_or_default());
            body.extend(&entry.bitmap);
        }
        body
    }

    /// `None` where more is said than that PDUs are whole. Up to two of them fit the shortest frame, sealed.
    pub(crate) fn encode_short(&self) -> Option<Vec<u8>> {
        let delay = u16::try_from(self.delay_us).ok()?;
        let is_short = |entry: &Entry| entry.contiguous.is_none();
        if self.probe != 0 || !self.entries.iter().all(is_short) {
            return None;
        }
        let mut body = self.window.to_be_bytes().to_vec();
        body.extend(delay.to_be_bytes());
        for entry in &self.entries {
            body.extend(entry.tag.to_be_bytes());
            body.extend(entry.sequence.to_be_bytes());
        }
        Some(body)
    }

    /// Zeros may follow.
    pub(crate) fn decode_short(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let (window, delay) = (reader.u16()?, reader.u16()?);
        let mut entries = Vec::new();
        while let Some(tag) = reader.u16().filter(|&tag| tag != 0) {
            entries.push(Entry {
                tag,
                sequence: reader.u32()?,
                fragment_bytes: 0,
                contiguous: None,
                bitmap: Vec::new(),
            });
        }
        Some(Self {
            probe: 0,
            window,
            delay_us: delay.into(),
            entries,
        })
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let (probe, window, delay_us) = (reader.u32()?, reader.u16()?, reader.u32()?);
        let count = reader.u16()?;
        let entries = (0..count)
            .map(|_| {
                let (tag, sequence, fragment_bytes) = (reader.u16()?, reader.u32()?, reader.u16()?);
                let contiguous = Some(reader.u16()?).filter(|&count| count != WHOLE);
                let length = usize::from(reader.u8()?);
                let bitmap = reader.bytes(length)?.to_vec();
                Some(Entry {
                    tag,
                    sequence,
                    fragment_bytes,
                    contiguous,
                    bitmap,
                })
            })
            .collect::<Option<_>>()?;
        Some(Self {
            probe,
            window,
            delay_us,
            entries,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_acknowledgement_is_laid_out_as_documented() {
        let whole = Entry {
            tag: 2,
            sequence: 3,
            fragment_bytes: 0,
            contiguous: None,
            bitmap: Vec::new(),
        };
        let part = Entry {
            tag: 4,
            sequence: 5,
            fragment_bytes: 1497,
            contiguous: Some(6),
            bitmap: vec![0x40],
        };
        assert!(part.has(5) && !part.has(6) && part.has(7) && !part.has(8) && !part.has(14));
        let ack = Ack {
            probe: 1,
            window: 256,
            delay_us: 7,
            entries: vec![whole, part],
        };
        let expected: &[u8] = &[
            0, 0, 0, 1, 1, 0, 0, 0, 0, 7, 0, 2, // the fixed part
            0, 2, 0, 0, 0, 3, 0, 0, 0xff, 0xff, 0, // the first
            0, 4, 0, 0, 0, 5, 5, 0xd9, 0, 6, 1, 0x40,
        ];
        assert_eq!(ack.encode(), expected);
        assert_eq!(Ack::decode(expected), Some(ack));
        let probe = Probe {
            id: 9,
            tags: vec![1, 300],
        };
        assert_eq!(probe.encode(), [0, 0, 0, 9, 0, 2, 0, 1, 1, 44]);
        assert_eq!(
            Probe::decode(&[0, 0, 0, 9, 0, 2, 0, 1, 1, 44, 0, 0]),
            Some(probe)
        );
    }

    #[test]
    fn a_short_acknowledgement_is_laid_out_as_documented() {
        let whole = |tag, sequence| Entry {
            tag,
            sequence,
            fragment_bytes: 0,
            contiguous: None,
            bitmap: Vec::new(),
        };
        let ack = Ack {
            probe: 0,
            window: 256,
            delay_us: 1001,
            entries: vec![whole(2, 3), whole(300, 5)],
        };
        let expected: &[u8] = &[1, 0, 3, 0xe9, 0, 2, 0, 0, 0, 3, 1, 44, 0, 0, 0, 5];
        assert_eq!(ack.encode_short().as_deref(), Some(expected));
        for zeros in [0, 1, 2, 30] {
            let padded = [expected, &vec![0; zeros]].concat();
            assert_eq!(Ack::decode_short(&padded), Some(ack.clone()));
        }
        assert_eq!(Ack::decode_short(&expected[..13]), None, "half an entry");
        assert_eq!(Ack::decode_short(&expected[..3]), None);
        // What it cannot say is said at length.
        let of = |change: fn(&mut Ack)| {
            let mut ack = ack.clone();
            change(&mut ack);
            ack.encode_short()
        };
        assert_eq!(of(|ack| ack.probe = 1), None);
        assert_eq!(of(|ack| ack.delay_us = 0x1_0000), None);
        assert_eq!(of(|ack| ack.entries[1].contiguous = Some(0)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(ack) = Ack::decode_short(&bytes) {
                let again = ack.encode_short().and_then(|body| Ack::decode_short(&body));
                prop_assert_eq!(again, Some(ack));
            }
            if let Some(ack) = Ack::decode(&bytes) {
                prop_assert_eq!(Ack::decode(&ack.encode()), Some(ack));
            }
            if let Some(probe) = Probe::decode(&bytes) {
                prop_assert!(probe.id != 0);
            }
        }
    }
}
