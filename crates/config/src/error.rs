//! What an administrator can have written wrongly. One variant per rule, each with its remedy.

use crate::Place;

/// A broken rule and the place where it is broken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{place}: {rule}")]
pub struct ConfigError {
    /// Where it stands.
    pub place: Place,
    /// What is wrong with it. Boxed, to keep the good path of every function narrow.
    pub rule: Box<Rule>,
}

/// Two groups that see different units under one number, and an initiator that is in both.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "LUN {lun} is one unit for group {other:?} (at {first}) and another for group {this:?}, and {who} is in both; \
     take it out of one of them (an entry with ! excludes), or take another number"
)]
pub struct Overlap {
    /// The number.
    pub lun: crate::LunNumber,
    /// The group of this entry.
    pub this: String,
    /// The group of the other.
    pub other: String,
    /// Who is in both.
    pub who: String,
    /// The other entry.
    pub first: Place,
}

/// A rule of the configuration that was broken, with what was found and what would be right.
///
/// A rule knows no place: the functions that check single words return a rule, and
/// the reader of the file or of the command line adds the place.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rule {
    // The form of the file.
    /// The file is not TOML.
    #[error("not valid TOML: {message}")]
    Syntax {
        /// The parser's words, one line.
        message: String,
    },
    /// A key that nothing reads; most often a slip of the finger.
    #[error("unknown key {}; {hint}", shown_key(key))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The nearest known key, or all of them.
        hint: String,
    },
    /// A key that must be there.
    #[error("key {key:?} is missing; {section} needs it")]
    MissingKey {
        /// The missing key.
        key: &'static str,
        /// The section that lacks it.
        section: &'static str,
    },
    /// A value of another type than the key takes.
    #[error("{got} found where {wanted} is needed")]
    WrongType {
        /// What the key takes.
        wanted: &'static str,
        /// What is there, with its value if that is short.
        got: String,
    },
    /// Something else where a table has to be.
    #[error("{got} found where a table is needed; write {example}")]
    NoTable {
        /// What is there.
        got: String,
        /// A table that may be there.
        example: String,
    },
    /// One section where any number of them may be.
    #[error("a table found where a list is needed; write [[{list}]] above it, with two brackets")]
    OneOfList {
        /// The list.
        list: String,
    },
    /// A number outside its range.
    #[error("{got} is outside {min}..={max}; choose a number in that range")]
    OutOfRange {
        /// The number as written.
        got: String,
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
    /// A word that is not one of a fixed list.
    #[error("{got:?} is not known; use {wanted}")]
    NotOneOf {
        /// The word as written.
        got: String,
        /// The words that are known.
        wanted: &'static str,
    },
    /// A list that must have at least one entry.
    #[error("the list is empty; {remedy}")]
    EmptyList {
        /// What to write instead.
        remedy: &'static str,
    },

    // Sizes.
    /// No digits where a size is needed.
    #[error("size {text:?}: no number; write it as 512, 64k, 1M, 2G or 1T")]
    SizeNotANumber {
        /// The size as written.
        text: String,
    },
    /// A suffix other than k, M, G and T.
    #[error("size {text:?}: unknown suffix {suffix:?}; use k, M, G or T")]
    SizeSuffixUnknown {
        /// The size as written.
        text: String,
        /// What stands behind the digits.
        suffix: String,
    },
    /// More bytes than a file can have.
    #[error("size {text:?} is too large; the largest is {max_bytes} bytes")]
    SizeTooLarge {
        /// The size as written.
        text: String,
        /// The largest size in bytes.
        max_bytes: u64,
    },
    /// A size of nothing.
    #[error("size {text:?} is 0 bytes; give at least one block")]
    SizeZero {
        /// The size as written.
        text: String,
    },
    /// A size that leaves part of a block over.
    #[error(
        "size {size_bytes} is not a multiple of blocksize {block_size_bytes}; the next that fits is {next_bytes}"
    )]
    SizeNotWholeBlocks {
        /// The size that was asked for.
        size_bytes: u64,
        /// The block size that was asked for.
        block_size_bytes: u64,
        /// The next larger size that fits.
        next_bytes: u64,
    },

    // Stores.
    /// A word before the colon that names no kind of store.
    #[error(
        "store kind {kind:?} is not known; use {} (a file of that very name: {remedy:?})",
        crate::store::words()
    )]
    StoreKindUnknown {
        /// What stands before the colon.
        kind: String,
        /// How to name a file with a colon.
        remedy: String,
    },
    /// A store without a path.
    #[error("store {text:?} names no path; write {}", crate::store::usages())]
    StorePathMissing {
        /// The store as written.
        text: String,
    },
    /// A path with a NUL, which no file can have.
    #[error("store {text:?} has a NUL character in its path; remove it")]
    StorePathHasNul {
        /// The store as written.
        text: String,
    },
    /// A store behind a server, whose place does not say which export it is.
    #[error("store {text:?} {problem}; write {usage} after the colon")]
    StoreServer {
        /// The store as written.
        text: String,
        /// What is wrong.
        problem: &'static str,
        /// What stands after the colon.
        usage: &'static str,
    },
    /// An option that no store has.
    #[error(
        "store option {option:?} is not known; the options are {} (a question mark in a file name is written %3F)",
        crate::store::option_words()
    )]
    StoreOptionUnknown {
        /// The option as written.
        option: String,
    },
    /// An option that was given more than once.
    #[error("store option {option:?} is given twice; keep one")]
    StoreOptionTwice {
        /// The option.
        option: &'static str,
    },
    /// An option with a value it does not take.
    #[error("store option {option} has the wrong value {value:?}; use {wanted}")]
    StoreOptionValue {
        /// The option.
        option: &'static str,
        /// Its value as written.
        value: String,
        /// The values it takes.
        wanted: String,
    },
    /// An option that makes no sense for this kind of store.
    #[error("store option {option:?} is not for {kind} stores; {remedy}")]
    StoreOptionNotForKind {
        /// The option.
        option: &'static str,
        /// The kind of store.
        kind: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A composition whose members cannot be these.
    #[error(
        "store {text:?} {problem}; write the ids of [[store]] sections after the colon, with commas, each once"
    )]
    StoreMembers {
        /// The store as written.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// Members whose blocks differ.
    #[error(
        "store {id:?} has blocks of {bytes} bytes and store {other:?} has {other_bytes}; give all members one \
         blocksize="
    )]
    MembersUnlike {
        /// A member.
        id: String,
        /// Its block size.
        bytes: u32,
        /// Another member.
        other: String,
        /// Its block size.
        other_bytes: u32,
    },
    /// A member of which nobody can say where the next one begins.
    #[error(
        "store {id:?} is not the last member and has no size of its own in the configuration, so what is behind it \
         could move; {}",
        if *.takes_size { "give it size=" } else { "make it the last member" }
    )]
    MemberWithoutSize {
        /// The member.
        id: String,
        /// Whether its kind takes the option.
        takes_size: bool,
    },
    /// Something of a disk at a member of one.
    #[error("store {id:?} has {found}, which only a disk has; write it at the [[lun]]")]
    NamedStore {
        /// The section.
        id: String,
        /// What it has.
        found: &'static str,
    },
    /// A log at what has no use for one.
    #[error(
        "store {store:?} has no use for a log; give one to a store of a file or a block device that initiators write \
         to and cannot eject"
    )]
    LogNotPossible {
        /// The store of the unit as written.
        store: String,
    },
    /// A log that is none.
    #[error(
        "log {log:?} is not possible; write file:PATH?size=SIZE or block:PATH, without other options"
    )]
    LogDevice {
        /// The log as written.
        log: String,
    },
    /// What a log is for, without one.
    #[error(
        "sync_bias is about the log of the unit, and it has none; add log, or remove sync_bias"
    )]
    BiasWithoutLog,
    /// A snapshot of what has none.
    #[error("a lun with store {store:?} has no snapshot that snap: can name; {remedy}")]
    SnapshotOfOther {
        /// The store of the lun as written.
        store: String,
        /// What to do instead.
        remedy: String,
    },
    /// A snapshot of a unit where no unit has a name.
    #[error(
        "store {text:?} names a [[lun]] section, which a command line has not; name the file of the snapshot, as \
         file:PATH?readonly"
    )]
    SnapshotWithoutFile {
        /// The store as written.
        text: String,
    },
    /// A schedule for what has no snapshots.
    #[error(
        "store {store:?} has no snapshots that Tarn takes; remove snapshots, or put the data into a file on XFS or \
         btrfs"
    )]
    ScheduleNotPossible {
        /// The store of the unit as written.
        store: String,
    },
    /// A schedule that takes nothing.
    #[error(
        "a schedule needs hourly, daily or weekly; give one of them the number of snapshots that are kept, or remove \
         snapshots"
    )]
    ScheduleEmpty,
    /// A time of day for runs that have none.
    #[error(
        "at is about daily and weekly runs, and there are none; add daily or weekly, or remove at"
    )]
    ScheduleAtUnused,
    /// A time of day that is none.
    #[error("{text:?} is no time of day; write HH:MM in UTC, as 02:30")]
    ScheduleTime {
        /// The time as written.
        text: String,
    },
    /// A composition where no section can be named.
    #[error(
        "store {text:?} names [[store]] sections, which a command line has not; write a file with them and start with \
         --config FILE"
    )]
    MembersWithoutFile {
        /// The store as written.
        text: String,
    },
    /// Two units on one file or device, which would give one medium two states.
    #[error(
        "store {path:?} is already used at {first}; keep one, and show its unit under several LUN numbers or targets \
         instead"
    )]
    StoreTwice {
        /// The path both units name.
        path: String,
        /// Where it was used first.
        first: Place,
    },

    /// A store that this very Tarn has to serve before it can open it.
    #[error(
        "store {store:?} is an export of this Tarn itself, of the server at {first}, which serves when all stores are \
         open; name the store of that lun, or an export of another server"
    )]
    StoreOfOwn {
        /// The export.
        store: String,
        /// Where the server is given.
        first: Place,
    },

    // Names and identities.
    /// An iSCSI name of a form that the standard does not have.
    ///
    /// Spec: RFC 7143 section 4.2.7.
    #[error(
        "iSCSI name {name:?} {problem}; write it as iqn.2026-11.com.example:disk, eui. with 16 or naa. with 16 or 32 \
         hex digits"
    )]
    IscsiName {
        /// The name as written.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An initiator pattern that is neither name, address nor user.
    #[error(
        "initiator {pattern:?} is neither an iSCSI name pattern (iqn.*, eui.*, naa.* or *), nor an address or \
         network (10.0.0.0/24), nor the name of a [[user]]"
    )]
    InitiatorUnknown {
        /// The entry as written.
        pattern: String,
    },
    /// A group of nobody.
    #[error(
        "the group only excludes initiators, so nobody is in it; add those it is for, or \"*\" for all others"
    )]
    OnlyExclusions,
    /// An exclusion that everybody could evade.
    #[error(
        "user {text:?} cannot be excluded, as an initiator that does not authenticate is nobody's user; name the users \
         that belong to the group instead"
    )]
    UserExcluded {
        /// What stands behind the exclamation mark.
        text: String,
    },
    /// Two units for one group under one number.
    #[error(
        "group {group:?} already sees another unit as LUN {lun}, at {first}; take another number, or other groups"
    )]
    ViewTwice {
        /// The number.
        lun: crate::LunNumber,
        /// The group.
        group: String,
        /// The other entry.
        first: Place,
    },
    /// Two units for one initiator under one number.
    #[error("{0}")]
    GroupsOverlap(Box<Overlap>),
    /// A pattern of a user that no name matches.
    #[error(
        "initiator {pattern:?} of a user matches no iSCSI name; write a pattern of names (iqn.*, eui.*, naa.* or *)"
    )]
    NameOfUserUnknown {
        /// The entry as written.
        pattern: String,
    },
    /// A name pattern with a character that no iSCSI name can have.
    #[error(
        "initiator pattern {pattern:?} has the character {character:?}, which no iSCSI name has; remove it"
    )]
    PatternCharacter {
        /// The pattern as written.
        pattern: String,
        /// The offender.
        character: char,
    },
    /// A name that is too long for the wire or for a file name.
    #[error("{what} of {got_bytes} bytes is too long; the limit is {max_bytes} bytes")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        got_bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// A name of nothing.
    #[error("{what} is empty; give it at least one character")]
    EmptyName {
        /// What is empty.
        what: &'static str,
    },
    /// A name that paths and URLs take for a directory.
    #[error("{what} {text:?} means a directory in paths and URLs; use another")]
    DotName {
        /// What is called so.
        what: &'static str,
        /// The name as written.
        text: String,
    },
    /// A character that the name cannot carry.
    #[error("{what} {text:?} has the character {character:?}; use {allowed}")]
    Character {
        /// What has it.
        what: &'static str,
        /// The text as written.
        text: String,
        /// The offender.
        character: char,
        /// The characters that are allowed.
        allowed: &'static str,
    },
    /// A serial number both in the store and beside it.
    #[error("serial is given twice, as {store:?} in the store and as {key:?} here; keep one")]
    SerialTwice {
        /// The one in the STORE.
        store: String,
        /// The one of the key.
        key: String,
    },
    /// What events cannot be sent to.
    #[error(
        "this is no address that events can be sent to; write https://HOST[:PORT]/PATH, without user and fragment"
    )]
    Webhook,
    /// Events would go over the network for all to read.
    #[error(
        "{origin:?} has no TLS; write https://, as http:// is for localhost, 127.0.0.1 and [::1] only"
    )]
    WebhookInClear {
        /// Scheme, host and port, as they are written.
        origin: String,
    },
    /// A kind of events that there is not.
    #[error("there are no events of the kind {kind:?}; docs/reference/api.md lists the kinds")]
    EventKind {
        /// As it is written.
        kind: String,
    },
    /// No mail server.
    #[error("{server:?} is not a mail server; write \"HOST:PORT\", such as mail.example.org:587")]
    Smtp {
        /// As it is written.
        server: String,
    },
    /// No address of mail.
    #[error("{address:?} is not a mail address; write NAME@HOST in ASCII, without blanks")]
    MailAddress {
        /// As it is written.
        address: String,
    },
    /// A web server and a mailbox.
    #[error("url and mail exclude each other; write two [[notify]] sections")]
    NotifyTwo,
    /// Neither a web server nor a mailbox.
    #[error("a [[notify]] needs url or mail; name who gets events")]
    NotifyNobody,
    /// A key that does nothing here.
    #[error("{key} is for {with} only; take it out")]
    NotifyKey {
        /// The key.
        key: &'static str,
        /// What it goes with.
        with: &'static str,
    },
    /// A user without a password, or a password without a user.
    #[error("smtp_user and smtp_password_file go together; give both")]
    MailLoginHalf,
    /// A server that gets nothing.
    #[error("events is empty, so nothing would be sent; name kinds of events, or leave it out")]
    NoEvents,
    /// A quota of an owner and of a pool.
    #[error("a quota is that of an owner or of a pool; make two sections")]
    QuotaOfTwo,
    /// A quota of nothing.
    #[error("a quota needs an owner or a pool; name the one whose disks it counts")]
    QuotaOfNothing,
    /// A quota that limits nothing.
    #[error("a quota needs provisioned or used; give one of them a size, or remove the section")]
    QuotaWithoutLimit,
    /// A part of nothing.
    #[error("soft is a part of used, which is missing; give used a size, or remove soft")]
    SoftWithoutUsed,
    /// Two units that initiators would take for the same one.
    #[error("{what} {value:?} is already that of the unit at {first}; give each unit its own")]
    IdentityTwice {
        /// Serial number or NAA designator.
        what: &'static str,
        /// The value both have.
        value: String,
        /// Where it was given first.
        first: Place,
    },
    /// Something that is no NAA designator.
    ///
    /// Spec: SPC, NAA designator format.
    #[error(
        "naa {text:?} {problem}; write 16 hex digits that begin with 2, 3 or 5, or 32 that begin with 6"
    )]
    Naa {
        /// The designator as written.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },

    // Addresses.
    /// Something that is no address with port.
    #[error(
        "portal {text:?} is not an address; write 192.0.2.1:3260 or [2001:db8::1]:3260; 0.0.0.0:3260 stands for all \
         IPv4 addresses, [::]:3260 for all IPv6 addresses"
    )]
    PortalAddress {
        /// The address as written.
        text: String,
    },
    /// The same for a server of NBD.
    #[error(
        "{text:?} is not an address; write 192.0.2.1:10809 or [2001:db8::1]:10809; 0.0.0.0:10809 stands for all \
         IPv4 addresses, [::]:10809 for all IPv6 addresses"
    )]
    NbdAddress {
        /// The address as written.
        text: String,
    },
    /// The same for HyperSCSI over UDP.
    #[error(
        "{text:?} is not an address; write 192.0.2.1:5674 or [2001:db8::1]:5674; 0.0.0.0:5674 stands for all \
         IPv4 addresses, [::]:5674 for all IPv6 addresses"
    )]
    HyperScsiAddress {
        /// The address as written.
        text: String,
    },
    /// Something that cannot be the name of an interface.
    #[error(
        "{text:?} is not the name of an interface; write 1 to 15 bytes without blanks, colons and slashes, as \
         `ip link` shows them"
    )]
    Interface {
        /// The name as written.
        text: String,
    },
    /// A group of HyperSCSI that is nowhere.
    #[error(
        "the group has no place; give interface = \"NAME\" for frames of Ethernet, or udp = \"ADDRESS\""
    )]
    HyperScsiNowhere,
    /// A group of HyperSCSI without a password.
    #[error(
        "the group has no password; give password_file, or open = true if everybody who reaches it may have its \
         devices"
    )]
    HyperScsiNoPassword,
    /// A group of HyperSCSI without devices.
    #[error(
        "group {name:?} has no device; name a lun, or remove the group (tarn hyperscsi group rm {name:?})"
    )]
    HyperScsiNoDevice {
        /// The group.
        name: String,
    },
    /// A group of HyperSCSI with more devices than the wire has.
    #[error("the group has {got} devices, at most {max} are possible; make several groups")]
    HyperScsiDevices {
        /// How many there are.
        got: usize,
        /// How many there may be.
        max: usize,
    },
    /// What stands where a secret is not shown.
    #[error(
        "{:?} stands in place of a secret for those who may not read it; write the secret itself",
        crate::NOT_SHOWN
    )]
    NotShown,
    /// A password that is too short or too long.
    #[error("the password has {got_bytes} bytes; it must have {min_bytes} to {max_bytes}")]
    PasswordLength {
        /// What it has.
        got_bytes: usize,
        /// What it needs.
        min_bytes: usize,
        /// What it may have.
        max_bytes: usize,
    },
    /// Something that is no mode of a socket.
    #[error("{text:?} is not the mode of a socket; write four octal digits, as in \"0660\"")]
    SocketMode {
        /// The mode as written.
        text: String,
    },
    /// Two keys that say the same in two ways.
    #[error("this does not go with {other:?}; give one of them")]
    NotBoth {
        /// The key that is there, too.
        other: &'static str,
    },
    /// A port that is no number from 1 to 65535.
    #[error("{text:?}: the port is not a number from {min} to 65535")]
    Port {
        /// The address as written.
        text: String,
        /// Smallest legal port at this place.
        min: u16,
    },
    /// Something that is no host name with port.
    #[error(
        "advertised address {text:?} is not a host; write san.example:3260, 192.0.2.1:3260 or [2001:db8::1]:3260"
    )]
    AdvertisedAddress {
        /// The address as written.
        text: String,
    },
    /// An advertised address that nobody can connect to.
    #[error("advertised address {text:?} means all addresses; give one that initiators can reach")]
    AdvertisedUnspecified {
        /// The address as written.
        text: String,
    },
    /// A network prefix that is too long for its address.
    #[error("network {text:?}: prefix length {got} is more than {max}")]
    PrefixTooLong {
        /// The network as written.
        text: String,
        /// The prefix length as written.
        got: String,
        /// The longest prefix of this family.
        max: u8,
    },
    /// A network with bits set behind its prefix; half of these are slips.
    #[error(
        "network {text:?} has bits set behind its prefix; write {network} for the network or {host} for the one address"
    )]
    HostBitsSet {
        /// The network as written.
        text: String,
        /// What the whole network would be.
        network: String,
        /// What the single address would be.
        host: String,
    },

    /// Something that is no address with port for administrators.
    #[error("address {text:?} is not ADDRESS:PORT; write 127.0.0.1:8443 or [::1]:8443")]
    AdminAddress {
        /// The address as written.
        text: String,
    },
    /// Administration without encryption where others can listen.
    #[error(
        "{text:?} would carry tokens without encryption beyond this machine; remove tls = false, or listen on \
         127.0.0.1 or [::1]"
    )]
    PlainOffLoopback {
        /// The address as written.
        text: String,
    },
    /// Something that is no host name.
    #[error("{text:?} is not a host name; write it as san.example, without scheme and port")]
    HostName {
        /// The name as written.
        text: String,
    },

    // References between the parts.
    /// One half of a certificate.
    #[error("this needs {missing:?} beside it; give both, or neither to have them made")]
    NotWithout {
        /// The key that is missing.
        missing: &'static str,
    },
    /// A key that says more of another one, which is not there.
    #[error("this needs {missing:?} beside it; give that too, or remove this")]
    NotAlone {
        /// The key that is missing.
        missing: &'static str,
    },
    /// Two things of one kind with one name.
    #[error("{what} {name:?} is already used at {first}; give each its own")]
    Twice {
        /// What the name belongs to.
        what: &'static str,
        /// The name.
        name: String,
        /// Where it was used first.
        first: Place,
    },
    /// A name that leads nowhere.
    #[error("{what} {name:?} does not exist; {hint}")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// The name as written.
        name: String,
        /// The nearest name that exists, or how to make one.
        hint: String,
    },
    /// Two portals of which one would take the other's address.
    #[error(
        "address {this} overlaps {other} at {first}; keep the one for all addresses or name each address"
    )]
    PortalsOverlap {
        /// This portal.
        this: String,
        /// The other one.
        other: String,
        /// Where the other one stands.
        first: Place,
    },
    /// Two limits that cannot both hold.
    #[error(
        "{small} {small_value} exceeds {large} {large_value}; lower the first or raise the second"
    )]
    LimitsCross {
        /// The one that must be smaller.
        small: &'static str,
        /// Its value.
        small_value: u64,
        /// The one that must be larger.
        large: &'static str,
        /// Its value.
        large_value: u64,
    },
    /// A configuration that serves nothing.
    #[error("nothing to serve; {remedy}")]
    NothingToServe {
        /// What to write.
        remedy: &'static str,
    },
}

impl Rule {
    /// The error that this rule is at `place`.
    pub fn at(self, place: Place) -> ConfigError {
        ConfigError {
            place,
            rule: Box::new(self),
        }
    }
}

/// Adds the place to the outcome of a check that knows none.
pub(crate) trait At<T> {
    /// Maps the broken rule to an error at the place that `place` gives.
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, ConfigError>;
}

impl<T> At<T> for Result<T, Rule> {
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, ConfigError> {
        self.map_err(|rule| rule.at(place()))
    }
}

/// The hint for a name that is not in `known`: the nearest one, or `otherwise`.
pub(crate) fn nearest_hint<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    let nearest = known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min();
    match nearest {
        // Half of the letters wrong is still a slip (two that changed places count twice); more
        // is another word.
        Some((distance, candidate)) if distance * 2 <= candidate.chars().count().max(3) => {
            format!("did you mean {candidate:?}?")
        }
        Some(_) | None => otherwise(),
    }
}

/// How many single letters must be added, dropped or changed to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            let changed = diagonal + usize::from(from != *to);
            diagonal = above;
            left = changed.min(above + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// A key as those may see it who may not read secrets. Keys have no digits and no capitals.
fn shown_key(key: &str) -> String {
    match key
        .chars()
        .all(|one| one.is_ascii_lowercase() || matches!(one, '_' | '-'))
    {
        true => format!("{key:?}"),
        false => "that is not shown, as it may be a secret".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_letter_slips() {
        for (a, b, expected) in [
            ("", "", 0),
            ("store", "store", 0),
            ("", "lun", 3),
            ("lun", "", 3),
            ("stroe", "store", 2),
            ("stor", "store", 1),
            ("sttore", "store", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a:?} to {b:?}");
        }
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let hint = |name| nearest_hint(name, ["store", "serial"], || "no".to_owned());
        assert_eq!(hint("stor"), "did you mean \"store\"?");
        assert_eq!(hint("stroe"), "did you mean \"store\"?");
        assert_eq!(hint("admin"), "no");
        assert_eq!(nearest_hint("x", [], || "none".to_owned()), "none");
    }
}
