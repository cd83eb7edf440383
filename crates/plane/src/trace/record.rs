//! What a trace has noted: packets in blocks, of which the oldest go when there are too many.

use std::collections::VecDeque;
use std::sync::Arc;

use pcap::{Frame, LinkType, Packets, Segment};

/// A block is full when it has so much, in bytes.
pub(super) const BLOCK_BYTES: usize = 16 * 1024;

/// Packets that are dropped together.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    packets: Packets,
    pdus: u64,
}

impl Block {
    pub(super) const fn packets(&self) -> &Packets {
        &self.packets
    }
}

/// What a trace has noted.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The oldest first. Nothing is added to them any more, so that a reader may share them.
    full: VecDeque<Arc<Block>>,
    /// Of the full ones.
    full_bytes: usize,
    /// The one that is being filled.
    last: Block,
    pdus: u64,
    dropped: u64,
    link: LinkType,
}

impl Record {
    /// Notes a PDU of a stream, and drops the oldest until no more than `keep_bytes` are left.
    pub(super) fn push(&mut self, pdu: &Segment<'_>, keep_bytes: usize) {
        self.last.packets.push(pdu);
        self.count(keep_bytes);
    }

    /// Notes a frame, and drops the oldest in the same way. A trace of frames has nothing else.
    pub(super) fn push_frame(&mut self, frame: &Frame<'_>, keep_bytes: usize) {
        self.link = LinkType::Ethernet;
        self.last.packets.push_frame(frame);
        self.count(keep_bytes);
    }

    fn count(&mut self, keep_bytes: usize) {
        self.last.pdus += 1;
        self.pdus += 1;
        while self.full_bytes + self.last.packets.len_bytes() > keep_bytes
            && let Some(oldest) = self.full.pop_front()
        {
            self.full_bytes -= oldest.packets.len_bytes();
            self.pdus -= oldest.pdus;
            self.dropped += oldest.pdus;
        }
        if self.last.packets.len_bytes() >= BLOCK_BYTES {
            let full = std::mem::take(&mut self.last);
            self.full_bytes += full.packets.len_bytes();
            self.full.push_back(Arc::new(full));
        }
    }

    /// What its packets begin with.
    pub(super) const fn link(&self) -> LinkType {
        self.link
    }

    /// PDUs that are there.
    pub(super) const fn pdus(&self) -> u64 {
        self.pdus
    }

    /// PDUs that were there.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// All that is there, the oldest first.
    pub(super) fn blocks(&self) -> Vec<Arc<Block>> {
        let last = Arc::new(self.last.clone());
        self.full.iter().cloned().chain([last]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn push(record: &mut Record, bytes: &[u8], keep_bytes: usize) {
        let pdu = Segment {
            at: Duration::ZERO,
            from: "192.0.2.1:1".parse().unwrap(),
            to: "192.0.2.2:2".parse().unwrap(),
            position: 0,
            acknowledged: 0,
            whole_bytes: bytes.len(),
            bytes,
        };
        record.push(&pdu, keep_bytes);
    }

    fn len_bytes(record: &Record) -> usize {
        let blocks = record.blocks();
        blocks.iter().map(|block| block.packets().len_bytes()).sum()
    }

    #[test]
    fn the_last_pdus_are_kept_and_no_more_than_wanted() {
        let keep_bytes = 4 * BLOCK_BYTES;
        let mut record = Record::default();
        for number in 0..1000_u32 {
            push(&mut record, &number.to_be_bytes().repeat(100), keep_bytes);
            assert!(len_bytes(&record) <= keep_bytes, "{number}");
            assert_eq!(record.pdus() + record.dropped(), u64::from(number) + 1);
        }
        // At most one block less than there may be.
        assert!(len_bytes(&record) > keep_bytes - 2 * BLOCK_BYTES);
        let blocks = record.blocks();
        let file = pcap::file(LinkType::Ip, blocks.iter().map(|block| block.packets()));
        assert!(file.ends_with(&999_u32.to_be_bytes().repeat(100)));
        assert_eq!(record.pdus(), (len_bytes(&record) / 456) as u64);
    }

    #[test]
    fn what_a_reader_has_does_not_change_any_more() {
        let mut record = Record::default();
        push(&mut record, b"first", BLOCK_BYTES);
        let before = record.blocks();
        push(&mut record, b"second", BLOCK_BYTES);
        let file = pcap::file(LinkType::Ip, before.iter().map(|block| block.packets()));
        assert!(file.ends_with(b"first"));
        assert_eq!((before.len(), record.pdus()), (1, 2));
    }
}
