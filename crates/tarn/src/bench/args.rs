//! The command line of `tarn bench`: flags, their help, and how their lists are read.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use ::bench::suite::Suite;
use ::bench::transport::iscsi::INITIATOR_NAME;
use ::bench::workload::{Access, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, DEPTH_MAX, SESSIONS_MAX};
use clap::Args;
use iscsi::names::IscsiName;

const BENCH_HELP: &str = "\
URL is a target; NAME is what reports call it:
  [NAME=]iscsi://[user%password@]host[:port]/target-name/lun
  [NAME=]nbd://host[:port]/[export]
  [NAME=]nbd+unix:///[export]?socket=PATH
  [NAME=]hyperscsi://GROUP/DEVICE[?udp=HOST[:PORT]|interface=IF][&server=NAME][&level=LEVEL][&user=NAME]
  [NAME=][file:]PATH[?cache=direct]        a file or a block device
Write a % in a password as %25, or use --secret-file. IPv6 addresses stand in brackets.

Every combination of --rw, --bs, --sessions and --iodepth is a point. At each point the targets are
measured in turn, A B A B, --repeat times; later targets are compared with the first.
docs/guide/measuring.md explains every figure.

Examples:
  tarn bench iscsi://127.0.0.1/iqn.2026-11.example.tarn:demo/0
  tarn bench --rw randread --bs 4k --iodepth 1,4,16,64 ours=iscsi://h1/iqn.x/0 theirs=iscsi://h2/iqn.y/0
  tarn bench --verify --overwrite --runtime 60 iscsi://127.0.0.1/iqn.x/0";

/// `tarn bench`.
#[derive(Args, Clone, Debug)]
#[command(after_help = BENCH_HELP)]
pub struct BenchArgs {
    /// Targets to measure.
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,

    /// Kinds of load, separated by commas: read, write, randread, randwrite, mixed. Use it for
    /// other loads than random reads.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_access, default_value = "randread")]
    pub rw: Vec<Access>,

    /// Sizes of one I/O, 512 to 4m, separated by commas. Use it for other sizes than 4 KiB.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_block, default_value = "4k")]
    pub bs: Vec<u32>,

    /// Queue depths of each session, separated by commas. Use it to find the right depth.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "32",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    pub iodepth: Vec<u32>,

    /// Numbers of sessions, separated by commas; each has a connection of its own. Use it to model
    /// several initiators.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SESSIONS_MAX)))]
    pub sessions: Vec<u32>,

    /// A named set of loads: quick (a minute), papers (comparable to published figures), compare
    /// (what distinguishes targets) or full (half an hour). Use it instead of the four flags above.
    /// Without --overwrite its writes are left out.
    #[arg(long, value_name = "NAME", value_parser = parse_suite,
        conflicts_with_all = ["rw", "bs", "iodepth", "sessions", "verify"])]
    pub suite: Option<Suite>,

    /// Seconds of each measurement. Use it for steadier figures.
    #[arg(long, value_name = "S", value_parser = parse_runtime, default_value = "3")]
    pub runtime: Duration,

    /// Seconds of load before each measurement. Use it for targets that warm up slowly.
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0.5")]
    pub warmup: Duration,

    /// Rounds at each point: how often each target is measured. Use it to see smaller differences.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), default_value = "3")]
    pub repeat: u32,

    /// Write blocks that contain their own address, read them back, and check every byte. Use it to
    /// test that a target returns what was written. Implies --rw mixed.
    #[arg(long)]
    pub verify: bool,

    /// Allow the loss of the data on the targets. Use it for all loads that write.
    #[arg(long)]
    pub overwrite: bool,

    /// Percentage of reads in --rw mixed. Use it to model an application.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100), default_value = "70")]
    pub read_percent: u8,

    /// How much of each target to use, from its start. Use it to stay within a cache, or to exceed
    /// it. [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub span: Option<u64>,

    /// Require CRC32C over iSCSI headers. Use it to measure the cost.
    #[arg(long)]
    pub header_digest: bool,

    /// Require CRC32C over iSCSI data. Use it to measure the cost.
    #[arg(long)]
    pub data_digest: bool,

    /// Process of a target, to measure its CPU time; repeat the flag for each URL, in order, 0 for
    /// none. Use it for targets on this machine.
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,

    /// Generator threads at most; never more than sessions. Use it for targets that are faster than
    /// one core.
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZero<usize>,

    /// CPUs to pin the generator threads to, such as 1 or 2-3,6. Use it for steadier figures.
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<CpuList>,

    /// Write all results to this file as JSON. Use it in programs; docs/guide/measuring.md has the fields.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write an HTML page with curves and tables to this file. Use it to look at the results or to
    /// send them on; the page needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Where servers of HyperSCSI groups are asked, over UDP. Use it for URLs without udp=.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub udp: Option<String>,

    /// The interface on whose network servers of HyperSCSI groups are asked, by frames of Ethernet
    /// (CAP_NET_RAW). Use it for URLs without interface=.
    #[arg(long, value_name = "IF", conflicts_with = "udp")]
    pub interface: Option<String>,

    /// File with the password of HyperSCSI groups, chmod 600. Use it for URLs without
    /// password_file=; the variable TARN_PASSWORD does the same.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// InitiatorName for all iSCSI targets. Use it for targets that let only certain names in.
    #[arg(long, value_name = "NAME", value_parser = parse_initiator, default_value = INITIATOR_NAME)]
    pub initiator: String,

    /// CHAP name for all iSCSI targets that have none in their URL. Use it for targets that require
    /// CHAP.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// File with the CHAP secret of --user, chmod 600. Use it with --user; the variable
    /// TARN_BENCH_SECRET does the same.
    #[arg(long, value_name = "FILE", requires = "user")]
    pub secret_file: Option<PathBuf>,
}

/// CPU numbers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CpuList(pub Vec<usize>);

fn parse_initiator(text: &str) -> Result<String, String> {
    let name = IscsiName::parse(text).map_err(|error| error.to_string())?;
    Ok(name.to_string())
}

fn parse_access(text: &str) -> Result<Access, String> {
    let names = || Access::ALL.map(Access::name).join(", ");
    Access::parse(text).ok_or_else(|| format!("use one of {}", names()))
}

fn parse_suite(text: &str) -> Result<Suite, String> {
    let names = || Suite::ALL.map(Suite::name).join(", ");
    Suite::parse(text).ok_or_else(|| format!("use one of {}", names()))
}

fn parse_block(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(bytes))
        .filter(|bytes| bytes.is_multiple_of(BLOCK_BYTES_MIN))
        .ok_or_else(|| "use a multiple of 512 up to 4m".to_owned())
}

fn parse_size(text: &str) -> Result<u64, String> {
    config::parse_size(text).map_err(|rule| rule.to_string())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    const SECONDS_MAX: f64 = 86_400.0;
    text.parse()
        .ok()
        .filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("use a number of seconds from 0 to {SECONDS_MAX}"))
}

/// Nothing can be measured in no time.
fn parse_runtime(text: &str) -> Result<Duration, String> {
    let runtime = parse_seconds(text)?;
    let refusal = || "use more than 0 seconds".to_owned();
    (!runtime.is_zero()).then_some(runtime).ok_or_else(refusal)
}

fn parse_cpus(text: &str) -> Result<CpuList, String> {
    /// More than any machine has that this runs on.
    const CPU_MAX: usize = 1023;
    let problem = || format!("use numbers and ranges up to {CPU_MAX}, such as 1 or 2-3,6");
    let number = |text: &str| {
        let number = text.parse::<usize>().ok();
        number.filter(|&n| n <= CPU_MAX).ok_or_else(problem)
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(number(first)?..=number(last)?);
    }
    if cpus.is_empty() {
        return Err(problem());
    }
    Ok(CpuList(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("1"), Ok(CpuList(vec![1])));
        assert_eq!(parse_cpus("2-4,0"), Ok(CpuList(vec![2, 3, 4, 0])));
        for text in ["", "a", "1-", "3-2", "1024", "-1"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn blocks_and_times_are_read_at_both_edges() {
        assert_eq!(parse_block("512"), Ok(512));
        assert_eq!(parse_block("4m"), Ok(4 << 20));
        for text in ["511", "513", "0", "4097k", "x"] {
            assert!(parse_block(text).is_err(), "{text}");
        }
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(parse_seconds("0").is_ok() && parse_runtime("0").is_err());
        for text in ["-1", "inf", "NaN", "86401", ""] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
