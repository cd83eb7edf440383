use ::hyperscsi::{ClientEvent, ClientSession, Level, Settings};
use memory::{CoreMapping, MappedRange, Mapping};

use super::*;
use scsi::reservation::canonical_transport_id;

#[test]
fn a_client_is_no_client_of_nbd_whatever_number_it_takes() {
    let address = "::ffff:192.0.2.7".parse().unwrap();
    let nbd = crate::nbd::transport_id(address);
    let number = nbd[8..].first_chunk().unwrap();
    let own = transport_id(number);
    let head = [0x0f, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(own[..], [&head[..], number].concat());
    assert_ne!(own, nbd);
    assert_eq!(canonical_transport_id(&own), Some(own));
}

#[test]
fn a_reply_has_no_more_data_than_there_is_room_for() {
    let pool = Pool::new(0).unwrap();
    let buffer = || {
        let mut buffer = pool.allocate(4096).unwrap();
        buffer.fill(7);
        Payload::Pool(buffer)
    };
    let (stock, copied) = (Rc::default(), Rc::default());
    let bytes = |payload, room| {
        let data = ReplyData::new(payload, room, (&stock, &copied)).unwrap();
        data.as_ref().to_vec()
    };
    assert_eq!(bytes(buffer(), 4096), [7; 4096]);
    assert_eq!(bytes(buffer(), 5), [7; 5]);
    assert_eq!(bytes(Payload::Heap(vec![1, 2, 3]), 2), [1, 2]);
    assert_eq!(bytes(Payload::Empty, 2), [0_u8; 0]);
    let mapping = CoreMapping::new(&Arc::new(Mapping::sparse(1 << 20).unwrap()));
    mapping.copy_in(0, b"medium");
    // Memory of the longer one is used again for the shorter one, and for a longer one still.
    for room in [4, 3, 6] {
        let range = Payload::Mapped(MappedRange::new(&mapping, 0, 6));
        assert_eq!(bytes(range, room), b"medium"[..room]);
    }
    assert_eq!(copied.get(), 0, "all of it is given back");
}

/// A session whose client has begun so many reads of 1 MiB.
fn session(reads: u64) -> (Duration, ClientSession<Vec<u8>>, SessionPort) {
    let now = Duration::from_secs(1);
    let settings = Settings {
        begun_bytes: 2 << 20,
        ..Settings::default()
    };
    let device = ::hyperscsi::testing::disk(1, Level::Crc);
    let ends = ::hyperscsi::testing::session(now, settings, 65, vec![device]);
    let (mut client, target) = ends;
    let detail = Detail {
        id: SessionId(1),
        group: "ABC".into(),
        client: [1; 16],
        name: "client".to_owned(),
        station: Station::Link([2; 6]),
        place: PlaceKey::NONE,
        since: SystemTime::UNIX_EPOCH,
        luns: Vec::new(),
        shares: Shares::alone(),
    };
    let mut port = SessionPort::new(detail, target, 64, Rc::default());
    client.open(now, 1, Level::Crc);
    exchange(now, &mut client, &mut port);
    for token in 0..reads {
        let command = Asked {
            attribute: Attribute::Simple,
            cdb: vec![0x28; 10],
            data_in_bytes: 1 << 20,
            data_out_bytes: 0,
        };
        client.submit(now, token, 1, command, Vec::new()).unwrap();
    }
    (now, client, port)
}

/// All frames of both ends, until there are no more.
fn exchange(now: Duration, client: &mut ClientSession<Vec<u8>>, port: &mut SessionPort) {
    let mut room = vec![0; 9000];
    for _ in 0..10_000 {
        let mut is_over = true;
        while let Some(length) = client.poll_frame(now, &mut room) {
            port.session.handle_frame(now, &room[..length]);
            is_over = false;
        }
        while let Some(length) = port.session.poll_frame(now, &mut room) {
            client.handle_frame(now, &room[..length]);
            is_over = false;
        }
        if is_over {
            return;
        }
    }
    panic!("there is no end to it");
}

/// Gives all commands that may be given, without answers.
fn give(now: Duration, port: &mut SessionPort) -> Vec<CommandId> {
    let pool = Pool::new(0).unwrap();
    let taken = std::iter::from_fn(|| {
        let Taken::Command(id, _) = port.take(&pool, now, &[])? else {
            panic!("no command");
        };
        Some(id)
    });
    taken.collect()
}

fn answer(port: &mut SessionPort, id: CommandId, mapping: &Rc<CoreMapping>) {
    port.respond(
        id,
        Response {
            status: Status::Good,
            sense: &[],
            data: Payload::Mapped(MappedRange::new(mapping, 0, 1 << 20)),
            transfer_length: 1 << 20,
        },
    );
}

#[test]
fn a_client_that_takes_no_replies_gets_a_few_and_those_that_wait_when_it_does() {
    let (now, mut client, mut port) = session(60);
    let mapping = CoreMapping::new(&Arc::new(Mapping::sparse(1 << 20).unwrap()));
    let mut room = vec![0; 9000];
    while let Some(length) = client.poll_frame(now, &mut room) {
        port.session.handle_frame(now, &room[..length]);
    }
    // As a store in memory answers: at once.
    let pool = Pool::new(0).unwrap();
    let answer_all = |port: &mut SessionPort| {
        let mut count = 0;
        while let Some(taken) = port.take(&pool, now, &[]) {
            let Taken::Command(id, _) = taken else {
                panic!("{taken:?}");
            };
            answer(port, id, &mapping);
            count += 1;
        }
        port.settle(now);
        count
    };
    assert_eq!(answer_all(&mut port), 5);
    assert_eq!(answer_all(&mut port), 0);
    assert!(!port.is_shut, "what waits has no data");
    let mut done = 5;
    while done < 60 {
        exchange(now, &mut client, &mut port);
        let more = answer_all(&mut port);
        assert!(more > 0, "no more than {done} are given");
        done += more;
    }
    exchange(now, &mut client, &mut port);
    assert_eq!(port.copied.get(), 0);
    let good = std::iter::from_fn(|| client.poll_event());
    let good = good
        .filter(|event| matches!(event, ClientEvent::Answer { data, .. } if data.len() == 1 << 20));
    assert_eq!(good.count(), 60);
}

#[test]
fn of_many_replies_at_once_some_are_busy() {
    let (now, mut client, mut port) = session(60);
    let mapping = CoreMapping::new(&Arc::new(Mapping::sparse(1 << 20).unwrap()));
    exchange(now, &mut client, &mut port);
    // As they come when what they waited for is over.
    let given = give(now, &mut port);
    assert_eq!(given.len(), 60);
    for id in given {
        answer(&mut port, id, &mapping);
    }
    assert_eq!(port.copied.get(), COPIED_FULL);
    port.settle(now);
    exchange(now, &mut client, &mut port);
    assert_eq!(port.copied.get(), 0);
    let mut counts = [0; 2];
    while let Some(event) = client.poll_event() {
        if let ClientEvent::Answer { reply, .. } = event {
            let is_busy = reply.outcome == Outcome::Status(Status::Busy as u8);
            counts[usize::from(is_busy)] += 1;
        }
    }
    assert_eq!(counts, [16, 44]);
}

#[test]
fn data_beyond_what_may_wait_are_refused_but_for_the_first_command() {
    let (now, mut client, mut port) = session(0);
    port.set_limit(0);
    for token in 0..4 {
        let command = Asked {
            attribute: Attribute::Simple,
            cdb: vec![0x2a; 10],
            data_in_bytes: 0,
            data_out_bytes: 1 << 20,
        };
        let data = vec![7; 1 << 20];
        client.submit(now, token, 1, command, data).unwrap();
    }
    let pool = Pool::new(0).unwrap();
    for _ in 0..4 {
        exchange(now, &mut client, &mut port);
        assert!(port.take(&pool, now, &[]).is_none());
    }
    assert_eq!(port.waiting_bytes, WAITING_BYTES_MAX);
    port.settle(now);
    assert!(port.is_shut);
    exchange(now, &mut client, &mut port);
    let answers = std::iter::from_fn(|| client.poll_event());
    let outcomes = answers.filter_map(|event| {
        let ClientEvent::Answer { token, reply, .. } = event else {
            return None;
        };
        Some((token, reply.outcome))
    });
    let full = Outcome::Status(Status::TaskSetFull as u8);
    assert_eq!(outcomes.collect::<Vec<_>>(), [(2, full), (3, full)]);
    // With one of them given there is room for one more.
    port.set_limit(1);
    assert_eq!(give(now, &mut port).len(), 1);
    assert_eq!(port.waiting_bytes, WAITING_BYTES_MAX / 2);
}

#[test]
fn a_long_cdb_is_kept_whole() {
    let cdb: Vec<u8> = (0..32).collect();
    for (attribute, expected) in [
        (Attribute::Simple, TaskAttribute::Simple),
        (Attribute::Ordered, TaskAttribute::Ordered),
        (Attribute::HeadOfQueue, TaskAttribute::HeadOfQueue),
    ] {
        let asked = Asked {
            attribute,
            cdb: cdb.clone(),
            data_in_bytes: 5,
            data_out_bytes: 6,
        };
        let command = command_of(300, &asked);
        assert_eq!([&command.cdb[..], &command.extended_cdb].concat(), cdb);
        assert_eq!(command.attribute, Some(expected));
        assert_eq!((command.data_in_length, command.data_out_length), (5, 6));
        assert_eq!(Lun::decode(command.lun).unwrap().number(), 300);
    }
}
