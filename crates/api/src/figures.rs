//! What the main figures were: rates and latencies of the past, downsampled.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far back.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub enum Range {
    /// One hour, in steps of ten seconds.
    #[default]
    #[serde(rename = "1h")]
    Hour,
    /// A day, in steps of five minutes.
    #[serde(rename = "24h")]
    Day,
    /// Thirty days, in steps of two hours.
    #[serde(rename = "30d")]
    Month,
}

/// Figures of the past, of one unit or of all together. They are kept with three digits.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Figures {
    /// How far back.
    pub range: Range,
    /// What each point covers.
    pub step_ms: u64,
    /// The oldest first. A step in which Tarn did not run has none; nor has one before the first command of a unit.
    pub points: Vec<FigurePoint>,
}

/// The figures of one step: means over the time in it that Tarn ran.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct FigurePoint {
    /// When the step began. The last one may not be over yet.
    pub at_ms: u64,
    /// Reads per second.
    pub read_iops: f64,
    /// Writes per second.
    pub write_iops: f64,
    /// Other commands per second.
    pub other_iops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub write_bytes: f64,
    /// Reads and writes that were not answered GOOD, per second.
    pub errors: f64,
    /// The latency that half of the reads and writes did not exceed; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The same for 99 of 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Commands that waited for something.
    pub depth: f64,
    /// The part of the time that the cores had a processor, 0 to 1; only of all units together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
    /// Sessions; only of all units together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<f64>,
}
