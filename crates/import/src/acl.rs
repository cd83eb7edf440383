//! Who may reach a target, where a program has a list of names and one of addresses.

use crate::Place;
use crate::found::{Found, Group};

/// The two lists; `None` lets everyone pass, an empty one nobody.
#[derive(Debug, Default)]
pub(crate) struct Acl {
    pub(crate) names: Option<Vec<String>>,
    pub(crate) addresses: Option<Vec<String>>,
    /// Why it is not known what is meant where there are both; without a reason both are needed.
    pub(crate) unclear: Option<&'static str>,
}

impl Acl {
    /// Adds the group of those whom both lists let pass; gives its `id`, `None` for everyone.
    ///
    /// Where it is not clear who that is, it is a group of nobody, and no target shows what it guarded.
    pub(crate) fn into_group(self, id: &str, place: &Place, found: &mut Found) -> Option<String> {
        if let (Some(reason), true) = (
            self.unclear,
            self.names.is_some() && self.addresses.is_some(),
        ) {
            let remedy = "add a group of the addresses, of the names, or of NAME@ADDRESS, and the luns for it";
            found.left_out(place, &format!("access to {id}"), reason, remedy);
        }
        let count = |list: &Option<Vec<String>>| list.as_ref().map_or(1, Vec::len);
        let entries = count(&self.names).saturating_mul(count(&self.addresses));
        if !found.has_room(place, entries) {
            return None;
        }
        let initiators = match (self.names, self.addresses) {
            (None, None) => return None,
            (Some(list), None) | (None, Some(list)) => list,
            (Some(_), Some(_)) if self.unclear.is_some() => Vec::new(),
            (Some(names), Some(addresses)) => {
                let at = |name| addresses.iter().map(move |one| format!("{name}@{one}"));
                names.iter().flat_map(at).collect()
            }
        };
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
