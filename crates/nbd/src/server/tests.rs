//! The server against the crate's own client, scripted bytes, and any bytes at all.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::wire::{ServerError, TransmissionFlags};
use crate::{Client, Completion, Piece, ReadBuffer, StatusExtent, Work};

const SIZE_BYTES: u64 = 1 << 20;
/// All but rotational.
const FLAGS: TransmissionFlags = TransmissionFlags(0x9ed);

#[derive(Debug)]
struct One {
    block_min_bytes: u32,
}

const ONE: One = One {
    block_min_bytes: 512,
};

impl Exports for One {
    fn names(&self) -> Vec<String> {
        vec!["disk".to_owned()]
    }

    fn find(&self, name: &str) -> Option<Offer> {
        ["", "disk"].contains(&name).then(|| Offer {
            name: "disk".to_owned(),
            size_bytes: SIZE_BYTES,
            flags: FLAGS,
            block_min_bytes: self.block_min_bytes,
            block_preferred_bytes: 4096,
        })
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &length, data].concat()
}

fn name(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

/// A client that has sent its flags to a server of one export.
fn begun(tls: Tls) -> Handshake {
    let mut server = Handshake::new(tls);
    let more = server.handle_bytes(&[0, 0, 0, 3], &ONE);
    assert_eq!(more, Ok(Progress::More));
    assert_eq!(server.take_output(), b"NBDMAGICIHAVEOPT\0\x03");
    server
}

/// The types of the replies to an option.
fn replies(server: &mut Handshake, option_bytes: &[u8]) -> Vec<u32> {
    server.handle_bytes(option_bytes, &ONE).unwrap();
    kinds(&server.take_output())
}

fn kinds(mut output: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while !output.is_empty() {
        assert_eq!(output[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        kinds.push(u32::from_be_bytes(output[12..16].try_into().unwrap()));
        let length = u32::from_be_bytes(output[16..20].try_into().unwrap());
        output = &output[20 + length as usize..];
    }
    kinds
}

/// Runs both handshakes against each other; the client's bytes come in pieces of this length.
fn agreed(client: crate::Handshake, piece_len: usize) -> (crate::Export, Agreement) {
    let (mut client, mut server) = (client, Handshake::new(Tls::Off));
    let mut agreement = None;
    loop {
        let progress = client.handle_bytes(&server.take_output()).unwrap();
        if let crate::Progress::Done(export) = progress {
            return (export, agreement.unwrap());
        }
        for piece in client.take_output().chunks(piece_len) {
            match server.handle_bytes(piece, &ONE).unwrap() {
                Progress::More => {}
                Progress::Done(done) => agreement = Some(*done),
                other @ (Progress::StartTls | Progress::Aborted) => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn both_sides_agree_on_all_that_the_client_asks_for() {
    let client = crate::Handshake::new("disk").unwrap().with_block_status();
    let (export, agreement) = agreed(client, 5);
    assert_eq!((export.size_bytes, export.flags), (SIZE_BYTES, FLAGS));
    assert_eq!(export.block_min_bytes, 512);
    assert_eq!(export.payload_max_bytes, PAYLOAD_MAX_BYTES);
    assert_eq!(export.allocation_context, Some(ALLOCATION_CONTEXT));
    assert!(agreement.has_structured_replies && agreement.has_allocation_context);
}

#[test]
fn the_empty_name_is_that_of_the_default_export() {
    let (_, agreement) = agreed(crate::Handshake::new("").unwrap(), 64);
    assert_eq!(agreement.offer.name, "disk");
    assert!(!agreement.has_allocation_context);
}

#[test]
fn each_option_has_its_reply() {
    const ERROR: u32 = 1 << 31;
    let go = |export: &str, wanted: &[u8]| {
        [
            name(export),
            vec![0, u8::try_from(wanted.len() / 2).unwrap()],
            wanted.to_vec(),
        ]
        .concat()
    };
    let contexts = |queries: &[&str]| {
        let count = u32::try_from(queries.len()).unwrap().to_be_bytes().to_vec();
        let queries = queries.iter().flat_map(|query| name(query)).collect();
        [name("disk"), count, queries].concat()
    };
    #[rustfmt::skip]
    let table: &[(u32, Vec<u8>, &[u32])] = &[
        (3, vec![], &[2, 1]),
        (3, vec![0], &[ERROR | 3]),
        (5, vec![], &[ERROR | 1]),
        (6, go("disk", &[]), &[3, 3, 1]),
        (6, go("disk", &[0, 1]), &[3, 3, 3, 1]),
        (6, go("none", &[]), &[ERROR | 6]),
        (6, go("disk", &[0]), &[ERROR | 3]),
        (6, [go("disk", &[]), vec![0]].concat(), &[ERROR | 3]),
        (6, vec![0, 0, 16, 1], &[ERROR | 3]),
        (10, contexts(&[]), &[ERROR | 3]),
        (9, contexts(&[]), &[4, 1]),
        (9, contexts(&["base:"]), &[4, 1]),
        (9, contexts(&["qemu:"]), &[1]),
        (8, vec![0], &[ERROR | 3]),
        (8, vec![], &[1]),
        (10, contexts(&["base:"]), &[1]),
        (10, contexts(&["x", "base:allocation"]), &[4, 1]),
        (10, vec![0, 0, 0, 0, 0, 0, 0, 9], &[ERROR | 3]),
        (11, vec![], &[ERROR | 1]),
        (7, go("none", &[]), &[ERROR | 6]),
        (7, go("disk", &[]), &[3, 3, 1]),
    ];
    let mut server = begun(Tls::Off);
    for (number, data, expected) in table {
        assert_eq!(
            replies(&mut server, &option(*number, data)),
            *expected,
            "{number} {data:?}"
        );
    }
}

#[test]
fn large_blocks_are_served_to_those_only_who_ask_for_them() {
    let large = One {
        block_min_bytes: 4096,
    };
    let mut server = begun(Tls::Off);
    let plain = [name("disk"), vec![0, 0]].concat();
    server.handle_bytes(&option(7, &plain), &large).unwrap();
    assert_eq!(kinds(&server.take_output()), [0x8000_0008]);
    let by_name = begun(Tls::Off).handle_bytes(&option(1, b"disk"), &large);
    assert_eq!(by_name, Err(HandshakeError::NoExport));
    let asking = [name("disk"), vec![0, 1, 0, 3]].concat();
    let done = server.handle_bytes(&option(7, &asking), &large).unwrap();
    assert!(matches!(done, Progress::Done(_)), "{done:?}");
}

#[test]
fn old_clients_get_the_export_by_its_name() {
    for (flags, length) in [(3, 10), (1, 134)] {
        let mut server = Handshake::new(Tls::Off);
        server.take_output();
        let bytes = [&[0, 0, 0, flags][..], &option(1, b"disk"), b"rest"].concat();
        let done = server.handle_bytes(&bytes, &ONE).unwrap();
        assert!(matches!(done, Progress::Done(_)), "{done:?}");
        let output = server.take_output();
        assert_eq!(output.len(), length);
        // No chunks, so none can be asked for.
        assert_eq!(output[8..10], [0x09, 0x6d]);
        assert_eq!(server.into_unread(), b"rest");
    }
    let none = begun(Tls::Off).handle_bytes(&option(1, b"x"), &ONE);
    assert_eq!(none, Err(HandshakeError::NoExport));
}

#[test]
fn nothing_is_answered_before_tls() {
    let mut server = begun(Tls::Required);
    let go = [name("disk"), vec![0, 0]].concat();
    for (number, data) in [(3, &[][..]), (7, &go), (8, &[]), (99, &[])] {
        assert_eq!(replies(&mut server, &option(number, data)), [0x8000_0005]);
    }
    let start = server.handle_bytes(&option(5, &[]), &ONE);
    assert_eq!(start, Ok(Progress::StartTls));
    assert_eq!(kinds(&server.take_output()), [1]);
    assert_eq!(replies(&mut server, &option(5, &[])), [0x8000_0003]);
    assert_eq!(replies(&mut server, &option(3, &[])), [2, 1]);
    let by_name = begun(Tls::Required).handle_bytes(&option(1, b"disk"), &ONE);
    assert_eq!(by_name, Err(HandshakeError::NoExport));
    let behind = [option(5, &[]), vec![0]].concat();
    let behind = begun(Tls::Required).handle_bytes(&behind, &ONE);
    assert_eq!(behind, Err(HandshakeError::ClearText));
}

#[test]
fn what_has_no_end_is_ended() {
    let flags = Handshake::new(Tls::Off).handle_bytes(&[0, 0, 0, 4], &ONE);
    assert_eq!(flags, Err(HandshakeError::UnknownFlags(4)));
    let http = begun(Tls::Off).handle_bytes(b"GET / HT", &ONE);
    assert_eq!(http, Err(HandshakeError::NotNbd));
    let mut long = option(3, &[]);
    long[12..16].copy_from_slice(&8193_u32.to_be_bytes());
    let long = begun(Tls::Off).handle_bytes(&long, &ONE);
    assert!(
        matches!(long, Err(HandshakeError::OptionTooLong { .. })),
        "{long:?}"
    );
    let mut server = begun(Tls::Off);
    for _ in 0..64 {
        assert_eq!(replies(&mut server, &option(3, &[])), [2, 1]);
    }
    let more = server.handle_bytes(&option(3, &[]), &ONE);
    assert_eq!(more, Err(HandshakeError::TooManyOptions));
    assert_eq!(
        replies(&mut begun(Tls::Off), &option(2, &[])),
        [1],
        "an abort is confirmed"
    );
}

#[derive(Debug)]
struct Thousand;

impl Exports for Thousand {
    fn names(&self) -> Vec<String> {
        (0..1000).map(|number| format!("disk-{number}")).collect()
    }

    fn find(&self, _: &str) -> Option<Offer> {
        None
    }
}

#[test]
fn who_does_not_read_gets_no_further_answers() {
    let mut server = begun(Tls::Off);
    let lists: Vec<u8> = (0..60).flat_map(|_| option(3, &[])).collect();
    server.handle_bytes(&lists, &Thousand).unwrap();
    let (first, mut all) = (server.take_output().len(), 0);
    assert!(first < 64 * 1024, "{first}");
    loop {
        server.handle_bytes(&[], &Thousand).unwrap();
        let output = server.take_output().len();
        all += output;
        if output == 0 {
            break;
        }
    }
    assert_eq!(all, 59 * first);
}

fn terms(flags: TransmissionFlags) -> Terms {
    Terms {
        size_bytes: SIZE_BYTES,
        flags,
        block_min_bytes: 512,
        has_structured_replies: true,
        has_allocation_context: true,
    }
}

fn header(flags: u16, command: u16, offset: u64, length: u32) -> [u8; REQUEST_BYTES] {
    let bytes = [
        &0x2560_9513_u32.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &command.to_be_bytes(),
        &7_u64.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ];
    bytes.concat().try_into().unwrap()
}

/// Flags of the export; flags, command, offset and length of the request; how it is refused.
type Row = (TransmissionFlags, u16, u16, u64, u32, Option<ServerError>);

#[test]
fn requests_are_taken_up_to_their_limits() {
    const READ_ONLY: TransmissionFlags = TransmissionFlags(0x03);
    const NO_TRIM: TransmissionFlags = TransmissionFlags(0x0d);
    let (perm, inval, nospc) = (
        Some(ServerError::NOT_PERMITTED),
        Some(ServerError::INVALID),
        Some(ServerError::NO_SPACE),
    );
    #[rustfmt::skip]
    let table: &[Row] = &[
        (FLAGS, 0, 0, SIZE_BYTES - 512, 512, None),
        (FLAGS, 0, 0, SIZE_BYTES - 512, 1024, inval),
        (FLAGS, 0, 0, u64::MAX - 511, 512, inval),
        (FLAGS, 0, 0, 0, 0, inval),
        (FLAGS, 0, 0, 0, 511, inval),
        (FLAGS, 0, 0, 1, 512, inval),
        (FLAGS, 4, 0, 0, 512, None),
        (FLAGS, 2, 0, 0, 512, inval),
        (FLAGS, 1, 1, SIZE_BYTES - 512, 512, None),
        (FLAGS, 0, 1, SIZE_BYTES - 512, 1024, nospc),
        (FLAGS, 0, 1, u64::MAX - 511, 512, nospc),
        (READ_ONLY, 0, 1, 0, 512, perm),
        (READ_ONLY, 0, 4, 0, 512, perm),
        (READ_ONLY, 0, 0, 0, 512, None),
        (READ_ONLY, 0, 3, 0, 0, inval),
        (FLAGS, 0, 3, 0, 0, None),
        (FLAGS, 0, 4, 0, 1 << 20, None),
        (FLAGS, 0, 4, SIZE_BYTES - 512, 512, None),
        (FLAGS, 0, 4, SIZE_BYTES - 512, 1024, inval),
        (FLAGS, 0, 4, u64::MAX - 511, 512, inval),
        (FLAGS, 0, 6, SIZE_BYTES - 512, 1024, nospc),
        (NO_TRIM, 0, 4, 0, 512, inval),
        (FLAGS, 0x13, 6, 0, 512, None),
        (NO_TRIM, 0, 6, 0, 512, inval),
        (FLAGS, 8, 7, 0, 512, None),
        (FLAGS, 0, 5, 0, 512, inval),
        (FLAGS, 0, 99, 0, 512, inval),
    ];
    for &(flags, request_flags, command, offset, length, expected) in table {
        let request = Request::parse(&header(request_flags, command, offset, length)).unwrap();
        let got = terms(flags).check(&request);
        assert_eq!(got.err(), expected, "{request:?}");
    }
    let large = Terms {
        size_bytes: 1 << 40,
        ..terms(FLAGS)
    };
    for (command, length, is_fine) in [
        (0, PAYLOAD_MAX_BYTES, true),
        (0, PAYLOAD_MAX_BYTES + 512, false),
        (1, PAYLOAD_MAX_BYTES + 512, false),
        (4, 0xffff_fe00, true),
    ] {
        let request = Request::parse(&header(0, command, 0, length)).unwrap();
        assert_eq!(large.check(&request).is_ok(), is_fine, "{request:?}");
    }
    assert_eq!(Request::parse(&[0; REQUEST_BYTES]), Err(BadMagic(0)));
}

/// A server of some bytes, which answers at once.
struct Disk {
    bytes: Vec<u8>,
    terms: Terms,
    received: Vec<u8>,
}

impl Disk {
    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.received.extend_from_slice(bytes);
        let mut output = Vec::new();
        while let Some(header) = self.received.first_chunk() {
            let request = Request::parse(header).unwrap();
            let end = REQUEST_BYTES + request.data_bytes() as usize;
            if self.received.len() < end {
                break;
            }
            let all: Vec<u8> = self.received.drain(..end).collect();
            output.extend(self.execute(&request, &all[REQUEST_BYTES..]));
        }
        output
    }

    fn execute(&mut self, request: &Request, data: &[u8]) -> Vec<u8> {
        let Request { cookie, offset, .. } = *request;
        let is_structured = self.terms.has_structured_replies;
        if let Err(error) = self.terms.check(request) {
            return if is_structured {
                error_chunk(cookie, error).to_vec()
            } else {
                simple_reply(cookie, Some(error)).to_vec()
            };
        }
        let start = usize::try_from(offset).unwrap();
        let range = start..start + request.length as usize;
        match request.command {
            Command::Read => {
                let bytes = &self.bytes[range];
                let mut reply = if is_structured {
                    data_chunk(cookie, true, offset, request.length).to_vec()
                } else {
                    simple_reply(cookie, None).to_vec()
                };
                reply.extend_from_slice(bytes);
                return reply;
            }
            Command::Write => self.bytes[range].copy_from_slice(data),
            Command::Trim | Command::WriteZeroes { .. } => self.bytes[range].fill(0),
            Command::BlockStatus { .. } => {
                let half = request.length / 2;
                return block_status_chunk(cookie, &[(half, false), (half, true)]);
            }
            Command::Flush | Command::Disconnect | Command::Unknown(_) => {}
        }
        if is_structured {
            none_chunk(cookie).to_vec()
        } else {
            simple_reply(cookie, None).to_vec()
        }
    }
}

fn work(kind: u8, length: u32) -> Work {
    let count = length as usize;
    match kind {
        0 => Work::Read {
            length,
            buffer: ReadBuffer::Into(vec![0; count]),
        },
        1 => Work::Write {
            length,
            data: Arc::from(vec![kind.wrapping_add(length.to_be_bytes()[2]); count]),
            fua: true,
        },
        2 => Work::Flush,
        3 => Work::Trim { length, fua: false },
        4 => Work::BlockStatus {
            length,
            count_max: 8,
            extents: Vec::new(),
        },
        _ => Work::WriteZeroes {
            length,
            fua: false,
            no_hole: true,
            fast: false,
        },
    }
}

/// What a completion has to be, given the bytes of the export before it.
fn check(completion: &Completion, bytes: &mut [u8]) {
    assert_eq!(completion.result, Ok(()));
    let start = usize::try_from(completion.offset).unwrap();
    match &completion.work {
        Work::Read {
            length,
            buffer: ReadBuffer::Into(buffer),
        } => assert_eq!(buffer[..], bytes[start..start + *length as usize]),
        Work::Write { length, data, .. } => {
            bytes[start..start + *length as usize].copy_from_slice(data);
        }
        Work::Trim { length, .. } | Work::WriteZeroes { length, .. } => {
            bytes[start..start + *length as usize].fill(0);
        }
        Work::BlockStatus {
            length, extents, ..
        } => {
            let half = |flags: &StatusExtent| flags.length == length / 2;
            assert!(
                extents.len() == 2 && extents.iter().all(half),
                "{extents:?}"
            );
        }
        Work::Read { .. } | Work::Flush => {}
    }
}

proptest! {
    #[test]
    fn any_bytes_end_in_an_answer_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        options in proptest::collection::vec((0_u32..14, proptest::collection::vec(any::<u8>(), 0..40)), 0..8),
        piece_len in 1_usize..64,
    ) {
        let mut server = begun(Tls::Off);
        let stream: Vec<u8> = options.iter().flat_map(|(number, data)| option(*number, data)).collect();
        for piece in [stream, bytes].concat().chunks(piece_len) {
            let outcome = server.handle_bytes(piece, &ONE);
            assert!(server.take_output().len() < 64 * 1024);
            if !matches!(outcome, Ok(Progress::More)) {
                break;
            }
        }
    }

    #[test]
    fn the_client_reads_what_it_wrote(
        works in proptest::collection::vec((0_u8..6, 0_u64..1000, 1_u32..64), 1..40),
        is_structured: bool,
        piece_len in 1_usize..5000,
    ) {
        let export = crate::Export {
            size_bytes: SIZE_BYTES,
            flags: FLAGS,
            block_min_bytes: 512,
            block_preferred_bytes: 4096,
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            has_structured_replies: is_structured,
            allocation_context: is_structured.then_some(ALLOCATION_CONTEXT),
        };
        let terms = Terms { has_structured_replies: is_structured, ..terms(FLAGS) };
        let size = usize::try_from(SIZE_BYTES).unwrap();
        let mut disk = Disk { bytes: vec![0; size], terms, received: Vec::new() };
        let mut model = vec![0; size];
        let mut client = Client::new(export, 8);
        for (tag, &(kind, block, blocks)) in works.iter().enumerate() {
            let kind = if kind == 4 && !is_structured { 0 } else { kind };
            let offset = if kind == 2 { 0 } else { block * 512 };
            let request = crate::Request { tag: tag as u64, offset, work: work(kind, blocks * 1024) };
            client.submit(request).unwrap();
            let mut sent = Vec::new();
            client.transmit(usize::MAX, |piece| match piece {
                Piece::Header(bytes) => sent.extend_from_slice(bytes),
                Piece::Data(data) => sent.extend_from_slice(data),
            });
            for piece in sent.chunks(piece_len) {
                let answer = disk.answer(piece);
                for piece in answer.chunks(piece_len) {
                    client.handle_bytes(piece).unwrap();
                }
            }
            let completion = client.poll_completion().unwrap();
            check(&completion, &mut model);
        }
        assert!(disk.bytes == model);
    }
}
