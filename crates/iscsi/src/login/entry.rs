//! Which session a login may enter: one rule for joins and for reinstatements.
//!
//! InitiatorName, ISID and TSIH are claims of the initiator and anybody can send them. So they only
//! name a session; what opens it is the user that CHAP has proved, and rules of access that give the
//! newcomer's own connection as much as the session has. Pure: the owner looks the session up.
//!
//! Spec: RFC 7143 sections 6.3.4 (connection reinstatement), 6.3.5 (session reinstatement) and 9.2
//! (in-band authentication).

use crate::pdu::{Isid, LoginStatus};

/// What a login says of itself, and what it has proved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim<'a> {
    /// InitiatorName; claimed.
    pub initiator_name: &'a str,
    /// Claimed.
    pub isid: Isid,
    /// The target, by a number of the owner's.
    pub target: u32,
    /// Of the portal that was reached.
    pub portal_group_tag: u16,
    /// The user that CHAP has proved; `None` where the target lets the initiator in without.
    pub user: Option<&'a str>,
}

impl Claim<'_> {
    /// Both claim the same pair of ports: at most one session has it.
    fn is_same_nexus(&self, other: &Self) -> bool {
        let Self {
            initiator_name,
            isid,
            target,
            portal_group_tag,
            user: _,
        } = *self;
        initiator_name == other.initiator_name
            && isid == other.isid
            && target == other.target
            && portal_group_tag == other.portal_group_tag
    }
}

/// What becomes of a login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Entry {
    /// It begins a session of its own.
    Begin,
    /// It ends the session of its ports and begins another in its place.
    Reinstate,
    /// It becomes a connection of the session it names.
    Join,
    /// It ends here, and the session it meant goes on.
    Refuse(EntryRefusal),
}

/// Why a login may not enter the session it means.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EntryRefusal {
    /// No session of this TSIH belongs to the ports that the login claims.
    #[error("no such session of this initiator port")]
    NoSuchSession,
    /// The ports are those of a session of another user, or of nobody.
    #[error("the session of this initiator port belongs to another user")]
    OtherUser,
    /// From its address or through its portal the login would see less than the session has.
    #[error("the session of this initiator port has more than this connection is granted")]
    LessAccess,
}

impl EntryRefusal {
    /// As the initiator gets it.
    #[must_use]
    pub const fn status(self) -> LoginStatus {
        match self {
            Self::NoSuchSession => LoginStatus::SessionDoesNotExist,
            Self::OtherUser | Self::LessAccess => LoginStatus::AuthorizationFailure,
        }
    }
}

/// Decides over a login that lacks nothing but its session.
///
/// `is_join`: its TSIH is not zero. `session` is the session that it means: of that TSIH for a join,
/// of the same ports otherwise. `has_reach`: the rules of access give the login's own peer, portal
/// and user at least what they give that session.
#[must_use]
pub fn decide_entry(
    newcomer: &Claim<'_>,
    is_join: bool,
    session: Option<&Claim<'_>>,
    has_reach: bool,
) -> Entry {
    match session.filter(|session| session.is_same_nexus(newcomer)) {
        None if is_join => Entry::Refuse(EntryRefusal::NoSuchSession),
        None => Entry::Begin,
        Some(session) if session.user != newcomer.user => Entry::Refuse(EntryRefusal::OtherUser),
        Some(_) if !has_reach => Entry::Refuse(EntryRefusal::LessAccess),
        Some(_) if is_join => Entry::Join,
        Some(_) => Entry::Reinstate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Claim<'static> = Claim {
        initiator_name: "iqn.2026-11.example:host",
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        target: 3,
        portal_group_tag: 1,
        user: Some("alice"),
    };

    /// Every newcomer against alice's session and against one of nobody.
    #[test]
    fn only_the_same_proof_with_the_same_reach_enters_a_session() {
        use EntryRefusal::{LessAccess, NoSuchSession, OtherUser};

        let nobody = Claim {
            user: None,
            ..ALICE
        };
        let bob = Claim {
            user: Some("bob"),
            ..ALICE
        };
        for (session, newcomer, has_reach, join, lead) in [
            (ALICE, ALICE, true, Entry::Join, Entry::Reinstate),
            (nobody, nobody, true, Entry::Join, Entry::Reinstate),
        ]
        .into_iter()
        .chain(
            [
                (ALICE, bob, true, OtherUser),
                (ALICE, bob, false, OtherUser),
                (ALICE, nobody, true, OtherUser),
                (nobody, ALICE, true, OtherUser),
                (ALICE, ALICE, false, LessAccess),
                (nobody, nobody, false, LessAccess),
            ]
            .map(|(session, newcomer, has_reach, refusal)| {
                let refuse = Entry::Refuse(refusal);
                (session, newcomer, has_reach, refuse, refuse)
            }),
        ) {
            let what = format!("{newcomer:?} at {session:?}, reach {has_reach}");
            let decide = |is_join| decide_entry(&newcomer, is_join, Some(&session), has_reach);
            assert_eq!(decide(true), join, "join of {what}");
            assert_eq!(decide(false), lead, "leading login of {what}");
        }
        let missing = Entry::Refuse(NoSuchSession);
        assert_eq!(decide_entry(&ALICE, true, None, true), missing);
        assert_eq!(decide_entry(&ALICE, false, None, true), Entry::Begin);
    }

    /// With the right user, each part of the name of the nexus has to be right as well.
    #[test]
    fn another_port_is_another_session() {
        #[rustfmt::skip]
        let cases = [
            Claim { initiator_name: "iqn.2026-11.example:other", ..ALICE },
            Claim { isid: Isid([0x80, 0, 0, 0, 0, 2]), ..ALICE },
            Claim { target: 4, ..ALICE },
            Claim { portal_group_tag: 2, ..ALICE },
        ];
        for other in cases {
            let missing = Entry::Refuse(EntryRefusal::NoSuchSession);
            assert_eq!(decide_entry(&other, true, Some(&ALICE), true), missing);
            assert_eq!(
                decide_entry(&other, false, Some(&ALICE), true),
                Entry::Begin
            );
        }
    }

    #[test]
    fn a_refusal_says_no_more_than_that_it_is_one() {
        for (refusal, status) in [
            (
                EntryRefusal::NoSuchSession,
                LoginStatus::SessionDoesNotExist,
            ),
            (EntryRefusal::OtherUser, LoginStatus::AuthorizationFailure),
            (EntryRefusal::LessAccess, LoginStatus::AuthorizationFailure),
        ] {
            assert_eq!(refusal.status(), status, "{refusal}");
        }
    }
}
