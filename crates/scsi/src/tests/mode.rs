use super::*;

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const WCE: u8 = 0x04;

fn mode_sense(rig: &mut Rig, at: At, control: u8, page: u8, subpage: u8) -> Vec<u8> {
    data(rig.run(at, &[0x1a, 0, control << 6 | page, subpage, 255, 0], &[]))
}

/// MODE SELECT (6) of one page, without block descriptor.
fn select(rig: &mut Rig, at: At, flags: u8, page: &[u8]) -> Outcome {
    let list = [&[0, 0, 0, 0], page].concat();
    let length = u8::try_from(list.len()).unwrap();
    rig.run(at, &[0x15, flags, 0, 0, length, 0], &list)
}

/// The current page, as MODE SENSE gives it, ready to be changed and sent back.
fn current(rig: &mut Rig, at: At, page: u8) -> Vec<u8> {
    let mut page = mode_sense(rig, at, 0, page, 0).split_off(12);
    page[0] &= 0x3f;
    page
}

#[test]
fn all_pages_as_they_are() {
    let (mut rig, at) = Rig::ready(profile());
    assert_dump(
        &mode_sense(&mut rig, at, 0, 0x3f, 0),
        "43 00 10 08 00 00 10 00 00 00 02 00
         01 0a 00 00 00 00 00 00 00 00 00 00
         88 12 04 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
         8a 0a 22 10 00 00 00 00 00 00 00 00
         1c 0a 08 00 00 00 00 00 00 00 00 00",
    );
    let with_subpages = mode_sense(&mut rig, at, 0, 0x3f, 0xff);
    assert_eq!(with_subpages.len(), 68 + 32);
    assert_eq!(with_subpages[56..60], [0x4a, 0x01, 0x00, 0x1c]);
}

#[test]
fn changeable_bits_are_wce_d_sense_and_swp() {
    let (mut rig, at) = Rig::ready(profile());
    assert_dump(
        &mode_sense(&mut rig, at, 1, 0x3f, 0)[12..],
        "01 0a 00 00 00 00 00 00 00 00 00 00
         88 12 04 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
         8a 0a 04 00 08 00 00 00 00 00 00 00
         1c 0a 00 00 00 00 00 00 00 00 00 00",
    );
    let mut profile = profile();
    profile.capabilities.volatile_cache = false;
    let (mut rig, at) = Rig::ready(profile);
    assert_eq!(mode_sense(&mut rig, at, 0, CACHING, 0)[14], 0x00);
    assert_eq!(mode_sense(&mut rig, at, 1, CACHING, 0)[14], 0x00);
}

#[test]
fn the_long_form_has_a_long_descriptor_if_asked_for() {
    let (mut rig, at) = Rig::ready(profile());
    let mode_sense_10 = |flags| [0x5a, flags, CONTROL, 0, 0, 0, 0, 0, 255, 0];
    assert_dump(
        &data(rig.run(at, &mode_sense_10(0x00), &[])),
        "00 1a 00 10 00 00 00 08 00 00 10 00 00 00 02 00 8a 0a 22 10 00 00 00 00 00 00 00 00",
    );
    assert_dump(
        &data(rig.run(at, &mode_sense_10(0x10), &[])),
        "00 22 00 10 01 00 00 10 00 00 00 00 00 00 10 00 00 00 00 00 00 00 02 00
         8a 0a 22 10 00 00 00 00 00 00 00 00",
    );
    assert_dump(
        &data(rig.run(at, &mode_sense_10(0x18), &[]))[..8],
        "00 12 00 10 01 00 00 00",
    );
}

#[test]
fn pages_and_subpages_that_are_not_there_are_refused_at_their_field() {
    let (mut rig, at) = Rig::ready(profile());
    for (page, subpage, place) in [
        (0x02, 0x00, (2, Some(5))),
        (0x00, 0x00, (2, Some(5))),
        (CONTROL, 0x02, (3, None)),
        (0x3f, 0x33, (3, None)),
    ] {
        let outcome = rig.run(at, &[0x1a, 0, page, subpage, 255, 0], &[]);
        assert_eq!((sense(&outcome), pointer(&outcome)), (INVALID_FIELD, place));
    }
}

#[test]
fn write_cache_off_makes_writes_durable_on_all_cores_and_flushes() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let mut page = current(&mut rig, at, CACHING);
    page[2] = 0x00;
    let outcome = select(&mut rig, at, 0x10, &page);
    good(&outcome);
    assert_eq!(outcome.transfer_length, 24);
    assert_eq!(rig.asked, [Asked::Flush]);
    assert_eq!(sense(&rig.run(other, &[0; 6], &[])), (6, 0x2a, 0x01));
    good(&rig.run(at, &[0; 6], &[]));
    good(&rig.run(other, &ten(0x2a, 0, 0, 1), &[0; BLOCK]));
    assert_eq!(rig.asked.last(), Some(&Asked::Write(0, BLOCK, true)));
    page[2] = 0x04;
    rig.asked.clear();
    good(&select(&mut rig, at, 0x10, &page));
    assert!(rig.asked.is_empty());
}

#[test]
fn a_write_under_way_when_the_write_cache_is_switched_off_is_flushed_by_itself() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let mut page = current(&mut rig, at, CACHING);
    page[2] = 0x00;
    let cdb = ten(0x2a, 0, 0, 1);
    let (mut cached, step) = rig.start(other, &cdb, &[1; BLOCK]);
    let Step::Io(write) = step else {
        panic!("{step:?}");
    };
    good(&select(&mut rig, at, 0x10, &page));
    rig.asked.clear();
    let written = Input::Io(rig.submit(write));
    let step = rig.cores[1].resume(&mut cached, written);
    let Step::Io(flush) = step else {
        panic!("the flush of MODE SELECT came before the write: {step:?}");
    };
    let flushed = Input::Io(rig.submit(flush));
    let step = rig.cores[1].resume(&mut cached, flushed);
    let Step::Done(outcome) = step else {
        panic!("{step:?}");
    };
    good(&outcome);
    assert_eq!(rig.asked, [Asked::Write(0, BLOCK, false), Asked::Flush]);
}

#[test]
fn write_cache_off_that_cannot_be_flushed_is_an_error() {
    let (mut rig, at) = Rig::ready(profile());
    let mut page = current(&mut rig, at, CACHING);
    page[2] = 0x00;
    rig.failure = Some(IoFailure::FlushLatched);
    let outcome = select(&mut rig, at, 0x10, &page);
    assert_eq!(sense(&outcome), (3, 0x0c, 0x00));
    assert!(outcome.own_sense().unwrap().is_deferred);
    rig.failure = Some(IoFailure::FlushLatched);
    let again = select(&mut rig, at, 0x10, &page);
    assert_eq!(sense(&again), (3, 0x0c, 0x00), "off without a flush");
    rig.asked.clear();
    good(&select(&mut rig, at, 0x10, &page));
    assert_eq!(rig.asked, [Asked::Flush]);
}

#[test]
fn software_write_protect_refuses_writes_and_shows() {
    let (mut rig, at) = Rig::ready(profile());
    let mut page = current(&mut rig, at, CONTROL);
    page[4] = 0x08;
    good(&select(&mut rig, at, 0x10, &page));
    let shown = mode_sense(&mut rig, at, 0, CONTROL, 0);
    assert_eq!((shown[2], shown[16]), (0x90, 0x08));
    good(&rig.run(at, &ten(0x28, 0, 0, 1), &[]));
    for cdb in [ten(0x2a, 0, 0, 1), ten(0x41, 0, 0, 1), ten(0x42, 0, 0, 0)] {
        assert_eq!(sense(&rig.run(at, &cdb, &[0; BLOCK])), (7, 0x27, 0x02));
    }
    page[4] = 0x00;
    good(&select(&mut rig, at, 0x10, &page));
    good(&rig.run(at, &ten(0x2a, 0, 0, 1), &[0; BLOCK]));
}

#[test]
fn a_read_only_unit_or_nexus_refuses_writes_and_shows() {
    let mut read_only = profile();
    read_only.capabilities.read_only = true;
    let (mut unit, at) = Rig::ready(read_only);
    let mut nexus_rig = Rig::new(profile());
    let mut limited = nexus(1);
    limited.read_only = true;
    let limited = (0, nexus_rig.cores[0].attach(limited, None));
    for (rig, at) in [(&mut unit, at), (&mut nexus_rig, limited)] {
        assert_eq!(mode_sense(rig, at, 0, 0x3f, 0)[2], 0x90);
        assert_eq!(
            sense(&rig.run(at, &ten(0x2a, 0, 0, 1), &[0; BLOCK])),
            (7, 0x27, 0x00)
        );
        good(&rig.run(at, &ten(0x28, 0, 0, 1), &[]));
    }
}

#[test]
fn d_sense_switches_the_format() {
    let (mut rig, at) = Rig::ready(profile());
    let mut page = current(&mut rig, at, CONTROL);
    page[2] |= 0x04;
    assert!(!rig.cores[1].descriptor_sense());
    good(&select(&mut rig, at, 0x10, &page));
    assert!(rig.cores[1].descriptor_sense());
}

#[test]
fn a_fixed_bit_that_differs_is_refused_where_it_stands_and_changes_nothing() {
    let (mut rig, at) = Rig::ready(profile());
    let control = current(&mut rig, at, CONTROL);
    let caching = current(&mut rig, at, CACHING);
    for (byte, bit) in [(2, 6), (3, 1), (4, 7), (11, 0)] {
        let mut page = control.clone();
        page[byte] ^= 1 << bit;
        page[4] ^= 0x08;
        let mut both = caching.clone();
        both[2] = 0x00;
        both.extend_from_slice(&page);
        let outcome = select(&mut rig, at, 0x10, &both);
        assert_eq!(sense(&outcome), (5, 0x26, 0x00));
        let place = u16::try_from(4 + caching.len() + byte).unwrap();
        assert_eq!(pointer(&outcome), (place, Some(bit)));
        assert_eq!(current(&mut rig, at, CONTROL), control);
        assert_eq!(current(&mut rig, at, CACHING), caching);
    }
}

#[test]
fn wrong_parameter_lists_are_refused() {
    let (mut rig, at) = Rig::ready(profile());
    let control = current(&mut rig, at, CONTROL);
    let six = |length| [0x15, 0x10, 0, 0, length, 0];
    let descriptor = |blocks: u8, length: u8| {
        let mut list = vec![0, 0, 0, 8, 0, 0, blocks, 0, 0, 0, length, 0];
        list.extend_from_slice(&control);
        list
    };
    for list in [descriptor(0, 2), descriptor(0x10, 2)] {
        good(&rig.run(at, &six(24), &list));
    }
    let table: &[(Vec<u8>, Codes)] = &[
        (vec![0; 3], LIST_LENGTH),
        (descriptor(0x11, 2), (5, 0x26, 0x00)),
        (descriptor(0, 4), (5, 0x26, 0x00)),
        (vec![0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0], (5, 0x26, 0x00)),
        (vec![0, 1, 0, 0], (5, 0x26, 0x00)),
        ([&[0, 0, 0, 0], &control[..11]].concat(), LIST_LENGTH),
        (vec![0, 0, 0, 0, 0x0a], LIST_LENGTH),
        (vec![0, 0, 0, 0, 0x02, 0x00], (5, 0x26, 0x00)),
        (
            vec![0, 0, 0, 0, 0x0a, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            (5, 0x26, 0x00),
        ),
    ];
    for (list, expected) in table {
        let length = u8::try_from(list.len()).unwrap();
        assert_eq!(
            sense(&rig.run(at, &six(length), list)),
            *expected,
            "{list:02x?}"
        );
    }
    let no_format = rig.run(
        at,
        &[0x15, 0x00, 0, 0, 16, 0],
        &[&[0; 4], &control[..]].concat(),
    );
    assert_eq!(
        (sense(&no_format), pointer(&no_format)),
        (INVALID_FIELD, (1, Some(4)))
    );
    good(&rig.run(at, &six(0), &[]));
}

#[test]
fn the_long_form_of_mode_select_works_too() {
    let (mut rig, at) = Rig::ready(profile());
    let mut page = current(&mut rig, at, CONTROL);
    page[4] = 0x08;
    let mut list = vec![0, 0, 0, 0, 1, 0, 0, 16];
    list.extend_from_slice(&[0xff; 8]);
    list.extend_from_slice(&[0, 0, 0, 0, 0, 0, 2, 0]);
    list.extend_from_slice(&page);
    good(&rig.run(at, &[0x55, 0x10, 0, 0, 0, 0, 0, 0, 36, 0], &list));
    assert_eq!(current(&mut rig, at, CONTROL), page);
}

#[test]
fn saved_pages_outlive_a_reset_and_a_restart_others_do_not() {
    const PF_AND_SP: u8 = 0x11;
    let (mut rig, at) = Rig::ready(profile());
    let mut control = current(&mut rig, at, CONTROL);
    control[4] = 0x08;
    good(&select(&mut rig, at, PF_AND_SP, &control));
    let kept = rig.persisted.take().unwrap();
    let mut caching = current(&mut rig, at, CACHING);
    caching[2] = 0x00;
    good(&select(&mut rig, at, 0x10, &caching));
    assert_eq!(rig.persisted, None);
    assert_eq!(mode_sense(&mut rig, at, 3, CONTROL, 0)[16], 0x08);
    rig.change(Some(1), ChangeKind::LogicalUnitReset);
    let told = rig.run(at, &[0; 6], &[]);
    assert_eq!(sense(&told), (6, 0x29, 0x03));
    assert_eq!(current(&mut rig, at, CONTROL)[4], 0x08);
    assert_eq!(current(&mut rig, at, CACHING)[2], 0x04);
    let mut restarted = Rig::restored(profile(), Some(&kept));
    let at = restarted.attach(0, 1);
    assert_eq!(current(&mut restarted, at, CONTROL)[4], 0x08);
    assert_eq!(mode_sense(&mut restarted, at, 2, CONTROL, 0)[16], 0x00);
}

#[test]
fn where_nothing_is_kept_nothing_is_saved() {
    let mut profile = profile();
    profile.keeps_state = false;
    let (mut rig, at) = Rig::ready(profile);
    assert_eq!(mode_sense(&mut rig, at, 0, CONTROL, 0)[12], 0x0a);
    let outcome = rig.run(at, &[0x1a, 0, 0xc0 | CONTROL, 0, 255, 0], &[]);
    assert_eq!(sense(&outcome), (5, 0x39, 0x00));
    let control = current(&mut rig, at, CONTROL);
    let outcome = select(&mut rig, at, 0x11, &control);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (1, Some(0)))
    );
}

/// What a core writes between two pieces, or two steps, is as durable as the cache says at that moment.
#[test]
fn a_piece_that_was_written_while_the_cache_was_on_is_flushed() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let mut page = current(&mut rig, at, CACHING);
    let mut switch = |rig: &mut Rig, bits| {
        page[2] = bits;
        good(&select(rig, at, 0x10, &page));
        rig.run(other, &[0; 6], &[]);
        rig.asked.clear();
    };
    switch(&mut rig, 0);
    let (mut same, step) = rig.start(other, &ten(0x41, 0, 0, 300), &[1; BLOCK]);
    let Step::Io(first) = step else {
        panic!("{step:?}");
    };
    switch(&mut rig, WCE);
    let first = Input::Io(rig.submit(first));
    let step = rig.cores[1].resume(&mut same, first);
    assert!(matches!(step, Step::Turn { .. }), "{step:?}");
    let step = rig.cores[1].resume(&mut same, Input::Turn);
    let Step::Io(second) = step else {
        panic!("{step:?}");
    };
    assert!(matches!(second, IoRequest::Write { durable: false, .. }));
    switch(&mut rig, 0);
    let mut input = Input::Io(rig.submit(second));
    loop {
        input = match rig.cores[1].resume(&mut same, input) {
            Step::Turn { .. } => Input::Turn,
            Step::Io(request) => Input::Io(rig.submit(request)),
            Step::Done(outcome) => break good(&outcome),
            step @ (Step::DataOut { .. } | Step::Owner(_) | Step::Fence(_)) => {
                panic!("{step:?}")
            }
        };
    }
    assert_eq!(rig.asked.last(), Some(&Asked::Flush), "{:?}", rig.asked);
}

/// Its session may be lost before its flush is over; what it changed stays changed.
#[test]
fn a_cache_is_shown_as_on_until_what_it_held_is_known_to_be_flushed() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let mut page = current(&mut rig, at, CACHING);
    let shown = |rig: &mut Rig| current(rig, other, CACHING)[2];
    page[2] = 0;
    let list = [&[0, 0, 0, 0], &page[..]].concat();
    let cdb = [0x15, 0x10, 0, 0, 24, 0];
    let (mut lost, step) = rig.start(at, &cdb, &list);
    let Step::Owner(change) = step else {
        panic!("{step:?}");
    };
    let reply = rig.apply(&change);
    // Durable from now on, but not shown before the flush.
    good(&rig.run(other, &ten(0x2a, 0, 0, 1), &[0; BLOCK]));
    assert_eq!(rig.asked.last(), Some(&Asked::Write(0, BLOCK, true)));
    assert_eq!(shown(&mut rig), WCE);
    let step = rig.cores[0].resume(&mut lost, Input::Owner(reply));
    assert!(matches!(step, Step::Io(IoRequest::Flush)), "{step:?}");
    // On and off again meanwhile: that flush says nothing of what was written then.
    for bits in [WCE, 0] {
        page[2] = bits;
        let list = [&[0, 0, 0, 0], &page[..]].concat();
        let (_, step) = rig.start(other, &cdb, &list);
        let Step::Owner(change) = step else {
            panic!("{step:?}");
        };
        rig.apply(&change);
    }
    let flushed = rig.submit(IoRequest::Flush);
    let step = rig.cores[0].resume(&mut lost, Input::Io(flushed));
    let Step::Owner(late) = step else {
        panic!("{step:?}");
    };
    let reply = rig.apply(&late);
    assert_eq!(shown(&mut rig), WCE);
    let step = rig.cores[0].resume(&mut lost, Input::Owner(reply));
    assert!(matches!(step, Step::Done(_)), "{step:?}");
    rig.asked.clear();
    page[2] = 0;
    good(&select(&mut rig, other, 0x10, &page));
    assert_eq!(rig.asked, [Asked::Flush]);
    assert_eq!(shown(&mut rig), 0);
    assert_eq!(sense(&rig.run(at, &[0; 6], &[])), (6, 0x2a, 0x01));
    good(&rig.run(at, &[0; 6], &[]));
}

/// Each waited for its turn when writing was inhibited, or the unit stopped.
#[test]
fn later_pieces_are_not_written_when_writing_is_inhibited_or_the_unit_stopped() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let (task, step) = rig.start(other, &ten(0x41, 0, 0, 300), &[1; BLOCK]);
    let Step::Io(piece) = step else {
        panic!("{step:?}");
    };
    let refusal = |rig: &Rig, request: &IoRequest| {
        let sense = rig.cores[1].refusal_of(&task, request)?;
        Some((sense.key as u8, sense.code.asc, sense.code.ascq))
    };
    let mut page = current(&mut rig, at, CONTROL);
    for (bits, refused) in [(0x08, Some((7, 0x27, 0x02))), (0x00, None)] {
        page[4] = bits;
        rig.asked.clear();
        good(&select(&mut rig, at, 0x10, &page));
        assert_eq!(rig.asked.contains(&Asked::Flush), bits != 0);
        assert_eq!(refusal(&rig, &piece), refused);
        assert_eq!(refusal(&rig, &IoRequest::Flush), None);
    }
    for (start, refused) in [(0, Some((2, 0x04, 0x02))), (1, None)] {
        good(&rig.run(at, &[0x1b, 0, 0, 0, start, 0], &[]));
        assert_eq!(refusal(&rig, &piece), refused);
    }
}

#[test]
fn write_through_by_an_administrator_shows_when_it_is_flushed_and_no_initiator_ends_it() {
    let (mut rig, at) = Rig::ready(profile());
    let shown = |rig: &mut Rig| current(rig, at, CACHING)[2];
    let write = ten(0x2a, 0, 0, 1);
    rig.change(None, ChangeKind::WriteThrough);
    good(&rig.run(at, &write, &[0; BLOCK]));
    assert_eq!(rig.asked, [Asked::Write(0, BLOCK, true)]);
    assert_eq!(shown(&mut rig), WCE);
    let epoch = rig.owner.shared().cache.epoch();
    rig.change(None, ChangeKind::Flushed { epoch });
    assert_eq!(sense(&rig.run(at, &[0; 6], &[])), (6, 0x2a, 0x01));
    assert_eq!(shown(&mut rig), 0);
    assert_eq!(mode_sense(&mut rig, at, 1, CACHING, 0)[14], 0);
    let mut page = current(&mut rig, at, CACHING);
    page[2] = WCE;
    assert_eq!(sense(&select(&mut rig, at, 0x11, &page)), (5, 0x26, 0x00));
    // What was saved before has no cache to switch on.
    rig.change(None, ChangeKind::LogicalUnitReset);
    assert_eq!(sense(&rig.run(at, &[0; 6], &[])).0, 6);
    assert_eq!(shown(&mut rig), 0);
    assert_eq!(mode_sense(&mut rig, at, 3, CACHING, 0)[14], 0);

    rig.change(None, ChangeKind::WriteBack);
    assert_eq!(sense(&rig.run(at, &[0; 6], &[])), (6, 0x2a, 0x01));
    assert_eq!(shown(&mut rig), WCE);
    rig.asked.clear();
    good(&rig.run(at, &write, &[0; BLOCK]));
    assert_eq!(rig.asked, [Asked::Write(0, BLOCK, false)]);
    assert_eq!(rig.persisted, None, "it was saved as on all the while");
}

#[test]
fn write_through_that_is_taken_back_leaves_the_cache_as_it_was_and_nobody_is_told() {
    for bits in [WCE, 0] {
        let (mut rig, at) = Rig::ready(profile());
        let mut page = current(&mut rig, at, CACHING);
        page[2] = bits;
        good(&select(&mut rig, at, 0x10, &page));
        rig.change(None, ChangeKind::WriteThrough);
        // A second order of the same kind does not replace what was before the first.
        rig.change(None, ChangeKind::WriteThrough);
        rig.change(None, ChangeKind::NotWrittenThrough);
        good(&rig.run(at, &[0; 6], &[]));
        assert_eq!(current(&mut rig, at, CACHING)[2], bits);
        assert_eq!(mode_sense(&mut rig, at, 1, CACHING, 0)[14], WCE);
        rig.asked.clear();
        good(&rig.run(at, &ten(0x2a, 0, 0, 1), &[0; BLOCK]));
        assert_eq!(rig.asked, [Asked::Write(0, BLOCK, bits == 0)]);
    }
}

#[test]
fn what_becomes_of_write_through_is_known_before_modes_are_selected() {
    let (mut rig, at) = Rig::ready(profile());
    let mut page = current(&mut rig, at, CACHING);
    page[2] = 0;
    rig.change(None, ChangeKind::WriteThrough);
    let selected = select(&mut rig, at, 0x10, &page);
    assert_eq!(sense(&selected), (2, 0x04, 0x01));
    rig.change(None, ChangeKind::NotWrittenThrough);
    assert_eq!(current(&mut rig, at, CACHING)[2], WCE);
    rig.asked.clear();
    good(&select(&mut rig, at, 0x10, &page));
    assert_eq!(rig.asked, [Asked::Flush]);
    assert_eq!(current(&mut rig, at, CACHING)[2], 0);
}

#[test]
fn what_is_saved_while_there_is_no_cache_says_nothing_of_one() {
    let (mut rig, at) = Rig::ready(profile());
    rig.change(None, ChangeKind::WriteThrough);
    let epoch = rig.owner.shared().cache.epoch();
    rig.change(None, ChangeKind::Flushed { epoch });
    assert_eq!(sense(&rig.run(at, &[0; 6], &[])), (6, 0x2a, 0x01));
    let mut page = current(&mut rig, at, CONTROL);
    page[2] |= 0x04;
    good(&select(&mut rig, at, 0x11, &page));
    let kept = rig.persisted.take().unwrap();
    let mut again = Rig::restored(profile(), Some(&kept));
    let at = again.attach(0, 1);
    assert_eq!(current(&mut again, at, CACHING)[2], WCE);

    // A store that began without a cache, and was given one.
    let mut without = profile();
    without.capabilities.writes_through = true;
    let mut rig = Rig::new(without);
    rig.change(None, ChangeKind::WriteBack);
    let kept = rig.persisted.take().unwrap();
    let mut again = Rig::restored(profile(), Some(&kept));
    let at = again.attach(0, 1);
    assert_eq!(current(&mut again, at, CACHING)[2], WCE);
}
