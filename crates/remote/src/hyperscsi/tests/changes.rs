//! The device becomes another one than it was found to be.

use super::*;
use crate::scsi::testing::{Medium, changes};

changes::tests!("device of this name is another one now");
