use super::*;

fn inquiry(rig: &mut Rig, at: At, page: Option<u8>) -> Vec<u8> {
    let cdb = [0x12, u8::from(page.is_some()), page.unwrap_or(0), 1, 0, 0];
    data(rig.run(at, &cdb, &[]))
}

#[test]
fn standard_data() {
    let (mut rig, at) = Rig::ready(profile());
    let mut golden = "00 00 06 12 5b 10 10 02
        54 41 52 4e 20 20 20 20
        64 69 73 6b 20 20 20 20 20 20 20 20 20 20 20 20
        30 30 30 31
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 a0 04 60 04 c0 09 60"
        .to_owned();
    golden.push_str(&"00".repeat(30));
    assert_dump(&inquiry(&mut rig, at, None), &golden);
}

#[test]
fn vital_product_data() {
    let (mut rig, at) = Rig::ready(profile());
    let zeros = |count: usize| "00".repeat(count);
    let pages: &[(u8, String)] = &[
        (0x00, "00 00 00 08 00 80 83 86 87 b0 b1 b2".to_owned()),
        (0x80, "00 80 00 0a 30 31 32 33 34 35 36 37 38 39".to_owned()),
        (
            0x83,
            "00 83 00 5e
             01 03 00 08 33 33 33 00 00 00 ab cd
             02 01 00 12 54 41 52 4e 20 20 20 20 30 31 32 33 34 35 36 37 38 39
             51 94 00 04 00 00 00 01
             51 95 00 04 00 00 00 01
             53 98 00 18 64 65 76 69 63 65 2e 6e 61 6d 65 2c
                         74 2c 30 78 30 30 30 31 00 00 00 00
             53 a8 00 0c 64 65 76 69 63 65 2e 6e 61 6d 65 00"
                .to_owned(),
        ),
        (0x86, format!("00 86 00 3c 00 07 01 {}", zeros(57))),
        (0x87, "00 87 00 04 3f ff 00 00".to_owned()),
        (
            0xb0,
            format!(
                "00 b0 00 3c 00 80 00 08 00 00 04 00 00 00 00 80
                 00 00 04 00 00 10 00 00 00 00 01 00 00 00 00 08
                 80 00 00 00 00 00 00 00 00 00 ff ff {}",
                zeros(20)
            ),
        ),
        (0xb1, format!("00 b1 00 3c 00 01 {}", zeros(58))),
        (0xb2, "00 b2 00 04 00 e4 02 00".to_owned()),
    ];
    for (code, golden) in pages {
        assert_dump(&inquiry(&mut rig, at, Some(*code)), golden);
    }
}

#[test]
fn a_thick_unit_of_4096_byte_blocks_has_no_unmap_limits() {
    let mut thick = profile();
    thick.capabilities.thin = false;
    thick.capabilities.block_bytes = 4096;
    let (mut rig, at) = Rig::ready(thick);
    let limits = inquiry(&mut rig, at, Some(0xb0));
    assert_dump(&limits[4..16], "00 80 00 01 00 00 00 80 00 00 00 10");
    assert_eq!(limits[20..36], [0; 16]);
    assert_dump(
        &inquiry(&mut rig, at, Some(0xb2)),
        "00 b2 00 04 00 00 00 00",
    );
    let capacity = data(rig.run(at, &sixteen(0x9e, 0x10, 0, 32), &[]));
    assert_dump(
        &capacity[..16],
        "00 00 00 00 00 00 01 ff 00 00 10 00 00 00 00 00",
    );
}

#[test]
fn the_page_list_is_sorted_and_every_page_in_it_is_there() {
    let (mut rig, at) = Rig::ready(profile());
    let listed = inquiry(&mut rig, at, Some(0x00)).split_off(4);
    assert!(listed.is_sorted());
    for code in 0..=0xff {
        let outcome = rig.run(at, &[0x12, 1, code, 1, 0, 0], &[]);
        if listed.contains(&code) {
            let page = data(outcome);
            assert_eq!(page[1], code);
            let length = usize::from(u16::from_be_bytes([page[2], page[3]]));
            assert_eq!(page.len(), 4 + length, "page {code:#x}");
        } else {
            assert_eq!(
                (sense(&outcome), pointer(&outcome)),
                (INVALID_FIELD, (2, None))
            );
        }
    }
}

#[test]
fn a_page_code_without_evpd_is_refused_and_every_allocation_length_is_kept() {
    let (mut rig, at) = Rig::ready(profile());
    let outcome = rig.run(at, &[0x12, 0, 0x83, 0, 255, 0], &[]);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (2, None))
    );
    for length in 0..=255_u8 {
        let outcome = rig.run(at, &[0x12, 0, 0, 0, length, 0], &[]);
        assert_eq!(data(outcome).len(), usize::from(length).min(96));
    }
}

/// Ports of two transports and a nexus through none, as that of a transport without SCSI target ports.
#[test]
fn the_transport_is_that_of_the_port_that_the_nexus_came_through() {
    const VERSION: std::ops::Range<usize> = 64..66;
    let mut several = profile();
    let other = &mut several.identity.target_ports[1];
    (other.protocol_identifier, other.protocol_version) = (6, 0x0c21);
    let mut rig = Rig::new(several);
    let mut found = Vec::new();
    for target_port in [1, 2, 0] {
        let mut nexus = nexus(u32::from(target_port) + 1);
        nexus.port.target_port = target_port;
        let at = (0, rig.cores[0].attach(nexus, None));
        let standard = inquiry(&mut rig, at, None);
        let page = inquiry(&mut rig, at, Some(0x83));
        let mut protocols = Vec::new();
        let mut rest = &page[4..];
        while let [code_set, kind, _, length, ..] = *rest {
            if kind & 0x80 != 0 {
                protocols.push(code_set >> 4);
            }
            rest = &rest[4 + usize::from(length)..];
        }
        found.push((standard[VERSION].to_vec(), protocols));
    }
    assert_eq!(
        found,
        [
            (vec![0x09, 0x60], vec![5; 4]),
            (vec![0x0c, 0x21], vec![6; 4]),
            (vec![0, 0], vec![]),
        ]
    );
}

#[test]
fn a_removable_medium_shows() {
    let mut removable = profile();
    removable.identity.removable = true;
    let (mut rig, at) = Rig::ready(removable);
    assert_eq!(inquiry(&mut rig, at, None)[1], 0x80);
}
