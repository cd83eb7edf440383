//! Finding servers by the name of a group, without a name server.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bytes::{Reader, put_name};
use crate::keys::Entropy;
use crate::limits::{FRAME_LEAST_BYTES, GROUP_NAME_MAX_BYTES, GROUPS_ASKED_MAX, NAME_MAX_BYTES};
use crate::pdu::Opcode;
use crate::plain;

/// A question is at least so long, so that no answer is longer. In bytes after the Ethernet header.
pub const QUESTION_BYTES: usize = 256;
/// Servers that a search keeps.
pub const SERVERS_MAX: usize = 256;
/// Answers wait up to so long, each its own time, so that not all come at once.
const SPREAD_US: u64 = 20_000;
/// Addresses whose questions are counted; the one that was silent longest makes room.
const ADDRESSES_MAX: usize = 1024;
/// Questions that an address may ask at once, and the time that brings one back.
const BURST: u64 = 20;
const QUESTION_EVERY: Duration = Duration::from_millis(100);

/// An address of a carrier, for example the six bytes of a MAC address.
pub type Address = Vec<u8>;

/// What a client asks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Question {
    /// The client.
    pub client: [u8; 16],
    /// Comes back in the answer.
    pub nonce: [u8; 8],
    /// From 1 to 16 names.
    pub groups: Vec<String>,
}

impl Question {
    /// The frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.client);
        body.extend(self.nonce);
        body.push(u8::try_from(self.groups.len()).unwrap_or_default());
        self.groups
            .iter()
            .for_each(|group| put_name(&mut body, group));
        plain::write(Opcode::Discovery, &body, QUESTION_BYTES)
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let (client, nonce, count) = (reader.array()?, reader.array()?, reader.u8()?);
        (1..=GROUPS_ASKED_MAX)
            .contains(&usize::from(count))
            .then_some(())?;
        let groups = (0..count)
            .map(|_| reader.name(GROUP_NAME_MAX_BYTES).map(str::to_owned))
            .collect::<Option<_>>()?;
        reader.rest().is_empty().then_some(())?;
        Some(Self {
            client,
            nonce,
            groups,
        })
    }
}

/// What a server answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// That of the question.
    pub nonce: [u8; 8],
    /// The server. It stays the same.
    pub server: [u8; 16],
    /// Its name for people.
    pub name: String,
    /// Which of the groups it has: a bit for each, the first in the least significant bit.
    pub groups: u16,
    /// Which of them need no password.
    pub open: u16,
    /// Shows the server that its answer arrived at the client's address.
    pub cookie: [u8; 16],
}

impl Answer {
    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.nonce);
        body.extend(self.server);
        body.extend(self.groups.to_be_bytes());
        body.extend(self.open.to_be_bytes());
        body.extend(self.cookie);
        put_name(&mut body, &self.name);
        plain::write(Opcode::DiscoveryAnswer, &body, 0)
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        Some(Self {
            nonce: reader.array()?,
            server: reader.array()?,
            groups: reader.u16()?,
            open: reader.u16()?,
            cookie: reader.array()?,
            name: reader.name(NAME_MAX_BYTES)?.to_owned(),
        })
    }
}

/// Makes cookies and knows its own, without keeping any.
pub struct Cookies([u8; 32]);

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookies")
    }
}

impl Cookies {
    /// With a key of its own, for as long as the process runs.
    #[must_use]
    pub fn new(entropy: &mut Entropy) -> Self {
        Self(entropy.bytes())
    }

    fn of(&self, slot: u64, address: &[u8], client: &[u8; 16]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&slot.to_be_bytes());
        hasher.update(client);
        hasher.update(address);
        let hash = hasher.finalize();
        hash.as_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// A cookie is taken in the minute that it was made in, and in the next.
    const fn slot(now: Duration) -> u64 {
        now.as_secs() / 60
    }

    /// The cookie of this address and client now.
    #[must_use]
    pub fn make(&self, now: Duration, address: &[u8], client: &[u8; 16]) -> [u8; 16] {
        self.of(Self::slot(now), address, client)
    }

    /// Whether the cookie is that of this address and client, and not too old.
    #[must_use]
    pub fn takes(
        &self,
        now: Duration,
        address: &[u8],
        client: &[u8; 16],
        cookie: &[u8; 16],
    ) -> bool {
        let slot = Self::slot(now);
        let matches = |slot| blake3_eq(&self.of(slot, address, client), cookie);
        matches(slot) || slot.checked_sub(1).is_some_and(matches)
    }

    /// How long the answer to this nonce waits.
    fn delay(&self, nonce: &[u8; 8]) -> Duration {
        let hash = blake3::keyed_hash(&self.0, nonce);
        let word = hash
            .as_bytes()
            .first_chunk()
            .copied()
            .map_or(0, u64::from_be_bytes);
        Duration::from_micros(word.checked_rem(SPREAD_US).unwrap_or_default())
    }
}

/// In constant time.
fn blake3_eq(one: &[u8; 16], other: &[u8; 16]) -> bool {
    one.iter()
        .zip(other)
        .fold(0, |differs, (a, b)| differs | (a ^ b))
        == 0
}

/// How often each address may be answered. Bounded, and no address can use up what others have.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<Address, (Duration, u64)>);

impl Buckets {
    /// Takes one from the bucket of this address.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        address: &[u8],
        burst: u64,
        every: Duration,
    ) -> bool {
        if !self.0.contains_key(address) && self.0.len() >= ADDRESSES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at);
            if let Some(oldest) = oldest.map(|(address, _)| address.clone()) {
                self.0.remove(&oldest);
            }
        }
        let (at, used) = self.0.entry(address.to_vec()).or_insert((now, 0));
        let back = now
            .saturating_sub(*at)
            .as_micros()
            .checked_div(every.as_micros());
        let back = back
            .and_then(|back| u64::try_from(back).ok())
            .unwrap_or_default();
        if back > 0 {
            *used = used.saturating_sub(back);
            *at = now;
        }
        let has = *used < burst;
        *used = used.saturating_add(u64::from(has));
        has
    }

    /// The last one was not wasted.
    pub(crate) fn give_back(&mut self, address: &[u8]) {
        if let Some((_, used)) = self.0.get_mut(address) {
            *used = used.saturating_sub(1);
        }
    }
}

/// A group that a server has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// It needs no password.
    pub is_open: bool,
}

/// A server's part: answers who asks for a group that it has, and nobody else.
#[derive(Debug)]
pub struct Responder {
    server: [u8; 16],
    name: String,
    groups: Vec<Group>,
    buckets: Buckets,
}

impl Responder {
    /// Of this server.
    #[must_use]
    pub fn new(server: [u8; 16], name: String, groups: Vec<Group>) -> Self {
        Self {
            server,
            name,
            groups,
            buckets: Buckets::default(),
        }
    }

    /// Takes a frame with tag 0 from this address. Gives an answer, and how long to wait before it is sent. It is not
    /// longer than the question.
    pub fn handle_frame(
        &mut self,
        now: Duration,
        cookies: &Cookies,
        address: &[u8],
        frame: &[u8],
    ) -> Option<(Duration, Vec<u8>)> {
        let (opcode, body) = plain::read(frame)?;
        let question = Question::decode(body).filter(|_| opcode == Opcode::Discovery)?;
        let (mut groups, mut open) = (0_u16, 0_u16);
        for (at, name) in (0_u32..).zip(&question.groups) {
            let bit = 1_u16.checked_shl(at).unwrap_or_default();
            if let Some(group) = self.groups.iter().find(|group| group.name == *name) {
                groups |= bit;
                open |= if group.is_open { bit } else { 0 };
            }
        }
        if groups == 0 || !self.buckets.take(now, address, BURST, QUESTION_EVERY) {
            return None;
        }
        let answer = Answer {
            nonce: question.nonce,
            server: self.server,
            name: self.name.clone(),
            groups,
            open,
            cookie: cookies.make(now, address, &question.client),
        };
        let answer = answer.encode();
        (answer.len() <= frame.len()).then(|| (cookies.delay(&question.nonce), answer))
    }
}

/// A server that a search found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// Where it answered from.
    pub address: Address,
    /// What it answered.
    pub answer: Answer,
}

/// A client's part: asks again and again, and keeps who answers.
#[derive(Debug)]
pub struct Search {
    question: Question,
    entropy: Entropy,
    found: BTreeMap<[u8; 16], Found>,
    next_at: Duration,
    asked: u32,
}

impl Search {
    /// For these groups, at most 16, from now on.
    #[must_use]
    pub fn new(now: Duration, client: [u8; 16], groups: Vec<String>, mut entropy: Entropy) -> Self {
        Self {
            question: Question {
                client,
                nonce: entropy.bytes(),
                groups,
            },
            entropy,
            found: BTreeMap::new(),
            next_at: now,
            asked: 0,
        }
    }

    /// When [`Self::poll_frame`] has the next question.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.next_at
    }

    /// The question, for everybody, if its time has come: at 0, 0.25, 0.5, 1, 2, 4 s and so on, then every 30 s.
    pub fn poll_frame(&mut self, now: Duration) -> Option<Vec<u8>> {
        (now >= self.next_at).then_some(())?;
        let pause_ms = 250_u64
            .checked_shl(self.asked.saturating_sub(1).min(7))
            .unwrap_or(30_000)
            .min(30_000);
        let [jitter] = self.entropy.bytes();
        let jitter_ms = pause_ms.saturating_mul(u64::from(jitter)) / 1024;
        self.next_at =
            now.saturating_add(Duration::from_millis(pause_ms.saturating_add(jitter_ms)));
        self.asked = self.asked.saturating_add(1);
        Some(self.question.encode())
    }

    /// Takes a frame with tag 0 from this address. Gives a server that was not known yet.
    pub fn handle_frame(&mut self, address: &[u8], frame: &[u8]) -> Option<&Found> {
        let (opcode, body) = plain::read(frame)?;
        let answer = Answer::decode(body).filter(|_| opcode == Opcode::DiscoveryAnswer)?;
        let asked = self.question.groups.len();
        let all = 1_u16
            .checked_shl(u32::try_from(asked).ok()?)
            .unwrap_or(0)
            .wrapping_sub(1);
        let is_ours =
            answer.nonce == self.question.nonce && answer.groups & !all == 0 && answer.groups != 0;
        let server = answer.server;
        if !is_ours || self.found.contains_key(&server) || self.found.len() >= SERVERS_MAX {
            return None;
        }
        let found = Found {
            address: address.to_vec(),
            answer,
        };
        Some(self.found.entry(server).or_insert(found))
    }

    /// Those that were found.
    pub fn found(&self) -> impl Iterator<Item = &Found> {
        self.found.values()
    }
}

const _: () = assert!(
    3 + 21 + 25 + GROUPS_ASKED_MAX * (GROUP_NAME_MAX_BYTES + 1) + 4 <= FRAME_LEAST_BYTES as usize,
    "the longest question fits every path"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn responder_of_server() -> (Responder, Cookies) {
        let group = |name: &str| Group {
            name: name.to_owned(),
            is_open: name == "DEF",
        };
        let groups = vec![group("ABC"), group("DEF")];
        let responder = Responder::new([9; 16], "s".repeat(NAME_MAX_BYTES), groups);
        (responder, Cookies::new(&mut Entropy::new(&[1; 32])))
    }

    fn search(groups: &[&str]) -> Search {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        Search::new(Duration::ZERO, [7; 16], groups, Entropy::new(&[2; 32]))
    }

    #[test]
    fn a_server_answers_for_its_groups_and_is_silent_otherwise() {
        let (mut responder, cookies) = responder_of_server();
        let mut search = search(&["GHI", "DEF"]);
        let question = search.poll_frame(Duration::ZERO).unwrap();
        let (wait, answer) = responder
            .handle_frame(Duration::ZERO, &cookies, b"client", &question)
            .unwrap();
        assert!(answer.len() <= question.len() && wait < Duration::from_millis(20));
        let found = search.handle_frame(b"server", &answer).unwrap().clone();
        assert_eq!((found.answer.groups, found.answer.open), (2, 2));
        let (cookie, minute) = (found.answer.cookie, Duration::from_secs(60));
        assert!(cookies.takes(minute, b"client", &[7; 16], &cookie));
        assert!(
            !cookies.takes(minute * 2, b"client", &[7; 16], &cookie),
            "too old"
        );
        assert!(
            !cookies.takes(minute, b"another", &[7; 16], &cookie),
            "another address"
        );
        assert_eq!(search.handle_frame(b"server", &answer), None, "known");
        let stranger = Question {
            client: [7; 16],
            nonce: [0; 8],
            groups: vec!["GHI".to_owned()],
        };
        assert_eq!(
            responder.handle_frame(minute, &cookies, b"client", &stranger.encode()),
            None
        );
    }

    #[test]
    fn a_short_question_gets_no_longer_answer() {
        let (mut responder, cookies) = responder_of_server();
        let question = search(&["ABC"]).question;
        let mut frame = question.encode();
        frame.truncate(80);
        assert_eq!(
            responder.handle_frame(Duration::ZERO, &cookies, b"c", &frame),
            None
        );
    }

    #[test]
    fn questions_of_one_address_are_bounded_and_do_not_count_for_another() {
        let (mut responder, cookies) = responder_of_server();
        let frame = search(&["ABC"]).question.encode();
        let mut answers = |now, address: &[u8]| {
            let ask = |_: &u32| {
                responder
                    .handle_frame(now, &cookies, address, &frame)
                    .is_some()
            };
            (0..100).filter(ask).count()
        };
        assert_eq!(answers(Duration::ZERO, b"one"), 20);
        assert_eq!(answers(Duration::ZERO, b"two"), 20);
        assert_eq!(answers(Duration::from_millis(300), b"one"), 3);
        let many = (0..5000_u32).map(|n| n.to_be_bytes());
        let (mut responder, cookies) = responder_of_server();
        many.for_each(|n| drop(responder.handle_frame(Duration::ZERO, &cookies, &n, &frame)));
        assert_eq!(responder.buckets.0.len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_search_asks_less_and_less_often() {
        let mut search = search(&["ABC"]);
        let mut times = Vec::new();
        while search.deadline() < Duration::from_secs(200) {
            times.push(search.deadline());
            assert!(search.poll_frame(search.deadline()).is_some());
        }
        assert!((8..20).contains(&times.len()), "{times:?}");
        assert_eq!(search.poll_frame(Duration::ZERO), None);
    }
}
