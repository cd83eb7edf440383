//! Who may reach a target, where a program has a list of names and one of addresses.

use crate::Place;
use crate::found::{Found, Group};

/// What an access that needs both cannot be in a group of Tarn, where one entry is enough.
pub(crate) const BOTH: &str = "initiators needed a listed name and a listed address; in a group of Tarn one is \
    enough, so nobody sees what they saw";

/// The two lists; `None` lets everyone pass, an empty one nobody.
#[derive(Debug, Default)]
pub(crate) struct Acl {
    pub(crate) names: Option<Vec<String>>,
    pub(crate) addresses: Option<Vec<String>>,
    /// What to note where there are both.
    pub(crate) both: &'static str,
}

impl Acl {
    /// Adds the group of those whom both lists let pass; gives its `id`, `None` for everyone.
    ///
    /// It cannot be said that both are needed: then it is a group of nobody, and no target shows what it guarded.
    pub(crate) fn into_group(self, id: &str, place: &Place, found: &mut Found) -> Option<String> {
        let initiators = match (self.names, self.addresses) {
            (None, None) => return None,
            (Some(list), None) | (None, Some(list)) => list,
            (Some(_), Some(_)) => {
                let remedy = "add a group of the addresses or the names, and the luns for it; or give each initiator a \
                    user of its own, and put that into auth";
                found.left_out(place, &format!("access to {id}"), self.both, remedy);
                Vec::new()
            }
        };
        if !found.has_room(place, initiators.len()) {
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

/// Whether a name stands for itself: in Tarn `*` and `?` are patterns, and other signs are in no iSCSI name.
pub(crate) fn is_literal(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_ascii_alphanumeric() || ".:-_".contains(c))
}

/// The names that stand for themselves. What another program makes of the others is not known here, so whom they let in
/// stays out.
pub(crate) fn literal(
    names: Vec<String>,
    place: &Place,
    subject: &str,
    found: &mut Found,
) -> Vec<String> {
    let (literal, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_literal(name));
    for name in others {
        let message =
            format!("{name:?} is not a plain initiator name; whom it lets in sees no disk now");
        let remedy = "add who was meant to initiators of the group";
        found.left_out(place, subject, message, remedy);
    }
    literal
}
