//! The tables of all keys, section by section.

use super::form::{Fallback, Form, Key, SectionKeys};
use super::pattern::{
    ADDRESS_PORT, ANYTHING, BIND, ID_PATTERN, INQUIRY_4, INQUIRY_8, INQUIRY_16, ISCSI_NAME,
    NAME_64, TEXT,
};
use crate::limits::LIMIT_KEYS;

/// Revisions of the configuration that are kept, if nobody says how many.
pub(crate) const HISTORY_DEFAULT: u16 = 100;

/// Most revisions of the configuration that can be kept.
pub(crate) const HISTORY_MAX: u16 = 10_000;

/// The most snapshots of each period that are kept. Twice their sum is below what a file can have: there may be as many
/// of a time that is to come, where the clock was set back.
pub(crate) const HOURLY_MAX: u64 = 168;
pub(crate) const DAILY_MAX: u64 = 180;
pub(crate) const WEEKLY_MAX: u64 = 104;

/// All sections, in the order of the documentation.
pub const SECTIONS: &[SectionKeys] = &[
    SECTION_TOP,
    SECTION_LUN,
    SECTION_SCHEDULE,
    SECTION_STORE,
    SECTION_TARGET,
    SECTION_PORTAL,
    SECTION_TARGET_LUN,
    SECTION_USER,
    SECTION_MUTUAL,
    SECTION_GROUP,
    SECTION_NBD,
    SECTION_HYPERSCSI,
    SECTION_HYPERSCSI_GROUP,
    SECTION_HYPERSCSI_DEVICE,
    SECTION_QUOTA,
    SECTION_NOTIFY,
    SECTION_SERVER,
    SECTION_LIMITS,
    SECTION_ADMIN,
    SECTION_CONFINE,
];

/// The sections themselves.
#[rustfmt::skip]
pub(crate) const SECTION_TOP: SectionKeys = SectionKeys {
    heading: "the file",
    meaning: "The sections a file may have; each may be left out. A relative path, in every section, starts at the \
        directory of the configuration file.",
    example: "lun = []",
    keys: &[
        key("lun",
            Form::List { words: "`[[lun]]`, any number", entries: &[Form::Table { words: "`[[lun]]`", keys: &SECTION_LUN }] },
            Fallback::Words("none"),
            "Logical units, the disks themselves.",
            "always"),
        key("store",
            Form::List { words: "`[[store]]`, any number", entries: &[Form::Table { words: "`[[store]]`", keys: &SECTION_STORE }] },
            Fallback::Words("none"),
            "Stores without a number, of which a logical unit is composed.",
            "to make one disk of several stores"),
        key("target",
            Form::List { words: "`[[target]]`, any number", entries: &[Form::Table { words: "`[[target]]`", keys: &SECTION_TARGET }] },
            Fallback::Words("none"),
            "iSCSI targets: what initiators log in to.",
            "always"),
        key("user",
            Form::List { words: "`[[user]]`, any number", entries: &[Form::Table { words: "`[[user]]`", keys: &SECTION_USER }] },
            Fallback::Words("none"),
            "CHAP users.",
            "to listen on other addresses than loopback"),
        key("group",
            Form::List { words: "`[[group]]`, any number", entries: &[Form::Table { words: "`[[group]]`", keys: &SECTION_GROUP }] },
            Fallback::Words("none"),
            "Groups of initiators, which decide who sees which unit.",
            "for several initiators"),
        key("nbd",
            Form::List { words: "`[[nbd]]`, any number", entries: &[Form::Table { words: "`[[nbd]]`", keys: &SECTION_NBD }] },
            Fallback::Words("none"),
            "Servers of NBD: units as exports for clients that speak no iSCSI.",
            "for QEMU, nbd-client and libnbd"),
        key("hyperscsi", Form::Table { words: "`[[hyperscsi.group]]`, any number", keys: &SECTION_HYPERSCSI },
            Fallback::Words("none"),
            "Groups of HyperSCSI: units for clients that send SCSI in frames of Ethernet, or over UDP.",
            "for HyperSCSI"),
        key("quota",
            Form::List { words: "`[[quota]]`, any number", entries: &[Form::Table { words: "`[[quota]]`", keys: &SECTION_QUOTA }] },
            Fallback::Words("none"),
            "How much space the disks of an owner, or of a place, may take.",
            "if several departments or tenants share a server"),
        key("notify",
            Form::List { words: "`[[notify]]`, any number", entries: &[Form::Table { words: "`[[notify]]`", keys: &SECTION_NOTIFY }] },
            Fallback::Words("none"),
            "Web servers and people that get events as they happen.",
            "to be notified of findings where alerts are read"),
        key("server", Form::Table { words: "`[server]`, once", keys: &SECTION_SERVER }, Fallback::Words("defaults"),
            "The process itself.",
            "later, if at all"),
        key("limits", Form::Table { words: "`[limits]`, once", keys: &SECTION_LIMITS }, Fallback::Words("defaults"),
            "Limits and parameters of the protocol.",
            "later, if at all"),
        key("admin", Form::Table { words: "`[admin]`, once", keys: &SECTION_ADMIN }, Fallback::Words("defaults"),
            "How administrators reach the daemon.",
            "to administer from another machine, or by the console"),
        key("confine", Form::Table { words: "`[confine]`, once", keys: &SECTION_CONFINE },
            Fallback::Words("defaults"),
            "Rights that the process gives up before it serves.",
            "to serve machines that are not trusted"),
    ],
};

/// A logical unit.
#[rustfmt::skip]
pub const SECTION_LUN: SectionKeys = SectionKeys {
    heading: "[[lun]]",
    meaning: "A logical unit. It has one identity and one state, even if several targets export it.",
    example: "{ id = \"disk\", store = \"mem:1G\" }",
    keys: &[
        key("id", ID, Fallback::Required,
            "The name of the unit. Its identity and state are kept under this name in the state directory.",
            "always"),
        key("store", Form::Store, Fallback::Required,
            "Where the data is.",
            "always"),
        key("serial",
            Form::Text { words: "1 to 64 printable ASCII characters, no blanks", pattern: r"^[!-~]{1,64}$" },
            Fallback::Words("generated once and kept"),
            "Unit serial number (VPD page 80h).",
            "to replace another target whose disks initiators already know"),
        key(
            "naa",
            Form::Text {
                words: "16 hex digits beginning with 2, 3 or 5, or 32 beginning with 6",
                pattern: r"^(?:[235][0-9a-fA-F]{15}|6[0-9a-fA-F]{31})$",
            },
            Fallback::Words("generated once and kept, locally assigned (3)"),
            "NAA designator (VPD page 83h), by which multipath software knows a disk.",
            "to replace another target whose disks initiators already know",
        ),
        key("vendor", Form::Text { words: "1 to 8 printable ASCII characters", pattern: INQUIRY_8 },
            Fallback::Value("\"TARN\""),
            "T10 vendor identification (INQUIRY). With another one the names that hosts make of it change, as those in `/dev/disk/by-id`.",
            "to replace another target: drivers and device sections of `multipath.conf` match it"),
        key("product", Form::Text { words: "1 to 16 printable ASCII characters", pattern: INQUIRY_16 },
            Fallback::Value("\"DISK\""),
            "Product identification (INQUIRY), as `vendor`.",
            "with `vendor`"),
        key("revision", Form::Text { words: "1 to 4 printable ASCII characters", pattern: INQUIRY_4 },
            Fallback::Words("the version of Tarn"),
            "Product revision level (INQUIRY).",
            "if a driver wants a certain one"),
        key("owner", ID,
            Fallback::Words("nobody"),
            "The owner, whose disks a `[[quota]]` counts.",
            "with quotas"),
        key("log", Form::Store, Fallback::Words("none"),
            "A log device, to which durable writes go in sequence: a file (`file:PATH?size=4G`) or block device of at \
             least 16 MiB, for this unit alone. See [Log devices](../guide/log-devices.md).",
            "if syncs of the store are slow and those of the log fast"),
        key("sync_bias", Form::OneOf(&["latency", "throughput"]), Fallback::Value("\"latency\""),
            "With `latency` all durable writes go to the log, with `throughput` those of 64 KiB and more to the store \
             alone.",
            "for many large durable writes, if the store is as fast as the log"),
        key("vendor_commands", Form::Flag, Fallback::Value("false"),
            "Passes commands of the vendor to the device, too. Only with `scsi:` and `handler:`.",
            "if the tools of its vendor need it"),
        key("snapshots", Form::Table { words: "table `{ hourly, daily, weekly, at }`", keys: &SECTION_SCHEDULE },
            Fallback::Words("none are scheduled"),
            "Scheduled snapshots, of files on XFS or btrfs and of Ceph images. See [Snapshots](../guide/snapshots.md).",
            "to have the data of yesterday"),
    ],
};

/// When snapshots of a unit are taken.
#[rustfmt::skip]
pub(crate) const SECTION_SCHEDULE: SectionKeys = SectionKeys {
    heading: "table `snapshots`",
    meaning: "How many scheduled snapshots of each period are kept.",
    example: "{ daily = 7 }",
    keys: &[
        key("hourly", Form::Number { min: 1, max: HOURLY_MAX }, Fallback::Words("none"),
            "Snapshots of the full hours that are kept.",
            "if the work of an hour is worth it"),
        key("daily", Form::Number { min: 1, max: DAILY_MAX }, Fallback::Words("none"),
            "Snapshots of days that are kept.",
            "always"),
        key("weekly", Form::Number { min: 1, max: WEEKLY_MAX }, Fallback::Words("none"),
            "Snapshots of weeks that are kept. They are taken on Sundays.",
            "if a mistake may show late"),
        key("at", Form::Text { words: "`\"HH:MM\"` in UTC", pattern: r"^([01][0-9]|2[0-3]):[0-5][0-9]$" },
            Fallback::Value("\"00:00\""),
            "When those of days and weeks are taken.",
            "for a time when the data is at rest"),
    ],
};

/// A named store.
#[rustfmt::skip]
pub(crate) const SECTION_STORE: SectionKeys = SectionKeys {
    heading: "[[store]]",
    meaning: "A store that a `[[lun]]` names as a member, as in `stripe:a,b`. It is a member of one logical unit.",
    example: "{ id = \"part\", store = \"mem:1G\" }",
    keys: &[
        key("id", ID, Fallback::Required,
            "The name by which a composition refers to the store. It may be renamed.",
            "always"),
        key("store", Form::Store, Fallback::Required,
            "Where the data is. Options `readonly`, `serial` and `removable` belong to the disk, and members cannot be nested.",
            "always"),
    ],
};

/// A target.
#[rustfmt::skip]
pub const SECTION_TARGET: SectionKeys = SectionKeys {
    heading: "[[target]]",
    meaning: "An iSCSI target: its name, its addresses, who may log in, and which units they see.",
    example: "{ name = \"iqn.2026-11.example:san\", luns = [{ lun = 0, id = \"disk\" }] }",
    keys: &[
        key("name", Form::Text { words: "iSCSI name", pattern: ISCSI_NAME }, Fallback::Required,
            "The name initiators log in to, `iqn.`, `eui.` or `naa.`, converted to lower case. `_` is \
             accepted, although the standard does not allow it and some initiators refuse it.",
            "always"),
        key("alias", Form::Text { words: "text of at most 255 bytes", pattern: TEXT }, Fallback::Words("none"),
            "A description that initiators may show (TargetAlias).",
            "with many targets"),
        key(
            "portals",
            Form::List {
                words: "list of `\"ADDRESS:PORT\"` or portal tables",
                entries: &[
                    Form::Text {
                        words: "`\"ADDRESS:PORT\"`",
                        pattern: BIND,
                    },
                    Form::Table {
                        words: "portal table",
                        keys: &SECTION_PORTAL,
                    },
                ],
            },
            Fallback::Value("[\"127.0.0.1:3260\"]"),
            "The addresses to listen on.",
            "to serve other machines",
        ),
        key("auth", USERS, Fallback::Words("no CHAP"),
            "The CHAP users that may log in; with one or more, CHAP is required.",
            "to listen on other addresses than loopback"),
        key(
            "chap_algorithms",
            Form::List {
                words: "list of `\"md5\"`, `\"sha1\"`, `\"sha256\"`, `\"sha3-256\"`",
                entries: &[Form::OneOf(&["md5", "sha1", "sha256", "sha3-256"])],
            },
            Fallback::Value("[\"sha3-256\", \"sha256\", \"sha1\", \"md5\"]"),
            "The CHAP algorithms this target accepts; the strongest that the initiator offers is used. \
                Discovery accepts those that some target with `auth` accepts.",
            "to exclude MD5, or to allow only what old initiators have",
        ),
        key("cold_reset", Form::Flag, Fallback::Value("false"),
            "Lets every initiator that is logged in end all sessions of the target with a TARGET COLD RESET; \
             otherwise the function is refused.",
            "to test initiators"),
        key(
            "luns",
            Form::List {
                words: "list of tables `{ lun, id, groups, readonly }`",
                entries: &[Form::Table {
                    words: "unit table",
                    keys: &SECTION_TARGET_LUN,
                }],
            },
            Fallback::Words("none"),
            "The units that the target exports, and to whom.",
            "always",
        ),
    ],
};

/// A portal in the long form.
#[rustfmt::skip]
pub(crate) const SECTION_PORTAL: SectionKeys = SectionKeys {
    heading: "portal table in `portals`",
    meaning: "An address of a target with more settings.",
    example: "{ bind = \"127.0.0.1:3260\" }",
    keys: &[
        key("bind",
            Form::Text { words: "`\"ADDRESS:PORT\"`, IPv6 in brackets; port 3260 if left out, a free one if 0", pattern: BIND },
            Fallback::Required,
            "The address to listen on; `0.0.0.0` stands for all IPv4 addresses of the machine, `[::]` for all IPv6 addresses: \
             list both to be reached by both.",
            "always"),
        key("advertise", Form::Text { words: "`\"HOST:PORT\"`, name or address", pattern: ANYTHING },
            Fallback::Words("the address the initiator came to"),
            "The address that discovery reports to initiators, if they cannot use the one in `bind`.",
            "behind NAT or in a container"),
        key("group", Form::Number { min: 1, max: 65_535 }, Fallback::Number(1),
            "Target portal group tag: the connections of one session may use all portals of one group.",
            "to separate networks"),
    ],
};

/// A unit of a target.
#[rustfmt::skip]
pub(crate) const SECTION_TARGET_LUN: SectionKeys = SectionKeys {
    heading: "unit table in `luns`",
    meaning: "A unit that a target exports.",
    example: "{ lun = %n, id = %s }",
    keys: &[
        key("lun", Form::Number { min: 0, max: 16_383 }, Fallback::Required,
            "The logical unit number. A number may stand for several units if they have different groups: `{ lun = 0, \
             id = \"a\", groups = [\"g1\"] }, { lun = 0, id = \"b\", groups = [\"g2\"] }`. An entry without groups \
             is for initiators in none of these. An initiator in groups of two of them is refused.",
            "always"),
        key("id", Form::Text { words: "`id` of a `[[lun]]`", pattern: ID_PATTERN }, Fallback::Required,
            "The unit.",
            "always"),
        key("groups", Form::List { words: "list of `id`s of `[[group]]`s", entries: &[ID] },
            Fallback::Words("every initiator that may log in"),
            "The initiators that see the unit; for others it does not exist.",
            "for several initiators"),
        key("readonly", Form::Flag, Fallback::Value("false"),
            "Refuses writes through this entry, whatever the store allows.",
            "to share an image"),
    ],
};

/// A user.
#[rustfmt::skip]
pub(crate) const SECTION_USER: SectionKeys = SectionKeys {
    heading: "[[user]]",
    meaning: "A CHAP user: the name and the secret with which initiators authenticate.",
    example: "{ name = \"alice\", secret_file = \"alice.secret\" }",
    keys: &[
        key("name", NAME, Fallback::Required,
            "The name the initiator sends (CHAP_N).",
            "for CHAP"),
        key("secret_file", PATH, Fallback::Required,
            "The file that holds the secret: 12 to 128 bytes, not counting a newline at the end. Only its \
             owner may have access to it (`chmod 600`).",
            "for CHAP"),
        key("mutual", Form::Table { words: "table `{ name, secret_file }`", keys: &SECTION_MUTUAL },
            Fallback::Words("the target does not authenticate"),
            "How the target authenticates to an initiator that asks for it (mutual CHAP).",
            "if initiators must know that the target is the right one"),
        key("initiators",
            Form::List { words: "list of name patterns", entries: &[Form::Text { words: "name pattern", pattern: ANYTHING }] },
            Fallback::Words("any name"),
            "The InitiatorNames of this user (`*` stands for any characters, `?` for one). The user cannot \
             log in under another name. At a target with `auth`, no other user may use these names, except \
             users that list them as well.",
            "if users do not trust each other"),
    ],
};

/// The other direction of CHAP.
#[rustfmt::skip]
pub(crate) const SECTION_MUTUAL: SectionKeys = SectionKeys {
    heading: "table `mutual`",
    meaning: "How the target authenticates to this user.",
    example: "{ name = %s, secret_file = \"mutual.secret\" }",
    keys: &[
        key("name", NAME, Fallback::Required,
            "The name the target sends (CHAP_N).",
            "for mutual CHAP"),
        key("secret_file", PATH, Fallback::Required,
            "As in `[[user]]`; the secret must differ from those of all users.",
            "for mutual CHAP"),
    ],
};

/// A group of initiators.
#[rustfmt::skip]
pub(crate) const SECTION_GROUP: SectionKeys = SectionKeys {
    heading: "[[group]]",
    meaning: "A group of initiators. An initiator that matches any entry, and no exclusion, belongs to the group.",
    example: "{ id = \"hosts\", initiators = [%s] }",
    keys: &[
        key("id", ID, Fallback::Required,
            "The name by which targets refer to the group.",
            "for several initiators"),
        key(
            "initiators",
            Form::List {
                words: "list of name patterns, addresses, networks, names at addresses, users, names of certificates and exclusions",
                entries: &[Form::Text {
                    words: "pattern, address, network, pattern@network, user or name of a certificate",
                    pattern: ANYTHING,
                }],
            },
            Fallback::Required,
            "`\"iqn.1993-08.org.debian:*\"` matches names (`*` any characters, `?` one), `\"10.0.0.0/24\"` addresses, \
             `\"iqn.1993-08.org.debian:*@10.0.0.0/24\"` initiators whose name and address both match, \
             `\"alice\"` or `\"user:alice\"` the CHAP user, `\"certificate:*.example\"` names in certificates of \
             clients of NBD. An entry that begins with `!` excludes: `[\"iqn.1993-08.org.debian:*\", \
             \"!iqn.1993-08.org.debian:bad\"]` is all but one, in whatever order; a user cannot be excluded. Only \
             CHAP users and certificates are authenticated.",
            "for several initiators",
        ),
    ],
};

/// A server of NBD.
#[rustfmt::skip]
pub const SECTION_NBD: SectionKeys = SectionKeys {
    heading: "[[nbd]]",
    meaning: "A server of NBD. Each client is an I_T nexus of the unit. See [NBD](../guide/nbd.md).",
    example: "{ luns = [%s] }",
    keys: &[
        key("bind",
            Form::Text { words: "`\"ADDRESS:PORT\"`, IPv6 in brackets; port 10809 if left out, a free one if 0", pattern: BIND },
            Fallback::Value("\"127.0.0.1:10809\""),
            "The address to listen on. No portal of a target may have the same.",
            "to serve other machines"),
        key("socket", PATH, Fallback::Words("none"),
            "A unix socket to listen on, in place of `bind`; its path has at most 103 bytes. A stale socket is replaced. \
             Its clients count as ones of 127.0.0.1.",
            "for clients of this machine"),
        key("mode",
            Form::Text { words: "four octal digits", pattern: "^0[0-7]{3}$" },
            Fallback::Value("\"0600\""),
            "The mode of the file of `socket`: whose processes may connect.",
            "if clients run as other users"),
        key("luns",
            Form::List { words: "list of `id`s of `[[lun]]`s", entries: &[ID] },
            Fallback::Required,
            "The units that are its exports, by their ids. A single one is the default export as well.",
            "always"),
        key("groups",
            Form::List { words: "list of `id`s of `[[group]]`s", entries: &[ID] },
            Fallback::Words("every client"),
            "The clients that find the exports, by address or, with `ca`, certificate.",
            "for several clients"),
        key("certificate", PATH, Fallback::Words("no TLS"),
            "Certificate in PEM, followed by its chain. Clients must then begin with TLS (STARTTLS).",
            "off loopback"),
        key("key", PATH, Fallback::Words("no TLS"),
            "The private key of the certificate, in PEM. Only its owner may have access to it.",
            "with `certificate`"),
        key("ca", PATH, Fallback::Words("clients need no certificate"),
            "Certificate authorities of clients, in PEM. A client then needs a certificate, whose DNS names \
             (subjectAltName) `\"certificate:NAME\"` in groups matches.",
            "to authenticate clients"),
    ],
};

/// What is served over HyperSCSI.
#[rustfmt::skip]
pub(crate) const SECTION_HYPERSCSI: SectionKeys = SectionKeys {
    heading: "table `hyperscsi`",
    example: "{ group = [] }",
    meaning: "What is served over HyperSCSI.",
    keys: &[
        key("group",
            Form::List { words: "`[[hyperscsi.group]]`, any number", entries: &[Form::Table { words: "`[[hyperscsi.group]]`", keys: &SECTION_HYPERSCSI_GROUP }] },
            Fallback::Words("none"),
            "Groups of devices.",
            "for HyperSCSI"),
    ],
};

/// A group of HyperSCSI.
#[rustfmt::skip]
pub(crate) const SECTION_HYPERSCSI_GROUP: SectionKeys = SectionKeys {
    heading: "[[hyperscsi.group]]",
    example: "{ name = %s, udp = \"0.0.0.0\", password_file = \"disks.secret\", device = [{ id = \"disk\" }] }",
    meaning: "A group of devices, which HyperSCSI clients find by its name. A session is an I_T nexus of its units. \
         See [Serving over HyperSCSI](../guide/hyperscsi.md).",
    keys: &[
        key("name",
            Form::Text { words: "text of 1 to 64 bytes without control characters", pattern: NAME_64 },
            Fallback::Required,
            "The name of the group, which anybody on the network can read.",
            "always"),
        key("interface",
            Form::Text { words: "name of an interface", pattern: r"^(?!\.{1,2}$)[!-.0-9;-~]{1,15}$" },
            Fallback::Words("`udp` is required"),
            "The interface to serve (EtherType 0x889A). Needs CAP_NET_RAW at the start.",
            "to serve without TCP and IP"),
        key("udp",
            Form::Text { words: "`\"ADDRESS:PORT\"`, IPv6 in brackets; port 5674 if left out, a free one if 0", pattern: BIND },
            Fallback::Words("`interface` is required"),
            "The UDP address to serve, in place of `interface`.",
            "across routers, or without CAP_NET_RAW"),
        key("user",
            Form::Text { words: "text of 1 to 64 bytes without control characters", pattern: NAME_64 },
            Fallback::Words("clients log in with the name of the group"),
            "The name that clients log in with.",
            "if clients must know it as well"),
        key("password_file", PATH, Fallback::Words("`password` or `open` is required"),
            "A file with the password: one line of 8 to 128 bytes. Only its owner may have access to it.",
            "always, unless everybody may have the devices"),
        key("password",
            Form::Text { words: "text of 8 to 128 bytes", pattern: r"^[\s\S]{3,128}$" },
            Fallback::Words("`password_file` is required"),
            "The password itself, which is then also in the history and in what administrators read; `password_file` \
             is better.",
            "for tests"),
        key("open", Form::Flag, Fallback::Value("false"),
            "Whether the group has no password.",
            "on a network that only trusted machines reach"),
        key("retransmit", Form::OneOf(&["selective", "window"]), Fallback::Value("\"selective\""),
            "What is sent again after a loss: what was lost, or everything after it, too.",
            "for measurements"),
        key("profile", Form::OneOf(&["wired", "wireless"]), Fallback::Value("\"wired\""),
            "Timers and queues for switched Ethernet, or for radio: longer waits, a smaller first window, sleep of a \
             minute.",
            "if the clients are on a wireless network"),
        key("device",
            Form::List { words: "`[[hyperscsi.group.device]]`, 1 to 1024", entries: &[Form::Table { words: "`[[hyperscsi.group.device]]`", keys: &SECTION_HYPERSCSI_DEVICE }] },
            Fallback::Required,
            "The units of the group.",
            "always"),
    ],
};

/// A device of a group of HyperSCSI.
#[rustfmt::skip]
pub(crate) const SECTION_HYPERSCSI_DEVICE: SectionKeys = SectionKeys {
    heading: "[[hyperscsi.group.device]]",
    example: "{ id = %s }",
    meaning: "A unit as a device of the group.",
    keys: &[
        key("id", ID, Fallback::Required,
            "The `id` of a `[[lun]]`, which is the name of the device.",
            "always"),
        key("level", Form::OneOf(&["none", "crc", "hash", "encrypt"]), Fallback::Value("\"encrypt\""),
            "The least protection: `none`, `crc` against wrong bytes, `hash` against modification, `encrypt` against \
             reading. Logins are always protected.",
            "if the network is trusted and the processor is slow"),
        key("readonly", Form::Flag, Fallback::Value("false"),
            "Whether clients may only read.",
            "for data that nobody should change"),
    ],
};

/// Who gets events.
#[rustfmt::skip]
pub(crate) const SECTION_NOTIFY: SectionKeys = SectionKeys {
    heading: "[[notify]]",
    example: "{ url = %s, secret_file = \"hook.secret\" }",
    meaning: "A receiver of events: a web server (`url`) or a person (`mail`). Read when Tarn starts. See \
         [Notifications](../guide/notifications.md).",
    keys: &[
        key("url",
            Form::Text { words: "`\"https://HOST[:PORT]/PATH\"`", pattern: r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])([:/?]|$))[!-~]*$" },
            Fallback::Words("`mail` is required"),
            "Where events are sent. `http://` is for this machine only.",
            "for programs"),
        key("secret_file", PATH, Fallback::Words("required with `url`"),
            "A file with the secret that signs requests: 12 to 128 bytes, readable by its owner only.",
            "with `url`"),
        key("mail",
            Form::Text { words: "`\"NAME@HOST\"`", pattern: r"^[!-~]+@[!-~]+$" },
            Fallback::Words("`url` is required"),
            "The receiver of mail.",
            "for people"),
        key("smtp",
            Form::Text { words: "`\"HOST:PORT\"`", pattern: r"^[!-~]+:[0-9]+$" },
            Fallback::Words("`\"127.0.0.1:25\"`, the mail server of this machine"),
            "The mail server. Port 465 is TLS; other ports need STARTTLS, except on this machine, where no TLS is \
             used.",
            "if this machine has no mail server"),
        key("from",
            Form::Text { words: "`\"NAME@HOST\"`", pattern: r"^[!-~]+@[!-~]+$" },
            Fallback::Words("`tarn@` and the name of the machine"),
            "The sender of mail.",
            "if the server accepts only some senders"),
        key("smtp_user", NAME, Fallback::Words("no login"),
            "The user of the mail server.",
            "if the server wants a login"),
        key("smtp_password_file", PATH, Fallback::Words("no login"),
            "The file with the password of `smtp_user`: 1 to 255 bytes, readable by its owner only.",
            "with `smtp_user`"),
        key("events",
            Form::List { words: "kinds of events, as [the API](api.md#events) lists them", entries: &[Form::Text { words: "kind", pattern: r"^[a-z]+(-[a-z]+)*$" }] },
            Fallback::Words("`[\"finding-began\", \"finding-ended\"]`"),
            "Which events are sent.",
            "to get more than findings, or less"),
    ],
};

/// A quota.
#[rustfmt::skip]
pub const SECTION_QUOTA: SectionKeys = SectionKeys {
    heading: "[[quota]]",
    meaning: "A limit on the space of the disks of an `owner` or `pool` together. See [Quotas](../guide/quotas.md).",
    example: "{ owner = %s, used = \"500G\" }",
    keys: &[
        key("owner", ID,
            Fallback::Words("`pool` is required"),
            "Counts the disks with this `owner`.",
            "for tenants and departments"),
        key("pool",
            Form::Text { words: "a directory, or `\"rbd:POOL\"`", pattern: r"^(?!rbd:$).+$" },
            Fallback::Words("`owner` is required"),
            "Counts the disks with files below this directory, or images in this Ceph pool.",
            "to leave room for others on a file system or in a pool"),
        key("provisioned",
            Form::Bytes { min: 1, max: u64::MAX },
            Fallback::Words("no limit"),
            "The most that the sizes of the disks may be together.",
            "to limit what is promised"),
        key("used",
            Form::Bytes { min: 1, max: u64::MAX },
            Fallback::Words("no limit"),
            "The most space that the disks may take together. Then writes that need space fail as on a full medium. \
             Measured every five seconds.",
            "to limit what thin disks take"),
        key("soft",
            Form::Number { min: 1, max: 99 },
            Fallback::Number(90),
            "The percentage of `used` at which initiators and administrators are notified.",
            "to be notified earlier or later"),
    ],
};

/// The process.
#[rustfmt::skip]
pub const SECTION_SERVER: SectionKeys = SectionKeys {
    heading: "[server]",
    meaning: "The process itself. A flag of the command line overrides the key of the same name.",
    example: "{ cores = 2 }",
    keys: &[
        key("state", PATH,
            Fallback::Words("`/var/lib/tarn` for root, else `$XDG_STATE_HOME/tarn` or `~/.local/state/tarn`"),
            "Directory for what must survive a restart: identities, reservations, saved mode pages.",
            "in a container or as a service"),
        key("cores", Form::Number { min: 1, max: 1024 }, Fallback::Words("as many as the process may use"),
            "Number of processor cores to use, with one thread each.",
            "if the machine has other work"),
        key("busy_poll_us", Form::Number { min: 0, max: 10_000 }, Fallback::Number(0),
            "Microseconds a core polls for more work before it sleeps: lower latency, at the cost of processor time.",
            "if cores are to spare"),
        key("coalescing", Form::OneOf(&["adaptive", "off", "always"]), Fallback::Value("\"adaptive\""),
            "Whether responses wait to share a send: `adaptive` only while further commands have already arrived, \
             `off` never, `always` for some tens of microseconds. See [Performance](../internals/performance.md).",
            "for measurements"),
        key("log", Form::OneOf(&["off", "error", "warn", "info", "debug", "trace"]), Fallback::Value("\"info\""),
            "How much to log to the standard error output.",
            "to find a fault"),
        key("discovery_auth", USERS, Fallback::Words("no CHAP"),
            "The CHAP users that may use discovery; with one or more, discovery sessions need CHAP.",
            "to keep target names secret"),
    ],
};

/// The limits.
#[rustfmt::skip]
pub const SECTION_LIMITS: SectionKeys = SectionKeys {
    heading: "[limits]",
    meaning: "Limits of the server and parameters of the protocol. The defaults suit most installations.",
    example: "{ queue_depth = 64 }",
    keys: &LIMIT_KEYS,
};

/// The way in for administrators.
#[rustfmt::skip]
pub const SECTION_ADMIN: SectionKeys = SectionKeys {
    heading: "[admin]",
    meaning: "How administrators reach the daemon: the command line over a unix socket, the API and the \
        console over TCP.",
    example: "{ socket = %s }",
    keys: &[
        key("enabled", Form::Flag, Fallback::Value("true"),
            "Whether the daemon can be administered, other than by the file and SIGHUP.",
            "to switch the administration off"),
        key("socket", PATH,
            Fallback::Words("`/run/tarn/tarn.sock` for root, else `$XDG_RUNTIME_DIR/tarn/tarn.sock`, else `tarn.sock` in the state directory"),
            "The unix socket of the command line; its path has at most 103 bytes. Only root and the user that \
             Tarn runs as may use it. The key overrides the variable `TARN_SOCKET`.",
            "to run several daemons"),
        key(
            "listen",
            Form::List {
                words: "list of `\"ADDRESS:PORT\"`, IPv6 in brackets; a free port if 0",
                entries: &[Form::Text {
                    words: "`\"ADDRESS:PORT\"`",
                    pattern: ADDRESS_PORT,
                }],
            },
            Fallback::Words("none"),
            "Addresses that serve the API, metrics and the console. A token is always needed, on loopback too.",
            "for the console, metrics or access from other machines",
        ),
        key("tls", Form::Flag, Fallback::Value("true"),
            "Whether these addresses use TLS. `false` is only allowed for loopback addresses, for example \
             behind a proxy or a tunnel.",
            "behind a proxy that speaks TLS"),
        key("certificate", PATH,
            Fallback::Words("a self-signed one, generated at the first start and again when a name is missing in it"),
            "Certificate in PEM, followed by its chain.",
            "to use a certificate of your own"),
        key("key", PATH, Fallback::Words("generated with the certificate"),
            "The private key of the certificate, in PEM. Only its owner may have access to it.",
            "to use a certificate of your own"),
        key(
            "names",
            Form::List {
                words: "list of host names or addresses",
                entries: &[Form::Text {
                    words: "host name or address",
                    pattern: r"^[A-Za-z0-9._:-]{1,253}$",
                }],
            },
            Fallback::Words("the addresses of `listen` and the name of the machine"),
            "Names by which browsers may reach the console. Requests for other names are refused, which \
                protects against DNS rebinding.",
            "to reach the console by a DNS name or through a proxy",
        ),
        key("history", Form::Number { min: 1, max: HISTORY_MAX as u64 }, Fallback::Number(HISTORY_DEFAULT as u64),
            "Number of revisions of the configuration that are kept, for `tarn rollback`.",
            "if programs change the configuration"),
    ],
};

/// What is given up.
#[rustfmt::skip]
pub const SECTION_CONFINE: SectionKeys = SectionKeys {
    heading: "[confine]",
    meaning: "Rights that the process gives up before it serves, so that an attacker who takes it over gains little.",
    example: "{ roots = [%s] }",
    keys: &[
        key("user", ACCOUNT, Fallback::Words("the user that started Tarn"),
            "The user to become when Tarn is started as root, after stores and ports are open. It must be able to read \
             the configuration file and its secrets, and own the state directory.",
            "if Tarn is started as root by a service manager that does not do this"),
        key("group", ACCOUNT, Fallback::Words("the group of the user"),
            "The group to become a member of, besides those that list the user in `/etc/group`.",
            "for devices that belong to another group"),
        key("roots", Form::List { words: "list of directories or devices", entries: &[PATH] },
            Fallback::Words("stores may be anywhere"),
            "Where stores may be. The kernel (Landlock) denies all other files, except state, configuration, secrets \
             and socket, and TCP ports that no store had when Tarn started.",
            "to serve machines that are not trusted"),
        key("seccomp", Form::Flag, Fallback::Value("true"),
            "Whether system calls that Tarn does not use fail (seccomp).",
            "under a debugger or with an unusual C library"),
        key("required", Form::Flag, Fallback::Value("false"),
            "Whether Tarn refuses to start where the kernel cannot confine it; otherwise it warns.",
            "to serve confined or not at all"),
    ],
};

const ACCOUNT: Form = Form::Text {
    words: "name or number",
    pattern: ANYTHING,
};
const ID: Form = Form::Text {
    words: "name, 1 to 64 of `a-z A-Z 0-9 - _ .`, but not `.` or `..`",
    pattern: ID_PATTERN,
};
const NAME: Form = Form::Text {
    words: "text of 1 to 255 bytes without control characters",
    pattern: TEXT,
};
const PATH: Form = Form::Text {
    words: "path",
    pattern: ANYTHING,
};
const USERS: Form = Form::List {
    words: "list of user names",
    entries: &[NAME],
};

const fn key(
    name: &'static str,
    form: Form,
    default: Fallback,
    meaning: &'static str,
    set_it: &'static str,
) -> Key {
    Key {
        name,
        form,
        default,
        meaning,
        set_it,
    }
}
