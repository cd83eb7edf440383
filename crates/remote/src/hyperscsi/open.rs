//! What a device is found to be when it is opened.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperscsi::{ClientSession, Device, LoginError};
use reactor::Address;
use store::SharedStore;

use super::attendant::{self, Known};
use super::options::HyperscsiOptions;
use super::station::{Connection, Sessions, Station, StepError};
use super::wire::{Carrier, Place, Wire, WireError, of_bytes};
use crate::scsi::command::{Facts, Unfit};
use crate::scsi::handle::ScsiDisk;
use crate::scsi::host::{LOOK_MAX, Until};
use crate::scsi::job::Bytes;
use crate::scsi::link::{NoDisk, Whose};
use crate::scsi::medium::InUse;
use crate::scsi::shared::{Common, Losses, Terms};

/// How long servers are looked for.
const SEARCH_MAX: Duration = Duration::from_secs(3);
/// How long others may answer after the first. A server waits 20 ms at most; one question may be lost.
const OTHERS_MAX: Duration = Duration::from_millis(500);
/// Servers that are logged in at to find a device, at most; beyond it one has to be named. Each costs a tenth of a
/// second.
const SERVERS_MAX: usize = 8;
/// In a message, at most.
const NAMED_MAX: usize = 8;

/// Why a device cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{carrier}, group {group:?}, device {device:?}: {reason}")]
pub struct HyperscsiOpenError {
    carrier: Carrier,
    group: String,
    device: String,
    /// What was found.
    pub reason: Box<HyperscsiFailure>,
}

/// What keeps a device from being a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HyperscsiFailure {
    /// No socket, or no such host.
    #[error("cannot be reached: {}; check the name of the host", crate::words(.0))]
    Carrier(io::Error),
    /// No socket of an interface; the message has the remedy.
    #[error("{}", crate::chain(.0.as_ref()))]
    Interface(Box<dyn std::error::Error + Send + Sync>),
    /// The system has no random bytes.
    #[error("the system gives no random bytes")]
    NoRandom,
    /// Nobody has the group.
    #[error(
        "no server answers for this group within {} s; check the name of the group, the address and the server",
        SEARCH_MAX.as_secs()
    )]
    NoServer,
    /// Others have it.
    #[error("no server of the name or address {wanted:?} answers; those that do are {found}")]
    OtherServer {
        /// The name that was asked for.
        wanted: String,
        /// Those that answer.
        found: String,
    },
    /// It is not open, and nobody gave a password.
    #[error(
        "server {server:?}: the group needs a password; give a file that has it, with --password-file FILE or \
         password_file=FILE"
    )]
    NeedsPassword {
        /// Its name.
        server: String,
    },
    /// It is open, and there is a password. The server that says that it is open may be another one than is meant.
    #[error(
        "server {server:?}: the group needs no password there, and refuses the one that is given; leave it out if \
         that is the server that is meant"
    )]
    NeedsNone {
        /// Its name.
        server: String,
    },
    /// The login failed.
    #[error("server {server:?}: {reason}; {}", remedy(.reason))]
    Login {
        /// Its name.
        server: String,
        /// Why.
        reason: LoginError,
    },
    /// The server does not do what it has to.
    #[error("server {server:?}: {reason}; try again, or look at the log of the server")]
    Broken {
        /// Its name.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no such device.
    #[error("there is no such device; there are {found}")]
    NoDevice {
        /// The names.
        found: String,
    },
    /// There are several.
    #[error("several servers have such a device: {servers}; add server= with the {by} of one")]
    Ambiguous {
        /// In what they differ: name or address.
        by: &'static str,
        /// Those.
        servers: String,
    },
    /// There are too many servers to look at.
    #[error(
        "{count} servers have this group, more than the {SERVERS_MAX} that are looked at; add server= with the name or \
         address of one"
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// It cannot be a disk here.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// Another store has the disk.
    #[error(transparent)]
    Twice(InUse),
}

impl From<NoDisk> for HyperscsiFailure {
    fn from(error: NoDisk) -> Self {
        match error {
            NoDisk::Twice(in_use) => Self::Twice(in_use),
            NoDisk::Host(error) => Self::Carrier(error),
        }
    }
}

const fn remedy(error: &LoginError) -> &'static str {
    match error {
        LoginError::Password => "check the password, the group and the user",
        LoginError::NoPlace => "end another session, or raise the limit of the server",
        LoginError::Silent => {
            "check that the server works; after several attempts it is silent for some seconds"
        }
    }
}

/// A session in which a device is open, its socket, and how to send through it. Time is counted from `began`.
#[derive(Debug)]
pub struct HyperscsiConnection {
    /// The session.
    pub session: Box<ClientSession<Bytes>>,
    /// When its time was zero.
    pub began: Instant,
    /// Bound, and for frames of this session alone if it is one of an interface.
    pub socket: Arc<OwnedFd>,
    /// Where frames go.
    pub target: Address,
    /// The device.
    pub device: u16,
    /// Its size.
    pub size_bytes: u64,
    /// Its blocks.
    pub block_bytes: u32,
    /// The most that a command moves.
    pub transfer_bytes_max: u32,
}

/// A server that answered for a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerFound {
    /// Its name for people.
    pub name: String,
    /// A random number that stays the same.
    pub id: [u8; 16],
    /// Where it answered from.
    pub address: String,
    /// Which of the groups it has, in the order they were asked for, and whether they need no password.
    pub groups: Vec<(String, bool)>,
}

/// Looks for servers of these groups, at most 16. Blocks, for about two seconds.
///
/// # Errors
///
/// There is no socket, or no such host.
pub fn discover(
    carrier: &Carrier,
    groups: &[String],
) -> Result<Vec<ServerFound>, HyperscsiFailure> {
    let mut station = station(carrier)?;
    let until = station.now() + OTHERS_MAX * 4;
    let found = station.search(groups.to_vec(), until, &mut Until::never(), |_| false);
    let found = found.unwrap_or_default().into_iter().map(|found| {
        let answer = found.answer;
        let named = groups.iter().enumerate();
        let named = named.filter(|(at, _)| answer.groups >> at & 1 != 0);
        ServerFound {
            groups: named
                .map(|(at, name)| (name.clone(), answer.open >> at & 1 != 0))
                .collect(),
            name: answer.name,
            id: answer.server,
            address: address(&found.address),
        }
    });
    Ok(found.collect())
}

/// Where a server answered from, for people.
fn address(bytes: &[u8]) -> String {
    of_bytes(bytes).map_or_else(String::new, |place| place.to_string())
}

/// Whether a server is at this address. One of IP may be without a port.
fn is_at(found: &hyperscsi::Found, wanted: &str) -> bool {
    let bare = || {
        let inside = wanted
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        inside.unwrap_or(wanted).parse::<IpAddr>().ok()
    };
    match of_bytes(&found.address) {
        Some(place @ Place::Inet(at)) => wanted == place.to_string() || bare() == Some(at.ip()),
        Some(place @ Place::Link(_)) => wanted == place.to_string(),
        None => false,
    }
}

/// Whether a server may be the one that is wanted, by its address or its name.
fn is_wanted(found: &hyperscsi::Found, wanted: &str) -> bool {
    found.answer.name == wanted || is_at(found, wanted)
}

/// Leaves those that are wanted. An address goes before a name: a server may call itself like the address of another.
fn retain_wanted(found: &mut Vec<hyperscsi::Found>, wanted: &str) {
    let by_address = found.iter().any(|found| is_at(found, wanted));
    found.retain(|found| match by_address {
        true => is_at(found, wanted),
        false => is_wanted(found, wanted),
    });
}

/// Says several servers apart: by their names, where no two have the same one, else by their addresses.
fn ambiguous<'a>(servers: impl Iterator<Item = &'a hyperscsi::Found> + Clone) -> HyperscsiFailure {
    let names = || servers.clone().map(|found| found.answer.name.as_str());
    let is_same = names().collect::<BTreeSet<_>>().len() < names().count();
    if is_same {
        let addresses: Vec<String> = servers.map(|found| address(&found.address)).collect();
        HyperscsiFailure::Ambiguous {
            by: "address",
            servers: listed(addresses.iter().map(String::as_str)),
        }
    } else {
        HyperscsiFailure::Ambiguous {
            by: "name",
            servers: listed(names()),
        }
    }
}

fn station(carrier: &Carrier) -> Result<Station, HyperscsiFailure> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|_| HyperscsiFailure::NoRandom)?;
    let wire = Wire::open(carrier).map_err(|error| match error {
        WireError::Host(error) => HyperscsiFailure::Carrier(error),
        error @ (WireError::Interface(_) | WireError::Mtu { .. }) => {
            HyperscsiFailure::Interface(Box::new(error))
        }
    })?;
    Ok(Station::new(wire, &seed))
}

/// What the first look has found.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) server: [u8; 16],
    pub(super) server_name: String,
    pub(super) device: Device,
    pub(super) facts: Facts,
}

/// The device, if it is in the table.
fn find<'a>(table: &'a [Device], wanted: &str) -> Option<&'a Device> {
    let named = table.iter().find(|device| device.name == wanted);
    let place = || wanted.parse::<usize>().ok()?.checked_sub(1);
    named.or_else(|| table.get(place()?))
}

/// Some names, for a message.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    some(&names.map(|name| format!("{name:?}")).collect::<Vec<_>>())
}

/// Servers, for a message.
fn listed_servers(servers: &[hyperscsi::Found]) -> String {
    let server = |found: &hyperscsi::Found| {
        format!("{:?} at {}", found.answer.name, address(&found.address))
    };
    some(&servers.iter().map(server).collect::<Vec<_>>())
}

fn some(names: &[String]) -> String {
    match names.len() {
        0 => "none".to_owned(),
        1..=NAMED_MAX => names.join(", "),
        count => {
            let first = names.get(..NAMED_MAX).unwrap_or_default().join(", ");
            format!("{first} and {} others", count - NAMED_MAX)
        }
    }
}

impl HyperscsiOptions {
    /// Finds the device, looks at it, and gives the store. Blocks.
    ///
    /// # Errors
    ///
    /// There is no such device, it cannot be a disk, or it cannot be reached.
    pub fn open(self) -> Result<Arc<dyn SharedStore>, HyperscsiOpenError> {
        let opened = self.look().and_then(|(station, look)| {
            let disk = self.clone().disk(station, look);
            disk.map_err(HyperscsiFailure::from)
        });
        let disk = opened.map_err(|reason| self.failed(reason))?;
        Ok(Arc::new(disk))
    }

    fn disk(self, station: Station, look: Look) -> Result<ScsiDisk, NoDisk> {
        let terms = Terms {
            retry: self.retry,
            read_only: self.read_only,
            thin: self.thin,
            block_bytes: self.block_bytes,
        };
        let whose = Whose {
            kind: "a HyperSCSI server",
            what: "device of this name",
            server: format!("server {:?}", look.server_name),
            device: self.device.clone(),
            store: self.to_string(),
        };
        let known = Known {
            options: self,
            server: look.server,
            device: look.device,
        };
        let begin = Box::new(move |common: &Arc<_>| attendant::begin(common, station, known));
        Common::new(terms, whose, Losses::WithSession, look.facts, begin).map(ScsiDisk::new)
    }

    /// The devices of one server. Blocks.
    ///
    /// # Errors
    ///
    /// It cannot be reached, refuses the password, or there are several.
    pub fn devices(&self) -> Result<Vec<Device>, HyperscsiFailure> {
        let mut station = station(&self.carrier)?;
        let host = &mut Until(station.now() + LOOK_MAX);
        let servers = self.servers(&mut station)?;
        let [found] = &servers[..] else {
            return Err(ambiguous(servers.iter()));
        };
        self.table(&mut Sessions::new(&mut station), found, host)
    }

    fn servers(&self, station: &mut Station) -> Result<Vec<hyperscsi::Found>, HyperscsiFailure> {
        let many = station.wire.reaches_many();
        let groups = vec![self.group.clone()];
        let until = station.now() + SEARCH_MAX;
        let wanted = self.server.as_deref();
        let is_wanted =
            |found: &hyperscsi::Found| wanted.is_none_or(|wanted| is_wanted(found, wanted));
        // Of several with one name the first would be taken.
        let is_named = |found: &hyperscsi::Found| {
            wanted.is_some_and(|wanted| wanted == address(&found.address))
        };
        let is_enough = |found: &hyperscsi::Found| !many || is_named(found);
        // The first shows that there are some; others may be slower.
        let search =
            |station: &mut Station, until, is_enough: &mut dyn FnMut(&hyperscsi::Found) -> bool| {
                let found = station.search(groups.clone(), until, &mut Until::never(), is_enough);
                found.unwrap_or_default()
            };
        let mut found = search(station, until, &mut |found| {
            is_enough(found) || is_wanted(found)
        });
        if many && !found.iter().any(is_named) && found.iter().any(is_wanted) {
            let until = station.now() + OTHERS_MAX;
            let others = search(station, until, &mut |_| false);
            // One that is slow, or whose second answer is lost, has answered all the same.
            let is_known = |one: &hyperscsi::Found| {
                let mut others = others.iter();
                others.any(|other| other.answer.server == one.answer.server)
            };
            found.retain(|one| !is_known(one));
            found.extend(others);
        }
        if found.is_empty() {
            return Err(HyperscsiFailure::NoServer);
        }
        let all = listed_servers(&found);
        if let Some(wanted) = wanted {
            retain_wanted(&mut found, wanted);
        }
        match (wanted, found.len()) {
            (Some(wanted), 0) => Err(HyperscsiFailure::OtherServer {
                wanted: wanted.to_owned(),
                found: all,
            }),
            (_, count) if count > SERVERS_MAX => Err(HyperscsiFailure::TooMany { count }),
            (_, _) => Ok(found),
        }
    }

    /// The devices of a server, in a session that is the last one then.
    fn table(
        &self,
        sessions: &mut Sessions<'_>,
        found: &hyperscsi::Found,
        host: &mut Until,
    ) -> Result<Vec<Device>, HyperscsiFailure> {
        let server = || found.answer.name.clone();
        // It is asked for one group.
        if found.answer.open & 1 == 0 && self.password.bytes().is_empty() {
            return Err(HyperscsiFailure::NeedsPassword { server: server() });
        }
        let who = (
            self.group.as_str(),
            self.user.as_deref(),
            self.password.bytes(),
        );
        let is_open = found.answer.open & 1 == 1 && !self.password.bytes().is_empty();
        let failed = |error| {
            if is_open && matches!(error, StepError::Login(LoginError::Password)) {
                return HyperscsiFailure::NeedsNone { server: server() };
            }
            failure(server(), error)
        };
        let (station, connection) = sessions
            .log_in(found, who, hyperscsi::limits::SILENCE_RADIO, host)
            .map_err(failed)?;
        station.list(connection, host).map_err(failed)
    }

    fn look(&self) -> Result<(Station, Look), HyperscsiFailure> {
        let (mut station, connection, look) = self.look_inside(LOOK_MAX)?;
        station.close(connection);
        Ok((station, look))
    }

    /// The device in a session of its own, for those who drive it themselves. Blocks.
    ///
    /// # Errors
    ///
    /// There is no such device, or it cannot be reached.
    pub fn connect(&self) -> Result<HyperscsiConnection, HyperscsiOpenError> {
        let found = self
            .look_inside(LOOK_MAX)
            .and_then(|(mut station, connection, look)| {
                let facts = &look.facts;
                let Some(target) = station.wire.address(connection.place) else {
                    station.close(connection);
                    return Err(HyperscsiFailure::NoServer);
                };
                Ok(HyperscsiConnection {
                    began: station.began(),
                    target,
                    session: connection.session,
                    device: connection.device,
                    size_bytes: facts.size_bytes,
                    block_bytes: facts.block_bytes,
                    transfer_bytes_max: facts.transfer_bytes_max,
                    socket: station.wire.into_socket(),
                })
            });
        found.map_err(|reason| self.failed(reason))
    }

    fn failed(&self, reason: HyperscsiFailure) -> HyperscsiOpenError {
        HyperscsiOpenError {
            carrier: self.carrier.clone(),
            group: self.group.clone(),
            device: self.device.clone(),
            reason: Box::new(reason),
        }
    }

    /// The same with the session in which the device was looked at, within this time.
    pub(super) fn look_inside(
        &self,
        time: Duration,
    ) -> Result<(Station, Connection, Look), HyperscsiFailure> {
        let mut station = station(&self.carrier)?;
        let host = &mut Until(station.now() + time);
        let servers = self.servers(&mut station)?;
        let mut sessions = Sessions::new(&mut station);
        let mut matching = Vec::new();
        let mut others: Vec<String> = Vec::new();
        for found in servers {
            let table = self.table(&mut sessions, &found, host)?;
            match find(&table, &self.device) {
                Some(device) => matching.push((found, device.clone())),
                None => {
                    others.extend(table.into_iter().map(|device| device.name));
                    sessions.end_last();
                }
            }
        }
        if matching.len() > 1 {
            return Err(ambiguous(matching.iter().map(|(found, _)| found)));
        }
        // What is left is the session of this one.
        let Some((found, device)) = matching.pop() else {
            let found = listed(others.iter().map(String::as_str));
            return Err(HyperscsiFailure::NoDevice { found });
        };
        let failed = |error| failure(found.answer.name.clone(), error);
        let in_session = (sessions.last())
            .and_then(|(station, connection)| self.facts(station, connection, &device, host));
        let facts = in_session.map_err(failed)?;
        facts.check(self.block_bytes, self.read_only)?;
        let connection = sessions.keep_last().map_err(failed)?;
        let look = Look {
            server: found.answer.server,
            server_name: found.answer.name,
            device,
            facts,
        };
        Ok((station, connection, look))
    }

    /// Opens the device and looks at it.
    fn facts(
        &self,
        station: &mut Station,
        connection: &mut Connection,
        device: &Device,
        host: &mut Until,
    ) -> Result<Facts, StepError> {
        station.open(connection, device, self.level, host)?;
        let mut facts = station.facts(connection, device, host)?;
        facts.is_read_only |= device.is_read_only;
        Ok(facts)
    }
}

fn failure(server: String, error: StepError) -> HyperscsiFailure {
    match error {
        StepError::Login(reason) => HyperscsiFailure::Login { server, reason },
        StepError::Broken(reason) => HyperscsiFailure::Broken {
            server,
            reason: reason.to_owned(),
        },
        StepError::Unknown => HyperscsiFailure::Broken {
            server,
            reason: "the device has left meanwhile".to_owned(),
        },
        StepError::GivenUp => HyperscsiFailure::Broken {
            server,
            reason: "it answers, but too slowly".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use hyperscsi::Level;

    use super::super::options::Password;
    use super::*;

    #[test]
    fn a_device_is_found_by_its_name_before_its_place() {
        let device = |handle, name: &str| Device {
            handle,
            level: Level::Crc,
            is_read_only: false,
            is_removable: false,
            peripheral_type: 0,
            block_bytes: 512,
            blocks: 8,
            data_max_bytes: 1 << 20,
            designator: [1; 16],
            name: name.to_owned(),
        };
        let table = [device(7, "a"), device(9, "1"), device(4, "c")];
        let handle = |wanted| find(&table, wanted).map(|device| device.handle);
        assert_eq!(handle("1"), Some(9));
        assert_eq!(handle("3"), Some(4));
        for unknown in ["0", "4", "b", ""] {
            assert_eq!(handle(unknown), None, "{unknown:?}");
        }
    }

    /// What it would answer to the question for others is lost.
    #[test]
    fn a_server_that_answers_once_is_found() {
        let socket = crate::hyperscsi::tests::broadcast(0);
        socket.set_nonblocking(false).unwrap();
        let port = socket.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let cookies = hyperscsi::Cookies::new(&mut hyperscsi::Entropy::new(&[1; 32]));
            let group = hyperscsi::Group {
                name: "G".to_owned(),
                is_open: false,
            };
            let mut responder = hyperscsi::Responder::new([1; 16], "s1".to_owned(), vec![group]);
            let mut frame = [0; 2048];
            let (length, from) = socket.recv_from(&mut frame).unwrap();
            let answer = responder.handle_frame(Duration::ZERO, &cookies, b"us", &frame[..length]);
            socket.send_to(&answer.unwrap().1, from).unwrap();
        });
        let options = HyperscsiOptions {
            carrier: Carrier::udp("127.255.255.255", Some(port)),
            group: "G".to_owned(),
            device: "disk".to_owned(),
            server: None,
            user: None,
            password: Password::new(Vec::new()),
            level: None,
            retry: Duration::ZERO,
            read_only: false,
            thin: true,
            block_bytes: 512,
        };
        let found = options.servers(&mut station(&options.carrier).unwrap());
        assert_eq!(found.unwrap().len(), 1);
        server.join().unwrap();
    }

    fn answer(name: &str, address: Vec<u8>) -> hyperscsi::Found {
        hyperscsi::Found {
            address,
            answer: hyperscsi::Answer {
                nonce: [0; 8],
                server: [1; 16],
                name: name.to_owned(),
                groups: 1,
                open: 0,
                cookie: [0; 16],
            },
        }
    }

    #[test]
    fn one_server_is_chosen_by_its_address_before_a_name() {
        let over_udp = |name, at: &str| answer(name, at.as_bytes().to_vec());
        let all = [
            over_udp("vm", "10.77.0.1:5674"),
            over_udp("vm", "10.77.0.2:5674"),
            over_udp("10.77.0.2", "10.77.0.3:5674"),
            over_udp("six", "[fd00::2]:5674"),
            answer("link", vec![2, 0, 0, 0, 0, 7]),
        ];
        let chosen = |wanted: &str| {
            let mut found = all.to_vec();
            retain_wanted(&mut found, wanted);
            found
                .iter()
                .map(|found| address(&found.address))
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen("vm"), ["10.77.0.1:5674", "10.77.0.2:5674"]);
        assert_eq!(chosen("10.77.0.1:5674"), ["10.77.0.1:5674"]);
        assert_eq!(chosen("10.77.0.2"), ["10.77.0.2:5674"]);
        assert_eq!(chosen("fd00::2"), ["[fd00::2]:5674"]);
        assert_eq!(chosen("[fd00::2]"), ["[fd00::2]:5674"]);
        assert_eq!(chosen("02:00:00:00:00:07"), ["02:00:00:00:00:07"]);
        for nobody in ["10.77.0.4", "10.77.0.1:1", "", "[10.77.0.1"] {
            assert_eq!(chosen(nobody), [""; 0], "{nobody:?}");
        }
        assert_eq!(
            listed_servers(&all[1..3]),
            "\"vm\" at 10.77.0.2:5674, \"10.77.0.2\" at 10.77.0.3:5674"
        );
    }

    #[test]
    fn servers_of_one_name_are_told_apart_by_their_addresses() {
        let text = |names: [&str; 2]| {
            let found = |name: &str, last| answer(name, vec![2, 0, 0, 0, 0, last]);
            let servers = [found(names[0], 1), found(names[1], 2)];
            ambiguous(servers.iter()).to_string()
        };
        assert_eq!(
            text(["left", "right"]),
            "several servers have such a device: \"left\", \"right\"; add server= with the name of one"
        );
        assert_eq!(
            text(["vm", "vm"]),
            "several servers have such a device: \"02:00:00:00:00:01\", \"02:00:00:00:00:02\"; add server= with the \
             address of one"
        );
    }

    #[test]
    fn a_message_names_some_and_counts_the_others() {
        assert_eq!(listed([].into_iter()), "none");
        assert_eq!(listed(["a", "b"].into_iter()), "\"a\", \"b\"");
        let many = listed(["a"; 11].into_iter());
        assert!(many.ends_with("\"a\" and 3 others"), "{many}");
    }
}
