//! The list of all keys of the configuration file: the one place that says which there are.
//!
//! The reader refuses what is not listed here, and `docs/reference/configuration.md` is compared with it by a
//! test, so that neither can know a key that the other does not.

use std::fmt;

mod form;
mod pattern;
mod sections;

pub use self::form::{Fallback, Form, Key, SectionKeys, size_text};
pub(crate) use self::pattern::SIZE;
pub use self::sections::SECTIONS;
pub(crate) use self::sections::{
    DAILY_MAX, HISTORY_DEFAULT, HISTORY_MAX, HOURLY_MAX, SECTION_GROUP, SECTION_HYPERSCSI,
    SECTION_HYPERSCSI_DEVICE, SECTION_HYPERSCSI_GROUP, SECTION_MUTUAL, SECTION_NOTIFY,
    SECTION_PORTAL, SECTION_SCHEDULE, SECTION_STORE, SECTION_TARGET_LUN, SECTION_TOP, SECTION_USER,
    WEEKLY_MAX,
};
pub use self::sections::{
    SECTION_ADMIN, SECTION_CONFINE, SECTION_LIMITS, SECTION_LUN, SECTION_NBD, SECTION_QUOTA,
    SECTION_SERVER, SECTION_TARGET,
};

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

    #[test]
    fn what_needs_no_restart_is_a_key() {
        for (section, name, _) in WITHOUT_RESTART {
            let mut keys = section.keys.iter();
            assert!(keys.any(|key| key.name == *name), "{name}");
        }
    }
}
