//! What is asked of a target: the points of a sweep. Knows no transport.

use std::fmt;

/// Smallest block of one I/O in bytes.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// Largest block of one I/O in bytes.
pub const BLOCK_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// Largest queue depth of one session.
pub const DEPTH_MAX: u32 = 1024;
/// Most sessions of one point.
pub const SESSIONS_MAX: u32 = 256;
/// Most bytes that a point may have under way in all sessions: what the generator holds in
/// memory.
pub const IN_FLIGHT_BYTES_MAX: u64 = 1 << 30;

/// In which order blocks are touched, and whether they are read or written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// One block after the other.
    Read,
    /// One block after the other.
    Write,
    /// Blocks drawn evenly.
    RandRead,
    /// Blocks drawn evenly.
    RandWrite,
    /// Blocks drawn evenly, some read and some written.
    Mixed,
}

impl Access {
    /// All of them, in the order of the help.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::RandRead,
        Self::RandWrite,
        Self::Mixed,
    ];

    /// As on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Mixed => "mixed",
        }
    }

    /// The access of a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|access| access.name() == text)
    }

    /// True when data on the target is overwritten.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::Write | Self::RandWrite | Self::Mixed => true,
            Self::Read | Self::RandRead => false,
        }
    }

    /// True when blocks are drawn rather than taken one after the other.
    #[must_use]
    pub const fn is_random(self) -> bool {
        match self {
            Self::RandRead | Self::RandWrite | Self::Mixed => true,
            Self::Read | Self::Write => false,
        }
    }
}

/// One point of a sweep.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Point {
    /// What is done.
    pub access: Access,
    /// Bytes of one I/O.
    pub block_bytes: u32,
    /// I/Os under way in each session.
    pub depth: u32,
    /// Sessions, each on a connection of its own.
    pub sessions: u32,
    /// How many of 100 I/Os of [`Access::Mixed`] are reads.
    pub read_percent: u8,
}

impl Point {
    /// Bytes under way in all sessions together.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.depth) * u64::from(self.sessions)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (access, size) = (self.access.name(), Size(self.block_bytes.into()));
        write!(f, "{access} {size}, depth {}", self.depth)?;
        if self.sessions != 1 {
            write!(f, ", {} sessions", self.sessions)?;
        }
        if self.access == Access::Mixed {
            write!(f, ", {} % reads", self.read_percent)?;
        }
        Ok(())
    }
}

/// A number of bytes as people read it: in the largest binary unit that divides it.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = UNITS
            .iter()
            .find(|(shift, _)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match unit {
            Some((shift, name)) => write!(f, "{} {name}", self.0 >> shift),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Lists whose combinations are points.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What is done.
    pub accesses: Vec<Access>,
    /// Bytes of one I/O.
    pub block_bytes: Vec<u32>,
    /// Sessions.
    pub sessions: Vec<u32>,
    /// I/Os under way in each session.
    pub depths: Vec<u32>,
    /// Reads of 100 I/Os of mixed points.
    pub read_percent: u8,
}

impl Sweep {
    /// Every combination; the depth changes fastest, as it makes the curves.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &access in &self.accesses {
            for &block_bytes in &self.block_bytes {
                for &sessions in &self.sessions {
                    points.extend(self.depths.iter().map(|&depth| Point {
                        access,
                        block_bytes,
                        depth,
                        sessions,
                        read_percent: self.read_percent,
                    }));
                }
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_has_every_combination_once() {
        let sweep = Sweep {
            accesses: vec![Access::Read, Access::Mixed],
            block_bytes: vec![512, 4096, 1 << 20],
            sessions: vec![1, 4],
            depths: vec![1, 32],
            read_percent: 70,
        };
        let points = sweep.points();
        assert_eq!(points.len(), 2 * 3 * 2 * 2);
        for (n, point) in points.iter().enumerate() {
            assert!(!points[n + 1..].contains(point), "{point} twice");
        }
        assert_eq!(points[0].to_string(), "read 512 B, depth 1");
        let last = points.last().unwrap().to_string();
        assert_eq!(last, "mixed 1 MiB, depth 32, 4 sessions, 70 % reads");
    }

    #[test]
    fn names_lead_back_to_the_access() {
        for access in Access::ALL {
            assert_eq!(Access::parse(access.name()), Some(access));
        }
        assert_eq!(Access::parse("trim"), None);
    }
}
