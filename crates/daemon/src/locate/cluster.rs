//! Which cluster a configuration file of Ceph leads to, as far as the file has it.
//!
//! Two files of one cluster are found before it is asked. What the files do not have is found when the image is opened.
//! A file that cannot be read has nothing.

use std::env;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Longer files of Ceph are none.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where Ceph looks without an option.
const DEFAULT: &str = "/etc/ceph/ceph.conf";

/// What the cluster is called: by its identity, and by its monitors.
pub(super) fn names(conf: Option<&Path>) -> impl Iterator<Item = String> {
    let path = match conf {
        Some(path) => path.to_owned(),
        None => env::var_os("CEPH_CONF").map_or_else(|| DEFAULT.into(), PathBuf::from),
    };
    let text = read(&path).unwrap_or_default();
    let identity = value(&text, "fsid").map(|fsid| format!("fsid {fsid}"));
    let monitors = value(&text, "mon_host").map(|hosts| {
        // They have no order.
        let mut hosts: Vec<_> = split(&hosts).collect();
        hosts.sort_unstable();
        format!("monitors {}", hosts.join(","))
    });
    identity.into_iter().chain(monitors)
}

fn read(path: &Path) -> Option<String> {
    // That of a pipe would wait for somebody who writes.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The value of a key, whatever section it is in: words of keys are joined by spaces, `_` or `-`.
fn value(text: &str, key: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let line = line.split(['#', ';']).next()?;
        let (name, value) = line.split_once('=')?;
        let words = name.split([' ', '\t', '_', '-']);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let value = value.trim().trim_matches('"').to_ascii_lowercase();
        (words.join("_") == key && !value.is_empty()).then_some(value)
    });
    values.next()
}

/// Addresses: those of one monitor stay together in their brackets.
fn split(hosts: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let parts = hosts.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(character, ',' | ' ' | '\t')
    });
    parts.filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_however_they_are_written() {
        let text = "[global]\n  mon host = a\nfsid=\"F\" ; the identity\n#fsid = g\n";
        assert_eq!(value(text, "fsid").as_deref(), Some("f"));
        assert_eq!(value(text, "mon_host").as_deref(), Some("a"));
        assert_eq!(value("mon-host: a\nfsid =\n", "fsid"), None);
    }

    #[test]
    fn addresses_of_one_monitor_stay_together() {
        let hosts = "[v2:10.0.0.1:3300,v1:10.0.0.1:6789], 10.0.0.2 c";
        let all: Vec<_> = split(hosts).collect();
        assert_eq!(
            all,
            ["[v2:10.0.0.1:3300,v1:10.0.0.1:6789]", "10.0.0.2", "c"]
        );
    }
}
