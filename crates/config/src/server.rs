//! `[server]`: the process itself.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use crate::error::At as _;
use crate::fields::read_u16;
use crate::keys::SECTION_SERVER;
use crate::names::Names;
use crate::reader::Section;
use crate::words::words;
use crate::{ConfigError, UserIndex};

/// The process itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Server {
    /// State directory; `None` leaves it to the binary, which knows the user.
    pub state: Option<PathBuf>,
    /// Cores to work on; `None` is as many as the process may use.
    pub cores: Option<NonZeroU16>,
    /// Microseconds a core looks for more work before it sleeps.
    pub busy_poll_us: u32,
    /// Whether answers wait for further ones, to go in one send.
    pub coalescing: Coalescing,
    /// How much to log; `None` leaves it to the binary.
    pub log: Option<LogLevel>,
    /// The users that may open discovery sessions; empty: all, without CHAP.
    pub discovery_auth: Vec<UserIndex>,
}

words! {
    /// Whether answers wait for further ones, to go in one send.
    #[derive(Default)]
    Coalescing {
        /// Never.
        Off = "off",
        /// While further commands of the same connection are there already.
        #[default]
        Adaptive = "adaptive",
        /// Always, for a moment.
        Always = "always",
    }
    "off, adaptive or always"
}

words! {
    /// How much to log.
    LogLevel {
        /// Nothing.
        Off = "off",
        /// Someone's request did not happen.
        Error = "error",
        /// Odd things too.
        Warn = "warn",
        /// Rare changes of state too.
        Info = "info",
        /// Commands too.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
    "off, error, warn, info, debug or trace"
}

pub(crate) fn read_server(
    top: &Section<'_>,
    directory: &Path,
    users: &Names<'_>,
) -> Result<Server, ConfigError> {
    let Some(section) = top.section("server", SECTION_SERVER)? else {
        return Ok(Server::default());
    };
    Ok(Server {
        state: match section.field("state") {
            Some(field) => Some(directory.join(field.text()?)),
            None => None,
        },
        cores: match section.field("cores") {
            Some(field) => NonZeroU16::new(read_u16(&field, 1, 1024)?),
            None => None,
        },
        busy_poll_us: match section.field("busy_poll_us") {
            Some(field) => u32::from(read_u16(&field, 0, 10_000)?),
            None => 0,
        },
        coalescing: match section.field("coalescing") {
            Some(field) => Coalescing::parse(field.text()?).at(|| field.place())?,
            None => Coalescing::default(),
        },
        log: match section.field("log") {
            Some(field) => Some(LogLevel::parse(field.text()?).at(|| field.place())?),
            None => None,
        },
        discovery_auth: users.find_all(section.field("discovery_auth"), UserIndex)?,
    })
}
