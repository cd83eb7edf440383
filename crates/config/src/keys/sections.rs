//! The tables of all keys, section by section.

use super::pattern::{ADDRESS_PORT, ANYTHING, BIND, ID_PATTERN, ISCSI_NAME, TEXT};
use super::{Fallback, Form, Key, SectionKeys};
use crate::admin::{HISTORY_DEFAULT, HISTORY_MAX};
use crate::limits::LIMIT_KEYS;

/// All sections, in the order of the documentation.
pub const SECTIONS: &[SectionKeys] = &[
    SECTION_TOP,
    SECTION_LUN,
    SECTION_TARGET,
    SECTION_PORTAL,
    SECTION_TARGET_LUN,
    SECTION_USER,
    SECTION_MUTUAL,
    SECTION_GROUP,
    SECTION_SERVER,
    SECTION_LIMITS,
    SECTION_ADMIN,
    SECTION_CONFINE,
];

/// The sections themselves.
pub(crate) const SECTION_TOP: SectionKeys = SectionKeys {
    heading: "the file",
    meaning: "The sections a file may have; each may be left out, though a file without a target serves nothing until one is added.",
    keys: &[
        key(
            "lun",
            Form::List {
                words: "`[[lun]]`, any number",
                entries: &[Form::Table {
                    words: "`[[lun]]`",
                    keys: &SECTION_LUN,
                }],
            },
            Fallback::Words("none"),
            "Logical units, the disks themselves.",
            "everybody",
        ),
        key(
            "target",
            Form::List {
                words: "`[[target]]`, any number",
                entries: &[Form::Table {
                    words: "`[[target]]`",
                    keys: &SECTION_TARGET,
                }],
            },
            Fallback::Words("none"),
            "iSCSI targets: what initiators log in to.",
            "everybody",
        ),
        key(
            "user",
            Form::List {
                words: "`[[user]]`, any number",
                entries: &[Form::Table {
                    words: "`[[user]]`",
                    keys: &SECTION_USER,
                }],
            },
            Fallback::Words("none"),
            "CHAP users.",
            "who listens off loopback",
        ),
        key(
            "group",
            Form::List {
                words: "`[[group]]`, any number",
                entries: &[Form::Table {
                    words: "`[[group]]`",
                    keys: &SECTION_GROUP,
                }],
            },
            Fallback::Words("none"),
            "Groups of initiators, to say who sees which unit.",
            "who has several initiators",
        ),
        key(
            "server",
            Form::Table {
                words: "`[server]`, once",
                keys: &SECTION_SERVER,
            },
            Fallback::Words("defaults"),
            "The process itself.",
            "nobody at first",
        ),
        key(
            "limits",
            Form::Table {
                words: "`[limits]`, once",
                keys: &SECTION_LIMITS,
            },
            Fallback::Words("defaults"),
            "Limits and parameters of the protocol.",
            "nobody at first",
        ),
        key(
            "admin",
            Form::Table {
                words: "`[admin]`, once",
                keys: &SECTION_ADMIN,
            },
            Fallback::Words("defaults"),
            "How administrators reach the daemon.",
            "who administers from another machine",
        ),
        key(
            "confine",
            Form::Table {
                words: "`[confine]`, once",
                keys: &SECTION_CONFINE,
            },
            Fallback::Words("defaults"),
            "What the process gives up once it serves.",
            "who serves machines that are not trusted",
        ),
    ],
};

/// A logical unit.
pub(crate) const SECTION_LUN: SectionKeys = SectionKeys {
    heading: "[[lun]]",
    meaning: "A logical unit: one identity and one state, however many targets show it.",
    keys: &[
        key(
            "id",
            ID,
            Fallback::Required,
            "What targets call the unit, and what its serial number, NAA designator, reservations and saved mode pages are kept under in the state directory.",
            "everybody",
        ),
        key(
            "store",
            Form::Store,
            Fallback::Required,
            "Where the data lives. A relative path is taken from the directory of the file.",
            "everybody",
        ),
        key(
            "serial",
            Form::Text {
                words: "1 to 64 printable ASCII characters, no blanks",
                pattern: r"^[!-~]{1,64}$",
            },
            Fallback::Words("made once and kept"),
            "Unit serial number (VPD page 80h).",
            "who replaces another target and must keep its identity",
        ),
        key(
            "naa",
            Form::Text {
                words: "16 hex digits beginning with 2, 3 or 5, or 32 beginning with 6",
                pattern: r"^(?:[235][0-9a-fA-F]{15}|6[0-9a-fA-F]{31})$",
            },
            Fallback::Words("made once and kept, locally assigned (3)"),
            "NAA designator (VPD page 83h), by which multipath software knows a disk.",
            "who replaces another target and must keep its identity",
        ),
    ],
};

/// A target.
pub(crate) const SECTION_TARGET: SectionKeys = SectionKeys {
    heading: "[[target]]",
    meaning: "An iSCSI target: a name, the addresses it is reached at, who may log in, and what they see.",
    keys: &[
        key(
            "name",
            Form::Text {
                words: "iSCSI name",
                pattern: ISCSI_NAME,
            },
            Fallback::Required,
            "The name initiators log in to, `iqn.`, `eui.` or `naa.`; folded to lower case. `_` is taken, though the standard leaves it out and some initiators refuse it.",
            "everybody",
        ),
        key(
            "alias",
            Form::Text {
                words: "text of at most 255 bytes",
                pattern: TEXT,
            },
            Fallback::Words("none"),
            "A name for people, which initiators may show (TargetAlias).",
            "who has many targets",
        ),
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
            "The addresses the target is reached at.",
            "who serves other machines",
        ),
        key(
            "auth",
            USERS,
            Fallback::Words("open to all"),
            "The CHAP users that may log in; with one or more, CHAP is required.",
            "who listens off loopback",
        ),
        key(
            "chap_algorithms",
            Form::List {
                words: "list of `\"md5\"`, `\"sha1\"`, `\"sha256\"`, `\"sha3-256\"`",
                entries: &[Form::OneOf(&["md5", "sha1", "sha256", "sha3-256"])],
            },
            Fallback::Words("all four"),
            "The CHAP algorithms this target accepts; the strongest that the initiator offers is used. Discovery accepts those that some target with `auth` accepts.",
            "who wants to shut out MD5, or has initiators with nothing else",
        ),
        key(
            "cold_reset",
            Form::Flag,
            Fallback::Value("false"),
            "Lets every initiator that is logged in end all sessions of the target with a TARGET COLD RESET; otherwise the function is refused.",
            "who tests initiators",
        ),
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
            "The units that the target shows, and to whom.",
            "everybody",
        ),
    ],
};

/// A portal in the long form.
pub(crate) const SECTION_PORTAL: SectionKeys = SectionKeys {
    heading: "portal table in `portals`",
    meaning: "An address of a target, where the plain string is not enough.",
    keys: &[
        key(
            "bind",
            Form::Text {
                words: "`\"ADDRESS:PORT\"`, IPv6 in brackets; port 3260 if left out, a free one if 0",
                pattern: BIND,
            },
            Fallback::Required,
            "The address to listen on; `0.0.0.0` and `[::]` stand for all of the machine.",
            "everybody",
        ),
        key(
            "advertise",
            Form::Text {
                words: "`\"HOST:PORT\"`, name or address",
                pattern: ANYTHING,
            },
            Fallback::Words("the address the initiator came to"),
            "The address that discovery tells initiators, where it differs from the bound one.",
            "who sits behind NAT or in a container",
        ),
        key(
            "group",
            Form::Number {
                min: 1,
                max: 65_535,
            },
            Fallback::Number(1),
            "Target portal group tag: the connections of one session may use all portals of one group.",
            "who separates networks",
        ),
    ],
};

/// A unit of a target.
pub(crate) const SECTION_TARGET_LUN: SectionKeys = SectionKeys {
    heading: "unit table in `luns`",
    meaning: "A unit that a target shows.",
    keys: &[
        key(
            "lun",
            Form::Number {
                min: 0,
                max: 16_383,
            },
            Fallback::Required,
            "The logical unit number; each only once in a target.",
            "everybody",
        ),
        key(
            "id",
            Form::Text {
                words: "`id` of a `[[lun]]`",
                pattern: ID_PATTERN,
            },
            Fallback::Required,
            "The unit.",
            "everybody",
        ),
        key(
            "groups",
            Form::List {
                words: "list of `id`s of `[[group]]`s",
                entries: &[ID],
            },
            Fallback::Words("everyone who may log in"),
            "The initiators that see the unit; others cannot tell that it is there.",
            "who has several initiators",
        ),
        key(
            "readonly",
            Form::Flag,
            Fallback::Value("false"),
            "Refuses writes through this entry, whatever the store allows.",
            "who shares an image",
        ),
    ],
};

/// A user.
pub(crate) const SECTION_USER: SectionKeys = SectionKeys {
    heading: "[[user]]",
    meaning: "A CHAP user: the name and the secret with which initiators prove who they are.",
    keys: &[
        key(
            "name",
            NAME,
            Fallback::Required,
            "The name the initiator sends (CHAP_N).",
            "everybody with CHAP",
        ),
        key(
            "secret_file",
            PATH,
            Fallback::Required,
            "The file that holds the secret: 12 to 128 bytes, a newline at its end does not count; only its owner may be able to read it (`chmod 600`). A relative path is taken from the directory of the file.",
            "everybody with CHAP",
        ),
        key(
            "mutual",
            Form::Table {
                words: "table `{ name, secret_file }`",
                keys: &SECTION_MUTUAL,
            },
            Fallback::Words("the target does not prove itself"),
            "With what the target proves itself to an initiator that asks for it (mutual CHAP).",
            "who fears a false target",
        ),
        key(
            "initiators",
            Form::List {
                words: "list of name patterns",
                entries: &[Form::Text {
                    words: "name pattern",
                    pattern: ANYTHING,
                }],
            },
            Fallback::Words("any name"),
            "The InitiatorNames of this user (`*` any characters, `?` one). It proves right under no other name, and no one else may use one of these names at a target that takes users, except users that list it as well.",
            "who has users that do not trust each other",
        ),
    ],
};

/// The other direction of CHAP.
pub(crate) const SECTION_MUTUAL: SectionKeys = SectionKeys {
    heading: "table `mutual`",
    meaning: "With what the target proves itself to this user.",
    keys: &[
        key(
            "name",
            NAME,
            Fallback::Required,
            "The name the target sends (CHAP_N).",
            "everybody with mutual CHAP",
        ),
        key(
            "secret_file",
            PATH,
            Fallback::Required,
            "As in `[[user]]`; the secret must be another one.",
            "everybody with mutual CHAP",
        ),
    ],
};

/// A group of initiators.
pub(crate) const SECTION_GROUP: SectionKeys = SectionKeys {
    heading: "[[group]]",
    meaning: "A group of initiators; one that matches any of its entries belongs to it.",
    keys: &[
        key(
            "id",
            ID,
            Fallback::Required,
            "What units call the group.",
            "who has several initiators",
        ),
        key(
            "initiators",
            Form::List {
                words: "list of name patterns, addresses, networks and users",
                entries: &[Form::Text {
                    words: "pattern, address, network or user",
                    pattern: ANYTHING,
                }],
            },
            Fallback::Required,
            "`\"iqn.1993-08.org.debian:*\"` matches names (`*` any characters, `?` one), `\"10.0.0.0/24\"` addresses, `\"alice\"` or `\"user:alice\"` the CHAP user. Names and addresses are claims of the initiator; only a user is proved.",
            "who has several initiators",
        ),
    ],
};

/// The process.
pub const SECTION_SERVER: SectionKeys = SectionKeys {
    heading: "[server]",
    meaning: "The process itself. A flag of the command line wins over the key of the same name.",
    keys: &[
        key(
            "state",
            PATH,
            Fallback::Words(
                "`/var/lib/tarn` for root, else `$XDG_STATE_HOME/tarn` or `~/.local/state/tarn`",
            ),
            "Directory for what must survive a restart: identities, registrations, saved mode pages. A relative path is taken from the directory of the file.",
            "who runs it from a container or as a service",
        ),
        key(
            "cores",
            Form::Number { min: 1, max: 1024 },
            Fallback::Words("as many as the process may use"),
            "Processor cores to work on, one thread each.",
            "who shares the machine with other work",
        ),
        key(
            "busy_poll_us",
            Form::Number {
                min: 0,
                max: 10_000,
            },
            Fallback::Number(0),
            "Microseconds a core looks for more work before it sleeps: lower latency for processor time.",
            "who has cores to spare",
        ),
        key(
            "coalescing",
            Form::OneOf(&["adaptive", "off", "always"]),
            Fallback::Value("\"adaptive\""),
            "Whether answers wait for others to go in one send: while further commands of the connection are there already, never, or always for some tens of microseconds. PERFORMANCE.md has the figures.",
            "who measures",
        ),
        key(
            "log",
            Form::OneOf(&["off", "error", "warn", "info", "debug", "trace"]),
            Fallback::Value("\"info\""),
            "How much to log on the standard error output.",
            "who looks for a fault",
        ),
        key(
            "discovery_auth",
            USERS,
            Fallback::Words("open to all"),
            "The CHAP users that may ask which targets there are; with one or more, discovery sessions need CHAP.",
            "who keeps target names secret",
        ),
    ],
};

/// The limits.
pub const SECTION_LIMITS: SectionKeys = SectionKeys {
    heading: "[limits]",
    meaning: "Limits of the server and parameters of the protocol; the defaults are meant to be good.",
    keys: &LIMIT_KEYS,
};

/// The way in for administrators.
pub const SECTION_ADMIN: SectionKeys = SectionKeys {
    heading: "[admin]",
    meaning: "How administrators reach the daemon: the command line over a unix socket, REST and the console over TCP.",
    keys: &[
        key(
            "enabled",
            Form::Flag,
            Fallback::Value("true"),
            "Whether they reach it at all. Without, a change of the file and SIGHUP are what is left.",
            "who wants the data plane alone",
        ),
        key(
            "socket",
            PATH,
            Fallback::Words(
                "`/run/tarn/tarn.sock` for root, else `$XDG_RUNTIME_DIR/tarn/tarn.sock`, else `tarn.sock` in the state directory",
            ),
            "The unix socket of the command line, at most 107 bytes. Only root and the user Tarn runs as may use it. A relative path is taken from the directory of the file.",
            "who runs several",
        ),
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
            "Addresses where REST, metrics and the console are served. A token is always needed, on loopback too.",
            "who wants the console, or metrics",
        ),
        key(
            "tls",
            Form::Flag,
            Fallback::Value("true"),
            "Whether these addresses speak TLS. `false` is for loopback addresses alone, as behind a proxy or a tunnel.",
            "who has a proxy that speaks TLS",
        ),
        key(
            "certificate",
            PATH,
            Fallback::Words(
                "made at the first start and again when it lacks a name, signed by itself",
            ),
            "Certificate in PEM, with those that lead to its root. A relative path is taken from the directory of the file.",
            "who has certificates",
        ),
        key(
            "key",
            PATH,
            Fallback::Words("made with the certificate"),
            "The private key of the certificate, in PEM; only its owner may be able to read it.",
            "who has certificates",
        ),
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
            "Names by which browsers may reach the console; a request for any other is refused, so that no foreign page can pass for it.",
            "who reaches the console by a name of DNS, or through a proxy",
        ),
        key(
            "history",
            Form::Number {
                min: 1,
                max: HISTORY_MAX as u64,
            },
            Fallback::Number(HISTORY_DEFAULT as u64),
            "Revisions of the configuration that are kept, for `tarn rollback`.",
            "who changes it by program",
        ),
    ],
};

/// What is given up.
pub const SECTION_CONFINE: SectionKeys = SectionKeys {
    heading: "[confine]",
    meaning: "What the process gives up once it serves, so that whoever takes it over gets little.",
    keys: &[
        key(
            "user",
            ACCOUNT,
            Fallback::Words("stays who it is"),
            "The user to become when Tarn is started as root: stores and ports are opened first. It must be able to read the file and its secrets, and own the state directory.",
            "who starts Tarn as root, without a service manager that does this",
        ),
        key(
            "group",
            ACCOUNT,
            Fallback::Words("that of the user"),
            "The group to be in, besides those that list the user in `/etc/group`.",
            "who has devices that belong to a group",
        ),
        key(
            "roots",
            Form::List {
                words: "list of directories or devices",
                entries: &[PATH],
            },
            Fallback::Words("stores may lie anywhere"),
            "Where stores may lie. A store elsewhere is refused, and the kernel keeps the process (Landlock) from everything that is neither here nor in the directories of the state, the file, its secrets and the socket, from starting programs, and from connecting to other machines. A relative path is taken from the directory of the file.",
            "who serves machines that are not trusted",
        ),
        key(
            "seccomp",
            Form::Flag,
            Fallback::Value("true"),
            "Whether system calls that Tarn does not make fail; the log names each.",
            "who runs it under a debugger or an odd C library",
        ),
        key(
            "required",
            Form::Flag,
            Fallback::Value("false"),
            "Whether a kernel that cannot do this keeps Tarn from starting; otherwise it warns.",
            "who would rather not serve than serve unconfined",
        ),
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
    needed_by: &'static str,
) -> Key {
    Key {
        name,
        form,
        default,
        meaning,
        needed_by,
    }
}
