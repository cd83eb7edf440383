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
    /// Who waits until that session is over, with all its tasks: one for each, the newest.
    waiting: HashMap<SessionId, Ask>,
}

impl Places {
    /// Nobody has a place.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.members.is_empty() && self.waiting.is_empty()
    }

    /// A client wants a session. An older one of the same client in the same group ends first: what its tasks have in
    /// stores would come after what the new session writes. A client that does not wait so long asks again.
    pub(super) fn handle_ask<C: Wire>(
        &mut self,
        wire: &mut C,
        front: &mut IscsiFront<impl IscsiLine>,
        ask: Ask,
    ) {
        let member = (ask.client, Arc::clone(&ask.group));
        let older = self.members.get(&member);
        if let Some((id, (older, _))) = older.and_then(|id| Some((*id, self.taken.get(id)?))) {
            wire.post_letter(older.core, Letter::Replace(id));
            if let Some(given_up) = self.waiting.insert(id, ask) {
                let (ticket, granted) = (given_up.ticket, None);
                wire.post_letter(given_up.core, Letter::Placed { ticket, granted });
            }
            return;
        }
        let Ask {
            core,
            ticket,
            client: _,
            group: _,
            station,
        } = ask;
        let place = front.place_other_on(station.ip(), core);
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
    pub(super) fn handle_ended<C: Wire>(
        &mut self,
        wire: &mut C,
        front: &mut IscsiFront<impl IscsiLine>,
        id: SessionId,
    ) {
        let Some((place, member)) = self.taken.remove(&id) else {
            return;
        };
        front.leave_other(&place);
        if self.members.get(&member) == Some(&id) {
            self.members.remove(&member);
        }
        if let Some(ask) = self.waiting.remove(&id) {
            self.handle_ask(wire, front, ask);
        }
    }
}
