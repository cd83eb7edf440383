//! Data: reads, writes, comparisons, crashes.

use super::*;

#[test]
fn a_finished_write_is_all_that_a_later_read_gives() {
    let mut world = World::new();
    let tag = world.begin_with(A, (&write(0, 2, false), &[5; 2 * BLOCK]));
    assert_eq!(world.readable(), [0, 5]);
    world.good(tag).unwrap();
    assert_eq!(world.readable(), [5]);
    world.get(B, 0, &[5, 5, 0]).unwrap();
    assert!(matches!(
        world.get(B, 1, &[0]),
        Err(Breach::Data { lba: 1, .. })
    ));
}

#[test]
fn of_two_writes_at_once_either_stays_and_a_read_says_which() {
    let mut world = World::new();
    let first = world.begin_with(A, (&write(0, 1, false), &[5; BLOCK]));
    let second = world.begin_with(B, (&write(0, 1, false), &[6; BLOCK]));
    world.good(first).unwrap();
    world.good(second).unwrap();
    assert_eq!(world.readable(), [5, 6]);
    world.get(A, 0, &[6]).unwrap();
    assert_eq!(world.readable(), [6]);
}

#[test]
fn a_read_may_give_what_was_written_while_it_was_under_way() {
    let mut world = World::new();
    let reader = world.begin(A, &read(0, 1));
    world.put(B, 0, 5);
    world.got(reader, &[5]).unwrap();
    let reader = world.begin(A, &read(0, 1));
    assert!(world.got(reader, &[0]).is_err());
}

#[test]
fn a_lost_write_may_take_effect_until_it_is_gone() {
    let mut world = World::new();
    let lost = world.begin_with(A, (&write(0, 1, false), &[5; BLOCK]));
    world.get(B, 0, &[0]).unwrap();
    world.get(B, 0, &[5]).unwrap();
    world.unit.gone(lost).unwrap();
    world.put(B, 0, 6);
    assert_eq!(world.readable(), [6]);
}

#[test]
fn after_a_lost_write_is_gone_its_block_does_not_change_any_more() {
    let mut world = World::new();
    let lost = world.begin_with(A, (&write(0, 1, false), &[5; BLOCK]));
    world.unit.gone(lost).unwrap();
    assert_eq!(world.readable(), [0, 5]);
    world.get(B, 0, &[0]).unwrap();
    assert!(world.get(B, 0, &[5]).is_err());
}

#[test]
fn a_refused_write_is_never_seen() {
    for (status, key) in [(0x18, 0), (0x08, 0), (2, 7)] {
        let mut world = World::new();
        if status == 0x18 {
            world.run(B, &RESERVE, GOOD).unwrap();
        }
        if key == 7 {
            world
                .event(Event::View(
                    A,
                    View {
                        read_only: true,
                        ..View::default()
                    },
                ))
                .unwrap();
        }
        let tag = world.begin_with(A, (&write(0, 1, false), &[5; BLOCK]));
        let sense = if key == 7 { sense(7, 0x2700) } else { [0; 18] };
        world
            .unit
            .end(
                tag,
                Outcome {
                    status,
                    sense: &sense,
                    data_in: &[],
                },
            )
            .unwrap();
        world.get(B, 0, &[0]).unwrap();
        assert!(world.get(B, 0, &[5]).is_err());
    }
}

#[test]
fn torn_and_short_data_is_wrong() {
    let mut world = World::new();
    world.put(A, 0, 5);
    let mut torn = [5; BLOCK];
    torn[9..].fill(0);
    let tag = world.begin(A, &read(0, 1));
    let outcome = Outcome {
        data_in: &torn,
        ..GOOD
    };
    assert!(matches!(
        world.unit.end(tag, outcome),
        Err(Breach::Data { lba: 0, .. })
    ));
    let mut world = World::new();
    let tag = world.begin(A, &read(0, 2));
    assert!(matches!(
        world.got(tag, &[0]),
        Err(Breach::Length {
            got: 16,
            wanted: 32,
            ..
        })
    ));
}

#[test]
fn a_crash_brings_back_what_was_not_durable_and_nothing_older() {
    let mut world = World::new();
    world.put(A, 0, 5);
    world.put(A, 0, 6);
    world.run(B, &FLUSH, GOOD).unwrap();
    world.put(A, 0, 7);
    assert_eq!(world.readable(), [7]);
    restart(&mut world);
    assert_eq!(world.readable(), [6, 7]);
    let tag = world.begin_with(A, (&write(0, 1, true), &[8; BLOCK]));
    world.good(tag).unwrap();
    restart(&mut world);
    assert_eq!(world.readable(), [8]);
}

fn restart(world: &mut World) {
    world.unit.restart().unwrap();
    world.unit.nexus_begins(A, &port(A), View::default());
    world.unit.nexus_begins(B, &port(B), View::default());
    world.attention(A, 0x2900).unwrap();
    world.attention(B, 0x2900).unwrap();
}

#[test]
fn without_a_write_cache_every_write_is_durable() {
    let mut world = World::new();
    let (cdb, list) = cache(false);
    let tag = world.begin_with(A, (&cdb, &list));
    world.good(tag).unwrap();
    world.put(A, 0, 5);
    restart(&mut world);
    assert_eq!(world.readable(), [5]);
}

#[test]
fn a_flush_does_not_cover_what_ended_after_it_was_sent() {
    let mut world = World::new();
    let writer = world.begin_with(A, (&write(0, 1, false), &[5; BLOCK]));
    let flush = world.begin(A, &FLUSH);
    world.good(writer).unwrap();
    world.good(flush).unwrap();
    restart(&mut world);
    assert_eq!(world.readable(), [0, 5]);
}

#[test]
fn what_goes_with_the_cache_may_come_back_and_each_nexus_may_be_told_once() {
    let mut world = World::new();
    world.put(A, 0, 5);
    world.unit.cache_lost();
    assert_eq!(world.readable(), [0, 5]);
    let flush = world.begin(A, &FLUSH);
    world.check(flush, 4, 0x0c00).unwrap();
    let flush = world.begin(A, &FLUSH);
    assert!(world.check(flush, 4, 0x0c00).is_err());
}

#[test]
fn a_store_fails_only_where_it_may() {
    for may in [true, false] {
        let mut world = World::new();
        world.unit.store_may_fail(may);
        let tag = world.begin_with(A, (&write(0, 1, false), &[5; BLOCK]));
        assert_eq!(world.check(tag, 3, 0x0c00).is_ok(), may);
    }
}

#[test]
fn compare_and_write_writes_if_all_is_equal_and_only_then() {
    let compare = |world: &mut World, old: u8, new: u8| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x89, 1);
        world.begin_with(A, (&cdb, &[[old; BLOCK], [new; BLOCK]].concat()))
    };
    let mut world = World::new();
    let tag = compare(&mut world, 0, 5);
    world.good(tag).unwrap();
    assert_eq!(world.readable(), [5]);
    let tag = compare(&mut world, 0, 6);
    world.check(tag, 0xe, 0x1d00).unwrap();
    assert_eq!(world.readable(), [5]);
    let tag = compare(&mut world, 0, 6);
    assert!(world.good(tag).is_err());
    let mut world = World::new();
    let tag = compare(&mut world, 0, 6);
    assert!(world.check(tag, 0xe, 0x1d00).is_err());
}

#[test]
fn or_write_adds_bits() {
    let mut world = World::new();
    world.put(A, 0, 5);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x8b, 1);
    let tag = world.begin_with(A, (&cdb, &[2; BLOCK]));
    world.good(tag).unwrap();
    assert_eq!(world.readable(), [7]);
}

#[test]
fn write_same_fills_to_the_end_and_unmapped_blocks_have_old_data_or_zeros() {
    let mut world = World::new();
    let tag = world.begin_with(A, (&[0x41, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[3; BLOCK]));
    world.good(tag).unwrap();
    world.get(B, 62, &[3, 3]).unwrap();
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    let tag = world.begin_with(A, (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list));
    world.good(tag).unwrap();
    assert_eq!(world.readable(), [0, 3]);
    world.get(B, 0, &[0]).unwrap();
    assert_eq!(world.readable(), [0]);
}

#[test]
fn the_medium_ends_where_it_ends() {
    for (lba, blocks, is_inside) in [
        (63, 1, true),
        (63, 2, false),
        (64, 0, false),
        (200, 1, false),
    ] {
        let mut world = World::new();
        let tag = world.begin(A, &read(lba, blocks));
        assert_eq!(world.check(tag, 5, 0x2100).is_ok(), !is_inside);
        let mut world = World::new();
        let tag = world.begin(A, &read(lba, blocks));
        assert_eq!(
            world.got(tag, &vec![0; usize::from(blocks)]).is_ok(),
            is_inside
        );
    }
}

#[test]
fn a_bit_that_a_command_does_not_define_may_be_refused_and_no_other() {
    for (odd, may) in [(0x01, true), (0x08, false), (0x20, true)] {
        let mut world = World::new();
        let mut cdb = read(0, 1);
        cdb[1] = odd;
        let tag = world.begin(A, &cdb);
        assert_eq!(world.check(tag, 5, 0x2400).is_ok(), may);
    }
}

#[test]
fn at_the_end_the_medium_holds_what_was_written() {
    let mut world = World::new();
    world.put(A, 1, 5);
    let mut content = vec![0; 64 * BLOCK];
    assert_eq!(
        world.unit.check_medium(&content),
        Err(Breach::Data { tag: None, lba: 1 })
    );
    content[BLOCK..2 * BLOCK].fill(5);
    world.unit.check_medium(&content).unwrap();
    let tag = world.begin(A, &TEST_UNIT_READY);
    assert_eq!(
        world.unit.check_medium(&content),
        Err(Breach::UnderWay(tag))
    );
}

#[test]
fn a_read_that_is_cut_short_says_nothing_of_the_rest() {
    let mut world = World::new();
    let lost = world.begin_with(A, (&write(0, 2, false), &[5; 2 * BLOCK]));
    world.unit.gone(lost).unwrap();
    let tag = world.next();
    world.unit.begin(tag, A, &read(0, 2), &[], BLOCK);
    world.got(tag, &[5]).unwrap();
    assert_eq!(world.readable(), [5]);
    world.get(B, 1, &[0]).unwrap();
}

#[test]
fn a_unit_that_is_not_thin_has_no_unmap_bit() {
    for thin in [true, false] {
        let same = [0x41, 8, 0, 0, 0, 0, 0, 0, 1, 0];
        let mut world = World::with(Plan { thin, ..plan() });
        let tag = world.begin_with(A, (&same, &[0; BLOCK]));
        assert_eq!(world.check(tag, 5, 0x2400).is_ok(), !thin);
        let mut world = World::with(Plan { thin, ..plan() });
        let tag = world.begin_with(A, (&same, &[0; BLOCK]));
        assert_eq!(world.good(tag).is_ok(), thin);
    }
}

#[test]
fn a_medium_that_is_out_stays_out_when_power_goes() {
    // Guide, Devices: an eject outlives a restart.
    let mut world = World::new();
    world.run(A, &EJECT, GOOD).unwrap();
    restart(&mut world);
    let tag = world.begin(A, &TEST_UNIT_READY);
    world.check(tag, 2, 0x3a00).unwrap();
}

#[test]
fn what_a_lost_write_has_put_back_is_durable_after_a_flush() {
    // Zeros are there at first, then not, then perhaps again.
    let mut world = World::new();
    world.put(A, 0, 5);
    let lost = world.begin_with(B, (&write(0, 1, false), &[0; BLOCK]));
    world.unit.gone(lost).unwrap();
    world.get(A, 0, &[0]).unwrap();
    world.run(A, &FLUSH, GOOD).unwrap();
    restart(&mut world);
    world.get(A, 0, &[0]).unwrap();
}
