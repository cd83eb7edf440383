//! Scripted bytes in, expected bytes out; and any bytes at all.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::wire::{OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC};

/// Bytes of numbers in network order.
macro_rules! bytes {
    ($($number:expr),* $(,)?) => {{
        let mut bytes = Vec::new();
        $(bytes.extend_from_slice(&$number.to_be_bytes());)*
        bytes
    }};
}

fn greeting(flags: u16) -> Vec<u8> {
    [&b"NBDMAGICIHAVEOPT"[..], &flags.to_be_bytes()].concat()
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap();
    [&bytes![OPTION_REPLY_MAGIC, option, kind, length][..], data].concat()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap();
    [&b"IHAVEOPT"[..], &bytes![number, length], data].concat()
}

fn done(progress: Result<Progress, HandshakeError>) -> Export {
    match progress {
        Ok(Progress::Done(export)) => export,
        other => panic!("{other:?}"),
    }
}

fn export_info() -> Vec<u8> {
    reply(7, 3, &bytes![0_u16, 1_u64 << 20, 0x16d_u16])
}

#[test]
fn a_modern_server_is_asked_for_chunks_and_block_sizes() {
    let mut handshake = Handshake::new("disk").unwrap();
    assert_eq!(handshake.handle_bytes(&greeting(3)), Ok(Progress::More));
    let expected = [bytes![3_u32], option(8, &[])].concat();
    assert_eq!(handshake.take_output(), expected);
    assert_eq!(
        handshake.handle_bytes(&reply(8, 1, &[])),
        Ok(Progress::More)
    );
    let wanted = [&bytes![4_u32][..], b"disk", &bytes![1_u16, 3_u16]].concat();
    assert_eq!(handshake.take_output(), option(7, &wanted));
    let sizes = reply(7, 3, &bytes![3_u16, 512_u32, 4096_u32, 1_u32 << 25]);
    // Byte by byte, and with the first reply behind it.
    let stream = [
        export_info(),
        sizes,
        reply(7, 3, &bytes![9_u16]),
        reply(7, 1, &[]),
        vec![7, 7],
    ];
    let stream = stream.concat();
    let (last, all) = (stream.len() - 3, stream.len());
    for byte in &stream[..last] {
        assert_eq!(handshake.handle_bytes(&[*byte]), Ok(Progress::More));
    }
    let export = done(handshake.handle_bytes(&stream[last..all]));
    assert_eq!(handshake.into_unread(), [7, 7]);
    assert_eq!(export.size_bytes, 1 << 20);
    assert_eq!(
        (export.block_min_bytes, export.payload_max_bytes),
        (512, 1 << 25)
    );
    assert!(export.has_structured_replies && export.flags.can_fua() && export.flags.can_trim());
    assert!(!export.flags.is_read_only());
}

#[test]
fn a_server_without_go_is_asked_by_name() {
    let mut handshake = Handshake::new("x").unwrap();
    handshake.handle_bytes(&greeting(1)).unwrap();
    handshake.handle_bytes(&reply(8, 0x8000_0001, b"")).unwrap();
    handshake.take_output();
    handshake.handle_bytes(&reply(7, 0x8000_0001, b"")).unwrap();
    assert_eq!(handshake.take_output(), option(1, b"x"));
    let answer = [bytes![4096_u64, 3_u16], vec![0; 124]].concat();
    assert_eq!(handshake.handle_bytes(&answer[..133]), Ok(Progress::More));
    let export = done(handshake.handle_bytes(&answer[133..]));
    assert!(export.flags.is_read_only() && !export.has_structured_replies);
}

#[test]
fn an_old_server_of_the_new_style_is_asked_by_name_at_once() {
    let mut handshake = Handshake::new("").unwrap();
    handshake.handle_bytes(&greeting(2)).unwrap();
    let expected = [bytes![2_u32], option(1, b"")].concat();
    assert_eq!(handshake.take_output(), expected);
    let export = done(handshake.handle_bytes(&bytes![512_u64, 1_u16]));
    assert_eq!(export.size_bytes, 512);
}

#[test]
fn refusals_are_told_apart() {
    for (stream, message) in [
        (b"SSH-2.0-OpenSSH_9.2\n".to_vec(), "no NBD server"),
        (reply(7, 0x8000_0006, b"no x"), "no such export (no x)"),
        (reply(7, 0x8000_0005, b""), "wants TLS"),
        (reply(7, 0x8000_0002, b"go away"), "0x80000002 (go away)"),
        (reply(7, 1, b""), "no size"),
        (reply(8, 1, b""), "not a reply to the option"),
        (reply(7, 3, b"\0"), "too short"),
        (
            reply(7, 3, &bytes![3_u16, 3_u32, 8_u32, 8_u32]),
            "contradict",
        ),
        (
            reply(7, 3, &bytes![3_u16, 512_u32, 4097_u32, 1_u32 << 20]),
            "contradict each other: 512 at least, 4097 at best, 1048576 at most",
        ),
        (
            reply(7, 3, &bytes![3_u16, 512_u32, 4096_u32, 5000_u32]),
            "contradict",
        ),
        (
            bytes![OPTION_REPLY_MAGIC, 7_u32, 3_u32, 65_537_u32],
            "too long",
        ),
    ] {
        let mut handshake = Handshake::new("x").unwrap();
        let is_greeting = stream.starts_with(b"SSH");
        if !is_greeting {
            handshake.handle_bytes(&greeting(3)).unwrap();
            handshake.handle_bytes(&reply(8, 1, &[])).unwrap();
        }
        let error = handshake.handle_bytes(&stream).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(Handshake::new(&"x".repeat(4097)).is_err());
}

fn client() -> Client {
    let export = Export {
        size_bytes: 1 << 20,
        flags: TransmissionFlags(0x16d),
        block_min_bytes: 512,
        block_preferred_bytes: 4096,
        payload_max_bytes: 64 * 1024,
        has_structured_replies: true,
        allocation_context: Some(5),
    };
    Client::new(export, 4)
}

fn read(tag: u64, offset: u64, length: u32) -> Request {
    let buffer = ReadBuffer::Into(vec![0xff; usize::try_from(length).unwrap()]);
    let work = Work::Read { length, buffer };
    Request { tag, offset, work }
}

/// Everything to be sent; the cookie of a request is at byte 8 of its header.
fn sent(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.transmit(usize::MAX, |piece| match piece {
        Piece::Header(header) => bytes.extend_from_slice(header),
        Piece::Data(data) => bytes.extend_from_slice(data),
    });
    bytes
}

fn buffer_of(completion: Completion) -> Vec<u8> {
    let Work::Read { buffer, .. } = completion.work else {
        panic!("a read was expected");
    };
    let ReadBuffer::Into(buffer) = buffer else {
        panic!("a buffer was expected");
    };
    buffer
}

#[test]
fn requests_are_written_as_the_protocol_says() {
    let mut client = client();
    let data: Arc<[u8]> = vec![5; 512].into();
    let requests = [
        read(0, 512, 1024),
        Request {
            tag: 1,
            offset: 0,
            work: Work::Write {
                length: 512,
                data,
                fua: true,
            },
        },
        Request {
            tag: 2,
            offset: 0,
            work: Work::Flush,
        },
        Request {
            tag: 3,
            offset: 4096,
            work: Work::WriteZeroes {
                length: 512,
                fua: false,
                no_hole: true,
                fast: false,
            },
        },
    ];
    for request in requests {
        client.submit(request).unwrap();
    }
    assert!(matches!(
        client.submit(read(4, 0, 512)),
        Err((SubmitError::Full { limit: 4 }, _))
    ));
    client.disconnect();
    let magic = 0x2560_9513_u32;
    let expected = [
        bytes![magic, 0_u16, 0_u16, 0_u64, 512_u64, 1024_u32],
        bytes![magic, 1_u16, 1_u16, 1_u64, 0_u64, 512_u32],
        vec![5; 512],
        bytes![magic, 0_u16, 3_u16, 2_u64, 0_u64, 0_u32],
        bytes![magic, 2_u16, 6_u16, 3_u64, 4096_u64, 512_u32],
        bytes![magic, 0_u16, 2_u16, 0_u64, 0_u64, 0_u32],
    ];
    assert_eq!(sent(&mut client), expected.concat());
    assert!(!client.has_output());
}

#[test]
fn what_the_server_would_not_take_is_not_sent() {
    let mut client = client();
    let trim = |length| Work::Trim { length, fua: false };
    for (offset, work, error) in [
        (1 << 20, trim(512), SubmitError::Range),
        (u64::MAX, trim(512), SubmitError::Range),
        (0, trim(0), SubmitError::Range),
        (
            256,
            trim(512),
            SubmitError::Alignment {
                block_min_bytes: 512,
            },
        ),
        (
            0,
            trim(100),
            SubmitError::Alignment {
                block_min_bytes: 512,
            },
        ),
        (
            0,
            Work::Read {
                length: 65_536 + 512,
                buffer: ReadBuffer::Discard,
            },
            SubmitError::Range,
        ),
        (
            0,
            Work::Read {
                length: 512,
                buffer: ReadBuffer::Into(vec![0; 511]),
            },
            SubmitError::BufferLength,
        ),
    ] {
        let (got, _) = client
            .submit(Request {
                tag: 0,
                offset,
                work,
            })
            .unwrap_err();
        assert_eq!(got, error);
    }
    let export = Export {
        flags: TransmissionFlags(3),
        ..*client.export()
    };
    let mut read_only = Client::new(export, 1);
    let work = trim(512);
    let offset = 0;
    let (got, _) = read_only
        .submit(Request {
            tag: 0,
            offset,
            work,
        })
        .unwrap_err();
    assert_eq!(got, SubmitError::NotSupported);
}

#[test]
fn simple_and_structured_replies_come_in_any_order_and_cut() {
    let mut client = client();
    client.submit(read(10, 0, 512)).unwrap();
    client.submit(read(11, 4096, 1024)).unwrap();
    sent(&mut client);
    let magic = STRUCTURED_REPLY_MAGIC;
    let stream = [
        bytes![magic, 0_u16, 2_u16, 1_u64, 12_u32, 4096_u64 + 512, 512_u32],
        bytes![SIMPLE_REPLY_MAGIC, 0_u32, 0_u64],
        vec![1; 512],
        bytes![magic, 1_u16, 1_u16, 1_u64, 520_u32, 4096_u64],
        vec![2; 512],
    ];
    for byte in stream.concat() {
        client.handle_bytes(&[byte]).unwrap();
    }
    let first = client.poll_completion().unwrap();
    assert_eq!((first.tag, first.result), (10, Ok(())));
    assert_eq!(buffer_of(first), vec![1; 512]);
    let second = client.poll_completion().unwrap();
    assert_eq!(second.tag, 11);
    assert_eq!(buffer_of(second), [vec![2; 512], vec![0; 512]].concat());
    assert_eq!(client.in_flight(), 0);
}

#[test]
fn errors_end_their_request_alone() {
    let mut client = client();
    client.submit(read(1, 0, 512)).unwrap();
    client.submit(read(2, 0, 512)).unwrap();
    client.submit(read(3, 0, 512)).unwrap();
    sent(&mut client);
    let chunk = bytes![
        STRUCTURED_REPLY_MAGIC,
        0_u16,
        0x8001_u16,
        1_u64,
        8_u32,
        28_u32,
        2_u16
    ];
    let end = bytes![STRUCTURED_REPLY_MAGIC, 1_u16, 0_u16, 1_u64, 0_u32];
    let simple = bytes![SIMPLE_REPLY_MAGIC, 5_u32, 0_u64];
    let stream = [chunk, b"no".to_vec(), simple, end].concat();
    client.handle_bytes(&stream).unwrap();
    let results: Vec<_> = std::iter::from_fn(|| client.poll_completion())
        .map(|done| (done.tag, done.result.unwrap_err()))
        .collect();
    assert_eq!(results, [(1, ServerError(5)), (2, ServerError(28))]);
    assert_eq!(client.in_flight(), 1);
    assert_eq!(ServerError(28).to_string(), "ENOSPC: no space left");
}

#[test]
fn each_lie_of_the_server_is_a_violation() {
    let magic = STRUCTURED_REPLY_MAGIC;
    let outside = |offset, length| Violation::DataOutside { offset, length };
    for (stream, violation) in [
        (
            bytes![0xdead_beef_u32],
            Violation::Magic { magic: 0xdead_beef },
        ),
        (
            bytes![SIMPLE_REPLY_MAGIC, 0_u32, 9_u64],
            Violation::UnknownCookie { cookie: 9 },
        ),
        (
            bytes![SIMPLE_REPLY_MAGIC, 0_u32, 1_u64 << 32],
            Violation::UnknownCookie { cookie: 1 << 32 },
        ),
        (
            bytes![magic, 1_u16, 0_u16, 0_u64, 0_u32],
            Violation::DataMissing {
                received: 0,
                expected: 1024,
            },
        ),
        (
            bytes![magic, 0_u16, 0_u16, 0_u64, 1_u32],
            Violation::ChunkLength { kind: 0, length: 1 },
        ),
        (
            bytes![magic, 0_u16, 7_u16, 0_u64, 1_u32],
            Violation::ChunkType { kind: 7 },
        ),
        (
            bytes![magic, 0_u16, 1_u16, 0_u64, 8_u32],
            Violation::ChunkLength { kind: 1, length: 8 },
        ),
        (
            bytes![magic, 0_u16, 0x8001_u16, 0_u64, 8193_u32],
            Violation::ChunkLength {
                kind: 0x8001,
                length: 8193,
            },
        ),
        (
            bytes![magic, 0_u16, 1_u16, 0_u64, 520_u32, 511_u64],
            outside(511, 512),
        ),
        (
            bytes![magic, 0_u16, 1_u16, 0_u64, 1033_u32, 512_u64],
            outside(512, 1025),
        ),
        (
            bytes![magic, 0_u16, 2_u16, 0_u64, 12_u32, 512_u64, 0_u32],
            outside(512, 0),
        ),
    ] {
        let mut client = client();
        client.submit(read(0, 512, 1024)).unwrap();
        sent(&mut client);
        assert_eq!(client.handle_bytes(&stream), Err(violation));
    }
}

#[test]
fn data_that_comes_twice_is_a_violation() {
    let mut client = client();
    client.submit(read(0, 0, 1024)).unwrap();
    sent(&mut client);
    let head = bytes![STRUCTURED_REPLY_MAGIC, 0_u16, 1_u16, 0_u64, 776_u32, 0_u64];
    let chunk = [head, vec![1; 768]].concat();
    client.handle_bytes(&chunk).unwrap();
    assert!(client.handle_bytes(&chunk).is_err());
}

/// Half of the data twice is as many bytes as were asked for.
#[test]
fn data_that_comes_twice_does_not_make_up_for_what_is_missing() {
    let chunk = |flags: u16, offset: u64| {
        let head = bytes![STRUCTURED_REPLY_MAGIC, flags, 1_u16, 0_u64, 520_u32, offset];
        [head, vec![1; 512]].concat()
    };
    let hole = |flags: u16, offset: u64| {
        let head = bytes![STRUCTURED_REPLY_MAGIC, flags, 2_u16, 0_u64, 12_u32];
        [head, bytes![offset, 512_u32]].concat()
    };
    let twice = |offset| {
        let length = 512;
        Err(Violation::DataTwice { offset, length })
    };
    for (first, second, offset) in [
        (chunk(0, 0), chunk(1, 0), 0),
        (chunk(0, 512), chunk(1, 512), 512),
        (chunk(0, 0), hole(1, 0), 0),
        (hole(0, 512), chunk(1, 256), 256),
    ] {
        let mut client = client();
        client.submit(read(0, 0, 1024)).unwrap();
        sent(&mut client);
        client.handle_bytes(&first).unwrap();
        assert_eq!(client.handle_bytes(&second), twice(offset));
    }
    // In any order, each once.
    let mut client = client();
    client.submit(read(0, 0, 1024)).unwrap();
    sent(&mut client);
    client.handle_bytes(&chunk(0, 512)).unwrap();
    client.handle_bytes(&hole(1, 0)).unwrap();
    let buffer = buffer_of(client.poll_completion().unwrap());
    assert_eq!(buffer, [vec![0; 512], vec![1; 512]].concat());
}

#[test]
fn chunks_that_were_not_agreed_on_are_a_violation() {
    let export = Export {
        has_structured_replies: false,
        ..*client().export()
    };
    let mut client: Client = Client::new(export, 1);
    let stream = bytes![STRUCTURED_REPLY_MAGIC];
    assert_eq!(client.handle_bytes(&stream), Err(Violation::NotAgreed));
}

fn status(tag: u64, count_max: usize) -> Request {
    let (length, extents) = (4096, Vec::new());
    let work = Work::BlockStatus {
        length,
        count_max,
        extents,
    };
    let offset = 0;
    Request { tag, offset, work }
}

#[test]
fn tls_begins_before_anything_is_asked() {
    let mut handshake = Handshake::new("").unwrap().with_tls();
    assert_eq!(handshake.handle_bytes(&greeting(3)), Ok(Progress::More));
    let expected = [bytes![3_u32], option(5, &[])].concat();
    assert_eq!(handshake.take_output(), expected);
    let consent = reply(5, 1, &[]);
    let progress = handshake.handle_bytes(&consent);
    assert_eq!(progress, Ok(Progress::StartTls));
    assert_eq!(handshake.take_output(), option(8, &[]));
    handshake.handle_bytes(&reply(8, 1, &[])).unwrap();
    let end = [export_info(), reply(7, 1, &[])].concat();
    assert_eq!(done(handshake.handle_bytes(&end)).size_bytes, 1 << 20);
}

#[test]
fn there_is_no_way_round_tls_that_is_wanted() {
    let consent = reply(5, 1, &[]);
    for (flags, stream, error) in [
        (2, vec![], HandshakeError::TlsRefused(String::new())),
        (
            3,
            reply(5, 0x8000_0001, b"none"),
            HandshakeError::TlsRefused("none".to_owned()),
        ),
        // What a third party appends, as if it had come over TLS.
        (
            3,
            [consent, reply(8, 1, &[])].concat(),
            HandshakeError::ClearText,
        ),
    ] {
        let mut handshake = Handshake::new("").unwrap().with_tls();
        let bytes = [greeting(flags), stream].concat();
        assert_eq!(handshake.handle_bytes(&bytes), Err(error));
    }
}

#[test]
fn allocations_are_asked_for_in_their_context() {
    for (answers, context) in [
        (
            vec![
                reply(10, 4, b"\0\0\0\x09base:allocation"),
                reply(10, 1, &[]),
            ],
            Some(9),
        ),
        (
            vec![reply(10, 4, b"\0\0\0\x09other:thing"), reply(10, 1, &[])],
            None,
        ),
        (vec![reply(10, 1, &[])], None),
        (vec![reply(10, 0x8000_0001, &[])], None),
    ] {
        let mut handshake = Handshake::new("ab").unwrap().with_block_status();
        let start = [greeting(3), reply(8, 1, &[])].concat();
        assert_eq!(handshake.handle_bytes(&start), Ok(Progress::More));
        let query = [
            &bytes![2_u32][..],
            b"ab",
            &bytes![1_u32, 15_u32],
            b"base:allocation",
        ];
        let sent = handshake.take_output();
        assert!(sent.ends_with(&option(10, &query.concat())), "{sent:?}");
        handshake.handle_bytes(&answers.concat()).unwrap();
        let end = [export_info(), reply(7, 1, &[])].concat();
        let export = done(handshake.handle_bytes(&end));
        assert_eq!(export.allocation_context, context);
    }
}

#[test]
fn a_block_status_is_kept_as_far_as_there_is_room() {
    let mut client = client();
    client.submit(status(1, 2)).unwrap();
    sent(&mut client);
    let magic = STRUCTURED_REPLY_MAGIC;
    let stream = bytes![
        magic, 1_u16, 5_u16, 0_u64, 28_u32, 5_u32, 1024_u32, 0_u32, 512_u32, 3_u32, 9999_u32, 1_u32
    ];
    for byte in stream {
        client.handle_bytes(&[byte]).unwrap();
    }
    let completion = client.poll_completion().unwrap();
    let Work::BlockStatus { extents, .. } = completion.work else {
        panic!("a block status was expected");
    };
    let extent = |length, is_hole, is_zero| StatusExtent {
        length,
        is_hole,
        is_zero,
    };
    assert_eq!(
        extents,
        [extent(1024, false, false), extent(512, true, true)]
    );
}

#[test]
fn a_block_status_that_lies_is_a_violation() {
    let magic = STRUCTURED_REPLY_MAGIC;
    let whole = bytes![magic, 0_u16, 5_u16, 0_u64, 12_u32, 5_u32, 512_u32, 0_u32];
    for (stream, violation) in [
        (
            bytes![magic, 0_u16, 5_u16, 0_u64, 4_u32],
            Violation::ChunkLength { kind: 5, length: 4 },
        ),
        (
            bytes![magic, 0_u16, 5_u16, 0_u64, 13_u32],
            Violation::ChunkLength {
                kind: 5,
                length: 13,
            },
        ),
        (
            bytes![magic, 0_u16, 1_u16, 0_u64, 520_u32],
            Violation::ChunkType { kind: 1 },
        ),
        (
            bytes![magic, 0_u16, 5_u16, 0_u64, 12_u32, 6_u32],
            Violation::BlockStatus,
        ),
        (
            bytes![magic, 0_u16, 5_u16, 0_u64, 12_u32, 5_u32, 0_u32, 0_u32],
            Violation::BlockStatus,
        ),
        (
            bytes![magic, 1_u16, 0_u16, 0_u64, 0_u32],
            Violation::BlockStatus,
        ),
        (
            bytes![SIMPLE_REPLY_MAGIC, 0_u32, 0_u64],
            Violation::BlockStatus,
        ),
        ([whole.clone(), whole].concat(), Violation::BlockStatus),
    ] {
        let mut client = client();
        client.submit(status(1, 8)).unwrap();
        sent(&mut client);
        assert_eq!(client.handle_bytes(&stream), Err(violation), "{stream:?}");
    }
}

#[test]
fn data_goes_straight_into_a_lent_buffer() {
    let mut client = client();
    client.submit(read(7, 0, 1024)).unwrap();
    sent(&mut client);
    assert!(client.lend(1).is_none(), "nothing has come yet");
    let head = bytes![STRUCTURED_REPLY_MAGIC, 1_u16, 1_u16, 0_u64, 1032_u32, 0_u64];
    client.handle_bytes(&[head, vec![1; 24]].concat()).unwrap();
    assert!(client.lend(1001).is_none(), "less is missing");
    let (mut buffer, range) = client.lend(1000).unwrap();
    assert_eq!(range, 24..1024);
    buffer[24..524].fill(2);
    client.take_back(buffer, 500).unwrap();
    assert!(client.poll_completion().is_none());
    client.handle_bytes(&[3; 499]).unwrap();
    let (mut buffer, range) = client.lend(1).unwrap();
    assert_eq!(range, 1023..1024);
    buffer[1023] = 4;
    client.take_back(buffer, 1).unwrap();
    let bytes = buffer_of(client.poll_completion().unwrap());
    let expected = [vec![1; 24], vec![2; 500], vec![3; 499], vec![4]].concat();
    assert_eq!(bytes, expected);
}

#[test]
fn what_a_lost_connection_owes_can_be_sent_again() {
    let mut client = client();
    client.submit(read(7, 0, 1024)).unwrap();
    client.submit(status(8, 1)).unwrap();
    client.submit(read(9, 512, 512)).unwrap();
    sent(&mut client);
    let simple = [bytes![SIMPLE_REPLY_MAGIC, 0_u32, 2_u64], vec![0; 512]].concat();
    client.handle_bytes(&simple).unwrap();
    let head = bytes![STRUCTURED_REPLY_MAGIC, 1_u16, 1_u16, 0_u64, 1032_u32, 0_u64];
    client.handle_bytes(&head).unwrap();
    let (buffer, _) = client.lend(1).unwrap();
    client.take_back(buffer, 0).unwrap();
    let tags: Vec<u64> = client.into_requests().map(|request| request.tag).collect();
    assert_eq!(tags, [7, 8]);
}

/// Streams that are likely to be understood in part.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0_u64..3, Just(512), Just(1024), any::<u64>()];
    let piece = prop_oneof![
        (0_u32..2, number.clone()).prop_map(|(error, cookie)| bytes![
            SIMPLE_REPLY_MAGIC,
            error,
            cookie
        ]),
        (
            0_u16..2,
            prop_oneof![0_u16..6, 0x8000_u16..0x8003],
            number.clone(),
            0_u32..40
        )
            .prop_map(|(flags, kind, cookie, length)| {
                bytes![STRUCTURED_REPLY_MAGIC, flags, kind, cookie, length]
            }),
        number.prop_map(|number| bytes![number]),
        prop::collection::vec(any::<u8>(), 0..600),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_panic_and_every_request_ends_at_most_once(
        stream in likely(),
        cut in 1_usize..50,
    ) {
        let mut client = client();
        for tag in 0..2 {
            client.submit(read(tag, tag * 512, 512)).unwrap();
        }
        client.submit(status(2, 2)).unwrap();
        sent(&mut client);
        let mut tags = Vec::new();
        for piece in stream.chunks(cut) {
            let went_on = client.handle_bytes(piece).is_ok();
            tags.extend(std::iter::from_fn(|| client.poll_completion()).map(|done| done.tag));
            if !went_on {
                break;
            }
        }
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        prop_assert_eq!(tags.len(), count);
        prop_assert_eq!(client.in_flight(), 3 - count);
    }

    #[test]
    fn any_handshake_is_taken_without_panic_and_without_growing(
        stream in prop::collection::vec(any::<u8>(), 0..300),
        flags in 0_u16..4,
    ) {
        let mut handshake = Handshake::new("x").unwrap();
        handshake.handle_bytes(&greeting(flags)).unwrap();
        let _any_end = handshake.handle_bytes(&stream);
        prop_assert!(handshake.take_output().len() < 200);
    }
}
