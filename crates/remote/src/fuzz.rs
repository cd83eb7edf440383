//! Entry points for fuzzing: any bytes in, nothing out, and never a panic.

use std::convert::Infallible;

use crate::device::look::{self, PAGE_BYTES_MAX, PAGES_MAX};
use crate::scsi::command::{Cdb, Facts, Sense, extents};

/// The longest answer that is given, in bytes.
const ANSWER_BYTES_MAX: usize = 0x7fff;
/// What a session over iSCSI moves with one command.
const DATA_BYTES_MAX: u32 = 1 << 20;

/// A device that answers anything to a first look, as a device of others and as a disk. The input is answers, in the
/// order in which they are asked for: a length of two bytes, whose first bit says that the command is refused, and so
/// many bytes. Commands behind the end are refused.
///
/// What is found is whole: INQUIRY data and pages with their headers, a list of commands that is not empty, and sizes
/// that a disk can be read and written with. The number of commands does not depend on what the device says.
pub fn look(bytes: &[u8]) {
    look_at_device(bytes);
    look_at_disk(bytes);
    let _any = Sense::parse(bytes);
    let range = 0..1 << 20;
    let found = extents(bytes, range.clone(), 16, 512);
    assert!(found.len() <= 16 && found.iter().all(|one| !one.range.is_empty()));
    let ends = found.iter().map(|one| one.range.end);
    let starts = found.iter().skip(1).map(|one| one.range.start);
    assert!(ends.clone().zip(starts).all(|(end, start)| end == start));
    assert!(ends.max() <= Some(range.end));
}

/// The answers of an input, and how many commands were given.
struct Answers<'a> {
    rest: &'a [u8],
    asked: usize,
}

impl<'a> Answers<'a> {
    const fn new(rest: &'a [u8]) -> Self {
        Self { rest, asked: 0 }
    }

    fn ask(&mut self, cdb: &Cdb) -> Result<Option<Vec<u8>>, Infallible> {
        self.asked += 1;
        assert!(!cdb.to_string().is_empty());
        let Some((&header, rest)) = self.rest.split_first_chunk() else {
            return Ok(None);
        };
        let header = usize::from(u16::from_be_bytes(header));
        let length = (header & ANSWER_BYTES_MAX).min(rest.len());
        let (answer, rest) = rest.split_at(length);
        self.rest = rest;
        let room = usize::try_from(cdb.room).unwrap_or(usize::MAX);
        let is_given = header <= ANSWER_BYTES_MAX;
        Ok(is_given.then(|| answer.get(..room).unwrap_or(answer).to_vec()))
    }
}

fn look_at_device(bytes: &[u8]) {
    let mut answers = Answers::new(bytes);
    let Ok(found) = look::find(|cdb| answers.ask(&cdb));
    // Each page is asked for twice at most.
    assert!(answers.asked <= 2 + 2 * (PAGES_MAX + 1));
    let Some(found) = found else {
        return;
    };
    let facts = &found.facts;
    assert!(facts.inquiry.len() >= 36 && facts.inquiry[0] < 0x20);
    assert!(facts.pages.len() <= PAGES_MAX + 1);
    for (code, page) in &facts.pages {
        let length = 4 + usize::from(u16::from_be_bytes([page[2], page[3]]));
        assert!(page[1] == *code && page.len() == length && length <= PAGE_BYTES_MAX);
    }
    assert!(facts.commands.as_ref().is_none_or(|list| !list.is_empty()));
    if let Some(identity) = &found.identity {
        assert!(!identity.best().is_empty());
    }
    let _any = facts.names();
}

fn look_at_disk(bytes: &[u8]) {
    let mut answers = Answers::new(bytes);
    let Ok(found) = Facts::find(DATA_BYTES_MAX, |cdb| answers.ask(&cdb));
    assert!(answers.asked <= 9);
    let Some(facts) = found.filter(|facts| facts.check(512, true).is_ok()) else {
        return;
    };
    let block = facts.block_bytes;
    assert!(facts.size_bytes > 0 && facts.size_bytes.is_multiple_of(512));
    assert!(facts.transfer_bytes_max >= 512 && facts.transfer_bytes_max <= DATA_BYTES_MAX);
    assert!(facts.transfer_bytes_max.is_multiple_of(block));
    assert!(facts.zeros_bytes_max.is_multiple_of(block.into()));
    assert!(!facts.can_unmap || facts.zeros_bytes_max > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that are refused at the first answer would lead nowhere.
    #[test]
    fn the_seeds_are_a_tape_and_a_disk() {
        let mut answers = Answers::new(include_bytes!("../../../fuzz/corpus/look/tape"));
        let Ok(found) = look::find(|cdb| answers.ask(&cdb));
        let (facts, is_known) = found.map(|it| (it.facts, it.identity.is_some())).unwrap();
        assert_eq!(
            (facts.device_type(), is_known, answers.rest.len()),
            (1, true, 0)
        );
        let pages: Vec<u8> = facts.pages.into_keys().collect();
        assert_eq!(pages, [0x00, 0x80, 0x83, 0xb0]);
        assert_eq!(facts.commands.unwrap().len(), 2);
        let mut answers = Answers::new(include_bytes!("../../../fuzz/corpus/look/disk"));
        let Ok(found) = Facts::find(DATA_BYTES_MAX, |cdb| answers.ask(&cdb));
        let facts = found.unwrap();
        facts.check(512, false).unwrap();
        assert!(facts.can_unmap && facts.says_cache && facts.identity.is_some());
        assert_eq!((facts.size_bytes, answers.rest.len()), (16384 * 512, 0));
    }
}
