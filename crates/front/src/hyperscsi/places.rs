//! The front's part: who has a session, and of which there may be only one.

use std::collections::HashMap;
use std::sync::Arc;

use super::wire::{Ask, Granted, Letter, Wire};
use crate::identity::SessionId;
use crate::iscsi::{Front as IscsiFront, Line as IscsiLine, OtherPlace};

/// A client in a group.
type Member = ([u8; 16], Arc<str>);

/// Places that sessions of HyperSCSI have taken. One core has it.
#[derive(Debug, Default)]
pub struct Places {
    taken: HashMap<SessionId, (OtherPlace, Member)>,
    /// The last session of each.
    members: HashMap<Member, SessionId>,
}

impl Places {
    /// Nobody has a place.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.members.is_empty()
    }

    /// A client wants a session. An older one of the same client in the same group ends.
    pub(super) fn handle_ask<C: Wire>(
        &mut self,
        wire: &mut C,
        front: &mut IscsiFront<impl IscsiLine>,
        ask: Ask,
    ) {
        let Ask {
            core,
            ticket,
            client,
            group,
            station,
        } = ask;
        let member = (client, group);
        if let Some((id, (older, _))) = self
            .members
            .get(&member)
            .and_then(|id| Some((*id, self.taken.get(id)?)))
        {
            wire.post_letter(older.core, Letter::Replace(id));
        }
        let place = front.place_other_on(station.origin(), core);
        let granted = place.map(|place| {
            let granted = Granted {
                id: place.id,
                nexus: place.nexus,
                shares: place.shares.clone(),
            };
            self.members.insert(member.clone(), place.id);
            self.taken.insert(place.id, (place, member));
            granted
        });
        wire.post_letter(core, Letter::Placed { ticket, granted });
    }

    /// A session is gone, with all its tasks, or did not begin.
    pub(super) fn handle_ended(&mut self, id: SessionId, front: &mut IscsiFront<impl IscsiLine>) {
        let Some((place, member)) = self.taken.remove(&id) else {
            return;
        };
        front.leave_other(&place);
        if self.members.get(&member) == Some(&id) {
            self.members.remove(&member);
        }
    }
}
