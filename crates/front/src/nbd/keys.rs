//! Names of connections.

use engine::table::Key;

use crate::iscsi::LoginKey;

/// What a [`ConnectionKey`] names.
#[derive(Debug)]
pub enum OfConnection {}

/// Names the connection of a session.
pub type ConnectionKey = Key<OfConnection>;

/// Names a handshake.
pub type HandshakeKey = LoginKey;
