//! Where in the administrator's words something stands. Knows nothing of what is wrong there.

use std::fmt;

/// Where in the administrator's words something stands, so that a message can name it.
///
/// Prints as `tarn.toml:12: lun[2].store` or as `STORE "mem:10X"`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Place {
    /// In a configuration file.
    File {
        /// The file as the administrator named it.
        file: String,
        /// Counted from one.
        line: usize,
        /// Path of the key, such as `lun[2].store`; empty when the whole line is meant.
        key: String,
    },
    /// On the command line.
    Argument {
        /// The argument as the administrator wrote it, such as `--target`.
        name: String,
    },
}

impl Place {
    /// The place of a command line argument.
    pub fn argument(name: impl Into<String>) -> Self {
        Self::Argument { name: name.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, key } if key.is_empty() => write!(f, "{file}:{line}"),
            Self::File { file, line, key } => write!(f, "{file}:{line}: {key}"),
            Self::Argument { name } => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_compilers_write_it() {
        let mut place = Place::File {
            file: "tarn.toml".to_owned(),
            line: 12,
            key: "lun[2].store".to_owned(),
        };
        assert_eq!(place.to_string(), "tarn.toml:12: lun[2].store");
        if let Place::File { key, .. } = &mut place {
            key.clear();
        }
        assert_eq!(place.to_string(), "tarn.toml:12");
        assert_eq!(Place::argument("--target").to_string(), "--target");
    }
}
