//! What the routes do: ask the daemon, or have it change something.

pub(crate) mod configuration;
pub(crate) mod daemon;
pub(crate) mod edit;
pub(crate) mod live;
pub(crate) mod login;
pub(crate) mod media;
pub(crate) mod resources;
pub(crate) mod sections;
pub(crate) mod snapshots;
pub(crate) mod tokens;
pub(crate) mod traces;
