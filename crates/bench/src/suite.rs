//! Named sets of points, and figures that others published of theirs.

use crate::result::{Metric, PointResult};
use crate::workload::{Access, Point, Sweep};

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;
/// Of mixed points; no suite has any.
const READ_PERCENT: u8 = 70;

/// A named set of points.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Suite {
    /// A first look: small random and large sequential I/Os.
    Quick,
    /// What distinguishes targets: small I/Os over depths, many sessions, large I/Os.
    Compare,
    /// The points of [`PUBLISHED`].
    Papers,
    /// Every access over the block sizes and depths that disk testers go through.
    Full,
}

impl Suite {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Quick, Self::Compare, Self::Papers, Self::Full];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Compare => "compare",
            Self::Papers => "papers",
            Self::Full => "full",
        }
    }

    /// The suite of a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.name() == text)
    }

    /// Its points, each once.
    #[must_use]
    pub fn points(self) -> Vec<Point> {
        match self {
            Self::Quick => QUICK.iter().flat_map(|row| row.sweep().points()).collect(),
            Self::Compare => COMPARE
                .iter()
                .flat_map(|row| row.sweep().points())
                .collect(),
            Self::Papers => {
                let mut points: Vec<Point> = Vec::new();
                for published in PUBLISHED {
                    if !points.contains(&published.point) {
                        points.push(published.point);
                    }
                }
                points
            }
            Self::Full => FULL.iter().flat_map(|row| row.sweep().points()).collect(),
        }
    }
}

/// Lists of a suite.
struct Row {
    accesses: &'static [Access],
    block_bytes: &'static [u32],
    sessions: u32,
    depths: &'static [u32],
}

impl Row {
    fn sweep(&self) -> Sweep {
        Sweep {
            accesses: self.accesses.to_vec(),
            block_bytes: self.block_bytes.to_vec(),
            sessions: vec![self.sessions],
            depths: self.depths.to_vec(),
            read_percent: READ_PERCENT,
        }
    }
}

const QUICK: &[Row] = &[
    Row {
        accesses: &[Access::RandRead, Access::RandWrite],
        block_bytes: &[4 * KIB],
        sessions: 1,
        depths: &[1, 32],
    },
    Row {
        accesses: &[Access::Read, Access::Write],
        block_bytes: &[MIB],
        sessions: 1,
        depths: &[8],
    },
];

#[rustfmt::skip]
const COMPARE: &[Row] = &[
    Row { accesses: &[Access::RandRead], block_bytes: &[512, 4 * KIB], sessions: 1, depths: &[1, 32, 128] },
    Row { accesses: &[Access::RandWrite], block_bytes: &[4 * KIB], sessions: 1, depths: &[1, 32, 128] },
    Row { accesses: &[Access::RandRead, Access::RandWrite], block_bytes: &[8 * KIB], sessions: 10, depths: &[10] },
    Row { accesses: &[Access::Read, Access::Write], block_bytes: &[64 * KIB, MIB], sessions: 1, depths: &[8] },
];

const FULL: &[Row] = &[Row {
    accesses: &[
        Access::RandRead,
        Access::RandWrite,
        Access::Read,
        Access::Write,
    ],
    block_bytes: &[512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB],
    sessions: 1,
    depths: &[1, 4, 8, 16, 32],
}];

/// A figure that somebody published.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Who measured what.
    pub source: &'static str,
    /// When.
    pub year: u16,
    /// On what, in a few words.
    pub hardware: &'static str,
    /// Which target, and what else sets the row apart.
    pub target: &'static str,
    /// The point here that comes closest.
    pub point: Point,
    /// [`Metric::Iops`] or [`Metric::Throughput`].
    pub metric: Metric,
    /// The figure.
    pub figure: f64,
}

/// A published figure, and what was measured at its point.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The figure.
    pub row: &'static Published,
    /// What was measured.
    pub result: &'a PointResult,
}

/// What of these results stands beside a published figure, in the order of [`PUBLISHED`].
#[must_use]
pub fn beside(results: &[PointResult]) -> Vec<Beside<'_>> {
    let rows = PUBLISHED.iter().filter_map(|row| {
        let result = results.iter().find(|result| result.point == row.point)?;
        Some(Beside { row, result })
    });
    rows.collect()
}

/// What is to be said in front of published figures.
pub const PUBLISHED_PREFACE: &str = "\
The machines, the networks and sometimes the tools differ, by up to two decades: this is history,
not a contest. Depths that a source does not state are ours.";

const SCST: &str = "Linux kernel list, SCST against STGT";
const COMSTAR: &str = "Bourbonnais, COMSTAR against a user daemon";
const USERMODE: &str = "SCST Usermode Adaptation";
const INFN: &str = "INFN, iSCSI first experiences";
const DSI: &str = "Khoo, Wang, Yeo, Ethernet-based network storage";
const FAST_ETHERNET: &str = "Fast Ethernet";
const GIGABIT: &str = "1 GbE";
const IPOIB: &str = "IP over InfiniBand, 8 Gb/s";
const TEN_GIGABIT: &str = "10 GbE, 16 cores, 10 clients x 10 threads";
const ONE_CPU: &str = "1 GbE, one CPU of 2.4 GHz";
const FILER_HBA: &str = "NetApp FAS3020C, 1 GbE, iSCSI adapter";
const FILER_SOFTWARE: &str = "NetApp FAS3020C, 1 GbE, software initiator";

/// Depths and orders of access that a source does not give are ours.
#[rustfmt::skip]
pub const PUBLISHED: &[Published] = &[
    megabytes(SCST, 2008, GIGABIT, "STGT", read(512, 32), 77.0),
    megabytes(SCST, 2008, GIGABIT, "SCST", read(512, 32), 78.0),
    megabytes(SCST, 2008, IPOIB, "STGT", read(512, 32), 163.0),
    megabytes(SCST, 2008, IPOIB, "SCST", read(512, 32), 185.0),
    megabytes(SCST, 2008, GIGABIT, "STGT", read(MIB, 8), 77.0),
    megabytes(SCST, 2008, GIGABIT, "SCST", read(MIB, 8), 89.0),
    megabytes(SCST, 2008, IPOIB, "STGT", read(MIB, 8), 201.0),
    megabytes(SCST, 2008, IPOIB, "SCST", read(MIB, 8), 239.0),
    rate(COMSTAR, 2009, TEN_GIGABIT, "user daemon", TEN_READERS, 31_000.0),
    rate(COMSTAR, 2009, TEN_GIGABIT, "COMSTAR", TEN_READERS, 85_000.0),
    megabytes(COMSTAR, 2009, TEN_GIGABIT, "user daemon", TEN_WRITERS, 88.0),
    megabytes(COMSTAR, 2009, TEN_GIGABIT, "COMSTAR", TEN_WRITERS, 130.0),
    rate(USERMODE, 2017, ONE_CPU, "plain", random_read(512, 16), 63_000.0),
    rate(USERMODE, 2017, ONE_CPU, "adaptive Nagle", random_read(512, 64), 100_000.0),
    megabytes(INFN, 2006, FILER_HBA, "MTU 1500", read(64 * KIB, 1), 70.89),
    megabytes(INFN, 2006, FILER_HBA, "MTU 9000", read(64 * KIB, 1), 53.34),
    megabytes(INFN, 2006, FILER_SOFTWARE, "MTU 1500", read(64 * KIB, 1), 58.75),
    megabytes(INFN, 2006, FILER_SOFTWARE, "MTU 9000", read(64 * KIB, 1), 50.81),
    megabytes(INFN, 2006, FILER_HBA, "MTU 1500", write(64 * KIB, 1), 67.41),
    megabytes(INFN, 2006, FILER_HBA, "MTU 9000", write(64 * KIB, 1), 71.78),
    megabytes(INFN, 2006, FILER_SOFTWARE, "MTU 1500", write(64 * KIB, 1), 60.22),
    megabytes(INFN, 2006, FILER_SOFTWARE, "MTU 9000", write(64 * KIB, 1), 61.17),
    megabytes(DSI, 2002, FAST_ETHERNET, "HyperSCSI, 99.5 % of what frames carry", read(64 * KIB, 8), 12.11),
    megabytes(DSI, 2002, GIGABIT, "HyperSCSI, RAID0 of 8, more than", read(MIB, 8), 100.0),
];

const TEN_READERS: Point = point(Access::RandRead, 8 * KIB, 10, 10);
const TEN_WRITERS: Point = point(Access::RandWrite, 8 * KIB, 10, 10);

const fn point(access: Access, block_bytes: u32, depth: u32, sessions: u32) -> Point {
    Point {
        access,
        block_bytes,
        depth,
        sessions,
        read_percent: READ_PERCENT,
    }
}

const fn read(block_bytes: u32, depth: u32) -> Point {
    point(Access::Read, block_bytes, depth, 1)
}

const fn write(block_bytes: u32, depth: u32) -> Point {
    point(Access::Write, block_bytes, depth, 1)
}

const fn random_read(block_bytes: u32, depth: u32) -> Point {
    point(Access::RandRead, block_bytes, depth, 1)
}

const fn megabytes(
    source: &'static str,
    year: u16,
    hardware: &'static str,
    target: &'static str,
    point: Point,
    figure: f64,
) -> Published {
    Published {
        source,
        year,
        hardware,
        target,
        point,
        metric: Metric::Throughput,
        figure,
    }
}

const fn rate(
    source: &'static str,
    year: u16,
    hardware: &'static str,
    target: &'static str,
    point: Point,
    figure: f64,
) -> Published {
    Published {
        metric: Metric::Iops,
        ..megabytes(source, year, hardware, target, point, figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::IN_FLIGHT_BYTES_MAX;

    #[test]
    fn names_lead_back_and_points_can_be_measured_and_come_once() {
        for suite in Suite::ALL {
            assert_eq!(Suite::parse(suite.name()), Some(suite));
            let points = suite.points();
            assert!(!points.is_empty());
            for (n, point) in points.iter().enumerate() {
                assert!(point.in_flight_bytes() <= IN_FLIGHT_BYTES_MAX, "{point}");
                assert!(!points[n + 1..].contains(point), "{point} twice");
            }
        }
    }

    #[test]
    fn every_published_figure_is_in_the_suite() {
        let points = Suite::Papers.points();
        assert!(PUBLISHED.iter().all(|row| points.contains(&row.point)));
    }
}
