//! The tree as a program walks through it, without a mount and without a kernel, for `tarn shell`.
//!
//! It looks at the same model as the mount, and asks the daemon as rarely. Nothing is shared with a mount: two
//! programs may walk, and each asks for itself. A daemon that hangs is waited for as long as [`crate::LIMITS`]
//! says, once a second.

use std::fmt;
use std::sync::Arc;

use client::{Client, ClientError};

use crate::model::{self, Node};
use crate::place::{Directory, Place};
use crate::refusal::{Refusal, VALUE_BYTES_MAX};
use crate::view::{Daemon, View};

/// Links that one path may go through. Those of the tree lead to directories, so one is what there is.
const LINKS_MAX: usize = 4;

/// Walks through the tree of a daemon.
pub struct Walker {
    daemon: Arc<Daemon>,
    view: Arc<dyn View>,
}

/// A directory of the tree, where one may be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spot(Directory);

/// Whose directory a spot is in, by the noun of the command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subject {
    /// The noun, as `lun` or `hyperscsi group`.
    pub noun: &'static str,
    /// The thing, as verbs name it; `None` for all of them.
    pub id: Option<String>,
}

/// Something in a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its name there.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file with a value.
    File,
    /// A link to a directory.
    Link,
}

/// Why a step was not made, with the path.
#[derive(Debug)]
pub struct WalkError {
    path: String,
    why: Box<Why>,
}

#[derive(Debug)]
enum Why {
    Refused(Refusal),
    NoDirectory,
    NoFile,
    Links,
}

impl From<Refusal> for Why {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &*self.why {
            // The daemon does not answer, wherever one goes.
            Why::Refused(refusal @ Refusal::Daemon(_)) => f.write_str(&refusal.line("")),
            Why::Refused(refusal) => f.write_str(&refusal.line(path)),
            Why::NoDirectory => write!(f, "{path}: this is no directory; cat shows a file"),
            Why::NoFile => write!(f, "{path}: this is no file; ls shows a directory"),
            Why::Links => write!(
                f,
                "{path}: more than {LINKS_MAX} links; name what they lead to"
            ),
        }
    }
}

impl std::error::Error for WalkError {}

impl WalkError {
    /// What the client says, where it is what failed.
    pub fn client(&self) -> Option<&ClientError> {
        match &*self.why {
            Why::Refused(Refusal::Daemon(error)) => Some(error),
            Why::Refused(_) | Why::NoDirectory | Why::NoFile | Why::Links => None,
        }
    }

    /// There is nothing at that path.
    pub fn is_absent(&self) -> bool {
        matches!(*self.why, Why::Refused(Refusal::Absent))
    }
}

impl fmt::Debug for Walker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walker").finish_non_exhaustive()
    }
}

impl Walker {
    /// Through the tree of the daemon that this client asks.
    pub fn new(client: Client) -> Self {
        let daemon = Arc::new(Daemon::new(client));
        Self {
            view: Arc::<Daemon>::clone(&daemon),
            daemon,
        }
    }

    /// The directory of a path.
    ///
    /// # Errors
    ///
    /// It is not there, or the daemon does not answer.
    pub fn go(&self, from: &Spot, path: &str) -> Result<Spot, WalkError> {
        go(&self.view, from, path)
    }

    /// What is in the directory of a path.
    ///
    /// # Errors
    ///
    /// It is not there, or the daemon does not answer.
    pub fn list(&self, from: &Spot, path: &str) -> Result<Vec<Entry>, WalkError> {
        list(&self.view, from, path)
    }

    /// The value of the file of a path.
    ///
    /// # Errors
    ///
    /// It is not there, is no file, or the daemon does not answer.
    pub fn read(&self, from: &Spot, path: &str) -> Result<String, WalkError> {
        read(&self.view, from, path)
    }

    /// Writes a value to the file of a path.
    ///
    /// # Errors
    ///
    /// It is not there, cannot be written, or the daemon refuses the value.
    pub fn write(&self, from: &Spot, path: &str, text: &str) -> Result<(), WalkError> {
        let write = || -> Result<(), Why> {
            if text.len() > VALUE_BYTES_MAX {
                return Err(Refusal::TooLong { got: text.len() }.into());
            }
            let place = resolve(&self.view, &from.0, path)?;
            let call = model::call(&self.view, &place, text)?;
            Ok(call.make(self.daemon.client())?)
        };
        let outcome = write().map_err(|why| failed(from, path, why));
        self.forget();
        outcome
    }

    /// Something was changed elsewhere: no answer that is kept counts any more.
    pub fn forget(&self) {
        self.daemon.forget();
    }
}

impl Spot {
    /// The root of the tree.
    pub const ROOT: Self = Self(Directory::Root);

    /// Its path, from the root.
    pub fn path(&self) -> String {
        format!("/{}", Place::Directory(self.0.clone()).path())
    }

    /// Whose directory this is in; `None` at the root.
    pub fn subject(&self) -> Option<Subject> {
        let (noun, id) = match &self.0 {
            Directory::Root => return None,
            Directory::Luns => ("lun", None),
            Directory::Lun(id) | Directory::LunStats(id) => ("lun", Some(id.clone())),
            Directory::LunSnapshots(id) => ("snapshot", Some(id.clone())),
            Directory::LunSnapshot(id, name) => ("snapshot", Some(format!("{id}@{name}"))),
            Directory::Targets => ("target", None),
            Directory::Target(name)
            | Directory::TargetLuns(name)
            | Directory::TargetSessions(name) => ("target", Some(name.clone())),
            Directory::Sessions => ("session", None),
            Directory::Session(id) | Directory::SessionStats(id) => {
                ("session", Some(id.to_string()))
            }
            Directory::Groups => ("group", None),
            Directory::Group(id) => ("group", Some(id.clone())),
            Directory::Users => ("user", None),
            Directory::User(name) => ("user", Some(name.clone())),
            Directory::Stores => ("store", None),
            Directory::Store(id) => ("store", Some(id.clone())),
            Directory::NbdServers => ("nbd", None),
            Directory::NbdServer(place) => ("nbd", Some(place.clone())),
            Directory::Quotas => ("quota", None),
            Directory::Quota(name) => ("quota", Some(name.clone())),
            Directory::Hyperscsi => ("hyperscsi group", None),
            Directory::HyperscsiGroup(name) | Directory::HyperscsiSessions(name) => {
                ("hyperscsi group", Some(name.clone()))
            }
        };
        Some(Subject { noun, id })
    }
}

fn failed(from: &Spot, path: &str, why: Why) -> WalkError {
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{}/{path}", from.path().trim_end_matches('/')),
    };
    let why = Box::new(why);
    WalkError { path, why }
}

fn go(view: &Arc<dyn View>, from: &Spot, path: &str) -> Result<Spot, WalkError> {
    match resolve(view, &from.0, path) {
        Ok(Place::Directory(directory)) => {
            // The daemon is asked: a collection is in the model whatever it does.
            let listed = model::entries(view, &directory).map(|_entries| Spot(directory));
            listed.map_err(|refusal| failed(from, path, refusal.into()))
        }
        Ok(Place::File(..) | Place::Link(..)) => Err(failed(from, path, Why::NoDirectory)),
        Err(why) => Err(failed(from, path, why)),
    }
}

fn list(view: &Arc<dyn View>, from: &Spot, path: &str) -> Result<Vec<Entry>, WalkError> {
    let Spot(directory) = go(view, from, path)?;
    let entries = model::entries(view, &directory);
    let entries = entries.map_err(|refusal| failed(from, path, refusal.into()))?;
    let entry = |(name, place): (String, Place)| {
        let kind = match place {
            Place::Directory(_) => EntryKind::Directory,
            Place::File(..) => EntryKind::File,
            Place::Link(..) => EntryKind::Link,
        };
        Entry { name, kind }
    };
    Ok(entries.into_iter().map(entry).collect())
}

fn read(view: &Arc<dyn View>, from: &Spot, path: &str) -> Result<String, WalkError> {
    let read = || -> Result<String, Why> {
        let place = resolve(view, &from.0, path)?;
        match model::node(view, &place)? {
            Node::File(file) => Ok(file.text),
            Node::Directory { .. } | Node::Link(_) => Err(Why::NoFile),
        }
    };
    read().map_err(|why| failed(from, path, why))
}

/// The place of a path; links are followed.
fn resolve(view: &Arc<dyn View>, from: &Directory, path: &str) -> Result<Place, Why> {
    let mut links = 0;
    let mut names: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut at = match path.starts_with('/') {
        true => Place::ROOT,
        false => Place::Directory(from.clone()),
    };
    while let Some(name) = names.pop() {
        if matches!(name.as_str(), "" | ".") {
            continue;
        }
        let Place::Directory(directory) = &at else {
            return Err(Why::NoDirectory);
        };
        if name == ".." {
            at = Place::Directory(directory.parent());
            continue;
        }
        let below = model::lookup(view, directory, &name)?;
        match &below {
            Place::Directory(_) | Place::File(..) => at = below,
            Place::Link(..) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Why::Links);
                }
                if let Node::Link(target) = model::node(view, &below)? {
                    // As the kernel reads it: from the directory that the link is in, of which `..` is what a path
                    // leads through.
                    names.extend(target.split('/').rev().map(str::to_owned));
                }
            }
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn view() -> Arc<dyn View> {
        testing::daemon()
    }

    fn at(path: &str) -> Spot {
        go(&view(), &Spot::ROOT, path).unwrap()
    }

    #[test]
    fn paths_lead_from_where_one_is_and_from_the_root() {
        let luns = at("luns");
        assert_eq!(luns.path(), "/luns");
        assert_eq!(go(&view(), &luns, "..").unwrap(), Spot::ROOT);
        assert_eq!(go(&view(), &Spot::ROOT, "..").unwrap(), Spot::ROOT);
        assert_eq!(
            go(&view(), &luns, "/targets/.//").unwrap().path(),
            "/targets"
        );
        let error = go(&view(), &luns, "nothing").unwrap_err();
        assert!(
            error.is_absent() && error.to_string().contains("/luns/nothing"),
            "{error}"
        );
        let error = go(&view(), &Spot::ROOT, "status").unwrap_err();
        assert!(error.to_string().contains("no directory"), "{error}");
        let error = go(&view(), &Spot::ROOT, "status/x").unwrap_err();
        assert!(error.to_string().contains("no directory"), "{error}");
    }

    #[test]
    fn every_directory_below_the_root_has_the_noun_of_its_verbs() {
        for entry in list(&view(), &Spot::ROOT, "").unwrap() {
            if entry.kind == EntryKind::Directory {
                let spot = at(&entry.name);
                let subject = spot.subject().unwrap();
                assert_eq!(subject.id, None, "{entry:?}");
                for thing in list(&view(), &spot, "").unwrap() {
                    let spot = go(&view(), &spot, &thing.name).unwrap();
                    let of_thing = spot.subject().unwrap();
                    assert_eq!(of_thing.noun, subject.noun);
                    assert!(of_thing.id.is_some(), "{thing:?}");
                }
            }
        }
        assert_eq!(Spot::ROOT.subject(), None);
    }

    #[test]
    fn links_lead_to_what_they_name() {
        let mut seen = 0;
        for target in list(&view(), &Spot::ROOT, "targets").unwrap() {
            let path = format!("targets/{}/luns", target.name);
            for link in list(&view(), &Spot::ROOT, &path).unwrap() {
                assert_eq!(link.kind, EntryKind::Link);
                let spot = at(&format!("{path}/{}", link.name));
                assert_eq!(spot.subject().unwrap().noun, "lun", "{}", spot.path());
                seen += 1;
            }
        }
        assert!(seen > 0);
    }

    #[test]
    fn files_are_read_and_directories_are_not() {
        assert!(!read(&view(), &Spot::ROOT, "status").unwrap().is_empty());
        let error = read(&view(), &Spot::ROOT, "luns").unwrap_err();
        assert!(error.to_string().contains("no file"), "{error}");
    }
}
