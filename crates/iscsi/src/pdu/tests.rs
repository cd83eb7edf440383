//! Hand-typed headers against the views, both ways.

use super::*;
use crate::serial::SerialNumber;

/// Types a header from a hex text, spaces ignored, and fills it up with zeroes.
fn bhs(hex: &str) -> BhsBytes {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let mut bytes = [0; BHS_LENGTH_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    bytes
}

#[test]
fn scsi_command_lies_as_typed() {
    let bytes = bhs(
        "01 e1 0000 02 000200 0001000000000000 0000000a 00001000 00000011 00000022
                     2a00000000000000080000000000aabb",
    );
    let view = ScsiCommandBhs::view(&bytes);
    assert!(!view.is_immediate());
    assert!(view.is_final() && view.is_read() && view.is_write());
    assert_eq!(
        view.flags & flags::ATTRIBUTE_MASK,
        TaskAttribute::Simple.code()
    );
    assert_eq!(view.total_ahs_length_words, 2);
    assert_eq!(view.data_segment_length.get(), 512);
    assert_eq!(view.lun.get(), 0x0001_0000_0000_0000);
    assert_eq!(view.itt(), InitiatorTaskTag(10));
    assert_eq!(view.expected_data_transfer_length.get(), 4096);
    assert_eq!(view.cmd_sn().0, 0x11);
    assert_eq!(view.exp_stat_sn().0, 0x22);
    assert_eq!(view.cdb[0], 0x2a);
    assert_eq!(view.cdb[15], 0xbb);
    assert_eq!(
        PduLayout::of(&bytes, true, true),
        PduLayout {
            ahs_bytes: 8,
            header_digest_bytes: 4,
            data_bytes: 512,
            padding_bytes: 0,
            data_digest_bytes: 4
        }
    );
}

#[test]
fn login_request_lies_as_typed() {
    let bytes = bhs("43 87 05 02 00 00007b 80123456789a 4321 00000007 0003 0000 00000009 0000000c");
    let view = LoginRequestBhs::view(&bytes);
    assert!(view.is_immediate() && view.is_transit() && !view.is_continued());
    assert_eq!(
        view.current_stage(),
        Some(LoginStage::OperationalNegotiation)
    );
    assert_eq!(view.next_stage(), Some(LoginStage::FullFeaturePhase));
    assert_eq!((view.version_max, view.version_min), (5, 2));
    assert_eq!(view.isid, Isid([0x80, 0x12, 0x34, 0x56, 0x78, 0x9a]));
    assert_eq!(view.tsih(), Tsih(0x4321));
    assert_eq!(view.cid(), Cid(3));
    assert_eq!(view.cmd_sn().0, 9);
    assert_eq!(view.exp_stat_sn().0, 12);
    assert_eq!(view.data_segment_length.get(), 123);
    assert_eq!(PduLayout::of(&bytes, false, false).total_bytes(), 48 + 124);
}

#[test]
fn login_response_is_written_as_typed() {
    let mut response = LoginResponseBhs::new();
    response.flags = flags::TRANSIT | (1 << flags::CURRENT_STAGE_SHIFT) | 3;
    response.isid = Isid([1, 2, 3, 4, 5, 6]);
    response.tsih.set(0x0708);
    response.initiator_task_tag.set(0x1122_3344);
    response.stamp(SerialNumber(1), SerialNumber(2), SerialNumber(3));
    (response.status_class, response.status_detail) =
        LoginStatus::InvalidRequestDuringLogin.class_and_detail();
    assert_eq!(
        response.as_bhs_bytes(),
        &bhs(
            "23 87 00 00 00 000000 010203040506 0708 11223344 00000000 00000001 00000002 00000003
              02 0b"
        )
    );
    assert_eq!(
        response.status(),
        Some(LoginStatus::InvalidRequestDuringLogin)
    );
}

#[test]
fn remaining_requests_lie_as_typed() {
    let common = "0001020304050607 00000008 00000009 0000000a 0000000b";
    let bytes = bhs(&format!("40 80 0000 00 000005 {common}"));
    let nop = NopOutBhs::view(&bytes);
    assert!(nop.is_immediate());
    assert_eq!(
        (nop.lun.get(), nop.target_transfer_tag.get()),
        (0x0001_0203_0405_0607, 9)
    );

    let bytes = bhs(&format!("02 81 0000 00 000000 {common} 0000000c 0000000d"));
    let tmf = TaskManagementRequestBhs::view(&bytes);
    assert_eq!(
        TaskManagementFunction::from_code(tmf.function_bits()),
        Some(TaskManagementFunction::AbortTask)
    );
    assert_eq!(tmf.referenced_task_tag.get(), 9);
    assert_eq!((tmf.ref_cmd_sn.get(), tmf.exp_data_sn.get()), (12, 13));

    let bytes = bhs(&format!("04 40 0000 00 000000 {common}"));
    let text = TextRequestBhs::view(&bytes);
    assert!(!text.is_final() && text.is_continued());
    assert_eq!(text.target_transfer_tag.get(), 9);

    let bytes = bhs(&format!(
        "05 80 0000 00 000200 {common} 00000000 0000000e 0000000f"
    ));
    let data = DataOutBhs::view(&bytes);
    assert_eq!((data.data_sn.get(), data.buffer_offset.get()), (14, 15));
    assert_eq!(data.exp_stat_sn.get(), 11);

    let bytes = bhs("46 82 0000 00 000000 0000000000000000 00000001 0002 0000 00000003 00000004");
    let logout = LogoutRequestBhs::view(&bytes);
    assert_eq!(
        LogoutReason::from_code(logout.reason_bits()),
        Some(LogoutReason::RemoveConnectionForRecovery)
    );
    assert_eq!(logout.cid.get(), 2);

    let bytes = bhs(&format!(
        "10 82 0000 00 000000 {common} 0000000000000000 00000010 00000011"
    ));
    let snack = SnackBhs::view(&bytes);
    assert_eq!(
        SnackType::from_code(snack.flags & flags::SNACK_TYPE_MASK),
        Some(SnackType::DataAck)
    );
    assert_eq!((snack.beg_run.get(), snack.run_length.get()), (16, 17));
}

/// StatSN, ExpCmdSN, MaxCmdSN.
const NUMBERS: &str = "00000021 00000022 00000023";

#[test]
fn responses_of_a_task_lie_as_typed() {
    let bytes = bhs(&format!(
        "21 92 00 02 00 000014 beef000000000000 00000008 00000009 {NUMBERS} 00000024 00000025
         00000026"
    ));
    let response = ScsiResponseBhs::view(&bytes);
    assert_eq!(
        response.flags,
        flags::FINAL | flags::BIDIRECTIONAL_READ_OVERFLOW | flags::RESIDUAL_UNDERFLOW
    );
    assert_eq!((response.response, response.status), (0, 2));
    assert_eq!(response.status_qualifier.get(), 0xbeef);
    assert_eq!(response.stat_sn().0, 0x21);
    assert_eq!(response.exp_cmd_sn().0, 0x22);
    assert_eq!(response.max_cmd_sn().0, 0x23);
    assert_eq!(response.exp_data_sn.get(), 0x24);
    assert_eq!(response.bidirectional_read_residual_count.get(), 0x25);
    assert_eq!(response.residual_count.get(), 0x26);

    let bytes = bhs(&format!(
        "25 83 00 08 00 000200 0000000000000000 00000008 ffffffff {NUMBERS} 00000024 00000025
         00000026"
    ));
    let data = DataInBhs::view(&bytes);
    assert!(data.is_final() && data.has_status());
    assert_eq!(data.status, 8);
    assert_eq!(data.data_sn.get(), 0x24);
    assert_eq!(
        (data.buffer_offset.get(), data.residual_count.get()),
        (0x25, 0x26)
    );

    let bytes = bhs(&format!(
        "31 80 0000 00 000000 0001000000000000 00000008 00000009 {NUMBERS} 00000024 00000025
         00000026"
    ));
    let r2t = R2tBhs::view(&bytes);
    assert_eq!((r2t.target_transfer_tag.get(), r2t.r2t_sn.get()), (9, 0x24));
    assert_eq!(
        (
            r2t.buffer_offset.get(),
            r2t.desired_data_transfer_length.get()
        ),
        (0x25, 0x26)
    );
}

#[test]
fn responses_of_a_connection_lie_as_typed() {
    let bytes = bhs(&format!(
        "32 80 0000 00 000000 0001000000000000 ffffffff 00000000 {NUMBERS} 01 00 0002 0003 0004"
    ));
    let message = AsyncMessageBhs::view(&bytes);
    assert_eq!(
        AsyncEvent::from_code(message.async_event),
        Some(AsyncEvent::LogoutRequest)
    );
    assert_eq!(message.parameter1.get(), 2);
    assert_eq!((message.parameter2.get(), message.parameter3.get()), (3, 4));

    let bytes = bhs(&format!(
        "26 80 01 00 00 000000 0000000000000000 00000008 00000000 {NUMBERS} 00000000 0002 0014"
    ));
    let logout = LogoutResponseBhs::view(&bytes);
    assert_eq!(
        LogoutResponseCode::from_code(logout.response),
        Some(LogoutResponseCode::CidNotFound)
    );
    assert_eq!(
        (logout.time2wait_s.get(), logout.time2retain_s.get()),
        (2, 20)
    );

    let bytes = bhs(&format!(
        "3f 80 09 00 00 000030 0000000000000000 ffffffff 00000000 {NUMBERS} 00000024"
    ));
    let reject = RejectBhs::view(&bytes);
    assert_eq!(
        RejectReason::from_code(reject.reason),
        Some(RejectReason::InvalidPduField)
    );
    assert_eq!(reject.data_sn.get(), 0x24);
    assert!(reject.itt().is_reserved());
}

#[test]
fn responses_to_single_requests_lie_as_typed() {
    let bytes = bhs(&format!(
        "22 80 05 00 00 000000 0000000000000000 00000008 00000000 {NUMBERS}"
    ));
    let tmf = TaskManagementResponseBhs::view(&bytes);
    assert_eq!(
        TaskManagementResponse::from_code(tmf.response),
        Some(TaskManagementResponse::NotSupported)
    );

    let bytes = bhs(&format!(
        "20 80 0000 00 000003 0001000000000000 00000008 ffffffff {NUMBERS}"
    ));
    assert_eq!(
        NopInBhs::view(&bytes).target_transfer_tag.get(),
        RESERVED_TAG
    );
    let bytes = bhs(&format!(
        "24 40 0000 00 000003 0001000000000000 00000008 00000007 {NUMBERS}"
    ));
    assert!(TextResponseBhs::view(&bytes).is_continued());
    assert_eq!(TextResponseBhs::view(&bytes).target_transfer_tag.get(), 7);
}

#[test]
fn a_view_writes_through_to_the_bytes_below() {
    let mut bytes = [0; BHS_LENGTH_BYTES];
    *R2tBhs::view_mut(&mut bytes) = R2tBhs::new();
    R2tBhs::view_mut(&mut bytes).buffer_offset.set(0x0a0b_0c0d);
    assert_eq!(bytes[0..2], [0x31, 0x80]);
    assert_eq!(bytes[40..44], [0x0a, 0x0b, 0x0c, 0x0d]);
}

/// Typed once more, from the standard's list rather than from the code.
#[test]
fn codes_match_the_published_lists() {
    let opcodes: Vec<u8> = Opcode::ALL.iter().map(|o| o.code()).collect();
    assert_eq!(
        opcodes,
        [
            0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25,
            0x26, 0x31, 0x32, 0x3f
        ]
    );
    assert_eq!(Opcode::ALL.iter().filter(|o| o.is_request()).count(), 8);
    for code in 0..=u8::MAX {
        assert_eq!(
            Opcode::from_code(code).map(Opcode::code),
            opcodes.contains(&code).then_some(code)
        );
    }
    let statuses: Vec<u16> = LoginStatus::ALL.iter().map(|s| s.code()).collect();
    assert_eq!(
        statuses,
        [
            0x0000, 0x0101, 0x0102, 0x0200, 0x0201, 0x0202, 0x0203, 0x0204, 0x0205, 0x0206, 0x0207,
            0x0208, 0x0209, 0x020a, 0x020b, 0x0300, 0x0301, 0x0302
        ]
    );
    assert_eq!(LoginStatus::from_class_and_detail(2, 0x0c), None);
    let reasons: Vec<u8> = RejectReason::ALL.iter().map(|r| r.code()).collect();
    assert_eq!(reasons, [2, 3, 4, 5, 6, 7, 8, 9, 10, 12]);
    let functions: Vec<u8> = TaskManagementFunction::ALL
        .iter()
        .map(|f| f.code())
        .collect();
    assert_eq!(functions, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let responses: Vec<u8> = TaskManagementResponse::ALL
        .iter()
        .map(|r| r.code())
        .collect();
    assert_eq!(responses, [0, 1, 2, 3, 4, 5, 6, 7, 255]);
    let events: Vec<u8> = AsyncEvent::ALL.iter().map(|e| e.code()).collect();
    assert_eq!(events, [0, 1, 2, 3, 4, 5, 255]);
    assert_eq!(LoginStage::from_code(2), None);
}

#[test]
fn lengths_hold_at_both_edges() {
    for (length, padded) in [
        (0, 0),
        (1, 4),
        (3, 4),
        (4, 4),
        (5, 8),
        (0x00ff_ffff, 0x0100_0000),
    ] {
        assert_eq!(padded_length(length), padded);
        assert_eq!(padding_length(length), padded - length);
    }
    assert_eq!(U24::new(U24::MAX).map(U24::get), Some(0x00ff_ffff));
    assert_eq!(U24::new(U24::MAX + 1), None);
    assert_eq!(U24::new(0x0001_0203).unwrap().as_bytes(), [1, 2, 3]);
}

#[test]
fn an_empty_segment_has_no_digest() {
    let layout = PduLayout::of(&[0; BHS_LENGTH_BYTES], true, true);
    assert_eq!(layout.total_bytes(), 52);
}
