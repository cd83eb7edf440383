//! What kernel and process say to each other about ublk devices: `linux/ublk_cmd.h` of Linux 6.5. All numbers are in
//! the byte order of the machine.

use super::{BlockShape, QUEUE_DEPTH, TRANSFER_BYTES_MAX, ZERO_BYTES_MAX};

/// Room for the longest argument of a command.
pub(super) const ROOM_BYTES: usize = 64;
pub(super) const FEATURES_BYTES: u16 = 8;
pub(super) const INFORMATION_BYTES: u16 = 64;
/// Basic parameters and those of discards.
pub(super) const PARAMETERS_BYTES: u16 = 60;

const SECTOR_BYTES: u32 = 512;
const SECTOR_SHIFT: u32 = 9;

const CONTROL_BYTES: u32 = 32;
const IO_BYTES: u32 = 16;
/// Directions of an ioctl.
const READ: u32 = 2;
const READ_WRITE: u32 = 3;

const USER_COPY: u64 = 1 << 7;
const IOCTL_ENCODE: u64 = 1 << 6;
/// A device that is no block device, before its start and after its end.
const STATE_DEAD: u16 = 0;
/// The kernel keeps a number for the maker of a device: "Tarn", so that what was left is known again.
const MARK: u64 = 0x5461_726e;

const ATTRIBUTE_READ_ONLY: u32 = 1 << 0;
const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
const ATTRIBUTE_FUA: u32 = 1 << 3;
const PARAMETERS_BASIC: u32 = 1 << 0;
const PARAMETERS_DISCARD: u32 = 1 << 1;

const FLUSH: u32 = 2;
const FLAG_FUA: u32 = 1 << 13;
const FLAG_NO_UNMAP: u32 = 1 << 15;

/// Where the data of requests is in the file of a device, and how much room each has.
const DATA_OFFSET: u64 = 0x8000_0000;
const DATA_SHIFT: u32 = 25;

const fn code(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | 0x75 << 8 | number
}

/// Takes the first request of a tag.
pub(super) const FETCH: u32 = code(READ_WRITE, 0x20, IO_BYTES);
/// Answers a request, and takes the next one of its tag.
pub(super) const COMMIT_AND_FETCH: u32 = code(READ_WRITE, 0x21, IO_BYTES);

/// A command of `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Command {
    Information,
    Add,
    Delete,
    Start,
    Stop,
    SetParameters,
    Features,
    DeleteLater,
}

impl Command {
    pub(super) const fn code(self) -> u32 {
        let (direction, number) = match self {
            Self::Information => (READ, 0x02),
            Self::Add => (READ_WRITE, 0x04),
            Self::Delete => (READ_WRITE, 0x05),
            Self::Start => (READ_WRITE, 0x06),
            Self::Stop => (READ_WRITE, 0x07),
            Self::SetParameters => (READ_WRITE, 0x08),
            Self::Features => (READ, 0x13),
            Self::DeleteLater => (READ, 0x14),
        };
        code(direction, number, CONTROL_BYTES)
    }
}

fn put(parts: &[&[u8]], into: &mut [u8]) {
    into.fill(0);
    let bytes = parts.iter().flat_map(|part| part.iter());
    for (place, byte) in into.iter_mut().zip(bytes) {
        *place = *byte;
    }
}

/// The argument of a command: the device, and the memory that it gives or fills.
pub(super) fn control(device: u32, bytes: u16, address: u64, data: u64) -> [u8; 80] {
    let no_queue = u16::MAX;
    let mut argument = [0; 80];
    put(
        &[
            &device.to_ne_bytes(),
            &no_queue.to_ne_bytes(),
            &bytes.to_ne_bytes(),
            &address.to_ne_bytes(),
            &data.to_ne_bytes(),
        ],
        &mut argument,
    );
    argument
}

/// The argument of [`FETCH`] and [`COMMIT_AND_FETCH`].
pub(super) fn io(tag: u16, result: i32) -> [u8; 16] {
    let mut argument = [0; 16];
    let queue = 0_u16;
    put(
        &[
            &queue.to_ne_bytes(),
            &tag.to_ne_bytes(),
            &result.to_ne_bytes(),
        ],
        &mut argument,
    );
    argument
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().unwrap_or([0; N])
}

/// Whether the kernel copies data of requests when the file of the device is read and written.
pub(super) fn has_features(room: &[u8]) -> bool {
    u64::from_ne_bytes(array(room, 0)) & USER_COPY != 0
}

/// What the kernel knows of a device.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Information {
    pub(super) number: u32,
    state: u16,
    mark: u64,
}

impl Information {
    /// A device of ours, with a number that the kernel chooses.
    pub(super) const fn wanted() -> Self {
        Self {
            number: u32::MAX,
            state: STATE_DEAD,
            mark: MARK,
        }
    }

    pub(super) fn encode(&self, room: &mut [u8]) {
        let (queues, padding, process) = (1_u16, 0_u16, 0_u32);
        put(
            &[
                &queues.to_ne_bytes(),
                &QUEUE_DEPTH.to_ne_bytes(),
                &self.state.to_ne_bytes(),
                &padding.to_ne_bytes(),
                &TRANSFER_BYTES_MAX.to_ne_bytes(),
                &self.number.to_ne_bytes(),
                &process.to_ne_bytes(),
                &0_u32.to_ne_bytes(),
                &(USER_COPY | IOCTL_ENCODE).to_ne_bytes(),
                &self.mark.to_ne_bytes(),
            ],
            room,
        );
    }

    pub(super) fn decode(room: &[u8]) -> Self {
        Self {
            number: u32::from_ne_bytes(array(room, 12)),
            state: u16::from_ne_bytes(array(room, 4)),
            mark: u64::from_ne_bytes(array(room, 32)),
        }
    }

    /// Whether it is what a process of ours has left.
    pub(super) const fn is_left(&self) -> bool {
        self.mark == MARK && self.state == STATE_DEAD
    }
}

/// What the block device is to the kernel.
pub(super) fn parameters(shape: &BlockShape, room: &mut [u8]) {
    let attributes = if shape.is_read_only {
        ATTRIBUTE_READ_ONLY
    } else {
        0
    };
    // Below is a disk that says itself what it caches; a flush that it does not need costs it little.
    let attributes = attributes | ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA;
    let types = PARAMETERS_BASIC | PARAMETERS_DISCARD;
    // A block has 4096 bytes at most.
    let shift = u8::try_from(shape.block_bytes.trailing_zeros()).unwrap_or_default();
    let most = |is_possible: bool| {
        if is_possible {
            ZERO_BYTES_MAX >> SECTOR_SHIFT
        } else {
            0
        }
    };
    let (no_alignment, segments) = (0_u32, 1_u16);
    put(
        &[
            &u32::from(PARAMETERS_BYTES).to_ne_bytes(),
            &types.to_ne_bytes(),
            &attributes.to_ne_bytes(),
            &[shift; 4],
            &(TRANSFER_BYTES_MAX >> SECTOR_SHIFT).to_ne_bytes(),
            &0_u32.to_ne_bytes(),
            &(shape.size_bytes >> SECTOR_SHIFT).to_ne_bytes(),
            &0_u64.to_ne_bytes(),
            &no_alignment.to_ne_bytes(),
            &shape.block_bytes.to_ne_bytes(),
            &most(shape.can_discard && !shape.is_read_only).to_ne_bytes(),
            &most(shape.can_zero && !shape.is_read_only).to_ne_bytes(),
            &segments.to_ne_bytes(),
        ],
        room,
    );
}

/// A request as the kernel describes it in the memory that it shares.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) operation_and_flags: u32,
    pub(super) sectors: u32,
    pub(super) start_sector: u64,
    /// Nothing, where the process copies.
    pub(super) address: u64,
}

const _: () = assert!(size_of::<Descriptor>() == 24);

/// What a request is to do, with its data or the length of its range in bytes.
#[derive(Debug, Eq, PartialEq)]
pub enum BlockOperation {
    /// Answered with so many bytes.
    Read(u32),
    /// Write these bytes.
    Write {
        /// Whole blocks.
        data: Vec<u8>,
        /// On stable storage before it is answered.
        is_durable: bool,
    },
    /// Put all that was answered on stable storage.
    Flush,
    /// Give the space back; what is read then does not matter.
    Discard(u32),
    /// Have it read zeros.
    Zero {
        /// In bytes.
        length: u32,
        /// The space is kept.
        keeps_space: bool,
    },
}

impl Descriptor {
    /// The first byte, and what to do; a write has room for its data. `None` for what was not agreed on.
    pub(super) fn request(&self) -> Option<(u64, BlockOperation)> {
        let operation = self.operation_and_flags & 0xff;
        if operation == FLUSH {
            // It is about no range, and what stands there means nothing.
            return Some((0, BlockOperation::Flush));
        }
        let length = self.sectors.checked_mul(SECTOR_BYTES)?;
        let has = |flag| self.operation_and_flags & flag != 0;
        let (is_transfer, is_range) = (length <= TRANSFER_BYTES_MAX, length <= ZERO_BYTES_MAX);
        let operation = match operation {
            0 if is_transfer => BlockOperation::Read(length),
            1 if is_transfer => BlockOperation::Write {
                data: vec![0; usize::try_from(length).ok()?],
                is_durable: has(FLAG_FUA),
            },
            3 if is_range => BlockOperation::Discard(length),
            5 if is_range => BlockOperation::Zero {
                length,
                keeps_space: has(FLAG_NO_UNMAP),
            },
            _ => return None,
        };
        Some((
            self.start_sector.checked_mul(SECTOR_BYTES.into())?,
            operation,
        ))
    }
}

/// Where the data of a request of the only queue is in the file of the device.
pub(super) fn data_place(tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(tag) << DATA_SHIFT)
}

const _: () = assert!(TRANSFER_BYTES_MAX <= 1 << DATA_SHIFT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernel() {
        // As a program in C prints them with linux/ublk_cmd.h.
        for (command, code) in [
            (Command::Information, 0x8020_7502),
            (Command::Add, 0xc020_7504),
            (Command::Delete, 0xc020_7505),
            (Command::Start, 0xc020_7506),
            (Command::Stop, 0xc020_7507),
            (Command::SetParameters, 0xc020_7508),
            (Command::Features, 0x8020_7513),
            (Command::DeleteLater, 0x8020_7514),
        ] {
            assert_eq!(command.code(), code, "{command:?}");
        }
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn arguments_are_laid_out_as_the_kernel_reads_them() {
        let argument = control(7, 64, 0x1122_3344_5566_7788, 9);
        assert_eq!(argument[..4], 7_u32.to_ne_bytes());
        assert_eq!(argument[4..8], [0xff, 0xff, 64, 0]);
        assert_eq!(argument[8..16], 0x1122_3344_5566_7788_u64.to_ne_bytes());
        assert_eq!(argument[16..24], 9_u64.to_ne_bytes());
        assert!(argument[24..].iter().all(|byte| *byte == 0));
        let argument = io(5, -5);
        assert_eq!(argument[..4], [0, 0, 5, 0]);
        assert_eq!(argument[4..8], (-5_i32).to_ne_bytes());
        assert_eq!(data_place(0), 0x8000_0000);
        assert_eq!(data_place(3), 0x8000_0000 + 3 * (32 << 20));
    }

    #[test]
    fn a_device_is_known_again_only_when_it_is_ours_and_dead() {
        let mut room = [0xff; ROOM_BYTES];
        Information::wanted().encode(&mut room);
        assert_eq!(room[..4], [1, 0, 64, 0]);
        assert_eq!(room[24..32], 0xc0_u64.to_ne_bytes());
        assert_eq!(Information::decode(&room), Information::wanted());
        assert!(Information::decode(&room).is_left());
        let mut live = room;
        live[4] = 1;
        assert!(!Information::decode(&live).is_left());
        room[32] ^= 1;
        assert!(!Information::decode(&room).is_left());
    }

    #[test]
    fn parameters_say_what_can_be_done() {
        let mut shape = BlockShape {
            size_bytes: 1 << 30,
            block_bytes: 4096,
            is_read_only: false,
            can_discard: true,
            can_zero: false,
        };
        let mut room = [0xff; ROOM_BYTES];
        parameters(&shape, &mut room);
        assert_eq!(room[..8], [60, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(room[8..12], 0b1100_u32.to_ne_bytes());
        assert_eq!(room[12..16], [12; 4]);
        assert_eq!(room[16..20], 1024_u32.to_ne_bytes());
        assert_eq!(room[24..32], (1_u64 << 21).to_ne_bytes());
        assert_eq!(room[44..48], 4096_u32.to_ne_bytes());
        assert_eq!(room[48..52], (1_u32 << 21).to_ne_bytes());
        assert_eq!(room[52..60], [0, 0, 0, 0, 1, 0, 0, 0]);
        shape.is_read_only = true;
        parameters(&shape, &mut room);
        assert_eq!(room[8..12], 0b1101_u32.to_ne_bytes());
        assert_eq!(room[48..52], [0; 4]);
    }

    #[test]
    fn a_request_is_what_was_agreed_on_or_nothing() {
        let request_at = |start_sector, operation_and_flags, sectors| {
            let address = 0;
            Descriptor {
                operation_and_flags,
                sectors,
                start_sector,
                address,
            }
            .request()
        };
        let request = |operation_and_flags, sectors| request_at(3, operation_and_flags, sectors);
        let at = |operation| Some((1536, operation));
        let write = |is_durable| {
            let data = vec![0; 4096];
            at(BlockOperation::Write { data, is_durable })
        };
        let zero = |keeps_space| {
            let length = 1 << 30;
            at(BlockOperation::Zero {
                length,
                keeps_space,
            })
        };
        assert_eq!(request(0, 1024), at(BlockOperation::Read(512 << 10)));
        assert_eq!(request(0, 1025), None);
        assert_eq!(request(1 | 1 << 11, 8), write(false));
        assert_eq!(request(1 | 1 << 13, 8), write(true));
        let flush = Some((0, BlockOperation::Flush));
        assert_eq!(request_at(u64::MAX, 2, 0), flush);
        assert_eq!(request_at(u64::MAX, 0, 8), None);
        assert_eq!(request(3, 8), at(BlockOperation::Discard(4096)));
        assert_eq!(request(5, 1 << 21), zero(false));
        assert_eq!(request(5 | 1 << 15, 1 << 21), zero(true));
        assert_eq!(request(5, (1 << 21) + 1), None);
        assert_eq!(request(4, 8), None);
        assert_eq!(request(0, u32::MAX), None);
    }
}
