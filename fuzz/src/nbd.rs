//! What an NBD server sends, or a client, in pieces of any length.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::nbd::server::{self, Exports, Offer, REQUEST_BYTES, Terms, Tls};
use ::nbd::{
    Client, Export, Handshake, Progress, ReadBuffer, Request, TransmissionFlags, Violation, Work,
};

use crate::input::Input;

/// Requests under way.
const DEPTH: u32 = 4;

/// Bytes of most requests.
const LENGTH: u32 = 512;

/// In the first byte: the handshake comes first; else the export is as [`EXPORT`] says.
pub(crate) const WITH_HANDSHAKE: u8 = 1 << 0;

/// In the first byte: replies may come in chunks, with the state of blocks.
pub(crate) const STRUCTURED: u8 = 1 << 1;

/// In the first byte: the handshake asks for TLS. What follows the consent stands for what comes over it.
const WITH_TLS: u8 = 1 << 2;

/// In the first byte: a client sends, and this side is the server. [`WITH_TLS`] then means that TLS is required.
pub(crate) const AS_SERVER: u8 = 1 << 3;

/// An export that can do everything.
const EXPORT: Export = Export {
    size_bytes: 1 << 20,
    flags: TransmissionFlags(0x087d),
    block_min_bytes: 1,
    block_preferred_bytes: 4096,
    payload_max_bytes: 32 << 20,
    has_structured_replies: false,
    allocation_context: None,
};

/// The first byte says what is tested, the second how long the pieces are, the rest is what the
/// server sends. Each request is done once at most, with what it was submitted with.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (what, piece_len) = (input.byte(), usize::from(input.byte()) + 1);
    let stream = input.bytes(usize::MAX);
    if what & AS_SERVER != 0 {
        let _taken = serve(what, stream, piece_len);
    } else if what & WITH_HANDSHAKE == 0 {
        let export = Export {
            has_structured_replies: what & STRUCTURED != 0,
            allocation_context: (what & STRUCTURED != 0).then_some(1),
            ..EXPORT
        };
        let _done = transmission(export, stream, piece_len);
    } else if let Some((export, rest)) = handshake(what, stream, piece_len) {
        let _done = transmission(export, &rest, piece_len);
    }
}

/// The export that a handshake leads to, and what is behind it.
fn handshake(what: u8, stream: &[u8], piece_len: usize) -> Option<(Export, Vec<u8>)> {
    let mut handshake = Handshake::new("disk").ok()?.with_block_status();
    if what & WITH_TLS != 0 {
        handshake = handshake.with_tls();
    }
    let mut fed = 0;
    for piece in stream.chunks(piece_len) {
        fed += piece.len();
        let outcome = handshake.handle_bytes(piece);
        assert!(handshake.take_output().len() < 1024);
        if let Progress::Done(export) = outcome.ok()? {
            assert!(export.block_min_bytes.is_power_of_two());
            assert!(export.payload_max_bytes >= export.block_min_bytes);
            let unread = handshake.into_unread();
            assert!(stream[..fed].ends_with(&unread));
            return Some((export, [&unread, &stream[fed..]].concat()));
        }
    }
    None
}

/// One export, of blocks of 4096 bytes.
struct One;

impl Exports for One {
    fn names(&self) -> Vec<String> {
        vec!["disk".to_owned()]
    }

    fn find(&self, name: &str) -> Option<Offer> {
        ["", "disk"].contains(&name).then(|| Offer {
            name: "disk".to_owned(),
            size_bytes: EXPORT.size_bytes,
            flags: EXPORT.flags,
            block_min_bytes: 4096,
            block_preferred_bytes: 4096,
        })
    }
}

/// Takes a client's handshake, then its requests: what is taken is inside the export. Returns how many were.
fn serve(what: u8, stream: &[u8], piece_len: usize) -> usize {
    let tls = if what & WITH_TLS != 0 {
        Tls::Required
    } else {
        Tls::Off
    };
    let mut handshake = server::Handshake::new(tls);
    let mut fed = 0;
    for piece in stream.chunks(piece_len) {
        fed += piece.len();
        let outcome = handshake.handle_bytes(piece, &One);
        assert!(handshake.take_output().len() < 64 * 1024);
        match outcome {
            Ok(server::Progress::More | server::Progress::StartTls) => {}
            Ok(server::Progress::Aborted) | Err(_) => return 0,
            Ok(server::Progress::Done(agreement)) => {
                let unread = handshake.into_unread();
                assert!(stream[..fed].ends_with(&unread));
                let rest = [&unread, &stream[fed..]].concat();
                return requests(&Terms::from(&*agreement), &rest);
            }
        }
    }
    0
}

fn requests(terms: &Terms, mut stream: &[u8]) -> usize {
    let mut taken = 0;
    while let Some((header, rest)) = stream.split_first_chunk::<REQUEST_BYTES>() {
        let Ok(request) = server::Request::parse(header) else {
            break;
        };
        let data = usize::try_from(request.data_bytes()).unwrap_or(usize::MAX);
        stream = rest.get(data..).unwrap_or_default();
        if terms.check(&request).is_ok() && request.command != server::Command::Flush {
            let end = request.offset + u64::from(request.length);
            assert!(request.length > 0 && end <= terms.size_bytes);
            assert!(request.offset.is_multiple_of(4096) && end.is_multiple_of(4096));
        }
        taken += usize::from(terms.check(&request).is_ok());
    }
    taken
}

/// The kinds of requests, in turn.
fn work(number: u64) -> Work {
    let data = || Arc::from(vec![7; LENGTH as usize]);
    match number % 7 {
        0 => Work::Read {
            length: LENGTH,
            buffer: ReadBuffer::Into(vec![0; LENGTH as usize]),
        },
        1 => Work::Read {
            length: 2 * LENGTH,
            buffer: ReadBuffer::Discard,
        },
        2 => Work::Write {
            length: LENGTH,
            data: data(),
            fua: true,
        },
        3 => Work::Flush,
        4 => Work::Trim {
            length: LENGTH,
            fua: false,
        },
        5 => Work::BlockStatus {
            length: LENGTH,
            count_max: 2,
            extents: Vec::new(),
        },
        _ => Work::WriteZeroes {
            length: LENGTH,
            fua: false,
            no_hole: true,
            fast: true,
        },
    }
}

/// Part of what comes goes straight into the buffer it is for.
fn receive(client: &mut Client, piece: &[u8]) -> Result<(), Violation> {
    let Some((mut buffer, range)) = client.lend(LENGTH as usize / 2) else {
        return client.handle_bytes(piece);
    };
    let (straight, rest) = piece.split_at(piece.len().min(range.len()));
    buffer[range.start..range.start + straight.len()].copy_from_slice(straight);
    client.take_back(buffer, straight.len())?;
    client.handle_bytes(rest)
}

/// Returns how many requests were done.
fn transmission(export: Export, stream: &[u8], piece_len: usize) -> u64 {
    let mut client = Client::new(export, DEPTH);
    let mut open = BTreeMap::new();
    let (mut next, mut done) = (0, 0);
    for piece in stream.chunks(piece_len) {
        // An export may refuse some kinds, or all.
        for _ in client.in_flight()..DEPTH as usize {
            let request = Request {
                tag: next,
                offset: 0,
                work: work(next),
            };
            if client.submit(request).is_ok() {
                open.insert(next, std::mem::discriminant(&work(next)));
            }
            next += 1;
        }
        client.transmit(usize::MAX, |_piece| {});
        assert_eq!(client.in_flight(), open.len());
        let outcome = receive(&mut client, piece);
        while let Some(completion) = client.poll_completion() {
            let submitted = open.remove(&completion.tag);
            assert_eq!(submitted, Some(std::mem::discriminant(&completion.work)));
            done += 1;
            if let Work::BlockStatus {
                count_max, extents, ..
            } = &completion.work
            {
                assert!(extents.len() <= *count_max);
            }
            if let Work::Read {
                length,
                buffer: ReadBuffer::Into(buffer),
            } = &completion.work
            {
                assert_eq!(buffer.len(), *length as usize);
            }
        }
        assert_eq!(client.in_flight(), open.len());
        if outcome.is_err() {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused at its first message would lead nowhere.
    #[test]
    fn the_seeds_lead_to_completions() {
        for (name, bytes) in crate::seeds::of("nbd") {
            let (what, stream) = (bytes[0], &bytes[2..]);
            if what & AS_SERVER != 0 {
                assert!(serve(what, stream, 64) > 0, "{name}");
                continue;
            }
            let (export, rest) = if what & WITH_HANDSHAKE == 0 {
                let has_structured_replies = what & STRUCTURED != 0;
                let export = Export {
                    has_structured_replies,
                    allocation_context: has_structured_replies.then_some(1),
                    ..EXPORT
                };
                (export, stream.to_vec())
            } else {
                handshake(what, stream, 64).unwrap()
            };
            let done = transmission(export, &rest, 64);
            assert!(done > 0, "{name}");
        }
    }
}
