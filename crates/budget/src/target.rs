//! A target with one session, one unit and a disk in memory: the least that leads a command from
//! its PDU to its answer. In the shape of crate `target`, without its tables and its reactor.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use iscsi::SerialNumber;
use iscsi::discovery::TextRecords;
use iscsi::negotiate::{
    ConnectionParameters, Negotiation, OperationalPreferences, Phase, Role, SessionParameters,
    SessionType,
};
use iscsi::pdu::Cid;
use iscsi::target::{
    Command, ConnectionConfig, Event, HoldLimits, Receive, Response, Session, SessionConfig, TaskId,
};
use memory::{Message, Payload, Pool};
use scsi::{
    Identity, Input, Limits, LogicalUnit, Lun, Nexus, NexusId, NexusSlot, Outcome, Owner, PortName,
    Principal, Profile, Status, Step, TargetPort, Task,
};
use store::{Backstore, IoRequest, IoTag, MemoryDisk, SharedStore, Submitted};

use crate::arrival::{Arrival, Turn};
use crate::row::{BLOCK_BYTES, DISK_BYTES, FIRST_CMD_SN, Row, pattern};
use crate::tap::Tap;

/// What Tarn offers and accepts when nothing else is configured.
const BURST_MAX_BYTES: u32 = 1024 * 1024;
const SEGMENT_MAX_BYTES: u32 = 1024 * 1024;
/// What initiators accept.
const PEER_SEGMENT_MAX_BYTES: u32 = 256 * 1024;
const QUEUE_DEPTH: u32 = 128;
const POOL_BYTES: usize = 256 * 1024 * 1024;
/// How much room an emptied message keeps, as in crate `target`.
const MESSAGE_ROOM_BYTES: usize = 128 * 1024;

/// The only connection of the session.
const CONNECTION: usize = 0;
/// No time passes.
const NOW: Duration = Duration::ZERO;
/// No command waits for the store, so none needs a name of its own there.
const TAG: IoTag = IoTag(0);

/// The target and its one session.
#[derive(Debug)]
pub(crate) struct Target {
    session: Session,
    pool: Pool,
    view: LogicalUnit,
    nexus: NexusSlot,
    store: Box<dyn Backstore>,
    luns: [Lun; 1],
    /// Tasks whose data has not come.
    waiting: Vec<(TaskId, Task)>,
    /// An emptied message, kept for its room.
    spare: Message,
    tap: Option<Tap>,
    good_commands: u32,
}

impl Target {
    /// A target whose initiator has just logged in, and whose disk was written in full.
    pub(crate) fn new(row: &Row) -> Result<Self> {
        let disk = MemoryDisk::new(u64::from(DISK_BYTES), BLOCK_BYTES, false, true)?;
        let mut store = disk.handle()?;
        fill(store.as_mut())?;
        let owner = Owner::new(profile(&disk), None)
            .map_err(|error| anyhow!("the unit does not start: {error:?}"))?;
        let mut view = LogicalUnit::new(Arc::clone(owner.profile()), Arc::clone(owner.shared()));
        let nexus = view.attach(initiator(), None);
        Ok(Self {
            session: session(row.has_digests),
            pool: Pool::new(POOL_BYTES)?,
            view,
            nexus,
            store,
            luns: [Lun::new(0).ok_or_else(|| anyhow!("LUN 0 has no address"))?],
            waiting: Vec::new(),
            spare: Message::default(),
            tap: row.is_traced.then(Tap::new),
            good_commands: 0,
        })
    }

    /// How many commands were answered with GOOD.
    pub(crate) const fn good_commands(&self) -> u32 {
        self.good_commands
    }

    /// Takes what arrives, and sends what became ready in one message.
    pub(crate) fn turn(&mut self, turn: &Turn) -> Result<()> {
        for arrival in turn {
            self.receive(arrival)?;
            while let Some(event) = self.session.poll_event() {
                self.handle_event(event)?;
            }
        }
        let spare = std::mem::take(&mut self.spare);
        let mut message = self.session.take_message(CONNECTION, spare);
        ensure!(!message.is_empty(), "nothing to send after a turn");
        if let Some(tap) = &mut self.tap {
            tap.send(&message);
        }
        message.clear(MESSAGE_ROOM_BYTES);
        self.spare = message;
        Ok(())
    }

    fn receive(&mut self, arrival: &Arrival) -> Result<()> {
        let wanted = self.session.poll_receive(CONNECTION);
        match (arrival, wanted) {
            (Arrival::Chunk(chunk), Receive::Chunk { limit_bytes })
                if chunk.len() <= limit_bytes =>
            {
                if let Some(tap) = &mut self.tap {
                    tap.receive(chunk);
                }
                self.session
                    .handle_chunk(CONNECTION, chunk, &self.pool, NOW)?;
            }
            (&Arrival::Exact(len), Receive::Exact { buffer, range }) if range.len() == len => {
                self.session
                    .handle_exact(CONNECTION, buffer, len, &self.pool, NOW)?;
            }
            (arrival, wanted) => bail!("{arrival:?} arrives, wanted is {wanted:?}"),
        }
        Ok(())
    }

    fn handle_event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Command(id, command) => {
                let (task, step) = self.start(&command);
                self.drive(id, task, step)
            }
            Event::DataOut(id, data) => {
                let place = self.waiting.iter().position(|(waiting, _)| *waiting == id);
                let place = place.ok_or_else(|| anyhow!("data for {id:?}, which does not wait"))?;
                let (_, mut task) = self.waiting.swap_remove(place);
                let step = self.view.resume(&mut task, Input::DataOut(data));
                self.drive(id, task, step)
            }
            event @ (Event::DataFault(..)
            | Event::TaskManagement(_)
            | Event::Logout(_)
            | Event::PeerSilent { .. }
            | Event::Broken { .. }
            | Event::Violation { .. }) => bail!("the script leads to {event:?}"),
        }
    }

    fn start(&mut self, command: &Command) -> (Task, Step) {
        let command = scsi::Command {
            cdb: &command.cdb,
            data_out_length: command.data_out_length,
            data_in_length: command.data_in_length,
            luns: &self.luns,
        };
        self.view.start(self.nexus, &command)
    }

    /// Carries a task on until it waits for data or is over.
    fn drive(&mut self, id: TaskId, mut task: Task, mut step: Step) -> Result<()> {
        loop {
            let input = match step {
                Step::DataOut { length } => {
                    match self.session.request_data(id, length, &self.pool) {
                        Some(data) => Input::DataOut(data),
                        None => {
                            self.waiting.push((id, task));
                            return Ok(());
                        }
                    }
                }
                Step::Io(request) => match self.store.submit(TAG, request) {
                    Submitted::Done(result) => Input::Io(result),
                    submitted @ (Submitted::Ring(_)
                    | Submitted::Helper(_)
                    | Submitted::Pending
                    | Submitted::Full(_)) => bail!("the store takes its time: {submitted:?}"),
                },
                Step::Done(outcome) => return self.finish(id, outcome),
                step @ (Step::Owner(_) | Step::Fence(_)) => bail!("the script leads to {step:?}"),
            };
            step = self.view.resume(&mut task, input);
        }
    }

    /// Data that others may write is copied before it is digested.
    fn finish(&mut self, id: TaskId, outcome: Outcome) -> Result<()> {
        let is_shared = matches!(outcome.data, Payload::Mapped(_));
        let data = if is_shared && self.session.needs_stable_data(id) {
            let buffer = self.pool.allocate(outcome.data.len());
            let mut buffer = buffer.map_err(|_| anyhow!("no buffer for an answer"))?;
            outcome.data.copy_to(0, &mut buffer);
            Payload::Pool(buffer)
        } else {
            outcome.data
        };
        ensure!(
            outcome.status == Status::Good,
            "a command ends in {:?} {:?}",
            outcome.status,
            outcome.sense
        );
        self.good_commands += 1;
        let response = Response {
            status: outcome.status as u8,
            sense: &[],
            data,
            transfer_length: outcome.transfer_length,
        };
        let connection = self.session.respond(id, response);
        ensure!(
            connection == Some(CONNECTION),
            "no connection for an answer"
        );
        Ok(())
    }
}

/// Writes the whole disk, as a disk in use was: what was never written is read another way.
fn fill(store: &mut dyn Backstore) -> Result<()> {
    let data = Payload::Heap(pattern(DISK_BYTES));
    let request = IoRequest::Write {
        offset: 0,
        data,
        durable: false,
    };
    match store.submit(TAG, request) {
        // The helper would put huge pages under it, which changes no count.
        Submitted::Done(Ok(_)) | Submitted::Helper(_) => Ok(()),
        submitted @ (Submitted::Done(Err(_))
        | Submitted::Ring(_)
        | Submitted::Pending
        | Submitted::Full(_)) => bail!("the disk cannot be filled: {submitted:?}"),
    }
}

/// A session with one connection, as a login with today's initiators leaves it.
fn session(has_digests: bool) -> Session {
    let negotiation = Negotiation::new(
        Role::Target,
        Phase::LeadingLogin,
        SessionType::Normal,
        OperationalPreferences::default(),
    );
    let parameters = SessionParameters {
        initial_r2t: false,
        immediate_data: true,
        max_burst_length_bytes: BURST_MAX_BYTES,
        ..negotiation.session_parameters()
    };
    let mut session = Session::new(SessionConfig {
        is_discovery: false,
        parameters,
        exp_cmd_sn: SerialNumber(FIRST_CMD_SN),
        queue_depth: QUEUE_DEPTH,
        text: TextRecords::default(),
        nop_interval: None,
        nop_timeout: Duration::MAX,
        hold: HoldLimits::default(),
    });
    let connection = ConnectionConfig {
        cid: Cid(0),
        parameters: ConnectionParameters {
            header_digest: has_digests,
            data_digest: has_digests,
            max_recv_data_segment_length_bytes: SEGMENT_MAX_BYTES,
            peer_max_recv_data_segment_length_bytes: PEER_SEGMENT_MAX_BYTES,
        },
        stat_sn: SerialNumber(0),
    };
    session.add_connection(&connection, NOW);
    session
}

fn initiator() -> Nexus {
    Nexus {
        id: NexusId(1),
        port: PortName {
            transport_id: vec![0x45, 0, 0, 20].into(),
            target_port: 1,
            principal: Principal::Nobody,
        },
        read_only: false,
    }
}

fn profile(disk: &MemoryDisk) -> Profile {
    Profile {
        identity: Identity {
            vendor: "TARN".to_owned(),
            product: "TRACE".to_owned(),
            revision: "1".to_owned(),
            serial: "budget".to_owned(),
            naa: vec![0x30, 0, 0, 0, 0, 0, 0, 1],
            eui: None,
            target_ports: vec![TargetPort {
                relative_id: 1,
                group: 1,
                scsi_name: "iqn.2026-11.example.tarn:budget,t,0x0001".to_owned(),
                device_name: "iqn.2026-11.example.tarn:budget".to_owned(),
            }],
            protocol_identifier: 5,
            protocol_version: 0x0960,
            task_management: [0xf8, 0],
            removable: false,
        },
        limits: Limits::default(),
        capabilities: disk.capabilities(),
        keeps_state: false,
    }
}
