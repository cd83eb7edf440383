//! A session against a target typed by hand: bytes in, bytes and events out.

#![allow(clippy::arithmetic_side_effects)]

mod hostile;

use super::*;
use crate::framing::{Pdu, PduBuffer};
use crate::negotiate::{Negotiation, OperationalPreferences, Phase, Role, SessionType};
use crate::pdu::{
    AsyncMessageBhs, Bhs, BhsBytes, DataInBhs, DataOutBhs, LogoutReason, LogoutRequestBhs,
    LogoutResponseBhs, NopInBhs, NopOutBhs, Opcode, R2tBhs, RESERVED_TAG, RejectBhs, RequestBhs,
    ResponseBhs, ScsiCommandBhs, ScsiResponseBhs, TaskManagementRequestBhs,
    TaskManagementResponseBhs, TextRequestBhs, TextResponseBhs, Tsih, flags, opcode,
};

const LUN: u64 = 0x0001_0000_0000_0000;

/// A session and the target's side of its connections.
struct Rig {
    session: Session,
    targets: Vec<FakeTarget>,
    parameters: ConnectionParameters,
}

struct FakeTarget {
    received: PduBuffer,
    stat_sn: SerialNumber,
}

fn parameters() -> SessionParameters {
    Negotiation::new(
        Role::Initiator,
        Phase::LeadingLogin,
        SessionType::Normal,
        OperationalPreferences::default(),
    )
    .session_parameters()
}

impl Rig {
    /// CmdSN begins just before the wrap, and the window has `window` places.
    fn new(session: SessionParameters, connection: ConnectionParameters, window: u32) -> Self {
        let login = Self::login(session, connection, window);
        Self {
            session: Session::new(&login, Cid(1), 100),
            targets: vec![FakeTarget {
                received: PduBuffer::new(),
                stat_sn: login.exp_stat_sn,
            }],
            parameters: connection,
        }
    }

    fn plain() -> Self {
        Self::new(parameters(), ConnectionParameters::default(), 32)
    }

    fn login(
        session: SessionParameters,
        connection: ConnectionParameters,
        window: u32,
    ) -> EstablishedInitiator {
        let cmd_sn = SerialNumber(0xffff_fffe);
        EstablishedInitiator {
            tsih: Tsih(1),
            session,
            connection,
            cmd_sn,
            exp_stat_sn: SerialNumber(0xffff_ffff),
            exp_cmd_sn: cmd_sn,
            max_cmd_sn: cmd_sn.plus(window).previous(),
            portal_group_tag: Some(1),
            target_alias: None,
        }
    }

    /// The PDUs that the session sends on a connection now.
    fn sent(&mut self, connection: usize) -> Vec<Pdu> {
        let mut bytes = Vec::new();
        self.session.transmit(connection, &mut bytes, usize::MAX);
        let target = &mut self.targets[connection];
        target.received.push(&bytes);
        let mut pdus = Vec::new();
        let (header, data) = (self.parameters.header_digest, self.parameters.data_digest);
        while let Some(pdu) = target.received.next_pdu(1 << 24, header, data).unwrap() {
            pdus.push(pdu);
        }
        pdus
    }

    /// Sends a PDU of the target; `uses_stat_sn` says whether it takes a number.
    fn answer<T: Bhs>(&mut self, connection: usize, header: T, data: &[u8], uses_stat_sn: bool) {
        let target = &mut self.targets[connection];
        let mut bytes: BhsBytes = *header.as_bhs_bytes();
        let common = ResponseBhs::view_mut(&mut bytes);
        common.stat_sn = target.stat_sn.into();
        if uses_stat_sn {
            target.stat_sn = target.stat_sn.next();
        }
        common.exp_cmd_sn = self.session.cmd_sn.into();
        common.max_cmd_sn = self.session.max_cmd_sn.into();
        let pdu = Pdu::new(&bytes, data.to_vec());
        let wire = pdu.to_bytes(self.parameters.header_digest, self.parameters.data_digest);
        // Cut in two, so that every test also tests that.
        let (head, tail) = wire.split_at(wire.len() / 3);
        self.session.handle_bytes(connection, head);
        self.session.handle_bytes(connection, tail);
    }

    fn respond(&mut self, itt: InitiatorTaskTag, status: u8, sense: &[u8]) {
        let mut header = ScsiResponseBhs::new();
        header.initiator_task_tag = itt.0.into();
        header.status = status;
        let mut data = Vec::new();
        if !sense.is_empty() {
            data.extend_from_slice(&u16::try_from(sense.len()).unwrap().to_be_bytes());
            data.extend_from_slice(sense);
        }
        self.answer(0, header, &data, true);
    }

    fn completion(&mut self) -> Completion {
        match self.session.poll_event() {
            Some(Event::Completed(done)) => done,
            other => panic!("{other:?} instead of a completion"),
        }
    }

    fn violation(&mut self) -> Option<TargetViolation> {
        std::iter::from_fn(|| self.session.poll_event()).find_map(|event| {
            if let Event::Failed { violation, .. } = event {
                Some(violation)
            } else {
                None
            }
        })
    }
}

fn command(tag: u64) -> Command {
    Command {
        tag,
        lun: LUN,
        cdb: [0; 16],
        extended_cdb: Vec::new(),
        attribute: TaskAttribute::Simple,
        write: None,
        read: ReadBuffer::None,
    }
}

fn read(tag: u64, length: usize) -> Command {
    Command {
        read: ReadBuffer::Into(vec![0xee; length]),
        ..command(tag)
    }
}

fn write(tag: u64, length: usize) -> Command {
    let data: Vec<u8> = (0..length)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    Command {
        write: Some(data.into()),
        ..command(tag)
    }
}

fn data_in(itt: InitiatorTaskTag, data_sn: u32, offset: u32, header_flags: u8) -> DataInBhs {
    let mut header = DataInBhs::new();
    header.flags = header_flags;
    header.initiator_task_tag = itt.0.into();
    header.target_transfer_tag = RESERVED_TAG.into();
    header.data_sn = data_sn.into();
    header.buffer_offset = offset.into();
    header
}

fn r2t(itt: InitiatorTaskTag, tag: u32, r2t_sn: u32, offset: u32, length: u32) -> R2tBhs {
    let mut header = R2tBhs::new();
    header.lun = LUN.into();
    header.initiator_task_tag = itt.0.into();
    header.target_transfer_tag = tag.into();
    header.r2t_sn = r2t_sn.into();
    header.buffer_offset = offset.into();
    header.desired_data_transfer_length = length.into();
    header
}

#[test]
fn a_command_without_data_lies_on_the_wire_as_the_standard_says() {
    let mut rig = Rig::plain();
    let mut long = command(7);
    long.cdb[0] = 0x7f;
    long.extended_cdb = vec![9; 16];
    let itt = rig.session.submit(long).unwrap();
    let pdus = rig.sent(0);
    let header = ScsiCommandBhs::view(&pdus[0].header);
    assert_eq!(pdus.len(), 1);
    assert_eq!(header.opcode, 0x01);
    assert_eq!(header.flags, flags::FINAL | 1);
    assert_eq!(header.lun.get(), LUN);
    assert_eq!(header.itt(), itt);
    assert_eq!(header.cmd_sn().0, 0xffff_fffe);
    assert_eq!(header.exp_stat_sn().0, 0xffff_ffff);
    assert_eq!(header.expected_data_transfer_length.get(), 0);
    assert_eq!(header.cdb[0], 0x7f);
    assert_eq!(pdus[0].ahs[..4], [0, 17, 1, 0]);
    rig.respond(itt, 2, b"sense");
    let done = rig.completion();
    assert_eq!((done.tag, done.outcome), (7, Outcome::Status(2)));
    assert_eq!(done.sense, b"sense");
    assert_eq!(rig.session.tasks(), 0);
}

#[test]
fn read_data_is_put_together_from_pdus_of_any_size_with_and_without_digests() {
    for digest in [false, true] {
        let connection = ConnectionParameters {
            header_digest: digest,
            data_digest: digest,
            ..ConnectionParameters::default()
        };
        let mut rig = Rig::new(parameters(), connection, 32);
        let itt = rig.session.submit(read(1, 1000)).unwrap();
        let pdus = rig.sent(0);
        let header = ScsiCommandBhs::view(&pdus[0].header);
        assert_eq!(header.flags, flags::FINAL | flags::READ | 1);
        assert_eq!(header.expected_data_transfer_length.get(), 1000);
        rig.answer(0, data_in(itt, 0, 0, 0), &[1; 513], false);
        rig.answer(0, data_in(itt, 1, 513, flags::FINAL), &[2; 87], false);
        let mut last = data_in(
            itt,
            2,
            600,
            flags::FINAL | flags::STATUS | flags::RESIDUAL_UNDERFLOW,
        );
        last.residual_count = 300.into();
        rig.answer(0, last, &[3; 100], true);
        let done = rig.completion();
        assert_eq!(done.outcome, Outcome::Status(0));
        assert_eq!(done.received_bytes, 700);
        assert_eq!(done.residual, Residual::Underflow(300));
        let wanted = [&[1; 513][..], &[2; 87], &[3; 100], &[0xee; 300]].concat();
        assert_eq!(done.read, ReadBuffer::Into(wanted));
    }
}

#[test]
fn discarded_data_is_counted_and_checked() {
    let mut rig = Rig::plain();
    let discard = Command {
        read: ReadBuffer::Discard { length_bytes: 512 },
        ..command(1)
    };
    let itt = rig.session.submit(discard).unwrap();
    rig.answer(
        0,
        data_in(itt, 0, 0, flags::FINAL | flags::STATUS),
        &[1; 512],
        true,
    );
    assert_eq!(rig.completion().received_bytes, 512);
    let itt = rig.session.submit(read(2, 512)).unwrap();
    rig.answer(
        0,
        data_in(itt, 0, 0, flags::FINAL | flags::STATUS),
        &[1; 511],
        true,
    );
    assert_eq!(
        rig.violation(),
        Some(TargetViolation::DataMissing {
            received: 511,
            residual: 0,
            expected: 512
        })
    );
}

/// What a write sends by itself, for each combination of the two keys.
#[test]
fn unsolicited_data_follows_the_negotiated_keys() {
    // InitialR2T, ImmediateData, length; immediate bytes, F bit of the command, unsolicited end.
    for (initial_r2t, immediate_data, length, immediate, is_final, end) in [
        (true, false, 100_000, 0, true, 0),
        (true, true, 100_000, 8192, true, 8192),
        (true, true, 100, 100, true, 100),
        (false, false, 100_000, 0, false, 20_000),
        (false, true, 100_000, 8192, false, 20_000),
        (false, true, 8192, 8192, true, 8192),
        (false, true, 8193, 8192, false, 8193),
        (false, false, 10, 0, false, 10),
    ] {
        let session = SessionParameters {
            initial_r2t,
            immediate_data,
            first_burst_length_bytes: 20_000,
            ..parameters()
        };
        let mut rig = Rig::new(session, ConnectionParameters::default(), 32);
        rig.session.submit(write(1, length)).unwrap();
        let pdus = rig.sent(0);
        let header = ScsiCommandBhs::view(&pdus[0].header);
        assert_eq!(header.is_final(), is_final);
        assert_eq!(pdus[0].data.len(), immediate);
        let mut next = immediate;
        for (data_sn, pdu) in (0_u32..).zip(&pdus[1..]) {
            let header = DataOutBhs::view(&pdu.header);
            assert_eq!(opcode(&pdu.header), Some(Opcode::DataOut));
            assert_eq!(header.target_transfer_tag.get(), RESERVED_TAG);
            assert_eq!(header.data_sn.get(), data_sn);
            assert_eq!(header.buffer_offset.get() as usize, next);
            assert!(pdu.data.len() <= 8192);
            next += pdu.data.len();
            assert_eq!(header.is_final(), next == end);
        }
        assert_eq!(
            next, end,
            "InitialR2T {initial_r2t}, ImmediateData {immediate_data}"
        );
    }
}

#[test]
fn several_r2ts_are_answered_each_with_its_own_sequence() {
    let session = SessionParameters {
        immediate_data: false,
        max_outstanding_r2t: 2,
        max_burst_length_bytes: 20_000,
        ..parameters()
    };
    let mut rig = Rig::new(session, ConnectionParameters::default(), 32);
    let itt = rig.session.submit(write(1, 30_000)).unwrap();
    assert_eq!(rig.sent(0).len(), 1);
    rig.answer(0, r2t(itt, 0x51, 0, 0, 20_000), b"", false);
    rig.answer(0, r2t(itt, 0x52, 1, 20_000, 10_000), b"", false);
    let pdus = rig.sent(0);
    let seen: Vec<_> = pdus
        .iter()
        .map(|pdu| {
            let header = DataOutBhs::view(&pdu.header);
            (
                header.target_transfer_tag.get(),
                header.data_sn.get(),
                header.buffer_offset.get(),
                pdu.data.len(),
                header.is_final(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0x51, 0, 0, 8192, false),
            (0x51, 1, 8192, 8192, false),
            (0x51, 2, 16384, 3616, true),
            (0x52, 0, 20_000, 8192, false),
            (0x52, 1, 28_192, 1808, true),
        ]
    );
    let whole: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.data.clone()).collect();
    let mut header = ScsiResponseBhs::new();
    header.initiator_task_tag = itt.0.into();
    header.exp_data_sn = 2.into();
    rig.answer(0, header, b"", true);
    let done = rig.completion();
    assert_eq!(done.outcome, Outcome::Status(0));
    assert_eq!(done.write.as_deref(), Some(&whole[..]));
}

#[test]
fn output_stops_at_the_budget_and_goes_on_later() {
    let session = SessionParameters {
        initial_r2t: false,
        ..parameters()
    };
    let mut rig = Rig::new(session, ConnectionParameters::default(), 32);
    rig.session.submit(write(1, 60_000)).unwrap();
    let mut whole = Vec::new();
    let mut turns = 0;
    while rig.session.has_output(0) {
        let mut out = Vec::new();
        rig.session.transmit(0, &mut out, 10_000);
        assert!(out.len() <= 10_000 + 8192 + 48);
        whole.extend_from_slice(&out);
        turns += 1;
    }
    assert!(turns > 3);
    assert_eq!(whole.len(), 60_000 + 8 * 48);
}

#[test]
fn commands_wait_for_the_window_and_leave_in_order() {
    let mut rig = Rig::new(parameters(), ConnectionParameters::default(), 2);
    let tags: Vec<_> = (0..4)
        .map(|tag| rig.session.submit(command(tag)).unwrap())
        .collect();
    assert_eq!(rig.sent(0).len(), 2);
    // The window opens by two with the first response.
    let mut header = ScsiResponseBhs::new();
    header.initiator_task_tag = tags[0].0.into();
    header.stamp(SerialNumber(0xffff_ffff), SerialNumber(0), SerialNumber(1));
    let wire = Pdu::new(header.as_bhs_bytes(), Vec::new()).to_bytes(false, false);
    rig.session.handle_bytes(0, &wire);
    let numbers: Vec<u32> = rig
        .sent(0)
        .iter()
        .map(|pdu| ScsiCommandBhs::view(&pdu.header).cmd_sn().0)
        .collect();
    assert_eq!(numbers, [0, 1]);
    assert_eq!(rig.completion().tag, 0);
}

#[test]
fn a_window_that_contradicts_itself_or_goes_back_is_ignored() {
    let mut rig = Rig::new(parameters(), ConnectionParameters::default(), 4);
    let window = |session: &Session| (session.exp_cmd_sn.0, session.max_cmd_sn.0);
    let before = window(&rig.session);
    assert_eq!(before, (0xffff_fffe, 1));
    for (exp, max) in [
        (0xffff_fffe, 0xffff_fffc),
        (0xffff_fffe, 0),
        (0, 0xffff_ffff),
        (9, 1),
    ] {
        rig.session
            .take_window(SerialNumber(exp), SerialNumber(max));
        assert_eq!(window(&rig.session), before, "{exp:#x} {max:#x}");
    }
    rig.session
        .take_window(SerialNumber(0xffff_fffe), SerialNumber(5));
    assert_eq!(window(&rig.session), (0xffff_fffe, 5));
}

#[test]
fn two_connections_share_one_order_of_commands() {
    let mut rig = Rig::plain();
    let login = EstablishedInitiator {
        exp_stat_sn: SerialNumber(50),
        ..Rig::login(parameters(), ConnectionParameters::default(), 32)
    };
    assert_eq!(rig.session.add_connection(&login, Cid(2)), 1);
    rig.targets.push(FakeTarget {
        received: PduBuffer::new(),
        stat_sn: SerialNumber(50),
    });
    for tag in 0..4 {
        rig.session.submit(command(tag)).unwrap();
    }
    let number = |pdu: &Pdu| ScsiCommandBhs::view(&pdu.header).cmd_sn().0;
    let first: Vec<u32> = rig.sent(0).iter().map(number).collect();
    let second: Vec<u32> = rig.sent(1).iter().map(number).collect();
    assert_eq!(
        (first, second),
        (vec![0xffff_fffe, 0], vec![0xffff_ffff, 1])
    );
    // Losing one loses its tasks and no others.
    rig.session.connection_lost(1);
    let lost: Vec<u64> = std::iter::from_fn(|| rig.session.poll_event())
        .map(|event| {
            let Event::Completed(done) = event else {
                panic!("{event:?} instead of a completion");
            };
            assert_eq!(done.outcome, Outcome::ConnectionLost);
            done.tag
        })
        .collect();
    assert_eq!(lost, [1, 3]);
    assert!(rig.session.is_alive());
    assert_eq!(rig.session.tasks(), 2);
}

#[test]
fn pings_are_answered_both_ways() {
    let mut rig = Rig::plain();
    rig.session.ping(0, 77, b"hello".to_vec()).unwrap();
    let pdus = rig.sent(0);
    let header = NopOutBhs::view(&pdus[0].header);
    assert!(header.is_immediate());
    assert_eq!(header.target_transfer_tag.get(), RESERVED_TAG);
    let mut answer = NopInBhs::new();
    answer.initiator_task_tag = header.initiator_task_tag;
    answer.target_transfer_tag = RESERVED_TAG.into();
    rig.answer(0, answer, b"hello", true);
    assert!(matches!(
        rig.session.poll_event(),
        Some(Event::Pong { tag: 77, data }) if data == b"hello"
    ));

    let mut ping = NopInBhs::new();
    ping.lun = LUN.into();
    ping.initiator_task_tag = RESERVED_TAG.into();
    ping.target_transfer_tag = 5.into();
    rig.answer(0, ping, b"", false);
    let pdus = rig.sent(0);
    let header = NopOutBhs::view(&pdus[0].header);
    assert!(header.is_immediate());
    assert!(header.itt().is_reserved());
    assert_eq!(
        (header.target_transfer_tag.get(), header.lun.get()),
        (5, LUN)
    );
    // A ping that wants no answer gets none.
    ping.target_transfer_tag = RESERVED_TAG.into();
    rig.answer(0, ping, b"", false);
    assert!(rig.sent(0).is_empty());
}

#[test]
fn a_storm_of_pings_ends_the_connection() {
    let mut rig = Rig::plain();
    let mut ping = NopInBhs::new();
    ping.initiator_task_tag = RESERVED_TAG.into();
    ping.target_transfer_tag = 5.into();
    for _ in 0..crate::limits::PINGS_PENDING_MAX {
        rig.answer(0, ping, b"", false);
    }
    assert_eq!(rig.violation(), None);
    rig.answer(0, ping, b"", false);
    assert!(matches!(
        rig.violation(),
        Some(TargetViolation::TooManyPings { .. })
    ));
    assert!(!rig.session.is_alive());
}

#[test]
fn task_management_ends_the_tasks_it_covers_and_no_others() {
    use TaskManagementFunction::{AbortTask, LogicalUnitReset, QueryTask, TargetWarmReset};
    for (function, ended) in [
        (AbortTask, vec![0]),
        (LogicalUnitReset, vec![0, 1]),
        (TargetWarmReset, vec![0, 1, 2]),
        (QueryTask, vec![]),
    ] {
        let mut rig = Rig::plain();
        let first = rig.session.submit(command(0)).unwrap();
        rig.session.submit(command(1)).unwrap();
        rig.session
            .submit(Command {
                lun: 0,
                ..command(2)
            })
            .unwrap();
        let management = Management {
            function,
            lun: LUN,
            task: Some(first),
        };
        rig.session.manage(0, 99, management).unwrap();
        // Sent after the function: not covered.
        rig.session.submit(command(3)).unwrap();
        let pdus = rig.sent(0);
        let header = TaskManagementRequestBhs::view(&pdus[3].header);
        assert_eq!(header.function_bits(), function.code());
        assert!(header.is_immediate());
        if function == AbortTask {
            assert_eq!(header.referenced_task_tag.get(), first.0);
            assert_eq!(header.ref_cmd_sn.get(), 0xffff_fffe);
        }
        let mut answer = TaskManagementResponseBhs::new();
        answer.initiator_task_tag = header.initiator_task_tag;
        rig.answer(0, answer, b"", true);
        for tag in ended {
            let done = rig.completion();
            assert_eq!((done.tag, done.outcome), (tag, Outcome::Aborted));
        }
        assert!(matches!(
            rig.session.poll_event(),
            Some(Event::ManagementDone {
                tag: 99,
                response: Some(TaskManagementResponse::Complete)
            })
        ));
    }
}

#[test]
fn a_command_not_sent_yet_is_aborted_without_a_word() {
    let mut rig = Rig::new(parameters(), ConnectionParameters::default(), 1);
    rig.session.submit(command(0)).unwrap();
    let waiting = rig.session.submit(command(1)).unwrap();
    assert_eq!(rig.sent(0).len(), 1);
    let function = TaskManagementFunction::AbortTask;
    let management = Management {
        function,
        lun: LUN,
        task: Some(waiting),
    };
    rig.session.manage(0, 9, management).unwrap();
    assert_eq!(rig.completion().outcome, Outcome::Aborted);
    assert!(rig.sent(0).is_empty());
    // Nothing of it is left, or a window that stays shut would let a list grow.
    assert!(rig.session.waiting.is_empty());
}

#[test]
fn a_text_answer_is_asked_for_until_it_ends() {
    let mut rig = Rig::plain();
    rig.session
        .text(0, 5, b"SendTargets=All\0".to_vec())
        .unwrap();
    let itt = TextRequestBhs::view(&rig.sent(0)[0].header).initiator_task_tag;
    let mut answer = TextResponseBhs::new();
    answer.flags = flags::CONTINUE;
    answer.initiator_task_tag = itt;
    answer.target_transfer_tag = 0x33.into();
    rig.answer(0, answer, b"TargetName=iqn.2001-04.com", true);
    let pdus = rig.sent(0);
    let header = TextRequestBhs::view(&pdus[0].header);
    assert_eq!(
        (header.target_transfer_tag.get(), pdus[0].data.len()),
        (0x33, 0)
    );
    assert!(header.is_final());
    answer.flags = flags::FINAL;
    answer.target_transfer_tag = RESERVED_TAG.into();
    rig.answer(0, answer, b".example:a\0", true);
    let Some(Event::Text { tag: 5, text }) = rig.session.poll_event() else {
        panic!("no text");
    };
    assert_eq!(text, b"TargetName=iqn.2001-04.com.example:a\0");
}

#[test]
fn logout_async_messages_and_rejects_are_told() {
    let mut rig = Rig::plain();
    rig.session
        .logout(0, 3, LogoutReason::CloseConnection, 0)
        .unwrap();
    let pdus = rig.sent(0);
    let header = LogoutRequestBhs::view(&pdus[0].header);
    assert_eq!((header.reason_bits(), header.cid.get()), (1, 1));
    let mut answer = LogoutResponseBhs::new();
    answer.initiator_task_tag = header.initiator_task_tag;
    rig.answer(0, answer, b"", true);
    assert!(matches!(
        rig.session.poll_event(),
        Some(Event::LoggedOut {
            tag: 3,
            response: Some(LogoutResponseCode::Success)
        })
    ));

    let mut message = AsyncMessageBhs::new();
    message.initiator_task_tag = RESERVED_TAG.into();
    message.async_event = AsyncEvent::LogoutRequest.code();
    message.parameter3 = 10.into();
    rig.answer(0, message, b"", true);
    assert!(matches!(
        rig.session.poll_event(),
        Some(Event::Async {
            notice: AsyncNotice {
                parameters: [0, 0, 10],
                ..
            },
            ..
        })
    ));

    let itt = rig.session.submit(command(4)).unwrap();
    let rejected = rig.sent(0)[0].header;
    assert_eq!(RequestBhs::view(&rejected).itt(), itt);
    let mut reject = RejectBhs::new();
    reject.initiator_task_tag = RESERVED_TAG.into();
    reject.reason = 9;
    rig.answer(0, reject, &rejected, true);
    assert_eq!(rig.completion().outcome, Outcome::Rejected(9));
    // The same once more concerns nothing under way.
    rig.answer(0, reject, &rejected, true);
    assert!(matches!(
        rig.session.poll_event(),
        Some(Event::Rejected {
            reason: 9,
            tag: None,
            ..
        })
    ));
}

#[test]
fn a_full_table_hands_the_command_back() {
    let login = Rig::login(parameters(), ConnectionParameters::default(), 8);
    let mut session = Session::new(&login, Cid(1), 2);
    session.submit(command(1)).unwrap();
    session.submit(command(2)).unwrap();
    let (error, command) = session.submit(command(3)).unwrap_err();
    assert_eq!(error, SubmitError::Full { limit: 2 });
    assert_eq!(command.tag, 3);
    assert_eq!(
        session.ping(0, 1, Vec::new()),
        Err(SubmitError::Full { limit: 2 })
    );
    assert_eq!(
        session.ping(1, 1, Vec::new()),
        Err(SubmitError::NoConnection { connection: 1 })
    );
}

#[test]
fn a_tag_of_the_past_names_nothing() {
    let mut rig = Rig::plain();
    let old = rig.session.submit(command(1)).unwrap();
    rig.respond(old, 0, b"");
    rig.completion();
    let new = rig.session.submit(command(2)).unwrap();
    assert_ne!(old, new);
    rig.respond(old, 0, b"");
    assert!(matches!(
        rig.violation(),
        Some(TargetViolation::UnknownTask { .. })
    ));
}
