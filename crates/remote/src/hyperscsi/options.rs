//! Where a device is, and how it is reached.

use std::fmt;
use std::time::Duration;

use hyperscsi::{Level, Secret};

use super::wire::Carrier;

/// A password, which no log shows.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Password(Secret);

impl Password {
    /// Of these bytes. A group without password has the empty one.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Secret::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// What to open and how.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HyperscsiOptions {
    /// What carries frames.
    pub carrier: Carrier,
    /// The group.
    pub group: String,
    /// The name of the device, or its place in the table of its server, from 1.
    pub device: String,
    /// The server, if several have such a device.
    pub server: Option<String>,
    /// Whose password it is, if it is not that of the group.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
    /// At least this level of protection; `None`: what the server asks for.
    pub level: Option<Level>,
    /// How long requests wait for a server that does not answer before they fail. Zero: they fail at once.
    pub retry: Duration,
    /// Refuse all writes.
    pub read_only: bool,
    /// Unmapped blocks release their space, if the device can do that.
    pub thin: bool,
    /// Logical block length, 512 or 4096.
    pub block_bytes: u32,
}

impl fmt::Display for HyperscsiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let carrier = &self.carrier;
        let (group, device) = (self.group.escape_debug(), self.device.escape_debug());
        let server = self.server.as_ref();
        let server = server.map_or_else(String::new, |server| format!(" of server {server:?}"));
        write!(f, "hyperscsi://{group}/{device}{server} by {carrier}")
    }
}
