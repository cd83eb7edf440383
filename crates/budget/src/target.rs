//! One core with one session, one unit and a disk in memory: the engine that ships, without a reactor.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow, bail, ensure};
use engine::{
    Carrier, Ending, Engine, Letter, Life, News, PartKey, Save, SessionKey, StoreWork, TargetIndex,
    UnitIndex, VisibleLun,
};
use front::iscsi::{Detail, SessionPort, SessionProfile};
use front::{Command as SentCommand, CommandId, Port, SessionId};
use iscsi::SerialNumber;
use iscsi::discovery::TextRecords;
use iscsi::negotiate::{
    ConnectionParameters, Negotiation, OperationalPreferences, Phase, Role, SessionParameters,
    SessionType,
};
use iscsi::pdu::{Cid, Isid, Tsih};
use iscsi::target::{ConnectionConfig, Event, HoldLimits, Receive, Session, SessionConfig};
use memory::{Buffer, Message, Payload, Pool};
use scsi::{
    DeviceType, Identity, Limits, NexusId, Owner, PortName, Principal, Profile, Status, TargetPort,
};
use store::{
    Backstore, Descriptor, IoRequest, IoTag, MemoryDisk, Order, Outlet, SharedStore, SocketTag,
    Submitted, Waker,
};

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
/// How much room an emptied message keeps, as in `front`.
const MESSAGE_ROOM_BYTES: usize = 128 * 1024;

/// The only connection of the session.
const CONNECTION: usize = 0;
/// Nothing is waited for.
const NEVER: Duration = Duration::from_secs(60);
/// No time passes.
const NOW: Duration = Duration::ZERO;
/// Of what fills the disk.
const TAG: IoTag = IoTag(0);

/// The core with its one session. Nothing leaves it: the disk answers at once.
#[derive(Debug)]
pub(crate) struct Target {
    engine: Engine<Outside>,
    session: SessionKey,
    /// An emptied message, kept for its room.
    spare: Message,
    tap: Option<Tap>,
}

impl Target {
    /// A target whose initiator has just logged in, and whose disk was written in full.
    pub(crate) fn new(row: &Row) -> Result<Self> {
        let disk = MemoryDisk::new(u64::from(DISK_BYTES), BLOCK_BYTES, false, true)?;
        let mut store = disk.handle()?;
        fill(store.as_mut())?;
        let owner = Owner::new(profile(&disk), None)
            .map_err(|error| anyhow!("the unit does not start: {error:?}"))?;
        let settings = engine::Settings {
            core: 0,
            cores: 1,
            queue_depth: QUEUE_DEPTH,
            abort_timeout: NEVER,
            fence_timeout: NEVER,
            turn_bytes: 1024 * 1024,
        };
        let mut engine = Engine::new(settings, Pool::new(POOL_BYTES)?, Outside::default());
        let lun = VisibleLun {
            lun: 0,
            unit: engine.add_unit(owner, None, store),
            read_only: false,
        };
        let detail = Detail::new(SessionId(1), Tsih(1), session_profile(lun), NOW);
        let port = Port::Iscsi(SessionPort::new(session(row.has_digests), detail));
        let session =
            engine.begin_session(port, engine.pool().account(), initiator(), &[lun], None);
        // The owner of the unit is notified of the nexus.
        while let Some((unit, letter)) = engine.carrier.letters.pop_front() {
            engine.handle_letter(unit, letter);
        }
        Ok(Self {
            engine,
            session,
            spare: Message::default(),
            tap: row.is_traced.then(Tap::new),
        })
    }

    /// How many commands were answered with GOOD.
    pub(crate) const fn good_commands(&self) -> u32 {
        self.engine.carrier.good_commands
    }

    /// Takes what arrives, and sends what became ready in one message.
    pub(crate) fn turn(&mut self, turn: &Turn) -> Result<()> {
        self.engine.begin_turn(NOW);
        for arrival in turn {
            self.receive(arrival)?;
            while let Some(event) = self.protocol()?.poll_event() {
                self.handle_event(event)?;
            }
            self.engine.start_waiting();
        }
        self.engine.handle_memory();
        let mut message = std::mem::take(&mut self.spare);
        let mut is_ready = false;
        while self.engine.poll_ready().is_some() {
            is_ready = true;
        }
        if is_ready {
            message = self.protocol()?.take_message(CONNECTION, message);
        }
        ensure!(!message.is_empty(), "nothing to send after a turn");
        if let Some(tap) = &mut self.tap {
            tap.send(&message);
        }
        message.clear(MESSAGE_ROOM_BYTES);
        self.spare = message;
        Ok(())
    }

    /// The protocol of the one session.
    fn protocol(&mut self) -> Result<&mut Session> {
        let session = self.engine.session_mut(self.session);
        let session = session.ok_or_else(|| anyhow!("the session has ended"))?;
        let port = session.port.iscsi_mut();
        let port = port.ok_or_else(|| anyhow!("a session of another transport"))?;
        Ok(&mut port.session)
    }

    fn receive(&mut self, arrival: &Arrival) -> Result<()> {
        let session = self.engine.session_mut(self.session);
        let session = session.ok_or_else(|| anyhow!("the session has ended"))?;
        let (port, pool) = session.port_and_pool();
        let port = port.iscsi_mut();
        let port = port.ok_or_else(|| anyhow!("a session of another transport"))?;
        let protocol = &mut port.session;
        let wanted = protocol.poll_receive(CONNECTION);
        match (arrival, wanted) {
            (Arrival::Chunk(chunk), Receive::Chunk { limit_bytes })
                if chunk.len() <= limit_bytes =>
            {
                if let Some(tap) = &mut self.tap {
                    tap.receive(chunk);
                }
                protocol.handle_chunk(CONNECTION, chunk, pool, NOW)?;
            }
            (&Arrival::Exact(len), Receive::Exact { buffer, range }) if range.len() == len => {
                protocol.handle_exact(CONNECTION, buffer, len, pool, NOW)?;
            }
            (arrival, wanted) => bail!("{arrival:?} arrives, wanted is {wanted:?}"),
        }
        self.engine.note_ready(self.session, Some(CONNECTION));
        Ok(())
    }

    fn handle_event(&mut self, event: Event) -> Result<()> {
        let session = self.session;
        match event {
            Event::Command(id, command) => {
                self.engine.handle_command(session, id.into(), command);
            }
            Event::DataOut(id, data) => self.engine.handle_data_out(session, id.into(), data),
            event @ (Event::DataFault(..)
            | Event::TaskManagement(_)
            | Event::Logout(_)
            | Event::PeerSilent { .. }
            | Event::Broken { .. }
            | Event::Violation { .. }) => bail!("the script leads to {event:?}"),
        }
        Ok(())
    }
}

/// What leaves the core, which is nothing while the script runs.
#[derive(Debug, Default)]
struct Outside {
    letters: VecDeque<(UnitIndex, Letter)>,
    good_commands: u32,
}

impl Outside {
    fn note(&mut self, status: Status) {
        self.good_commands += u32::from(status == Status::Good);
    }
}

/// No store has anything done outside.
#[derive(Clone, Copy, Debug)]
enum NoOperation {}

impl Carrier for Outside {
    type Port = Port;
    type Operation = NoOperation;
    type Receipt = ();
    type Account = ();

    fn post(&mut self, _: usize, unit: UnitIndex, letter: Letter) {
        self.letters.push_back((unit, letter));
    }

    #[expect(clippy::panic, reason = "a script that leads here is wrong")]
    fn begin(&mut self, part: PartKey, work: StoreWork) -> NoOperation {
        panic!("{part:?} asks for {work:?}")
    }

    fn waker(&self, _: UnitIndex) -> Waker {
        Waker::new(|| {})
    }

    #[expect(clippy::panic, reason = "a script that leads here is wrong")]
    fn open_socket(&mut self, _: UnitIndex, socket: SocketTag, _: Descriptor) -> bool {
        panic!("a disk in memory opens {socket:?}")
    }

    #[expect(clippy::panic, reason = "a script that leads here is wrong")]
    fn close_socket(&mut self, _: UnitIndex, socket: SocketTag) {
        panic!("a disk in memory closes {socket:?}")
    }

    fn cancel(&mut self, operation: NoOperation) {
        match operation {}
    }

    #[expect(clippy::panic, reason = "a script that leads here is wrong")]
    fn save(&mut self, unit: UnitIndex, _: Save) {
        panic!("the script changes what is kept of {unit:?}")
    }

    fn lend_chunk(&mut self, _: &Rc<Buffer>) -> bool {
        true
    }

    #[expect(clippy::panic, reason = "a script that leads here is wrong")]
    fn notify(&mut self, news: News) {
        panic!("the script leads to {news:?}")
    }

    fn series(&mut self, _: UnitIndex, _: &Port) -> u32 {
        0
    }

    fn account(_: u32, _: &Port, _: CommandId, _: &SentCommand) {}

    fn note_answer(&mut self, (): (), status: Status) {
        self.note(status);
    }

    fn note_wait(&mut self, (): ()) {}

    fn note_end(&mut self, (): (), ending: Ending, _: Life) {
        if let Ending::Answered(status) = ending {
            self.note(status);
        }
    }

    fn note_starved(&mut self) {}
}

/// Writes the whole disk, as a disk in use was: what was never written is read another way.
fn fill(store: &mut dyn Backstore) -> Result<()> {
    let data = Payload::Heap(pattern(DISK_BYTES));
    let request = IoRequest::Write {
        offset: 0,
        data,
        durable: false,
    };
    let mut outlet = Outlet::default();
    let submitted = store.submit(TAG, request, &mut outlet);
    match (submitted, outlet.next_order()) {
        // The helper would put huge pages under it, which changes no count.
        (Submitted::Done(Ok(_)), None) | (Submitted::Taken, Some(Order::Helper { .. })) => Ok(()),
        (submitted, order) => bail!("the disk cannot be filled: {submitted:?}, {order:?}"),
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

/// What is known of the session; commands look at none of it.
fn session_profile(lun: VisibleLun) -> SessionProfile {
    let address = SocketAddr::from(([127, 0, 0, 1], 3260));
    SessionProfile {
        initiator_name: "iqn.2026-11.example.tarn:budget".to_owned(),
        target_name: None,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        peer: address,
        portal: address,
        user: None,
        portal_group_tag: 1,
        since: SystemTime::UNIX_EPOCH,
        target: Some(TargetIndex(0)),
        port: initiator().1,
        luns: vec![lun],
        text: TextRecords::for_discovery(Vec::new()),
    }
}

fn initiator() -> (NexusId, PortName) {
    let name = PortName {
        transport_id: vec![0x45, 0, 0, 20].into(),
        target_port: 1,
        principal: Principal::Nobody,
    };
    (NexusId(1), name)
}

fn profile(disk: &MemoryDisk) -> Profile {
    Profile {
        device_type: DeviceType::Disk,
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
                protocol_identifier: 5,
                protocol_version: 0x0960,
            }],
            task_management: [0xf8, 0],
            removable: false,
        },
        limits: Limits::default(),
        capabilities: disk.capabilities(),
        keeps_state: false,
    }
}
