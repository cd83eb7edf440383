//! Which paths lie within the directories and devices that are kept.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// Directories, files and devices that are kept, without symbolic links.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// Adds one.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn add(&mut self, path: &Path) -> io::Result<()> {
        self.0.push(fs::canonicalize(path)?);
        Ok(())
    }

    /// All of them.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Whether the path leads to one of them or below, or would if it were made.
    pub fn contain(&self, path: &Path) -> bool {
        let there = fs::canonicalize(path).or_else(|_| resolve_new(path));
        there.is_ok_and(|path| self.0.iter().any(|root| path.starts_with(root)))
    }
}

impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (position, root) in self.0.iter().enumerate() {
            let joint = if position == 0 { "" } else { ", " };
            write!(f, "{joint}{}", root.display())?;
        }
        Ok(())
    }
}

/// Where a file will be that is not there yet.
fn resolve_new(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(absolute),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_belongs_where_it_leads_and_not_where_it_is_written() {
        let directory = std::env::temp_dir().join(format!("confine-roots.{}", std::process::id()));
        let at = |name: &str| directory.join(name);
        fs::create_dir_all(at("in/below")).unwrap();
        fs::create_dir_all(at("inside-out")).unwrap();
        fs::write(at("alone"), b"").unwrap();
        fs::write(at("out"), b"").unwrap();
        symlink(at("out"), at("in/leads-out")).unwrap();
        symlink(at("in/below"), at("leads-in")).unwrap();
        let mut roots = Roots::default();
        roots.add(&at("in")).unwrap();
        roots.add(&at("alone")).unwrap();
        assert!(roots.add(&at("nowhere")).is_err());
        for (path, is_in) in [
            ("in", true),
            ("in/new", true),
            ("in/below/new", true),
            ("leads-in/new", true),
            ("alone", true),
            ("in/../in/new", true),
            ("out", false),
            ("in/leads-out", false),
            ("in/../out", false),
            ("inside-out/new", false),
            ("in/nowhere/new", false),
        ] {
            assert_eq!(roots.contain(&at(path)), is_in, "{path}");
        }
        let shown = fs::canonicalize(&directory).unwrap();
        let expected = format!("{0}/in, {0}/alone", shown.display());
        assert_eq!(roots.to_string(), expected);
        fs::remove_dir_all(directory).unwrap();
    }
}
