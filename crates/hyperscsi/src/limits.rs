//! Numbers of the protocol, and what either side holds at most.

use std::time::Duration;

/// The EtherType.
pub const ETHERTYPE: u16 = 0x889a;
/// The port of the carrier over UDP.
pub const UDP_PORT: u16 = 5674;
/// The version of every PDU here. Small numbers may have been used by others.
pub const VERSION: u8 = 0x20;

/// Shorter frames are padded by the sender: Ethernet does not carry them. In bytes after the Ethernet header.
pub const FRAME_MIN_BYTES: usize = 46;
/// What every path must carry, in bytes after the Ethernet header.
pub const FRAME_LEAST_BYTES: u16 = 1280;
/// What a path of Ethernet carries without anybody asking.
pub const FRAME_BASE_BYTES: u16 = 1500;
/// The largest frame.
pub const FRAME_MAX_BYTES: u16 = 9000;

/// The bytes of a fragment header.
pub const FRAGMENT_HEADER_BYTES: usize = 3;
/// Fragments of a PDU.
pub const FRAGMENTS_MAX: u16 = 1024;
/// Tags of two peers; 0 is for what comes before a session.
pub const TAGS: u16 = 512;
/// Commands of a session that may be under way, at most.
pub const SLOTS_MAX: u16 = 256;
/// Slots that a session gets if its client asks for no number.
pub const SLOTS_DEFAULT: u16 = 64;

/// The data of a command, at most.
pub const DATA_MAX_BYTES: u32 = 1 << 20;
/// A PDU, at most.
pub const PDU_MAX_BYTES: u32 = DATA_MAX_BYTES + 4096;
/// A CDB, at most.
pub const CDB_MAX_BYTES: usize = 260;
/// Sense data, at most.
pub const SENSE_MAX_BYTES: usize = 252;
/// A control PDU is one frame that every path carries, sealed or not.
pub const CONTROL_MAX_BYTES: usize = 1200;
/// PDUs that a sender has begun and that have not arrived whole, in bytes. It bounds the memory of the receiver.
pub const BEGUN_MAX_BYTES: u32 = 4 << 20;

/// A group's name, in bytes.
pub const GROUP_NAME_MAX_BYTES: usize = 64;
/// A user's, a server's or a device's name, in bytes.
pub const NAME_MAX_BYTES: usize = 64;
/// Groups in a question of discovery.
pub const GROUPS_ASKED_MAX: usize = 16;
/// Devices of a group.
pub const DEVICES_MAX: u16 = 1024;

/// Frames a receiver lets be under way, at first.
pub const WINDOW_DEFAULT: u16 = 256;
/// An acknowledgement waits for company so long.
pub const ACK_DELAY: Duration = Duration::from_millis(1);
/// A side that received nothing for so long asks whether the other is there.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A session on wires survives silence for so long.
pub const SILENCE_WIRED: Duration = Duration::from_secs(60);
/// One on radio: a station that sleeps for a minute may have been silent for some seconds before.
pub const SILENCE_RADIO: Duration = Duration::from_secs(90);
/// The longest wait between two probes.
pub const PROBE_MAX: Duration = Duration::from_secs(1);

const _: () = {
    // The largest PDU fits into the fragments of the smallest frame, sealed.
    let sealed = FRAME_LEAST_BYTES as u32 - 29;
    assert!(sealed * FRAGMENTS_MAX as u32 >= PDU_MAX_BYTES);
    assert!(CONTROL_MAX_BYTES + 29 + 21 <= FRAME_LEAST_BYTES as usize);
    assert!(SLOTS_MAX < TAGS - 1);
    assert!(BEGUN_MAX_BYTES >= PDU_MAX_BYTES);
    assert!(FRAME_MAX_BYTES >= FRAME_BASE_BYTES && FRAME_BASE_BYTES >= FRAME_LEAST_BYTES);
};
