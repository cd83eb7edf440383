//! `[confine]`: what the process gives up once it serves. Looks at nothing; whether users and directories
//! are there is for the binary to see.

use std::path::{Path, PathBuf};

use crate::error::Broken as _;
use crate::fields::read_path;
use crate::keys::SECTION_CONFINE;
use crate::names::FirstUse;
use crate::reader::{Field, Section};
use crate::value::{KeyOf, list, path, quoted};
use crate::{ConfigError, Place, Rule};

/// What the process gives up once it serves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Confine {
    /// The user to become, if it is another.
    pub user: Option<Account>,
    /// Where stores may lie; `None` is anywhere.
    pub roots: Option<Vec<Root>>,
    /// Whether system calls that Tarn does not make are refused.
    pub seccomp: bool,
    /// Whether a kernel that cannot do it keeps Tarn from starting.
    pub is_required: bool,
}

/// A user, with another group than its own or not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Account {
    /// Name or number.
    pub user: String,
    /// Name or number.
    pub group: Option<String>,
    /// Where it is given, for errors that only looking it up shows.
    pub place: Place,
}

/// A directory or device that stores may lie in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Root {
    /// The path.
    pub path: PathBuf,
    /// Where it is given, for errors that only opening it shows.
    pub place: Place,
}

impl Default for Confine {
    fn default() -> Self {
        Self {
            user: None,
            roots: None,
            seccomp: true,
            is_required: false,
        }
    }
}

/// The keys of the section with their values.
pub(crate) const CONFINE: [KeyOf<Confine>; 5] = [
    KeyOf {
        name: "user",
        value: |confine| Some(quoted(&confine.user.as_ref()?.user)),
    },
    KeyOf {
        name: "group",
        value: |confine| Some(quoted(confine.user.as_ref()?.group.as_ref()?)),
    },
    KeyOf {
        name: "roots",
        value: |confine| {
            let roots = confine.roots.as_ref()?;
            Some(list(roots.iter().map(|root| path(&root.path))))
        },
    },
    KeyOf {
        name: "seccomp",
        value: |confine| Some(confine.seccomp.to_string()),
    },
    KeyOf {
        name: "required",
        value: |confine| Some(confine.is_required.to_string()),
    },
];

/// Reads the section.
pub(crate) fn read(top: &Section<'_>, directory: &Path) -> Result<Confine, ConfigError> {
    let default = Confine::default();
    let Some(section) = top.section("confine", SECTION_CONFINE)? else {
        return Ok(default);
    };
    let flag = |field: Option<Field<'_>>, default| field.map_or(Ok(default), |f| f.flag());
    Ok(Confine {
        user: read_account(&section)?,
        roots: match section.field("roots") {
            Some(field) => Some(read_roots(&field, directory)?),
            None => None,
        },
        seccomp: flag(section.field("seccomp"), default.seccomp)?,
        is_required: flag(section.field("required"), default.is_required)?,
    })
}

fn read_account(section: &Section<'_>) -> Result<Option<Account>, ConfigError> {
    match (section.field("user"), section.field("group")) {
        (None, None) => Ok(None),
        (None, Some(alone)) => {
            let missing = "user";
            Err(Rule::NotAlone { missing }.at(alone.place()))
        }
        (Some(user), group) => Ok(Some(Account {
            place: user.place(),
            user: read_name("user", &user)?,
            group: match group {
                Some(field) => Some(read_name("group", &field)?),
                None => None,
            },
        })),
    }
}

fn read_name(what: &'static str, field: &Field<'_>) -> Result<String, ConfigError> {
    let name = field.text()?;
    if name.is_empty() {
        return Err(Rule::EmptyName { what }.at(field.place()));
    }
    Ok(name.to_owned())
}

fn read_roots(field: &Field<'_>, directory: &Path) -> Result<Vec<Root>, ConfigError> {
    let mut seen = FirstUse::new("root");
    let mut roots = Vec::new();
    for entry in field.entries()? {
        let (place, path) = (entry.place(), read_path("root", &entry, directory)?);
        seen.insert(path.display().to_string(), place.clone())?;
        roots.push(Root { path, place });
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn confine(text: &str) -> Result<Confine, String> {
        let text = format!("[confine]\n{text}\n");
        let model = Model::from_toml(&text, Path::new("/etc/tarn/tarn.toml"));
        match model {
            Ok(model) => Ok(model.confine().clone()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn every_key_is_read_and_each_may_be_left_out() {
        assert_eq!(confine(""), Ok(Confine::default()));
        let full = confine(
            "user = \"tarn\"\ngroup = \"disk\"\nroots = [\"disks\", \"/dev/sdb\"]\nseccomp = false\nrequired = true",
        )
        .unwrap();
        let user = full.user.unwrap();
        assert_eq!(
            (user.user.as_str(), user.group.as_deref()),
            ("tarn", Some("disk"))
        );
        let roots: Vec<_> = full
            .roots
            .unwrap()
            .into_iter()
            .map(|root| root.path)
            .collect();
        assert_eq!(roots, [Path::new("/etc/tarn/disks"), Path::new("/dev/sdb")]);
        assert!(!full.seccomp);
        assert!(full.is_required);
        assert_eq!(confine("roots = []").unwrap().roots, Some(Vec::new()));
    }

    #[test]
    fn mistakes_name_their_place_and_remedy() {
        for (text, expected) in [
            (
                "group = \"disk\"",
                "2: confine.group: this needs \"user\" beside it; give that too, or remove this",
            ),
            (
                "user = \"\"",
                "2: confine.user: user is empty; give it at least one character",
            ),
            (
                "user = \"tarn\"\ngroup = \"\"",
                "3: confine.group: group is empty; give it at least one character",
            ),
            (
                "roots = [\"\"]",
                "2: confine.roots[0]: root is empty; give it at least one character",
            ),
            (
                "roots = [\"/srv\", \"/srv\"]",
                "2: confine.roots[1]: root \"/srv\" is already used at /etc/tarn/tarn.toml:2: confine.roots[0]; give \
                 each its own",
            ),
        ] {
            let expected = format!("/etc/tarn/tarn.toml:{expected}");
            assert_eq!(confine(text), Err(expected));
        }
    }
}
