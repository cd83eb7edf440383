//! `tarn top`

use std::cmp::Ordering;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use api::stats::Stats;
use clap::{Args, ValueEnum};
use client::path;

use super::api_session::ApiSession;
use super::exit::Exit;
use super::rates::{Key, Rate, rates};
use super::remote::Ask;
use super::screen::Screen;
use super::table::{Column, figures, table, words};
use super::{Outcome, human};

const AFTER_HELP: &str = "\
On a terminal, keys select the column to sort by: [n]ame, [i]ops, [r]ead, [w]ritten, [m]ean, [p]99,
[d]epth, [e]rrors; q quits. If the output is not a terminal, the tables follow each other.

Examples:
  tarn top
  tarn top --by pair --sort p99 --count 1 --interval 10";

/// `tarn top`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Top {
    /// Seconds between tables. Use it for longer intervals.
    #[arg(long, short, value_name = "S", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// Number of tables. Use it in scripts. [default: until interrupted]
    #[arg(long, short, value_name = "N")]
    count: Option<u32>,
    /// Column to sort by. Use it to find the busiest or the slowest.
    #[arg(long, short, value_enum, default_value_t = Sort::Iops)]
    sort: Sort,
    /// What to sum up. Use it when there are many units or many initiators.
    #[arg(long, short, value_enum, default_value_t = By::Each)]
    by: By,
}

/// What to sort by.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Sort {
    /// The name.
    Name,
    /// Commands per second.
    Iops,
    /// Bytes read per second.
    Read,
    /// Bytes written per second.
    Written,
    /// Mean latency.
    Mean,
    /// Latency that 99 of 100 commands do not exceed.
    P99,
    /// Commands under way that wait.
    Depth,
    /// Commands that were not answered GOOD.
    Errors,
}

/// What to count together.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum By {
    /// A table of units and one of initiators.
    Each,
    /// Units.
    Lun,
    /// Initiators.
    Initiator,
    /// Each initiator at each unit.
    Pair,
}

const UNITS: (&str, Key) = ("lun", |series| series.lun.clone());
const INITIATORS: (&str, Key) = ("initiator", |series| series.initiator.clone());
const PAIRS: (&str, Key) = ("lun, initiator", |series| {
    format!("{}, {}", series.lun, series.initiator)
});

impl By {
    const fn tables(self) -> &'static [(&'static str, Key)] {
        match self {
            Self::Each => &[UNITS, INITIATORS],
            Self::Lun => &[UNITS],
            Self::Initiator => &[INITIATORS],
            Self::Pair => &[PAIRS],
        }
    }
}

/// The key that sorts by it.
const KEYS: [(u8, Sort); 8] = [
    (b'n', Sort::Name),
    (b'i', Sort::Iops),
    (b'r', Sort::Read),
    (b'w', Sort::Written),
    (b'm', Sort::Mean),
    (b'p', Sort::P99),
    (b'd', Sort::Depth),
    (b'e', Sort::Errors),
];

fn sorted_by(key: u8) -> Option<Sort> {
    let row = KEYS.iter().find(|(of, _)| *of == key);
    row.map(|(_, sort)| *sort)
}

const COLUMNS: [Column<Rate>; 7] = [
    figures("iops", |r| format!("{:.0}", r.iops)),
    figures("read", |r| human::throughput(r.read)),
    figures("written", |r| human::throughput(r.written)),
    figures("mean", |r| {
        r.mean_us.map(human::latency).unwrap_or_default()
    }),
    figures("p99", |r| {
        let bound = r.p99_us.map(|us| human::latency(us as f64));
        bound.unwrap_or_default()
    }),
    figures("depth", |r| r.depth.to_string()),
    figures("errors", |r| r.errors.to_string()),
];

impl Ask for Top {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let is_live = io::stdin().is_terminal() && io::stdout().is_terminal();
        let screen = (is_live && !api.output.is_json)
            .then(Screen::open)
            .transpose()?;
        let interval = Duration::from_secs(u64::from(self.interval));
        let mut sort = self.sort;
        let mut before = read(api)?.value;
        let mut due = Instant::now() + interval;
        let mut told = 0;
        while self.count.is_none_or(|count| told < count) {
            let Some(key) = wait(screen.as_ref(), due)? else {
                return Ok(Exit::Done);
            };
            sort = sorted_by(key).unwrap_or(sort);
            if Instant::now() < due {
                continue;
            }
            let answer = read(api)?;
            let text = self.tables(&before, &answer.value, sort);
            match &screen {
                Some(screen) => screen.draw(&text),
                None => api.output.print_line(&answer.json, || text),
            }
            (before, told) = (answer.value, told + 1);
            due = Instant::now() + interval;
        }
        Ok(Exit::Done)
    }
}

/// What stands for no key.
const NO_KEY: u8 = 0;

/// Waits for the time or for a key; `None` when it shall end.
fn wait(screen: Option<&Screen>, due: Instant) -> Result<Option<u8>, super::failure::Failure> {
    let rest = due.saturating_duration_since(Instant::now());
    match screen {
        Some(screen) => screen.key(rest),
        None => {
            sleep(rest);
            Ok(Some(NO_KEY))
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is no part of the data plane"
)]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

fn read(api: &ApiSession) -> Result<client::Answer<Stats>, super::failure::Failure> {
    api.get(&path(&["stats"]))
}

impl Top {
    fn tables(&self, before: &Stats, after: &Stats, sort: Sort) -> String {
        let head = format!(
            "{}  {}, {} since the start\n",
            human::moment(after.at_ms),
            human::count(u64::from(after.sessions), "session"),
            human::count(after.logins.succeeded, "login"),
        );
        let one = |(title, key): &(&'static str, Key)| {
            let mut rates = rates(before, after, *key);
            rates.sort_by(|a, b| order(sort, a, b));
            let columns: Vec<_> = std::iter::once(words(title, |r: &Rate| r.name.clone()))
                .chain(COLUMNS)
                .collect();
            format!("{}\n", table(&columns, &rates))
        };
        let tables: String = self.by.tables().iter().map(one).collect();
        format!("{head}{tables}")
    }
}

/// Names go up, figures down.
fn order(sort: Sort, a: &Rate, b: &Rate) -> Ordering {
    let mean = |rate: &Rate| rate.mean_us.unwrap_or(0.0);
    let by = match sort {
        Sort::Name => Ordering::Equal,
        Sort::Iops => b.iops.total_cmp(&a.iops),
        Sort::Read => b.read.cmp(&a.read),
        Sort::Written => b.written.cmp(&a.written),
        Sort::Mean => mean(b).total_cmp(&mean(a)),
        Sort::P99 => b.p99_us.cmp(&a.p99_us),
        Sort::Depth => b.depth.cmp(&a.depth),
        Sort::Errors => b.errors.cmp(&a.errors),
    };
    by.then_with(|| a.name.cmp(&b.name))
}

#[cfg(test)]
mod tests {
    use api::stats::{Operations, Series};

    use super::*;

    /// With figures that are greater the later the letter, but for some.
    fn rate(name: &str, iops: f64, depth: u64) -> Rate {
        let figure = u64::from(name.as_bytes()[0]);
        Rate {
            name: name.to_owned(),
            iops,
            read: figure,
            written: figure % 3,
            mean_us: (name != "b").then_some(figure as f64),
            p99_us: (name != "a").then_some(200 - figure),
            depth,
            errors: figure / 98,
        }
    }

    #[test]
    fn figures_go_down_and_names_up() {
        let rates = [rate("b", 5.0, 1), rate("a", 1.0, 9), rate("c", 5.0, 2)];
        for (key, expected) in [
            (b'n', "abc"),
            (b'i', "bca"),
            (b'r', "cba"),
            (b'w', "bac"),
            (b'm', "cab"),
            (b'p', "bca"),
            (b'd', "acb"),
            (b'e', "bca"),
        ] {
            let sort = sorted_by(key).unwrap();
            let mut sorted = rates.to_vec();
            sorted.sort_by(|a, b| order(sort, a, b));
            let names: String = sorted.iter().map(|rate| rate.name.as_str()).collect();
            assert_eq!(names, expected, "{sort:?}");
        }
        assert_eq!(sorted_by(NO_KEY), None);
    }

    fn stats(at_ms: u64, count: u64) -> Stats {
        let operations = |count| Operations {
            count,
            bytes: count * 1000,
            errors: 0,
            latency_us: count * 100,
            latency: vec![count],
        };
        let series = [("a", "x", 1), ("b", "x", 2), ("b", "y", 0)];
        let series = series.map(|(lun, initiator, times)| Series {
            lun: lun.to_owned(),
            initiator: initiator.to_owned(),
            depth: 1,
            slow: 0,
            read: operations(count * times),
            write: Operations::default(),
            other: Operations::default(),
        });
        Stats {
            at_ms,
            store_errors: Vec::new(),
            cores: Vec::new(),
            series: series.into(),
            logins: api::stats::Logins {
                succeeded: 1,
                ..api::stats::Logins::default()
            },
            sessions: 3,
            stores: Vec::new(),
        }
    }

    #[test]
    fn tables_are_of_what_is_counted_together() {
        let (before, after) = (stats(0, 0), stats(1000, 10));
        let bound = human::latency(api::stats::LATENCY_BOUNDS_US[0] as f64);
        let row = |name: &str, count: u64, depth: u64| match count {
            0 => format!("{name} 0 0 B/s 0 B/s {depth} 0\n"),
            _ => format!("{name} {count} {count} kB/s 0 B/s 100 µs {bound} {depth} 0\n"),
        };
        let title = |name: &str| format!("{name} IOPS READ WRITTEN MEAN P99 DEPTH ERRORS\n");
        let luns = [title("LUN"), row("b", 20, 2), row("a", 10, 1)].concat();
        let initiators = [title("INITIATOR"), row("x", 30, 2), row("y", 0, 1)].concat();
        let pairs = [
            title("LUN, INITIATOR"),
            row("b, x", 20, 1),
            row("a, x", 10, 1),
            row("b, y", 0, 1),
        ];
        for (by, expected) in [
            (By::Each, format!("{luns}\n{initiators}\n")),
            (By::Lun, format!("{luns}\n")),
            (By::Initiator, format!("{initiators}\n")),
            (By::Pair, format!("{}\n", pairs.concat())),
        ] {
            let top = Top {
                interval: 1,
                count: None,
                sort: Sort::Iops,
                by,
            };
            let text = top.tables(&before, &after, Sort::Iops);
            let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
            let squeezed: String = text.lines().map(line).collect();
            let head = "1970-01-01 00:00:01Z 3 sessions, 1 login since the start\n";
            assert_eq!(squeezed, format!("{head}{expected}"), "{by:?}");
        }
    }
}
