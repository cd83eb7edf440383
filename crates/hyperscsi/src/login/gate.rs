//! The target's part of logins: who has not authenticated gets little, and no more than that.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Message, Wish, context, encode_terms};
use crate::device::Device;
use crate::discovery::{Address, Buckets, Cookies};
use crate::exchange::TargetExchange;
use crate::keys::{Entropy, Keys, Sealer};
use crate::link::{Settings, Terms};
use crate::pdu::Opcode;
use crate::plain;
use crate::target::TargetSession;

/// Logins under way; the oldest makes room.
const LOGINS_MAX: usize = 256;
/// A login that was not completed is dropped after this; one that was keeps its last answer as long.
const LOGIN_AGE: Duration = Duration::from_secs(10);
/// Attempts of an address at once, and the time that brings one back. Each tries one password.
const ATTEMPTS: u64 = 5;
const ATTEMPT_EVERY: Duration = Duration::from_secs(2);
/// Logins of an address at once, right or wrong, and the time that brings one back: as many as one host may have
/// sessions, and no more of what all have together than a part.
const LOGINS: u64 = 40;
const LOGIN_EVERY: Duration = Duration::from_millis(100);
/// Attempts of all together in a second: what the exchange costs is bounded.
const ATTEMPTS_OF_ALL: u64 = 200;

/// What a gate is made of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GateSettings {
    /// The server, as in answers to discovery.
    pub server: [u8; 16],
    /// What its sessions do.
    pub session: Settings,
}

/// A client that has shown that it knows the password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proved {
    /// The login, for [`Gate::accept`] or [`Gate::refuse`].
    pub login: u32,
    /// Where the client is.
    pub address: Address,
    /// What it wants.
    pub wish: Wish,
}

/// A login that began and ended, and its client has not shown that it knows the password: that is wrong, or the client
/// is gone. With a wrong one the client finds out, and sends nothing more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unproved<F> {
    /// Where the client was.
    pub from: F,
    /// What it wanted.
    pub wish: Wish,
}

/// A login that led to a session.
#[derive(Debug)]
pub struct Accepted<D> {
    /// For the client.
    pub frame: Vec<u8>,
    /// The session.
    pub session: TargetSession<D>,
}

#[derive(Debug)]
enum Step<P> {
    /// The client's last message is to come.
    Answered { pending: P, context: [u8; 32] },
    /// The owner decides.
    Proved(Box<Keys>),
    /// Over. The last answer is kept, as it may be lost.
    Over,
}

#[derive(Debug)]
struct Pending<P, F> {
    address: Address,
    from: F,
    nonce: [u8; 8],
    wish: Wish,
    began: Duration,
    /// The frame that a repeated request gets.
    answer: Vec<u8>,
    step: Option<Step<P>>,
}

/// See above. `F` is what its owner calls the places of clients.
#[derive(Debug)]
pub struct Gate<X: TargetExchange, F> {
    settings: GateSettings,
    exchange: X,
    /// By credential name.
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    entropy: Entropy,
    logins: BTreeMap<u32, Pending<X::Pending, F>>,
    /// As many as there are logins at most.
    unproved: Vec<Unproved<F>>,
    next_login: u32,
    attempts: Buckets,
    starts: Buckets,
    attempts_of_all: Buckets,
}

impl<X: TargetExchange, F> Gate<X, F> {
    /// With these records, each under its [`Wish::credential`].
    pub fn new(
        settings: GateSettings,
        exchange: X,
        records: BTreeMap<Vec<u8>, Vec<u8>>,
        mut entropy: Entropy,
    ) -> Self {
        Self {
            settings,
            exchange,
            records,
            next_login: u32::from_be_bytes(entropy.bytes()),
            entropy,
            logins: BTreeMap::new(),
            unproved: Vec::new(),
            attempts: Buckets::default(),
            starts: Buckets::default(),
            attempts_of_all: Buckets::default(),
        }
    }

    /// Other records, from now on. A login under way that began with another record ends without an answer: its
    /// password is not right any more. What has led to a session stays.
    pub fn set_records(&mut self, records: BTreeMap<Vec<u8>, Vec<u8>>) {
        let before = std::mem::replace(&mut self.records, records);
        let now = &self.records;
        self.logins.retain(|_, login| {
            let name = Wish::credential(&login.wish.group, login.wish.user.as_deref());
            matches!(login.step, Some(Step::Over)) || before.get(&name) == now.get(&name)
        });
    }

    /// What sessions do that are accepted from now on.
    pub const fn set_session(&mut self, session: Settings) {
        self.settings.session = session;
    }

    /// The logins that have ended without a proof since the last call. To be called now and then.
    pub fn take_unproved(&mut self, now: Duration) -> Vec<Unproved<F>> {
        self.drop_old(now);
        std::mem::take(&mut self.unproved)
    }

    fn drop_old(&mut self, now: Duration) {
        let is_old =
            |_: &u32, login: &mut Pending<_, _>| now.saturating_sub(login.began) >= LOGIN_AGE;
        for (_, login) in self.logins.extract_if(.., is_old) {
            note_unproved(&mut self.unproved, login);
        }
    }

    /// Takes a frame with tag 0 from this address, which attempts are counted by, and from this place. Gives an answer,
    /// which is not longer, and a client that has authenticated.
    pub fn handle_frame(
        &mut self,
        now: Duration,
        cookies: &Cookies,
        (address, from): (&[u8], F),
        frame: &[u8],
    ) -> (Option<Vec<u8>>, Option<Proved>) {
        self.drop_old(now);
        let read = plain::read(frame).filter(|(opcode, _)| *opcode == Opcode::Negotiation);
        let Some((body, message)) = read.and_then(|(_, body)| Some((body, Message::decode(body)?)))
        else {
            return (None, None);
        };
        let (answer, proved) = match message {
            Message::First {
                nonce,
                cookie,
                wish,
                message,
            } => {
                let answer = if cookies.takes(now, address, &wish.client, &cookie) {
                    self.handle_first(now, (address, from), (nonce, wish), &message, body)
                } else {
                    let cookie = cookies.make(now, address, &wish.client);
                    Some(write(&Message::Cookie { nonce, cookie }))
                };
                (answer, None)
            }
            Message::Last {
                nonce,
                login,
                message,
            } => self.handle_last(address, nonce, login, &message),
            Message::Cookie { .. } | Message::Answer { .. } | Message::Accepted { .. } => {
                (None, None)
            }
        };
        (answer.filter(|answer| answer.len() <= frame.len()), proved)
    }

    fn handle_first(
        &mut self,
        now: Duration,
        (address, from): (&[u8], F),
        (nonce, wish): ([u8; 8], Wish),
        message: &[u8],
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let known = |login: &Pending<_, _>| login.address == address && login.nonce == nonce;
        if let Some((&number, login)) = self.logins.iter().find(|(_, login)| known(login)) {
            // Lost, or late. Another question under the same number is nobody's: the answer is not one to it.
            let asked = context(body, wish.suite(), &self.settings.server, number);
            return matches!(&login.step, Some(Step::Answered { context, .. }) if *context == asked)
                .then(|| login.answer.clone());
        }
        let second = Duration::from_secs(1);
        let of_all = second.checked_div(u32::try_from(ATTEMPTS_OF_ALL).ok()?)?;
        let may = self.starts.take(now, address, LOGINS, LOGIN_EVERY)
            && self.attempts.take(now, address, ATTEMPTS, ATTEMPT_EVERY)
            && self.attempts_of_all.take(now, &[], ATTEMPTS_OF_ALL, of_all);
        if !may {
            return None;
        }
        if self.logins.len() >= LOGINS_MAX {
            let oldest = self.logins.iter().min_by_key(|(_, login)| login.began);
            let oldest = oldest.map(|(&number, _)| number)?;
            if let Some(login) = self.logins.remove(&oldest) {
                note_unproved(&mut self.unproved, login);
            }
        }
        let login = self.next_login;
        self.next_login = self.next_login.wrapping_add(1);
        let context = context(body, wish.suite(), &self.settings.server, login);
        let name = Wish::credential(&wish.group, wish.user.as_deref());
        let record = self.records.get(&name).map(Vec::as_slice);
        let entropy = &mut self.entropy;
        let (pending, message) = self
            .exchange
            .answer(&name, record, message, &context, entropy)?;
        let answer = write(&Message::Answer {
            nonce,
            server: self.settings.server,
            suite: wish.suite(),
            login,
            message,
        });
        let step = Some(Step::Answered { pending, context });
        let pending = Pending {
            address: address.to_vec(),
            from,
            nonce,
            wish,
            began: now,
            answer: answer.clone(),
            step,
        };
        self.logins.insert(login, pending);
        Some(answer)
    }

    fn handle_last(
        &mut self,
        address: &[u8],
        nonce: [u8; 8],
        number: u32,
        message: &[u8],
    ) -> (Option<Vec<u8>>, Option<Proved>) {
        let found = self.logins.get_mut(&number);
        let Some(login) = found.filter(|login| login.address == address && login.nonce == nonce)
        else {
            return (None, None);
        };
        match login.step.take() {
            Some(Step::Answered { pending, context }) => {
                let secret = self.exchange.finish(pending, message, &context);
                let Some(secret) = secret else {
                    if let Some(login) = self.logins.remove(&number) {
                        let Pending { from, wish, .. } = login;
                        keep_unproved(&mut self.unproved, Unproved { from, wish });
                    }
                    return (None, None);
                };
                login.step = Some(Step::Proved(Box::new(Keys::new(&secret))));
                self.attempts.give_back(address);
                let proved = Proved {
                    login: number,
                    address: address.to_vec(),
                    wish: login.wish.clone(),
                };
                (None, Some(proved))
            }
            Some(Step::Over) => {
                login.step = Some(Step::Over);
                (Some(login.answer.clone()), None)
            }
            other @ (Some(Step::Proved(_)) | None) => {
                login.step = other;
                (None, None)
            }
        }
    }

    /// Makes a session of a login. The caller has chosen its number, its tags, which nobody else of that address has,
    /// and how many slots it gets; an older session of the same client and group is over.
    pub fn accept<D: AsRef<[u8]> + Default>(
        &mut self,
        now: Duration,
        number: u32,
        (session, first_tag, slots): (u32, u16, u16),
        devices: Vec<Device>,
    ) -> Option<Accepted<D>> {
        let settings = self.settings.session;
        let login = self.logins.get_mut(&number)?;
        let keys = match login.step.take() {
            Some(Step::Proved(keys)) => keys,
            other @ (Some(Step::Answered { .. } | Step::Over) | None) => {
                login.step = other;
                return None;
            }
        };
        let frame_bytes_max = settings.frame_bytes_max.min(login.wish.frame_bytes_max);
        let terms = Terms {
            session,
            first_tag,
            slots,
            peer_window: settings.window,
            peer_begun_bytes: settings.begun_bytes,
            frame_bytes_max,
            profile: settings.profile,
            bundles: login.wish.bundles,
        };
        login.answer = seal(&keys, login.nonce, &encode_terms(&terms));
        login.step = Some(Step::Over);
        let mine = Terms {
            peer_window: login.wish.window,
            peer_begun_bytes: login.wish.begun_bytes,
            ..terms
        };
        Some(Accepted {
            frame: login.answer.clone(),
            session: TargetSession::new(now, &keys, mine, settings, devices),
        })
    }

    /// There is no place for it. Gives a frame for the client.
    pub fn refuse(&mut self, number: u32) -> Option<Vec<u8>> {
        let login = self.logins.get_mut(&number)?;
        match login.step.take() {
            Some(Step::Proved(keys)) => {
                login.answer = seal(&keys, login.nonce, &[1]);
                login.step = Some(Step::Over);
                Some(login.answer.clone())
            }
            other @ (Some(Step::Answered { .. } | Step::Over) | None) => {
                login.step = other;
                None
            }
        }
    }
}

/// Keeps what is reported of a login that is dropped.
fn note_unproved<P, F>(unproved: &mut Vec<Unproved<F>>, login: Pending<P, F>) {
    let Pending {
        from, wish, step, ..
    } = login;
    if matches!(step, Some(Step::Answered { .. })) {
        keep_unproved(unproved, Unproved { from, wish });
    }
}

fn keep_unproved<F>(unproved: &mut Vec<Unproved<F>>, one: Unproved<F>) {
    if unproved.len() < LOGINS_MAX {
        unproved.push(one);
    }
}

fn write(message: &Message) -> Vec<u8> {
    plain::write(Opcode::NegotiationAnswer, &message.encode(), 0)
}

/// The last answer. Its key seals this one frame.
fn seal(keys: &Keys, nonce: [u8; 8], text: &[u8]) -> Vec<u8> {
    let mut sealed = vec![0; 200];
    let length = Sealer::new(keys.target_login, 0).seal([0; 5], 0, &[text], &mut sealed);
    sealed.truncate(length.unwrap_or_default());
    write(&Message::Accepted { nonce, sealed })
}
