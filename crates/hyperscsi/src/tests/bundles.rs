//! Several PDUs in a frame: how many frames that saves, what becomes of one that is lost or too long for the path, and
//! what a peer may write there.

use std::time::Duration;

use crate::client::{ClientEvent, ClientSession};
use crate::command::{Attribute, Command, Outcome, Reply};
use crate::frame::FragmentHeader;
use crate::keys::{CLEAR_BYTES, Keys, Sealer, Side, TAG_BYTES};
use crate::limits::KEEP_ALIVE;
use crate::link::{Settings, Terms};
use crate::path::Profile;
use crate::pdu::{Header, Level, Opcode};
use crate::target::{TargetEvent, TargetSession};
use crate::testing::{disk, terms};

const DEVICE: u16 = 3;
const SESSION: u32 = 77;
const TURN: Duration = Duration::from_micros(100);

/// Two ends that work in turns: all frames of one arrive before the other does anything.
struct Pair {
    now: Duration,
    client: ClientSession<Vec<u8>>,
    target: TargetSession<Vec<u8>>,
    /// Frames of the client and of the target, and commands that ended.
    frames: [u64; 2],
    done: u64,
    given: u64,
    /// Longer frames are lost.
    path_bytes: usize,
    is_write: Option<bool>,
    /// Of each command.
    data_bytes: u32,
    next_token: u64,
}

fn keys() -> Keys {
    Keys::new(b"two ends")
}

impl Pair {
    fn new(level: Level, bundles: bool, frame_bytes_max: u16) -> Self {
        let settings = Settings {
            frame_bytes_max,
            // What is ready at once fits the first window.
            profile: Profile {
                first_frames: 32,
                ..Profile::WIRED
            },
            ..Settings::default()
        };
        let terms = Terms {
            session: SESSION,
            bundles,
            ..terms(&settings)
        };
        let device = disk(DEVICE, level);
        let now = Duration::ZERO;
        let mut pair = Self {
            now,
            client: ClientSession::new(now, &keys(), terms, settings),
            target: TargetSession::new(now, &keys(), terms, settings, vec![device]),
            frames: [0; 2],
            done: 0,
            given: 0,
            path_bytes: usize::MAX,
            is_write: None,
            data_bytes: 4096,
            next_token: 1,
        };
        pair.client.open(now, DEVICE, level);
        (0..10).for_each(|_| pair.turn());
        pair
    }

    fn ask(&mut self, is_write: bool) {
        let (read, written) = if is_write {
            (0, self.data_bytes)
        } else {
            (self.data_bytes, 0)
        };
        let command = Command {
            attribute: Attribute::Simple,
            cdb: vec![0; 10],
            data_in_bytes: read,
            data_out_bytes: written,
        };
        let data = vec![0xdd; usize::try_from(written).unwrap()];
        self.client
            .submit(self.now, self.next_token, DEVICE, command, data)
            .unwrap();
        self.next_token += 1;
    }

    fn sent_by_client(&mut self) -> Vec<Vec<u8>> {
        let mut room = vec![0; 9000];
        std::iter::from_fn(|| {
            let length = self.client.poll_frame(self.now, &mut room)?;
            Some(room[..length].to_vec())
        })
        .collect()
    }

    fn sent_by_target(&mut self) -> Vec<Vec<u8>> {
        let mut room = vec![0; 9000];
        std::iter::from_fn(|| {
            let length = self.target.poll_frame(self.now, &mut room)?;
            Some(room[..length].to_vec())
        })
        .collect()
    }

    fn work(&mut self) {
        while let Some(event) = self.target.poll_event() {
            if let TargetEvent::Command {
                id, command, data, ..
            } = event
            {
                assert!(data.iter().all(|&byte| byte == 0xdd));
                self.given += 1;
                let read = vec![0xee; usize::try_from(command.data_in_bytes).unwrap()];
                self.target
                    .respond(self.now, id, Reply::of(Outcome::Status(0)), read);
            }
        }
    }

    fn turn(&mut self) {
        for frame in self.sent_by_client() {
            self.frames[0] += 1;
            if frame.len() <= self.path_bytes {
                self.target.handle_frame(self.now, &frame);
            }
        }
        self.work();
        for frame in self.sent_by_target() {
            self.frames[1] += 1;
            if frame.len() <= self.path_bytes {
                self.client.handle_frame(self.now, &frame);
            }
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Answer { data, .. } => {
                    assert!(data.iter().all(|&byte| byte == 0xee));
                    self.done += 1;
                    if let Some(is_write) = self.is_write {
                        self.ask(is_write);
                    }
                }
                ClientEvent::Opening { .. } => {}
                ClientEvent::Devices(_) | ClientEvent::Lost { .. } | ClientEvent::Ended(_) => {
                    panic!("{event:?}")
                }
            }
        }
        self.now += TURN;
        self.client.handle_deadline(self.now);
        self.target.handle_deadline(self.now);
    }

    /// 32 commands under way, for so many turns.
    fn run(&mut self, is_write: bool, turns: u32) {
        self.is_write = Some(is_write);
        (0..32).for_each(|_| self.ask(is_write));
        (0..turns).for_each(|_| self.turn());
    }

    /// Frames of the client and of the target for 1000 commands.
    fn frames_per_thousand(&mut self, is_write: bool) -> [u64; 2] {
        self.run(is_write, 20);
        let (frames, done) = (self.frames, self.done);
        (0..100).for_each(|_| self.turn());
        let done = self.done - done;
        assert_eq!(done, 3200, "the window holds nothing up");
        [0, 1].map(|end| ((self.frames[end] - frames[end]) * 1000).div_ceil(done))
    }

    /// Until all commands have ended.
    fn finish(&mut self, turns: u32) {
        self.is_write = None;
        let asked = self.next_token - 1;
        for _ in 0..turns {
            if self.done == asked {
                break;
            }
            self.turn();
        }
        assert_eq!((self.done, self.given), (asked, asked));
    }
}

/// The PDUs in a frame that is not sealed, as docs/internals/hyperscsi.md says: a reader of its own.
fn pdus_in(frame: &[u8]) -> Vec<Header> {
    let (mut at, mut pdus) = (0, Vec::new());
    while let Some(head) = frame[at..].first_chunk::<3>() {
        let head = FragmentHeader::decode(*head);
        if head.tag == 0 || head.is_sealed {
            break;
        }
        assert!(head.is_last && head.fragment == 0, "{head:?}");
        let header = Header::decode(&frame[at + 3..]).unwrap();
        at += 3 + header.whole_bytes(false);
        pdus.push(header);
    }
    pdus
}

/// 4 KiB at depth 32, in turns: frames of the end that sends data and of the other one, for 1000 commands, at 1500 and
/// at 9000 bytes. The last 32 of each number are acknowledgements, one for each turn, which take no frame of their own
/// where there is room for them behind what is small.
#[test]
fn bundles_carry_small_commands_in_a_fraction_of_the_frames() {
    let count = |level, bundles, frame_bytes, is_write| {
        let mut frames = Pair::new(level, bundles, frame_bytes).frames_per_thousand(is_write);
        if !is_write {
            frames.reverse();
        }
        frames
    };
    for level in [Level::None, Level::Crc, Level::Encrypt] {
        for is_write in [false, true] {
            let single = [1500, 9000].map(|bytes| count(level, false, bytes, is_write));
            assert_eq!(single, [[3032, 1032], [1032, 1032]], "{level:?}");
            let joined = [1500, 9000].map(|bytes| count(level, true, bytes, is_write));
            assert_eq!(joined, [[3032, 63], [500, 32]], "{level:?}");
        }
    }
}

/// Requests that are ready together leave together, laid out as the page says; the acknowledgement is behind them.
#[test]
fn what_is_ready_at_once_leaves_in_one_frame() {
    let mut pair = Pair::new(Level::Crc, true, 9000);
    pair.ask(false);
    let alone = pair.sent_by_client();
    assert_eq!(alone.len(), 1, "nothing waits for company");
    assert_eq!(pdus_in(&alone[0]).len(), 1);
    pair.target.handle_frame(pair.now, &alone[0]);
    pair.work();
    for frame in pair.sent_by_target() {
        pair.client.handle_frame(pair.now, &frame);
    }
    pair.now += TURN * 20;
    (0..20).for_each(|_| pair.ask(false));
    let together = pair.sent_by_client();
    assert_eq!(together.len(), 1);
    let pdus = pdus_in(&together[0]);
    assert_eq!(pdus.len(), 20);
    let length: usize = pdus.iter().map(|pdu| 3 + pdu.whole_bytes(false)).sum();
    let seal = FragmentHeader::decode(*together[0][length..].first_chunk().unwrap());
    assert!(
        seal.is_sealed && seal.tag == 1,
        "the acknowledgement: {seal:?}"
    );
    assert_eq!(together[0][length + 3..][..2], [0x20, 0x21]);
    assert_eq!(pair.client.counters().joined, 20);
    pair.target.handle_frame(pair.now, &together[0]);
    pair.work();
    assert_eq!(pair.given, 21);
    let replies = pair.sent_by_target();
    let counts: Vec<_> = replies.iter().map(|frame| pdus_in(frame).len()).collect();
    assert_eq!(counts, [2; 10], "two of 4 KiB in a frame of 9000");
    assert!(replies.iter().all(|frame| frame.len() <= 9000));
}

/// An acknowledgement of one or two commands, in a frame of its own, is no longer than Ethernet wants it.
#[test]
fn an_acknowledgement_alone_fits_the_shortest_frame() {
    for (bundles, count, length) in [(true, 1, 46), (true, 2, 46), (true, 3, 51), (false, 1, 73)] {
        let mut pair = Pair::new(Level::Crc, bundles, 1500);
        pair.now += TURN * 20;
        let _owed_before = (pair.sent_by_client(), pair.sent_by_target());
        (0..count).for_each(|_| pair.ask(true));
        for frame in pair.sent_by_client() {
            pair.target.handle_frame(pair.now, &frame);
        }
        pair.now += Duration::from_millis(1);
        let lengths: Vec<_> = pair.sent_by_target().iter().map(Vec::len).collect();
        assert_eq!(lengths.last(), Some(&length), "{bundles} {count}");
        for frame in pair.sent_by_target() {
            pair.client.handle_frame(pair.now, &frame);
        }
        pair.turn();
        assert_eq!(pair.client.counters().retransmitted, 0);
    }
}

/// A peer that did not agree on short acknowledgements gets none, and takes none.
#[test]
fn a_short_acknowledgement_means_nothing_without_agreement() {
    for bundles in [false, true] {
        let mut pair = Pair::new(Level::Encrypt, bundles, 1500);
        let (mut sealer, _): (Sealer, _) = keys().sending(Side::Client, SESSION);
        sealer.skip_to(1000);
        let head = FragmentHeader {
            is_sealed: true,
            tag: 1,
            is_last: true,
            ..FragmentHeader::default()
        };
        let [a, b, c] = head.encode();
        let mut frame = vec![0; 100];
        let length = sealer
            .seal([a, b, c, 0x20, 0x22], 0, &[&[0, 64, 0, 0]], &mut frame)
            .unwrap();
        let strange = pair.target.counters().strange;
        pair.target.handle_frame(pair.now, &frame[..length]);
        let counted = pair.target.counters().strange - strange;
        assert_eq!(counted, u64::from(!bundles));
    }
}

/// Two ends of which one has an interface that carries less than 1500 bytes.
#[test]
fn no_end_sends_more_than_both_have() {
    for is_write in [false, true] {
        let mut pair = Pair::new(Level::Crc, true, 1400);
        pair.path_bytes = 1400;
        pair.data_bytes = 5000;
        pair.run(is_write, 50);
        pair.finish(400);
        let counts = [pair.client.counters(), pair.target.counters()];
        assert_eq!(counts.map(|counts| counts.retransmitted), [0, 0]);
        assert_eq!(pair.client.frame_bytes(), 1400);
        assert_eq!(pair.target.frame_bytes(), 1400);
    }
}

/// Data that came in one frame in the clear are not copied; what was under a seal, or in several frames, is.
#[test]
fn data_stay_in_a_frame_that_is_lent_where_it_has_all_of_them_in_the_clear() {
    for (level, frame_bytes, in_frame) in [
        (Level::None, 9000, 10),
        (Level::Crc, 9000, 10),
        (Level::Hash, 9000, 10),
        (Level::Encrypt, 9000, 0),
        (Level::Crc, 1500, 0),
    ] {
        let mut pair = Pair::new(level, true, frame_bytes);
        (0..10).for_each(|_| pair.ask(true));
        let (mut came, mut stayed) = (0, 0);
        for frame in pair.sent_by_client() {
            pair.target.handle_lent_frame(pair.now, &frame);
            while let Some(event) = pair.target.poll_event() {
                let TargetEvent::Command { id, data, .. } = event else {
                    panic!("{event:?}");
                };
                assert_eq!(data.len(), 4096);
                assert!(data.within(&frame).iter().all(|&byte| byte == 0xdd));
                came += 1;
                stayed += u32::from(data.is_in_frame());
                let read = Reply::of(Outcome::Status(0));
                pair.target.respond(pair.now, id, read, Vec::new());
            }
        }
        assert_eq!((came, stayed), (10, in_frame), "{level:?} {frame_bytes}");
    }
    // The same at the other end.
    let mut pair = Pair::new(Level::Crc, true, 9000);
    (0..20).for_each(|_| pair.ask(false));
    for frame in pair.sent_by_client() {
        pair.target.handle_frame(pair.now, &frame);
    }
    pair.work();
    let mut stayed = 0;
    for frame in pair.sent_by_target() {
        pair.client.handle_lent_frame(pair.now, &frame);
        while let Some(event) = pair.client.poll_event() {
            let ClientEvent::Answer { data, .. } = event else {
                panic!("{event:?}");
            };
            assert!(data.within(&frame) == [0xee; 4096]);
            stayed += u32::from(data.is_in_frame());
        }
    }
    assert_eq!(stayed, 20);
}

/// The head of a PDU is written where that of an earlier one was: the first 64 commands at depth 32 need memory, as
/// replies are kept until they are acknowledged, and no later one does.
#[test]
fn memory_of_heads_is_used_again() {
    for is_write in [false, true] {
        let mut pair = Pair::new(Level::Crc, true, 9000);
        pair.run(is_write, 4);
        let made = |pair: &Pair| [pair.client.heads_made(), pair.target.heads_made()];
        let first = made(&pair);
        assert!(first[0] <= 32 && first[1] <= 64, "{first:?}");
        let done = pair.done;
        (0..100).for_each(|_| pair.turn());
        assert_eq!((pair.done - done, made(&pair)), (3200, first));
    }
}

/// All levels: a frame of encrypted PDUs is one seal.
#[test]
fn a_bundle_that_is_lost_is_sent_again_in_frames_that_every_path_carries() {
    for level in Level::ALL {
        let mut pair = Pair::new(level, true, 9000);
        (0..20).for_each(|_| pair.ask(true));
        let frames = pair.sent_by_client();
        assert_eq!(frames.len(), 10, "two writes of 4 KiB in each");
        for frame in &frames[1..] {
            pair.target.handle_frame(pair.now, frame);
        }
        pair.finish(200);
        assert_eq!(pair.client.counters().retransmitted, 2, "{level:?}");
        assert_eq!(pair.client.counters().spurious, 0);
        // Those of a long frame come in short ones.
        pair.data_bytes = 512;
        (0..15).for_each(|_| pair.ask(true));
        let lost = pair.sent_by_client();
        assert!(lost.len() == 1 && lost[0].len() > 8000, "{}", lost[0].len());
        let mut longest = 0;
        for _ in 0..400 {
            pair.now += TURN;
            pair.client.handle_deadline(pair.now);
            for frame in pair.sent_by_client() {
                longest = longest.max(frame.len());
                pair.target.handle_frame(pair.now, &frame);
            }
            pair.work();
            for frame in pair.sent_by_target() {
                pair.client.handle_frame(pair.now, &frame);
            }
            while let Some(event) = pair.client.poll_event() {
                assert!(matches!(event, ClientEvent::Answer { .. }), "{event:?}");
                pair.done += 1;
            }
        }
        assert_eq!(pair.done, 35, "{level:?}");
        assert!((1000..=1500).contains(&longest), "{longest}");
    }
}

/// A path that has become narrower: single commands get through, bundles do not. Frames become smaller though no
/// probe is ever sent, as there is always news.
#[test]
fn bundles_that_never_arrive_make_frames_smaller() {
    let mut pair = Pair::new(Level::Crc, true, 9000);
    pair.data_bytes = 512;
    pair.run(true, 50);
    assert_eq!(pair.client.counters().fallbacks, 0);
    assert_eq!(pair.client.counters().retransmitted, 0);
    pair.path_bytes = 1500;
    (0..600).for_each(|_| pair.turn());
    assert_eq!(pair.client.counters().fallbacks, 1);
    let (done, again) = (pair.done, pair.client.counters().retransmitted);
    (0..100).for_each(|_| pair.turn());
    assert!(pair.done >= done + 3000, "{} commands", pair.done - done);
    assert_eq!(pair.client.counters().retransmitted, again);
}

/// What was sent behind a probe may be on its way when that is answered. It counts as missing from the next one on, and
/// one answer without it is no proof that frames are too large.
#[test]
fn what_follows_a_probe_is_not_missed_by_its_answer() {
    let mut pair = Pair::new(Level::Crc, true, 9000);
    pair.data_bytes = 8000;
    let ask = |pair: &mut Pair| {
        let probe = pair.sent_by_client();
        assert_eq!(probe.len(), 1);
        assert!(probe[0].len() < 100, "{} bytes", probe[0].len());
        probe
    };
    let answer = |pair: &mut Pair, probe: &[Vec<u8>]| {
        for frame in probe {
            pair.target.handle_frame(pair.now, frame);
        }
        for frame in pair.sent_by_target() {
            pair.client.handle_frame(pair.now, &frame);
        }
    };
    pair.now += KEEP_ALIVE + TURN;
    pair.client.handle_deadline(pair.now);
    let probe = ask(&mut pair);
    pair.ask(true);
    let late = pair.sent_by_client();
    assert!(late.iter().any(|frame| frame.len() > 1500));
    answer(&mut pair, &probe);
    pair.now = pair.client.deadline().unwrap();
    pair.client.handle_deadline(pair.now);
    let probe = ask(&mut pair);
    answer(&mut pair, &probe);
    assert_eq!(pair.client.counters().fallbacks, 0);
    for frame in &late {
        pair.target.handle_frame(pair.now, frame);
    }
    (0..20).for_each(|_| pair.turn());
    assert_eq!((pair.done, pair.client.counters().fallbacks), (1, 0));
}

/// The first request of each frame of a client without bundles, without padding.
fn requests(pair: &mut Pair, count: usize) -> Vec<Vec<u8>> {
    (0..count).for_each(|_| pair.ask(false));
    let mut frames = pair.sent_by_client();
    assert_eq!(frames.len(), count);
    for frame in &mut frames {
        let header = Header::decode(&frame[3..]).unwrap();
        frame.truncate(3 + header.whole_bytes(false));
    }
    frames
}

/// Gives a target the frame that `make` makes of three good requests of a peer. Gives what the target counted, and the
/// commands that it was given.
fn given(bundles: bool, make: impl FnOnce(&[Vec<u8>]) -> Vec<u8>) -> (u64, crate::link::Counters) {
    let mut pair = Pair::new(Level::Crc, false, 9000);
    let parts = requests(&mut pair, 3);
    // The same session as its target has it, once more: what it expects is the first request of each slot.
    let mut target = Pair::new(Level::Crc, bundles, 9000).target;
    target.handle_frame(pair.now, &make(&parts));
    pair.target = target;
    pair.work();
    (pair.given, *pair.target.counters())
}

#[test]
fn hostile_bundles_are_refused_by_cause_and_what_is_before_them_counts() {
    let join = |parts: &[&[u8]]| parts.concat();
    let at_rest = given(true, |_| vec![0; 46]).1;
    let check =
        |what: &str, commands: u64, counted: [u64; 4], make: &dyn Fn(&[Vec<u8>]) -> Vec<u8>| {
            let (given, counters) = given(true, make);
            let seen = [
                counters.strange + 1 - at_rest.strange,
                counters.corrupt - at_rest.corrupt,
                counters.stale - at_rest.stale,
                counters.forged - at_rest.forged,
            ];
            assert_eq!((given, seen), (commands, counted), "{what}");
        };
    // Counted: strange, corrupt, stale, forged.
    check("three", 3, [0; 4], &|p| join(&[&p[0], &p[1], &p[2]]));
    check("padding", 1, [0; 4], &|p| join(&[&p[0], &[0; 100]]));
    check("less than a header", 1, [0; 4], &|p| {
        join(&[&p[0], &[9, 9]])
    });
    check("behind padding", 1, [0; 4], &|p| {
        join(&[&p[0], &[0; 3], &p[1]])
    });
    check("the same twice", 1, [0, 0, 1, 0], &|p| {
        join(&[&p[0], &p[0]])
    });
    check("no bytes behind a header", 1, [0, 1, 0, 0], &|p| {
        join(&[&p[0], &p[1][..3]])
    });
    check("less than a PDU", 1, [0, 1, 0, 0], &|p| {
        join(&[&p[0], &p[1][..20]])
    });
    check("a tag of no slot", 1, [1, 0, 0, 0], &|p| {
        join(&[&p[0], &[0x0f, 0xfc, 0], &p[1][3..], &p[2]])
    });
    check("a control PDU in the clear", 1, [1, 0, 0, 0], &|p| {
        join(&[&p[0], &[0, 0x0c, 0], &p[1][3..], &p[2]])
    });
    check("a seal of nobody", 1, [0, 0, 0, 1], &|p| {
        join(&[&p[0], &[0x80, 0x0c, 0, 0x20, 0x21, 0, 0, 1, 0], &[7; 60]])
    });
    for change in [1, 255] {
        // It reaches into what follows, or ends before its own end.
        check("a length that lies", 1, [0, 1, 0, 0], &|p| {
            let mut second = p[1].clone();
            second[3 + 16] = second[3 + 16].wrapping_add(change);
            join(&[&p[0], &second, &p[2]])
        });
    }
    check("a length beyond the frame", 1, [0, 1, 0, 0], &|p| {
        let mut second = p[1].clone();
        second[3 + 15] = 0xff;
        join(&[&p[0], &second, &p[2]])
    });
    check("a PDU that is wrong", 1, [0, 1, 0, 0], &|p| {
        let mut second = p[1].clone();
        *second.last_mut().unwrap() ^= 1;
        join(&[&p[0], &second, &p[2]])
    });
    check("a part of a PDU behind a whole one", 2, [0; 4], &|p| {
        // The third has no more than its first bytes here, and is not whole.
        let mut third = p[2].clone();
        third[1] &= !4;
        third.truncate(40);
        third[3 + 19..][..2].copy_from_slice(&37_u16.to_be_bytes());
        join(&[&p[0], &p[1], &third])
    });
}

/// What is behind the PDU means nothing to a peer that did not agree.
#[test]
fn a_peer_without_bundles_takes_the_first() {
    let (given, _) = given(false, |parts| parts.concat());
    assert_eq!(given, 1);
}

/// What stands behind the first PDU, made of the header and the PDU of a second one.
type Behind<'a> = &'a dyn Fn([u8; 3], &[u8]) -> Vec<u8>;

/// Under a seal: what is there comes from the peer, and is read with the same care.
#[test]
fn hostile_bundles_under_a_seal_are_refused() {
    let request = |slot: u8| {
        let mut header = Header::new(Opcode::Request, 22);
        (header.device, header.session, header.sequence) = (DEVICE, SESSION, 1);
        header.fragment_bytes = 8968;
        let body = [&[0, 0, 0, 10][..], &[0; 8], &[0; 10]].concat();
        // The tag of the slot, and the same under a seal.
        let head = [0xa0, (slot + 2) << 3 | 4, 0];
        (head, [&header.encode()[..], &body].concat())
    };
    let run = |behind: Behind<'_>| {
        let mut pair = Pair::new(Level::Encrypt, true, 9000);
        let (mut sealer, _): (Sealer, _) = keys().sending(Side::Client, SESSION);
        sealer.skip_to(1000);
        let ((head, first), (other, second)) = (request(0), request(1));
        let text = [&first[..], &behind(other, &second)].concat();
        let mut frame = vec![0; CLEAR_BYTES + 4 + text.len() + TAG_BYTES + 60];
        let [a, b, c] = head;
        let length = sealer
            .seal([a, b, c, 0x20, 0], 1, &[&text], &mut frame)
            .unwrap();
        let before = *pair.target.counters();
        pair.target.handle_frame(pair.now, &frame[..length]);
        pair.work();
        let after = pair.target.counters();
        let counted = [
            after.strange - before.strange,
            after.corrupt - before.corrupt,
            after.stale - before.stale,
        ];
        (pair.given, counted)
    };
    let number = 1_u32.to_be_bytes();
    let good = run(&|head, pdu| [&head[..], &number, pdu].concat());
    assert_eq!(good, (2, [0; 3]), "two");
    assert_eq!(run(&|_, _| Vec::new()), (1, [0; 3]), "one");
    assert_eq!(run(&|_, _| vec![0; 40]), (1, [0; 3]), "padding");
    let unsealed = run(&|[a, b, c], pdu| [&[a & 0x7f, b, c][..], &number, pdu].concat());
    assert_eq!(unsealed, (1, [1, 0, 0]), "a header without S");
    let short = run(&|head, _| head.to_vec());
    assert_eq!(short, (1, [1, 0, 0]), "no sequence number");
    let empty = run(&|head, _| [&head[..], &number].concat());
    assert_eq!(empty, (1, [0, 1, 0]), "no bytes");
    let nobody = run(&|_, pdu| [&[0x8f, 0xfc, 0][..], &number, pdu].concat());
    assert_eq!(nobody, (1, [1, 0, 0]), "a tag of no slot");
    let old = run(&|head, pdu| [&head[..], &[0; 4], pdu].concat());
    assert_eq!(old, (1, [0, 0, 1]), "a number that does not come now");
    // A sealed frame in a seal: its clear part is where the number would be.
    let nested = run(&|head, pdu| {
        let mut frame = vec![0; 400];
        let (mut sealer, _): (Sealer, _) = keys().sending(Side::Client, SESSION);
        sealer.skip_to(1001);
        let [a, b, c] = head;
        let length = sealer
            .seal([a, b, c, 0x20, 0], 1, &[pdu], &mut frame)
            .unwrap();
        frame.truncate(length);
        frame
    });
    assert_eq!(nested, (1, [0, 0, 1]), "nested");
}
