//! Tests of the stores as their users see them.

mod conformance;
mod file;
mod layers;
mod open;
