//! The form of the figures in the state directory: a line with length and checksum, then numbers of variable length. A
//! step without a command takes three bytes.
//!
//! Files are read with suspicion although the checksum is right: it protects from damage, not from another version.

use std::io;
use std::path::Path;

use durable::Found;
use plane::LATENCY_BUCKETS;

use super::series::{FIGURES, Gain, LEVELS, Latency, Open, Point, Row, Series};
use super::{OfUnit, Past, UNITS_MAX};

/// What the first line begins with.
const MARK: &str = "# tarn figures 1, sum = ";

/// Longer than a file can be with all units and steps.
const BYTES_MAX: usize = 16 << 20;

/// Bytes of a name, at most: those of a NAA designator in digits.
const NAME_MAX: usize = 32;

/// Reads a file; none is nothing.
pub(super) fn read(path: &Path) -> io::Result<Past> {
    match durable::read_bytes(path)? {
        Found::Absent => Ok(Past::default()),
        Found::Damaged(damage) => Err(io::Error::other(damage.to_string())),
        Found::Whole(bytes) => open(&bytes)
            .ok_or_else(|| io::Error::other("it is cut off, changed, or of another version")),
    }
}

/// Replaces a file.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut whole = format!("{MARK}{}\n", durable::sum_of(content)).into_bytes();
    whole.extend_from_slice(content);
    durable::replace(path, &whole)
}

fn open(bytes: &[u8]) -> Option<Past> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    let sealed = bytes.strip_prefix(MARK.as_bytes())?;
    let end = sealed.iter().position(|&byte| byte == b'\n')?;
    let (sum, rest) = sealed.split_at_checked(end)?;
    let content = rest.split_first()?.1;
    let is_whole = sum == durable::sum_of(content).as_bytes();
    is_whole.then(|| decode(content)).flatten()
}

/// The figures as bytes.
pub(super) fn encode(past: &Past) -> Vec<u8> {
    let mut out = Vec::new();
    encode_series(&mut out, &past.all);
    put(&mut out, past.units.len() as u64);
    for (naa, unit) in &past.units {
        put(&mut out, naa.len() as u64);
        out.extend_from_slice(naa.as_bytes());
        put(&mut out, unit.active_ms);
        encode_series(&mut out, &unit.series);
    }
    out
}

fn encode_series(out: &mut Vec<u8>, series: &Series) {
    for row in &series.0 {
        put(out, u64::from(row.open.is_some()));
        if let Some(open) = &row.open {
            put(out, u64::from(open.step));
            put(out, open.passed_ms);
            let Latency(latency) = &open.gain.latency;
            let numbers = open.gain.numbers();
            numbers
                .iter()
                .chain(latency)
                .for_each(|&number| put(out, number));
        }
        put(out, row.points.len() as u64);
        let mut last = 0;
        for point in &row.points {
            put(out, u64::from(point.step.wrapping_sub(last)));
            last = point.step;
            // Which figures are there; the others are nothing.
            let there = |(at, figure): (usize, &u16)| u64::from(*figure != 0) << at;
            put(out, point.figures.iter().enumerate().map(there).sum());
            for figure in point.figures.iter().filter(|&&figure| figure != 0) {
                out.extend_from_slice(&figure.to_le_bytes());
            }
        }
    }
}

/// Seven bits in a byte, the lowest first; the eighth says that there are more.
fn put(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = (number & 0x7f).to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// A count that is not above a limit.
    fn count(&mut self, most: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= most).then_some(count)
    }
}

fn decode(content: &[u8]) -> Option<Past> {
    let mut rest = Rest(content);
    let mut past = Past {
        all: decode_series(&mut rest)?,
        ..Past::default()
    };
    for _ in 0..rest.count(UNITS_MAX)? {
        let length = rest.count(NAME_MAX)?;
        let naa = std::str::from_utf8(rest.take(length)?).ok()?.to_owned();
        let active_ms = rest.number()?;
        let series = decode_series(&mut rest)?;
        past.units.insert(naa, OfUnit { series, active_ms });
    }
    rest.0.is_empty().then_some(past)
}

fn decode_series(rest: &mut Rest<'_>) -> Option<Series> {
    let mut series = Series::default();
    for (row, level) in series.0.iter_mut().zip(&LEVELS) {
        *row = Row {
            open: match rest.number()? {
                0 => None,
                _ => Some(decode_open(rest)?),
            },
            points: std::collections::VecDeque::new(),
        };
        let mut step = 0_u32;
        for at in 0..rest.count(level.points_max as usize)? {
            let more = rest.small()?;
            // Steps rise.
            if at > 0 && more == 0 {
                return None;
            }
            step = step.checked_add(more)?;
            let figures = decode_figures(rest)?;
            row.points.push_back(Point { step, figures });
        }
    }
    Some(series)
}

fn decode_open(rest: &mut Rest<'_>) -> Option<Open> {
    let (step, passed_ms) = (rest.small()?, rest.number()?);
    let mut numbers = [0; Gain::NUMBERS];
    let mut latency = [0; LATENCY_BUCKETS];
    for number in numbers.iter_mut().chain(&mut latency) {
        *number = rest.number()?;
    }
    let gain = Gain::of_numbers(numbers, Latency(latency));
    Some(Open {
        step,
        passed_ms,
        gain,
    })
}

fn decode_figures(rest: &mut Rest<'_>) -> Option<[u16; FIGURES]> {
    let there = rest.number()?;
    if there >> FIGURES != 0 {
        return None;
    }
    let mut figures = [0; FIGURES];
    for (at, figure) in figures.iter_mut().enumerate() {
        if there >> at & 1 == 1 {
            *figure = u16::from_le_bytes(rest.take(2)?.try_into().ok()?);
        }
    }
    Some(figures)
}

#[cfg(test)]
mod tests {
    use durable::scratch::Scratch;

    use super::*;

    const STEP_MS: u64 = 10_000;
    const START_MS: u64 = 7_200_000 * 245_000;

    /// So many steps of an hour and more, with and without commands.
    fn past(steps: u64, units: usize) -> Past {
        let mut past = Past::default();
        for step in 1..=steps {
            let mut gain = Gain::default();
            // Every third step is idle.
            if !step.is_multiple_of(3) {
                gain.reads = step * 977;
                gain.write_bytes = (u64::MAX / 7).wrapping_mul(step);
                gain.latency.0[usize::try_from(step).unwrap() % LATENCY_BUCKETS] = step;
            }
            let of = (0..units).map(|unit| (format!("{unit:032x}"), gain.clone()));
            past.add(START_MS + step * STEP_MS, STEP_MS, &gain, &of.collect());
        }
        past
    }

    #[test]
    fn what_is_written_is_read_and_goes_on() {
        let scratch = Scratch::new();
        let path = scratch.path().join("figures");
        assert_eq!(read(&path).unwrap(), Past::default());
        for (steps, units) in [(0, 0), (1, 1), (1000, 3)] {
            let past = past(steps, units);
            write(&path, &encode(&past)).unwrap();
            assert_eq!(read(&path).unwrap(), past, "{steps} steps, {units} units");
        }
    }

    #[test]
    fn no_part_of_a_file_is_taken_for_a_file_and_no_other_content_panics() {
        let content = encode(&past(40, 2));
        for end in 0..content.len() {
            assert_eq!(decode(&content[..end]), None, "{end} bytes");
        }
        for at in 0..content.len() {
            let mut other = content.clone();
            other[at] ^= 0xff;
            // It may be other figures; it must not be more than the limits allow.
            if let Some(past) = decode(&other) {
                assert!(past.units.len() <= UNITS_MAX);
            }
        }
        let mut more = content;
        more.push(0);
        assert_eq!(decode(&more), None);
    }

    #[test]
    fn a_file_that_was_changed_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.path().join("figures");
        write(&path, &encode(&past(40, 1))).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(read(&path).is_err());
        std::fs::write(&path, "").unwrap();
        assert!(read(&path).is_err());
    }

    /// The promise of a few megabytes, with all units at work for all steps of the hour.
    #[test]
    fn the_largest_file_has_less_than_4_mib() {
        let past = past(1100, UNITS_MAX);
        let hour = encode(&past).len() / (UNITS_MAX + 1);
        let steps: u32 = LEVELS.iter().map(|level| level.points_max).sum();
        let of_all = hour * steps as usize / 360 * (UNITS_MAX + 1);
        assert!(of_all < 4 << 20, "{of_all} bytes");
    }
}
