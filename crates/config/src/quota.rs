//! `[[quota]]`: how much space the disks of an owner, or of a place, may take.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::error::{At as _, Broken as _};
use crate::fields::read_id;
use crate::keys::SECTION_QUOTA;
use crate::names::FirstUse;
use crate::reader::{Field, Section};
use crate::{ConfigError, Place, Rule, StoreSpec, Unit};

/// Why a quota cannot be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum QuotaRule {
    /// A quota of an owner and of a pool.
    #[error("a quota is that of an owner or of a pool; make two sections")]
    OfTwo,
    /// A quota of nothing.
    #[error("a quota needs an owner or a pool; name the one whose disks it counts")]
    OfNothing,
    /// A quota that limits nothing.
    #[error("a quota needs provisioned or used; give one of them a size, or remove the section")]
    WithoutLimit,
    /// A part of nothing.
    #[error("soft is a part of used, which is missing; give used a size, or remove soft")]
    SoftWithoutUsed,
}

/// Which disks a quota counts.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum QuotaOf {
    /// Those of an owner.
    Owner(String),
    /// Those whose files are in this directory, or below it.
    Directory(PathBuf),
    /// Those that are images of this pool of a Ceph cluster.
    Pool(String),
}

/// How much space some disks may take together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Quota {
    /// Which disks.
    pub of: QuotaOf,
    /// The most that their sizes may be together, in bytes.
    pub provisioned_bytes: Option<u64>,
    /// The most that they may hold together, in bytes.
    pub used_bytes: Option<u64>,
    /// From which part of `used_bytes` on initiators are notified, in hundredths.
    pub soft_percent: u8,
    /// Where it is given.
    pub place: Place,
}

/// Of `soft`, where it is left out.
pub(crate) const SOFT_PERCENT: u8 = 90;

impl Quota {
    /// Whether a part of a unit counts.
    pub fn counts(&self, unit: &Unit, part: &StoreSpec) -> bool {
        // What is only read takes nothing.
        if !part.is_disk() {
            return false;
        }
        match &self.of {
            QuotaOf::Owner(owner) => unit.owner.as_ref() == Some(owner),
            QuotaOf::Directory(directory) => part
                .at
                .node()
                .is_some_and(|(path, _)| plain(path).starts_with(plain(directory))),
            QuotaOf::Pool(pool) => part.at.image().is_some_and(|image| image.pool() == pool),
        }
    }

    /// From how many bytes on initiators are notified.
    pub fn soft_bytes(&self) -> Option<u64> {
        let hundredth = u128::from(self.used_bytes?) * u128::from(self.soft_percent);
        u64::try_from(hundredth / 100).ok()
    }
}

/// The same path without `.` and `..`. Links are not followed.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            Component::ParentDir
            | Component::Prefix(_)
            | Component::RootDir
            | Component::Normal(_) => plain.push(component),
        }
    }
    plain
}

impl QuotaOf {
    /// The key of the file that says it, and its value.
    pub(crate) fn key_and_value(&self) -> (&'static str, String) {
        match self {
            Self::Owner(owner) => ("owner", owner.clone()),
            Self::Directory(directory) => ("pool", directory.display().to_string()),
            Self::Pool(pool) => ("pool", format!("rbd:{pool}")),
        }
    }
}

impl fmt::Display for QuotaOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(owner) => write!(f, "owner {owner}"),
            Self::Directory(directory) => write!(f, "pool {}", directory.display()),
            Self::Pool(pool) => write!(f, "pool rbd:{pool}"),
        }
    }
}

/// What a text names: a directory, or with `rbd:` a pool of a cluster.
fn read_pool(text: &str, directory: &Path) -> Result<QuotaOf, Rule> {
    let empty = Rule::EmptyName { what: "pool" };
    match text.strip_prefix("rbd:") {
        Some("") => Err(empty),
        Some(pool) => Ok(QuotaOf::Pool(pool.to_owned())),
        None if text.is_empty() => Err(empty),
        None => Ok(QuotaOf::Directory(directory.join(text))),
    }
}

fn read_of(
    (owner, pool): (Option<Field<'_>>, Option<Field<'_>>),
    section: &Section<'_>,
    directory: &Path,
) -> Result<(QuotaOf, Place), ConfigError> {
    match (owner, pool) {
        (Some(owner), None) => Ok((QuotaOf::Owner(read_id(&owner)?), owner.place())),
        (None, Some(pool)) => {
            let of = read_pool(pool.text()?, directory).at(|| pool.place())?;
            Ok((of, pool.place()))
        }
        (Some(_), Some(pool)) => Err(QuotaRule::OfTwo.at(pool.place())),
        (None, None) => Err(QuotaRule::OfNothing.at(section.place())),
    }
}

/// The quotas of a file.
pub(crate) fn read_quotas(top: &Section<'_>, directory: &Path) -> Result<Vec<Quota>, ConfigError> {
    let mut seen = FirstUse::new("quota");
    let mut quotas = Vec::new();
    for entry in top.entries("quota")? {
        let section = entry.section(SECTION_QUOTA)?;
        let of = (section.field("owner"), section.field("pool"));
        let (of, place) = read_of(of, &section, directory)?;
        seen.insert(of.to_string(), place.clone())?;
        let bytes = |key| match section.field(key) {
            Some(field) => field.bytes(1, u64::MAX).map(Some),
            None => Ok(None),
        };
        let (provisioned_bytes, used_bytes) = (bytes("provisioned")?, bytes("used")?);
        if provisioned_bytes.is_none() && used_bytes.is_none() {
            return Err(QuotaRule::WithoutLimit.at(place));
        }
        let soft = section.field("soft");
        if let (Some(soft), None) = (&soft, used_bytes) {
            return Err(QuotaRule::SoftWithoutUsed.at(soft.place()));
        }
        let soft_percent = match soft {
            Some(field) => u8::try_from(field.number(1, 99)?).unwrap_or(SOFT_PERCENT),
            None => SOFT_PERCENT,
        };
        quotas.push(Quota {
            of,
            provisioned_bytes,
            used_bytes,
            soft_percent,
            place,
        });
    }
    Ok(quotas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn model(text: &str) -> Result<Model, String> {
        Model::from_toml(text, Path::new("/etc/t.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_quota_counts_the_disks_of_an_owner_or_of_a_place() {
        let text = r#"
            lun = [
                { id = "a", store = "disks/a.img", owner = "alice" },
                { id = "b", store = "/srv/other/b.img", owner = "bob" },
                { id = "c", store = "rbd:rbd/c", owner = "alice" },
                { id = "d", store = "mem:1M" },
                { id = "e", store = "disks-of-others/e.img" },
            ]
            quota = [
                { owner = "alice", provisioned = "10G" },
                { pool = "disks", used = 1000, soft = 50 },
                { pool = "rbd:rbd", used = "1T" },
            ]"#;
        let model = model(text).unwrap();
        let counted = model.quotas().iter().map(|quota| {
            let units = model.units().iter();
            let units = units.filter(|unit| unit.parts().any(|(part, _)| quota.counts(unit, part)));
            units.map(ToString::to_string).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(counted.collect::<Vec<_>>(), ["a c", "a", "c"]);
        let soft = model.quotas().iter().map(Quota::soft_bytes);
        assert_eq!(
            soft.collect::<Vec<_>>(),
            [None, Some(500), Some((1 << 40) * 9 / 10)]
        );
        let names = model.quotas().iter().map(|quota| quota.of.to_string());
        let wanted = ["owner alice", "pool /etc/disks", "pool rbd:rbd"];
        assert_eq!(names.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn mistakes_have_a_place_and_a_remedy() {
        for (text, error) in [
            ("quota = [{ used = 1 }]", "a quota needs an owner or a pool"),
            (
                "quota = [{ owner = \"a\", pool = \"b\", used = 1 }]",
                "make two sections",
            ),
            (
                "quota = [{ owner = \"a\" }]",
                "a quota needs provisioned or used",
            ),
            (
                "quota = [{ owner = \"a\", provisioned = 1, soft = 5 }]",
                "soft is a part of used",
            ),
            ("quota = [{ owner = \"a\", used = 0 }]", "1"),
            ("quota = [{ owner = \"a\", used = 1, soft = 100 }]", "99"),
            ("quota = [{ owner = \"a\", used = 1, soft = 0 }]", "99"),
            ("quota = [{ pool = \"\", used = 1 }]", "pool is empty"),
            ("quota = [{ pool = \"rbd:\", used = 1 }]", "pool is empty"),
            (
                "quota = [{ owner = \"a\", used = 1 }, { owner = \"a\", used = 2 }]",
                "quota[1]",
            ),
            ("quota = [{ owner = \"a b\", used = 1 }]", "owner"),
        ] {
            let found = model(text).unwrap_err();
            assert!(found.starts_with("/etc/t.toml:1: quota["), "{found}");
            assert!(found.contains(error), "{text}: {found}");
        }
    }

    #[test]
    fn quotas_read_back_from_the_effective_configuration_and_differ_by_key() {
        let text =
            "quota = [{ owner = \"a\", used = \"2G\" }, { pool = \"/srv\", provisioned = \"1T\" }]";
        let one = model(text).unwrap();
        let again = model(&one.effective()).unwrap();
        assert!(crate::diff(&one, &again).is_empty());
        let other = model(&text.replace("2G", "3G")).unwrap();
        let differences = crate::diff(&one, &other);
        assert_eq!(differences.quotas.len(), 1, "{differences:?}");
    }

    #[test]
    fn a_pool_has_a_path_however_its_dots_are_written() {
        for (path, expected) in [
            ("/p/a.img", "/p/a.img"),
            ("/p/./a.img", "/p/a.img"),
            ("/q/../p/a.img", "/p/a.img"),
            ("/../p/a.img", "/../p/a.img"),
            ("../p/a.img", "../p/a.img"),
            ("p/../../a.img", "../a.img"),
        ] {
            assert_eq!(plain(Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
