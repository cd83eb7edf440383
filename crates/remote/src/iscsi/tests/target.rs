//! A target in memory: the login of the crate, and a full-feature phase by hand, which can lie, behind a TCP socket of
//! loopback, with a disk of the test's.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::chap::{ChapAccount, ChapAlgorithm, Credentials, Secret};
use iscsi::discovery::TargetAddress;
use iscsi::framing::{Pdu, PduBuffer};
use iscsi::login::{
    Admission, LoginAction, LoginRefusal, LoginTarget, NegotiatedLogin, RANDOM_BYTES, TargetAuth,
    TargetPolicy,
};
use iscsi::negotiate::{DigestPolicy, OperationalPreferences};
use iscsi::pdu::{
    AsyncMessageBhs, Bhs, BhsBytes, DataInBhs, DataOutBhs, Isid, LoginStatus, LogoutResponseBhs,
    NopInBhs, Opcode, R2tBhs, RESERVED_TAG, RequestBhs, ResponseBhs, ScsiCommandBhs,
    ScsiResponseBhs, TaskManagementRequestBhs, TaskManagementResponseBhs, Tsih, flags, opcode,
};

use crate::scsi::testing::{Answer, Medium};

pub(super) const NAME: &str = "iqn.2026-11.example.far:disk";
/// CmdSN that may be sent ahead.
const WINDOW: u32 = 16;
/// Of a segment that it sends.
const SEGMENT: usize = 8192;
const BURST: u32 = 64 << 10;

/// What it says in place of the truth, once, when it is asked to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lie {
    /// A StatSN that was not next.
    StatSn,
    /// Data behind the end of the buffer.
    Outside,
    /// Data, and the same once more.
    Twice,
    /// Data of a task that is not there.
    WrongTag,
    /// GOOD, and half of the data.
    Short,
    /// A segment longer than was agreed.
    LongSegment,
    /// It wants data of a command that has none.
    R2t,
    /// A PDU that no target sends.
    Opcode,
    /// No PDU at all.
    Garbage,
}

pub(super) const LIES: [Lie; 9] = [
    Lie::StatSn,
    Lie::Outside,
    Lie::Twice,
    Lie::WrongTag,
    Lie::Short,
    Lie::LongSegment,
    Lie::R2t,
    Lie::Opcode,
    Lie::Garbage,
];

/// A user and its secret.
pub(super) type Proof = (&'static str, &'static [u8]);

/// What it does.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Who the initiator has to be, and who the target is.
    pub(super) chap: Mutex<Option<[Proof; 2]>>,
    /// It sends each login away, and where to.
    pub(super) redirects: Mutex<Option<(LoginStatus, Option<TargetAddress>)>>,
    /// How many logins it has sent away.
    pub(super) redirected: AtomicUsize,
    /// It wants digests.
    pub(super) digests: AtomicBool,
    pub(super) lie: Mutex<Option<Lie>>,
    /// A write is answered as good with a residual, once.
    pub(super) drops_data: AtomicBool,
    /// A write is answered as good without most of its data, once.
    pub(super) ignores_data: AtomicBool,
    /// It sends nothing.
    pub(super) is_mute: AtomicBool,
    /// It wants all sessions to end.
    pub(super) asks_to_end: AtomicBool,
    /// It ends all sessions without a word.
    pub(super) is_cut: AtomicBool,
    /// It does not have the unit.
    pub(super) has_no_lun: AtomicBool,
    pub(super) logins: AtomicUsize,
    pub(super) logouts: AtomicUsize,
    pings: AtomicUsize,
    /// A tape has a command that it has not begun.
    is_holding: AtomicBool,
    sessions: Mutex<HashMap<Isid, Arc<AtomicBool>>>,
}

#[derive(Debug)]
pub(crate) struct Target {
    listener: TcpListener,
    pub(crate) medium: Arc<Mutex<Medium>>,
    pub(super) rules: Arc<Rules>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    pub(crate) fn new(size: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut target = Self {
            listener,
            medium: Arc::new(Mutex::new(Medium::new(size))),
            rules: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        target.start();
        target
    }

    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub(crate) fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap()
    }

    pub(super) fn set(&self, which: impl Fn(&Rules) -> &AtomicBool, value: bool) {
        which(&self.rules).store(value, Ordering::SeqCst);
    }

    /// How often it was asked whether it is there.
    pub(super) fn pings(&self) -> usize {
        self.rules.pings.load(Ordering::SeqCst)
    }

    /// A tape has a command that it has not begun.
    pub(super) fn is_holding(&self) -> bool {
        self.rules.is_holding.load(Ordering::SeqCst)
    }

    /// Where it is, as it would say it.
    pub(super) fn address(&self) -> TargetAddress {
        TargetAddress {
            host: "127.0.0.1".to_owned(),
            port: self.port(),
            portal_group_tag: None,
        }
    }

    /// Has it send logins to an address, or take them again.
    pub(super) fn redirect(&self, status: LoginStatus, to: Option<TargetAddress>) {
        *self.rules.redirects.lock().unwrap() = Some((status, to));
    }

    pub(super) fn lie(&self, lie: Lie) {
        *self.rules.lie.lock().unwrap() = Some(lie);
    }

    pub(super) fn has_lied(&self) -> bool {
        self.rules.lie.lock().unwrap().is_none()
    }

    pub(super) fn start(&mut self) {
        self.stop = Arc::default();
        let listener = self.listener.try_clone().unwrap();
        let (medium, rules, stop) = (
            Arc::clone(&self.medium),
            Arc::clone(&self.rules),
            Arc::clone(&self.stop),
        );
        self.thread = Some(std::thread::spawn(move || {
            accept(&listener, &medium, &rules, &stop);
        }));
    }

    /// It drops all sessions, as a process that is killed. Until it starts again nobody is let in.
    pub(super) fn kill(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _woken = TcpStream::connect(self.listener.local_addr().unwrap());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.rules.sessions.lock().unwrap().clear();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
    }
}

fn accept(
    listener: &TcpListener,
    medium: &Arc<Mutex<Medium>>,
    rules: &Arc<Rules>,
    stop: &Arc<AtomicBool>,
) {
    let mut threads = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        // Without it each answer of two parts waits for an acknowledgement, 40 ms.
        stream.set_nodelay(true).unwrap();
        let (medium, rules, stop) = (Arc::clone(medium), Arc::clone(rules), Arc::clone(stop));
        threads.push(std::thread::spawn(move || {
            // It ends as its connection does.
            let _ended = Talk::new(stream, medium, rules).run(&stop);
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A write whose data is on its way.
struct Gathered {
    cdb: [u8; 16],
    data: Vec<u8>,
    whole: usize,
    r2t_sn: u32,
}

struct Talk {
    stream: TcpStream,
    medium: Arc<Mutex<Medium>>,
    rules: Arc<Rules>,
    incoming: PduBuffer,
    digests: (bool, bool),
    stat_sn: SerialNumber,
    exp_cmd_sn: SerialNumber,
    is_over: Arc<AtomicBool>,
    gathered: HashMap<u32, Gathered>,
    held: Vec<u32>,
    /// Commands that a tape has not begun, in their order.
    on_tape: VecDeque<(u32, Gathered, usize)>,
    is_leaving: bool,
}

impl Talk {
    fn new(stream: TcpStream, medium: Arc<Mutex<Medium>>, rules: Arc<Rules>) -> Self {
        Self {
            stream,
            medium,
            rules,
            incoming: PduBuffer::new(),
            digests: (false, false),
            stat_sn: SerialNumber(0),
            exp_cmd_sn: SerialNumber(0),
            is_over: Arc::default(),
            gathered: HashMap::new(),
            held: Vec::new(),
            on_tape: VecDeque::new(),
            is_leaving: false,
        }
    }

    /// The next PDU; `None`: it is over.
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Option<Pdu>> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let (header, data) = self.digests;
            let found = self.incoming.next_pdu(1 << 20, header, data);
            if let Some(pdu) = found.map_err(io::Error::other)? {
                return Ok(Some(pdu));
            }
            if stop.load(Ordering::SeqCst)
                || self.is_over.load(Ordering::SeqCst)
                || self.rules.is_cut.load(Ordering::SeqCst)
            {
                return Ok(None);
            }
            if let Some((tag, gathered, room)) = self.on_tape.pop_front() {
                self.execute(tag, gathered, room)?;
            }
            if self.rules.asks_to_end.load(Ordering::SeqCst) && !self.is_leaving {
                self.is_leaving = true;
                self.ask_to_end()?;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.incoming.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        self.stream
            .set_read_timeout(Some(Duration::from_millis(2)))?;
        if !self.log_in(stop)? {
            return Ok(());
        }
        while let Some(pdu) = self.next(stop)? {
            if !self.handle(&pdu)? {
                break;
            }
        }
        Ok(())
    }

    fn policy(&self) -> TargetPolicy {
        let credentials = |(name, secret): (&str, &[u8])| Credentials {
            name: name.to_owned(),
            secret: Secret::new(secret.to_vec()),
        };
        let auth = match *self.rules.chap.lock().unwrap() {
            None => TargetAuth::None,
            Some([user, own]) => {
                let account = ChapAccount {
                    initiator: credentials(user),
                    target: Some(credentials(own)),
                };
                TargetAuth::Chap {
                    is_required: true,
                    algorithms: ChapAlgorithm::ALL.to_vec(),
                    accounts: vec![account].into(),
                }
            }
        };
        let digest = match self.rules.digests.load(Ordering::SeqCst) {
            true => DigestPolicy::Required,
            false => DigestPolicy::Allowed,
        };
        TargetPolicy {
            auth,
            preferences: OperationalPreferences {
                header_digest: digest,
                data_digest: digest,
                initial_r2t: true,
                max_burst_length_bytes: BURST,
                first_burst_length_bytes: 4096,
                default_time2wait_s: 0,
                max_recv_data_segment_length_bytes: 16 << 10,
                ..OperationalPreferences::default()
            },
            portal_group_tag: 1,
            target_alias: None,
        }
    }

    fn log_in(&mut self, stop: &AtomicBool) -> io::Result<bool> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).unwrap();
        let mut login = LoginTarget::new(Duration::ZERO, Duration::from_secs(60), random);
        loop {
            while let Some(action) = login.poll_action() {
                match action {
                    LoginAction::Send(pdu) => self.stream.write_all(&pdu.to_bytes(false, false))?,
                    LoginAction::Authorize(request) => {
                        let is_it = request
                            .target_name
                            .is_some_and(|name| name.as_str() == NAME);
                        let away = self.rules.redirects.lock().unwrap().clone();
                        login.authorize_reply(match (is_it, away) {
                            (true, None) => Ok(self.policy()),
                            (true, Some((status, target_address))) => {
                                self.rules.redirected.fetch_add(1, Ordering::SeqCst);
                                Err(LoginRefusal {
                                    status,
                                    target_address,
                                })
                            }
                            (false, _) => Err(LoginRefusal::from(LoginStatus::NotFound)),
                        });
                    }
                    LoginAction::Admit(negotiated) => {
                        let admission = self.admit(&negotiated);
                        login.admit_reply(Ok::<_, LoginRefusal>(admission));
                    }
                    LoginAction::Complete(_) => return Ok(true),
                    LoginAction::Close(_) => return Ok(false),
                }
            }
            match self.next(stop)? {
                Some(pdu) => login.handle_pdu(&pdu.header, &pdu.data),
                None => return Ok(false),
            }
        }
    }

    /// The session of before ends first, with its tasks.
    fn admit(&mut self, negotiated: &NegotiatedLogin) -> Admission {
        let mut sessions = self.rules.sessions.lock().unwrap();
        let before = sessions.insert(negotiated.isid, Arc::clone(&self.is_over));
        if let Some(before) = before {
            before.store(true, Ordering::SeqCst);
            // I_T NEXUS LOSS OCCURRED.
            let mut medium = self.medium.lock().unwrap();
            medium.attentions.push_back((0x29, 0x07));
        }
        self.rules.logins.fetch_add(1, Ordering::SeqCst);
        let connection = &negotiated.connection;
        self.digests = (connection.header_digest, connection.data_digest);
        self.stat_sn = negotiated.next_stat_sn;
        self.exp_cmd_sn = negotiated.cmd_sn;
        Admission {
            tsih: Tsih(7),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.exp_cmd_sn.plus(WINDOW).previous(),
        }
    }

    fn send<T: Bhs>(&mut self, header: &T, data: &[u8], has_status: bool) -> io::Result<()> {
        let mut bytes: BhsBytes = *header.as_bhs_bytes();
        let common = ResponseBhs::view_mut(&mut bytes);
        common.stat_sn = self.stat_sn.into();
        common.exp_cmd_sn = self.exp_cmd_sn.into();
        common.max_cmd_sn = self.exp_cmd_sn.plus(WINDOW).previous().into();
        if has_status {
            self.stat_sn = self.stat_sn.next();
        }
        if self.rules.is_mute.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (header, of_data) = self.digests;
        let bytes = Pdu::new(&bytes, data.to_vec()).to_bytes(header, of_data);
        self.stream.write_all(&bytes)
    }

    fn ask_to_end(&mut self) -> io::Result<()> {
        let mut header = AsyncMessageBhs::new();
        header.async_event = 1;
        header.parameter3 = 3_u16.into();
        self.send(&header, &[], true)
    }

    /// False: the session is over.
    fn handle(&mut self, pdu: &Pdu) -> io::Result<bool> {
        let request = RequestBhs::view(&pdu.header);
        let tag = request.initiator_task_tag;
        if request.opcode & flags::IMMEDIATE == 0 && opcode(&pdu.header) != Some(Opcode::DataOut) {
            self.exp_cmd_sn = self.exp_cmd_sn.next();
        }
        match opcode(&pdu.header) {
            Some(Opcode::ScsiCommand) => {
                self.begin(ScsiCommandBhs::view(&pdu.header), &pdu.data)?
            }
            Some(Opcode::DataOut) => self.take(DataOutBhs::view(&pdu.header), &pdu.data)?,
            Some(Opcode::NopOut) => {
                if tag.get() != RESERVED_TAG {
                    self.rules.pings.fetch_add(1, Ordering::SeqCst);
                    let mut header = NopInBhs::new();
                    header.initiator_task_tag = tag;
                    header.target_transfer_tag = RESERVED_TAG.into();
                    self.send(&header, &[], true)?;
                }
            }
            Some(Opcode::TaskManagementRequest) => {
                let task = TaskManagementRequestBhs::view(&pdu.header).referenced_task_tag;
                if self.held.contains(&task.get()) {
                    self.held.retain(|held| *held != task.get());
                    self.medium.lock().unwrap().aborted += 1;
                }
                let mut header = TaskManagementResponseBhs::new();
                header.initiator_task_tag = tag;
                self.send(&header, &[], true)?;
            }
            Some(Opcode::LogoutRequest) => {
                let mut header = LogoutResponseBhs::new();
                header.initiator_task_tag = tag;
                self.rules.asks_to_end.store(false, Ordering::SeqCst);
                self.rules.logouts.fetch_add(1, Ordering::SeqCst);
                self.send(&header, &[], true)?;
                return Ok(false);
            }
            other => panic!("{other:?} of an initiator"),
        }
        Ok(true)
    }

    fn begin(&mut self, header: &ScsiCommandBhs, data: &[u8]) -> io::Result<()> {
        let tag = header.initiator_task_tag.get();
        let is_write = header.flags & flags::WRITE != 0;
        let expected = usize::try_from(header.expected_data_transfer_length.get()).unwrap();
        let (whole, room) = if is_write {
            (expected, 0)
        } else {
            (0, expected)
        };
        let gathered = Gathered {
            cdb: header.cdb,
            data: data.to_vec(),
            whole,
            r2t_sn: 0,
        };
        match is_write && data.len() < expected {
            true if self.rules.ignores_data.swap(false, Ordering::SeqCst) => {
                self.answer(tag, Answer::default(), 0, 0)
            }
            true => {
                self.gathered.insert(tag, gathered);
                self.ask_for_more(tag)
            }
            false => self.execute(tag, gathered, room),
        }
    }

    fn ask_for_more(&mut self, tag: u32) -> io::Result<()> {
        let gathered = self.gathered.get_mut(&tag).unwrap();
        let have = u32::try_from(gathered.data.len()).unwrap();
        let rest = u32::try_from(gathered.whole).unwrap() - have;
        let mut header = R2tBhs::new();
        header.initiator_task_tag = tag.into();
        header.target_transfer_tag = 9_u32.into();
        header.r2t_sn = gathered.r2t_sn.into();
        header.buffer_offset = have.into();
        header.desired_data_transfer_length = rest.min(BURST).into();
        gathered.r2t_sn += 1;
        self.send(&header, &[], false)
    }

    fn take(&mut self, header: &DataOutBhs, data: &[u8]) -> io::Result<()> {
        let tag = header.initiator_task_tag.get();
        let gathered = self.gathered.get_mut(&tag).unwrap();
        assert_eq!(
            usize::try_from(header.buffer_offset.get()).unwrap(),
            gathered.data.len()
        );
        gathered.data.extend_from_slice(data);
        if gathered.data.len() == gathered.whole {
            let gathered = self.gathered.remove(&tag).unwrap();
            return self.execute(tag, gathered, 0);
        }
        match header.flags & flags::FINAL != 0 {
            true => self.ask_for_more(tag),
            false => Ok(()),
        }
    }

    fn execute(&mut self, tag: u32, gathered: Gathered, room: usize) -> io::Result<()> {
        let mut medium = self.medium.lock().unwrap();
        let answer = match self.rules.has_no_lun.load(Ordering::SeqCst) {
            true => Some(Answer {
                status: 2,
                sense: vec![0x72, 5, 0x25, 0, 0, 0, 0, 0],
                data: Vec::new(),
            }),
            false => medium.execute(&gathered.cdb, &gathered.data),
        };
        let is_tape = medium.tape.is_some();
        drop(medium);
        let Some(answer) = answer else {
            match is_tape {
                true => {
                    self.rules.is_holding.store(true, Ordering::SeqCst);
                    self.on_tape.push_front((tag, gathered, room));
                }
                false => self.held.push(tag),
            }
            return Ok(());
        };
        if gathered.cdb[0] == 0x88 && answer.status == 0 {
            let lie = self.rules.lie.lock().unwrap().take();
            if let Some(lie) = lie {
                return self.lie_about(lie, tag, &answer.data);
            }
        }
        self.answer(tag, answer, room, gathered.whole)
    }

    fn data_in(&mut self, tag: u32, number: u32, offset: usize, data: &[u8]) -> io::Result<()> {
        let mut header = DataInBhs::new();
        header.initiator_task_tag = tag.into();
        header.target_transfer_tag = RESERVED_TAG.into();
        header.data_sn = number.into();
        header.buffer_offset = u32::try_from(offset).unwrap().into();
        header.flags |= flags::FINAL;
        self.send(&header, data, false)
    }

    fn answer(&mut self, tag: u32, answer: Answer, room: usize, whole: usize) -> io::Result<()> {
        let data = answer.data.get(..room).unwrap_or(&answer.data).to_vec();
        let mut header = ScsiResponseBhs::new();
        for (number, chunk) in (0_u32..).zip(data.chunks(SEGMENT)) {
            self.data_in(tag, number, number as usize * SEGMENT, chunk)?;
            header.exp_data_sn = (number + 1).into();
        }
        header.initiator_task_tag = tag.into();
        header.status = answer.status;
        let missing = room.saturating_sub(data.len());
        let more = answer.data.len().saturating_sub(room);
        let drops = whole > 0 && self.rules.drops_data.swap(false, Ordering::SeqCst);
        if missing > 0 || drops {
            header.flags |= flags::RESIDUAL_UNDERFLOW;
            let count = if drops { 512 } else { missing };
            header.residual_count = u32::try_from(count).unwrap().into();
        } else if more > 0 {
            header.flags |= flags::RESIDUAL_OVERFLOW;
            header.residual_count = u32::try_from(more).unwrap().into();
        }
        let mut sense = Vec::new();
        if !answer.sense.is_empty() {
            sense.extend(u16::try_from(answer.sense.len()).unwrap().to_be_bytes());
            sense.extend(answer.sense);
        }
        self.send(&header, &sense, true)
    }

    fn lie_about(&mut self, lie: Lie, tag: u32, data: &[u8]) -> io::Result<()> {
        let mut good = ScsiResponseBhs::new();
        good.initiator_task_tag = tag.into();
        match lie {
            Lie::StatSn => self.stat_sn = self.stat_sn.plus(5),
            Lie::Outside => self.data_in(tag, 0, 1 << 20, data)?,
            Lie::Twice => {
                self.data_in(tag, 0, 0, data)?;
                self.data_in(tag, 1, 0, data)?;
            }
            Lie::WrongTag => self.data_in(tag ^ 0x55, 0, 0, data)?,
            Lie::Short => self.data_in(tag, 0, 0, &data[..data.len() / 2])?,
            Lie::LongSegment => self.data_in(tag, 0, 0, &vec![0; 1 << 20])?,
            Lie::R2t => {
                let mut header = R2tBhs::new();
                header.initiator_task_tag = tag.into();
                header.target_transfer_tag = 1_u32.into();
                header.desired_data_transfer_length = 512_u32.into();
                self.send(&header, &[], false)?;
            }
            Lie::Opcode => {
                let mut header = NopInBhs::new();
                header.opcode = 0x3e;
                self.send(&header, &[], true)?;
            }
            Lie::Garbage => self.stream.write_all(&[0xff; 4096])?,
        }
        self.send(&good, &[], true)
    }
}
