//! The place of an image of a Ceph cluster, and how the cluster is found.

use std::fmt;
use std::path::{Path, PathBuf};

use super::escape::{Escapes, escape, unescape};
use super::export::option_of_path;
use crate::is_invisible;

/// Longest name of a pool, a namespace, an image or a snapshot in bytes.
const NAME_BYTES_MAX: usize = 255;
/// What has a meaning of its own in a name.
const IN_NAME: Escapes = &[('%', "25"), ('?', "3F")];

/// An image of a cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Image {
    pool: String,
    namespace: String,
    name: String,
    snapshot: Option<String>,
    conf: Option<PathBuf>,
    /// What distinguishes one image from another, in its one form.
    text: String,
    /// The user, without `client.`; `None` for the one that Ceph takes.
    pub user: Option<String>,
    /// The file of the user's key; `None` for those where Ceph looks.
    pub keyring: Option<PathBuf>,
}

impl Image {
    /// Reads `POOL[/NAMESPACE]/IMAGE[@SNAP]`, or gives what is wrong with it.
    pub(super) fn parse(place: &str) -> Result<Self, &'static str> {
        let mut parts: Vec<&str> = place.split('/').collect();
        let last = parts.pop().unwrap_or_default();
        let (name, snapshot) = match last.split_once('@') {
            Some((name, snapshot)) => (name, Some(snapshot)),
            None => (last, None),
        };
        let (pool, namespace) = match parts.as_slice() {
            [] => return Err("names no pool, or no image"),
            [pool] => (*pool, ""),
            [_, ""] => return Err("has an empty namespace"),
            [pool, namespace] => (*pool, *namespace),
            [..] => return Err("has more than a pool, a namespace and an image"),
        };
        if pool.is_empty() || name.is_empty() || snapshot.is_some_and(str::is_empty) {
            return Err("has an empty name");
        }
        let names = [pool, namespace, name, snapshot.unwrap_or_default()];
        let names = names.map(|name| unescape(name, IN_NAME));
        let is_bad = |name: &String| name.contains(|it: char| is_invisible(it) || it == '@');
        if names.iter().any(is_bad) {
            return Err("has a control character or a second @ in a name");
        }
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err("has a name longer than 255 bytes");
        }
        let has_snapshot = snapshot.is_some();
        let [pool, namespace, name, snapshot] = names;
        let mut image = Self {
            pool,
            namespace,
            name,
            snapshot: has_snapshot.then_some(snapshot),
            ..Self::default()
        };
        image.set_text();
        Ok(image)
    }

    fn set_text(&mut self) {
        self.text = self.before_options();
        if let Some(conf) = self.conf_option() {
            self.text = format!("{}?conf={conf}", self.text);
        }
    }

    /// The pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The namespace of the pool; empty for the one without a name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What the pool calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A snapshot of it, which is only read.
    pub fn snapshot(&self) -> Option<&str> {
        self.snapshot.as_deref()
    }

    /// The configuration file of the cluster; `None` for those where Ceph looks.
    pub fn conf(&self) -> Option<&Path> {
        self.conf.as_deref()
    }

    /// The files that are read for every connection.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.conf.iter().chain(&self.keyring).map(PathBuf::as_path)
    }

    /// Cluster and name in their one form: what distinguishes one image from another.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What stands before the question mark.
    pub(super) fn before_options(&self) -> String {
        let mut text = escape(&self.pool, IN_NAME);
        for name in [&self.namespace, &self.name] {
            if !name.is_empty() {
                text = format!("{text}/{}", escape(name, IN_NAME));
            }
        }
        match &self.snapshot {
            Some(snapshot) => format!("{text}@{}", escape(snapshot, IN_NAME)),
            None => text,
        }
    }

    /// The configuration file as the value of an option.
    pub(super) fn conf_option(&self) -> Option<String> {
        self.conf.as_deref().map(option_of_path)
    }

    /// The keyring as the value of an option.
    pub(super) fn keyring_option(&self) -> Option<String> {
        self.keyring.as_deref().map(option_of_path)
    }

    /// How the cluster is found, as options.
    pub(super) fn options(&self) -> String {
        let conf = self.conf_option().map(|conf| format!("conf={conf}"));
        let user = self.user.iter().map(|user| format!("user={user}"));
        let keyring = self.keyring_option();
        let keyring = keyring.map(|keyring| format!("keyring={keyring}"));
        let options: Vec<String> = conf.into_iter().chain(user).chain(keyring).collect();
        options.join("&")
    }

    /// The cluster has this configuration file.
    pub(super) fn set_conf(&mut self, conf: PathBuf) {
        self.conf = Some(conf);
        self.set_text();
    }

    /// Makes relative paths ones below `directory`.
    pub(super) fn below(&mut self, directory: &Path) {
        let below = |path: &PathBuf| directory.join(path).components().collect();
        self.keyring = self.keyring.as_ref().map(below);
        self.conf = self.conf.as_ref().map(below);
        self.set_text();
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_image_is_read_and_written_again() {
        for (place, pool, namespace, name, snapshot) in [
            ("rbd/lun0", "rbd", "", "lun0", None),
            ("p/n/i", "p", "n", "i", None),
            ("p/i@s", "p", "", "i", Some("s")),
            ("p%25/n%3F/i@s%3F", "p%", "n?", "i", Some("s?")),
        ] {
            let image = Image::parse(place).unwrap();
            let got = (image.pool(), image.namespace(), image.name());
            assert_eq!(got, (pool, namespace, name), "{place}");
            assert_eq!(image.snapshot(), snapshot, "{place}");
            assert_eq!(image.before_options(), place);
        }
    }

    #[test]
    fn what_is_no_image_says_what_is_wrong() {
        let long = format!("p/{}", "i".repeat(256));
        for (place, problem) in [
            ("", "names no pool, or no image"),
            ("lun0", "names no pool, or no image"),
            ("/lun0", "an empty name"),
            ("rbd/", "an empty name"),
            ("rbd/@s", "an empty name"),
            ("rbd/i@", "an empty name"),
            ("rbd//i", "an empty namespace"),
            ("a/b/c/d", "more than a pool, a namespace and an image"),
            ("a/b@c@d", "a second @"),
            ("a@b/c", "a second @"),
            ("a/b\0", "a control character"),
            (&long, "longer than 255 bytes"),
        ] {
            let got = Image::parse(place).unwrap_err();
            assert!(got.contains(problem), "{place:?}: {got}");
        }
        assert!(Image::parse(&long[..long.len() - 1]).is_ok());
    }
}
