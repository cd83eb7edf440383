#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use proptest::prelude::*;

use super::*;
use crate::framing::Pdu;
use crate::pdu::{
    Bhs, DataInBhs, LoginRequestBhs, LoginResponseBhs, ScsiCommandBhs, ScsiResponseBhs,
    TextResponseBhs,
};

fn pdu(bhs: &impl Bhs, data: &[u8]) -> Pdu {
    Pdu::new(bhs.as_bhs_bytes(), data.to_vec())
}

/// A connection as it goes on after a login: with digests, if they were negotiated.
fn wire(pdus: &[Pdu], digests: bool) -> Vec<u8> {
    let is_login = |pdu: &Pdu| matches!(pdu.header[0] & 0x3f, 0x03 | 0x23);
    pdus.iter()
        .flat_map(|pdu| {
            let digests = digests && !is_login(pdu);
            pdu.to_bytes(digests, digests)
        })
        .collect()
}

/// (length on the wire, what is kept) of each PDU, from a stream that comes in pieces.
fn cut(cutter: &mut Cutter, stream: &[u8], step: usize) -> Vec<(usize, Vec<u8>)> {
    let mut found = Vec::new();
    for piece in stream.chunks(step) {
        cutter.push(Piece::from(piece), |excerpt| {
            found.push((excerpt.whole_bytes, excerpt.bytes.to_vec()));
        });
    }
    found
}

fn standing(digests: bool) -> Standing<'static> {
    Standing {
        header_digest: digests,
        data_digest: digests,
        ..Standing::default()
    }
}

#[test]
fn the_same_excerpts_come_out_however_the_stream_is_cut() {
    let mut answer = ScsiResponseBhs::new();
    answer.status = 2;
    let pdus = [
        pdu(&LoginResponseBhs::new(), b"TargetAlias=x\0"),
        pdu(&ScsiCommandBhs::new(), b""),
        pdu(&ScsiCommandBhs::new(), &[0x5a; 9]),
        pdu(&DataInBhs::new(), &[0x5a; 8]),
        pdu(&DataInBhs::new(), &[0x5a; 1000]),
        pdu(&answer, &[0x5a; 20]),
    ];
    for (digests, expected) in [
        (
            false,
            [(64, 64), (48, 48), (60, 56), (56, 56), (1048, 56), (68, 68)],
        ),
        (
            true,
            [(64, 64), (52, 52), (68, 60), (64, 64), (1056, 60), (76, 76)],
        ),
    ] {
        let stream = wire(&pdus, digests);
        for step in [1, 7, 47, 48, 49, 53, 100, stream.len()] {
            let mut cutter = Cutter::new(&standing(digests), 8);
            let found = cut(&mut cutter, &stream, step);
            let mut at = 0;
            for ((whole, bytes), expected) in found.iter().zip(&expected) {
                assert_eq!((*whole, bytes.len()), *expected, "step {step}");
                assert_eq!(bytes[..], stream[at..at + bytes.len()], "step {step}");
                at += whole;
            }
            assert_eq!(found.len(), pdus.len(), "step {step}");
        }
    }
}

#[test]
fn whoever_comes_later_begins_with_the_next_whole_pdu() {
    let stream = wire(
        &[
            pdu(&ScsiCommandBhs::new(), &[1; 100]),
            pdu(&ScsiCommandBhs::new(), b""),
        ],
        false,
    );
    for at in 0..=148 {
        let (before, after) = stream.split_at(at);
        let standing = if at < 48 {
            Standing {
                begun: before,
                ..Standing::default()
            }
        } else {
            Standing {
                left_bytes: 148 - at,
                ..Standing::default()
            }
        };
        let found = cut(&mut Cutter::new(&standing, 0), after, 13);
        let lengths: Vec<usize> = found.iter().map(|(whole, _)| *whole).collect();
        let expected: &[usize] = if at < 48 { &[148, 48] } else { &[48] };
        assert_eq!(lengths, expected, "{at}");
    }
}

#[test]
fn texts_are_kept_without_secrets() {
    for (text, expected) in [
        (
            &b"CHAP_N=tux\0CHAP_R=0x0123\0"[..],
            &b"CHAP_N=tux\0CHAP_R=******\0"[..],
        ),
        (b"CHAP_R=", b"CHAP_R="),
        (b"CHAP_I=7\0CHAP_C=0x12\0", b"CHAP_I=7\0CHAP_C=0x12\0"),
        // The rest of an answer that the PDU before began.
        (b"0123==\0CHAP_N=tux\0", b"******\0CHAP_N=tux\0"),
        (b"R=0x01\0", b"******\0"),
        (b"X-com.example.password=p\0", b"************************\0"),
        (b"chap_r=1\0\0\0", b"********\0\0\0"),
        (b"\xff\xfe=1\0", b"****\0"),
        (b"", b""),
    ] {
        let all: [&dyn Fn() -> Pdu; 2] = [&|| pdu(&LoginRequestBhs::new(), text), &|| {
            pdu(&TextResponseBhs::new(), text)
        }];
        for make in all {
            let stream = make().to_bytes(false, false);
            let found = cut(&mut Cutter::new(&Standing::default(), 0), &stream, 5);
            let end = 48 + text.len();
            assert_eq!(found[0].1[48..end], *expected, "{expected:?}");
            assert_eq!((found[0].0, found[0].1.len()), (stream.len(), stream.len()));
        }
    }
}

proptest! {
    #[test]
    fn no_stream_makes_the_cutter_panic_or_keep_too_much(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2000), 0..20),
        digests in any::<bool>(),
        left_bytes in 0..200_usize,
        data_bytes_max in any::<usize>(),
    ) {
        let standing = Standing { left_bytes, ..standing(digests) };
        let mut cutter = Cutter::new(&standing, data_bytes_max);
        for piece in &pieces {
            cutter.push(Piece::from(&piece[..]), |excerpt| {
                assert!(excerpt.bytes.len() <= EXCERPT_MAX_BYTES);
                assert!(excerpt.bytes.len() <= excerpt.whole_bytes);
            });
            prop_assert!(cutter.kept.len() <= EXCERPT_MAX_BYTES);
        }
    }
}
