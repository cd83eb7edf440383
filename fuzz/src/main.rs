//! Replays the corpus, then tries new inputs made of it for some time.
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::cell::RefCell;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use fuzz::allocation::{Counting, peak_of};
use fuzz::mutate::mutate;
use fuzz::prng::Prng;
use fuzz::{TARGETS, Target, corpus, seeds, target_by_name};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many inputs of the run itself are kept to make others of.
const RECENT_MAX: usize = 64;
/// Tries to make a failing input shorter.
const SHORTEN_TRIES_MAX: usize = 2000;

thread_local! {
    /// What the last panic said, and where.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Any bytes into every parser and machine that a peer can reach
#[derive(Debug, Parser)]
struct Arguments {
    /// How long to try new inputs, all targets together; 0 only replays the corpus
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Try so many new inputs for each target instead, however long that takes
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    inputs: Option<u64>,
    /// Only this target (may be repeated)
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<String>,
    /// Where the corpus is, with one folder for each target
    #[arg(long, value_name = "DIR", default_value_os_t = corpus())]
    corpus: PathBuf,
    /// Equal seeds give equal inputs
    #[arg(long, value_name = "N", default_value_t = 0x7461_726e, value_parser = number)]
    seed: u64,
    /// Run this one input (with one --target)
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write the first inputs into the corpus again
    #[arg(long)]
    write_seeds: bool,
    /// Where an input that fails is written
    #[arg(long, value_name = "DIR", default_value = "fuzz/failures")]
    failures: PathBuf,
}

/// A number as people write it, and as this program prints seeds.
fn number(text: &str) -> Result<u64, String> {
    let hex = text.strip_prefix("0x");
    let read = hex.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    read.map_err(|_| "a whole number up to 2^64 - 1 is expected, as 42 or 0x2a".to_owned())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let targets = chosen(&arguments.targets)?;
    if arguments.write_seeds {
        return write_seeds(&targets, &arguments.corpus);
    }
    if let Some(path) = &arguments.input {
        let [target] = targets[..] else {
            bail!("--input needs one --target")
        };
        let input = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        // Not caught: the panic reports the whole failure.
        let peak = peak_of(|| (target.run)(&input));
        println!(
            "{}: {} bytes are fine, {peak} bytes of heap",
            target.name,
            input.len()
        );
        return Ok(());
    }
    panic::set_hook(Box::new(|info| {
        LAST_PANIC.with(|last| *last.borrow_mut() = info.to_string());
    }));
    println!("seed {:#x}", arguments.seed);
    let count = u32::try_from(targets.len().max(1))?;
    let each = Duration::from_secs(arguments.seconds) / count;
    let limit = arguments.inputs.map_or(Limit::Time(each), Limit::Inputs);
    for target in targets {
        Runner::new(target, &arguments)?.run(limit)?;
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    let find = |name: &String| {
        target_by_name(name)
            .with_context(|| format!("no target {name:?}, there are {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

fn write_seeds(targets: &[&Target], corpus: &Path) -> Result<()> {
    for target in targets {
        let folder = corpus.join(target.name);
        fs::create_dir_all(&folder)?;
        for (name, content) in seeds::of(target.name) {
            fs::write(folder.join(name), content)?;
        }
    }
    Ok(())
}

/// The whole of one target's corpus, in the order of names.
fn load(folder: &Path) -> Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("no corpus in {}", folder.display()))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    paths.iter().map(|path| Ok(fs::read(path)?)).collect()
}

/// When a target has been tried enough.
#[derive(Clone, Copy)]
enum Limit {
    Time(Duration),
    Inputs(u64),
}

impl Limit {
    fn is_reached(self, start: Instant, tried: u64) -> bool {
        match self {
            Self::Time(time) => start.elapsed() >= time,
            Self::Inputs(inputs) => tried >= inputs,
        }
    }
}

struct Runner {
    target: &'static Target,
    corpus: Vec<Vec<u8>>,
    recent: Vec<Vec<u8>>,
    prng: Prng,
    peak: usize,
    failures: PathBuf,
}

impl Runner {
    fn new(target: &'static Target, arguments: &Arguments) -> Result<Self> {
        let corpus = load(&arguments.corpus.join(target.name))?;
        if corpus.is_empty() {
            bail!("the corpus of {} is empty", target.name);
        }
        Ok(Self {
            target,
            corpus,
            recent: Vec::new(),
            prng: Prng::new(arguments.seed),
            peak: 0,
            failures: arguments.failures.clone(),
        })
    }

    fn run(mut self, limit: Limit) -> Result<()> {
        let start = Instant::now();
        for input in self.corpus.clone() {
            self.try_input(&input)?;
        }
        let mut tried: u64 = 0;
        while !limit.is_reached(start, tried) {
            let input = self.next_input();
            self.try_input(&input)?;
            tried += 1;
        }
        println!(
            "{:10} {:4} of the corpus, {tried:9} new in {:5.1} s, {:5} KiB of heap at most",
            self.target.name,
            self.corpus.len(),
            start.elapsed().as_secs_f64(),
            self.peak / 1024,
        );
        Ok(())
    }

    /// Mostly of the corpus, sometimes of what was made of it before.
    fn next_input(&mut self) -> Vec<u8> {
        let prng = &mut self.prng;
        let pool = if self.recent.is_empty() || prng.below(4) > 0 {
            &self.corpus
        } else {
            &self.recent
        };
        let input = &pool[prng.below(pool.len())];
        let other = &self.corpus[prng.below(self.corpus.len())];
        let next = mutate(prng, input, other, self.target.input_bytes_max);
        if self.recent.len() < RECENT_MAX {
            self.recent.push(next.clone());
        } else {
            self.recent[prng.below(RECENT_MAX)].clone_from(&next);
        }
        next
    }

    fn try_input(&mut self, input: &[u8]) -> Result<()> {
        let Err(message) = self.outcome(input) else {
            return Ok(());
        };
        let short = self.shorten(input);
        fs::create_dir_all(&self.failures)?;
        let sum = short.iter().fold(0_u64, |sum, &byte| {
            sum.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte)
        });
        let path = self
            .failures
            .join(format!("{}-{sum:016x}", self.target.name));
        fs::write(&path, &short)?;
        let (name, path) = (self.target.name, path.display());
        bail!(
            "{name} failed: {message}\n{} of {} bytes are enough; run them again with\n    \
             cargo run -p fuzz --profile quick -- --target {name} --input {path}",
            short.len(),
            input.len(),
        )
    }

    /// What is wrong with an input, if anything is.
    fn outcome(&mut self, input: &[u8]) -> Result<(), String> {
        let run = self.target.run;
        let mut caught = Ok(());
        let peak = peak_of(|| caught = panic::catch_unwind(AssertUnwindSafe(|| run(input))));
        if caught.is_err() {
            return Err(LAST_PANIC.with(RefCell::take));
        }
        self.peak = self.peak.max(peak);
        let limit = self.target.heap_bytes_max;
        if peak > limit {
            return Err(format!("{peak} bytes of heap, the limit is {limit}"));
        }
        Ok(())
    }

    /// Leaves out what is not needed for a failure, whichever it is.
    fn shorten(&mut self, input: &[u8]) -> Vec<u8> {
        let mut short = input.to_vec();
        let mut piece = short.len() / 2;
        let mut tries = 0;
        while piece > 0 {
            let mut at = 0;
            while at < short.len() && tries < SHORTEN_TRIES_MAX {
                tries += 1;
                let mut less = short.clone();
                less.drain(at..(at + piece).min(short.len()));
                if self.outcome(&less).is_err() {
                    short = less;
                } else {
                    at += piece;
                }
            }
            piece /= 2;
        }
        short
    }
}
