//! The command line: flags and their help. Knows no file and no environment.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use config::LogLevel;

use crate::aliases;
use crate::attach::{AttachArgs, DiscoverVerb};
use crate::bench::BenchArgs;
use crate::import::ImportArgs;
use crate::store_options::StoreOptions;
use crate::upkeep::StateVerb;
use crate::verbs::Verb;

/// Serves files, block devices, memory and disks of other servers over iSCSI, NBD and HyperSCSI.
#[derive(Debug, Parser)]
#[command(name = "tarn", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve disks until stopped by a signal.
    Serve(ServeArgs),
    /// Check a configuration file, its secrets and its stores; serve nothing.
    Check(CheckArgs),
    /// Use devices of HyperSCSI groups or disks of iSCSI targets on this machine.
    Attach(Box<AttachArgs>),
    /// Find servers on the network.
    Discover {
        /// What kind of servers.
        #[command(subcommand)]
        verb: DiscoverVerb,
    },
    /// Measure targets: I/Os per second, latency, CPU time; or verify that they return the data
    /// written.
    Bench(Box<BenchArgs>),
    /// Convert the configuration of another target: tgt, LIO, SCST, IET, istgt, FreeBSD.
    Import(ImportArgs),
    /// Check and repair the state directory: identities, reservations, tokens.
    State {
        /// What to do.
        #[command(subcommand)]
        verb: StateVerb,
    },
    /// Show the help of a command.
    Help {
        /// The command, as lun add. [default: all commands]
        #[arg(value_name = "COMMAND")]
        words: Vec<String>,
    },
    /// Ask the daemon that serves.
    #[command(flatten)]
    Verb(Box<Verb>),
}

/// The definition of the command line, with all names of the verbs.
pub(crate) fn command() -> clap::Command {
    aliases::added(Cli::command())
}

/// Reads a command line.
///
/// # Errors
///
/// It is wrong, or asks for help.
pub fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn serve_help() -> String {
    let (kinds, options) = config::store_help();
    format!(
        "\
STORE says where the data of a disk is:
{kinds}Options follow after '?', separated by '&':
{options}SIZE is a number of bytes, or a number with k, M, G or T, which are powers of 1024.

Examples:
  tarn serve mem:256M
  tarn serve 'disk.img?size=10G' block:/dev/vg/data
  tarn serve disk.img --size 10G --cache direct
  tarn serve 'disk.img?size=10G' --save tarn.toml
  tarn serve --hyperscsi eth1 --group ABC --password-file abc.secret disk.img
  tarn serve --config /etc/tarn/tarn.toml"
    )
}

/// `tarn serve`.
#[derive(Args, Debug, Default)]
#[command(after_help = serve_help())]
pub struct ServeArgs {
    /// Disks to serve, as LUN 0, 1, 2 and so on of one target.
    #[arg(value_name = "STORE", conflicts_with = "config")]
    pub stores: Vec<String>,

    /// Configuration file: several targets, CHAP users, groups, limits. Use it for everything
    /// beyond one target without access control; see docs/reference/configuration.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "target"])]
    pub config: Option<PathBuf>,

    /// Keep what is served in this configuration file, so that it can be changed while Tarn runs. If the
    /// file is missing, it is made from the other arguments. If it exists, it is used, and STOREs, --listen,
    /// --target and the flags of HyperSCSI are ignored. Use it to go from a first disk to a lasting service.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "config",
        requires = "stores"
    )]
    pub save: Option<PathBuf>,

    /// Address to listen on; repeat the flag for several; IPv6 in brackets. Use it to serve other
    /// machines. [default: 127.0.0.1:3260]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,

    /// iSCSI name of the target. Use it to run several, or to keep the name when the host is
    /// renamed. [default: iqn.2026-11.example.tarn:HOST]
    #[arg(long, value_name = "IQN")]
    pub target: Option<String>,

    /// Serve the disks over HyperSCSI: on an interface (frames of Ethernet), or with udp: before an
    /// address. Use it for initiators that speak HyperSCSI; there is no iSCSI target then, unless
    /// --listen or --target asks for one.
    #[arg(
        long,
        value_name = "INTERFACE|udp:ADDR[:PORT]",
        conflicts_with = "config",
        requires_all = ["group", "password_file"]
    )]
    pub hyperscsi: Option<String>,

    /// Name by which initiators find the disks. Use it with --hyperscsi.
    #[arg(long, value_name = "NAME", requires = "hyperscsi")]
    pub group: Option<String>,

    /// File with the password that initiators need, of 8 to 128 bytes. Use it with --hyperscsi.
    #[arg(long, value_name = "FILE", requires = "hyperscsi")]
    pub password_file: Option<PathBuf>,

    /// Directory for what must survive a restart: identities, reservations, saved mode pages. Use
    /// it in containers and services. [default: /var/lib/tarn for root, else $XDG_STATE_HOME/tarn
    /// or ~/.local/state/tarn]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// How much to log: off, error, warn, info, debug or trace. Use it to find a fault; the
    /// variable TARN_LOG does the same. [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = parse_log_level)]
    pub log: Option<LogLevel>,

    /// Number of processor cores to use. Use it when the machine has other work to do. [default: as
    /// many as the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Option<u16>,

    /// Microseconds a core polls for more work before it sleeps. Use it for the lowest latency,
    /// when cores are to spare. [default: 0]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub busy_poll: Option<u32>,

    /// What else is true of each STORE.
    #[command(flatten)]
    pub(crate) options: StoreOptions,
}

impl ServeArgs {
    /// What is to be served.
    pub(crate) fn into_asked(self) -> daemon::Asked {
        daemon::Asked {
            stores: self.stores,
            config: self.config,
            save: self.save,
            listen: self.listen,
            target: self.target,
            hyperscsi: self.hyperscsi,
            group: self.group,
            password_file: self.password_file,
            state: self.state,
            log: self.log,
            cores: self.cores,
            busy_poll: self.busy_poll,
        }
    }

    /// Takes the options that were given apart from the STOREs into each of them.
    ///
    /// # Errors
    ///
    /// A value that no option can have.
    pub fn complete(&mut self) -> Result<(), config::StoreRule> {
        for store in &mut self.stores {
            *store = self.options.of(store)?;
        }
        self.options = StoreOptions::default();
        Ok(())
    }
}

/// `tarn check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The command that is asked for, as far as there is one: `tarn lun add` of
/// `tarn lun add disk mem:1G`.
pub(crate) fn command_of(arguments: &[OsString]) -> String {
    let mut command = command();
    let mut names = command.get_name().to_owned();
    let words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    for word in words.filter(|word| !word.starts_with('-')) {
        let Some(subcommand) = command.find_subcommand(word).cloned() else {
            break;
        };
        names = format!("{names} {}", subcommand.get_name());
        command = subcommand;
    }
    names
}

fn parse_log_level(text: &str) -> Result<LogLevel, config::Rule> {
    LogLevel::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        super::parse(arguments.iter().copied())
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    /// An argument of the name of a flag that all verbs of a noun have takes its place, and reading it panics.
    fn check_names(command: &clap::Command, above: &[&clap::Arg]) {
        for argument in command.get_arguments() {
            let is_other = |flag: &&clap::Arg| {
                flag.get_id() == argument.get_id()
                    || flag.get_long().is_some() && flag.get_long() == argument.get_long()
            };
            let other = above.iter().copied().find(is_other);
            assert!(other.is_none(), "{}: {argument}", command.get_name());
        }
        let flags = command.get_arguments();
        let flags = flags.filter(|argument| argument.is_global_set());
        let all: Vec<&clap::Arg> = above.iter().copied().chain(flags).collect();
        for verb in command.get_subcommands() {
            check_names(verb, &all);
        }
    }

    fn check_help(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string);
        for line in help.iter().flat_map(|text| text.lines()) {
            let is_text = !line.starts_with(' ');
            // Longer ones break in the middle, and again where the text says so.
            let is_long = is_text && line.chars().count() > HELP_WIDTH;
            assert!(!is_long, "{}: {line}", command.get_name());
        }
        command.get_subcommands().for_each(check_help);
    }

    /// Columns of a page of help.
    const HELP_WIDTH: usize = 100;

    #[test]
    fn lines_below_the_flags_are_no_longer_than_the_page() {
        check_help(&command());
    }

    #[test]
    fn no_verb_has_a_flag_of_the_name_of_one_that_all_have() {
        check_names(&command(), &[]);
        let line = "tarn nbd add 127.0.0.1:1 --luns a --client-ca ca.pem --ca daemon.pem";
        let words: Vec<&str> = line.split(' ').collect();
        assert!(parse(&words).is_ok());
    }

    #[test]
    fn every_flag_arrives() {
        let cli = parse(&[
            "tarn",
            "serve",
            "--listen",
            "127.0.0.1:1",
            "--listen",
            "[::1]:2",
            "--target",
            "iqn.x",
            "--state",
            "s",
            "--log",
            "debug",
            "--cores",
            "3",
            "--busy-poll",
            "40",
            "a",
            "b",
        ])
        .unwrap();
        let Command::Serve(args) = cli.command else {
            panic!("serve was asked for");
        };
        assert_eq!(args.stores, ["a", "b"]);
        assert_eq!(args.listen, ["127.0.0.1:1", "[::1]:2"]);
        assert_eq!(args.target.as_deref(), Some("iqn.x"));
        assert_eq!(args.state, Some("s".into()));
        assert_eq!(args.log, Some(LogLevel::Debug));
        assert_eq!(args.cores, Some(3));
        assert_eq!(args.busy_poll, Some(40));
        assert_eq!(args.config, None);
    }

    #[test]
    fn a_file_and_its_shorthand_exclude_each_other() {
        for more in [&["disk.img"][..], &["--listen", "::1"], &["--target", "x"]] {
            let arguments = [&["tarn", "serve", "--config", "f"], more].concat();
            assert!(parse(&arguments).is_err(), "{more:?}");
        }
        assert!(parse(&["tarn", "serve", "--config", "f", "--cores", "1"]).is_ok());
    }

    #[test]
    fn a_group_of_hyperscsi_needs_all_of_its_flags_and_no_file() {
        let all = [
            "--hyperscsi",
            "eth1",
            "--group",
            "G",
            "--password-file",
            "p",
        ];
        let serve = |flags: &[&str]| parse(&[&["tarn", "serve", "a"][..], flags].concat());
        assert!(serve(&all).is_ok());
        for missing in [0, 2, 4] {
            let flags = [&all[..missing], &all[missing + 2..]].concat();
            assert!(serve(&flags).is_err(), "{flags:?}");
        }
        let with_file = [&["tarn", "serve", "--config", "f"][..], &all[..]].concat();
        assert!(parse(&with_file).is_err());
    }

    #[test]
    fn options_of_stores_may_be_flags() {
        let serve = |words: &[&str]| {
            let line = [&["tarn", "serve"], words].concat();
            let Command::Serve(mut args) = parse(&line).unwrap().command else {
                panic!("serve was asked for");
            };
            args.complete().map(|()| args.stores)
        };
        let stores = serve(&["a", "b?thin", "--size", "1G", "--removable", "--thin=false"]);
        let expected = [
            "a?size=1G&thin=false&removable=true",
            "b?thin&size=1G&thin=false&removable=true",
        ];
        assert_eq!(stores.unwrap(), expected);
        assert!(serve(&["a", "--serial", "a&b"]).is_err());
        assert!(parse(&["tarn", "serve", "--config", "f", "--size", "1G"]).is_err());
    }

    #[test]
    fn the_command_is_known_from_a_line_that_is_wrong() {
        for (line, expected) in [
            ("tarn", "tarn"),
            ("tarn atach", "tarn"),
            ("tarn serve --cores 0", "tarn serve"),
            ("tarn lun lst", "tarn lun"),
            ("tarn lun --json add disk", "tarn lun add"),
            ("tarn lun create disk", "tarn lun add"),
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(command_of(&arguments), expected, "{line}");
        }
    }

    #[test]
    fn every_flag_says_when_to_use_it() {
        check(&command());
    }

    fn check(command: &clap::Command) {
        for argument in command.get_arguments().filter(|a| !a.is_positional()) {
            let help = argument.get_help().unwrap().to_string();
            let (name, flag) = (command.get_name(), argument.get_id());
            assert!(help.contains("Use it "), "{name}, {flag}: {help}");
        }
        command.get_subcommands().for_each(check);
    }
}
