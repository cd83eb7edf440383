//! What a store has in common with its attendant, whatever it is: whose it is, mail to its handles, and how its
//! sessions are.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use store::{Connections, Sender};

use super::job::Mail;
use super::medium::{Claim, Identity, InUse};
use crate::lock;

/// Who has the data.
#[derive(Clone, Debug)]
pub(crate) struct Whose {
    /// What people call such a server, with its article.
    pub(crate) kind: &'static str,
    /// What they call such a device, and its place.
    pub(crate) what: &'static str,
    /// The server.
    pub(crate) server: String,
    /// The device that it has.
    pub(crate) device: String,
    /// The store, where another one has the same device.
    pub(crate) store: String,
}

/// Why there is no store.
#[derive(Debug)]
pub(crate) enum NoDisk {
    /// Another store has the device.
    Twice(InUse),
    /// The system does not give what it takes.
    Host(io::Error),
}

/// What all share; jobs bring `B`.
pub(crate) struct Link<B> {
    pub(crate) kind: &'static str,
    what: &'static str,
    pub(crate) server: String,
    pub(crate) device: String,
    /// Wakes the attendant.
    pub(crate) event: OwnedFd,
    mailboxes: Mutex<BTreeMap<usize, Sender<Mail<B>>>>,
    outage: Mutex<Option<String>>,
    /// There is no attendant, so nothing is carried out.
    is_gone: AtomicBool,
    is_up: AtomicBool,
    /// Sessions that were begun.
    sessions: AtomicU64,
    held: AtomicU64,
    /// Which device it is; `None`: it does not say.
    pub(crate) identity: Option<Identity>,
    /// As long as there is a session, or may be one: the attendant has this, too.
    _claim: Option<Claim>,
}

impl<B: Send> Link<B> {
    /// A device that says which one it is has one store at a time.
    pub(crate) fn new(whose: Whose, identity: Option<Identity>) -> Result<Self, NoDisk> {
        let claimed = identity.clone();
        Self::claiming(whose, identity, claimed.as_ref())
    }

    /// The same; it has one store at a time by its place, if it does not say which one it is, or if nobody must be
    /// kept out by what it says.
    pub(crate) fn at_place(
        whose: Whose,
        identity: Option<Identity>,
        is_believed: bool,
    ) -> Result<Self, NoDisk> {
        let place = Identity::of_place(&whose.server, &whose.device);
        let claimed = identity.clone().filter(|_| is_believed).unwrap_or(place);
        Self::claiming(whose, identity, Some(&claimed))
    }

    fn claiming(
        whose: Whose,
        identity: Option<Identity>,
        claimed: Option<&Identity>,
    ) -> Result<Self, NoDisk> {
        let claim = claimed.map(|one| Claim::new(one, &whose.store));
        let claim = claim.transpose().map_err(NoDisk::Twice)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| NoDisk::Host(error.into()))?;
        Ok(Self {
            kind: whose.kind,
            what: whose.what,
            server: whose.server,
            device: whose.device,
            event,
            mailboxes: Mutex::default(),
            outage: Mutex::default(),
            is_gone: AtomicBool::new(false),
            is_up: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            held: AtomicU64::new(0),
            identity,
            _claim: claim,
        })
    }

    /// Wakes the attendant.
    pub(crate) fn wake(&self) {
        // A full counter has woken it already.
        let _written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The attendant was woken. It looks for what was left for it after this: what comes then wakes it again.
    pub(crate) fn note_woken(&self) {
        let mut count = [0; 8];
        let _read = rustix::io::read(&self.event, &mut count);
    }

    /// From now on a handle gets mail.
    pub(crate) fn add_mailbox(&self, core: usize, mailbox: Sender<Mail<B>>) {
        lock(&self.mailboxes).insert(core, mailbox);
    }

    pub(crate) fn end(&self, core: usize) {
        lock(&self.mailboxes).remove(&core);
    }

    /// Leaves mail for a handle. One that is gone needs none.
    pub(crate) fn answer(&self, core: usize, mail: Mail<B>) {
        if let Some(mailbox) = lock(&self.mailboxes).get(&core) {
            mailbox.push(mail);
        }
    }

    /// Leaves mail for all handles.
    pub(crate) fn announce(&self, mail: impl Fn() -> Mail<B>) {
        for mailbox in lock(&self.mailboxes).values() {
            mailbox.push(mail());
        }
    }

    /// The first handle reports to administrators, so that it comes once.
    pub(crate) fn report_reach(&self, is_reached: bool) {
        let first = lock(&self.mailboxes).keys().next().copied();
        if let Some(core) = first {
            self.answer(core, Mail::Reach { is_reached });
        }
    }

    /// Requests wait or fail for this reason, or they do not. True where it is another reason than before.
    pub(crate) fn set_outage(&self, outage: Option<String>) -> bool {
        let mut known = lock(&self.outage);
        let differs = *known != outage;
        *known = outage;
        differs
    }

    /// There is no thread for an attendant, so nothing is carried out.
    pub(crate) fn note_gone(&self, error: &io::Error) {
        self.set_outage(Some(format!("there is no thread for it: {error}")));
        self.is_gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    /// There is no session, for this reason.
    pub(crate) fn note_reason(&self, reason: String) {
        // Once for each reason: what is waited for may take days.
        if self.set_outage(Some(reason.clone())) {
            let (server, device) = (&self.server, &self.device);
            tracing::warn!(%server, %device, reason, "{} cannot be used, it is tried again", self.kind);
        }
    }

    pub(crate) fn begin_session(&self) {
        if self.set_outage(None) {
            let (server, device) = (&self.server, &self.device);
            tracing::info!(%server, %device, "a session with {} is there again", self.kind);
        }
        self.is_up.store(true, Ordering::SeqCst);
        self.sessions.fetch_add(1, Ordering::SeqCst);
    }

    /// The store is closed, and its session with it.
    pub(crate) fn end_session(&self) {
        self.is_up.store(false, Ordering::SeqCst);
    }

    pub(crate) fn lose_session(&self, reason: &str) {
        self.end_session();
        let (server, device) = (&self.server, &self.device);
        tracing::warn!(%server, %device, reason, "a session with {} is lost", self.kind);
        self.set_outage(Some(reason.to_owned()));
    }

    /// Why a device must not be used that calls itself this.
    pub(crate) fn check_identity(&self, now: Option<&Identity>) -> Result<(), String> {
        let is_same = match (now, &self.identity) {
            (Some(now), Some(known)) => now.is_same(known),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        match is_same {
            true => Ok(()),
            false => Err(self.of_device("is another one now")),
        }
    }

    /// A sentence that begins with the device and its place.
    pub(crate) fn of_device(&self, rest: &str) -> String {
        format!("the {} {rest}", self.what)
    }

    /// How many jobs wait for a session.
    pub(crate) fn note_held(&self, held: u64) {
        self.held.store(held, Ordering::SeqCst);
    }

    pub(crate) fn outage(&self) -> Option<String> {
        let reason = lock(&self.outage).clone()?;
        Some(format!("{}: {reason}", self.server))
    }

    pub(crate) fn connections(&self) -> Connections {
        Connections {
            up: self.is_up.load(Ordering::SeqCst).into(),
            again: self.sessions.load(Ordering::SeqCst).saturating_sub(1),
            held: self.held.load(Ordering::SeqCst),
        }
    }
}
