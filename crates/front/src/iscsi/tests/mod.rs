//! Sessions of one core, from a login to the last task.

mod bench;
mod discovery;
mod ends;
mod grants;
mod logins;
mod output;
mod rules;
mod shares;
