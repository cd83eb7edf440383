//! The first inputs: what real peers send, one of each kind.
//!
//! They are kept in the corpus as files, which is what runs and what others may add to; this
//! module writes them again when a format changes (`--write-seeds`).

use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::chap::ChapAlgorithm;
use iscsi::framing::Pdu;
use iscsi::limits::LOGIN_TIMEOUT_DEFAULT;
use iscsi::login::{
    Admission, InitiatorAuth, InitiatorLoginAction, InitiatorLoginConfig, LoginAction,
    LoginInitiator, LoginRefusal, LoginTarget, RANDOM_BYTES, TargetAuth, TargetPolicy,
};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::{
    Bhs, BhsBytes, Cid, DataInBhs, DataOutBhs, InitiatorTaskTag, Isid, LogoutRequestBhs, NopInBhs,
    NopOutBhs, R2tBhs, RESERVED_TAG, ScsiCommandBhs, ScsiResponseBhs, SnackBhs,
    TaskManagementRequestBhs, TextRequestBhs, Tsih, extended_cdb_ahs, flags,
};
use scsi::{COMMANDS, DeviceType};

use crate::chap::{credentials, policy};
use crate::nbd::{AS_SERVER, STRUCTURED, WITH_HANDSHAKE};

/// Name and content.
pub type Seed = (String, Vec<u8>);

/// The seeds of one target; none when there is no such target.
#[must_use]
pub fn of(target: &str) -> Vec<Seed> {
    match target {
        "pdu" => pdus(),
        "text" => texts(),
        "login" => logins(),
        "chap" => chap_logins(),
        "initiator" => to_initiators(),
        "session" => [session_transfers(), session_requests()].concat(),
        "disk" => disks(),
        // A drive, and a tape of others that gets commands of its vendor.
        "device" => [0, 0x0d]
            .into_iter()
            .flat_map(|choice| commands_for(DeviceType::Optical, choice))
            .collect(),
        "engine" => engines(),
        "lun" => luns(),
        "state" => states(),
        "config" => configs(),
        "import" => imports(),
        "handler" => handlers(),
        "look" => looks(),
        "hyperscsi-pdu" => hyperscsi::fuzz::seeds("pdu"),
        "hyperscsi-login" => hyperscsi::fuzz::seeds("login"),
        "hyperscsi-exchange" => hyperscsi::fuzz::seeds("exchange"),
        "hyperscsi-session" => hyperscsi::fuzz::seeds("session"),
        "nbd" => [nbd_servers(), nbd_clients()].concat(),
        _ => Vec::new(),
    }
}

/// What devices answer to a first look: each answer with its length, of `None` that it is refused.
fn looks() -> Vec<Seed> {
    let answers = |all: &[Option<Vec<u8>>]| {
        let answer = |one: &Option<Vec<u8>>| match one {
            Some(data) => {
                let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
                [&length.to_be_bytes()[..], data].concat()
            }
            None => vec![0x80, 0],
        };
        all.iter().flat_map(answer).collect()
    };
    let page = |code: u8, data: &[u8]| {
        let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
        Some([&[0, code][..], &length.to_be_bytes(), data].concat())
    };
    let inquiry = |device_type: u8| {
        let mut data = vec![device_type, 0x80, 0x06, 0x02, 31, 0, 0, 0];
        data.extend_from_slice(b"VENDOR  PRODUCT         1.00");
        Some(data)
    };
    let naa = [&[0x01, 0x03, 0, 8, 0x50][..], &[0x11; 7]].concat();
    let long = page(0xb0, &[7; 300]);
    // One command with timeouts, and one of the vendor.
    let mut commands = vec![0, 0, 0, 28, 0x08, 0, 0, 0, 0, 2, 0, 6, 0, 10];
    commands.extend([0; 10]);
    commands.extend([0xc5, 0, 0, 0, 0, 0, 0, 6]);
    let tape = [
        inquiry(1),
        page(0x00, &[0x00, 0x80, 0x83, 0xb0]),
        page(0x80, b"SERIAL"),
        page(0x83, &naa),
        long.clone().map(|page| page[..255].to_vec()),
        long,
        Some(commands),
    ];
    let capacity = [&[0; 6][..], &[0x3f, 0xff, 0, 0, 2, 0, 0, 3, 0xc0], &[0; 17]].concat();
    let mode = [&[0, 26, 0, 0x10, 0, 0, 0, 0, 0x08, 18, 0x04][..], &[0; 17]].concat();
    let limits = [&[0, 8, 0, 8][..], &[0, 0, 8, 0, 0, 0, 0, 0], &[1; 48]].concat();
    let disk = [
        inquiry(0),
        Some(capacity),
        Some(mode),
        page(0xb0, &limits),
        page(0xb1, &[0; 60]),
        page(0xb2, &[0, 0xe0, 0x02, 0]),
        page(0x83, &naa),
    ];
    let silent = [inquiry(0x1f), None, None];
    vec![
        ("tape".to_owned(), answers(&tape)),
        ("disk".to_owned(), answers(&disk)),
        ("refuses".to_owned(), answers(&silent)),
    ]
}

/// What a handler writes: a number at a place.
fn handler_write(at: usize, value: u32) -> Vec<u8> {
    let at = u16::try_from(at).unwrap_or(u16::MAX);
    [&[0][..], &at.to_be_bytes(), &value.to_be_bytes()].concat()
}

fn handlers() -> Vec<Seed> {
    // Where it writes, as the page has it.
    const COMPLETED: usize = 128;
    const COMPLETIONS: usize = 24_576;
    const ENTRY_BYTES: usize = 320;
    // Three commands, of which two have data, then ends until there are none.
    let mut steps = Vec::new();
    for (last, room) in [(1_u8, [0, 2]), (2, [0, 0]), (3, [1, 0])] {
        steps.extend([0, 6, 0x08, 0, 0, 0, 0, last]);
        steps.extend(room);
    }
    steps.extend([1; 8]);
    let end = |number: usize, slot: u32, status: u32, sense: u32| {
        let at = COMPLETIONS + number * ENTRY_BYTES;
        let fields = [(0, slot), (4, status), (8, 512), (12, sense)];
        fields
            .map(|(offset, value)| handler_write(at + offset, value))
            .concat()
    };
    let all = [end(0, 2, 0, 0), end(1, 0, 2, 18), end(2, 1, 0, 0)].concat();
    let seed = |name: &str, writes: &[Vec<u8>]| {
        let writes = writes.concat();
        let length = u16::try_from(writes.len()).unwrap_or(0);
        let whole = [&length.to_be_bytes()[..], &writes, &steps].concat();
        (name.to_owned(), whole)
    };
    vec![
        seed("ends-all", &[all.clone(), handler_write(COMPLETED, 3)]),
        seed(
            "ends-twice",
            &[
                end(0, 1, 0, 0),
                end(1, 1, 0, 0),
                handler_write(COMPLETED, 2),
            ],
        ),
        seed(
            "ends-nothing",
            &[end(0, 63, 0, 0), handler_write(COMPLETED, 1)],
        ),
        seed(
            "ends-outside",
            &[end(0, u32::MAX, 0, 0), handler_write(COMPLETED, 1)],
        ),
        seed("jumps", &[all.clone(), handler_write(COMPLETED, 4)]),
        seed("goes-back", &[handler_write(COMPLETED, u32::MAX)]),
        seed(
            "long-sense",
            &[end(0, 0, 2, 253), handler_write(COMPLETED, 1)],
        ),
        seed(
            "no-status",
            &[end(0, 0, 256, 0), handler_write(COMPLETED, 1)],
        ),
        seed(
            "changes-its-mind",
            &[
                handler_write(COMPLETED, 1),
                all,
                handler_write(COMPLETED, 3),
                handler_write(COMPLETIONS, 9),
            ],
        ),
        ("greets".to_owned(), b"TARNHDLR\x01\0\0\0\0\0\0\0".to_vec()),
    ]
}

/// Walks through all that can happen, each from a number of its own.
fn engines() -> Vec<Seed> {
    (0..12)
        .map(|number: usize| {
            let mut prng = crate::prng::Prng::new(number as u64);
            let walk: Vec<u8> = (0..600)
                .map(|_| u8::try_from(prng.below(256)).unwrap_or(0))
                .collect();
            named(format!("walk-{number}"), walk)
        })
        .collect()
}

fn named(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Seed {
    (name.into(), bytes.into())
}

// ---- PDUs ------------------------------------------------------------------------------------

fn command(tag: u32, bits: u8, length: u32, cdb: &[u8]) -> BhsBytes {
    let mut bhs = ScsiCommandBhs::new();
    bhs.flags = flags::FINAL | 1 | bits;
    bhs.initiator_task_tag = tag.into();
    bhs.expected_data_transfer_length = length.into();
    bhs.cdb[..cdb.len()].copy_from_slice(cdb);
    *bhs.as_bhs_bytes()
}

fn data_out(tag: u32, offset: u32, data_sn: u32, is_final: bool) -> BhsBytes {
    let mut bhs = DataOutBhs::new();
    bhs.flags = if is_final { flags::FINAL } else { 0 };
    bhs.initiator_task_tag = tag.into();
    bhs.target_transfer_tag = RESERVED_TAG.into();
    bhs.buffer_offset = offset.into();
    bhs.data_sn = data_sn.into();
    *bhs.as_bhs_bytes()
}

fn nop_out() -> BhsBytes {
    let mut bhs = NopOutBhs::new();
    bhs.opcode |= flags::IMMEDIATE;
    bhs.initiator_task_tag = 9.into();
    bhs.target_transfer_tag = RESERVED_TAG.into();
    *bhs.as_bhs_bytes()
}

fn management(function: u8, referenced: u32) -> BhsBytes {
    let mut bhs = TaskManagementRequestBhs::new();
    bhs.opcode |= flags::IMMEDIATE;
    bhs.flags |= function;
    bhs.initiator_task_tag = 10.into();
    bhs.referenced_task_tag = referenced.into();
    // One ahead, so that it acts on what is due.
    bhs.cmd_sn = 1.into();
    bhs.ref_cmd_sn = 0xffff_fffe.into();
    *bhs.as_bhs_bytes()
}

fn text() -> BhsBytes {
    let mut bhs = TextRequestBhs::new();
    bhs.initiator_task_tag = 11.into();
    bhs.target_transfer_tag = RESERVED_TAG.into();
    *bhs.as_bhs_bytes()
}

fn logout(reason: u8) -> BhsBytes {
    let mut bhs = LogoutRequestBhs::new();
    bhs.flags |= reason;
    bhs.initiator_task_tag = 12.into();
    bhs.cid = 1.into();
    *bhs.as_bhs_bytes()
}

const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
const WRITE_10: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0];

fn pdus() -> Vec<Seed> {
    let long = (0..32).collect::<Vec<u8>>();
    let mut with_ahs = Pdu::new(&command(1, flags::READ, 4096, &READ_10), Vec::new());
    with_ahs.ahs = extended_cdb_ahs(&long).unwrap_or_default();
    let pdus = [
        Pdu::new(&command(1, flags::WRITE, 4096, &WRITE_10), vec![0x5a; 511]),
        with_ahs,
        Pdu::new(&text(), b"SendTargets=All\0".to_vec()),
        Pdu::new(&nop_out(), Vec::new()),
    ];
    (0..4)
        .map(|choice: u8| {
            let digests = (choice & 1 != 0, choice & 2 != 0);
            let stream: Vec<u8> = pdus
                .iter()
                .flat_map(|pdu| pdu.to_bytes(digests.0, digests.1))
                .collect();
            named(
                format!("stream-{choice}"),
                [&[choice, 12], &stream[..]].concat(),
            )
        })
        .collect()
}

fn texts() -> Vec<Seed> {
    let operational = "HeaderDigest=CRC32C,None\0DataDigest=None\0MaxConnections=8\0InitialR2T=No\0\
        ImmediateData=Yes\0MaxRecvDataSegmentLength=262144\0MaxBurstLength=16776192\0\
        FirstBurstLength=262144\0DefaultTime2Wait=2\0DefaultTime2Retain=0\0MaxOutstandingR2T=16\0\
        DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0ErrorRecoveryLevel=2\0IFMarker=No\0\
        OFMarkInt=2048~8192\0iSCSIProtocolLevel=1\0TaskReporting=RFC3720,FastAbort\0";
    let security = "InitiatorName=iqn.1993-08.org.debian:01:abc\0SessionType=Normal\0\
        TargetName=iqn.2026-11.example.tarn:demo\0AuthMethod=CHAP,None\0CHAP_A=8,7,6,5\0\
        CHAP_I=5\0CHAP_C=0x0123456789abcdef\0CHAP_R=0bAAAA\0CHAP_N=alice\0";
    let answer = "TargetName=iqn.2026-11.example.tarn:demo\0TargetAddress=[2001:db8::1]:3260,1\0\
        TargetAddress=192.0.2.1,2\0TargetAlias=x\0TargetPortalGroupTag=1\0";
    let odd = "X-com.example.key=1\0#Key=2\0SendTargets=\0MaxBurstLength=0x10000\0InitialR2T=yes\0";
    vec![
        named("operational", operational),
        named("security", security),
        named("targets", answer),
        named("odd", odd),
    ]
}

// ---- logins ----------------------------------------------------------------------------------

/// What an initiator sends from its first byte to the end of the login.
fn record(config: InitiatorLoginConfig, policy: &TargetPolicy) -> Vec<u8> {
    let now = Duration::ZERO;
    let timeout = LOGIN_TIMEOUT_DEFAULT;
    let Ok(mut initiator) = LoginInitiator::new(config, now, timeout, [2; RANDOM_BYTES]) else {
        return Vec::new();
    };
    let mut target = LoginTarget::new(now, timeout, [1; RANDOM_BYTES]);
    let mut sent = Vec::new();
    loop {
        let before = sent.len();
        while let Some(action) = initiator.poll_action() {
            if let InitiatorLoginAction::Send(pdu) = action {
                sent.extend_from_slice(&pdu.to_bytes(false, false));
                target.handle_pdu(&pdu.header, &pdu.data);
            }
        }
        while let Some(action) = target.poll_action() {
            match action {
                LoginAction::Send(pdu) => initiator.handle_pdu(&pdu.header, &pdu.data),
                LoginAction::Authorize(_) => {
                    target.authorize_reply(Ok::<_, LoginRefusal>(policy.clone()));
                }
                LoginAction::Admit(login) => target.admit_reply(Ok::<_, LoginRefusal>(Admission {
                    tsih: Tsih(1),
                    exp_cmd_sn: login.cmd_sn,
                    max_cmd_sn: login.cmd_sn,
                })),
                LoginAction::Complete(_) | LoginAction::Close(_) => {}
            }
        }
        if sent.len() == before {
            return sent;
        }
    }
}

fn login_config(target_name: Option<&str>, auth: InitiatorAuth) -> InitiatorLoginConfig {
    InitiatorLoginConfig {
        initiator_name: "iqn.1993-08.org.debian:01:abc".to_owned(),
        initiator_alias: Some("host".to_owned()),
        target_name: target_name.map(str::to_owned),
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        tsih: Tsih(0),
        cid: Cid(1),
        cmd_sn: SerialNumber(u32::MAX),
        initiator_task_tag: InitiatorTaskTag(0x77),
        auth,
        preferences: OperationalPreferences::default(),
    }
}

const TARGET: Option<&str> = Some("iqn.2026-11.example.tarn:demo");

fn logins() -> Vec<Seed> {
    let open = TargetPolicy {
        auth: TargetAuth::None,
        ..policy()
    };
    [
        ("normal", TARGET, false),
        ("normal-without-security-stage", TARGET, true),
        ("discovery", None, false),
    ]
    .into_iter()
    .map(|(name, target, skip_stage)| {
        let config = login_config(target, InitiatorAuth::None { skip_stage });
        named(name, record(config, &open))
    })
    .collect()
}

fn chap_logins() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (&algorithm, is_mutual) in ChapAlgorithm::ALL.iter().zip([true, false, true, false]) {
        let auth = InitiatorAuth::Chap {
            own: credentials("alice", "alice-secret-1"),
            target: is_mutual.then(|| credentials("tarn", "target-secret-2")),
            algorithms: vec![algorithm],
            or_none: false,
        };
        let target = if is_mutual { TARGET } else { None };
        let stream = record(login_config(target, auth), &policy());
        seeds.push(named(format!("{algorithm:?}").to_lowercase(), stream));
    }
    seeds
}

fn to_initiators() -> Vec<Seed> {
    let mut data_in = DataInBhs::new();
    data_in.flags = flags::FINAL | flags::STATUS;
    data_in.target_transfer_tag = RESERVED_TAG.into();
    data_in.stat_sn = 1.into();
    data_in.exp_cmd_sn = 3.into();
    data_in.max_cmd_sn = 10.into();
    let mut r2t = R2tBhs::new();
    r2t.initiator_task_tag = 1.into();
    r2t.target_transfer_tag = 7.into();
    r2t.desired_data_transfer_length = 8192.into();
    let mut response = ScsiResponseBhs::new();
    response.initiator_task_tag = 1.into();
    response.stat_sn = 2.into();
    response.status = 2;
    let mut ping = NopInBhs::new();
    ping.initiator_task_tag = RESERVED_TAG.into();
    ping.target_transfer_tag = 8.into();
    let pdus = [
        Pdu::new(data_in.as_bhs_bytes(), vec![1; 4096]),
        Pdu::new(ping.as_bhs_bytes(), vec![2; 5]),
        Pdu::new(r2t.as_bhs_bytes(), Vec::new()),
        Pdu::new(
            response.as_bhs_bytes(),
            vec![0, 18, 0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0],
        ),
    ];
    let stream: Vec<u8> = pdus
        .iter()
        .flat_map(|pdu| pdu.to_bytes(false, false))
        .collect();
    vec![named("read-and-write", stream)]
}

// ---- sessions --------------------------------------------------------------------------------

/// A script for the session, line by line.
struct Script(Vec<u8>);

impl Script {
    fn new(bits: u8, sizes: u8) -> Self {
        Self(vec![bits, sizes])
    }

    /// A PDU with the CmdSN that is due, in pieces as `how` says.
    fn pdu(mut self, how: u8, header: BhsBytes, data: &[u8]) -> Self {
        self.0.extend_from_slice(&[1, how | 0x80]);
        self.0.extend_from_slice(&header);
        self.0
            .extend_from_slice(&u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
        self.0.extend_from_slice(data);
        self
    }

    fn line(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn answer(self, status: u8, len: u16) -> Self {
        let [high, low] = len.to_be_bytes();
        self.line(&[3, 0, status, high, low])
    }

    fn request(self, length: u32) -> Self {
        let [a, b, c, d] = length.to_be_bytes();
        self.line(&[4, 0, a, b, c, d])
    }
}

const MANY: u8 = 0xfa;

fn session_transfers() -> Vec<Seed> {
    let read = command(1, flags::READ, 4096, &READ_10);
    let write = command(2, flags::WRITE, 20_000, &WRITE_10);
    let mut unsolicited = write;
    unsolicited[1] &= !flags::FINAL;
    let reads = Script::new(0x03, MANY)
        .pdu(0, read, &[])
        .answer(0x40, 4096)
        .line(&[10, 0]);
    let digests = Script::new(0x1b, MANY)
        .pdu(2, read, &[])
        .answer(0x80, 4096)
        .line(&[10, 0]);
    let solicited = Script::new(0x03, 0xff)
        .pdu(0, write, &[7; 512])
        .request(20_000)
        .line(&[10, 0, 12, 0, 3, 10, 0, 12, 0, 0])
        .answer(0, 0);
    let first_burst = Script::new(0x02, MANY)
        .pdu(0, unsolicited, &[7; 100])
        .request(20_000)
        .pdu(0, data_out(2, 100, 0, false), &[8; 4000])
        .pdu(0, data_out(2, 4100, 1, true), &[8; 4092])
        .line(&[10, 0, 12, 0, 2])
        .answer(2, 0);
    let early = Script::new(0x02, MANY)
        .pdu(0, unsolicited, &[7; 100])
        .answer(2, 0)
        .pdu(0, data_out(2, 100, 0, true), &[8; 4000]);
    let memory = Script::new(0x03, MANY)
        .line(&[9, 1])
        .pdu(0, write, &[])
        .request(20_000)
        .line(&[9, 0, 10, 0, 12, 0, 0, 12, 0, 0]);
    [
        ("read", reads),
        ("read-with-digests", digests),
        ("write-solicited", solicited),
        ("write-first-burst", first_burst),
        ("write-answered-early", early),
        ("short-of-memory", memory),
    ]
    .map(|(name, script)| named(name, script.0))
    .to_vec()
}

fn session_requests() -> Vec<Seed> {
    let read = command(1, flags::READ, 4096, &READ_10);
    let write = command(2, flags::WRITE, 20_000, &WRITE_10);
    let mut ahead = read;
    ahead[27] = 1;
    let two = Script::new(0x83, MANY)
        .pdu(1, ahead, &[])
        .pdu(0, management(5, RESERVED_TAG), &[])
        .pdu(0, write, &[])
        .line(&[6, 5, 0, 5, 0, 13, 1]);
    let aborts = Script::new(0x03, MANY)
        .pdu(0, write, &[])
        .request(20_000)
        .pdu(0, management(1, 2), &[])
        .line(&[5, 0, 6])
        .pdu(0, management(1, 77), &[]);
    let others = Script::new(0x03, MANY)
        .pdu(0, nop_out(), &[1; 100])
        .pdu(4, text(), b"SendTargets=\0MaxRecvDataSegmentLength=512\0")
        .line(&[8, 0x27, 0x10, 8, 0x27, 0x10, 14, 30])
        .pdu(0, *SnackBhs::new().as_bhs_bytes(), &[])
        .pdu(0, logout(1), &[])
        .line(&[7]);
    let discovery = Script::new(0x06, MANY)
        .pdu(0, text(), b"SendTargets=All\0")
        .pdu(0, read, &[])
        .pdu(0, logout(0), &[])
        .line(&[7]);
    let raw = [&[0, 2, 0, 96][..], &nop_out(), &text()].concat();
    let stream = Script::new(0x03, MANY).line(&raw).line(&[11, 1, 11, 200]);
    [
        ("two-connections", two),
        ("aborts", aborts),
        ("other-requests", others),
        ("discovery", discovery),
        ("raw-stream", stream),
    ]
    .map(|(name, script)| named(name, script.0))
    .to_vec()
}

// ---- disks -----------------------------------------------------------------------------------

/// One command of a script for a disk, with room for `room` bytes either way.
fn line(who: u8, cdb: &[u8], room: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![who, u8::try_from(cdb.len()).unwrap_or(0)];
    bytes.extend_from_slice(cdb);
    bytes.extend_from_slice(&room.to_be_bytes());
    bytes.extend_from_slice(&(room / 16).to_be_bytes());
    bytes.extend_from_slice(&u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn commands_for(device_type: DeviceType, choice: u8) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for row in COMMANDS
        .iter()
        .filter(|row| row.devices.contains(device_type))
    {
        // Once with nothing set, once with a small number wherever one may be.
        let mut cdb = vec![0; row.usage.len()];
        cdb[0] = row.opcode();
        let action = row.service_action().unwrap_or(0).to_be_bytes()[1];
        cdb[1] = action;
        let mut some = cdb.clone();
        for (byte, usage) in some.iter_mut().zip(row.usage).skip(2) {
            *byte = usage & 0x08;
        }
        let script = [
            vec![choice],
            line(0, &cdb, 4096, &[0; 24]),
            line(1, &some, 4096, &[1; 512]),
        ];
        let name = row
            .name
            .to_lowercase()
            .replace(|c: char| !c.is_alphanumeric(), "-");
        let name = format!(
            "{}{:02x}-{action:02x}-{}",
            if choice == 0 { "" } else { "passed-" },
            row.opcode(),
            name.trim_matches('-')
        );
        seeds.push(named(name, script.concat()));
    }
    seeds
}

/// Scripts of several commands for a disk.
fn disks() -> Vec<Seed> {
    let mut seeds = commands_for(DeviceType::Disk, 0);
    let pr_out = |action: u8, kind: u8, key: u8, new: u8| {
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        let mut list = [0; 24];
        (list[7], list[15], list[20]) = (key, new, 1);
        line(new & 1, &cdb, 24, &list)
    };
    let reservations = [
        vec![0],
        pr_out(6, 0, 0, 4),
        pr_out(6, 0, 0, 5),
        pr_out(1, 5, 4, 0),
        pr_out(4, 5, 5, 4),
        line(0, &[0x5e, 3, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096, &[]),
        pr_out(3, 0, 4, 0),
        vec![0xf0, 0xf1],
    ];
    seeds.push(named("reservations", reservations.concat()));
    let caching = [
        0, 0, 0, 0, 0x08, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let modes = [
        vec![0],
        line(0, &[0x15, 0x11, 0, 0, 24, 0], 24, &caching),
        line(1, &[0x1a, 0, 0x3f, 0xff, 0xff, 0], 255, &[]),
    ];
    seeds.push(named("mode-select", modes.concat()));
    let ranges = [
        0, 38, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0, 0, 0,
    ];
    let unmap = line(0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24, &ranges);
    seeds.push(named("unmap-list", [vec![0], unmap].concat()));
    seeds
}

fn luns() -> Vec<Seed> {
    let addresses = [
        0x0005_0000_0000_0000_u64,
        0x4105_0000_0000_0000,
        0x8003_0000_0000_0000,
        0xd200_0100_0000_0000,
        0xc101_0000_0000_0000,
        u64::MAX,
    ];
    let bytes: Vec<u8> = addresses
        .iter()
        .flat_map(|address| address.to_be_bytes())
        .collect();
    vec![named("methods", bytes)]
}

fn states() -> Vec<Seed> {
    let mut body = vec![1, 5, 0, 1, 0, 2];
    for number in [b'0', b'1'] {
        body.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, number, 0, 1, 0, 24, 5, 0, 0, 20]);
        body.extend_from_slice(b"iqn.2026-11.test:");
        body.extend_from_slice(&[number, 0, 0]);
    }
    vec![
        named("two-registrations", body.clone()),
        named("two-registrations-kept", crate::small::kept(&body)),
        named("nothing-kept", crate::small::kept(&[0; 6])),
    ]
}

fn configs() -> Vec<Seed> {
    let full = include_str!("seeds/full.toml");
    let values = "size = 1G\nbind = [::]:3260\nstore = file:/srv/disk.img?thin=true&size=10M\n\
        name = iqn.2026-11.example.tarn:demo\ninitiators = 10.0.0.0/8\nname = naa.3333330000001234\n\
        size = 18446744073709551615T\nbind = 127.0.0.1:65536\nname = iqn.*\n";
    vec![named("full", full), named("values", values)]
}

/// A sample of the importers' tests.
macro_rules! sample {
    ($path:literal) => {
        include_str!(concat!("../../tests/import/", $path))
    };
}

fn imports() -> Vec<Seed> {
    let samples: [(&str, &[&str]); 7] = [
        (
            "tgt",
            &[
                sample!("tgt/targets.conf"),
                sample!("tgt/conf.d/archive.conf"),
            ],
        ),
        ("tgt-show", &[sample!("tgt-show/show.txt")]),
        ("lio", &[sample!("lio/saveconfig.json")]),
        ("scst", &[sample!("scst/scst.conf")]),
        (
            "iet",
            &[sample!("iet/ietd.conf"), sample!("iet/initiators.allow")],
        ),
        (
            "istgt",
            &[sample!("istgt/istgt.conf"), sample!("istgt/auth.conf")],
        ),
        ("ctl", &[sample!("ctl/ctl.conf")]),
    ];
    samples
        .into_iter()
        .map(|(name, texts)| named(name, texts.join(crate::import::BETWEEN)))
        .collect()
}

// ---- NBD servers -----------------------------------------------------------------------------

/// Joins fields in network order.
macro_rules! wire {
    ($($field:expr),* $(,)?) => {
        [$(&$field.to_be_bytes()[..]),*].concat()
    };
}

/// Length of the pieces that a stream comes in, less one.
const PIECES: u8 = 63;

fn nbd_clients() -> Vec<Seed> {
    let option = |number: u32, data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let header = wire!(u64::from_be_bytes(*b"IHAVEOPT"), number, length);
        [&header[..], data].concat()
    };
    let name = [&wire!(4_u32)[..], b"disk"].concat();
    let go = [&name[..], &wire!(1_u16, 3_u16)].concat();
    let context = [&name[..], &wire!(1_u32, 15_u32), b"base:allocation"].concat();
    let request = |flags: u16, kind: u16, offset: u64, length: u32| {
        wire!(0x2560_9513_u32, flags, kind, 7_u64, offset, length)
    };
    let parts = [
        wire!(3_u32),
        option(3, &[]),
        option(8, &[]),
        option(10, &context),
        option(6, &go),
        option(7, &go),
        request(0, 0, 4096, 4096),
        request(1, 1, 0, 4096),
        vec![1; 4096],
        request(0, 3, 0, 0),
        request(0, 4, 8192, 4096),
        request(2, 6, 8192, 4096),
        request(8, 7, 0, 1 << 20),
        request(0, 2, 0, 0),
    ];
    let bytes = [&[AS_SERVER, PIECES], &parts.concat()[..]].concat();
    vec![named("client", bytes)]
}

fn nbd_servers() -> Vec<Seed> {
    let seed = |what: u8, parts: &[Vec<u8>]| [&[what, PIECES], &parts.concat()[..]].concat();
    let simple = |error: u32, cookie: u64| wire!(0x6744_6698_u32, error, cookie);
    let chunk = |flags: u16, kind: u16, cookie: u64, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = wire!(0x668e_33ef_u32, flags, kind, cookie, length);
        [&header[..], payload].concat()
    };
    let greeting = wire!(
        u64::from_be_bytes(*b"NBDMAGIC"),
        u64::from_be_bytes(*b"IHAVEOPT"),
        3_u16
    );
    let reply = |option: u32, kind: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = wire!(0x0003_e889_0455_65a9_u64, option, kind, length);
        [&header[..], payload].concat()
    };
    let (structured, context, go) = (8, 10, 7);
    let allocation = [&wire!(1_u32)[..], b"base:allocation"].concat();
    let export = wire!(0_u16, 1_u64 << 20, 0x007d_u16);
    let sizes = wire!(3_u16, 512_u32, 4096_u32, 1_u32 << 20);
    let oops = [&wire!(5_u32, 4_u16)[..], b"oops"].concat();
    #[rustfmt::skip]
    let seeds: [(&str, u8, &[Vec<u8>]); 4] = [
        ("simple", 0, &[
            simple(0, 0), vec![1; 512], simple(5, 1), simple(0, 2), simple(0, 3), simple(0, 1 << 32),
        ]),
        ("structured", STRUCTURED, &[
            chunk(0, 1, 0, &[&wire!(0_u64)[..], &[1; 256]].concat()),
            chunk(1, 2, 0, &wire!(256_u64, 256_u32)),
            chunk(1, 0x8001, 1, &oops),
            chunk(1, 0, 2, &[]),
            chunk(1, 0, 3, &[]),
        ]),
        ("handshake", WITH_HANDSHAKE, &[
            greeting.clone(),
            reply(structured, 1, &[]), reply(context, 4, &allocation), reply(context, 1, &[]),
            reply(go, 3, &export), reply(go, 3, &sizes), reply(go, 1, &[]),
            chunk(1, 0x8001, 0, &wire!(28_u32, 0_u16)),
        ]),
        ("handshake-of-old", WITH_HANDSHAKE, &[
            greeting,
            reply(structured, 0x8000_0001, &[]), reply(go, 0x8000_0001, &[]),
            wire!(1_u64 << 20, 0x007d_u16),
            simple(0, 0), vec![1; 512],
        ]),
    ];
    seeds
        .map(|(name, what, parts)| named(name, seed(what, parts)))
        .to_vec()
}
