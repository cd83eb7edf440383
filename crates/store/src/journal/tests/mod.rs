//! Tests of the format, of reading what a crash has left, and of a world of cores and disks that crash.

mod disk;
mod form;
mod world;
