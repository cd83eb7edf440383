//! A session with bytes in and bytes out.
//!
//! What comes out is compared as short stories: one string per event or PDU, with the fields that
//! matter in them ([`Rig::events`], [`Rig::answers`]).

mod additional_headers;
mod data_in;
mod data_out;
mod digest;
mod direct;
mod faults;
mod hold;
mod management;
mod memory;
mod ping;
mod request;
mod status;
mod window;

use std::rc::Rc;
use std::slice;

use ::memory::{Message, Pool};

use super::*;
use crate::digest::{data_digest, header_digest};
use crate::discovery::TargetRecord;
use crate::framing::PduBuffer;
use crate::negotiate::{Negotiation, OperationalPreferences, Phase, Role, SessionType};
use crate::pdu::{
    AsyncMessageBhs, Bhs, BhsBytes, DataInBhs, DataOutBhs, LogoutRequestBhs, LogoutResponseBhs,
    NopInBhs, NopOutBhs, Opcode, R2tBhs, RESERVED_TAG, RejectBhs, RequestBhs, ResponseBhs,
    ScsiCommandBhs, ScsiResponseBhs, TaskManagementRequestBhs, TaskManagementResponseBhs,
    TextRequestBhs, TextResponseBhs, U24, flags, opcode, padded_length,
};

const OWN_NAME: &str = "iqn.2026-11.example.tarn:demo";

/// One connection, eight commands deep, everything else as RFC 7143 has it by default.
fn config() -> SessionConfig {
    let own = OperationalPreferences::default();
    let negotiation = Negotiation::new(Role::Target, Phase::LeadingLogin, SessionType::Normal, own);
    let mut parameters = negotiation.session_parameters();
    parameters.initial_r2t = true;
    parameters.immediate_data = true;
    parameters.max_burst_length_bytes = 262_144;
    parameters.first_burst_length_bytes = 65_536;
    parameters.max_outstanding_r2t = 1;
    SessionConfig {
        is_discovery: false,
        parameters,
        exp_cmd_sn: SerialNumber(1),
        queue_depth: 8,
        text: TextRecords::for_target(TargetRecord {
            name: OWN_NAME.to_owned(),
            addresses: vec!["192.0.2.1:3260,1".to_owned()],
        }),
        nop_interval: None,
        nop_timeout: Duration::from_secs(5),
        hold: HoldLimits::default(),
    }
}

/// The same, with bursts that small tests can fill.
fn config_of_bursts(first_bytes: u32, max_bytes: u32) -> SessionConfig {
    let mut config = config();
    config.parameters.first_burst_length_bytes = first_bytes;
    config.parameters.max_burst_length_bytes = max_bytes;
    config
}

fn discovery() -> SessionConfig {
    let record = TargetRecord {
        name: OWN_NAME.to_owned(),
        addresses: vec!["192.0.2.1:3260,1".to_owned()],
    };
    let text = TextRecords::for_discovery(vec![record]);
    SessionConfig {
        is_discovery: true,
        text,
        ..config()
    }
}

fn connection(cid: u16) -> ConnectionConfig {
    ConnectionConfig {
        cid: Cid(cid),
        parameters: ConnectionParameters::default(),
        stat_sn: SerialNumber(100),
    }
}

/// A PDU of either side.
#[derive(Clone, Debug)]
struct Pdu {
    bhs: BhsBytes,
    ahs: Vec<u8>,
    data: Vec<u8>,
}

impl Pdu {
    fn new(header: &impl Bhs) -> Self {
        Self {
            bhs: *header.as_bhs_bytes(),
            ahs: Vec::new(),
            data: Vec::new(),
        }
    }

    fn with_data(mut self, data: &[u8]) -> Self {
        let length = u32::try_from(data.len()).unwrap();
        RequestBhs::view_mut(&mut self.bhs).data_segment_length = U24::new(length).unwrap();
        self.data = data.to_vec();
        self
    }

    fn with_ahs(mut self, ahs: &[u8]) -> Self {
        assert_eq!(ahs.len() % 4, 0);
        self.bhs[4] = u8::try_from(ahs.len() / 4).unwrap();
        self.ahs = ahs.to_vec();
        self
    }

    fn immediate(mut self) -> Self {
        self.bhs[0] |= flags::IMMEDIATE;
        self
    }

    fn not_final(mut self) -> Self {
        self.bhs[1] &= !flags::FINAL;
        self
    }

    fn view<T: Bhs>(&self) -> &T {
        T::view(&self.bhs)
    }

    fn to_wire(&self, header: bool, data: bool) -> Vec<u8> {
        let mut bytes = self.bhs.to_vec();
        bytes.extend_from_slice(&self.ahs);
        if header {
            bytes.extend_from_slice(&header_digest(&self.bhs, &self.ahs));
        }
        bytes.extend_from_slice(&self.data);
        bytes.resize(
            bytes.len() + padded_length(self.data.len()) - self.data.len(),
            0,
        );
        if data && !self.data.is_empty() {
            bytes.extend_from_slice(&data_digest(&self.data));
        }
        bytes
    }

    /// What a target's PDU says.
    fn story(&self) -> String {
        let common: &ResponseBhs = self.view();
        let tag = common.initiator_task_tag.get();
        let is_final = if common.flags & flags::FINAL == 0 {
            ""
        } else {
            " F"
        };
        match opcode(&self.bhs).unwrap() {
            Opcode::DataIn => {
                let bhs: &DataInBhs = self.view();
                let status = if bhs.has_status() { "S" } else { "" };
                let (sn, offset) = (bhs.data_sn.get(), bhs.buffer_offset.get());
                format!("in {sn} {offset}+{}{is_final}{status}", self.data.len())
            }
            Opcode::R2t => {
                let bhs: &R2tBhs = self.view();
                let length = bhs.desired_data_transfer_length.get();
                format!(
                    "r2t {tag} {} {}+{length}",
                    bhs.r2t_sn.get(),
                    bhs.buffer_offset.get()
                )
            }
            Opcode::ScsiResponse => {
                format!(
                    "response {tag} {:02x}",
                    self.view::<ScsiResponseBhs>().status
                )
            }
            Opcode::Reject => format!("reject {:02x}", self.view::<RejectBhs>().reason),
            Opcode::TaskManagementResponse => {
                let response = self.view::<TaskManagementResponseBhs>().response;
                format!("management {tag} {response}")
            }
            Opcode::NopIn => format!("nop {tag:x}"),
            Opcode::TextResponse => format!("text {tag}{is_final}"),
            Opcode::LogoutResponse => {
                format!("logout {tag} {}", self.view::<LogoutResponseBhs>().response)
            }
            Opcode::AsyncMessage => {
                let bhs: &AsyncMessageBhs = self.view();
                format!("async {} {}", bhs.async_event, bhs.parameter3.get())
            }
            other @ (Opcode::NopOut
            | Opcode::ScsiCommand
            | Opcode::TaskManagementRequest
            | Opcode::LoginRequest
            | Opcode::TextRequest
            | Opcode::DataOut
            | Opcode::LogoutRequest
            | Opcode::Snack
            | Opcode::LoginResponse) => panic!("a session does not send {other:?}"),
        }
    }
}

fn command(tag: u32, cmd_sn: u32) -> Pdu {
    let mut bhs = ScsiCommandBhs::new();
    bhs.flags = flags::FINAL | 1;
    bhs.initiator_task_tag = tag.into();
    bhs.cmd_sn = cmd_sn.into();
    Pdu::new(&bhs)
}

fn read(tag: u32, cmd_sn: u32, length: u32) -> Pdu {
    let mut pdu = command(tag, cmd_sn);
    let bhs = ScsiCommandBhs::view_mut(&mut pdu.bhs);
    bhs.flags |= flags::READ;
    bhs.expected_data_transfer_length = length.into();
    pdu
}

fn write(tag: u32, cmd_sn: u32, length: u32) -> Pdu {
    let mut pdu = command(tag, cmd_sn);
    let bhs = ScsiCommandBhs::view_mut(&mut pdu.bhs);
    bhs.flags |= flags::WRITE;
    bhs.expected_data_transfer_length = length.into();
    pdu
}

/// Data-Out; the last of its sequence unless made `not_final`.
fn data_out(tag: u32, transfer: u32, data_sn: u32, offset: usize, data: &[u8]) -> Pdu {
    let mut bhs = DataOutBhs::new();
    bhs.flags = flags::FINAL;
    bhs.initiator_task_tag = tag.into();
    bhs.target_transfer_tag = transfer.into();
    bhs.data_sn = data_sn.into();
    bhs.buffer_offset = u32::try_from(offset).unwrap().into();
    Pdu::new(&bhs).with_data(data)
}

fn nop(tag: u32, cmd_sn: u32) -> Pdu {
    let mut bhs = NopOutBhs::new();
    bhs.initiator_task_tag = tag.into();
    bhs.target_transfer_tag = RESERVED_TAG.into();
    bhs.cmd_sn = cmd_sn.into();
    Pdu::new(&bhs)
}

/// An immediate task management request with this function.
fn management(function: u8, tag: u32, cmd_sn: u32, referenced: u32, ref_cmd_sn: u32) -> Pdu {
    let mut bhs = TaskManagementRequestBhs::new();
    bhs.flags |= function;
    bhs.initiator_task_tag = tag.into();
    bhs.cmd_sn = cmd_sn.into();
    bhs.referenced_task_tag = referenced.into();
    bhs.ref_cmd_sn = ref_cmd_sn.into();
    Pdu::new(&bhs).immediate()
}

fn text(tag: u32, cmd_sn: u32, keys: &str) -> Pdu {
    let mut bhs = TextRequestBhs::new();
    bhs.initiator_task_tag = tag.into();
    bhs.target_transfer_tag = RESERVED_TAG.into();
    bhs.cmd_sn = cmd_sn.into();
    Pdu::new(&bhs).with_data(keys.as_bytes())
}

fn logout(tag: u32, cmd_sn: u32, reason: u8, cid: u16) -> Pdu {
    let mut bhs = LogoutRequestBhs::new();
    bhs.flags |= reason;
    bhs.initiator_task_tag = tag.into();
    bhs.cmd_sn = cmd_sn.into();
    bhs.cid = cid.into();
    Pdu::new(&bhs)
}

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| u8::try_from(n * 7 % 251).unwrap())
        .collect()
}

/// A session and what its owner has beside it.
struct Rig {
    session: Session,
    /// For the session.
    pool: Pool,
    /// For what is received.
    wire: Pool,
    now: Duration,
    /// Bytes go in by so many at a time.
    step: usize,
    /// Of each connection: header and data.
    digests: Vec<(bool, bool)>,
}

impl Rig {
    fn new(config: SessionConfig) -> Self {
        Self::with_connections(config, &[connection(1)])
    }

    fn with_connections(config: SessionConfig, connections: &[ConnectionConfig]) -> Self {
        let mut rig = Self {
            session: Session::new(config),
            pool: Pool::new(0).unwrap(),
            wire: Pool::new(0).unwrap(),
            now: Duration::ZERO,
            step: usize::MAX,
            digests: Vec::new(),
        };
        for (index, connection) in connections.iter().enumerate() {
            assert_eq!(rig.session.add_connection(connection, rig.now), index);
            let parameters = &connection.parameters;
            rig.digests
                .push((parameters.header_digest, parameters.data_digest));
        }
        rig
    }

    fn feed(&mut self, connection: usize, bytes: &[u8]) -> Result<(), Violation> {
        for piece in bytes.chunks(self.step.min(1 << 20)) {
            let mut chunk = self.wire.allocate(piece.len()).unwrap();
            chunk.copy_from_slice(piece);
            let chunk = Rc::new(chunk);
            self.session
                .handle_chunk(connection, &chunk, &self.pool, self.now)?;
        }
        Ok(())
    }

    /// Sends PDUs and gives what happened.
    #[track_caller]
    fn send(&mut self, connection: usize, pdus: &[Pdu]) -> Vec<Event> {
        let (header, data) = self.digests[connection];
        let wire: Vec<u8> = pdus
            .iter()
            .flat_map(|pdu| pdu.to_wire(header, data))
            .collect();
        self.feed(connection, &wire).unwrap();
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// The same, as a story.
    #[track_caller]
    fn events(&mut self, connection: usize, pdus: &[Pdu]) -> Vec<String> {
        let events = self.send(connection, pdus);
        events.iter().map(|event| self.story(event)).collect()
    }

    /// Sends a command that is delivered at once.
    #[track_caller]
    fn start(&mut self, connection: usize, pdu: Pdu) -> TaskId {
        match &self.send(connection, &[pdu])[..] {
            [Event::Command(id, _)] => *id,
            other => panic!("{other:?}"),
        }
    }

    /// What waits to be sent on a connection, digests checked.
    #[track_caller]
    fn output(&mut self, connection: usize) -> Vec<Pdu> {
        let message = self.session.take_message(connection, Message::default());
        let (header, data) = self.digests[connection];
        let mut stream = PduBuffer::new();
        stream.push(&message.to_vec());
        let mut pdus = Vec::new();
        while let Some(pdu) = stream.next_pdu(1 << 24, header, data).unwrap() {
            pdus.push(Pdu {
                bhs: pdu.header,
                ahs: Vec::new(),
                data: pdu.data,
            });
        }
        pdus
    }

    /// The same, as a story.
    #[track_caller]
    fn answers(&mut self, connection: usize) -> Vec<String> {
        self.output(connection).iter().map(Pdu::story).collect()
    }

    fn good(&mut self, id: TaskId) {
        self.answer(id, Payload::Empty, 0);
    }

    fn answer(&mut self, id: TaskId, data: Payload, transfer_length: u64) {
        let response = Response {
            status: 0,
            sense: &[],
            data,
            transfer_length,
        };
        assert!(self.session.respond(id, response).is_some());
    }

    fn story(&self, event: &Event) -> String {
        match event {
            Event::Command(id, _) => format!("command {}", self.session.tag_of(*id)),
            Event::DataOut(id, data) => {
                format!("data {} {}", self.session.tag_of(*id), data.len())
            }
            Event::DataFault(id, fault) => {
                format!("fault {} {fault:?}", self.session.tag_of(*id))
            }
            Event::TaskManagement(event) => {
                let ManagementEvent { id, function, .. } = event;
                format!("{function:?} {}", id.initiator_task_tag)
            }
            Event::Logout(event) => format!("logout {:?}", event.closing),
            Event::PeerSilent { connection } => format!("silent {connection}"),
            Event::Broken { connection } => format!("broken {connection}"),
            Event::Violation { violation, .. } => {
                let whole = format!("{violation:?}");
                let name = whole.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                name.to_owned()
            }
        }
    }

    /// The session is in order: a ping is answered.
    #[track_caller]
    fn assert_alive(&mut self, connection: usize) {
        let sn = self.session.window().0.0;
        assert_eq!(
            self.events(connection, &[nop(0x77, sn).immediate()]),
            [""; 0]
        );
        assert_eq!(
            self.answers(connection).last().map(String::as_str),
            Some("nop 77")
        );
    }
}
