//! A handler of others at its side of a ring: whatever it writes there is taken or refused, and it never has the core
//! read or write outside the memory.

use std::cell::RefCell;
use std::collections::BTreeSet;

use handler::{Command, MEMORY_BYTES, Memory, Ring, SENSE_BYTES_MAX, SLOTS, check_answer};

use crate::input::Input;

/// Memory of which only the beginning is there: data read as zeros.
struct Shared<'a> {
    bytes: RefCell<Vec<u8>>,
    /// What the handler writes between two accesses; it may do so at any time.
    writes: RefCell<Input<'a>>,
}

impl Shared<'_> {
    /// Perhaps the handler writes a number now, somewhere in the rings.
    fn disturb(&self) {
        let mut writes = self.writes.borrow_mut();
        if writes.is_over() || writes.byte() & 0x03 != 0 {
            return;
        }
        let (at, value) = (usize::from(writes.u16()) & !3, writes.u32());
        let mut bytes = self.bytes.borrow_mut();
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
}

impl Memory for Shared<'_> {
    fn load(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4));
        let mut bytes = [0; 4];
        self.copy_out(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn store(&self, offset: usize, value: u32) {
        self.copy_in(offset, &value.to_le_bytes());
    }

    fn swap(&self, offset: usize, value: u32) -> u32 {
        let before = self.load(offset);
        self.store(offset, value);
        before
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= MEMORY_BYTES);
        if let Some(place) = self
            .bytes
            .borrow_mut()
            .get_mut(offset..offset + bytes.len())
        {
            place.copy_from_slice(bytes);
        }
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= MEMORY_BYTES);
        self.disturb();
        if let Some(place) = self.bytes.borrow().get(offset..offset + bytes.len()) {
            bytes.copy_from_slice(place);
        }
    }
}

/// The first two bytes say how long what the handler writes by itself is; the rest are steps: commands, ends, lies.
pub(crate) fn run(bytes: &[u8]) {
    if let Some(answer) = bytes.first_chunk() {
        let _any = check_answer(answer);
    }
    let mut input = Input::new(bytes);
    let length = usize::from(input.u16());
    let writes = Input::new(input.bytes(length));
    let mut ring = Ring::new(Shared {
        bytes: RefCell::new(vec![0; 64 << 10]),
        writes: RefCell::new(writes),
    });
    let mut under_way = BTreeSet::new();
    while !input.is_over() {
        if input.byte() & 1 == 0 {
            put(&mut ring, &mut input, &mut under_way);
        } else if !take(&mut ring, &mut under_way) {
            return;
        }
        assert_eq!(ring.under_way(), under_way.len());
    }
}

fn put(ring: &mut Ring<Shared<'_>>, input: &mut Input<'_>, under_way: &mut BTreeSet<usize>) {
    let length = usize::from(input.byte());
    let cdb = input.bytes(length);
    let data_in_bytes = u32::from(input.u16()) << 8;
    let data_out = if data_in_bytes == 0 { cdb } else { &[] };
    let command = Command {
        cdb,
        nexus: 1,
        data_out,
        data_in_bytes,
    };
    if let Some(slot) = ring.put(&command) {
        assert!(under_way.insert(slot), "slot {slot} is in use");
    } else {
        assert!(!under_way.is_empty(), "an empty ring has room");
    }
    let _any = ring.must_wake();
}

/// Takes an end. False: the handler lied.
fn take(ring: &mut Ring<Shared<'_>>, under_way: &mut BTreeSet<usize>) -> bool {
    let Ok(completion) = ring.take() else {
        return false;
    };
    let Some(completion) = completion else {
        let _any = ring.sleep();
        return true;
    };
    assert!(completion.slot < SLOTS && completion.sense.len() <= SENSE_BYTES_MAX);
    assert!(under_way.remove(&completion.slot), "an end of nothing");
    let mut data = [0xff; 512];
    let length = ring.end(&completion, &mut data);
    assert!(length <= data.len() && data[length..].iter().all(|byte| *byte == 0xff));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed whose ends nobody takes would lead nowhere.
    #[test]
    fn the_first_seed_ends_all_its_commands() {
        let (_, bytes) = &crate::seeds::of("handler")[0];
        let mut input = Input::new(bytes);
        let length = usize::from(input.u16());
        let shared = Shared {
            bytes: RefCell::new(vec![0; 64 << 10]),
            writes: RefCell::new(Input::new(input.bytes(length))),
        };
        let mut ring = Ring::new(shared);
        let mut under_way = BTreeSet::new();
        for _ in 0..3 {
            input.byte();
            put(&mut ring, &mut input, &mut under_way);
        }
        assert_eq!(ring.under_way(), 3);
        for _ in 0..40 {
            assert!(take(&mut ring, &mut under_way));
        }
        assert_eq!(ring.under_way(), 0);
    }
}
