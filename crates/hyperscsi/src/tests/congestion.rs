//! What comes through links of a stated rate: exact figures, the same on every machine.

use std::time::Duration;

use super::rig::{Link, Loss, Rig, Work};
use crate::link::{Retransmit, Settings};
use crate::path::Profile;
use crate::pdu::Level;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const READ: Work = Work {
    is_write: false,
    bytes: 65536,
    depth: 8,
    level: Level::Crc,
};
const WRITE: Work = Work {
    is_write: true,
    ..READ
};

/// Frames of at most so many bytes.
fn settings(frame_bytes_max: u16) -> Settings {
    Settings {
        frame_bytes_max,
        ..Settings::default()
    }
}

/// Fast Ethernet with the queue of the rig in docs/guide/measuring.md.
fn fast_ethernet() -> Link {
    Link::of(100, 200_000)
}

/// A wire without a rate of its own, behind another.
fn no_limit() -> Link {
    Link {
        delay: Duration::from_micros(1),
        ..Link::of(100_000, 10_000_000)
    }
}

/// One target on a direct wire with this loss each way. Gives the bytes of a second, and the rig.
fn direct(link: &Link, settings: Settings, work: Work, seconds: u32) -> (u64, Rig) {
    // Of the way to the client only the first link loses frames; back there is one.
    let mut rig = Rig::new(1, (no_limit(), link.clone()), settings, work);
    let moved = rig.run(SECOND * seconds);
    (moved / u64::from(seconds), rig)
}

/// The data of each command goes one way, with one acknowledgement of what came the other way, and hardly a
/// probe: nothing else has a part of the link.
#[test]
fn fast_ethernet_is_filled() {
    for (frame_bytes_max, level, least) in [
        (1500, Level::Crc, 12_130_000),
        (9000, Level::Crc, 12_400_000),
        (1500, Level::Encrypt, 11_927_000),
    ] {
        for way in [READ, WRITE] {
            let work = Work { level, ..way };
            let mut rig = Rig::new(
                1,
                (no_limit(), fast_ethernet()),
                settings(frame_bytes_max),
                work,
            );
            rig.run(SECOND * 2);
            let (before, probes) = (rig.control_bytes(), rig.probes());
            let rate = rig.run(SECOND * 10) / 10;
            let commands = rate * 10 / u64::from(work.bytes);
            let sent = rig.control_bytes()[usize::from(work.is_write)]
                - before[usize::from(work.is_write)];
            let what = format!("{frame_bytes_max}, {work:?}, {:?}", rig.losses());
            assert!(rate >= least, "{rate} bytes/s at {what}");
            assert!(
                sent <= commands * 96,
                "{sent} bytes for {commands} commands at {what}"
            );
            let asked = rig.probes() - probes;
            assert!(asked * 10 <= commands, "{asked} probes at {what}");
        }
    }
}

#[test]
fn a_lossy_wire_is_filled_and_little_is_sent_twice() {
    for (share, least) in [(10, 11_400_000), (50, 10_500_000)] {
        for work in [READ, WRITE] {
            let link = Link {
                loss: Loss::Even(share),
                ..fast_ethernet()
            };
            let (rate, rig) = direct(&link, settings(1500), work, 10);
            assert!(
                rate >= least,
                "{rate} bytes/s with {share} lost of 1000, {work:?}"
            );
            let (losses, (again, spurious)) = (rig.losses(), rig.again());
            assert!(losses.fragments > 500, "{losses:?}");
            assert!(
                again * 10 <= losses.fragments * 13,
                "{again} again, {losses:?}"
            );
            assert!(
                spurious * 20 <= again,
                "{spurious} of {again} had not been lost"
            );
        }
    }
}

/// Window mode sends more again, and gets all through.
#[test]
fn a_lossy_wire_carries_the_window_mode_too() {
    let link = Link {
        loss: Loss::Even(10),
        ..fast_ethernet()
    };
    let settings = Settings {
        retransmit: Retransmit::Window,
        ..settings(1500)
    };
    let (rate, rig) = direct(&link, settings, READ, 5);
    assert!(rate > 9_000_000, "{rate} bytes/s");
    assert!(rig.again().0 > rig.losses().fragments, "{:?}", rig.losses());
}

#[test]
fn frames_that_overtake_others_are_hardly_sent_twice_once_that_is_known() {
    for depth in [1, 4, 16, 64] {
        let link = Link {
            overtaken: (100, depth),
            ..fast_ethernet()
        };
        let (_, mut rig) = direct(&link, settings(1500), READ, 3);
        let (before, sent) = (rig.again().0, rig.losses().sent);
        rig.run(SECOND * 5);
        let (again, sent) = (rig.again().0 - before, rig.losses().sent - sent);
        assert!(
            again * 100 <= sent,
            "{again} of {sent} again, depth {depth}"
        );
    }
}

/// Eight servers answer one client, whose port holds 64 KiB: their windows together fit it, from the first second on.
/// Whether the way to the port spreads what they send or not, whether they begin together or one after the other, and
/// though who begins later takes the queue of the others for a part of the way. Parts differ; none is starved.
#[test]
fn many_servers_to_one_client_lose_little_and_fill_its_link() {
    for (nic, apart) in [(fast_ethernet(), 20), (no_limit(), 0), (no_limit(), 20)] {
        for depth in [1, 4, 16] {
            let work = Work { depth, ..READ };
            let mut rig = Rig::new(8, (nic.clone(), small_port()), settings(1500), work);
            rig.apart = MS * apart;
            fill_port(&mut rig, &format!("depth {depth}, {apart} ms apart"));
        }
    }
}

/// The same on a machine where each end has to wait for a processor now and then.
#[test]
fn many_servers_lose_little_where_all_ends_stall() {
    let work = Work { depth: 4, ..READ };
    let mut rig = Rig::new(8, (no_limit(), small_port()), settings(1500), work);
    rig.apart = MS * 20;
    rig.stall(MS * 10, MS * 2);
    fill_port(&mut rig, "stalls");
}

/// As the rig makes it: a token bucket of 16 KiB.
fn small_port() -> Link {
    Link {
        burst_bytes: 16_384,
        ..Link::of(100, 65_536)
    }
}

/// From the beginning on, and later, when nobody begins any more.
fn fill_port(rig: &mut Rig, what: &str) {
    for (time, most) in [(MS * 3200, 10), (SECOND * 7, 5)] {
        let before = rig.losses();
        let moved = u128::from(rig.run(time));
        let losses = rig.losses();
        assert!(
            moved * 1000 >= 12_167_000 * 85 / 100 * time.as_millis(),
            "{moved} bytes in {time:?}, {what}, {losses:?}"
        );
        let (lost, sent) = (
            losses.overflowed - before.overflowed,
            losses.sent - before.sent,
        );
        assert!(
            lost * 1000 <= sent * most,
            "{lost} of {sent} lost in {time:?}, {what}"
        );
    }
    let (least, most) = (
        rig.done.iter().min().unwrap(),
        rig.done.iter().max().unwrap(),
    );
    assert!(least * 20 >= *most, "{what}: {:?}", rig.done);
}

/// Eight sessions over one gigabit link, with the queue of the rig in docs/guide/measuring.md.
#[test]
fn a_gigabit_is_filled_by_eight_sessions_though_ends_stall() {
    for (frame_bytes_max, least) in [(1500, 120_000_000), (9000, 123_000_000)] {
        for is_write in [false, true] {
            let link = Link {
                burst_bytes: 1 << 20,
                ..Link::of(1000, 2 << 20)
            };
            let work = Work {
                is_write,
                depth: 32,
                ..READ
            };
            let mut rig = Rig::new(8, (no_limit(), link), settings(frame_bytes_max), work);
            rig.stall(MS * 10, MS * 2);
            rig.run(SECOND / 2);
            let rate = rig.run(SECOND);
            assert!(
                rate >= least,
                "{rate} bytes/s at {frame_bytes_max}, {work:?}, {:?}",
                rig.losses()
            );
        }
    }
}

/// Each acknowledgement costs both ends a frame, so of a window of some size no small parts are asked for. Of a small
/// one they are: several senders to one port would send in bursts.
#[test]
fn an_acknowledgement_is_asked_for_on_each_eighth_frame_or_each_quarter_of_the_window() {
    for (window, asks) in [
        (8, vec![4, 6, 8]),
        (14, vec![7, 10, 13]),
        (20, vec![8, 16]),
        (40, vec![10, 20, 30, 40]),
    ] {
        let mut settings = settings(1500);
        settings.profile.first_frames = window;
        let work = Work { depth: 0, ..WRITE };
        let mut rig = Rig::new(1, (no_limit(), no_limit()), settings, work);
        rig.run(MS * 100);
        let frames = rig.burst();
        let asked: Vec<usize> = (1..)
            .zip(&frames)
            .filter(|(_, asks)| **asks)
            .map(|(at, _)| at)
            .collect();
        assert_eq!((frames.len(), asked), (window as usize, asks));
    }
}

/// A queue that is as long as the kernel's is not filled: the delay that it makes slows the sender.
#[test]
fn queues_stay_short_without_a_loss() {
    let (_, mut rig) = direct(&fast_ethernet(), settings(1500), READ, 2);
    let before = rig.losses();
    rig.run(SECOND * 5);
    let losses = rig.losses();
    assert_eq!(losses.overflowed, before.overflowed, "{losses:?}");
}

#[test]
fn foreign_frames_leave_storage_the_rest_and_get_their_part() {
    for percent in [10, 50, 90] {
        let mut rig = Rig::new(
            1,
            (fast_ethernet(), Link::of(100, 200_000)),
            settings(1500),
            READ,
        );
        rig.run(SECOND);
        rig.mix(percent);
        rig.run(SECOND);
        let (foreign, mut moved) = (rig.foreign_bytes, 0);
        for _ in 0..20 {
            let some = rig.run(MS * 500);
            assert!(some > 0, "storage stands still beside {percent} %");
            moved += some;
        }
        let foreign = rig.foreign_bytes - foreign;
        // What a frame of each kind carries of what it takes.
        let on_wire = moved * 1538 / 1497 + foreign * 536 / 498;
        assert!(
            on_wire >= 125_000_000 * 95 / 100,
            "{on_wire} of 125000000 bytes, {percent} %: {moved} {foreign}"
        );
    }
}

/// 5 ms give or take 4, 2 % lost in bursts, 30 Mbit.
fn radio() -> Link {
    Link {
        delay: MS,
        spread: MS * 8,
        loss: Loss::Bursts(51),
        ..Link::of(30, 200_000)
    }
}

fn wireless() -> Settings {
    Settings {
        profile: Profile::WIRELESS,
        ..settings(1500)
    }
}

#[test]
fn radio_is_filled_to_seven_tenths_over_loss_in_bursts_and_survives_a_gap() {
    for work in [READ, WRITE] {
        let mut rig = Rig::new(1, (no_limit(), radio()), wireless(), work);
        rig.run(SECOND);
        let rate = rig.run(SECOND * 20) / 20;
        assert!(
            rate >= 3_750_000 * 7 / 10,
            "{rate} bytes/s, {:?}, {:?}",
            rig.losses(),
            rig.again()
        );
        rig.dark = Some((rig.now, rig.now + SECOND * 3));
        rig.run(SECOND * 4);
        let after = rig.run(SECOND * 10) / 10;
        assert!(after >= 3_750_000 * 6 / 10, "{after} bytes/s after the gap");
    }
}

/// Where the wire behind the air has the rate, as in `bench/hyperscsi.py`: what a target sends at once is spread first,
/// and waits then.
#[test]
fn a_wire_behind_radio_is_filled() {
    let air = Link {
        bits_per_second: 100_000_000_000,
        queue_bytes: 10_000_000,
        ..radio()
    };
    for work in [READ, WRITE] {
        let mut rig = Rig::new(1, (air.clone(), Link::of(30, 140_000)), wireless(), work);
        rig.set_up(radio());
        rig.run(SECOND);
        let rate = rig.run(SECOND * 10) / 10;
        let share = rate * 100 / 3_750_000;
        assert!(
            share >= 90,
            "{share} %, {:?}, {:?}",
            rig.losses(),
            rig.again()
        );
    }
}

/// Acknowledgements pass each other as frames do. What one says counts also where a newer one has come before it, which
/// says nothing of the same frames: they would be sent again.
#[test]
fn acknowledgements_that_are_overtaken_are_heeded() {
    let link = Link {
        loss: Loss::None,
        ..radio()
    };
    for work in [READ, WRITE] {
        let mut rig = Rig::new(1, (no_limit(), link.clone()), wireless(), work);
        rig.run(SECOND);
        let (before, sent) = (rig.again().0, rig.losses().sent);
        rig.run(SECOND * 10);
        let (again, sent) = (rig.again().0 - before, rig.losses().sent - sent);
        assert!(again * 500 <= sent, "{again} of {sent} again, {work:?}");
    }
}

/// Nothing is lost, and no session ends: the rig fails where one does.
#[test]
fn a_client_of_radio_goes_on_after_a_minute_of_sleep() {
    let mut rig = Rig::new(1, (no_limit(), radio()), wireless(), READ);
    rig.run(SECOND);
    rig.asleep = Some((rig.now, rig.now + SECOND * 60));
    rig.run(SECOND * 65);
    let rate = rig.run(SECOND * 5) / 5;
    assert!(rate > 1_000_000, "{rate} bytes/s");
    // Idle before it slept, so that the last sign of it is older.
    let idle = Work { depth: 0, ..READ };
    let mut rig = Rig::new(1, (no_limit(), radio()), wireless(), idle);
    rig.run(SECOND * 8);
    rig.asleep = Some((rig.now, rig.now + SECOND * 60));
    rig.run(SECOND * 70);
    assert_eq!(rig.clients[0].terms().profile, Profile::WIRELESS);
}
