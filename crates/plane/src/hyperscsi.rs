//! HyperSCSI on a core: carries out what its sessions ask for, and gives them what has come.
//!
//! A core has a socket of each place. One that fails, say because its interface is gone, is away: it is tried again
//! each second, and sessions go on where it is back before they are over.

mod handle;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use front::Station;
use front::hyperscsi::{
    FrameSizes, Group, Letter as HyperscsiLetter, Notice, Place, PlaceKey, Server, Wire,
};
use front::iscsi::LoginFailure;
use reactor::{Address, Datagram, DatagramSocket, Errno, Interface, OperationId, SiteSocket};

use crate::core::Core;
use crate::counters::HyperscsiReport;
use crate::events::Event;
use crate::letter::Letter;
use crate::lines::LineKind;
use crate::outside::Outside;
use crate::receipt::Receipt;
use crate::token::Purpose;

/// Frames that datagrams of a core are received into, and their size: the largest frame.
const FRAMES: usize = 128;
const FRAME_BYTES: usize = 9000;

/// The socket of a place on a core.
#[derive(Debug)]
pub(crate) struct Door {
    socket: DatagramSocket,
    /// Of a link: the interface, and its index and address when it was there last.
    link: Option<(Interface, i32, [u8; 6])>,
    /// What receives there; `None` while the place is away.
    receive: Option<OperationId>,
}

impl Door {
    fn new(socket: SiteSocket) -> io::Result<Self> {
        let link = socket.interface.clone();
        let link = link.map(|interface| (interface, 0, [0; 6]));
        Ok(Self {
            socket: socket.open()?,
            link,
            receive: None,
        })
    }

    /// Has it receive what comes in at its interface, if it is one of a link. Gives the sizes of frames there.
    fn bind(&mut self) -> io::Result<FrameSizes> {
        let Some((interface, index, hardware)) = &mut self.link else {
            return Ok(FrameSizes::UDP);
        };
        let state = interface.bind(&self.socket)?;
        (*index, *hardware) = (state.index, state.hardware);
        Self::sizes_of(interface, state.mtu)
    }

    fn sizes_of(interface: &Interface, mtu: u32) -> io::Result<FrameSizes> {
        FrameSizes::of_mtu(mtu).ok_or_else(|| {
            let what = format!(
                "its MTU is {mtu}, and frames of 1280 bytes are needed: raise it (`ip link set {} mtu 1500`)",
                interface.name()
            );
            io::Error::other(what)
        })
    }

    /// The sizes of frames at its interface now; `None` where that is not known.
    fn look(&self) -> Option<io::Result<FrameSizes>> {
        let (interface, index, _) = self.link.as_ref()?;
        let state = interface.look_at(&self.socket, *index)?;
        Some(Self::sizes_of(interface, state.mtu))
    }

    /// The address of its interface.
    pub(crate) fn hardware(&self) -> Option<[u8; 6]> {
        self.link.as_ref().map(|(_, _, hardware)| *hardware)
    }

    fn address(&self, to: Station) -> Option<Address> {
        match (to, &self.link) {
            (Station::Inet(address), None) => Some(Address::Inet(address)),
            (Station::Link(hardware), Some((interface, index, _))) => Some(Address::Link {
                interface: *index,
                hardware,
                protocol: interface.protocol(),
            }),
            (Station::Inet(_), Some(_)) | (Station::Link(_), None) => None,
        }
    }
}

/// Whether it is the address of one station. Spec: IEEE 802, the I/G bit.
const fn is_of_one([first, ..]: [u8; 6]) -> bool {
    first & 1 == 0
}

/// Whom a datagram is from. Frames for an interface on top of that of the socket, of a VLAN or a macvlan, come in
/// there, too; they may be of sessions with the same numbers, of another server of this host.
fn station_of(door: &Door, datagram: &Datagram) -> Option<Station> {
    let index = door.link.as_ref().map(|(_, index, _)| *index);
    match datagram.sender().filter(|from| from.is_of(index))? {
        Address::Inet(address) => {
            Some(Station::Inet(SocketAddr::new(address.ip(), address.port())))
        }
        // No station has the address of many: an answer would reach them all.
        Address::Link { hardware, .. } => is_of_one(hardware).then_some(Station::Link(hardware)),
    }
}

impl Wire for Outside {
    type HyperscsiSocket = Door;

    fn send_frame(
        &mut self,
        door: &Door,
        key: PlaceKey,
        to: Station,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let address = door.address(to);
        debug_assert!(address.is_some(), "a station of another kind of place");
        let taps = &self.frame_taps;
        let write = |room: &mut [u8]| {
            let length = write(room)?;
            taps.note(key, to, false, room.get(..length)?);
            Some(length)
        };
        let token = Purpose::FrameSent(key).token();
        self.reactor
            .send_datagram(&door.socket, token, address, write)
    }

    fn post_letter(&mut self, core: usize, letter: HyperscsiLetter) {
        Self::send(self, core, Letter::Hyperscsi(letter));
    }

    fn report(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::SessionBegins { session } => {
                self.login_log.succeed();
                let who = session.who();
                if self.admits(LineKind::SessionBegins) {
                    tracing::info!(
                        client = %who.initiator,
                        station = %session.station,
                        session = session.id.0,
                        group = %session.group,
                        core = self.index,
                        "HyperSCSI session begins"
                    );
                }
                self.events.emit(&Event::SessionBegan { who });
            }
            Notice::SessionEnds { session, reason } => {
                self.frame_taps.end(session.id);
                let who = session.who();
                if self.admits(LineKind::SessionEnds) {
                    tracing::info!(
                        client = %who.initiator,
                        session = session.id.0,
                        "HyperSCSI session ends: {reason}"
                    );
                }
                self.events.emit(&Event::SessionEnded { who, reason });
            }
            Notice::LoginRefused {
                station,
                group,
                reason,
            } => {
                if self.admits(LineKind::HyperscsiRefused) {
                    tracing::warn!(%station, %group, "HyperSCSI login refused: {reason}");
                }
            }
            Notice::LoginUnproved { station, group } => {
                let (now, group) = (self.reactor.now(), format!("hyperscsi:{group}"));
                let whose = (station, None, Some(&*group));
                self.login_log
                    .fail(&*self.events, now, whose, &LoginFailure::Unproved);
            }
            Notice::Guessing { station, user } => self.login_log.note_guessing(station, user),
            Notice::GroupAway { group, place } => {
                tracing::error!(%group, %place, "no socket serves a group of HyperSCSI");
            }
        }
    }
}

impl Core {
    /// What is served by HyperSCSI from now on.
    pub(crate) fn handle_set_hyperscsi(
        &mut self,
        what: (Server, Arc<[Group]>),
        sockets: Vec<(Place, SiteSocket)>,
        receipt: &Receipt,
    ) {
        let mut doors = Vec::new();
        for (place, socket) in sockets {
            let reactor = &mut self.engine.carrier.reactor;
            if let Err(error) = reactor.prepare_frames(FRAMES, FRAME_BYTES) {
                tracing::error!(%error, %place, "no memory for frames of HyperSCSI");
                continue;
            }
            match Door::new(socket) {
                Ok(door) => doors.push((place, door, FrameSizes::UDP)),
                Err(error) => tracing::error!(%error, %place, "a socket cannot be used"),
            }
        }
        let before: Vec<(PlaceKey, Option<OperationId>)> = self
            .hyperscsi
            .place_keys()
            .into_iter()
            .map(|key| {
                (
                    key,
                    self.hyperscsi.socket(key).and_then(|door| door.receive),
                )
            })
            .collect();
        let changed = self
            .hyperscsi
            .set_groups(&mut self.engine, what, doors, receipt);
        let closed = before
            .into_iter()
            .filter(|(key, _)| changed.closed.contains(key));
        for operation in closed.filter_map(|(_, operation)| operation) {
            self.engine.carrier.reactor.cancel(operation);
        }
        for key in changed.opened {
            self.open_door(key, true);
        }
    }

    /// Receives at a place that is away. Why that cannot be is reported if nobody knows yet.
    fn open_door(&mut self, key: PlaceKey, is_news: bool) {
        let Some(door) = self.hyperscsi.socket_mut(key) else {
            return;
        };
        match door.bind() {
            Ok(sizes) => {
                let token = Purpose::Frames(key).token();
                let reactor = &mut self.engine.carrier.reactor;
                door.receive = Some(reactor.receive_datagrams(&door.socket, token));
                self.hyperscsi.set_sizes(&mut self.engine, key, sizes);
                if let Some(place) = self.hyperscsi.place(key)
                    && self.index == 0
                {
                    tracing::info!(%place, "HyperSCSI is served here");
                }
            }
            Err(error) => {
                if let Some(place) = self.hyperscsi.place(key)
                    && is_news
                {
                    let core = self.index;
                    tracing::error!(%place, core, %error, "a place of HyperSCSI is away");
                }
            }
        }
    }

    /// Tries places that are away, and looks whether interfaces have another MTU. Called every second.
    pub(crate) fn retry_doors(&mut self) {
        if self.stop_at.is_some() {
            return;
        }
        for key in self.hyperscsi.place_keys() {
            let Some(door) = self.hyperscsi.socket(key) else {
                continue;
            };
            let Some(receive) = door.receive else {
                self.open_door(key, false);
                continue;
            };
            match door.look() {
                Some(Ok(sizes)) => {
                    if self.hyperscsi.sizes(key) != Some(sizes)
                        && let Some(place) = self.hyperscsi.place(key)
                        && self.index == 0
                    {
                        tracing::info!(%place, most = sizes.most, "frames of HyperSCSI have another size");
                    }
                    self.hyperscsi.set_sizes(&mut self.engine, key, sizes);
                }
                Some(Err(error)) => {
                    if let Some(place) = self.hyperscsi.place(key) {
                        let core = self.index;
                        tracing::error!(%place, core, %error, "a place of HyperSCSI is away");
                    }
                    // The rest is as when the interface goes.
                    self.engine.carrier.reactor.cancel(receive);
                }
                None => {}
            }
        }
    }

    pub(crate) fn handle_datagram(&mut self, key: PlaceKey, result: Result<Datagram, Errno>) {
        match result {
            Ok(datagram) => match self
                .hyperscsi
                .socket(key)
                .and_then(|door| station_of(door, &datagram))
                .filter(|_| !datagram.is_truncated)
            {
                Some(from) => {
                    let (engine, bytes) = (&mut self.engine, datagram.bytes());
                    engine.carrier.frame_taps.note(key, from, true, bytes);
                    self.hyperscsi.handle_frame(engine, key, from, bytes);
                }
                None => self.hyperscsi.note_strange(),
            },
            Err(errno) => {
                // One that is gone was cancelled.
                let Some(door) = self.hyperscsi.socket_mut(key) else {
                    return;
                };
                door.receive = None;
                if let Some(place) = self.hyperscsi.place(key) {
                    let core = self.index;
                    tracing::error!(
                        %place, core, %errno,
                        "a place of HyperSCSI is away; it is tried again each second"
                    );
                }
            }
        }
    }

    pub(crate) fn handle_frames_sent(&mut self, key: PlaceKey, sent: u32, lost: u32) {
        self.hyperscsi.handle_sent(key, sent, lost);
    }

    pub(crate) fn handle_hyperscsi_letter(&mut self, letter: HyperscsiLetter) {
        let (engine, front) = (&mut self.engine, self.sessions.front.as_mut());
        self.hyperscsi
            .handle_letter(engine, letter, front, SystemTime::now());
    }

    pub(crate) fn report_hyperscsi(&self) -> HyperscsiReport {
        let keys = self.hyperscsi.place_keys().into_iter();
        let is_away = |key: &PlaceKey| {
            let door = self.hyperscsi.socket(*key);
            door.is_some_and(|door| door.receive.is_none())
        };
        let away = keys.filter(is_away);
        HyperscsiReport {
            core: self.index,
            places: self
                .hyperscsi
                .place_keys()
                .into_iter()
                .filter_map(|key| self.hyperscsi.place(key).cloned())
                .collect(),
            away: away
                .filter_map(|key| self.hyperscsi.place(key).cloned())
                .collect(),
            counts: self.hyperscsi.counts(&self.engine),
        }
    }
}
