//! What a login has proved and is granted, compared with the session that it names.
//!
//! Pure; the rule itself is [`iscsi::login::decide_entry`]. It is asked by the front with the
//! rules of access as they are at that moment, for both sides: what a session was granted once is
//! no argument.

use std::net::SocketAddr;

use ::iscsi::login::{Claim, Entry, decide_entry};
use ::iscsi::pdu::Isid;
use engine::{TargetIndex, VisibleLun};

use crate::policy::{Asker, Policy};

/// The initiator port and target port of a session: at most one session has each.
///
/// Discovery sessions have no target and may exist any number of times.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct NexusKey {
    pub(super) initiator_name: String,
    pub(super) isid: Isid,
    pub(super) target: TargetIndex,
    pub(super) portal_group_tag: u16,
}

/// Who is behind a connection that has finished its login to a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Member {
    /// The ports it claims.
    pub(super) nexus: NexusKey,
    /// The user it has proved.
    pub(super) user: Option<String>,
    /// Where it comes from.
    pub(super) peer: SocketAddr,
    /// The address of ours that it reached.
    pub(super) portal: SocketAddr,
    /// How many LUNs it sees.
    pub(super) luns: usize,
}

impl Member {
    fn claim(&self) -> Claim<'_> {
        Claim {
            initiator_name: &self.nexus.initiator_name,
            isid: self.nexus.isid,
            target: self.nexus.target.0,
            portal_group_tag: self.nexus.portal_group_tag,
            user: self.user.as_deref(),
        }
    }

    fn asker(&self) -> Asker<'_> {
        Asker {
            initiator_name: &self.nexus.initiator_name,
            address: self.peer.ip(),
            portal: self.portal,
            user: self.user.as_deref(),
        }
    }

    /// What becomes of this newcomer, whose login means `session` if that is there.
    pub(super) fn decide(
        &self,
        is_join: bool,
        session: Option<&Self>,
        policy: &dyn Policy,
    ) -> Entry {
        let has_reach = session.is_none_or(|session| self.reaches(session, policy));
        let session = session.map(Self::claim);
        decide_entry(&self.claim(), is_join, session.as_ref(), has_reach)
    }

    /// Whether the rules give this one at least what they give the session. A session that they
    /// grant nothing any more is about to end.
    fn reaches(&self, session: &Self, policy: &dyn Policy) -> bool {
        let granted = |one: &Self| policy.luns(&one.asker(), one.nexus.target);
        match (granted(self), granted(session)) {
            (Ok(own), Ok(of_session)) => VisibleLun::cover(&own, &of_session),
            (Ok(_), Err(_)) => true,
            (Err(_), _) => false,
        }
    }
}
