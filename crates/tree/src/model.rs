//! What is at a place: names, texts, links, and what a write means. Pure: looks at a [`View`], and
//! knows no kernel.

use std::collections::HashMap;
use std::sync::Arc;

use api::spec;
use api::view::{Hyperscsi, Lun, Session, Snapshot, Target};

use crate::attribute::{File, Files};
use crate::call::Call;
use crate::place::{Directory, NAME_BYTES_MAX, Place, decoded, encoded};
use crate::refusal::Refusal;
use crate::table::{Root, Totals};
use crate::view::View;

/// What is at a place.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Node {
    /// A directory.
    Directory {
        /// Directories can be made and removed there.
        is_writable: bool,
    },
    /// A file.
    File(File),
    /// A symbolic link to this path.
    Link(String),
}

/// Directories of one kind side by side, each with the name of its thing.
struct Collection {
    names: fn(&dyn View) -> Result<Vec<String>, Refusal>,
    member: fn(String) -> Option<Directory>,
}

const LUNS: Collection = Collection {
    names: |view| Ok(all(&view.luns()?, |lun| lun.spec.id.clone())),
    member: |id| Some(Directory::Lun(id)),
};
const TARGETS: Collection = Collection {
    names: |view| Ok(all(&view.targets()?, |target| target.spec.name.clone())),
    member: |name| Some(Directory::Target(name)),
};
const SESSIONS: Collection = Collection {
    names: |view| Ok(all(&view.sessions()?, |session| session.id.to_string())),
    member: |id| {
        let number: u64 = id.parse().ok()?;
        // Not `+7` and `007`, which are 7, too.
        (number.to_string() == id).then_some(Directory::Session(number))
    },
};
const GROUPS: Collection = Collection {
    names: |view| Ok(all(&view.groups()?, |group| group.id.clone())),
    member: |id| Some(Directory::Group(id)),
};
const USERS: Collection = Collection {
    names: |view| Ok(all(&view.users()?, |user| user.name.clone())),
    member: |name| Some(Directory::User(name)),
};
const STORES: Collection = Collection {
    names: |view| Ok(all(&view.stores()?, |store| store.id.clone())),
    member: |id| Some(Directory::Store(id)),
};
const NBD: Collection = Collection {
    names: |view| Ok(all(&view.nbd()?, |server| server.place().to_owned())),
    member: |place| Some(Directory::NbdServer(place)),
};
const QUOTAS: Collection = Collection {
    names: |view| Ok(all(&view.quotas()?, |quota| quota.name.clone())),
    member: |name| Some(Directory::Quota(name)),
};

const HYPERSCSI: Collection = Collection {
    names: |view| Ok(all(&view.hyperscsi()?, |group| group.name.clone())),
    member: |name| Some(Directory::HyperscsiGroup(name)),
};

/// What a directory holds.
enum Content {
    /// The files of a thing, and directories of fixed names.
    Thing(Box<dyn Files>, Vec<(&'static str, Directory)>),
    /// Other things.
    Members(Collection),
    /// Snapshots of a unit, by name.
    Snapshots(Vec<(String, Directory)>),
    /// Links: name, path.
    Links(Vec<(String, String)>),
}

impl Content {
    fn files(thing: impl Files + 'static) -> Self {
        Self::Thing(Box::new(thing), Vec::new())
    }
}

/// The directories of the root.
fn collections() -> Vec<(&'static str, Directory)> {
    vec![
        ("luns", Directory::Luns),
        ("targets", Directory::Targets),
        ("sessions", Directory::Sessions),
        ("groups", Directory::Groups),
        ("users", Directory::Users),
        ("stores", Directory::Stores),
        ("nbd", Directory::NbdServers),
        ("quotas", Directory::Quotas),
        ("hyperscsi", Directory::Hyperscsi),
    ]
}

/// What is in a directory, if the directory is there. Collections are, whatever the daemon does.
fn content(view: &Arc<dyn View>, directory: &Directory) -> Result<Content, Refusal> {
    Ok(match directory {
        Directory::Root => Content::Thing(Box::new(Root(Arc::clone(view))), collections()),
        Directory::Luns => Content::Members(LUNS),
        Directory::Lun(id) => Content::Thing(
            Box::new(lun(view, id)?),
            vec![
                ("stats", Directory::LunStats(id.clone())),
                ("snapshots", Directory::LunSnapshots(id.clone())),
            ],
        ),
        Directory::LunSnapshots(id) => {
            lun(view, id)?;
            Content::Snapshots(snapshot_directories(&view.snapshots(id)?))
        }
        Directory::LunSnapshot(id, name) => {
            lun(view, id)?;
            let named = |one: &Snapshot| one.name == *name;
            Content::files(find(&view.snapshots(id)?, named)?)
        }
        Directory::LunStats(id) => {
            lun(view, id)?;
            Content::files(Totals::of_lun(&*view.stats()?, id))
        }
        Directory::Targets => Content::Members(TARGETS),
        Directory::Target(name) => Content::Thing(
            Box::new(target(view, name)?),
            vec![
                ("luns", Directory::TargetLuns(name.clone())),
                ("sessions", Directory::TargetSessions(name.clone())),
            ],
        ),
        Directory::TargetLuns(name) => Content::Links(lun_links(&target(view, name)?)),
        Directory::TargetSessions(name) => {
            target(view, name)?;
            Content::Links(session_links(&view.sessions()?, name))
        }
        Directory::Sessions => Content::Members(SESSIONS),
        Directory::Session(id) => Content::Thing(
            Box::new(session(view, *id)?),
            vec![("stats", Directory::SessionStats(*id))],
        ),
        Directory::SessionStats(id) => {
            let initiator = session(view, *id)?.initiator;
            Content::files(Totals::of_initiator(&*view.stats()?, &initiator))
        }
        Directory::Groups => Content::Members(GROUPS),
        Directory::Group(id) => Content::files(find(&view.groups()?, |group| group.id == *id)?),
        Directory::Users => Content::Members(USERS),
        Directory::User(name) => Content::files(find(&view.users()?, |user| user.name == *name)?),
        Directory::Stores
        | Directory::Store(_)
        | Directory::NbdServers
        | Directory::NbdServer(_)
        | Directory::Quotas
        | Directory::Quota(_)
        | Directory::Hyperscsi
        | Directory::HyperscsiGroup(_)
        | Directory::HyperscsiSessions(_) => section(view, directory)?,
    })
}

/// What is in a directory of named stores, servers of NBD, quotas and groups of HyperSCSI.
fn section(view: &Arc<dyn View>, directory: &Directory) -> Result<Content, Refusal> {
    Ok(match directory {
        Directory::Stores => Content::Members(STORES),
        Directory::Store(id) => Content::files(find(&view.stores()?, |store| store.id == *id)?),
        Directory::NbdServers => Content::Members(NBD),
        Directory::NbdServer(place) => {
            let at_place = |server: &spec::Nbd| server.place() == place;
            Content::files(find(&view.nbd()?, at_place)?)
        }
        Directory::Quotas => Content::Members(QUOTAS),
        Directory::Quota(name) => {
            Content::files(find(&view.quotas()?, |quota| quota.name == *name)?)
        }
        Directory::Hyperscsi => Content::Members(HYPERSCSI),
        Directory::HyperscsiGroup(name) => Content::Thing(
            Box::new(hyperscsi(view, name)?),
            vec![("sessions", Directory::HyperscsiSessions(name.clone()))],
        ),
        Directory::HyperscsiSessions(name) => {
            Content::Links(links_of(hyperscsi(view, name)?.sessions.into_iter()))
        }
        Directory::Root
        | Directory::Luns
        | Directory::Lun(_)
        | Directory::LunStats(_)
        | Directory::LunSnapshots(_)
        | Directory::LunSnapshot(..)
        | Directory::Targets
        | Directory::Target(_)
        | Directory::TargetLuns(_)
        | Directory::TargetSessions(_)
        | Directory::Sessions
        | Directory::Session(_)
        | Directory::SessionStats(_)
        | Directory::Groups
        | Directory::Group(_)
        | Directory::Users
        | Directory::User(_) => return Err(Refusal::Absent),
    })
}

/// The names in a directory, each with its place. A name that is longer than a file's may be is
/// left out.
pub(crate) fn entries(
    view: &Arc<dyn View>,
    directory: &Directory,
) -> Result<Vec<(String, Place)>, Refusal> {
    let mut entries: Vec<(String, Place)> = match content(view, directory)? {
        Content::Thing(files, directories) => {
            let files = files.names().into_iter();
            let files = files.map(|name| (name.to_owned(), Place::File(directory.clone(), name)));
            let directories = directories.into_iter();
            files
                .chain(directories.map(|(name, below)| (name.to_owned(), Place::Directory(below))))
                .collect()
        }
        Content::Members(collection) => {
            let names = (collection.names)(view.as_ref())?.into_iter();
            names
                .filter_map(|name| {
                    let file_name = encoded(&name);
                    Some((file_name, Place::Directory((collection.member)(name)?)))
                })
                .collect()
        }
        Content::Snapshots(snapshots) => snapshots
            .into_iter()
            .map(|(name, below)| (name, Place::Directory(below)))
            .collect(),
        Content::Links(links) => links
            .into_iter()
            .map(|(name, _)| (name.clone(), Place::Link(directory.clone(), name)))
            .collect(),
    };
    entries.retain(|(name, _)| name.len() <= NAME_BYTES_MAX);
    Ok(entries)
}

/// The place of a name in a directory.
pub(crate) fn lookup(
    view: &Arc<dyn View>,
    directory: &Directory,
    name: &str,
) -> Result<Place, Refusal> {
    match content(view, directory)? {
        Content::Thing(files, directories) => {
            if let Some(name) = files.known(name) {
                return Ok(Place::File(directory.clone(), name));
            }
            let below = directories.into_iter().find(|(known, _)| *known == name);
            let (_, below) = below.ok_or(Refusal::Absent)?;
            Ok(Place::Directory(below))
        }
        Content::Members(collection) => {
            let member = decoded(name).and_then(collection.member);
            let place = Place::Directory(member.ok_or(Refusal::Absent)?);
            node(view, &place)?;
            Ok(place)
        }
        Content::Snapshots(snapshots) => {
            let below = snapshots.into_iter().find(|(known, _)| known == name);
            let (_, below) = below.ok_or(Refusal::Absent)?;
            Ok(Place::Directory(below))
        }
        Content::Links(links) => {
            let link = links.into_iter().find(|(known, _)| known == name);
            let (name, _) = link.ok_or(Refusal::Absent)?;
            Ok(Place::Link(directory.clone(), name))
        }
    }
}

/// What is at a place now.
pub(crate) fn node(view: &Arc<dyn View>, place: &Place) -> Result<Node, Refusal> {
    match place {
        Place::Directory(directory) => {
            let is_writable = match content(view, directory)? {
                Content::Snapshots(_) => true,
                Content::Thing(..) | Content::Members(_) | Content::Links(_) => false,
            };
            Ok(Node::Directory { is_writable })
        }
        Place::File(directory, name) => files(view, directory)?.file(name).map(Node::File),
        Place::Link(directory, name) => match content(view, directory)? {
            Content::Links(links) => {
                let link = links.into_iter().find(|(known, _)| known == name);
                link.map(|(_, path)| Node::Link(path))
                    .ok_or(Refusal::Absent)
            }
            Content::Thing(..) | Content::Members(_) | Content::Snapshots(_) => {
                Err(Refusal::Absent)
            }
        },
    }
}

/// What writing this text to a place asks of the daemon.
pub(crate) fn call(view: &Arc<dyn View>, place: &Place, text: &str) -> Result<Call, Refusal> {
    match place {
        Place::File(directory, name) => files(view, directory)?.call(name, text),
        Place::Directory(_) | Place::Link(..) => Err(Refusal::ReadOnly),
    }
}

/// What a new directory of this name asks of the daemon.
pub(crate) fn make(directory: &Directory, name: &str) -> Result<Call, Refusal> {
    let (lun, name) = snapshot_of(directory, name)?;
    Ok(Call::Take { lun, name })
}

/// What removing the directory of this name asks of the daemon.
pub(crate) fn remove(directory: &Directory, name: &str) -> Result<Call, Refusal> {
    let (lun, name) = snapshot_of(directory, name)?;
    Ok(Call::RemoveSnapshot { lun, name })
}

/// The unit and the name of the snapshot that has this name in a directory.
fn snapshot_of(directory: &Directory, name: &str) -> Result<(String, String), Refusal> {
    match (directory, decoded(name)) {
        (Directory::LunSnapshots(lun), Some(name)) => Ok((lun.clone(), name)),
        _ => Err(Refusal::Structure),
    }
}

fn files(view: &Arc<dyn View>, directory: &Directory) -> Result<Box<dyn Files>, Refusal> {
    match content(view, directory)? {
        Content::Thing(files, _) => Ok(files),
        Content::Members(_) | Content::Snapshots(_) | Content::Links(_) => Err(Refusal::Absent),
    }
}

fn snapshot_directories(snapshots: &[Snapshot]) -> Vec<(String, Directory)> {
    let directory = |one: &Snapshot| Directory::LunSnapshot(one.lun.clone(), one.name.clone());
    let all = snapshots.iter();
    all.map(|one| (encoded(&one.name), directory(one)))
        .collect()
}

/// A link for each number; where a number is another unit for each group, `NUMBER@GROUP`.
fn lun_links(target: &Target) -> Vec<(String, String)> {
    let link = |id: &str| format!("../../../luns/{}", encoded(id));
    let mut counts: HashMap<u16, usize> = HashMap::new();
    for entry in &target.spec.luns {
        *counts.entry(entry.lun).or_default() += 1;
    }
    let mut links = Vec::new();
    for entry in &target.spec.luns {
        let is_shared = counts.get(&entry.lun).is_some_and(|count| *count > 1);
        let groups: &[String] = if is_shared { &entry.groups } else { &[] };
        let names = groups
            .iter()
            .map(|group| format!("{}@{}", entry.lun, encoded(group)));
        let alone = groups.is_empty().then(|| entry.lun.to_string());
        links.extend(names.chain(alone).map(|name| (name, link(&entry.id))));
    }
    links
}

fn session_links(sessions: &[Session], target: &str) -> Vec<(String, String)> {
    let of_target = |session: &&Session| session.target.as_deref() == Some(target);
    let ids = sessions.iter().filter(of_target).map(|session| session.id);
    links_of(ids)
}

fn links_of(sessions: impl Iterator<Item = u64>) -> Vec<(String, String)> {
    let link = |id: u64| (id.to_string(), format!("../../../sessions/{id}"));
    sessions.map(link).collect()
}

fn lun(view: &Arc<dyn View>, id: &str) -> Result<Lun, Refusal> {
    find(&view.luns()?, |lun| lun.spec.id == id)
}

fn target(view: &Arc<dyn View>, name: &str) -> Result<Target, Refusal> {
    find(&view.targets()?, |target| target.spec.name == name)
}

fn hyperscsi(view: &Arc<dyn View>, name: &str) -> Result<Hyperscsi, Refusal> {
    find(&view.hyperscsi()?, |group| group.name == name)
}

fn session(view: &Arc<dyn View>, id: u64) -> Result<Session, Refusal> {
    find(&view.sessions()?, |session| session.id == id)
}

fn find<T: Clone>(things: &[T], is_it: impl Fn(&T) -> bool) -> Result<T, Refusal> {
    let found = things.iter().find(|thing| is_it(thing));
    found.cloned().ok_or(Refusal::Absent)
}

fn all<T>(things: &[T], name: impl Fn(&T) -> String) -> Vec<String> {
    things.iter().map(name).collect()
}

#[cfg(test)]
mod tests;
