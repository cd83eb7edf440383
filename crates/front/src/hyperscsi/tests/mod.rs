//! Sequences of clients, on one core.

mod bench;
mod changes;
mod commands;
mod sessions;
