//! What is sent of the data of a request.

use super::*;

#[test]
fn zeros_are_sent_as_data_where_the_server_knows_no_other_way() {
    const CAN_WRITE_ZEROES: u16 = 1 << 6;
    for (payload_max, durable) in [(1 << 25, false), (1 << 25, true), (64 << 10, true)] {
        let mut world = World::new(Wishes {
            flags: CAN_ALL & !CAN_WRITE_ZEROES,
            payload_max,
            ..Wishes::default()
        });
        let write = world.write(0, 0, 7, 400 << 10, false);
        assert!(world.is_good(0, write));
        world.server.log.clear();
        let range = 512..512 + (300 << 10);
        let zeros = world.submit(0, IoRequest::WriteZeros { range, durable });
        assert!(world.is_good(0, zeros));
        let log = std::mem::take(&mut world.server.log);
        let writes = log.matches('w').count();
        assert_eq!(log.matches('!').count(), if durable { writes } else { 0 });
        assert_eq!(log.trim_matches(['w', '!']), "");
        let bytes = world.read_now(0, 0, 400 << 10);
        let (before, rest) = bytes.split_at(512);
        let (zeros, behind) = rest.split_at(300 << 10);
        assert!(before.iter().chain(behind).all(|byte| *byte == 7));
        assert!(zeros.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_write_sends_its_part_of_whatever_its_data_is_in() {
    let bytes: Vec<u8> = (0..8192_u32).map(|at| (at / 31).to_le_bytes()[0]).collect();
    let mut world = World::new(Wishes::default());
    let mut chunk = world.pool.allocate(8192).unwrap();
    chunk.copy_from_slice(&bytes);
    let received = Payload::Received {
        chunk: Rc::new(chunk),
        offset: 1024,
        len: 4096,
    };
    for (data, expected) in [
        (Payload::Heap(bytes.clone()), &bytes[..]),
        (received, &bytes[1024..5120]),
    ] {
        let request = IoRequest::Write {
            offset: 512,
            data,
            durable: false,
        };
        let write = world.submit(0, request);
        assert!(world.is_good(0, write));
        assert_eq!(world.read_now(0, 512, expected.len()), expected);
    }
}
