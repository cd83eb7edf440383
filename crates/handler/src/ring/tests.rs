//! A ring with a handler that follows the page, and with some that do not.
#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

#[derive(Clone, Debug)]
struct Fake(Rc<RefCell<Vec<u8>>>);

impl Fake {
    fn new() -> Self {
        Self(Rc::new(RefCell::new(vec![0; MEMORY_BYTES])))
    }
}

impl Memory for Fake {
    fn load(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.0.borrow()[offset..offset + 4].try_into().unwrap())
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
        self.0.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let length = bytes.len();
        bytes.copy_from_slice(&self.0.borrow()[offset..offset + length]);
    }
}

/// The other side, with the numbers of the page.
struct Other {
    memory: Fake,
    taken: u32,
    ended: u32,
}

impl Other {
    /// Slot, CDB, length of Data-Out, room, place and nexus of the next command.
    fn take(&mut self) -> Option<(u32, Vec<u8>, u32, u32, u32, u32)> {
        if self.memory.load(0) == self.taken {
            return None;
        }
        let at = 4096 + (self.taken % 64) as usize * 320;
        self.taken = self.taken.wrapping_add(1);
        let number = |offset| self.memory.load(at + offset);
        let mut cdb = vec![0; number(4) as usize];
        self.memory.copy_out(at + 60, &mut cdb);
        Some((
            number(0),
            cdb,
            number(8),
            number(12),
            number(16),
            number(24),
        ))
    }

    fn end(&mut self, slot: u32, status: u32, transfer_bytes: u32, sense: (u32, &[u8])) {
        let at = 24_576 + (self.ended % 64) as usize * 320;
        for (offset, value) in [(0, slot), (4, status), (8, transfer_bytes), (12, sense.0)] {
            self.memory.store(at + offset, value);
        }
        self.memory.copy_in(at + 32, sense.1);
        self.ended = self.ended.wrapping_add(1);
        self.memory.store(128, self.ended);
    }
}

fn pair() -> (Ring<Fake>, Other) {
    let memory = Fake::new();
    let ring = Ring::new(memory.clone());
    let (taken, ended) = (0, 0);
    (
        ring,
        Other {
            memory,
            taken,
            ended,
        },
    )
}

fn reading(cdb: &[u8], data_in_bytes: u32) -> Command<'_> {
    Command {
        cdb,
        nexus: 7,
        data_out: &[],
        data_in_bytes,
    }
}

fn writing<'a>(cdb: &'a [u8], data_out: &'a [u8]) -> Command<'a> {
    Command {
        data_out,
        ..reading(cdb, 0)
    }
}

#[test]
fn commands_go_over_and_their_ends_come_back_in_any_order() {
    let (mut ring, mut other) = pair();
    let long = [0x7f; CDB_BYTES_MAX];
    let write = ring.put(&writing(&long, b"out")).unwrap();
    let read = ring.put(&reading(&[8, 0, 0, 0, 8, 0], 8)).unwrap();
    assert_ne!(write, read);
    let (slot, cdb, out, room, place, nexus) = other.take().unwrap();
    assert_eq!(
        (slot as usize, &cdb[..], out, room, nexus),
        (write, &long[..], 3, 0, 7)
    );
    let mut data = [0; 3];
    other.memory.copy_out(65_536 + place as usize, &mut data);
    assert_eq!(&data, b"out");
    let (slot, cdb, out, room, place, _) = other.take().unwrap();
    assert_eq!(
        (slot as usize, &cdb[..], out, room),
        (read, &[8, 0, 0, 0, 8, 0][..], 0, 8)
    );
    assert_eq!(other.take(), None);
    other
        .memory
        .copy_in(65_536 + place as usize, b"data in, and more");
    // It has more to give than there is room for.
    other.end(slot, 0, 12, (0, b""));
    other.end(as_u32(write), 2, 0, (18, &[0x70; 18]));
    let completion = ring.take().unwrap().unwrap();
    assert_eq!(
        (
            completion.slot,
            completion.status,
            completion.transfer_bytes
        ),
        (read, 0, 12)
    );
    let mut data = [0; 8];
    assert_eq!((ring.end(&completion, &mut data), &data), (8, b"data in,"));
    let completion = ring.take().unwrap().unwrap();
    assert_eq!(
        (completion.status, &completion.sense[..]),
        (2, &[0x70; 18][..])
    );
    assert_eq!(ring.end(&completion, &mut []), 0);
    assert_eq!((ring.take(), ring.under_way()), (Ok(None), 0));
}

#[test]
fn a_ring_goes_round() {
    let (mut ring, mut other) = pair();
    // As after many commands: the indices wrap.
    let far = u32::MAX - 100;
    (ring.submitted, ring.completed, other.taken, other.ended) = (far, far, far, far);
    other.memory.store(128, far);
    for round in 0..10_u8 {
        while ring.put(&writing(&[round; 6], &[round; 5])).is_some() {}
        assert_eq!(ring.under_way(), SLOTS);
        let mut taken = Vec::new();
        while let Some((slot, cdb, ..)) = other.take() {
            assert_eq!(cdb, [round; 6]);
            taken.push(slot);
        }
        assert_eq!(taken.len(), SLOTS);
        for slot in taken.into_iter().rev() {
            other.end(slot, 0, 5, (0, b""));
        }
        while let Some(completion) = ring.take().unwrap() {
            ring.end(&completion, &mut []);
        }
        assert_eq!(ring.under_way(), 0);
    }
}

#[test]
fn a_command_without_room_for_its_data_waits() {
    let (mut ring, mut other) = pair();
    let half = as_u32(DATA_BYTES / 2);
    assert!(ring.put(&reading(&[8], half)).is_some());
    assert!(ring.put(&reading(&[8], half)).is_some());
    assert!(ring.put(&reading(&[8], 1)).is_none());
    assert_eq!(ring.under_way(), 2);
    let (slot, ..) = other.take().unwrap();
    other.end(slot, 0, 0, (0, b""));
    let completion = ring.take().unwrap().unwrap();
    ring.end(&completion, &mut []);
    assert!(ring.put(&reading(&[8], 1)).is_some());
    assert!(ring.put(&reading(&[0; CDB_BYTES_MAX + 1], 1)).is_none());
}

#[test]
fn lies_are_noticed() {
    let lie = |what: fn(&mut Other, u32)| {
        let (mut ring, mut other) = pair();
        ring.put(&reading(&[8], 8)).unwrap();
        ring.put(&reading(&[8], 8)).unwrap();
        let (slot, ..) = other.take().unwrap();
        what(&mut other, slot);
        while let Some(completion) = ring.take()? {
            ring.end(&completion, &mut [0; 8]);
        }
        Ok(())
    };
    assert_eq!(lie(|other, slot| other.end(slot, 0, 8, (0, b""))), Ok(()));
    let twice = lie(|other, slot| {
        other.end(slot, 0, 8, (0, b""));
        other.end(slot, 0, 8, (0, b""));
    });
    assert_eq!(twice, Err(Violation::NotUnderWay { slot: 0 }));
    let nobody = lie(|other, _| other.end(63, 0, 8, (0, b"")));
    assert_eq!(nobody, Err(Violation::NotUnderWay { slot: 63 }));
    let outside = lie(|other, _| other.end(u32::MAX, 0, 8, (0, b"")));
    assert_eq!(outside, Err(Violation::NotUnderWay { slot: u32::MAX }));
    let jump = lie(|other, _| other.memory.store(128, 3));
    assert_eq!(
        jump,
        Err(Violation::Jump {
            ended: 3,
            under_way: 2
        })
    );
    let back = lie(|other, _| other.memory.store(128, u32::MAX));
    assert_eq!(
        back,
        Err(Violation::Jump {
            ended: u32::MAX,
            under_way: 2
        })
    );
    let sense = lie(|other, slot| other.end(slot, 2, 0, (253, b"")));
    assert_eq!(sense, Err(Violation::Sense { bytes: 253 }));
    let status = lie(|other, slot| other.end(slot, 256, 0, (0, b"")));
    assert_eq!(status, Err(Violation::Status { status: 256 }));
    assert_eq!(
        lie(|other, slot| other.end(slot, 2, u32::MAX, (252, &[0; 252]))),
        Ok(())
    );
}

#[test]
fn a_side_that_sleeps_is_woken_once_and_one_that_is_awake_never() {
    let (mut ring, mut other) = pair();
    assert_eq!(other.memory.load(192), ASLEEP);
    ring.put(&reading(&[0], 0)).unwrap();
    assert!(!ring.must_wake());
    other.memory.store(64, 1);
    assert!(ring.must_wake() && !ring.must_wake());
    // One that cannot take part in that is always woken.
    other.memory.store(64, 2);
    assert!(ring.must_wake() && ring.must_wake());
    // What ends before Tarn sleeps is seen.
    assert!(ring.sleep());
    let (slot, ..) = other.take().unwrap();
    assert_eq!(other.memory.swap(192, 0), ASLEEP);
    other.end(slot, 0, 0, (0, b""));
    assert!(!ring.sleep());
}
