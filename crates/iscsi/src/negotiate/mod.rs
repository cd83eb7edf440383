//! Operational negotiation: two sides' wishes become one set of session parameters.
//!
//! What a key means is a row of [`KEYS`]; the code below only knows kinds of values and result
//! functions. It serves both roles: a [`Negotiation`] offers, declares, answers and checks the
//! answers to its own offers. It does not know login stages, names or authentication: keys of
//! kind [`KeyKind::Text`] are handed to the caller after the rules of use were applied.
//!
//! Spec: RFC 7143 sections 6.2 and 13.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod keys;
mod parameters;
mod value;

pub use keys::{KEYS, Key, KeyKind, KeySpec, ResultFunction, Scope, Senders, Use};
pub use parameters::{
    ConnectionParameters, DigestPolicy, OperationalPreferences, SessionParameters, SessionType,
    TaskReporting,
};
pub use value::{ReservedAnswer, boolean_text, parse_boolean, parse_number, parse_range};

use crate::text::{Pair, TextWriter};
use keys::{KEY_COUNT, KeySet};
use parameters::Own;

/// A rule of negotiation that the peer broke. All of them end a login.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationViolation {
    /// A key came a second time within one negotiation.
    #[error("key {} negotiated twice", key.name())]
    KeyTwice {
        /// The key.
        key: Key,
    },
    /// A key came from the side that may not send it.
    #[error("key {} sent by the wrong side", key.name())]
    WrongSender {
        /// The key.
        key: Key,
    },
    /// An answer is not among the values that the offer leaves open.
    #[error("answer to {} is not within what was offered", key.name())]
    AnswerOutsideOffer {
        /// The key.
        key: Key,
    },
    /// MaxBurstLength was negotiated below a FirstBurstLength already agreed.
    #[error("FirstBurstLength {first} exceeds MaxBurstLength {max}")]
    FirstBurstAboveMaxBurst {
        /// FirstBurstLength, in bytes.
        first: u32,
        /// MaxBurstLength, in bytes.
        max: u32,
    },
    /// The peer turned down a value that cannot be done without.
    #[error("peer refuses every acceptable value of {}", key.name())]
    NoCommonValue {
        /// The key.
        key: Key,
    },
}

/// Which side of the connection this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The initiator.
    Initiator,
    /// The target.
    Target,
}

/// What the negotiation is part of; decides which keys may be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Login of the first connection of a session.
    LeadingLogin,
    /// Login of a further connection.
    JoiningLogin,
    /// After login.
    FullFeature,
}

/// What one `key=value` asks of the caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Heard<'a> {
    /// Nothing; the answer, if any, is written.
    Done,
    /// A key whose meaning lies with the caller, who also has to answer it if it wants one.
    Text {
        /// The key, checked for phase, sender and repetition.
        key: Key,
        /// Its value.
        value: &'a str,
    },
}

/// The negotiation of one connection, for its whole life.
#[derive(Clone, Debug)]
pub struct Negotiation {
    role: Role,
    phase: Phase,
    session_type: SessionType,
    own: OperationalPreferences,
    /// What is in force: agreed value or default, by row.
    agreed: [u32; KEY_COUNT],
    /// Keys the peer sent in this negotiation.
    heard: KeySet,
    /// Keys that have a result or were offered or declared by this side.
    settled: KeySet,
    /// Offers of this side that the peer has not answered yet.
    outstanding: KeySet,
    /// MaxRecvDataSegmentLength that the peer declared, in bytes, if it did.
    peer_segment_length: Option<u32>,
    /// MaxRecvDataSegmentLength that this side declared, in bytes.
    own_segment_length: u32,
}

impl Negotiation {
    /// A negotiation in which nothing was said yet: all defaults are in force.
    #[must_use]
    pub fn new(
        role: Role,
        phase: Phase,
        session_type: SessionType,
        own: OperationalPreferences,
    ) -> Self {
        let mut agreed = [0; KEY_COUNT];
        for (value, row) in agreed.iter_mut().zip(KEYS) {
            *value = row.default;
        }
        let segment_default = Key::MaxRecvDataSegmentLength.spec().default;
        Self {
            role,
            phase,
            session_type,
            own,
            agreed,
            heard: KeySet::default(),
            settled: KeySet::default(),
            outstanding: KeySet::default(),
            peer_segment_length: None,
            own_segment_length: segment_default,
        }
    }

    /// Sets what only becomes known from the first keys: the session's type, and the limits that
    /// belong to the target asked for.
    pub fn configure(&mut self, session_type: SessionType, own: OperationalPreferences) {
        self.session_type = session_type;
        self.own = own;
    }

    /// Clears which keys were received: a new text exchange is a new negotiation.
    pub fn begin_exchange(&mut self) {
        self.heard = KeySet::default();
        self.outstanding = KeySet::default();
    }

    /// MaxRecvDataSegmentLength as the peer last declared it, in bytes.
    #[must_use]
    pub const fn declared_segment_length(&self) -> Option<u32> {
        self.peer_segment_length
    }

    /// True while an offer of this side has no answer yet.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// An offer of this side that has no answer yet.
    #[must_use]
    pub const fn unanswered(&self) -> Option<Key> {
        self.outstanding.first()
    }

    /// Deals with all pairs of one complete text.
    ///
    /// Answers go to `answers`; pairs that the caller has to deal with come back in the order of
    /// the text. FirstBurstLength is taken last, because its relevance and its limit depend on
    /// three other keys that may stand behind it.
    ///
    /// # Errors
    ///
    /// The peer broke a rule; the negotiation is over.
    pub fn handle_text<'a>(
        &mut self,
        pairs: &[Pair<'a>],
        answers: &mut TextWriter,
    ) -> Result<Vec<(Key, &'a str)>, NegotiationViolation> {
        let mut for_caller = Vec::new();
        let is_late = |pair: &&Pair<'_>| pair.key == Key::FirstBurstLength.name();
        let early = pairs.iter().filter(|pair| !is_late(pair));
        for pair in early.chain(pairs.iter().filter(is_late)) {
            match self.handle_pair(*pair, answers)? {
                Heard::Done => {}
                Heard::Text { key, value } => for_caller.push((key, value)),
            }
        }
        Ok(for_caller)
    }

    /// Deals with one pair: as answer to an offer of ours, as declaration, or as offer.
    ///
    /// # Errors
    ///
    /// The peer broke a rule; the negotiation is over.
    pub fn handle_pair<'a>(
        &mut self,
        pair: Pair<'a>,
        answers: &mut TextWriter,
    ) -> Result<Heard<'a>, NegotiationViolation> {
        let reserved = ReservedAnswer::parse(pair.value);
        let Some(key) = Key::from_name(pair.key) else {
            // To answer "NotUnderstood" with the same would never end.
            if reserved.is_none() {
                answers.push(pair.key, ReservedAnswer::NotUnderstood.text());
            }
            return Ok(Heard::Done);
        };
        if self.outstanding.contains(key) {
            self.outstanding.remove(key);
            // Each key has one turn in a negotiation, whichever side began it.
            self.heard.insert(key);
            self.handle_answer(key, pair.value, reserved)?;
            return Ok(Heard::Done);
        }
        if reserved.is_some() && self.settled.contains(key) {
            // The peer does not care for a declaration of ours, which is its right.
            return Ok(Heard::Done);
        }
        self.check_sender(key)?;
        if let Some(answer) = self.refusal(key) {
            answers.push(key.name(), answer.text());
            return Ok(Heard::Done);
        }
        if !self.heard.insert(key) && !self.is_repeatable(key) {
            return Err(NegotiationViolation::KeyTwice { key });
        }
        if key.spec().kind == KeyKind::Text && key.spec().result != ResultFunction::Obsolete {
            return Ok(Heard::Text {
                key,
                value: pair.value,
            });
        }
        self.answer_offer(key, pair.value, answers)?;
        Ok(Heard::Done)
    }

    /// Keys that a target's answer to SendTargets repeats.
    fn is_repeatable(&self, key: Key) -> bool {
        self.role == Role::Initiator && matches!(key, Key::TargetAddress | Key::TargetName)
    }

    fn check_sender(&self, key: Key) -> Result<(), NegotiationViolation> {
        let legal = match key.spec().senders {
            Senders::Both => true,
            Senders::Initiator => self.role == Role::Target,
            Senders::Target => self.role == Role::Initiator,
        };
        if legal {
            Ok(())
        } else {
            Err(NegotiationViolation::WrongSender { key })
        }
    }

    /// The word that refuses a key which has no place here, or `None` when it has.
    fn refusal(&self, key: Key) -> Option<ReservedAnswer> {
        let spec = key.spec();
        if spec.result == ResultFunction::Obsolete {
            return Some(ReservedAnswer::Reject);
        }
        match (spec.allowed, self.phase) {
            (Use::All, _)
            | (Use::InitializeOnly, Phase::LeadingLogin | Phase::JoiningLogin)
            | (Use::LeadingOnly, Phase::LeadingLogin)
            | (Use::FullFeatureOnly, Phase::FullFeature) => {}
            // Of no effect there, but some initiators repeat on each connection what they offered on
            // the first: they get the answer that they had.
            (Use::LeadingOnly, Phase::JoiningLogin) => {}
            (Use::InitializeOnly | Use::LeadingOnly, Phase::FullFeature)
            | (Use::FullFeatureOnly, Phase::LeadingLogin | Phase::JoiningLogin) => {
                return Some(ReservedAnswer::Reject);
            }
        }
        None
    }

    /// Whether the result of a key makes no difference here. An offer of one is still answered by
    /// the normal selection: "Irrelevant" is legal, but ends the login of strict initiators.
    fn has_no_effect(&self, key: Key) -> bool {
        let spec = key.spec();
        let no_first_burst =
            self.agreed(Key::InitialR2T) == 1 && self.agreed(Key::ImmediateData) == 0;
        (spec.allowed == Use::LeadingOnly && self.phase == Phase::JoiningLogin)
            || (self.session_type == SessionType::Discovery && !spec.in_discovery)
            || (key == Key::FirstBurstLength && no_first_burst)
    }

    /// Takes an offer or declaration of the peer and writes the answer.
    fn answer_offer(
        &mut self,
        key: Key,
        value: &str,
        answers: &mut TextWriter,
    ) -> Result<(), NegotiationViolation> {
        let spec = key.spec();
        if spec.result == ResultFunction::Declarative {
            match self.parse_in_range(key, value) {
                Some((low, high)) if low == high => self.peer_segment_length = Some(low),
                Some(_) | None => answers.push(key.name(), ReservedAnswer::Reject.text()),
            }
            return Ok(());
        }
        let result = match spec.kind {
            KeyKind::Boolean => {
                parse_boolean(value).map(|theirs| self.combine_boolean(key, theirs))
            }
            KeyKind::Number { .. } => self
                .parse_in_range(key, value)
                .and_then(|range| self.combine_number(key, range)),
            KeyKind::List(names) => self.first_common(key, names, value),
            KeyKind::Text => None,
        };
        match result {
            Some(result) => {
                self.settle(key, result)?;
                push_value(answers, key, result);
            }
            None => answers.push(key.name(), ReservedAnswer::Reject.text()),
        }
        Ok(())
    }

    /// A number or range of the peer, or `None` when any of it is outside the legal range.
    fn parse_in_range(&self, key: Key, value: &str) -> Option<(u32, u32)> {
        let KeyKind::Number { min, max } = key.spec().kind else {
            return None;
        };
        parse_range(value).filter(|&(low, high)| low >= min && high <= max)
    }

    fn combine_boolean(&self, key: Key, theirs: bool) -> u32 {
        let ours = self.own.number(key) != 0;
        u32::from(match key.spec().result {
            ResultFunction::Or => theirs || ours,
            ResultFunction::And
            | ResultFunction::Minimum
            | ResultFunction::Maximum
            | ResultFunction::FirstCommon
            | ResultFunction::Declarative
            | ResultFunction::Obsolete => theirs && ours,
        })
    }

    /// The result of a number or range, or `None` when no number in the range will do.
    fn combine_number(&self, key: Key, (low, high): (u32, u32)) -> Option<u32> {
        let ours = self.own_number(key);
        if key.spec().result == ResultFunction::Maximum {
            // One number offered: the larger wins, whichever it is.
            let result = low.max(ours);
            (low == high || result <= high).then_some(result)
        } else {
            let result = high.min(ours);
            (low == high || result >= low).then_some(result)
        }
    }

    fn first_common(&self, key: Key, names: &[&str], value: &str) -> Option<u32> {
        let Own::List(accepted) = self.own.of(key) else {
            return None;
        };
        value.split(',').find_map(|word| {
            let index = names.iter().position(|name| *name == word)?;
            let index = u32::try_from(index).ok()?;
            accepted.contains(&index).then_some(index)
        })
    }

    fn settle(&mut self, key: Key, result: u32) -> Result<(), NegotiationViolation> {
        if let Some(slot) = self.agreed.get_mut(key.index()) {
            *slot = result;
        }
        self.settled.insert(key);
        let (first, max) = (
            self.agreed(Key::FirstBurstLength),
            self.agreed(Key::MaxBurstLength),
        );
        // A FirstBurstLength not agreed yet follows MaxBurstLength down in `session_parameters`.
        let is_agreed = self.settled.contains(Key::FirstBurstLength)
            && !self.outstanding.contains(Key::FirstBurstLength);
        if first > max && is_agreed {
            return Err(NegotiationViolation::FirstBurstAboveMaxBurst { first, max });
        }
        Ok(())
    }

    /// Checks the peer's answer to an offer of this side.
    fn handle_answer(
        &mut self,
        key: Key,
        value: &str,
        reserved: Option<ReservedAnswer>,
    ) -> Result<(), NegotiationViolation> {
        let outside = NegotiationViolation::AnswerOutsideOffer { key };
        let ours = self.own_number(key);
        let result = match (key.spec().kind, reserved) {
            // A key without meaning can do no harm.
            (_, Some(ReservedAnswer::Irrelevant)) => return Ok(()),
            (_, Some(ReservedAnswer::Reject | ReservedAnswer::NotUnderstood)) => {
                return if self.accepts(key, self.agreed(key)) {
                    Ok(())
                } else {
                    Err(NegotiationViolation::NoCommonValue { key })
                };
            }
            (KeyKind::Boolean, None) => {
                let answer = u32::from(parse_boolean(value).ok_or(outside)?);
                let forced = match key.spec().result {
                    ResultFunction::Or => ours == 1,
                    ResultFunction::And
                    | ResultFunction::Minimum
                    | ResultFunction::Maximum
                    | ResultFunction::FirstCommon
                    | ResultFunction::Declarative
                    | ResultFunction::Obsolete => ours == 0,
                };
                (!forced || answer == ours).then_some(answer)
            }
            (KeyKind::Number { .. }, None) => self
                .parse_in_range(key, value)
                .filter(|(low, high)| low == high)
                .map(|(answer, _)| answer)
                .filter(|&answer| match key.spec().result {
                    ResultFunction::Maximum => answer >= ours,
                    ResultFunction::Minimum
                    | ResultFunction::And
                    | ResultFunction::Or
                    | ResultFunction::FirstCommon
                    | ResultFunction::Declarative
                    | ResultFunction::Obsolete => answer <= ours,
                }),
            (KeyKind::List(names), None) => (!value.contains(','))
                .then(|| self.first_common(key, names, value))
                .flatten(),
            (KeyKind::Text, None) => None,
        };
        self.settle(key, result.ok_or(outside)?)
    }

    /// Offers (or declares) this side's value of one key.
    ///
    /// Declarations are in force at once; offers wait for [`Negotiation::handle_pair`].
    pub fn offer(&mut self, key: Key, out: &mut TextWriter) {
        let spec = key.spec();
        match self.own.of(key) {
            Own::List(values) => {
                let KeyKind::List(names) = spec.kind else {
                    return;
                };
                let words: Vec<&str> = values
                    .iter()
                    .filter_map(|&index| names.get(usize::try_from(index).ok()?).copied())
                    .collect();
                out.push(spec.name, &words.join(","));
            }
            Own::Number(_) => push_value(out, key, self.own_number(key)),
        }
        self.settled.insert(key);
        if spec.result == ResultFunction::Declarative {
            self.own_segment_length = self.own_number(key);
        } else {
            self.outstanding.insert(key);
        }
    }

    /// Declares this side's MaxRecvDataSegmentLength once; later calls write nothing.
    pub fn declare_segment_length(&mut self, out: &mut TextWriter) {
        if !self.settled.contains(Key::MaxRecvDataSegmentLength) {
            self.offer(Key::MaxRecvDataSegmentLength, out);
        }
    }

    /// Offers everything an initiator should: all operational keys of this phase and session.
    pub fn offer_all(&mut self, out: &mut TextWriter) {
        for row in KEYS {
            let is_irrelevant = self.session_type == SessionType::Discovery && !row.in_discovery;
            let is_too_late = row.allowed == Use::LeadingOnly && self.phase != Phase::LeadingLogin;
            if is_irrelevant || is_too_late || self.goes_without_saying(row.key) {
                continue;
            }
            if row.result == ResultFunction::Declarative {
                self.declare_segment_length(out);
            } else if !self.settled.contains(row.key) {
                self.offer(row.key, out);
            }
        }
    }

    /// Offers the keys that the initiator left at a default which this side cannot live with.
    ///
    /// True when something was offered: the login has to go one more round then.
    pub fn offer_where_default_is_too_much(&mut self, out: &mut TextWriter) -> bool {
        let before = self.outstanding;
        if self.phase == Phase::LeadingLogin && self.session_type == SessionType::Normal {
            for row in KEYS {
                if row.kind != KeyKind::Text
                    && row.result != ResultFunction::Declarative
                    && !self.settled.contains(row.key)
                    && !self.heard.contains(row.key)
                    && self.refusal(row.key).is_none()
                    && !self.has_no_effect(row.key)
                    && !self.accepts(row.key, self.agreed(row.key))
                {
                    self.offer(row.key, out);
                }
            }
        }
        self.outstanding != before
    }

    /// A key whose value in force this side cannot live with, if there is one.
    ///
    /// Asked at the end of a login: a peer may have refused to talk about the key at all.
    #[must_use]
    pub fn unacceptable(&self) -> Option<Key> {
        let relevant = |row: &&KeySpec| {
            row.kind != KeyKind::Text
                && row.result != ResultFunction::Declarative
                && self.refusal(row.key).is_none()
                && !self.has_no_effect(row.key)
        };
        KEYS.iter()
            .filter(relevant)
            .map(|row| row.key)
            .find(|&key| !self.accepts(key, self.agreed(key)))
    }

    /// This side's wish. FirstBurstLength never exceeds the MaxBurstLength that may come about.
    fn own_number(&self, key: Key) -> u32 {
        let own = self.own.number(key);
        let is_open = self.outstanding.contains(Key::MaxBurstLength);
        if key == Key::FirstBurstLength && !is_open {
            own.min(self.agreed(Key::MaxBurstLength))
        } else {
            own
        }
    }

    fn accepts(&self, key: Key, value: u32) -> bool {
        self.own.accepts(key, value)
            && (key != Key::FirstBurstLength || value <= self.agreed(Key::MaxBurstLength))
    }

    /// True when an initiator gains nothing by offering this key.
    fn goes_without_saying(&self, key: Key) -> bool {
        let own = |key| self.own.number(key);
        let has_no_first_burst = own(Key::InitialR2T) == 1 && own(Key::ImmediateData) == 0;
        let is_default = own(key) == key.spec().default;
        key.spec().kind == KeyKind::Text
            // The obsolete markers are off by default and better left unsaid.
            || matches!(key, Key::IfMarker | Key::OfMarker)
            || (matches!(key, Key::TaskReporting | Key::IscsiProtocolLevel) && is_default)
            || (key == Key::FirstBurstLength && has_no_first_burst)
    }

    /// The value in force: agreed, or the default.
    fn agreed(&self, key: Key) -> u32 {
        self.agreed.get(key.index()).copied().unwrap_or_default()
    }
}

fn push_value(out: &mut TextWriter, key: Key, value: u32) {
    match key.spec().kind {
        KeyKind::Boolean => out.push(key.name(), boolean_text(value != 0)),
        KeyKind::Number { .. } => out.push_number(key.name(), value),
        KeyKind::List(names) => {
            let name = usize::try_from(value).ok().and_then(|i| names.get(i));
            out.push(key.name(), name.unwrap_or(&ReservedAnswer::Reject.text()));
        }
        KeyKind::Text => {}
    }
}

#[cfg(test)]
mod tests;
