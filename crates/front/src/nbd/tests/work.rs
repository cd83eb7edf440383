//! Requests as the commands that they become.

use ::iscsi::target::Command;
use ::nbd::server::Request as Asked;

use super::super::work::{Task, moving_bytes};
use super::*;

fn asked(flags: u16, kind: u16, range: (u64, u32)) -> Asked {
    let header = header(flags, kind, 1, range);
    Asked::parse(header.first_chunk().unwrap()).unwrap()
}

/// CDB, and what it takes and gives in bytes.
fn said(command: &Command) -> (String, u32, u32) {
    assert_eq!(command.lun, 0);
    assert!(command.extended_cdb.is_empty());
    let bytes = command.cdb.iter().map(|byte| format!("{byte:02x}"));
    (
        bytes.collect(),
        command.data_out_length,
        command.data_in_length,
    )
}

/// The next commands of a request that all end well.
fn commands(request: Asked, block_bytes: u32) -> Vec<(String, u32, u32)> {
    let mut task = Task::new(request, Duration::ZERO);
    let mut all = Vec::new();
    loop {
        let done = task.done;
        all.push(said(&task.command(block_bytes)));
        assert_eq!(task.position(), request.offset + u64::from(done));
        if !task.advance(block_bytes) {
            return all;
        }
    }
}

/// Spec: SBC-4, READ (16), WRITE (16), WRITE SAME (16), UNMAP, SYNCHRONIZE CACHE (16), GET LBA STATUS (16).
#[test]
fn each_request_becomes_its_commands() {
    type Case<'a> = ((u16, u16, (u64, u32)), u32, &'a [(&'a str, u32, u32)]);
    const MIB: u32 = 1 << 20;
    const FLUSH: (&str, u32, u32) = ("91000000000000000000000000000000", 0, 0);
    #[rustfmt::skip]
    let cases: [Case<'_>; 15] = [
        ((0, 0, (4096, 2 * MIB)), 4096, &[("88000000000000000001000002000000", 0, 2 * MIB)]),
        ((1, 0, (0, 2 * MIB + 512)), 512, &[
            ("88000000000000000000000010000000", 0, 2 * MIB),
            ("88000000000000001000000000010000", 0, 512),
        ]),
        ((0, 1, (1 << 42, 512)), 512, &[("8a000000000200000000000000010000", 512, 0)]),
        ((1, 1, (0, 2 * MIB + 4096)), 4096, &[
            ("8a080000000000000000000002000000", 2 * MIB, 0),
            ("8a080000000000000200000000010000", 4096, 0),
        ]),
        ((0, 3, (0, 0)), 512, &[FLUSH]),
        ((1, 3, (0, 0)), 512, &[FLUSH]),
        ((0, 4, (512, 512 * MIB)), 512, &[("42000000000000001800000000000000", 24, 0)]),
        ((0, 4, (0, 512 * MIB + 512)), 512, &[("42000000000000001800000000000000", 24, 0); 2]),
        ((1, 4, (0, 512)), 512, &[("42000000000000001800000000000000", 24, 0), FLUSH]),
        ((0, 6, (0, 16 * MIB)), 512, &[("93090000000000000000000080000000", 0, 0)]),
        ((1, 6, (0, 16 * MIB + 512)), 512, &[
            ("93090000000000000000000080000000", 0, 0),
            ("93090000000000008000000000010000", 0, 0),
            FLUSH,
        ]),
        ((2, 6, (4096, 128 * MIB)), 4096, &[("93010000000000000001000080000000", 0, 0)]),
        ((0, 7, (512, 4096)), 512, &[("9e120000000000000001000008080000", 0, 0x808)]),
        ((8, 7, (512, 4096)), 512, &[("9e120000000000000001000000180000", 0, 24)]),
        ((0, 9, (0, 512)), 512, &[FLUSH]),
    ];
    for ((flags, kind, range), block_bytes, expected) in cases {
        let request = asked(flags, kind, range);
        let expected: Vec<_> = expected
            .iter()
            .map(|&(cdb, data_out, data_in)| (cdb.to_owned(), data_out, data_in))
            .collect();
        let case = format!("{kind} with {flags:#x}, {range:?}");
        assert_eq!(commands(request, block_bytes), expected, "{case}");
        let changes = matches!(kind, 1 | 4 | 6);
        assert_eq!(Task::new(request, BEGIN).changes(), changes, "{case}");
    }
}

/// Spec: SBC-4, UNMAP parameter list.
#[test]
fn a_trim_has_its_range_in_a_list() {
    let mut task = Task::new(asked(1, 4, (1 << 42, 513 << 20)), BEGIN);
    for (lba, blocks) in [
        ("0000000200000000", "00100000"),
        ("0000000200100000", "00000800"),
    ] {
        task.command(512);
        let list = task.data.as_slice().unwrap();
        let list: String = list.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(list, format!("0016001000000000{lba}{blocks}00000000"));
        assert!(!task.is_flushing() && task.advance(512));
    }
    assert!(task.is_flushing());
}

#[test]
fn what_a_request_moves_is_what_is_left_of_a_read_and_one_command_of_a_write() {
    const PART: u32 = 2 << 20;
    for (kind, length, done, expected) in [
        (0, PART + 512, 0, PART + 512),
        (0, PART + 512, PART, 512),
        (0, 512, 512, 0),
        (1, PART - 512, 0, PART - 512),
        (1, PART, 0, PART),
        (1, PART + 512, 0, PART),
        (1, PART + 512, PART, PART),
        (4, 512, 0, 0),
        (6, 512, 0, 0),
        (7, 512, 0, 0),
    ] {
        let request = asked(0, kind, (0, length));
        assert_eq!(
            moving_bytes(&request, done),
            expected as usize,
            "{kind}, {length}, {done}"
        );
    }
}

/// A write whose data went with its command cannot be given again.
#[test]
fn a_command_is_given_again_where_its_data_is_there() {
    for (kind, has_data, expected) in [(0, false, 16), (1, false, 0), (1, true, 16), (4, false, 16)]
    {
        let mut task = Task::new(asked(0, kind, (0, 8 << 20)), BEGIN);
        if has_data {
            task.data = memory::Payload::Heap(vec![7; 512]);
        }
        for round in 0..2 {
            let given = (0..20).take_while(|_| task.may_try_again()).count();
            assert_eq!(given, expected, "{kind}, {round}");
            // The next one begins anew.
            assert_eq!(task.advance(512), kind != 4);
        }
    }
}
