//! Results in forms that last: JSON for programs, a page of HTML for people.

pub mod html;
pub mod json;
mod plot;

use crate::host::Host;
use crate::result::PointResult;
use crate::suite::Beside;

/// Everything in a report.
#[derive(Debug)]
pub struct Report<'a> {
    /// Where the generator ran.
    pub host: &'a Host,
    /// What was measured.
    pub targets: &'a [TargetNote],
    /// What came of it.
    pub results: &'a [PointResult],
    /// What ended it early, in words.
    pub failure: Option<&'a str>,
    /// Every byte read was checked.
    pub is_verified: bool,
    /// Published figures to be shown beside the results.
    pub published: &'a [Beside<'a>],
}

/// A target in a report.
#[derive(Clone, Debug, Eq, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct TargetNote {
    /// What it is called.
    pub label: String,
    /// `iscsi`, `nbd` or `file`.
    pub transport: String,
    /// Host and port, or a path.
    pub place: String,
    /// Its process, if that was measured.
    pub pid: Option<u32>,
    /// The CPUs that this process may run on, as the kernel lists them (`0-3,8`).
    pub cpus: Option<String>,
}
