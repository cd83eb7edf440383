//! What can keep Tarn from starting, and how errors are put into one line.

mod interface;
mod medium;
mod unanswered;

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use config::{ConfigError, Place};

pub use self::interface::InterfaceProblem;
pub use self::medium::MediumError;
pub use self::unanswered::Unanswered;

/// Something an administrator can put right, found before anything was started. One variant per
/// rule, each with its remedy; the program ends with exit code 2.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The text of the configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An argument of the command line is wrong.
    #[error("{place}: {reason}")]
    Argument {
        /// Which.
        place: Place,
        /// What is wrong, with the remedy.
        reason: String,
    },
    /// There is no such configuration file, or it cannot be read.
    #[error("cannot read configuration file {}, name one that exists and is readable", path.display())]
    ConfigUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The configuration file that is to be made cannot be.
    #[error("cannot make configuration file {}, name one in a directory that can be written to", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A directory stands where the configuration file should be.
    #[error("configuration file {} is a directory, name a file", path.display())]
    ConfigDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The configuration file has bytes that are not text.
    #[error(
        "configuration file {}:{line}: a byte is not UTF-8 text, save the file as UTF-8",
        path.display()
    )]
    ConfigNotText {
        /// The file.
        path: PathBuf,
        /// The line of the first such byte, from 1.
        line: usize,
    },
    /// An address cannot be had, because this process has the port itself, by an address that stays or that cannot be
    /// given up beforehand.
    #[error(
        "{place}: {} cannot be listened on while this Tarn listens on {}: remove that in one change, add this in the \
         next",
        .addresses[0], .addresses[1]
    )]
    AddressHeld {
        /// Where the address is named.
        place: Place,
        /// What was asked for, and what is in use.
        addresses: Box<[SocketAddr; 2]>,
    },
    /// There is no administration that could listen elsewhere.
    #[error(
        "the administration does not run, so it cannot listen elsewhere: see tarn doctor, and restart Tarn"
    )]
    NoAdministration,
    /// The certificate of the administration, or its key, cannot be used.
    #[error("{place}: {reason}; repair the files, or name others")]
    AdminCertificate {
        /// Where the certificate is named.
        place: Place,
        /// Why, with every cause.
        reason: Box<admin::TlsError>,
    },
    /// The administration cannot have its socket.
    #[error(transparent)]
    AdminSocket(#[from] admin::ListenError),
    /// The administration cannot start.
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    /// The logging filter of the environment is wrong.
    #[error("TARN_LOG={text:?} is not a log level; use off, error, warn, info, debug or trace")]
    LogFilter {
        /// The value.
        text: String,
        /// What the filter's parser says.
        source: tracing_subscriber::filter::ParseError,
    },
    /// What is to be served takes more memory than this process may have.
    #[error(
        "memory disks of {}, {cores} pools of {} and {} for the rest take {}, and {room}; \
         make the disks smaller, lower cores or pool_per_core_bytes, or give more memory",
        mebibytes(*disks_mib),
        mebibytes(*pool_mib),
        mebibytes(*rest_mib),
        mebibytes(*needed_mib)
    )]
    TooLittleMemory {
        /// What all of it takes.
        needed_mib: u64,
        /// What memory disks take when they are full.
        disks_mib: u64,
        /// How many pools there are.
        cores: u64,
        /// The size of each.
        pool_mib: u64,
        /// What all else takes.
        rest_mib: u64,
        /// The limit.
        room: String,
    },

    // Secrets.
    /// There is no such secret file, or it cannot be read.
    #[error(
        "{place}: cannot read secret file {}, make it with {min} to {max} bytes and chmod 600",
        path.display()
    )]
    SecretUnreadable {
        /// Where it is named.
        place: Place,
        /// The file.
        path: PathBuf,
        /// Shortest legal length.
        min: usize,
        /// Longest legal length.
        max: usize,
        /// What the system says.
        source: io::Error,
    },
    /// Something other than a file, such as a directory or a pipe.
    #[error("{place}: secret {} is not a regular file; name one", path.display())]
    SecretNoFile {
        /// Where it is named.
        place: Place,
        /// The file.
        path: PathBuf,
    },
    /// Others have rights to the secret.
    #[error(
        "{place}: secret file {path} has mode {mode:04o}, which gives others access; run chmod 600 {path}",
        path = path.display()
    )]
    SecretExposed {
        /// Where it is named.
        place: Place,
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The secret belongs to somebody else, who could change it.
    #[error(
        "{place}: secret file {path} belongs to user {owner}; it must belong to root or to user {uid}, run chown \
         {uid} {path}",
        path = path.display()
    )]
    SecretForeign {
        /// Where it is named.
        place: Place,
        /// The file.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who runs this process.
        uid: u32,
    },
    /// It has what stands where a secret is not shown.
    #[error(
        "{place}: secret in {} is {:?}, which stands in place of a secret for those who may not read it; write the \
         secret itself into the file",
        path.display(),
        config::NOT_SHOWN
    )]
    SecretNotShown {
        /// Where it is named.
        place: Place,
        /// The file.
        path: PathBuf,
    },
    /// The secret is too short to be safe or too long for the protocol.
    #[error(
        "{place}: secret in {} has {got} bytes; it must have {min} to {max}",
        path.display()
    )]
    SecretLength {
        /// Where it is named.
        place: Place,
        /// The file.
        path: PathBuf,
        /// How long it is, or the limit plus one.
        got: String,
        /// Shortest legal length.
        min: usize,
        /// Longest legal length.
        max: usize,
    },
    /// The target would prove itself with what initiators know as their own.
    #[error("{place}: the secret is the same as that of {other}; give each direction its own")]
    SecretReflected {
        /// Where the mutual secret is named.
        place: Place,
        /// Where the other one is named.
        other: Place,
    },

    // Stores.
    /// The medium of a unit is not what was served.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The file or device of a unit is not there.
    #[error("{place}: {} does not exist; {remedy}", path.display())]
    StoreMissing {
        /// Where it is named.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What to do.
        remedy: &'static str,
    },
    /// The directory that a file is to be made in is not there.
    #[error(
        "{place}: {} cannot be created because its directory does not exist; create that first",
        path.display()
    )]
    StoreDirectoryMissing {
        /// Where it is named.
        place: Place,
        /// The path.
        path: PathBuf,
    },
    /// What is at the path is not of the kind that the store asks for.
    #[error("{place}: {} is {got}; name {wanted}", path.display())]
    StoreKind {
        /// Where it is named.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What is there.
        got: &'static str,
        /// What the store can be.
        wanted: &'static str,
    },
    /// The file or device of a unit cannot be looked at.
    #[error("{place}: cannot look at {}, check the permissions of its directories", path.display())]
    StoreUnreachable {
        /// Where it is named.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },

    /// Events cannot be sent there.
    #[error("{place}: events cannot be sent: {reason}")]
    Notify {
        /// Where the server is given.
        place: Place,
        /// What is wrong.
        reason: String,
    },
    /// Disks are larger together than a quota allows.
    #[error(
        "{place}: the disks of {quota} have {wanted_bytes} bytes together, more than provisioned = {allowed_bytes}; \
         make them smaller, remove one, or raise the quota"
    )]
    OverQuota {
        /// Where the quota is.
        place: Place,
        /// What it counts.
        quota: String,
        /// What they have.
        wanted_bytes: u64,
        /// What they may have.
        allowed_bytes: u64,
    },

    /// A quota of a directory that cannot have disks.
    #[error(
        "{place}: no disk can be in {directory}: {reason}; make that directory, name another one, or a pool of Ceph as \
         rbd:POOL"
    )]
    QuotaDirectory {
        /// Where the quota is.
        place: Place,
        /// What it counts.
        directory: String,
        /// What was found.
        reason: String,
    },

    /// A store does not answer; the message of the source names path and remedy.
    #[error("{place}")]
    StoreHangs {
        /// Where it is named.
        place: Place,
        /// What was tried.
        source: Unanswered,
    },

    /// A store that is served cannot be made larger; the message of the source says why.
    #[error("{place}: lun {lun} cannot grow to {size_bytes} bytes")]
    Growth {
        /// Where its size is named.
        place: Place,
        /// The unit.
        lun: String,
        /// What it would have.
        size_bytes: u64,
        /// What keeps it from growing.
        source: Box<store::OpenFailure>,
    },

    /// Files that take their space at once do not fit together.
    #[error(
        "{place}: {store} takes {bytes} bytes at once, the files before it take {before_bytes}, and their file system \
         has {free_bytes} free; make them smaller, or leave out thin=false"
    )]
    NoRoomTogether {
        /// Where it is named.
        place: Place,
        /// The store.
        store: String,
        /// What it takes.
        bytes: u64,
        /// What those take that were counted before.
        before_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },

    /// A schedule of snapshots of which none can be taken.
    #[error("{place}: its snapshots cannot be taken as scheduled: {source}")]
    Schedule {
        /// Where the unit is named.
        place: Place,
        /// Why.
        source: store::SnapshotError,
    },

    /// A store cannot be opened; the message of the source names path and remedy.
    #[error("{place}")]
    Store {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: store::OpenError,
    },

    /// An export cannot be opened; the message of the source names server and remedy.
    #[error("{place}")]
    Export {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: Box<remote::OpenError>,
    },

    /// An image cannot be opened; the message of the source names image and remedy.
    #[error("{place}")]
    Image {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: Box<remote::RbdOpenError>,
    },

    /// A device cannot be opened; the message of the source names device and remedy.
    #[error("{place}")]
    Device {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: Box<remote::HyperscsiOpenError>,
    },

    /// A disk of a target cannot be opened; the message of the source names disk and remedy.
    #[error("{place}")]
    Lun {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: Box<remote::IscsiOpenError>,
    },

    /// A SCSI device of this machine cannot be opened; the message of the source names device and remedy.
    #[error("{place}")]
    ScsiDevice {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: Box<remote::ScsiOpenError>,
    },

    /// A handler cannot be used; the message of the source names its socket and the remedy.
    #[error("{place}")]
    Handler {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: Box<remote::HandlerOpenError>,
    },

    /// A password cannot be had.
    #[error("{place}: password file {path} {reason}", path = .path.display())]
    Password {
        /// Where it is named.
        place: Place,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// Members do not fit together; the message of the source names them and the remedy.
    #[error("{place}")]
    Members {
        /// Where the composition is named.
        place: Place,
        /// What is wrong with it.
        source: store::ComposeError,
    },

    /// A log device is none; the message of the source has the remedy.
    #[error("{place}")]
    Log {
        /// Where the log is named.
        place: Place,
        /// What is wrong with it.
        source: store::NotLogged,
    },

    // Portals.
    /// A portal cannot be listened on; the message of the source names address and remedy.
    #[error("{place}")]
    Bind {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: reactor::net::BindError,
    },

    /// A socket of a server of NBD cannot be made; the message of the source names it and the remedy.
    #[error("{place}")]
    NbdSocket {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: admin::ListenError,
    },

    /// A server of NBD has no TLS with these files.
    #[error("{place}: {reason}; repair the files, or name others")]
    NbdCertificate {
        /// Where the certificate is named.
        place: Place,
        /// Why not.
        reason: Box<admin::TlsError>,
    },

    /// There is no such interface, or no frames go over it.
    #[error("{place}: {problem}")]
    Interface {
        /// Where it is named.
        place: Place,
        /// What is wrong with it, and the remedy.
        problem: InterfaceProblem,
    },
    /// Frames of an interface cannot be taken; the message of the source names it and the remedy.
    #[error("{place}")]
    Frames {
        /// Where it is named.
        place: Place,
        /// What is wrong with it.
        source: reactor::InterfaceError,
    },
    /// A password of HyperSCSI that nothing can be made of.
    #[error("{place}: no record can be made of the password; choose another one")]
    PasswordUnusable {
        /// The group.
        place: Place,
    },

    // Confinement.
    /// There is no such user.
    #[error("{place}")]
    Account {
        /// Where it is named.
        place: Place,
        /// What is missing.
        source: confine::account::AccountError,
    },
    /// Only root becomes another user.
    #[error("{place}: only root can become user {user}; start Tarn as root, or remove this")]
    NotRoot {
        /// Where the user is named.
        place: Place,
        /// The user.
        user: String,
    },
    /// A root that is not there.
    #[error("{place}: cannot look at root {}, make it or remove it from the list", path.display())]
    RootMissing {
        /// Where it is named.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A snapshot that would be written.
    #[error(
        "{place}: {} is a snapshot of {}, which nobody may write; add readonly, or make a copy (tarn lun add --clone)",
        path.display(), of.display()
    )]
    SnapshotWritable {
        /// Where the store is named.
        place: Place,
        /// The snapshot.
        path: PathBuf,
        /// The file that it is of.
        of: PathBuf,
    },
    /// A store that is a file of Tarn.
    #[error(
        "{place}: {} is a file of Tarn itself (its state, its configuration, or a secret, key or certificate that this \
         names), which can be no store; name another file",
        path.display()
    )]
    OwnFile {
        /// Where the store is named.
        place: Place,
        /// The file.
        path: PathBuf,
    },
    /// A store outside the roots.
    #[error(
        "{place}: {} is outside the roots ({roots}); move it there, or name its directory in confine.roots and \
         restart Tarn",
        path.display()
    )]
    StoreOutside {
        /// Where the store is named.
        place: Place,
        /// Its path.
        path: PathBuf,
        /// The roots.
        roots: String,
    },
    /// A store behind a server that the confined process cannot reach.
    #[error(
        "{place}: {store} is out of reach of the confined process: {reason}; write it to the file and restart Tarn"
    )]
    ServerOutside {
        /// Where the store is named.
        place: Place,
        /// The store.
        store: String,
        /// What was given up.
        reason: String,
    },
    /// The user that Tarn becomes cannot read its configuration.
    #[error(
        "the user of confine.user cannot read {path}, which a reload needs; give it the file and its directory (chown)",
        path = path.display()
    )]
    Hidden {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Rights cannot be given up.
    #[error("cannot give up rights")]
    Confine(#[source] io::Error),
    /// Files cannot be given up.
    #[error("cannot be confined to confine.roots; remove that to serve without")]
    ConfineFiles(#[source] confine::files::FilesError),
    /// System calls cannot be given up.
    #[error("cannot be confined; set confine.seccomp = false to serve without")]
    ConfineCalls(#[source] confine::calls::CallsError),
    /// The kernel cannot confine, and the configuration wants it.
    #[error(
        "this kernel cannot confine {what}; take one that can, or set confine.required = false"
    )]
    Unconfined {
        /// What.
        what: &'static str,
    },
    /// What the service manager passed on is no socket of ours.
    #[error(
        "cannot take over the sockets of LISTEN_FDS; pass sockets that listen for TCP connections"
    )]
    Inherited(#[source] io::Error),

    /// The file system of processes is not mounted.
    #[error(
        "/proc is not mounted, and Tarn needs it to find its threads; mount it (mount -t proc proc /proc)"
    )]
    NoProc,

    // State.
    /// There is no default for this user.
    #[error("the state directory is unknown because HOME is not set; give --state DIR")]
    NoHome,
    /// The state directory cannot be used.
    #[error("cannot use state directory {}, {} or give --state DIR", path.display(), state_remedy(source))]
    StateUnusable {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others could change the state.
    #[error(
        "state directory {path} has mode {mode:04o}, which lets others write to it; run chmod 700 {path} or give \
         --state DIR",
        path = path.display()
    )]
    StateExposed {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file of the state directory is not what this program writes.
    #[error(
        "{path} is not what this program writes ({problem}); restore it from a backup, or move it away to generate \
         new identities",
        path = path.display()
    )]
    StateForeign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, one line.
        problem: String,
    },
    /// A file of the state directory is damaged.
    #[error(
        "{path} is damaged: {problem}{}",
        if *has_copy { ", its copy is good" } else { ", and there is no good copy" },
        path = path.display()
    )]
    StateDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, one line.
        problem: String,
        /// Whether there is a copy that is not.
        has_copy: bool,
    },
    /// A file of the state directory is of another version.
    #[error(
        "{path} has version {got}, this program knows version {known}; use the program that wrote it",
        path = path.display()
    )]
    StateVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        got: u32,
        /// The version this program reads and writes.
        known: u32,
    },
    /// SCSI counts the ports of a target device with 16 bits.
    #[error(
        "the targets have more than 65535 portal groups in all; give more of their portals the same group"
    )]
    PortsExhausted,
    /// Another process serves the unit.
    #[error(
        "{place}: {unit} is in use by another tarn with the same state directory, or this tarn has not closed it yet; \
         {lock} is locked: stop the other one or give it its own --state DIR, or wait (tarn doctor)",
        lock = lock.display()
    )]
    UnitBusy {
        /// Where the unit is named.
        place: Place,
        /// The unit.
        unit: String,
        /// The lock the other one holds.
        lock: PathBuf,
    },
    /// Two units of this very process came out with one identity.
    #[error("{place}: {unit} has the identity of another unit; set naa to one of its own")]
    IdentityShared {
        /// Where the unit is named.
        place: Place,
        /// The unit.
        unit: String,
    },
    /// The system gives no random bytes.
    #[error("cannot get random bytes from the system for a new identity, check /dev/urandom")]
    Random {
        /// What the system says.
        source: getrandom::Error,
    },
}

impl StartError {
    /// Whether the next start can do what this process has given up the right to.
    pub(crate) const fn needs_restart(&self) -> bool {
        let Self::Interface { problem, .. } = self else {
            return false;
        };
        matches!(problem, InterfaceProblem::Restart { .. })
    }

    /// Whether the configuration has to be put right, rather than the machine or the state directory: where nothing
    /// else is wrong, the same text may be applied later.
    pub(crate) const fn is_of_configuration(&self) -> bool {
        !matches!(
            self,
            Self::StoreHangs { .. }
                | Self::StateUnusable { .. }
                | Self::StateDamaged { .. }
                | Self::UnitBusy { .. }
                | Self::Random { .. }
        )
    }
}

/// An amount of memory, in a unit in which it has few digits.
fn mebibytes(mib: u64) -> String {
    match mib {
        ..0x2800 => format!("{mib} MiB"),
        0x2800..0xA0_0000 => format!("{} GiB", mib >> 10),
        _ => format!("{} TiB", mib >> 20),
    }
}

/// An error and its causes in exactly one line. A cause that the message has said already is not said again.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            let _infallible = write!(text, ": {more}");
        }
        cause = error.source();
    }
    plain(&text)
}

/// An error and its causes in exactly one line, with the name of the program.
pub fn one_line(error: &anyhow::Error) -> String {
    let error: &dyn std::error::Error = error.as_ref();
    format!("tarn: {}", chain(error))
}

/// Escapes what is not a sign of its own, so that no name can break the line, colour the terminal or pass for another.
pub fn plain(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if config::is_invisible(character) {
            // Writing to a String cannot fail.
            let _infallible = write!(line, "{}", character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// What makes a place of the state one that can be written.
fn state_remedy(error: &io::Error) -> &'static str {
    use io::ErrorKind::{QuotaExceeded, StorageFull};

    match matches!(error.kind(), StorageFull | QuotaExceeded) {
        true => "make room there",
        false => "make it writable",
    }
}

#[cfg(test)]
mod tests;
