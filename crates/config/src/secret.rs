//! Secrets: the files that hold them, and what is shown in their place.

use std::path::{Path, PathBuf};

use crate::fields::read_path;
use crate::reader::Field;
use crate::{ConfigError, Place};

/// In place of a secret. It is taken for none, so that nobody puts it into the configuration by mistake.
pub const NOT_SHOWN: &str = "(not shown)";

/// A file that holds a secret. The model never sees the secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretFile {
    /// The file.
    pub path: PathBuf,
    /// The path as the administrator wrote it.
    pub text: String,
    /// Where it is named, for errors that only reading it shows.
    pub place: Place,
}

impl SecretFile {
    /// The file that a key names.
    pub(crate) fn read(
        what: &'static str,
        field: &Field<'_>,
        directory: &Path,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            path: read_path(what, field, directory)?,
            text: field.text()?.to_owned(),
            place: field.place(),
        })
    }
}
