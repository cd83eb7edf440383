//! Text exchanges of the full-feature phase, above all SendTargets.
//!
//! [`TextExchange`] is the target's side: it gathers a request over PDUs, answers it, and hands a
//! long answer out piece by piece. [`parse_targets`] reads such an answer on the initiator's
//! side. Who may see which target is decided before, by the caller that fills [`TextRecords`].
//!
//! Spec: RFC 7143 sections 4.3, 11.10, 11.11 and appendix C.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::limits::TEXT_SEGMENT_MAX_BYTES;
use crate::names::IscsiName;
use crate::negotiate::{
    Key, Negotiation, NegotiationViolation, OperationalPreferences, Phase, ReservedAnswer, Role,
    SessionType,
};
use crate::pdu::{Bhs, RESERVED_TAG, TextRequestBhs, TextResponseBhs, flags};
use crate::text::{Pair, TextAccumulator, TextError, TextWriter, parse};

/// Port that IANA assigned to iSCSI.
pub const PORT_DEFAULT: u16 = 3260;

/// Where a target can be reached, and through which portal group.
///
/// Spec: RFC 7143 section 13.8.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TargetAddress {
    /// Domain name, IPv4 address, or IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Portal group; left out in redirections.
    pub portal_group_tag: Option<u16>,
}

impl TargetAddress {
    /// Reads `host[:port][,tag]`, where an IPv6 host stands in brackets.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (place, tag) = match text.rsplit_once(',') {
            Some((place, tag)) => (place, Some(tag.parse().ok()?)),
            None => (text, None),
        };
        let (host, rest) = match place.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']')?,
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if rest.is_empty() => PORT_DEFAULT,
            None => return None,
        };
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
        (!host.is_empty() && host.chars().all(is_plain)).then(|| Self {
            host: host.to_owned(),
            port,
            portal_group_tag: tag,
        })
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        if let Some(tag) = self.portal_group_tag {
            write!(f, ",{tag}")?;
        }
        Ok(())
    }
}

/// One target in the answer to SendTargets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TargetRecord {
    /// Its iSCSI name.
    pub name: String,
    /// Values of TargetAddress, see [`TargetAddress`].
    pub addresses: Vec<String>,
}

impl TargetRecord {
    fn write(&self, out: &mut TextWriter) {
        out.push(Key::TargetName.name(), &self.name);
        for address in &self.addresses {
            out.push(Key::TargetAddress.name(), address);
        }
    }
}

/// What is left to say in an exchange: a text, and after it lists of targets. A list is written as
/// far as the next segment needs, so that an initiator that does not ask for the rest holds no
/// more than that.
#[derive(Debug, Default)]
struct Answer {
    text: TextWriter,
    lists: VecDeque<List>,
}

/// Targets from `next` on.
#[derive(Debug)]
struct List {
    targets: Arc<[TargetRecord]>,
    next: usize,
}

impl Answer {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.lists.is_empty()
    }

    /// The next piece of at most `limit_bytes`, and whether more follows.
    fn next_segment(&mut self, limit_bytes: usize) -> (Vec<u8>, bool) {
        // One byte more than the piece takes shows that more follows.
        while self.text.left_bytes() <= limit_bytes
            && let Some(list) = self.lists.front_mut()
        {
            match list.targets.get(list.next) {
                Some(target) => {
                    target.write(&mut self.text);
                    list.next = list.next.saturating_add(1);
                }
                None => {
                    self.lists.pop_front();
                }
            }
        }
        self.text.next_segment(limit_bytes)
    }
}

/// What SendTargets may report in one session.
#[derive(Clone, Debug, Default)]
pub struct TextRecords {
    session_type: SessionType,
    targets: Arc<[TargetRecord]>,
}

impl TextRecords {
    /// For a discovery session: every target the initiator may see.
    #[must_use]
    pub fn for_discovery(targets: Vec<TargetRecord>) -> Self {
        Self {
            session_type: SessionType::Discovery,
            targets: targets.into(),
        }
    }

    /// For a normal session: its own target.
    #[must_use]
    pub fn for_target(own: TargetRecord) -> Self {
        Self {
            session_type: SessionType::Normal,
            targets: Arc::new([own]),
        }
    }

    /// For a discovery session, with records that others share.
    #[must_use]
    pub const fn for_discovery_shared(targets: Arc<[TargetRecord]>) -> Self {
        Self {
            session_type: SessionType::Discovery,
            targets,
        }
    }

    /// Begins the answer to one SendTargets.
    ///
    /// In a normal session `All` is answered like the empty value, with the own target: the
    /// standard forbids the question there, but initiators ask it.
    fn answer(&self, value: &str, out: &mut Answer) {
        if value.is_empty() && self.session_type == SessionType::Discovery {
            out.text
                .push(Key::SendTargets.name(), ReservedAnswer::Reject.text());
            return;
        }
        if value.is_empty() || value == "All" {
            out.lists.push_back(List {
                targets: Arc::clone(&self.targets),
                next: 0,
            });
            return;
        }
        if IscsiName::parse(value).is_err() {
            // No target can have it: a mistake, not a target that is hidden.
            out.text
                .push(Key::SendTargets.name(), ReservedAnswer::Reject.text());
            return;
        }
        for target in self.targets.iter() {
            if target.name.eq_ignore_ascii_case(value) {
                target.write(&mut out.text);
            }
        }
    }
}

/// A rule that a text request broke. The exchange is reset; the request is to be rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TextExchangeViolation {
    /// The text is malformed or too long.
    #[error(transparent)]
    Form(#[from] TextError),
    /// A key was used against the rules.
    #[error(transparent)]
    Negotiation(#[from] NegotiationViolation),
    /// The transfer tag belongs to no exchange under way.
    #[error("text request with transfer tag {got:#010x}, which is not open")]
    UnknownTransferTag {
        /// The tag.
        got: u32,
    },
    /// F and C are both set.
    #[error("text request is both final and continued")]
    FinalAndContinued,
    /// New keys came while the answer to earlier ones was still being handed out.
    #[error("text request carries keys while an answer is being continued")]
    KeysDuringAnswer,
}

/// One answer, ready to be stamped and sent.
#[derive(Debug, Eq, PartialEq)]
pub struct TextReply {
    /// Complete but for StatSN, ExpCmdSN, MaxCmdSN and the data segment length.
    pub header: TextResponseBhs,
    /// The data segment, without padding.
    pub data: Vec<u8>,
    /// MaxRecvDataSegmentLength of the initiator in bytes, if it declared one by text; in force
    /// from the next PDU on.
    pub remote_max_recv_data_segment_length: Option<u32>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct OpenExchange {
    initiator_task_tag: u32,
    target_transfer_tag: u32,
}

/// The target's side of the text exchanges of one connection, one at a time.
#[derive(Debug)]
pub struct TextExchange {
    negotiation: Negotiation,
    gathered: TextAccumulator,
    answer: Answer,
    open: Option<OpenExchange>,
    next_transfer_tag: u32,
}

impl Default for TextExchange {
    fn default() -> Self {
        Self::new()
    }
}

impl TextExchange {
    /// No exchange is under way.
    #[must_use]
    pub fn new() -> Self {
        let own = OperationalPreferences::default();
        Self {
            negotiation: Negotiation::new(
                Role::Target,
                Phase::FullFeature,
                SessionType::Normal,
                own,
            ),
            gathered: TextAccumulator::default(),
            answer: Answer::default(),
            open: None,
            next_transfer_tag: 1,
        }
    }

    /// Takes one Text Request with its complete data segment and gives the response to it.
    ///
    /// `limit_bytes` is the longest data segment the initiator takes, until it declares another one by text.
    ///
    /// # Errors
    ///
    /// The request breaks a rule; the exchange, if any, is dropped.
    pub fn handle_request(
        &mut self,
        request: &TextRequestBhs,
        data: &[u8],
        records: &TextRecords,
        limit_bytes: usize,
    ) -> Result<TextReply, TextExchangeViolation> {
        let reply = self.advance(request, data, records, limit_bytes);
        if reply.is_err() {
            self.reset();
        }
        reply
    }

    /// What the exchange under way holds of text, in bytes.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.gathered
            .len_bytes()
            .saturating_add(self.answer.text.left_bytes())
    }

    fn advance(
        &mut self,
        request: &TextRequestBhs,
        data: &[u8],
        records: &TextRecords,
        limit_bytes: usize,
    ) -> Result<TextReply, TextExchangeViolation> {
        let initiator_task_tag = request.initiator_task_tag.get();
        match request.target_transfer_tag.get() {
            RESERVED_TAG => self.reset(),
            target_transfer_tag => {
                let named = OpenExchange {
                    initiator_task_tag,
                    target_transfer_tag,
                };
                if self.open != Some(named) {
                    return Err(TextExchangeViolation::UnknownTransferTag {
                        got: target_transfer_tag,
                    });
                }
            }
        }
        if request.is_final() && request.is_continued() {
            return Err(TextExchangeViolation::FinalAndContinued);
        }
        if !data.is_empty() && !self.answer.is_empty() {
            return Err(TextExchangeViolation::KeysDuringAnswer);
        }
        self.gathered.push(data)?;
        if request.is_continued() {
            return Ok(self.reply(request, Vec::new(), false, false));
        }
        let text = self.gathered.take();
        self.negotiate(&parse(&text)?, records)?;
        let limit_bytes = match self.negotiation.declared_segment_length() {
            Some(bytes) => (bytes as usize).min(TEXT_SEGMENT_MAX_BYTES),
            None => limit_bytes,
        };
        let (segment, more) = self.answer.next_segment(limit_bytes);
        Ok(self.reply(request, segment, more, request.is_final() && !more))
    }

    fn negotiate(
        &mut self,
        pairs: &[Pair<'_>],
        records: &TextRecords,
    ) -> Result<(), TextExchangeViolation> {
        let own = OperationalPreferences::default();
        self.negotiation.configure(records.session_type, own);
        for (key, value) in self.negotiation.handle_text(pairs, &mut self.answer.text)? {
            // The other text keys of this phase are declarations that Tarn has no use for.
            if key == Key::SendTargets {
                records.answer(value, &mut self.answer);
            }
        }
        Ok(())
    }

    fn reply(
        &mut self,
        request: &TextRequestBhs,
        data: Vec<u8>,
        continued: bool,
        is_final: bool,
    ) -> TextReply {
        let mut header = TextResponseBhs::new();
        header.lun = request.lun;
        header.initiator_task_tag = request.initiator_task_tag;
        if is_final {
            header.flags = flags::FINAL;
            header.target_transfer_tag = RESERVED_TAG.into();
            self.reset();
        } else {
            header.flags = if continued { flags::CONTINUE } else { 0 };
            // A fresh tag for each response: an initiator cannot take up an old thread.
            let target_transfer_tag = self.next_transfer_tag;
            self.next_transfer_tag = self.next_transfer_tag.wrapping_add(1) & 0x7fff_ffff;
            header.target_transfer_tag = target_transfer_tag.into();
            self.open = Some(OpenExchange {
                initiator_task_tag: request.initiator_task_tag.get(),
                target_transfer_tag,
            });
        }
        TextReply {
            header,
            data,
            remote_max_recv_data_segment_length: self.negotiation.declared_segment_length(),
        }
    }

    fn reset(&mut self) {
        self.negotiation.begin_exchange();
        self.gathered = TextAccumulator::default();
        self.answer = Answer::default();
        self.open = None;
    }
}

/// Reads a complete answer to SendTargets. Keys other than the two that belong there are passed
/// over; a TargetAddress before any TargetName has nobody to belong to and is, too.
///
/// # Errors
///
/// The text is malformed.
pub fn parse_targets(text: &[u8]) -> Result<Vec<TargetRecord>, TextError> {
    let mut targets: Vec<TargetRecord> = Vec::new();
    for pair in parse(text)? {
        match Key::from_name(pair.key) {
            Some(Key::TargetName) => targets.push(TargetRecord {
                name: pair.value.to_owned(),
                addresses: Vec::new(),
            }),
            Some(Key::TargetAddress) => {
                if let Some(target) = targets.last_mut() {
                    target.addresses.push(pair.value.to_owned());
                }
            }
            Some(_) | None => {}
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects)]

    use super::*;
    use proptest::prelude::*;

    fn record(name: &str) -> TargetRecord {
        TargetRecord {
            name: name.to_owned(),
            addresses: vec!["10.0.0.1:3260,1".to_owned(), "[fe80::1]:3260,2".to_owned()],
        }
    }

    fn request(flags: u8, transfer_tag: u32) -> TextRequestBhs {
        let mut request = TextRequestBhs::new();
        request.flags = flags;
        request.initiator_task_tag.set(7);
        request.target_transfer_tag.set(transfer_tag);
        request
    }

    /// Asks in one PDU, with room enough for the answer.
    fn ask(records: &TextRecords, text: &[u8]) -> Result<String, TextExchangeViolation> {
        let mut exchange = TextExchange::new();
        let reply =
            exchange.handle_request(&request(flags::FINAL, RESERVED_TAG), text, records, 8192)?;
        assert_eq!(reply.header.flags, flags::FINAL);
        assert_eq!(reply.header.target_transfer_tag.get(), RESERVED_TAG);
        assert_eq!(reply.header.initiator_task_tag.get(), 7);
        Ok(String::from_utf8(reply.data).unwrap().replace('\0', " "))
    }

    const A: &str = "TargetName=iqn.2001-04.com.example:a TargetAddress=10.0.0.1:3260,1 \
                     TargetAddress=[fe80::1]:3260,2 ";
    const B: &str = "TargetName=iqn.2001-04.com.example:b TargetAddress=10.0.0.1:3260,1 \
                     TargetAddress=[fe80::1]:3260,2 ";

    fn two() -> TextRecords {
        TextRecords::for_discovery(vec![
            record("iqn.2001-04.com.example:a"),
            record("iqn.2001-04.com.example:b"),
        ])
    }

    #[test]
    fn discovery_tells_all_or_one_or_nothing() {
        for (text, answer) in [
            (&b"SendTargets=All\0"[..], format!("{A}{B}")),
            (b"SendTargets=iqn.2001-04.com.example:b\0", B.to_owned()),
            (b"SendTargets=IQN.2001-04.COM.example:A\0", A.to_owned()),
            (b"SendTargets=iqn.2001-04.com.example:c\0", String::new()),
            (b"SendTargets=\0", "SendTargets=Reject ".to_owned()),
            (b"SendTargets=all\0", "SendTargets=Reject ".to_owned()),
            (b"SendTargets=no name\0", "SendTargets=Reject ".to_owned()),
            (b"Foo=1\0", "Foo=NotUnderstood ".to_owned()),
            (b"", String::new()),
        ] {
            assert_eq!(ask(&two(), text), Ok(answer), "{text:?}");
        }
        assert_eq!(
            ask(&TextRecords::for_discovery(vec![]), b"SendTargets=All"),
            Ok(String::new())
        );
    }

    #[test]
    fn a_normal_session_tells_only_of_its_own_target() {
        let own = TextRecords::for_target(record("iqn.2001-04.com.example:a"));
        for (text, answer) in [
            (&b"SendTargets=\0"[..], A),
            (b"SendTargets=All\0", A),
            (b"SendTargets=iqn.2001-04.com.example:a\0", A),
            (b"SendTargets=iqn.2001-04.com.example:b\0", ""),
            (b"MaxBurstLength=512\0", "MaxBurstLength=Reject "),
        ] {
            assert_eq!(ask(&own, text).as_deref(), Ok(answer), "{text:?}");
        }
    }

    #[test]
    fn a_segment_length_declared_again_is_reported() {
        let mut exchange = TextExchange::new();
        for length in [4096, 8192] {
            let text = format!("MaxRecvDataSegmentLength={length}\0");
            let reply = exchange
                .handle_request(
                    &request(flags::FINAL, RESERVED_TAG),
                    text.as_bytes(),
                    &two(),
                    8192,
                )
                .unwrap();
            assert_eq!(reply.remote_max_recv_data_segment_length, Some(length));
            assert!(reply.data.is_empty());
        }
    }

    #[test]
    fn an_answer_is_split_by_the_segment_length_that_its_own_request_declares() {
        let records = TextRecords::for_discovery(vec![record("iqn.2001-04.com.example:a"); 400]);
        for (declared, limit, longest) in [
            (512, 8192, 512),
            (16_384, 512, 16_384),
            (1 << 20, 512, TEXT_SEGMENT_MAX_BYTES),
        ] {
            let text = format!("SendTargets=All\0MaxRecvDataSegmentLength={declared}\0");
            let asked = request(flags::FINAL, RESERVED_TAG);
            let reply =
                TextExchange::new().handle_request(&asked, text.as_bytes(), &records, limit);
            assert_eq!(reply.unwrap().data.len(), longest);
        }
    }

    #[test]
    fn a_long_answer_goes_out_in_pieces_under_changing_tags() {
        let mut exchange = TextExchange::new();
        let mut text = b"SendTargets=All\0".to_vec();
        let mut transfer_tag = RESERVED_TAG;
        let mut whole = Vec::new();
        for _ in 0..100 {
            let reply = exchange
                .handle_request(&request(flags::FINAL, transfer_tag), &text, &two(), 50)
                .unwrap();
            assert!(reply.data.len() <= 50);
            whole.extend_from_slice(&reply.data);
            text.clear();
            if reply.header.is_final() {
                assert!(!reply.header.is_continued());
                assert_eq!(reply.header.target_transfer_tag.get(), RESERVED_TAG);
                assert_eq!(parse_targets(&whole).unwrap().len(), 2);
                assert_eq!(
                    String::from_utf8(whole).unwrap().replace('\0', " "),
                    format!("{A}{B}")
                );
                return;
            }
            assert!(reply.header.is_continued());
            assert_ne!(reply.header.target_transfer_tag.get(), transfer_tag);
            transfer_tag = reply.header.target_transfer_tag.get();
        }
        panic!("the answer never ends");
    }

    #[test]
    fn a_question_cut_by_the_c_bit_is_put_together() {
        let mut exchange = TextExchange::new();
        let first = exchange
            .handle_request(
                &request(flags::CONTINUE, RESERVED_TAG),
                b"SendTar",
                &two(),
                8192,
            )
            .unwrap();
        assert_eq!((first.header.flags, first.data.len()), (0, 0));
        let transfer_tag = first.header.target_transfer_tag.get();
        let second = exchange
            .handle_request(
                &request(flags::FINAL, transfer_tag),
                b"gets=All\0",
                &two(),
                8192,
            )
            .unwrap();
        assert!(second.header.is_final());
        assert_eq!(parse_targets(&second.data).unwrap().len(), 2);
    }

    #[test]
    fn a_question_without_the_f_bit_leaves_the_exchange_open() {
        let mut exchange = TextExchange::new();
        let reply = exchange
            .handle_request(
                &request(0, RESERVED_TAG),
                b"SendTargets=All\0",
                &two(),
                8192,
            )
            .unwrap();
        assert_eq!(reply.header.flags, 0);
        let transfer_tag = reply.header.target_transfer_tag.get();
        let reply = exchange
            .handle_request(&request(flags::FINAL, transfer_tag), b"", &two(), 8192)
            .unwrap();
        assert!(reply.header.is_final() && reply.data.is_empty());
    }

    #[test]
    fn broken_rules_reset_the_exchange() {
        let records = two();
        let mut exchange = TextExchange::new();
        let open = |exchange: &mut TextExchange| {
            let request = request(flags::FINAL, RESERVED_TAG);
            let reply = exchange
                .handle_request(&request, b"SendTargets=All\0", &records, 20)
                .unwrap();
            reply.header.target_transfer_tag.get()
        };
        let tag = open(&mut exchange);
        assert_eq!(
            exchange.handle_request(&request(flags::FINAL, tag + 1), b"", &records, 20),
            Err(TextExchangeViolation::UnknownTransferTag { got: tag + 1 })
        );
        let gone = exchange.handle_request(&request(flags::FINAL, tag), b"", &records, 20);
        assert_eq!(
            gone,
            Err(TextExchangeViolation::UnknownTransferTag { got: tag })
        );
        let tag = open(&mut exchange);
        assert_eq!(
            exchange.handle_request(&request(flags::FINAL, tag), b"A=1\0", &records, 20),
            Err(TextExchangeViolation::KeysDuringAnswer)
        );
        assert_eq!(
            exchange.handle_request(
                &request(flags::FINAL | flags::CONTINUE, RESERVED_TAG),
                b"",
                &records,
                20
            ),
            Err(TextExchangeViolation::FinalAndContinued)
        );
    }

    #[test]
    fn addresses_read_and_write_in_every_form() {
        let address = |host: &str, port, portal_group_tag| TargetAddress {
            host: host.to_owned(),
            port,
            portal_group_tag,
        };
        #[rustfmt::skip]
        let cases = [
            ("10.0.0.1:3260,1", address("10.0.0.1", 3260, Some(1)), "10.0.0.1:3260,1"),
            ("10.0.0.1", address("10.0.0.1", 3260, None), "10.0.0.1:3260"),
            ("san.example:860,65535", address("san.example", 860, Some(65535)), "san.example:860,65535"),
            ("[fe80::1]:3261,2", address("fe80::1", 3261, Some(2)), "[fe80::1]:3261,2"),
            ("[::1],2", address("::1", 3260, Some(2)), "[::1]:3260,2"),
        ];
        for (text, parsed, written) in cases {
            assert_eq!(TargetAddress::parse(text), Some(parsed.clone()), "{text}");
            assert_eq!(parsed.to_string(), written);
        }
        for text in [
            "",
            ":3260",
            "[::1",
            "host:x",
            "host:70000",
            "host,65536",
            "[::1]x",
            "a b:1",
        ] {
            assert_eq!(TargetAddress::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_requests_make_the_exchange_panic_or_grow(
            requests in proptest::collection::vec(
                (any::<u8>(), 0_u32..4, proptest::collection::vec(any::<u8>(), 0..64)),
                0..20
            ),
        ) {
            let mut exchange = TextExchange::new();
            for (flags, tag, data) in requests {
                let tag = if tag == 0 { RESERVED_TAG } else { tag };
                if let Ok(reply) =
                    exchange.handle_request(&request(flags, tag), &data, &two(), 30)
                {
                    prop_assert!(reply.data.len() <= 30);
                }
            }
        }
    }
}
