//! Receiving straight into the buffer of a task.

use super::*;

const LENGTH: usize = 64 * 1024;

fn rig(digests: bool) -> Rig {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let mut connection = connection(1);
    connection.parameters.max_recv_data_segment_length_bytes = 256 * 1024;
    connection.parameters.header_digest = digests;
    connection.parameters.data_digest = digests;
    Rig::with_connections(config, &[connection])
}

/// Plays the part of a socket: what is wanted exactly goes into its place, `at_most` bytes a
/// time, and everything else through chunks of `chunk` bytes. Gives how often it was exact.
fn play(rig: &mut Rig, wire: &[u8], chunk: usize, at_most: usize) -> usize {
    let mut at = 0;
    let mut exact = 0;
    while at < wire.len() {
        match rig.session.poll_receive(0) {
            Receive::Chunk { limit_bytes } => {
                let end = wire.len().min(at + chunk.min(limit_bytes));
                rig.feed(0, &wire[at..end]).unwrap();
                at = end;
            }
            Receive::Exact { mut buffer, range } => {
                exact += 1;
                let len = range.len().min(at_most).min(wire.len() - at);
                buffer[range.start..range.start + len].copy_from_slice(&wire[at..at + len]);
                at += len;
                rig.session
                    .handle_exact(0, buffer, len, &rig.pool, rig.now)
                    .unwrap();
            }
        }
    }
    exact
}

#[test]
fn every_kind_of_data_is_received_directly_and_arrives_whole() {
    for digests in [false, true] {
        for (chunk, at_most) in [
            (52, usize::MAX),
            (1000, 20_000),
            (10_000, 7),
            (usize::MAX, 1),
        ] {
            let mut rig = rig(digests);
            let data = pattern(2 * LENGTH + 1);
            // Immediate and unsolicited.
            let total = u32::try_from(LENGTH).unwrap();
            let pdus = [
                write(1, 1, total).with_data(&data[..30_001]).not_final(),
                data_out(1, RESERVED_TAG, 0, 30_001, &data[30_001..LENGTH]),
            ];
            let wire: Vec<u8> = pdus
                .iter()
                .flat_map(|pdu| pdu.to_wire(digests, digests))
                .collect();
            let exact = play(&mut rig, &wire, chunk, at_most);
            assert_eq!(exact > 0, chunk != usize::MAX, "{chunk}");
            let Some(Event::Command(id, _)) = rig.session.poll_event() else {
                panic!()
            };
            let got = rig.session.request_data(id, total, &rig.pool).unwrap();
            assert!(
                got.to_vec() == data[..LENGTH],
                "{chunk} {at_most} {digests}"
            );
            assert!(rig.session.poll_event().is_none());
        }
    }
}

#[test]
fn solicited_data_is_received_directly_and_a_damaged_byte_is_noticed() {
    for damaged in [None, Some(100 + 52), Some(LENGTH)] {
        let mut rig = rig(true);
        let total = u32::try_from(LENGTH).unwrap();
        let id = rig.start(0, write(1, 1, total));
        assert!(rig.session.request_data(id, total, &rig.pool).is_none());
        let transfer = rig.output(0)[0].view::<R2tBhs>().target_transfer_tag.get();
        let mut wire = data_out(1, transfer, 0, 0, &pattern(LENGTH)).to_wire(true, true);
        if let Some(at) = damaged {
            wire[at] ^= 1;
        }
        assert!(play(&mut rig, &wire, 100, 50_000) > 0);
        let events: Vec<_> = std::iter::from_fn(|| rig.session.poll_event()).collect();
        match (&events[..], damaged) {
            ([Event::DataOut(_, data)], None) => assert!(data.to_vec() == pattern(LENGTH)),
            (events, Some(_)) => {
                let told: Vec<_> = events.iter().map(|event| rig.story(event)).collect();
                assert_eq!(told, ["DataDigest", "fault 1 DigestError"]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn little_is_not_worth_a_direct_receive() {
    let mut rig = rig(false);
    let pdu = write(1, 1, 65_536)
        .with_data(&pattern(16 * 1024))
        .to_wire(false, false);
    rig.feed(0, &pdu[..48]).unwrap();
    assert!(
        matches!(rig.session.poll_receive(0), Receive::Exact { ref range, .. } if range.len() == 16 * 1024)
    );
    let mut rig = self::rig(false);
    rig.feed(0, &pdu[..49]).unwrap();
    assert!(matches!(rig.session.poll_receive(0), Receive::Chunk { .. }));
    assert!(
        matches!(rig.session.poll_receive(9), Receive::Chunk { .. }),
        "no such connection"
    );
}

/// A direct receive of unsolicited data that has just begun.
fn lent(rig: &mut Rig, pdus: &[Pdu]) -> (Buffer, Range<usize>) {
    let wire: Vec<u8> = pdus
        .iter()
        .flat_map(|pdu| pdu.to_wire(false, false))
        .collect();
    let data = pdus.last().unwrap().data.len();
    rig.feed(0, &wire[..wire.len() - data]).unwrap();
    match rig.session.poll_receive(0) {
        Receive::Exact { buffer, range } => (buffer, range),
        Receive::Chunk { .. } => panic!("not direct"),
    }
}

#[test]
fn a_task_that_ends_while_its_buffer_is_lent_drops_it() {
    let mut rig = rig(false);
    let free = rig.pool.free_bytes();
    let data = data_out(1, RESERVED_TAG, 0, 0, &pattern(LENGTH));
    let (buffer, range) = lent(&mut rig, &[write(1, 1, 65_536).not_final(), data]);
    let Some(Event::Command(id, _)) = rig.session.poll_event() else {
        panic!()
    };
    rig.session.abandon(id);
    assert!(matches!(rig.session.poll_receive(0), Receive::Chunk { .. }));
    rig.session
        .handle_exact(0, buffer, range.len(), &rig.pool, rig.now)
        .unwrap();
    assert_eq!(rig.pool.free_bytes(), free);
    rig.assert_alive(0);
}

#[test]
fn data_asked_for_while_the_buffer_is_lent_is_given_when_it_is_back() {
    let mut rig = rig(false);
    let first = data_out(1, RESERVED_TAG, 0, 0, &pattern(8192)).not_final();
    let rest = data_out(1, RESERVED_TAG, 1, 8192, &pattern(40_000));
    let (mut buffer, range) = lent(&mut rig, &[write(1, 1, 65_536).not_final(), first, rest]);
    let Some(Event::Command(id, _)) = rig.session.poll_event() else {
        panic!()
    };
    // It takes less than has come already, but the kernel still writes into the buffer.
    assert!(rig.session.request_data(id, 4096, &rig.pool).is_none());
    let len = range.len();
    buffer[range].copy_from_slice(&pattern(len));
    rig.session
        .handle_exact(0, buffer, len, &rig.pool, rig.now)
        .unwrap();
    let Some(Event::DataOut(_, data)) = rig.session.poll_event() else {
        panic!()
    };
    assert_eq!(data.to_vec(), pattern(4096));
}

#[test]
fn a_connection_that_ends_during_a_direct_receive_leaves_no_memory_behind() {
    let mut rig = rig(false);
    let free = rig.pool.free_bytes();
    let pdu = write(1, 1, 65_536).with_data(&pattern(LENGTH));
    let (buffer, _) = lent(&mut rig, &[pdu]);
    rig.session.remove_connection(0);
    rig.session
        .handle_exact(0, buffer, 100, &rig.pool, rig.now)
        .unwrap();
    assert_eq!(rig.pool.free_bytes(), free);
    assert!(rig.session.poll_event().is_none());
    assert_eq!(rig.session.connection_count(), 0);
}
