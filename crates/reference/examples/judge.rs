//! `judge BLOCKS BLOCK_BYTES [cached] [removable] [thin] [readonly]`: has the reference judge LUN 0 of a target,
//! command by command, from a record on standard input. Exit code 1 if there is a breach.
//!
//! A record is what `tests/conformance/relay.py` writes: the connection (4 bytes), what happened (1 byte: 0 bytes of
//! the initiator, 1 bytes of the target, 2 the connection closed, 3 no session is left), the number of bytes (4), and
//! these.
#![expect(clippy::print_stdout, reason = "a program of the tests")]

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::process::ExitCode;

use iscsi::framing::{Pdu, PduBuffer};
use reference::{Breach, Event, Nexus, Outcome, Plan, Port, Tag, Unit, View, knows};

/// Longer data segments are not sent.
const DATA_SEGMENT_MAX: usize = 1 << 24;

type Failure = Box<dyn std::error::Error>;

/// What was seen, in its order.
enum Seen {
    Begins {
        nexus: Nexus,
        port: Port,
    },
    Command {
        tag: Tag,
        nexus: Nexus,
        cdb: Vec<u8>,
        data_out: Vec<u8>,
        room: usize,
        /// More of its Data-Out may come.
        waits: bool,
    },
    Answer {
        tag: Tag,
        status: u8,
        sense: Vec<u8>,
        data_in: Vec<u8>,
    },
    Request {
        tag: Tag,
        event: Event,
    },
    Done {
        tag: Tag,
        happened: bool,
    },
    Ends {
        nexus: Nexus,
    },
    Ended {
        nexus: Nexus,
    },
    Quiet,
}

#[derive(Default)]
struct Connection {
    buffers: [PduBuffer; 2],
    digests: [bool; 2],
    login: BTreeMap<String, String>,
    isid: Vec<u8>,
    nexus: Option<Nexus>,
    is_over: bool,
    /// By ITT: the tag, and where in what was seen the command stands.
    commands: BTreeMap<u32, (Tag, usize)>,
    data_in: BTreeMap<u32, Vec<u8>>,
    requests: BTreeMap<u32, Tag>,
}

#[derive(Default)]
struct Reader {
    connections: BTreeMap<u32, Connection>,
    /// What is not judged yet: that which waits for Data-Out, and all after it.
    seen: VecDeque<Seen>,
    /// How much was.
    taken: usize,
    last: u64,
    sessions: u64,
}

fn word(bytes: &[u8], at: usize) -> usize {
    bytes[at..at + 4]
        .iter()
        .fold(0, |number, &byte| number << 8 | usize::from(byte))
}

fn itt(pdu: &Pdu) -> u32 {
    u32::try_from(word(&pdu.header, 16)).unwrap_or(u32::MAX)
}

/// Puts `bytes` at `at`.
fn place(data: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    data.resize(data.len().max(end), 0);
    data[at..end].copy_from_slice(bytes);
}

impl Reader {
    fn record(&mut self, connection: u32, what: u8, bytes: &[u8]) -> Result<(), Failure> {
        let mut it = self.connections.remove(&connection).unwrap_or_default();
        match what {
            0 | 1 => {
                let side = usize::from(what);
                it.buffers[side].push(bytes);
                while let Some(pdu) =
                    it.buffers[side].next_pdu(DATA_SEGMENT_MAX, it.digests[0], it.digests[1])?
                {
                    if side == 0 {
                        self.sent(&mut it, &pdu);
                    } else {
                        self.answered(&mut it, &pdu);
                    }
                }
            }
            2 => self.over(&mut it),
            _ => self.seen.push_back(Seen::Quiet),
        }
        self.connections.insert(connection, it);
        Ok(())
    }

    fn tag(&mut self) -> Tag {
        self.last += 1;
        Tag(self.last)
    }

    /// More Data-Out of a command.
    fn collect(&mut self, at: usize, offset: usize, bytes: &[u8]) {
        if let Some(Seen::Command { data_out, .. }) = self.waiting(at) {
            place(data_out, offset, bytes);
        }
    }

    /// Something that was seen, if it is not judged yet.
    fn waiting(&mut self, at: usize) -> Option<&mut Seen> {
        at.checked_sub(self.taken)
            .and_then(|at| self.seen.get_mut(at))
    }

    /// No more of its Data-Out comes.
    fn complete(&mut self, at: usize) {
        if let Some(Seen::Command { waits, .. }) = self.waiting(at) {
            *waits = false;
        }
    }

    /// The next that can be judged.
    fn next(&mut self) -> Option<Seen> {
        if matches!(self.seen.front(), Some(Seen::Command { waits: true, .. })) {
            return None;
        }
        self.taken += 1;
        self.seen.pop_front()
    }

    fn over(&mut self, it: &mut Connection) {
        for (_, at) in it.commands.values() {
            self.complete(*at);
        }
        if let Some(nexus) = it.nexus.filter(|_| !it.is_over) {
            it.is_over = true;
            self.seen.push_back(Seen::Ends { nexus });
        }
    }

    fn sent(&mut self, it: &mut Connection, pdu: &Pdu) {
        let header = &pdu.header;
        match (header[0] & 0x3f, it.nexus) {
            (0x03, None) => {
                it.isid = header[8..14].to_vec();
                learn(&mut it.login, &pdu.data);
            }
            (0x01, Some(nexus)) if header[8..16] == [0; 8] && pdu.ahs.is_empty() => {
                let expected = word(header, 20);
                let room = if header[1] & 0x40 != 0 { expected } else { 0 };
                let tag = self.tag();
                it.commands
                    .insert(itt(pdu), (tag, self.taken + self.seen.len()));
                it.data_in.insert(itt(pdu), Vec::new());
                let (cdb, data_out) = (cdb(&header[32..48]), pdu.data.clone());
                let waits = header[1] & 0x20 != 0;
                self.seen.push_back(Seen::Command {
                    tag,
                    nexus,
                    cdb,
                    data_out,
                    room,
                    waits,
                });
            }
            (0x05, Some(_)) => {
                if let Some(&(_, at)) = it.commands.get(&itt(pdu)) {
                    self.collect(at, word(header, 40), &pdu.data);
                }
            }
            (0x02, Some(nexus)) if header[8..16] == [0; 8] => {
                let event = match header[1] & 0x7f {
                    4 => Event::ClearTaskSet(nexus),
                    5 => Event::LogicalUnitReset,
                    6 | 7 => Event::TargetReset,
                    _ => return,
                };
                let tag = self.tag();
                it.requests.insert(itt(pdu), tag);
                self.seen.push_back(Seen::Request { tag, event });
            }
            (0x06, Some(_)) => self.over(it),
            _ => {}
        }
    }

    fn answered(&mut self, it: &mut Connection, pdu: &Pdu) {
        let header = &pdu.header;
        match header[0] & 0x3f {
            0x23 => {
                learn(&mut it.login, &pdu.data);
                if header[1] & 0x83 == 0x83 && header[36] == 0 {
                    self.begin(it);
                }
            }
            0x25 => {
                let data = it.data_in.entry(itt(pdu)).or_default();
                place(data, word(header, 40), &pdu.data);
                if header[1] & 1 != 0 {
                    self.answer(it, pdu, header[3], Vec::new());
                }
            }
            0x21 if header[2] == 0 => {
                let sense = pdu.data.get(2..).unwrap_or_default().to_vec();
                self.answer(it, pdu, header[3], sense);
            }
            0x22 => {
                if let Some(tag) = it.requests.remove(&itt(pdu)) {
                    self.seen.push_back(Seen::Done {
                        tag,
                        happened: header[2] == 0,
                    });
                }
            }
            0x26 => self
                .seen
                .extend(it.nexus.map(|nexus| Seen::Ended { nexus })),
            _ => {}
        }
    }

    fn answer(&mut self, it: &mut Connection, pdu: &Pdu, status: u8, sense: Vec<u8>) {
        if let Some((tag, at)) = it.commands.remove(&itt(pdu)) {
            self.complete(at);
            let data_in = it.data_in.remove(&itt(pdu)).unwrap_or_default();
            self.seen.push_back(Seen::Answer {
                tag,
                status,
                sense,
                data_in,
            });
        }
    }

    /// The login is over.
    fn begin(&mut self, it: &mut Connection) {
        let key = |name: &str| it.login.get(name).map_or("", String::as_str);
        it.digests = ["HeaderDigest", "DataDigest"].map(|name| key(name) == "CRC32C");
        if key("SessionType") == "Discovery" {
            return;
        }
        self.sessions += 1;
        let initiator = format!("{},i,{:02x?}", key("InitiatorName"), it.isid);
        let target = format!("{},t,{}", key("TargetName"), key("TargetPortalGroupTag"));
        let nexus = Nexus(self.sessions);
        self.seen.push_back(Seen::Begins {
            nexus,
            port: Port::new(&initiator, &target),
        });
        it.nexus = Some(nexus);
    }
}

/// The text keys of a login.
fn learn(keys: &mut BTreeMap<String, String>, text: &[u8]) {
    for pair in String::from_utf8_lossy(text).split('\0') {
        if let Some((name, value)) = pair.split_once('=') {
            keys.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// A CDB with the length that its operation code says.
fn cdb(field: &[u8]) -> Vec<u8> {
    let length = match field[0] >> 5 {
        0 => 6,
        1 | 2 => 10,
        5 => 12,
        _ => 16,
    };
    field[..length].to_vec()
}

/// What a session held may be held for so many commands after its end.
const LATE_COMMANDS: u32 = 4;
const LATE_MAX: usize = 1;

/// What was judged.
#[derive(Default)]
struct Score {
    judged: BTreeMap<u8, u64>,
    unknown: BTreeMap<u8, u64>,
    unanswered: u64,
    sessions: u64,
}

struct Judge {
    unit: Unit,
    view: View,
    score: Score,
    /// Commands under way, by session.
    under_way: BTreeMap<Tag, (Nexus, Vec<u8>)>,
    ending: BTreeMap<Nexus, Tag>,
    /// Ends of sessions that not every core may know of yet, and how many more commands until then.
    late: VecDeque<(Tag, u32)>,
    ports: BTreeMap<Nexus, Port>,
    last: u64,
}

impl Judge {
    fn see(&mut self, seen: &Seen) -> Result<(), Breach> {
        match seen {
            Seen::Begins { nexus, port } => {
                // A session that is reinstated is over before the new one begins.
                let old = self
                    .ports
                    .iter()
                    .filter(|(_, old)| *old == port)
                    .map(|(&nexus, _)| nexus);
                for old in old.collect::<Vec<_>>() {
                    self.ends(old);
                    self.ended(old)?;
                }
                self.score.sessions += 1;
                self.ports.insert(*nexus, port.clone());
                self.unit.nexus_begins(*nexus, port, self.view);
            }
            Seen::Command {
                tag,
                nexus,
                cdb,
                data_out,
                room,
                ..
            } => {
                self.unit.begin(*tag, *nexus, cdb, data_out, *room);
                self.under_way.insert(*tag, (*nexus, cdb.clone()));
            }
            Seen::Answer {
                tag,
                status,
                sense,
                data_in,
            } => {
                if let Some((_, cdb)) = self.under_way.remove(tag) {
                    let counts = if knows(&cdb) {
                        &mut self.score.judged
                    } else {
                        &mut self.score.unknown
                    };
                    *counts.entry(cdb[0]).or_default() += 1;
                    self.unit.end(
                        *tag,
                        Outcome {
                            status: *status,
                            sense,
                            data_in,
                        },
                    )?;
                    self.pass()?;
                }
            }
            Seen::Request { tag, event } => self.unit.event_begins(*tag, event.clone()),
            Seen::Done { tag, happened } => self.unit.event_ends(*tag, *happened)?,
            Seen::Ends { nexus } => self.ends(*nexus),
            Seen::Ended { nexus } => self.ended(*nexus)?,
            Seen::Quiet => {
                for nexus in self.ports.keys().copied().collect::<Vec<_>>() {
                    self.ends(nexus);
                    self.ended(nexus)?;
                }
            }
        }
        Ok(())
    }

    fn ends(&mut self, nexus: Nexus) {
        if self.ports.contains_key(&nexus) && !self.ending.contains_key(&nexus) {
            self.last -= 1;
            self.unit
                .event_begins(Tag(self.last), Event::NexusEnds(nexus));
            self.ending.insert(nexus, Tag(self.last));
        }
    }

    fn ended(&mut self, nexus: Nexus) -> Result<(), Breach> {
        let Some(ending) = self.ending.remove(&nexus) else {
            return Ok(());
        };
        self.ports.remove(&nexus);
        let lost = self
            .under_way
            .iter()
            .filter(|(_, (of, _))| *of == nexus)
            .map(|(&tag, _)| tag);
        for tag in lost.collect::<Vec<_>>() {
            self.under_way.remove(&tag);
            self.score.unanswered += 1;
            self.unit.gone(tag)?;
        }
        self.late.push_back((ending, LATE_COMMANDS));
        match self.late.len() > LATE_MAX {
            true => self.know(),
            false => Ok(()),
        }
    }

    /// A command was answered.
    fn pass(&mut self) -> Result<(), Breach> {
        for (_, left) in &mut self.late {
            *left = left.saturating_sub(1);
        }
        while self.late.front().is_some_and(|(_, left)| *left == 0) {
            self.know()?;
        }
        Ok(())
    }

    /// All know of the first end of a session.
    fn know(&mut self) -> Result<(), Breach> {
        let Some((ending, _)) = self.late.pop_front() else {
            return Ok(());
        };
        self.unit.event_ends(ending, true)
    }
}

/// Why no more is judged.
enum End {
    Breach(String),
    /// So many states are possible: on a busy machine many commands are under way, each of which may have come first.
    Lost(usize),
}

impl End {
    fn of(breach: &Breach) -> Self {
        if let Breach::TooManyStates(states) = breach {
            Self::Lost(*states)
        } else {
            Self::Breach(breach.to_string())
        }
    }
}

fn listed(counts: &BTreeMap<u8, u64>) -> String {
    let each: Vec<String> = counts
        .iter()
        .map(|(opcode, count)| format!("{opcode:02x}h {count}"))
        .collect();
    if each.is_empty() {
        "none".to_owned()
    } else {
        each.join(", ")
    }
}

/// Says what was judged, and what not.
fn told(score: &Score, end: Option<&End>, unseen: u64) -> ExitCode {
    let Score {
        judged,
        unknown,
        unanswered,
        sessions,
    } = score;
    let count: u64 = judged.values().sum();
    println!("{count} commands of {sessions} sessions judged, {unanswered} never answered");
    println!("unknown to the reference: {}", listed(unknown));
    match end {
        None => println!("no breach"),
        Some(End::Lost(states)) if count >= unseen => {
            println!(
                "no breach before {states} possible states; {unseen} commands after that are not judged"
            );
        }
        Some(End::Lost(states)) => {
            println!(
                "FEW: {states} possible states after {count} commands; {unseen} are not judged"
            );
            return ExitCode::FAILURE;
        }
        Some(End::Breach(breach)) => {
            println!("BREACH after {count} commands: {breach}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [blocks, block_bytes, words @ ..] = &arguments[..] else {
        return Err(
            "usage: judge BLOCKS BLOCK_BYTES [cached] [removable] [thin] [readonly]".into(),
        );
    };
    let has = |word: &str| words.iter().any(|given| given == word);
    let plan = Plan {
        blocks: blocks.parse()?,
        block_bytes: block_bytes.parse()?,
        removable: has("removable"),
        thin: has("thin"),
        write_cache: has("cached"),
    };
    let view = View {
        read_only: has("readonly"),
        ..View::default()
    };
    let mut judge = Judge {
        unit: Unit::new(plan),
        view,
        score: Score::default(),
        under_way: BTreeMap::new(),
        ending: BTreeMap::new(),
        late: VecDeque::new(),
        ports: BTreeMap::new(),
        last: 1 << 60,
    };
    let (mut reader, mut input) = (Reader::default(), std::io::stdin().lock());
    let (mut head, mut bytes, mut end, mut unseen) = ([0; 9], Vec::new(), None, 0_u64);
    while input.read_exact(&mut head).is_ok() {
        bytes.resize(word(&head, 5), 0);
        input.read_exact(&mut bytes)?;
        let connection = u32::try_from(word(&head, 0))?;
        let unread = reader.record(connection, head[4], &bytes).err();
        end = end.or_else(|| unread.map(|it| End::Breach(it.to_string())));
        // After the end the rest is only read, as who writes it goes on.
        while let Some(seen) = reader.next() {
            if end.is_some() {
                unseen += u64::from(matches!(seen, Seen::Answer { .. }));
            } else if let Err(breach) = judge.see(&seen) {
                end = Some(End::of(&breach));
            }
        }
    }
    Ok(told(&judge.score, end.as_ref(), unseen))
}
