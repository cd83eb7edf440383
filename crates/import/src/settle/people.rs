//! Users, their secrets, and groups.

use std::collections::{BTreeMap, BTreeSet};

use config::NamePattern;

use super::{Ids, legal};
use crate::found::{Found, Group, Mutual, Secret, User};
use crate::{Options, Place, SecretFile, address};

/// Shortest secret in bytes; see docs/reference/configuration.md.
const SECRET_BYTES_MIN: usize = 12;

/// Longest secret in bytes.
const SECRET_BYTES_MAX: usize = 128;

/// Longest user name in bytes.
const USER_BYTES_MAX: usize = 255;

pub(super) fn settle(found: &mut Found) {
    merge_users(found);
    drop_nameless(found);
    drop_nameless_proofs(found);
    settle_groups(found);
}

/// The user for people.
fn subject(name: &str) -> String {
    format!("user {name:?}")
}

/// A name is one user; other programs let it have another secret in each target.
fn merge_users(found: &mut Found) {
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept: Vec<User> = Vec::new();
    for user in std::mem::take(&mut found.users) {
        let first = positions.get(&user.name).and_then(|&at| kept.get_mut(at));
        match first {
            None => {
                positions.insert(user.name.clone(), kept.len());
                kept.push(user);
            }
            Some(first) => merge_user(found, first, user),
        }
    }
    found.users = kept;
}

fn merge_user(found: &mut Found, first: &mut User, user: User) {
    let remedy = "in Tarn a user is the same for all targets; give one of them another name, here and at \
        the initiators";
    // Only tgt gets here with two: it has one account of a name, too, with the secret that it is given first.
    if first.secret.is_none() {
        first.secret = user.secret;
    } else if user.secret.is_some() && user.secret != first.secret {
        let message = format!("it has another secret at {}; that one is used", first.place);
        found.changed(&user.place, &subject(&user.name), message, remedy);
    }
    if first.mutual.is_none() {
        first.mutual = user.mutual;
    } else if user.mutual.is_some() && user.mutual != first.mutual {
        let message = format!(
            "the target has another name or secret at {}; that is used",
            first.place
        );
        found.left_out(&user.place, &subject(&user.name), message, remedy);
    }
    merge_names(found, &user.place, first, &user.initiators);
}

/// The names a user may come with are the same for all targets in Tarn: those of all of them that name some.
fn merge_names(found: &mut Found, place: &Place, first: &mut User, more: &[String]) {
    if first.initiators.is_empty() != more.is_empty() {
        let message = "some targets took it from any initiator, others from named ones only; now it may come with \
            these names only";
        let remedy = "add the other names it may come with to its initiators";
        found.changed(place, &subject(&first.name), message, remedy);
    }
    if first.initiators.is_empty() {
        first.initiators = more.to_vec();
    } else {
        for name in more {
            if !first.initiators.contains(name) {
                first.initiators.push(name.clone());
            }
        }
    }
}

fn is_user_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= USER_BYTES_MAX && !name.contains(char::is_control)
}

/// Takes out users whose name Tarn cannot have, and targets that nobody else may log in to.
fn drop_nameless(found: &mut Found) {
    let users = std::mem::take(&mut found.users);
    let (kept, dropped): (Vec<_>, Vec<_>) =
        users.into_iter().partition(|user| is_user_name(&user.name));
    found.users = kept;
    let names: BTreeSet<String> = found.users.iter().map(|user| user.name.clone()).collect();
    for user in &dropped {
        let message = "the name is empty, too long or has control characters";
        let remedy = "give the user another name, here and at the initiators";
        found.left_out(&user.place, &subject(&user.name), message, remedy);
    }
    let mut targets = std::mem::take(&mut found.targets);
    targets.retain_mut(|target| {
        let mut seen = BTreeSet::new();
        target
            .auth
            .retain(|name| names.contains(name) && seen.insert(name.clone()));
        let stays_closed = !target.needs_user || !target.auth.is_empty();
        if !stays_closed {
            let message = "none of its users could be imported, and without it would be open";
            let subject = format!("target {}", target.name);
            found.left_out(
                &target.place,
                &subject,
                message,
                "add a user and the target by hand",
            );
        }
        stays_closed
    });
    found.targets = targets;
    settle_discovery(found, &names);
}

/// Keeps the users of discovery that there are.
fn settle_discovery(found: &mut Found, names: &BTreeSet<String>) {
    let mut seen = BTreeSet::new();
    found
        .discovery_auth
        .retain(|name| names.contains(name) && seen.insert(name.clone()));
    let Some(place) = found.targets.first().map(|target| target.place.clone()) else {
        return;
    };
    if found.discovery_needs_user && found.discovery_auth.is_empty() {
        let message = "none of its users could be imported, and without it would be open to every initiator; so no \
            target is imported";
        let remedy = "give it a user with a name of its own there, and import again";
        found.left_out(&place, "discovery", message, remedy);
        found.targets.clear();
    }
}

/// Takes out what targets prove themselves with where Tarn cannot have its name.
fn drop_nameless_proofs(found: &mut Found) {
    let mut users = std::mem::take(&mut found.users);
    for user in &mut users {
        let proof = user.mutual.take_if(|mutual| !is_user_name(&mutual.name));
        if proof.is_some() {
            let message = "the name with which the target proves itself is empty, too long or has control \
                characters; it does not prove itself";
            let remedy = "add a mutual table with another name, and set it at the initiators";
            found.left_out(&user.place, &subject(&user.name), message, remedy);
        }
    }
    found.users = users;
}

/// Makes groups legal. A group that is left without initiators lets nobody see what it guards, so
/// what it guards goes, too.
fn settle_groups(found: &mut Found) {
    let mut ids = Ids::default();
    let mut renamed: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut by_members: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut kept = Vec::new();
    for mut group in std::mem::take(&mut found.groups) {
        check_members(found, &mut group);
        if group.initiators.is_empty() {
            let message = "none of its initiators could be imported; no initiator sees its disks";
            let subject = format!("group {:?}", group.id);
            found.left_out(&group.place, &subject, message, "add a group by hand");
            renamed.insert(group.id, None);
            continue;
        }
        let known = by_members.get(&group.initiators).cloned();
        let id = known.clone().unwrap_or_else(|| ids.make(&group.id));
        let earlier = renamed.insert(group.id.clone(), Some(id.clone()));
        if earlier.is_some_and(|earlier| earlier.as_ref() != Some(&id)) {
            let message =
                "two groups of this name have different members; no initiator sees their disks";
            let subject = format!("group {:?}", group.id);
            found.left_out(&group.place, &subject, message, "add two groups by hand");
            renamed.insert(group.id.clone(), None);
        }
        if known.is_none() {
            by_members.insert(group.initiators.clone(), id.clone());
            group.id = id;
            kept.push(group);
        }
    }
    found.groups = kept;
    for target in &mut found.targets {
        target.views.retain_mut(|view| match &view.group {
            None => true,
            Some(group) => {
                view.group = renamed.get(group).cloned().flatten();
                view.group.is_some()
            }
        });
    }
}

fn check_members(found: &mut Found, group: &mut Group) {
    let subject = format!("group {:?}", group.id);
    let mut seen = BTreeSet::new();
    let mut kept: Vec<String> = Vec::new();
    let mut is_whole = true;
    for initiator in std::mem::take(&mut group.initiators) {
        match legal_member(&initiator) {
            Some(member) if seen.insert(member.clone()) => kept.push(member),
            Some(_) => {}
            None => {
                let message = format!("{initiator:?} is no initiator name, address or network");
                let remedy = "add who was meant to initiators of the group";
                found.left_out(&group.place, &subject, message, remedy);
                // Who was to be taken out would be in it.
                is_whole &= !initiator.starts_with('!');
            }
        }
    }
    if !is_whole || kept.iter().all(|member| member.starts_with('!')) {
        kept.clear();
    }
    group.initiators = kept;
}

/// As Tarn writes it: a name pattern, an address or a network, a name at one of these, or one of these that is taken
/// out.
fn legal_member(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('!') {
        let is_plain = !rest.starts_with('!');
        let member = legal_member(rest).filter(|_| is_plain)?;
        return Some(format!("!{member}"));
    }
    if let Some(network) = address::network(text) {
        return Some(network);
    }
    if let Some((name, at)) = text.rsplit_once('@') {
        return Some(format!("{}@{}", legal_name(name)?, address::network(at)?));
    }
    legal_name(text)
}

fn legal_name(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let is_name = ["iqn.", "eui.", "naa.", "*", "?"]
        .iter()
        .any(|start| lower.starts_with(start));
    (is_name && NamePattern::parse(text).is_ok()).then_some(lower)
}

/// Takes out groups that nothing refers to. Users that nobody asks for are written: they belong to what is added by
/// hand.
pub(super) fn drop_unused(found: &mut Found) {
    let auth = found.targets.iter().flat_map(|target| &target.auth);
    let users: BTreeSet<String> = auth.chain(&found.discovery_auth).cloned().collect();
    let views = found.targets.iter().flat_map(|target| &target.views);
    let groups: BTreeSet<String> = views.filter_map(|view| view.group.clone()).collect();
    let unused: Vec<(Place, String)> = found
        .users
        .iter()
        .filter(|user| !users.contains(&user.name))
        .map(|user| (user.place.clone(), subject(&user.name)))
        .collect();
    for (place, subject) in unused {
        let message = "no target that was imported, and no discovery, asks for it; it is written nevertheless";
        found.changed(&place, &subject, message, "nothing, or add it to an auth");
    }
    found.groups.retain(|group| groups.contains(&group.id));
}

/// Other programs list all targets to a user of discovery. So does Tarn, if the user is for discovery
/// alone; one who is a user of targets sees those.
pub(super) fn note_discovery(found: &mut Found) {
    if found.discovery_auth.is_empty() {
        return;
    }
    let is_listed = |name: &String| {
        found
            .targets
            .iter()
            .any(|target| target.auth.contains(name))
    };
    if !found.discovery_auth.iter().any(is_listed) {
        return;
    }
    let is_hidden = |auth: &[String]| {
        !auth.is_empty() && !auth.iter().any(|name| found.discovery_auth.contains(name))
    };
    let hidden: Vec<(Place, String)> = found
        .targets
        .iter()
        .filter(|target| is_hidden(&target.auth))
        .map(|target| (target.place.clone(), format!("target {}", target.name)))
        .collect();
    for (place, subject) in hidden {
        let message = "the users of discovery are not its users, so discovery does not show it: Tarn shows \
            a user the targets that it may log in to";
        let remedy = "nothing for initiators that know it already; for others put a user of the target into \
            discovery_auth, and let them use it for discovery, too";
        found.changed(&place, &subject, message, remedy);
    }
}

/// The files of all secrets, and which belongs to whom.
pub(crate) struct Secrets {
    files: Vec<SecretFile>,
    /// For each user the position of its file, and of the file for mutual CHAP.
    of_users: Vec<(usize, Option<usize>)>,
}

impl Secrets {
    /// The names of the files of the user at that position.
    pub(crate) fn names_of(&self, user: usize) -> Option<(&str, Option<&str>)> {
        let (forward, mutual) = *self.of_users.get(user)?;
        let name = |at: usize| self.files.get(at).map(|file| file.name.as_str());
        Some((name(forward)?, mutual.and_then(name)))
    }

    pub(crate) fn into_files(self) -> Vec<SecretFile> {
        self.files
    }
}

/// Gives every secret a file, and notes those that have to be put there by hand.
pub(crate) fn secret_files(found: &mut Found, options: &Options) -> Secrets {
    let mut ids = Ids::default();
    let mut secrets = Secrets {
        files: Vec::new(),
        of_users: Vec::new(),
    };
    let users = std::mem::take(&mut found.users);
    // The first user with each.
    let mut forward: BTreeMap<&str, &str> = BTreeMap::new();
    for user in &users {
        if let Some(secret) = &user.secret {
            forward.entry(secret.as_str()).or_insert(&user.name);
        }
    }
    for user in &users {
        let mut add = |what: &str, suffix: &str, secret: Option<&Secret>, equal: Option<&str>| {
            let name = ids.make(&format!("{}{suffix}", legal(&user.name)));
            let name = format!("{}{name}", options.secret_prefix);
            let purpose = format!("{what} {:?}", user.name);
            let secret = usable(found, &user.place, (&purpose, &name), secret, equal);
            secrets.files.push(SecretFile {
                name,
                purpose,
                secret,
            });
            secrets.files.len().saturating_sub(1)
        };
        let own = add("user", ".secret", user.secret.as_ref(), None);
        let mutual = user.mutual.as_ref().map(|mutual: &Mutual| {
            let secret = mutual.secret.as_ref();
            let equal = secret.and_then(|secret| forward.get(secret.as_str()).copied());
            add("the target towards user", ".mutual.secret", secret, equal)
        });
        secrets.of_users.push((own, mutual));
    }
    found.users = users;
    secrets
}

/// The secret if Tarn takes it. That with which a target proves itself must not be `equal` to that of a user.
fn usable(
    found: &mut Found,
    place: &Place,
    (purpose, file): (&str, &str),
    secret: Option<&Secret>,
    equal: Option<&str>,
) -> Option<Secret> {
    if let Some(equal) = equal {
        let message = format!(
            "its secret is the same as that of user {equal:?}; Tarn refuses that, as with it an initiator could \
             pretend to be the target"
        );
        let remedy = format!(
            "put a new secret of 12 to 128 bytes into the private file {file}, and set it at the initiators as that of \
             the target"
        );
        found.left_out(place, purpose, message, &remedy);
        return None;
    }
    let problem = match secret {
        None => "its secret is not in the file".to_owned(),
        Some(secret) if secret.contains(['\n', '\r', '\0']) => {
            "its secret has line ends or zeros in it".to_owned()
        }
        Some(secret) => {
            let bytes = secret.len();
            if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes) {
                return Some(secret.clone());
            }
            format!(
                "its secret has {bytes} bytes; Tarn wants {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
            )
        }
    };
    let remedy = format!(
        "put a secret of 12 to 128 bytes into the private file {file}, the same as at the initiators"
    );
    found.left_out(place, purpose, problem, &remedy);
    None
}
