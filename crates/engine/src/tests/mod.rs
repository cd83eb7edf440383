//! What one core does, and several do together, by claim.

mod abort;
mod bench;
mod cdb;
mod change;
mod disk;
mod execute;
mod fence;
mod flush;
mod grant;
mod management;
mod outside;
mod refusal;
mod room;
