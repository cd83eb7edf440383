//! The list of all keys of the configuration file: the one place that says which there are.
//!
//! The reader refuses what is not listed here, and `docs/reference/configuration.md` is compared with it by a
//! test, so that neither can know a key that the other does not.

use std::fmt;

mod pattern;
mod sections;

pub(crate) use self::pattern::SIZE;
pub use self::sections::SECTIONS;
pub use self::sections::{
    SECTION_ADMIN, SECTION_CONFINE, SECTION_LIMITS, SECTION_LUN, SECTION_NBD, SECTION_QUOTA,
    SECTION_SERVER, SECTION_TARGET,
};
pub(crate) use self::sections::{
    SECTION_GROUP, SECTION_HYPERSCSI, SECTION_HYPERSCSI_DEVICE, SECTION_HYPERSCSI_GROUP,
    SECTION_MUTUAL, SECTION_NOTIFY, SECTION_PORTAL, SECTION_SCHEDULE, SECTION_STORE,
    SECTION_TARGET_LUN, SECTION_TOP, SECTION_USER,
};

/// A section of the file and the keys it may have.
#[derive(Clone, Copy, Debug)]
pub struct SectionKeys {
    /// As it is written in the file, or what it is an entry of.
    pub heading: &'static str,
    /// What the section is about, one sentence.
    pub meaning: &'static str,
    /// How one is written as a value, shown where something else stands: `%s` is what was written, `%n` its position.
    pub example: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key of the configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// What it takes.
    pub form: Form,
    /// What holds when it is left out.
    pub default: Fallback,
    /// What it does.
    pub meaning: &'static str,
    /// When or what for to set it; completes "Set it ...".
    pub set_it: &'static str,
}

/// When a new value of a key of the process takes effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effective {
    /// At once, for all.
    Now,
    /// For sessions that begin from now on.
    NextSessions,
    /// When Tarn starts again.
    Restart,
}

/// The keys of the process that take effect without a restart, by section.
#[rustfmt::skip]
const WITHOUT_RESTART: &[(&SectionKeys, &str, Effective)] = &[
    (&SECTION_SERVER, "discovery_auth", Effective::Now),
    (&SECTION_SERVER, "log", Effective::Now),
    (&SECTION_ADMIN, "listen", Effective::Now),
    (&SECTION_ADMIN, "tls", Effective::Now),
    (&SECTION_ADMIN, "certificate", Effective::Now),
    (&SECTION_ADMIN, "key", Effective::Now),
    (&SECTION_ADMIN, "names", Effective::Now),
    (&SECTION_ADMIN, "history", Effective::Now),
    (&SECTION_LIMITS, "sessions_max", Effective::Now),
    (&SECTION_LIMITS, "connections_in_login_max", Effective::Now),
    (&SECTION_LIMITS, "login_timeout_seconds", Effective::NextSessions),
    (&SECTION_LIMITS, "discovery_sessions_max", Effective::Now),
    (&SECTION_LIMITS, "discovery_lifetime_seconds", Effective::NextSessions),
    (&SECTION_LIMITS, "unproved_per_address_max", Effective::Now),
    (&SECTION_LIMITS, "unproved_memory_bytes", Effective::Now),
    (&SECTION_LIMITS, "command_gap_seconds", Effective::NextSessions),
    (&SECTION_LIMITS, "nop_interval_seconds", Effective::NextSessions),
    (&SECTION_LIMITS, "nop_timeout_seconds", Effective::NextSessions),
    (&SECTION_LIMITS, "queue_depth", Effective::Now),
    (&SECTION_LIMITS, "task_deadline_seconds", Effective::Now),
    (&SECTION_LIMITS, "shutdown_timeout_seconds", Effective::Now),
    (&SECTION_LIMITS, "core_stall_limit_seconds", Effective::Now),
    (&SECTION_LIMITS, "slow_command_ms", Effective::Now),
    (&SECTION_LIMITS, "header_digest", Effective::NextSessions),
    (&SECTION_LIMITS, "data_digest", Effective::NextSessions),
    (&SECTION_LIMITS, "connections_per_session_max", Effective::NextSessions),
    (&SECTION_LIMITS, "initial_r2t", Effective::NextSessions),
    (&SECTION_LIMITS, "immediate_data", Effective::NextSessions),
    (&SECTION_LIMITS, "max_recv_data_segment_bytes", Effective::NextSessions),
    (&SECTION_LIMITS, "max_burst_bytes", Effective::NextSessions),
    (&SECTION_LIMITS, "first_burst_bytes", Effective::NextSessions),
    (&SECTION_LIMITS, "outstanding_r2t_max", Effective::NextSessions),
];

impl Effective {
    /// That of a key of `[server]`, `[limits]`, `[admin]` or `[confine]`. A name that is no key is
    /// taken for one that is read at the start.
    pub fn of(section: &SectionKeys, key: &str) -> Self {
        let is_it =
            |row: &&(&SectionKeys, &str, Self)| row.0.heading == section.heading && row.1 == key;
        let row = WITHOUT_RESTART.iter().find(is_it);
        row.map_or(Self::Restart, |row| row.2)
    }
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now => "at once",
            Self::NextSessions => "for new sessions",
            Self::Restart => "after a restart",
        })
    }
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A string.
    Text {
        /// What it must look like, in words.
        words: &'static str,
        /// The same as a regular expression of ECMA-262, as far as one can say it.
        pattern: &'static str,
    },
    /// A STORE.
    Store,
    /// `true` or `false`.
    Flag,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A list.
    List {
        /// What is in it, in words.
        words: &'static str,
        /// The forms an entry may have.
        entries: &'static [Self],
    },
    /// A table.
    Table {
        /// How it is written, in words.
        words: &'static str,
        /// Its keys.
        keys: &'static SectionKeys,
    },
    /// A number with its range.
    Number {
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
    /// A number of bytes, or a size such as `"64M"`, with its range.
    Bytes {
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
}

impl Form {
    /// The keys of the tables that a list may have.
    pub fn table(entries: &[Self]) -> Option<&'static SectionKeys> {
        entries.iter().find_map(|form| match form {
            Self::Table { keys, .. } => Some(*keys),
            Self::Text { .. }
            | Self::Store
            | Self::Flag
            | Self::OneOf(_)
            | Self::List { .. }
            | Self::Number { .. }
            | Self::Bytes { .. } => None,
        })
    }
}

/// What holds when a key is left out.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// It cannot be left out.
    Required,
    /// What these words describe.
    Words(&'static str),
    /// This value, as TOML writes it, and JSON too.
    Value(&'static str),
    /// This number.
    Number(u64),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { words, .. } | Self::List { words, .. } | Self::Table { words, .. } => {
                f.write_str(words)
            }
            Self::Store => f.write_str("STORE, such as `mem:1G` or `file:disk.img?size=10G`"),
            Self::Flag => f.write_str("`true` or `false`"),
            Self::OneOf(words) => {
                for (position, word) in words.iter().enumerate() {
                    let joint = match position {
                        0 => "",
                        _ if position + 1 == words.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{joint}`\"{word}\"`")?;
                }
                Ok(())
            }
            Self::Number { min, max } => write!(f, "number, {min} to {max}"),
            Self::Bytes { min, max } => {
                write!(
                    f,
                    "bytes or size, {} to {}",
                    size_text(*min),
                    size_text(*max)
                )
            }
        }
    }
}

impl Key {
    /// What holds when the key is left out, in words.
    pub fn default_text(&self) -> String {
        match (self.default, self.form) {
            (Fallback::Required, _) => "required".to_owned(),
            (Fallback::Words(words), _) => words.to_owned(),
            (Fallback::Value(value), _) => format!("`{value}`"),
            (Fallback::Number(number), Form::Bytes { .. }) => {
                format!("`\"{}\"`", size_text(number))
            }
            (Fallback::Number(number), _) => format!("`{number}`"),
        }
    }
}

/// A number of bytes with the largest suffix that leaves no rest.
pub fn size_text(bytes: u64) -> String {
    [("T", 40), ("G", 30), ("M", 20), ("k", 10)]
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(
            || bytes.to_string(),
            |(suffix, shift)| format!("{}{suffix}", bytes >> shift),
        )
}

/// The reference of all keys in Markdown, as it stands in `docs/reference/configuration.md`.
pub fn reference() -> String {
    SECTIONS.iter().map(SectionKeys::to_string).collect()
}

impl SectionKeys {
    /// Whether it is about the process rather than about one of the things it serves.
    fn is_process(&self) -> bool {
        let sections = [
            SECTION_SERVER,
            SECTION_LIMITS,
            SECTION_ADMIN,
            SECTION_CONFINE,
        ];
        sections.iter().any(|each| each.heading == self.heading)
    }
}

impl fmt::Display for SectionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            heading,
            meaning,
            keys,
            example: _,
        } = self;
        let heading = if heading.starts_with('[') {
            format!("`{heading}`")
        } else {
            (*heading).to_owned()
        };
        writeln!(f, "### {heading}\n\n{meaning}\n")?;
        let is_process = self.is_process();
        let (title, rule) = if is_process {
            (" A new value takes effect |", "---|")
        } else {
            ("", "")
        };
        writeln!(
            f,
            "| Key | Takes | If left out | What it does | Set it |{title}"
        )?;
        writeln!(f, "|---|---|---|---|---|{rule}")?;
        for key in *keys {
            write!(
                f,
                "| `{}` | {} | {} | {} | {} |",
                key.name,
                key.form,
                key.default_text(),
                key.meaning,
                key.set_it
            )?;
            if is_process {
                write!(f, " {} |", Effective::of(self, key.name))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_size;

    #[test]
    fn what_needs_no_restart_is_a_key() {
        for (section, name, _) in WITHOUT_RESTART {
            let mut keys = section.keys.iter();
            assert!(keys.any(|key| key.name == *name), "{name}");
        }
    }

    #[test]
    fn a_size_text_reads_back_as_the_same_number() {
        for (bytes, text) in [
            (1, "1"),
            (512, "512"),
            (1024, "1k"),
            (1536, "1536"),
            (1 << 20, "1M"),
            (3 << 29, "1536M"),
            (1 << 50, "1024T"),
        ] {
            assert_eq!(size_text(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
    }
}
