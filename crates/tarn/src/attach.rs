//! `tarn attach` and `tarn discover`: disks of HyperSCSI groups and iSCSI targets on this machine, for people.
//!
//! `attach` serves as `serve` does, with a configuration that it makes from its arguments: the disks as stores, one
//! unit, and one server of NBD. Nothing of it is in a file, but for a directory of its own with the state of the unit,
//! which ends with it. With `--as block` another process has the block device ([`service`]), and this is its child.

mod block;
mod discover;
mod disk;
pub(crate) mod service;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use config::{ConfigError, Model, Place, StoreSpec};
use confine::inherited::Inherited;
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags, flock, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::verbs::terminal;
use daemon::Flags;
use daemon::prepare::prepare_model;
use daemon::signal::Signals;
use daemon::{Environment, StartError, logging, password, serve};

pub(crate) use discover::discover;

const ATTACH_HELP: &str = "\
URL is a device of a HyperSCSI group or a disk of an iSCSI target, with options as in the
configuration file:
  hyperscsi://GROUP/DEVICE[?server=NAME&user=NAME&level=LEVEL&retry=SECONDS&readonly]
  iscsi://HOST[:PORT]/TARGET/LUN[?user=NAME&initiator=NAME&retry=SECONDS&readonly]
DEVICE is the name of the device, or its place in the table of its server, from 1.

The disk is served until a signal (SIGTERM, SIGINT) ends it; then it is flushed and closed. The
password is asked for where there is a terminal, or comes from --password-file or TARN_PASSWORD; an
iSCSI target without user= needs none.

Examples:
  tarn attach --udp 192.0.2.7 --as nbd:/run/disk.sock hyperscsi://storage/disk
  tarn attach --interface eth1 --as nbd:/run/disk.sock hyperscsi://storage/disk
  qemu-img info 'nbd+unix:///?socket=/run/disk.sock'
  tarn attach --udp 192.0.2.7 --as block hyperscsi://storage/disk
  tarn attach --udp 192.0.2.255 --as nbd:127.0.0.1:10809 --stripe 64k hyperscsi://storage/a hyperscsi://storage/b
  tarn attach --as nbd:/run/disk.sock iscsi://192.0.2.7/iqn.2026-11.example.far:disk/0";

/// `tarn attach`.
#[derive(Args, Debug)]
#[command(after_help = ATTACH_HELP)]
pub struct AttachArgs {
    /// Devices or disks; several are one disk with --stripe.
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,

    /// What the disk becomes: nbd:SOCKET or nbd:ADDR[:PORT], an export of NBD; block, a block device
    /// (root, ublk of Linux 6.5). Use it to say where programs find the disk.
    #[arg(long = "as", value_name = "FORM")]
    pub form: String,

    /// Where servers are asked, over UDP: a host, or the broadcast address of a network. Use it for
    /// URLs without udp=.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub udp: Option<String>,

    /// The interface on whose network servers are asked, by frames of Ethernet (CAP_NET_RAW). Use it
    /// for URLs without interface=.
    #[arg(long, value_name = "IF", conflicts_with = "udp")]
    pub interface: Option<String>,

    /// Make one disk of several devices, with so much on each in turn. Use it for the speed of all.
    #[arg(long, value_name = "CHUNK")]
    pub stripe: Option<String>,

    /// The least protection: none, crc, hash or encrypt. Use it where the network is not trusted
    /// and the server asks for less.
    #[arg(long, value_name = "LEVEL")]
    pub level: Option<String>,

    /// Seconds that commands wait for a server that does not answer. Use it to wait longer for a
    /// restart. [default: 20]
    #[arg(long, value_name = "SECONDS")]
    pub retry: Option<u32>,

    /// File with the password of the group or user. Use it where nobody can type it; the variable
    /// TARN_PASSWORD does the same.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// How much to log: off, error, warn, info, debug or trace. Use it to find a fault; the
    /// variable TARN_LOG does the same. [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = config::LogLevel::parse)]
    pub log: Option<config::LogLevel>,

    /// `PID:SOCKET`: the process that has the block device, which this one ends with, and where that finds the
    /// disk. Use it nowhere: `--as block` starts such a process itself.
    #[arg(long, hide = true)]
    pub serve_for: Option<String>,
}

const DISCOVER_HELP: &str = "\
Servers answer only who asks for a group that they have, and the question takes two seconds.

Examples:
  tarn discover hyperscsi --udp 192.0.2.255 --group storage
  tarn discover hyperscsi --interface eth1 --group storage
  tarn discover hyperscsi --udp 192.0.2.7 --group storage --password-file password";

/// `tarn discover`.
#[derive(Debug, Subcommand)]
pub enum DiscoverVerb {
    /// Find servers of HyperSCSI groups, and the devices of groups whose password is known.
    Hyperscsi(DiscoverArgs),
}

/// `tarn discover hyperscsi`.
#[derive(Args, Debug)]
#[command(after_help = DISCOVER_HELP)]
pub struct DiscoverArgs {
    /// Name of a group, up to 16 times. Use it for each group whose servers are wanted.
    #[arg(long, value_name = "NAME", required = true)]
    pub group: Vec<String>,

    /// Where servers are asked, over UDP: a host, or the broadcast address of a network. Use it to
    /// choose the network.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub udp: Option<String>,

    /// The interface on whose network servers are asked, by frames of Ethernet (CAP_NET_RAW). Use it
    /// where there is no IP.
    #[arg(long, value_name = "IF", conflicts_with = "udp")]
    pub interface: Option<String>,

    /// Whose password it is. Use it for groups that are configured with a user.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// File with the password of the groups. Use it to see the devices, too; the variable
    /// TARN_PASSWORD does the same.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Print JSON. Use it in programs.
    #[arg(long)]
    pub json: bool,
}

/// An argument that is wrong.
fn wrong(argument: impl Into<String>, reason: impl Into<String>) -> StartError {
    StartError::Argument {
        place: Place::argument(argument),
        reason: reason.into(),
    }
}

/// Serves devices until a signal.
///
/// # Errors
///
/// An argument is wrong, a device cannot be opened, or what `serve` may find.
pub(crate) fn attach(args: &AttachArgs, environment: &Environment) -> anyhow::Result<()> {
    let export = match (form(&args.form)?, &args.serve_for) {
        (Form::Nbd(export), None) => export,
        (Form::Block, None) => return block::attach(args, environment),
        (_, Some(given)) => {
            let given = service::Given::parse(given);
            let given = given.filter(|given| service::end_with(given.parent));
            let given = given.ok_or_else(|| wrong("--serve-for", "its process has ended"))?;
            format!("socket = {}", quoted(&given.socket))
        }
    };
    // Open as long as the stores may be opened.
    let secret = Secret::of(args, environment)?;
    let stores = stores(args, secret.path().as_deref())?;
    // Not before, as the password may be asked for; not later, as a signal has to take the directory away.
    let signals = Signals::catch().map_err(StartError::Confine)?;
    let home = Home::make(environment)?;
    let text = configuration(&stores, args.stripe.as_deref(), &export, &home.path);
    let model = model(&text, args).map_err(StartError::from)?;
    let flags = Flags::with_log(args.log);
    let prepared = prepare_model((model, text), None, flags, environment)?;
    let log = logging::start(&prepared.log)?;
    let outcome = serve::serve(prepared, Inherited::default(), &log, signals);
    drop((home, secret));
    outcome
}

/// Reads the configuration that was made of the arguments. They are its places: nobody has seen that text.
fn model(text: &str, args: &AttachArgs) -> Result<Model, ConfigError> {
    Model::from_made_toml(text, &|key| Place::argument(argument_of(key, args)))
}

/// The argument from which a key was made.
fn argument_of(key: &str, args: &AttachArgs) -> String {
    let member = key.strip_prefix("store[").and_then(|rest| {
        let (at, _) = rest.split_once(']')?;
        args.urls.get(at.parse::<usize>().ok()?)
    });
    match (member, &args.urls[..]) {
        (Some(url), _) => format!("URL {url:?}"),
        (None, [url]) if key.starts_with("lun") => format!("URL {url:?}"),
        (None, _) if key.starts_with("lun") => "--stripe".to_owned(),
        (None, _) if key.starts_with("nbd") => "--as".to_owned(),
        (None, _) => "tarn attach".to_owned(),
    }
}

/// The password, in a file that has no name and is in no directory.
struct Secret(Option<SecretPlace>);

enum SecretPlace {
    File(PathBuf),
    Memory(std::fs::File),
}

impl Secret {
    fn of(args: &AttachArgs, environment: &Environment) -> Result<Self, StartError> {
        if let Some(path) = &args.password_file {
            let path = std::path::absolute(path).map_err(StartError::Confine)?;
            return Ok(Self(Some(SecretPlace::File(path))));
        }
        let place = environment
            .password
            .as_ref()
            .map_or("password", |_| "TARN_PASSWORD");
        let text = match &environment.password {
            Some(text) => Some(text.clone()),
            None if terminal::has_person() && args.urls.iter().any(|url| wants_password(url)) => {
                let asked = terminal::ask_secret("Password: ");
                Some(asked.map_err(|error| wrong("password", error.to_string()))?)
            }
            None => None,
        };
        // A group without password has the empty one.
        let Some(text) = text.filter(|text| !text.trim_end().is_empty()) else {
            return Ok(Self(None));
        };
        let failed = |error: io::Error| wrong("password", format!("it cannot be kept: {error}"));
        password::checked(text.as_bytes().to_vec())
            .map_err(|reason| wrong(place, format!("it {reason}")))?;
        let memory = memfd_create("tarn-password", MemfdFlags::CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        rustix::fs::fchmod(&memory, Mode::RUSR).map_err(|error| failed(error.into()))?;
        let mut memory = std::fs::File::from(memory);
        memory.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Self(Some(SecretPlace::Memory(memory))))
    }

    fn path(&self) -> Option<PathBuf> {
        Some(match self.0.as_ref()? {
            SecretPlace::File(path) => path.clone(),
            SecretPlace::Memory(file) => {
                PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
            }
        })
    }
}

/// The directory of the unit's state, which ends with the process, and its lock, which shows that there is one. Where a
/// process is killed the next one removes its directory.
struct Home {
    path: PathBuf,
    _lock: Option<OwnedFd>,
}

/// What the name of such a directory begins with; the number of the process follows.
const HOME: &str = "tarn-attach-";

impl Home {
    fn make(environment: &Environment) -> Result<Self, StartError> {
        let above = environment.xdg_runtime_dir.clone();
        let above = above
            .filter(|path| path.is_dir())
            .unwrap_or_else(std::env::temp_dir);
        Self::sweep(&above);
        let path = above.join(format!("{HOME}{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| {
            wrong(
                path.display().to_string(),
                format!("it cannot be made: {error}"),
            )
        })?;
        // Without it only the number of the process shows that it is used.
        let _lock = Self::lock(&path);
        Ok(Self { path, _lock })
    }

    /// Removes the directories of processes that are not there any more.
    fn sweep(above: &Path) {
        let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(HOME));
            let number = number.and_then(|number| Pid::from_raw(number.parse().ok()?));
            if number.is_some_and(is_gone)
                && let Some(_lock) = Self::lock(&entry.path())
            {
                let _removed = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// The lock of a directory of this user, if nobody has it: a process of another container cannot be seen by its
    /// number.
    fn lock(path: &Path) -> Option<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let owner = rustix::fs::fstat(&directory).ok()?.st_uid;
        let is_own = owner == rustix::process::geteuid().as_raw();
        let is_locked =
            is_own && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        is_locked.then_some(directory)
    }
}

/// Whether no other process has this number.
fn is_gone(number: Pid) -> bool {
    number == rustix::process::getpid() || test_kill_process(number) == Err(Errno::SRCH)
}

impl Drop for Home {
    fn drop(&mut self) {
        // What is left takes a few kilobytes.
        let _removed = std::fs::remove_dir_all(&self.path);
    }
}

/// Whether there are as many devices as the flags want, each once.
fn check_number(args: &AttachArgs) -> Result<(), StartError> {
    if args.urls.len() > 1 && args.stripe.is_none() {
        let reason =
            "several devices are one disk only with --stripe CHUNK; or attach each by itself";
        return Err(wrong("URL", reason));
    }
    if args.urls.len() == 1 && args.stripe.is_some() {
        return Err(wrong(
            "--stripe",
            "it wants two devices at least; leave it out for one",
        ));
    }
    let mut before = std::collections::HashSet::new();
    let twice = args.urls.iter().find(|url| !before.insert(*url));
    twice.map_or(Ok(()), |url| {
        let reason = "it is given twice; give each device once";
        Err(wrong(format!("URL {url:?}"), reason))
    })
}

/// The devices as stores, with what the flags add.
fn stores(args: &AttachArgs, password: Option<&Path>) -> Result<Vec<String>, StartError> {
    check_number(args)?;
    let reached = Reached {
        udp: args.udp.as_deref(),
        interface: args.interface.as_deref(),
    };
    let are_disks = args.urls.iter().all(|url| is_disk(url));
    if are_disks && (reached.udp.is_some() || reached.interface.is_some()) {
        let flag = reached.udp.map_or("--interface", |_| "--udp");
        let reason = "it is for devices of HyperSCSI groups; the URL says where an iSCSI target is";
        return Err(wrong(flag, reason));
    }
    let stores = args.urls.iter().map(|url| {
        let mut text = match is_disk(url) {
            true => url.clone(),
            false => with_carrier(url, reached)?,
        };
        let mut add = |option: &str, value: String| {
            if !has_option(&text, option) {
                let joint = if text.contains('?') { '&' } else { '?' };
                // Writing to a String cannot fail.
                let _infallible = write!(text, "{joint}{option}={value}");
            }
        };
        if let Some(level) = &args.level {
            add("level", level.clone());
        }
        if let Some(retry) = args.retry {
            add("retry", retry.to_string());
        }
        if let Some(password) = password.filter(|_| wants_password(url)) {
            add("password_file", escaped(&password.display().to_string()));
        }
        let place = || Place::argument(format!("URL {url:?}"));
        if text.contains(char::is_control) || !is_disk(url) && !text.starts_with("hyperscsi:") {
            return Err(wrong(
                format!("URL {url:?}"),
                "it is no device; write hyperscsi://GROUP/DEVICE or iscsi://HOST/TARGET/LUN",
            ));
        }
        if is_disk(url) && wants_password(url) && !has_option(&text, "password_file") {
            return Err(wrong(
                format!("URL {url:?}"),
                "there is no password of its user; add --password-file FILE, or set TARN_PASSWORD",
            ));
        }
        match StoreSpec::parse(&text) {
            Ok(_) => Ok(text),
            Err(rule) => Err(StartError::from(ConfigError::new(rule, place()))),
        }
    });
    stores.collect()
}

/// Whether it is a disk of an iSCSI target.
fn is_disk(url: &str) -> bool {
    url.starts_with("iscsi:")
}

/// Whether the password is for it: an iSCSI target knows none without a user.
fn wants_password(url: &str) -> bool {
    !is_disk(url) || has_option(url, "user")
}

fn has_option(store: &str, option: &str) -> bool {
    let options = store.split_once('?').map_or("", |(_, options)| options);
    let mut words = options.split('&').filter_map(|one| one.split('=').next());
    words.any(|word| word == option)
}

/// How servers are reached, by flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached<'a> {
    pub(crate) udp: Option<&'a str>,
    pub(crate) interface: Option<&'a str>,
}

/// The URL of a device with what the flags say; one that says itself how its server is reached stays as it is.
pub(crate) fn with_carrier(url: &str, reached: Reached<'_>) -> Result<String, StartError> {
    if has_option(url, "udp") || has_option(url, "interface") {
        return Ok(url.to_owned());
    }
    let joint = if url.contains('?') { '&' } else { '?' };
    match (reached.udp, reached.interface) {
        (_, Some(name)) => Ok(format!("{url}{joint}interface={}", escaped(name))),
        (Some(udp), None) => Ok(format!("{url}{joint}udp={udp}")),
        (None, None) => match StoreSpec::parse(url) {
            Ok(_) => Ok(url.to_owned()),
            Err(rule) => Err(wrong(
                format!("URL {url:?}"),
                format!("{rule}; or add --udp HOST[:PORT] or --interface IF"),
            )),
        },
    }
}

/// A text as the value of an option.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('&', "%26")
}

/// What a disk becomes.
#[derive(Debug, PartialEq)]
enum Form {
    /// An export of NBD: where, as a key of its section.
    Nbd(String),
    /// A block device.
    Block,
}

fn form(form: &str) -> Result<Form, StartError> {
    match form.split_once(':') {
        None if form == "block" => Ok(Form::Block),
        Some(("nbd", place)) if !place.is_empty() => {
            Ok(Form::Nbd(match config::nbd_address(place) {
                Some(address) => format!("bind = {}", quoted(&address.to_string())),
                None if place.contains(':') && !place.contains('/') => {
                    let reason = format!(
                        "{place:?} is no address; write 127.0.0.1:10809, or a path with a /"
                    );
                    return Err(wrong("--as", reason));
                }
                None => format!("socket = {}", quoted(&socket(place)?)),
            }))
        }
        Some(_) | None => Err(wrong(
            "--as",
            format!("{form:?} is no form; write nbd:SOCKET, nbd:ADDR[:PORT] or block"),
        )),
    }
}

/// A path for a socket. A daemon makes the directories of its sockets; here a missing one is a slip of the finger.
fn socket(place: &str) -> Result<String, StartError> {
    let path = std::path::absolute(place)
        .map_err(|error| wrong("--as", format!("{place:?} is no path: {error}")))?;
    let directory = path.parent().unwrap_or(&path);
    let found = std::fs::metadata(directory);
    let why = match found {
        Ok(found) if found.is_dir() => return Ok(path.display().to_string()),
        Ok(_) => "it is no directory".to_owned(),
        Err(error) => error.to_string(),
    };
    let directory = directory.display();
    let reason = format!(
        "{directory} cannot have the socket {}: {why}; make that directory (mkdir -p), or give another path",
        path.display()
    );
    Err(wrong("--as", reason))
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace(char::is_control, " "))
}

/// Sessions are those of NBD, of which a client may have several.
const SESSIONS_MAX: u64 = 256;

/// Files of the process that are no connections, more than it needs.
const FILES_OWN: u64 = 520;

/// As many sessions as the process may have open files for. Each is one connection.
fn limits(files_max: Option<u64>) -> String {
    let files = files_max.unwrap_or(u64::MAX);
    let sessions = files.saturating_sub(FILES_OWN).clamp(8, SESSIONS_MAX);
    format!("[limits]\nsessions_max = {sessions}\nconnections_per_session_max = 1\n")
}

fn configuration(stores: &[String], stripe: Option<&str>, export: &str, home: &Path) -> String {
    let home = home.display().to_string();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let mut text = format!(
        "[server]\nstate = {}\n[admin]\nsocket = {}\n{}",
        quoted(&home),
        quoted(&format!("{home}/tarn.sock")),
        limits(files.maximum),
    );
    let mut store = stores.first().cloned().unwrap_or_default();
    if let Some(chunk) = stripe {
        let mut ids = Vec::new();
        for (number, one) in stores.iter().enumerate() {
            let id = format!("d{number}");
            // Writing to a String cannot fail.
            let _infallible = write!(
                text,
                "[[store]]\nid = {}\nstore = {}\n",
                quoted(&id),
                quoted(&member(one))
            );
            ids.push(id);
        }
        store = format!("stripe:{}?chunk={chunk}", ids.join(","));
        if stores.iter().any(|store| is_read_only(store)) {
            store.push_str("&readonly");
        }
    }
    let unit = format!("[[lun]]\nid = \"disk\"\nstore = {}\n", quoted(&store));
    format!("{text}{unit}[[nbd]]\n{export}\nluns = [\"disk\"]\n")
}

fn is_read_only(store: &str) -> bool {
    StoreSpec::parse(store).is_ok_and(|spec| spec.read_only)
}

/// A member of a stripe, which says for all of them whether they may be written.
fn member(store: &str) -> String {
    let Some((place, options)) = store.split_once('?') else {
        return store.to_owned();
    };
    let is_kept = |option: &&str| option.split('=').next() != Some("readonly");
    let options: Vec<&str> = options.split('&').filter(is_kept).collect();
    format!("{place}?{}", options.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(urls: &[&str]) -> AttachArgs {
        AttachArgs {
            urls: urls.iter().map(|&url| url.to_owned()).collect(),
            form: "nbd:/run/s".to_owned(),
            udp: Some("192.0.2.1".to_owned()),
            interface: None,
            stripe: None,
            level: Some("hash".to_owned()),
            retry: Some(7),
            password_file: None,
            log: None,
            serve_for: None,
        }
    }

    #[test]
    fn flags_fill_in_what_a_url_leaves_out() {
        let password = Path::new("/a%b&c");
        let stores = stores(&args(&["hyperscsi://g/d?level=crc"]), Some(password)).unwrap();
        let [store] = &stores[..] else {
            panic!("{stores:?}");
        };
        let expected = "hyperscsi://g/d?level=crc&udp=192.0.2.1&retry=7&password_file=/a%25b%26c";
        assert_eq!(store, expected);
        let device = StoreSpec::parse(store).unwrap();
        let file = device.at.device().unwrap().password_file.clone();
        assert_eq!(file.as_deref(), Some(password));
    }

    #[test]
    fn an_interface_is_for_urls_that_say_nothing_themselves() {
        let mut args = args(&["hyperscsi://g/a", "hyperscsi://g/b?udp=h"]);
        (args.udp, args.interface) = (None, Some("eth&1".to_owned()));
        (args.stripe, args.level, args.retry) = (Some("64k".to_owned()), None, None);
        let expected = ["hyperscsi://g/a?interface=eth%261", "hyperscsi://g/b?udp=h"];
        assert_eq!(stores(&args, None).unwrap(), expected);
    }

    #[test]
    fn a_disk_of_a_target_gets_the_password_of_its_user() {
        let disk = "iscsi://h/iqn.2026-11.example.far:disk/0";
        let mut args = args(&[disk]);
        (args.udp, args.level) = (None, None);
        let password = Some(Path::new("/p"));
        assert_eq!(
            stores(&args, password).unwrap(),
            [format!("{disk}?retry=7")]
        );
        args.urls = vec![format!("{disk}?user=alice")];
        let expected = format!("{disk}?user=alice&retry=7&password_file=/p");
        assert_eq!(stores(&args, password).unwrap(), [expected]);
        let error = stores(&args, None).unwrap_err().to_string();
        assert!(error.contains("add --password-file FILE"), "{error}");
        for (udp, interface, flag) in [(Some("h"), None, "--udp"), (None, Some("e"), "--interface")]
        {
            (args.udp, args.interface) = (udp.map(str::to_owned), interface.map(str::to_owned));
            let error = stores(&args, password).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn what_is_made_of_the_arguments_is_a_configuration() {
        let mut striped = args(&["hyperscsi://g/a", "hyperscsi://g/b?readonly"]);
        striped.stripe = Some("64k".to_owned());
        for (args, members) in [(args(&["hyperscsi://g/\"d\\"]), 0), (striped, 2)] {
            let stores = stores(&args, None).unwrap();
            let Form::Nbd(export) = form("nbd:127.0.0.1:10809").unwrap() else {
                panic!("it is one");
            };
            let text = configuration(&stores, args.stripe.as_deref(), &export, Path::new("/h"));
            let model = Model::from_toml(&text, Path::new("t")).unwrap();
            let [unit] = model.units() else {
                panic!("{text}");
            };
            assert_eq!(unit.store.members().len(), members, "{text}");
            assert_eq!(unit.store.read_only, members > 0);
            assert_eq!(model.nbd().len(), 1);
            let limits = model.limits();
            assert_eq!(limits.connections_per_session_max, 1);
            assert_eq!(model.targets().len(), 0);
        }
    }

    #[test]
    fn a_process_that_may_open_few_files_has_fewer_sessions() {
        for (files, sessions) in [
            (None, 256),
            (Some(1024), 256),
            (Some(700), 180),
            (Some(64), 8),
        ] {
            let text = limits(files);
            assert!(
                text.contains(&format!("sessions_max = {sessions}\n")),
                "{text}"
            );
        }
    }

    #[test]
    fn arguments_that_are_wrong_say_what_to_write() {
        let refused = |args: &AttachArgs| stores(args, None).unwrap_err().to_string();
        let mut bare = args(&["hyperscsi://g/d"]);
        bare.udp = None;
        assert!(refused(&bare).ends_with("or add --udp HOST[:PORT] or --interface IF"));
        assert!(refused(&args(&["hyperscsi://g/a", "hyperscsi://g/b"])).contains("--stripe CHUNK"));
        assert!(refused(&args(&["nbd://h"])).contains("write hyperscsi://GROUP/DEVICE"));
        let mut twice = args(&["hyperscsi://g/a", "hyperscsi://g/b", "hyperscsi://g/a"]);
        twice.stripe = Some("64k".to_owned());
        assert!(refused(&twice).starts_with("URL \"hyperscsi://g/a\": it is given twice"));
        for wrong in ["fuse:/mnt", "block:", "blocks", "nbd:", "nbd"] {
            let error = form(wrong).unwrap_err().to_string();
            let remedy = "write nbd:SOCKET, nbd:ADDR[:PORT] or block";
            assert!(error.contains(remedy), "{error}");
        }
        for wrong in ["nbd:localhost:1", "nbd:999.0.0.1:1", "nbd:127.0.0.1:99999"] {
            let error = form(wrong).unwrap_err().to_string();
            assert!(
                error.contains("is no address; write 127.0.0.1:10809"),
                "{error}"
            );
        }
        assert_eq!(form("block").unwrap(), Form::Block);
        let nbd = |key: &str| Form::Nbd(key.to_owned());
        assert_eq!(form("nbd:/run/s").unwrap(), nbd("socket = \"/run/s\""));
        assert_eq!(form("nbd:[::1]:2").unwrap(), nbd("bind = \"[::1]:2\""));
        for (given, address) in [("127.0.0.1", "127.0.0.1:10809"), ("::1", "[::1]:10809")] {
            let expected = nbd(&format!("bind = {address:?}"));
            assert_eq!(form(&format!("nbd:{given}")).unwrap(), expected);
        }
    }

    #[test]
    fn errors_have_the_arguments_as_their_places() {
        let (one, two) = (
            args(&["hyperscsi://g/d"]),
            args(&["hyperscsi://g/a", "hyperscsi://g/b"]),
        );
        for (key, args, place) in [
            ("lun[0].store", &one, "URL \"hyperscsi://g/d\""),
            ("lun[0].store", &two, "--stripe"),
            ("store[1].store", &two, "URL \"hyperscsi://g/b\""),
            ("nbd[0].socket", &one, "--as"),
            ("server.state", &one, "tarn attach"),
            ("", &one, "tarn attach"),
        ] {
            assert_eq!(argument_of(key, args), place, "{key}");
        }
        // What a device is called is no place, whatever it looks like.
        let odd = "hyperscsi://g/tarn attach:7: lun[0].store?udp=h&udp=h";
        let text = configuration(
            &[odd.to_owned()],
            None,
            "bind = \"127.0.0.1:1\"",
            Path::new("/h"),
        );
        let error = model(&text, &args(&[odd])).unwrap_err();
        assert_eq!(error.place, Place::argument(format!("URL {odd:?}")));
        let stores = stores(&two_striped(), None).unwrap();
        let text = configuration(
            &stores,
            Some("63k"),
            "bind = \"127.0.0.1:1\"",
            Path::new("/h"),
        );
        let error = model(&text, &two_striped()).unwrap_err();
        assert_eq!(error.place, Place::argument("--stripe"), "{error}");
        // Those that come later, too.
        let text = configuration(
            &stores,
            Some("64k"),
            "bind = \"127.0.0.1:1\"",
            Path::new("/h"),
        );
        let model = model(&text, &two_striped()).unwrap();
        assert_eq!(model.nbd()[0].place, Place::argument("--as"));
        assert_eq!(model.units()[0].place, Place::argument("--stripe"));
    }

    fn two_striped() -> AttachArgs {
        let mut args = args(&["hyperscsi://g/a", "hyperscsi://g/b"]);
        args.stripe = Some("63k".to_owned());
        args
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next() {
        let scratch = durable::scratch::Scratch::new();
        let make = |name: &str| {
            let path = scratch.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("tarn.sock"), "").unwrap();
            path
        };
        // No process has such a number; the parent runs.
        let gone = make("tarn-attach-2147483600");
        let own = make(&format!("tarn-attach-{}", std::process::id()));
        let elsewhere = make("tarn-attach-2147483601");
        let parent = make(&format!(
            "tarn-attach-{}",
            std::os::unix::process::parent_id()
        ));
        let others = [
            "tarn-attach-",
            "tarn-attach-x",
            "tarn-2147483600",
            "2147483600",
        ]
        .map(make);
        let link = scratch.path().join("tarn-attach-2147483602");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let lock = Home::lock(&elsewhere).unwrap();
        Home::sweep(scratch.path());
        assert!(!gone.exists() && !own.exists());
        for kept in others.iter().chain([&elsewhere, &parent, &link]) {
            assert!(kept.join("tarn.sock").exists(), "{kept:?}");
        }
        drop(lock);
        Home::sweep(scratch.path());
        assert!(!elsewhere.exists());
    }

    #[test]
    fn a_directory_that_is_missing_is_named_and_not_made() {
        let scratch = durable::scratch::Scratch::new();
        let (gone, file) = (scratch.path().join("gone"), scratch.path().join("file"));
        std::fs::write(&file, "").unwrap();
        for directory in [&gone, &file] {
            let error = form(&format!("nbd:{}/disk.sock", directory.display())).unwrap_err();
            let error = error.to_string();
            let place = format!("--as: {} cannot have", directory.display());
            assert!(
                error.starts_with(&place) && error.contains("mkdir -p"),
                "{error}"
            );
        }
        assert!(!gone.exists());
        assert!(form(&format!("nbd:{}/disk.sock", scratch.path().display())).is_ok());
    }
}
