//! Commands.

use scsi::TaskAttribute;

pub const BLOCK: usize = 512;

/// How the data of a command comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Came {
    /// With the command, in the chunk that was received.
    Chunk,
    /// With the command, on the heap.
    Heap,
    /// When it is asked for.
    Later,
}

/// A command as the transport of the tests carries it.
#[derive(Clone, Debug)]
pub struct Cdb {
    pub lun: u16,
    pub attribute: Option<TaskAttribute>,
    pub bytes: Vec<u8>,
    pub in_bytes: u32,
    pub out_bytes: u32,
    pub data: Vec<u8>,
    pub came: Came,
}

impl Cdb {
    const fn new(bytes: Vec<u8>) -> Self {
        Self {
            lun: 0,
            attribute: Some(TaskAttribute::Simple),
            bytes,
            in_bytes: 0,
            out_bytes: 0,
            data: Vec::new(),
            came: Came::Chunk,
        }
    }

    fn with_data(mut self, data: Vec<u8>) -> Self {
        self.out_bytes = u32::try_from(data.len()).unwrap();
        self.data = data;
        self
    }

    /// The same to another number.
    pub const fn to(mut self, lun: u16) -> Self {
        self.lun = lun;
        self
    }

    /// The same, its data coming otherwise.
    pub const fn coming(mut self, came: Came) -> Self {
        self.came = came;
        self
    }

    pub const fn attribute(mut self, attribute: Option<TaskAttribute>) -> Self {
        self.attribute = attribute;
        self
    }

    pub const fn ordered(self) -> Self {
        self.attribute(Some(TaskAttribute::Ordered))
    }
}

fn extent(operation_code: u8, lba: u32, blocks: u16) -> Vec<u8> {
    let mut cdb = vec![0; 10];
    cdb[0] = operation_code;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub fn test_unit_ready() -> Cdb {
    Cdb::new(vec![0; 6])
}

/// START STOP UNIT, with byte 4.
pub fn start_stop(flags: u8) -> Cdb {
    Cdb::new(vec![0x1b, 0, 0, 0, flags, 0])
}

/// PREVENT ALLOW MEDIUM REMOVAL.
pub fn prevent(prevents: bool) -> Cdb {
    Cdb::new(vec![0x1e, 0, 0, 0, u8::from(prevents), 0])
}

/// Any command, with room for so much.
pub fn of_bytes(bytes: &[u8], in_bytes: u32) -> Cdb {
    let mut command = Cdb::new(bytes.to_vec());
    command.in_bytes = in_bytes;
    command
}

/// The same with data.
pub fn with_data(bytes: &[u8], data: Vec<u8>) -> Cdb {
    Cdb::new(bytes.to_vec()).with_data(data)
}

pub fn inquiry() -> Cdb {
    let mut command = Cdb::new(vec![0x12, 0, 0, 0, 96, 0]);
    command.in_bytes = 96;
    command
}

pub fn read(lba: u32, blocks: u16) -> Cdb {
    let mut command = Cdb::new(extent(0x28, lba, blocks));
    command.in_bytes = u32::from(blocks) * 512;
    command
}

/// READ CAPACITY (10).
pub fn read_capacity() -> Cdb {
    let mut command = Cdb::new(extent(0x25, 0, 0));
    command.in_bytes = 8;
    command
}

/// Every byte of the data is `fill`.
pub fn write(lba: u32, blocks: u16, fill: u8) -> Cdb {
    let data = vec![fill; usize::from(blocks) * BLOCK];
    Cdb::new(extent(0x2a, lba, blocks)).with_data(data)
}

/// WRITE AND VERIFY with a comparison: the data is written, then read back.
pub fn write_and_verify(lba: u32, blocks: u16, fill: u8) -> Cdb {
    let mut cdb = extent(0x2e, lba, blocks);
    cdb[1] = 0x02;
    Cdb::new(cdb).with_data(vec![fill; usize::from(blocks) * BLOCK])
}

/// VERIFY with data to compare with.
pub fn verify(lba: u32, blocks: u16, fill: u8) -> Cdb {
    let mut cdb = extent(0x2f, lba, blocks);
    cdb[1] = 0x02;
    Cdb::new(cdb).with_data(vec![fill; usize::from(blocks) * BLOCK])
}

/// COMPARE AND WRITE of blocks that hold `old` everywhere.
pub fn compare_and_write(lba: u32, blocks: u8, old: u8, new: u8) -> Cdb {
    let mut cdb = vec![0; 16];
    cdb[0] = 0x89;
    cdb[6..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = blocks;
    let len = usize::from(blocks) * BLOCK;
    Cdb::new(cdb).with_data([vec![old; len], vec![new; len]].concat())
}

pub fn write_same(lba: u32, blocks: u16, fill: u8) -> Cdb {
    Cdb::new(extent(0x41, lba, blocks)).with_data(vec![fill; BLOCK])
}

pub fn synchronize() -> Cdb {
    Cdb::new(extent(0x35, 0, 0))
}

pub fn unmap(lba: u32, blocks: u32) -> Cdb {
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend_from_slice(&u64::from(lba).to_be_bytes());
    list.extend_from_slice(&blocks.to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    Cdb::new(extent(0x42, 0, 24)).with_data(list)
}

/// GET LBA STATUS.
pub fn lba_status() -> Cdb {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1]) = (0x9e, 0x12);
    cdb[13] = 64;
    let mut command = Cdb::new(cdb);
    command.in_bytes = 64;
    command
}

/// RESERVE (6): a change of state that is not kept.
pub fn reserve() -> Cdb {
    Cdb::new(vec![0x16, 0, 0, 0, 0, 0])
}

pub fn release() -> Cdb {
    Cdb::new(vec![0x17, 0, 0, 0, 0, 0])
}

/// START STOP UNIT that stops the unit: a change of state, then a flush.
pub fn stop() -> Cdb {
    Cdb::new(vec![0x1b, 0, 0, 0, 0, 0])
}

pub fn start() -> Cdb {
    Cdb::new(vec![0x1b, 0, 0, 0, 1, 0])
}

/// PERSISTENT RESERVE OUT. `scope_type` as in byte 2.
pub fn reserve_out(action: u8, scope_type: u8, key: u64, action_key: u64, aptpl: bool) -> Cdb {
    let mut cdb = vec![0; 10];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, scope_type, 24);
    let mut list = Vec::new();
    list.extend_from_slice(&key.to_be_bytes());
    list.extend_from_slice(&action_key.to_be_bytes());
    list.extend_from_slice(&[0, 0, 0, 0, u8::from(aptpl), 0, 0, 0]);
    Cdb::new(cdb).with_data(list)
}

/// A registration, which is kept.
pub fn register(key: u64) -> Cdb {
    reserve_out(6, 0, 0, key, true)
}

/// PREEMPT AND ABORT of a registration.
pub fn preempt_and_abort(key: u64, victim: u64) -> Cdb {
    reserve_out(5, 3, key, victim, false)
}
