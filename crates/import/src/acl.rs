//! Who may reach a target, where a program asks for a listed name and a listed address.

use crate::Place;
use crate::found::{Found, Group};

/// The two lists. An empty one lets everyone pass, and so does the word `ALL`.
#[derive(Debug, Default)]
pub(crate) struct Acl {
    pub(crate) names: Vec<String>,
    pub(crate) addresses: Vec<String>,
}

impl Acl {
    /// Adds the group of those whom both lists let pass; gives its `id`, `None` for everyone.
    ///
    /// An entry of a group of Tarn is enough by itself, so it cannot be said that both are needed: then it is a group
    /// of nobody, and what it guards is left out.
    pub(crate) fn into_group(
        mut self,
        id: &str,
        place: &Place,
        found: &mut Found,
    ) -> Option<String> {
        for list in [&mut self.names, &mut self.addresses] {
            if list.iter().any(|entry| entry.eq_ignore_ascii_case("ALL")) {
                list.clear();
            }
        }
        if !self.names.is_empty() && !self.addresses.is_empty() {
            let message = "initiators needed a listed name and a listed address; in a group of Tarn one is \
                enough, so nobody sees what they saw";
            let remedy = "add a group of the addresses or the names, and the luns for it; or give each initiator a \
                user of its own, and put that into auth";
            found.left_out(place, &format!("access to {id}"), message, remedy);
            found.groups.push(Group {
                place: place.clone(),
                id: id.to_owned(),
                initiators: Vec::new(),
            });
            return Some(id.to_owned());
        }
        let initiators = if self.addresses.is_empty() {
            self.names
        } else {
            self.addresses
        };
        if initiators.is_empty() || !found.has_room(place, initiators.len()) {
            return None;
        }
        found.groups.push(Group {
            place: place.clone(),
            id: id.to_owned(),
            initiators,
        });
        Some(id.to_owned())
    }
}
