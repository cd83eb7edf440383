//! Handshakes: from a new connection to its session. One core has them.
//!
//! A handshake is a line with one receive or one send under way. It has a deadline as a whole, and counts among those
//! of its address; at a limit the address with the most of them gives one up, its oldest. At its end it takes one of
//! the places that all sessions of all transports share, and the line goes to the core of its session.
//!
//! Where a service has TLS, no option is answered before it has begun. Its own handshake costs a millisecond of the
//! core, so what comes for one waits for its turn: a turn of the core takes few of them.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::target::Budget;
use ::nbd::server::{
    Agreement, Exports, Handshake, HandshakeError, Offer, Progress, Terms, Tls as TlsState,
};
use engine::deadlines::{Deadlines, Moment};
use engine::table::Table;
use engine::{Carrier, Engine};
use memory::Message;

use super::adoption::Adoption;
use super::keys::HandshakeKey;
use super::session::{Detail, flags_of};
use super::tls::{Opened, Tls, TlsConfig};
use super::wire::{Failure, Letter, Line, LineKey, Notice, Receive, Wire};
use crate::identity::SessionId;
use crate::iscsi::{Front as IscsiFront, Line as IscsiLine};
use crate::iscsi::{OfLogin, OtherPlace, Peer, Unproved, UnprovedLimits};
use crate::policy::{ExportAsker, Policy, VisibleExport};
use crate::sending::SendEnd;

/// How much is received at a time, in bytes.
const RECEIVE_BYTES: usize = 4096;

/// What the data of a unit likes best, in bytes.
const BLOCK_PREFERRED_BYTES: u32 = 4096;

/// How many times in one turn something is done for a handshake of TLS.
const TLS_STEPS: usize = 2;

/// Sizes and times.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Handshakes.
    pub handshakes_max: usize,
    /// Those of one address.
    pub per_address_max: usize,
    /// From the first byte to the session.
    pub timeout: Duration,
    /// What all peers that have not authenticated may hold.
    pub memory: Arc<Budget>,
}

#[derive(Debug)]
struct Shaking<L> {
    line: L,
    machine: Handshake,
    /// Where it came in.
    service: Arc<str>,
    /// Once it has begun.
    tls: Option<Tls>,
    /// What has come for its handshake, and waits for its turn.
    sealed: Vec<u8>,
    /// The names that the client's certificate proves.
    names: Vec<String>,
    deadline: Duration,
    is_receiving: bool,
    is_sending: bool,
    is_closing: bool,
    /// It is over when what was said last is sent.
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Session(Box<Agreement>),
    Close,
    /// Only of the clear text: what comes now is TLS.
    Tls(TlsConfig),
}

/// The front of NBD.
#[derive(Debug)]
pub struct Front<L: Line> {
    policy: Arc<dyn Policy>,
    timeout: Duration,
    handshakes: Table<Shaking<L>, OfLogin>,
    deadlines: Deadlines<HandshakeKey>,
    unproved: Unproved,
    places: HashMap<SessionId, OtherPlace>,
    /// Handshakes of TLS for which something has come, first come first. Each is there once: nothing more is received
    /// for it.
    waiting: VecDeque<HandshakeKey>,
}

/// What one client may have.
struct Visible<'a, C: Carrier> {
    exports: Vec<VisibleExport>,
    engine: &'a Engine<C>,
}

impl<C: Carrier> Visible<'_, C> {
    fn named(&self, name: &str) -> Option<&VisibleExport> {
        match &self.exports[..] {
            [only] if name.is_empty() => Some(only),
            all => all.iter().find(|export| export.name == name),
        }
    }
}

impl<C: Carrier> Exports for Visible<'_, C> {
    fn names(&self) -> Vec<String> {
        let names = self.exports.iter().map(|export| export.name.clone());
        names.collect()
    }

    fn find(&self, name: &str) -> Option<Offer> {
        let export = self.named(name)?;
        let store = self.engine.capabilities(export.lun.unit)?;
        Some(Offer {
            name: export.name.clone(),
            size_bytes: store.size_bytes,
            flags: flags_of(store.thin, export.lun.read_only || store.read_only),
            block_min_bytes: store.block_bytes,
            block_preferred_bytes: store.block_bytes.max(BLOCK_PREFERRED_BYTES),
        })
    }
}

const fn unproved_limits(settings: &FrontSettings) -> UnprovedLimits {
    UnprovedLimits {
        per_address_max: settings.per_address_max,
        logins_max: settings.handshakes_max,
        discovery_max: 0,
    }
}

impl<L: Line> Front<L> {
    /// A front at which nobody stands.
    pub fn new(settings: &FrontSettings, policy: Arc<dyn Policy>) -> Self {
        let limits = unproved_limits(settings);
        Self {
            policy,
            timeout: settings.timeout,
            handshakes: Table::default(),
            deadlines: Deadlines::default(),
            unproved: Unproved::new(limits, Arc::clone(&settings.memory)),
            places: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Limits for handshakes that begin from now on. Their memory is a budget that others share, and stays.
    pub fn set_limits(&mut self, settings: &FrontSettings) {
        self.timeout = settings.timeout;
        self.unproved.set_limits(unproved_limits(settings));
    }

    /// The rules are others from now on.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.policy = policy;
    }

    /// How many handshakes are under way.
    pub fn handshakes(&self) -> usize {
        self.handshakes.len()
    }

    /// Nobody stands here, and no session is known.
    pub fn is_idle(&self) -> bool {
        self.handshakes.is_empty() && self.places.is_empty()
    }

    /// Gives back what tables have room for beyond need.
    pub fn shrink(&mut self) {
        self.handshakes.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    /// Before this moment no handshake runs out of time.
    #[inline]
    pub(super) fn soonest(&self) -> Moment {
        self.deadlines.soonest(self.handshakes.len())
    }

    /// When the next handshake runs out of time.
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        let handshakes = &self.handshakes;
        let of = |key| handshakes.get(key).and_then(Shaking::due);
        self.deadlines.next(handshakes.len(), of)
    }

    /// Ends handshakes that take too long.
    pub fn handle_timeout<C: Wire<NbdLine = L>>(&mut self, engine: &mut Engine<C>) {
        let now = engine.now();
        let handshakes = &self.handshakes;
        let of = |key| handshakes.get(key).and_then(Shaking::due);
        let due: Vec<HandshakeKey> = iter::from_fn(|| self.deadlines.due(now, of)).collect();
        for key in due {
            self.fail(engine, key, Failure::Late);
        }
    }

    /// A connection has come in at a service.
    pub fn accept<C: Wire<NbdLine = L>>(
        &mut self,
        engine: &mut Engine<C>,
        line: L,
        service: Arc<str>,
    ) {
        let address = line.peer().ip();
        let deadline = engine.now() + self.timeout;
        let key = self.handshakes.insert(Shaking {
            line,
            machine: Handshake::new(match self.policy.tls(&service) {
                Some(_) => TlsState::Required,
                None => TlsState::Off,
            }),
            service,
            tls: None,
            sealed: Vec::new(),
            names: Vec::new(),
            deadline,
            is_receiving: false,
            is_sending: false,
            is_closing: false,
            end: None,
        });
        self.deadlines.set(key, deadline);
        if let Some((Peer::Login(gone), crowding)) = self.unproved.begin(Peer::Login(key), address)
        {
            self.fail(engine, gone, Failure::Displaced(crowding));
        }
        self.go_on(engine, key);
    }

    /// Ends all handshakes.
    pub fn close_all<C: Wire<NbdLine = L>>(&mut self, engine: &mut Engine<C>) {
        let all: Vec<HandshakeKey> = self.handshakes.keys().collect();
        for key in all {
            self.close(engine, key);
        }
    }

    /// Bytes have come, or with none the end of the connection.
    pub fn handle_received<C: Wire<NbdLine = L>>(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        bytes: Option<&[u8]>,
    ) {
        let Some(shaking) = self.handshakes.get_mut(key) else {
            return;
        };
        shaking.is_receiving = false;
        let Some(bytes) = bytes.filter(|_| !shaking.is_closing) else {
            self.close(engine, key);
            return;
        };
        if shaking.tls.as_ref().is_some_and(Tls::is_handshaking) {
            shaking.sealed.extend_from_slice(bytes);
            self.waiting.push_back(key);
        } else {
            self.advance(engine, key, bytes);
        }
    }

    /// Handshakes of TLS wait for the next turn.
    pub fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Goes on with handshakes of TLS, as far as a turn may. To be called once in each.
    pub fn take_turn<C: Wire<NbdLine = L>>(&mut self, engine: &mut Engine<C>) {
        for _ in 0..TLS_STEPS {
            let Some(key) = self.waiting.pop_front() else {
                return;
            };
            if let Some(shaking) = self.handshakes.get_mut(key) {
                let sealed = std::mem::take(&mut shaking.sealed);
                self.advance(engine, key, &sealed);
            }
        }
    }

    /// A send has ended: all is sent, or the connection is of no use.
    pub fn handle_sent<C: Wire<NbdLine = L>>(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        is_sent: bool,
        (places, clock): (&mut IscsiFront<impl IscsiLine>, SystemTime),
    ) {
        let Some(shaking) = self.handshakes.get_mut(key) else {
            return;
        };
        shaking.is_sending = false;
        if !is_sent || shaking.is_closing {
            self.close(engine, key);
            return;
        }
        match shaking.end.take() {
            None => self.advance(engine, key, &[]),
            Some(End::Close) => self.close(engine, key),
            Some(End::Tls(config)) => match Tls::new(&config) {
                Ok(tls) => {
                    shaking.tls = Some(tls);
                    self.go_on(engine, key);
                }
                Err(error) => self.fail(engine, key, Failure::Tls(&error)),
            },
            Some(End::Session(agreement)) => {
                self.hand_over(engine, key, &agreement, (places, clock));
            }
        }
    }

    /// A session is gone, with all its tasks.
    pub fn handle_session_ended(&mut self, id: SessionId, places: &mut IscsiFront<impl IscsiLine>) {
        if let Some(place) = self.places.remove(&id) {
            places.leave_other(&place);
        }
    }

    fn visible<'a, C: Wire<NbdLine = L>>(
        &self,
        engine: &'a Engine<C>,
        key: HandshakeKey,
    ) -> Option<Visible<'a, C>> {
        let shaking = self.handshakes.get(key)?;
        let exports = self.policy.exports(&ExportAsker {
            service: &shaking.service,
            address: shaking.line.peer().ip(),
            names: &shaking.names,
        });
        Some(Visible { exports, engine })
    }

    fn advance<C: Wire<NbdLine = L>>(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        bytes: &[u8],
    ) {
        let Some(opened) = self.open(engine, key, bytes) else {
            return;
        };
        let Some(visible) = self.visible(engine, key) else {
            return;
        };
        let Some(shaking) = self.handshakes.get_mut(key) else {
            return;
        };
        let outcome = shaking.machine.handle_bytes(&opened.bytes, &visible);
        match outcome {
            Ok(Progress::More) if opened.is_end => shaking.end = Some(End::Close),
            Ok(Progress::More) => {}
            Ok(Progress::Done(agreement)) => shaking.end = Some(End::Session(agreement)),
            Ok(Progress::Aborted) => shaking.end = Some(End::Close),
            Ok(Progress::StartTls) => {
                // It may have gone with a change of the rules.
                let config = self.policy.tls(&shaking.service);
                shaking.end = Some(config.map_or(End::Close, End::Tls));
            }
            Err(error) => {
                self.fail(engine, key, Failure::Protocol(&error));
                return;
            }
        }
        self.go_on(engine, key);
    }

    /// The bytes of the protocol in what has come. `None`: the handshake has failed.
    fn open<C: Wire<NbdLine = L>>(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        bytes: &[u8],
    ) -> Option<Opened> {
        let shaking = self.handshakes.get_mut(key)?;
        let Some(tls) = &mut shaking.tls else {
            let bytes = bytes.to_vec();
            let is_end = false;
            return Some(Opened { bytes, is_end });
        };
        let was_handshaking = tls.is_handshaking();
        match tls.open(bytes) {
            Ok(opened) => {
                if was_handshaking && !tls.is_handshaking() {
                    shaking.names = tls.names();
                }
                Some(opened)
            }
            Err(error) => {
                let peer = shaking.line.peer();
                let failure = Failure::Tls(&error);
                engine
                    .carrier
                    .report(Notice::HandshakeFailed { peer, failure });
                // The alert says why.
                shaking.end = Some(End::Close);
                self.go_on(engine, key);
                None
            }
        }
    }

    /// Sends what is to be sent, or else receives.
    fn go_on<C: Wire<NbdLine = L>>(&mut self, engine: &mut Engine<C>, key: HandshakeKey) {
        let Some(shaking) = self.handshakes.get_mut(key) else {
            return;
        };
        if shaking.is_closing || shaking.is_sending {
            return;
        }
        let mut output = shaking.machine.take_output();
        if let Some(tls) = &mut shaking.tls {
            output = tls.seal(&output);
        }
        if !output.is_empty() {
            shaking.is_sending = true;
            let mut message = Message::default();
            message.push_bytes(&output);
            let key = LineKey::Handshake(key);
            engine
                .carrier
                .send(&shaking.line, key, message, SendEnd::Wakes);
        } else if matches!(shaking.end, Some(End::Close)) {
            self.close(engine, key);
        } else if !shaking.is_receiving {
            shaking.is_receiving = true;
            let how = Receive::Chunk {
                limit_bytes: RECEIVE_BYTES,
            };
            let key = LineKey::Handshake(key);
            engine.carrier.receive(&shaking.line, key, how);
        }
    }

    /// The handshake has ended well, and its last word is sent: the line goes to the core of its session.
    fn hand_over<C: Wire<NbdLine = L>>(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        agreement: &Agreement,
        (places, clock): (&mut IscsiFront<impl IscsiLine>, SystemTime),
    ) {
        let found = self.visible(engine, key).and_then(|visible| {
            let export = visible.named(&agreement.offer.name)?;
            let store = engine.capabilities(export.lun.unit)?;
            // Another unit may have its name by now.
            let offer = &agreement.offer;
            let is_the_same = store.block_bytes == offer.block_min_bytes
                && store.size_bytes >= offer.size_bytes
                && (store.thin || !offer.flags.can_trim());
            is_the_same.then_some((export.lun, store.reads_in_place))
        });
        let Some((lun, takes_at_once)) = found else {
            self.fail(engine, key, Failure::Protocol(&HandshakeError::NoExport));
            return;
        };
        let address = self.handshakes.get(key).map(|one| one.line.peer().ip());
        let Some(place) = address.and_then(|address| places.place_other(address)) else {
            self.fail(engine, key, Failure::NoPlace);
            return;
        };
        self.unproved.end(Peer::Login(key));
        let Some(shaking) = self.handshakes.remove(key) else {
            return;
        };
        let Shaking {
            line,
            machine,
            service,
            tls,
            names,
            ..
        } = shaking;
        let address = || line.peer().ip().to_canonical().to_string();
        let client = names.first().cloned().unwrap_or_else(address);
        let detail = Detail {
            id: place.id,
            export: agreement.offer.name.clone(),
            client: format!("nbd:{client}"),
            names: names.into(),
            peer: line.peer(),
            portal: line.portal(),
            service,
            since: clock,
            lun,
            shares: place.shares.clone(),
        };
        let adoption = Adoption {
            line,
            tls,
            detail,
            terms: Terms::from(agreement),
            takes_at_once,
            nexus: place.nexus,
            unread: machine.into_unread(),
        };
        let core = place.core;
        self.places.insert(place.id, place);
        let letter = Letter::Adopt(Box::new(adoption));
        engine.carrier.post_letter(core, letter);
    }

    fn fail<C: Wire<NbdLine = L>>(
        &mut self,
        engine: &mut Engine<C>,
        key: HandshakeKey,
        failure: Failure<'_>,
    ) {
        if let Some(shaking) = self.handshakes.get(key).filter(|one| !one.is_closing) {
            let peer = shaking.line.peer();
            let notice = Notice::HandshakeFailed { peer, failure };
            engine.carrier.report(notice);
        }
        self.close(engine, key);
    }

    /// Shuts the line; the handshake goes when what is under way on it has ended.
    fn close<C: Wire<NbdLine = L>>(&mut self, engine: &mut Engine<C>, key: HandshakeKey) {
        let Some(shaking) = self.handshakes.get_mut(key) else {
            return;
        };
        if !std::mem::replace(&mut shaking.is_closing, true) {
            engine.carrier.shut(&shaking.line);
            self.unproved.end(Peer::Login(key));
        }
        if !shaking.is_receiving && !shaking.is_sending {
            self.handshakes.remove(key);
        }
    }
}

impl<L> Shaking<L> {
    /// When it has taken too long.
    fn due(&self) -> Option<Duration> {
        (!self.is_closing).then_some(self.deadline)
    }
}
