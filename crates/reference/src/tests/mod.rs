//! Histories that the standards allow, and such that they forbid.

mod attentions;
mod blocks;
mod random;
mod reservations;
mod together;

use crate::{Breach, Event, Nexus, Outcome, Plan, Port, Tag, Unit, View};

const GOOD: Outcome<'static> = Outcome {
    status: 0,
    sense: &[],
    data_in: &[],
};
const CONFLICT: Outcome<'static> = Outcome {
    status: 0x18,
    sense: &[],
    data_in: &[],
};

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 2, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 3, 0];
const PREVENT: [u8; 6] = [0x1e, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [0x1e, 0, 0, 0, 0, 0];
const FLUSH: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Blocks are short, so that histories are.
const BLOCK: usize = 16;

const fn plan() -> Plan {
    Plan {
        blocks: 64,
        block_bytes: 16,
        removable: true,
        thin: true,
        write_cache: true,
    }
}

/// Sense data of the fixed format.
fn sense(key: u8, code: u16) -> [u8; 18] {
    let [asc, ascq] = code.to_be_bytes();
    [
        0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0,
    ]
}

fn write(lba: u8, blocks: u8, fua: bool) -> [u8; 10] {
    [0x2a, if fua { 8 } else { 0 }, 0, 0, 0, lba, 0, 0, blocks, 0]
}

fn read(lba: u8, blocks: u8) -> [u8; 10] {
    [0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}

/// MODE SELECT (6) of a Caching page.
fn cache(on: bool) -> ([u8; 6], Vec<u8>) {
    let mut list = vec![0; 24];
    list[4..7].copy_from_slice(&[0x08, 18, if on { 4 } else { 0 }]);
    ([0x15, 0x10, 0, 0, 24, 0], list)
}

/// PERSISTENT RESERVE OUT: service action, type, key, service action key.
fn persistent(action: u8, kind: u8, key: u64, action_key: u64) -> ([u8; 10], Vec<u8>) {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
    list[20] = 1;
    ([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// A unit, three nexuses that have got their first attention, and the last tag.
#[derive(Clone)]
struct World {
    unit: Unit,
    tag: u64,
}

const A: Nexus = Nexus(1);
const B: Nexus = Nexus(2);
const C: Nexus = Nexus(3);

fn port(nexus: Nexus) -> Port {
    Port::new(&format!("iqn.host,i,{}", nexus.0), "iqn.target,t,1")
}

impl World {
    fn new() -> Self {
        Self::with(plan())
    }

    fn with(plan: Plan) -> Self {
        let mut world = Self {
            unit: Unit::new(plan),
            tag: 0,
        };
        for nexus in [A, B, C] {
            world
                .unit
                .nexus_begins(nexus, &port(nexus), View::default());
            world.attention(nexus, 0x2900).unwrap();
        }
        world
    }

    fn next(&mut self) -> Tag {
        self.tag += 1;
        Tag(self.tag)
    }

    fn begin(&mut self, nexus: Nexus, cdb: &[u8]) -> Tag {
        self.begin_with(nexus, (cdb, &[]))
    }

    fn begin_with(&mut self, nexus: Nexus, (cdb, data): (&[u8], &[u8])) -> Tag {
        let tag = self.next();
        self.unit.begin(tag, nexus, cdb, data, usize::MAX);
        tag
    }

    fn persist(&mut self, nexus: Nexus, (cdb, list): ([u8; 10], Vec<u8>)) -> Tag {
        self.begin_with(nexus, (&cdb, &list))
    }

    fn good(&mut self, tag: Tag) -> Result<(), Breach> {
        self.unit.end(tag, GOOD)
    }

    fn check(&mut self, tag: Tag, key: u8, code: u16) -> Result<(), Breach> {
        self.unit.end(
            tag,
            Outcome {
                status: 2,
                sense: &sense(key, code),
                data_in: &[],
            },
        )
    }

    /// A command alone.
    fn run(&mut self, nexus: Nexus, cdb: &[u8], outcome: Outcome<'_>) -> Result<(), Breach> {
        let tag = self.begin(nexus, cdb);
        self.unit.end(tag, outcome)
    }

    fn ready(&mut self, nexus: Nexus) -> Result<(), Breach> {
        self.run(nexus, &TEST_UNIT_READY, GOOD)
    }

    /// TEST UNIT READY that reports this attention.
    fn attention(&mut self, nexus: Nexus, code: u16) -> Result<(), Breach> {
        let tag = self.begin(nexus, &TEST_UNIT_READY);
        self.check(tag, 6, code)
    }

    fn event(&mut self, event: Event) -> Result<(), Breach> {
        let tag = self.next();
        self.unit.event_begins(tag, event);
        self.unit.event_ends(tag, true)
    }

    /// PERSISTENT RESERVE OUT alone.
    fn out(
        &mut self,
        nexus: Nexus,
        order: ([u8; 10], Vec<u8>),
        outcome: Outcome<'_>,
    ) -> Result<(), Breach> {
        let tag = self.persist(nexus, order);
        self.unit.end(tag, outcome)
    }

    /// All three register their number as a key.
    fn registered() -> Self {
        let mut world = Self::new();
        for nexus in [A, B, C] {
            world
                .out(nexus, persistent(0, 0, 0, nexus.0), GOOD)
                .unwrap();
        }
        world
    }

    /// WRITE of this byte, to its end.
    fn put(&mut self, nexus: Nexus, lba: u8, byte: u8) {
        let tag = self.begin_with(nexus, (&write(lba, 1, false), &[byte; BLOCK]));
        self.good(tag).unwrap();
    }

    /// READ that gives blocks of these bytes.
    fn get(&mut self, nexus: Nexus, lba: u8, bytes: &[u8]) -> Result<(), Breach> {
        let tag = self.begin(nexus, &read(lba, u8::try_from(bytes.len()).unwrap()));
        self.got(tag, bytes)
    }

    fn got(&mut self, tag: Tag, bytes: &[u8]) -> Result<(), Breach> {
        let data: Vec<u8> = bytes.iter().flat_map(|&byte| [byte; BLOCK]).collect();
        self.unit.end(
            tag,
            Outcome {
                status: 0,
                sense: &[],
                data_in: &data,
            },
        )
    }

    /// Bytes that a READ of block 0 may give now.
    fn readable(&mut self) -> Vec<u8> {
        let possible = self.unit.clone();
        (0..10)
            .filter(|&byte| {
                self.unit = possible.clone();
                let fits = self.get(A, 0, &[byte]).is_ok();
                self.unit = possible.clone();
                fits
            })
            .collect()
    }
}
