//! Headers, PDUs and excerpts out of a stream.

use iscsi::excerpt::{Cutter, EXCERPT_MAX_BYTES, Standing};
use iscsi::framing::{FramingError, Pdu, PduBuffer};

use memory::Piece;

use crate::input::Input;

/// The same PDUs come out whole and in pieces, and what comes out goes back to the same bytes.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (choice, step) = (input.byte(), usize::from(input.byte()) + 1);
    let (header_digest, data_digest) = (choice & 1 != 0, choice & 2 != 0);
    let limit = if choice & 4 == 0 { 8192 } else { 512 };
    let stream = input.bytes(bytes.len());
    iscsi::fuzz::pdu(stream);
    let standing = Standing {
        header_digest,
        data_digest,
        begun: &[],
        left_bytes: usize::from(choice >> 3),
    };
    excerpts(stream, &standing, step);
    let cut = |step: usize| -> (Vec<Pdu>, Option<FramingError>) {
        let mut buffer = PduBuffer::new();
        let mut pdus = Vec::new();
        for piece in stream.chunks(step) {
            buffer.push(piece);
            loop {
                match buffer.next_pdu(limit, header_digest, data_digest) {
                    Ok(Some(pdu)) => pdus.push(pdu),
                    Ok(None) => break,
                    Err(error) => return (pdus, Some(error)),
                }
            }
        }
        (pdus, None)
    };
    let whole = cut(stream.len().max(1));
    assert_eq!(whole, cut(step));
    let mut at = 0;
    for pdu in whole.0 {
        assert!(pdu.data.len() <= limit);
        let again = pdu.to_bytes(header_digest, data_digest);
        let (header, rest) = stream[at..].split_at(48 + pdu.ahs.len());
        assert_eq!(&again[..header.len()], header);
        // Fill bytes need not be zero where no digest covers them.
        assert!(rest.len() >= pdu.data.len());
        at += again.len();
    }
}

/// The same excerpts come out whole and in pieces, none is too long, and together they are no
/// longer than what went in.
fn excerpts(stream: &[u8], standing: &Standing<'_>, step: usize) {
    let cut = |step: usize| {
        let mut cutter = Cutter::new(standing, 64);
        let mut found = Vec::new();
        for piece in stream.chunks(step) {
            cutter.push(Piece::from(piece), |excerpt| {
                found.push((excerpt.whole_bytes, excerpt.bytes.to_vec()));
            });
        }
        found
    };
    let whole = cut(stream.len().max(1));
    assert_eq!(whole, cut(step));
    let lengths = whole.iter().map(|(whole_bytes, _)| whole_bytes);
    assert!(lengths.sum::<usize>() <= stream.len());
    for (whole_bytes, bytes) in &whole {
        assert!(bytes.len() <= EXCERPT_MAX_BYTES.min(*whole_bytes));
    }
}
