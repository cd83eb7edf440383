//! Who sees which disk of a portal group, and who has to prove himself.
//!
//! The attribute `authentication` of an ACL overrides that of the portal group (Linux 6.0), where it is 1 if it is not
//! set. An initiator with an ACL proves itself with the account of that, one without by that of the portal group.

use std::collections::BTreeMap;

use config::IscsiName;
use serde_json::Value;

use super::json::{account, is_set, is_understood, list, mutual, object, restricts, text};
use super::keys::{ACL_ATTRIBUTES, OF_ACL, OF_LUN, OF_MAPPED, TPG_PARAMETERS};
use super::{TargetReader, refusing_state};
use crate::acl;
use crate::found::{Found, Group, Target, User, View};

/// The target port group of a LUN that names none.
const DEFAULT_PORT_GROUP: &str = "default_tg_pt_gp";

/// Whether a portal group asks for CHAP.
fn needs_chap(tpg: &Value) -> bool {
    let method = object(tpg, "parameters")
        .get("AuthMethod")
        .and_then(Value::as_str);
    let takes_none = method.is_none_or(|method| {
        let mut methods = method.split(',');
        methods.any(|method| method.trim().eq_ignore_ascii_case("None"))
    });
    !takes_none || restricts(object(tpg, "attributes"), "authentication", true)
}

/// Whether the initiator of an ACL has to prove itself.
fn acl_needs_chap(acl: &Value, tpg: bool) -> bool {
    let attributes = object(acl, "attributes");
    let is_inherited = match attributes.get("authentication") {
        None => true,
        Some(Value::Number(number)) => number.as_i64().is_some_and(|number| number < 0),
        Some(Value::String(text)) => text.starts_with('-'),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => false,
    };
    if is_inherited {
        tpg
    } else {
        restricts(attributes, "authentication", tpg)
    }
}

impl TargetReader<'_> {
    /// Who sees what, and with what proof.
    pub(super) fn read_access(&self, tpg: &Value, target: &mut Target, found: &mut Found) {
        let attributes = object(tpg, "attributes");
        let acls = list(tpg, "node_acls");
        let is_demo = is_set(attributes, "generate_node_acls");
        let tpg_needs = needs_chap(tpg);
        let needs_chap =
            acls.iter().any(|acl| acl_needs_chap(acl, tpg_needs)) || (is_demo && tpg_needs);
        target.needs_user = needs_chap;
        for acl in acls {
            self.read_acl_user(acl, acl_needs_chap(acl, tpg_needs), target, found);
        }
        let units = self.units_of(tpg, target, found);
        for acl in acls {
            self.read_acl(&units, acl, attributes, target, found);
        }
        if is_demo && self.admits_strangers(tpg, acls, (needs_chap, tpg_needs), target, found) {
            let is_protected = restricts(attributes, "demo_mode_write_protect", true);
            self.read_demo_mode(&units, acls, is_protected, target, found);
        }
        let is_nobody = !is_demo && acls.is_empty();
        if is_nobody || (needs_chap && target.auth.is_empty()) {
            let message = "no initiator could log in: there is no ACL, or CHAP is required and no user is set";
            let remedy = "set a user there and import again, or add both by hand";
            found.left_out(&self.place, &self.subject(), message, remedy);
            target.is_guarded |= is_nobody;
        }
    }

    /// The account of an ACL is for its initiator alone.
    fn read_acl_user(&self, acl: &Value, needs_chap: bool, target: &mut Target, found: &mut Found) {
        let initiator = text(acl, "node_wwn");
        let place = self.places.of_name(initiator);
        let Some((name, secret)) = account(acl, "chap_") else {
            if target.needs_user {
                let message = if needs_chap {
                    format!("initiator {initiator} had to prove itself, and has no account")
                } else {
                    format!(
                        "initiator {initiator} had not to prove itself, others had to; now it has to"
                    )
                };
                let remedy = "add a user for it, and put that into auth";
                found.left_out(&place, &self.subject(), message, remedy);
            }
            return;
        };
        let Ok(bound) = IscsiName::parse(initiator) else {
            let message = format!("{initiator:?}, whose user {name:?} is, is no initiator name");
            let remedy = "add the user, with the names it may come with";
            found.left_out(&place, &self.subject(), message, remedy);
            return;
        };
        let user = User {
            mutual: mutual(acl, "chap_"),
            initiators: vec![bound.to_string()],
            ..User::new(place, name, Some(secret))
        };
        self.add_user(user, target, found);
    }

    /// Where nobody has to prove himself, LIO takes an account that is offered; Tarn asks all or none.
    fn add_user(&self, user: User, target: &mut Target, found: &mut Found) {
        if target.needs_user {
            found.add_target_user(target, user);
            return;
        }
        let message = format!(
            "user {:?} could prove itself, and had not to; it is written, and the target asks nobody for proof",
            user.name
        );
        let remedy = "put the users of the target into its auth to ask all initiators for proof";
        found.changed(&user.place, &self.subject(), message, remedy);
        found.keep_user(user, &self.subject());
    }

    /// Whether initiators without an ACL come in as they did.
    fn admits_strangers(
        &self,
        tpg: &Value,
        acls: &[Value],
        (needs_chap, tpg_needs): (bool, bool),
        target: &mut Target,
        found: &mut Found,
    ) -> bool {
        let user = account(tpg, "chap_").map(|(name, secret)| User {
            mutual: mutual(tpg, "chap_"),
            ..User::new(self.place.clone(), name, Some(secret))
        });
        if needs_chap && (!acls.is_empty() || !tpg_needs) {
            let message = "initiators without an ACL came in with another proof, or without one \
                (generate_node_acls); now they do not";
            let remedy = "make a second target for them";
            found.left_out(&self.place, &self.subject(), message, remedy);
            return false;
        }
        if let Some(user) = user {
            self.add_user(user, target, found);
        }
        true
    }

    /// The units of a portal group by their numbers in it.
    fn units_of(
        &self,
        tpg: &Value,
        target: &mut Target,
        found: &mut Found,
    ) -> BTreeMap<u64, usize> {
        let mut units = BTreeMap::new();
        for lun in list(tpg, "luns") {
            target.is_guarded |= !is_understood(lun, OF_LUN, &self.place, &self.subject(), found);
            let index = lun.get("index").and_then(Value::as_u64);
            let Some(&(unit, object)) = self.units.get(text(lun, "storage_object")) else {
                continue;
            };
            let group = lun.get("alua_tg_pt_gp_name").and_then(Value::as_str);
            let group = group.unwrap_or(DEFAULT_PORT_GROUP);
            if let Some(state) = refusing_state(object, group) {
                let message = format!(
                    "LUN {} of {:?} is {state} by its group {group:?} (ALUA), so initiators used another path; Tarn \
                     would serve it as active",
                    index.map_or_else(String::new, |index| index.to_string()),
                    text(object, "name")
                );
                let remedy = "set the state of the group to active there and import again, if this server is to serve \
                    the disk";
                found.left_out(&self.place, &self.subject(), message, remedy);
            } else if let Some(index) = index {
                units.insert(index, unit);
            }
        }
        units
    }

    fn read_acl(
        &self,
        units: &BTreeMap<u64, usize>,
        acl: &Value,
        attributes: &Value,
        target: &mut Target,
        found: &mut Found,
    ) {
        let name = text(acl, "node_wwn");
        let place = self.places.of_name(name);
        let subject = self.subject();
        for (value, keys) in [
            (acl, OF_ACL),
            (object(acl, "attributes"), ACL_ATTRIBUTES),
            (object(acl, "parameters"), TPG_PARAMETERS),
        ] {
            target.is_guarded |= !is_understood(value, keys, &place, &subject, found);
        }
        let initiators = acl::literal(vec![name.to_owned()], &place, &subject, found);
        found.groups.push(Group {
            place: place.clone(),
            id: name.to_owned(),
            initiators,
        });
        for mapped in list(acl, "mapped_luns") {
            let number = |key: &str| mapped.get(key).and_then(Value::as_u64);
            let unit = number("tpg_lun").and_then(|lun| units.get(&lun));
            let (Some(index), Some(&unit)) = (number("index"), unit) else {
                let message = format!("a LUN of initiator {name} shows no disk that was imported");
                found.left_out(&place, &subject, message, "see the note on that disk");
                continue;
            };
            target.is_guarded |= !is_understood(mapped, OF_MAPPED, &place, &subject, found);
            target.views.push(View {
                place: place.clone(),
                lun: index,
                unit,
                group: Some(name.to_owned()),
                read_only: restricts(mapped, "write_protect", false)
                    || restricts(attributes, "prod_mode_write_protect", false),
            });
        }
    }

    /// Everyone who is in no ACL sees all disks of the portal group.
    fn read_demo_mode(
        &self,
        units: &BTreeMap<u64, usize>,
        acls: &[Value],
        is_protected: bool,
        target: &mut Target,
        found: &mut Found,
    ) {
        let group = (!acls.is_empty()).then(|| {
            let id = format!("{}/others", target.name);
            let message = "initiators without an ACL saw all disks (generate_node_acls): a group of all others \
                was made";
            found.changed(&self.place, &self.subject(), message, "nothing");
            let excluded = acls.iter().map(|acl| format!("!{}", text(acl, "node_wwn")));
            found.groups.push(Group {
                place: self.place.clone(),
                id: id.clone(),
                initiators: std::iter::once("*".to_owned()).chain(excluded).collect(),
            });
            id
        });
        target.views.extend(units.iter().map(|(index, unit)| View {
            place: self.place.clone(),
            lun: *index,
            unit: *unit,
            group: group.clone(),
            read_only: is_protected,
        }));
    }
}
