//! Tests of the books, of the format, of reading what a crash has left, of what is done outside, and of a world of
//! cores and disks that crash.

mod books;
mod disk;
mod form;
#[cfg(target_os = "linux")]
mod outside;
mod world;
