//! The list of all keys of the configuration file: the one place that says which there are.
//!
//! The reader refuses what is not listed here, and `docs/CONFIG.md` is held against it by a
//! test, so that neither can know a key that the other does not.

use std::fmt;

use crate::limits::LIMIT_KEYS;

/// A section of the file and the keys it may have.
#[derive(Clone, Copy, Debug)]
pub struct SectionKeys {
    /// As it is written in the file, or what it is an entry of.
    pub heading: &'static str,
    /// What the section is about, one sentence.
    pub meaning: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key of the configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// What it takes.
    pub form: Form,
    /// What holds when it is left out.
    pub default: Fallback,
    /// What it does.
    pub meaning: &'static str,
    /// Who has a reason to set it.
    pub needed_by: &'static str,
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Something that these words describe.
    Words(&'static str),
    /// A number with its range.
    Number {
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
    /// A number of bytes, or a size such as `"64M"`, with its range.
    Bytes {
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
}

/// What holds when a key is left out.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// It cannot be left out.
    Required,
    /// What these words describe.
    Words(&'static str),
    /// This number.
    Number(u64),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(words),
            Self::Number { min, max } => write!(f, "number, {min} to {max}"),
            Self::Bytes { min, max } => {
                write!(
                    f,
                    "bytes or size, {} to {}",
                    size_text(*min),
                    size_text(*max)
                )
            }
        }
    }
}

impl Key {
    /// What holds when the key is left out, in words.
    fn default_text(&self) -> String {
        match (self.default, self.form) {
            (Fallback::Required, _) => "required".to_owned(),
            (Fallback::Words(words), _) => words.to_owned(),
            (Fallback::Number(number), Form::Bytes { .. }) => {
                format!("`\"{}\"`", size_text(number))
            }
            (Fallback::Number(number), Form::Number { .. } | Form::Words(_)) => {
                format!("`{number}`")
            }
        }
    }
}

/// A number of bytes with the largest suffix that leaves no rest.
pub(crate) fn size_text(bytes: u64) -> String {
    [("T", 40), ("G", 30), ("M", 20), ("k", 10)]
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(
            || bytes.to_string(),
            |(suffix, shift)| format!("{}{suffix}", bytes >> shift),
        )
}

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
];

/// The sections themselves.
pub(crate) const SECTION_TOP: SectionKeys = SectionKeys {
    heading: "the file",
    meaning: "The sections a file may have; each may be left out, though a file without a target serves nothing until one is added.",
    keys: &[
        key(
            "lun",
            Form::Words("`[[lun]]`, any number"),
            Fallback::Words("none"),
            "Logical units, the disks themselves.",
            "everybody",
        ),
        key(
            "target",
            Form::Words("`[[target]]`, any number"),
            Fallback::Words("none"),
            "iSCSI targets: what initiators log in to.",
            "everybody",
        ),
        key(
            "user",
            Form::Words("`[[user]]`, any number"),
            Fallback::Words("none"),
            "CHAP users.",
            "who listens off loopback",
        ),
        key(
            "group",
            Form::Words("`[[group]]`, any number"),
            Fallback::Words("none"),
            "Groups of initiators, to say who sees which unit.",
            "who has several initiators",
        ),
        key(
            "server",
            Form::Words("`[server]`, once"),
            Fallback::Words("defaults"),
            "The process itself.",
            "nobody at first",
        ),
        key(
            "limits",
            Form::Words("`[limits]`, once"),
            Fallback::Words("defaults"),
            "Limits and parameters of the protocol.",
            "nobody at first",
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
            Form::Words("name, 1 to 64 of `a-z A-Z 0-9 - _ .`"),
            Fallback::Required,
            "What targets call the unit, and what its serial number, NAA designator, reservations and saved mode pages are kept under in the state directory.",
            "everybody",
        ),
        key(
            "store",
            Form::Words("STORE, see above"),
            Fallback::Required,
            "Where the data lives. A relative path is taken from the directory of the file.",
            "everybody",
        ),
        key(
            "serial",
            Form::Words("1 to 64 printable ASCII characters, no blanks"),
            Fallback::Words("made once and kept"),
            "Unit serial number (VPD page 80h).",
            "who replaces another target and must keep its identity",
        ),
        key(
            "naa",
            Form::Words("16 hex digits beginning with 2, 3 or 5, or 32 beginning with 6"),
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
            Form::Words("iSCSI name"),
            Fallback::Required,
            "The name initiators log in to, `iqn.`, `eui.` or `naa.`; folded to lower case.",
            "everybody",
        ),
        key(
            "alias",
            Form::Words("text of at most 255 bytes"),
            Fallback::Words("none"),
            "A name for people, which initiators may show (TargetAlias).",
            "who has many targets",
        ),
        key(
            "portals",
            Form::Words("list of `\"ADDRESS:PORT\"` or portal tables"),
            Fallback::Words("`[\"127.0.0.1:3260\"]`"),
            "The addresses the target is reached at.",
            "who serves other machines",
        ),
        key(
            "auth",
            Form::Words("list of user names"),
            Fallback::Words("open to all"),
            "The CHAP users that may log in; with one or more, CHAP is required.",
            "who listens off loopback",
        ),
        key(
            "chap_algorithms",
            Form::Words("list of `\"md5\"`, `\"sha1\"`, `\"sha256\"`, `\"sha3-256\"`"),
            Fallback::Words("all four"),
            "The CHAP algorithms this target accepts; the initiator's order decides among them.",
            "who wants to shut out MD5, or has initiators with nothing else",
        ),
        key(
            "luns",
            Form::Words("list of tables `{ lun, id, groups, readonly }`"),
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
            Form::Words(
                "`\"ADDRESS:PORT\"`, IPv6 in brackets; port 3260 if left out, a free one if 0",
            ),
            Fallback::Required,
            "The address to listen on; `0.0.0.0` and `[::]` stand for all of the machine.",
            "everybody",
        ),
        key(
            "advertise",
            Form::Words("`\"HOST:PORT\"`, name or address"),
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
            Form::Words("`id` of a `[[lun]]`"),
            Fallback::Required,
            "The unit.",
            "everybody",
        ),
        key(
            "groups",
            Form::Words("list of `id`s of `[[group]]`s"),
            Fallback::Words("everyone who may log in"),
            "The initiators that see the unit; others cannot tell that it is there.",
            "who has several initiators",
        ),
        key(
            "readonly",
            Form::Words("`true` or `false`"),
            Fallback::Words("`false`"),
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
            Form::Words("text of 1 to 255 bytes without control characters"),
            Fallback::Required,
            "The name the initiator sends (CHAP_N).",
            "everybody with CHAP",
        ),
        key(
            "secret_file",
            Form::Words("path"),
            Fallback::Required,
            "The file that holds the secret: 12 to 128 bytes, a newline at its end does not count; only its owner may be able to read it (`chmod 600`). A relative path is taken from the directory of the file.",
            "everybody with CHAP",
        ),
        key(
            "mutual",
            Form::Words("table `{ name, secret_file }`"),
            Fallback::Words("the target does not prove itself"),
            "With what the target proves itself to an initiator that asks for it (mutual CHAP).",
            "who fears a false target",
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
            Form::Words("text of 1 to 255 bytes without control characters"),
            Fallback::Required,
            "The name the target sends (CHAP_N).",
            "everybody with mutual CHAP",
        ),
        key(
            "secret_file",
            Form::Words("path"),
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
            Form::Words("name, 1 to 64 of `a-z A-Z 0-9 - _ .`"),
            Fallback::Required,
            "What units call the group.",
            "who has several initiators",
        ),
        key(
            "initiators",
            Form::Words("list of name patterns, addresses, networks and users"),
            Fallback::Required,
            "`\"iqn.1993-08.org.debian:*\"` matches names (`*` any characters, `?` one), `\"10.0.0.0/24\"` addresses, `\"alice\"` or `\"user:alice\"` the CHAP user. Names and addresses are claims of the initiator; only a user is proved.",
            "who has several initiators",
        ),
    ],
};

/// The process.
pub(crate) const SECTION_SERVER: SectionKeys = SectionKeys {
    heading: "[server]",
    meaning: "The process itself. A flag of the command line wins over the key of the same name.",
    keys: &[
        key(
            "state",
            Form::Words("path"),
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
            Form::Words("`\"adaptive\"`, `\"off\"` or `\"always\"`"),
            Fallback::Words("`\"adaptive\"`"),
            "Whether answers wait for others to go in one send: while further commands of the connection are there already, never, or always for some tens of microseconds. PERFORMANCE.md has the figures.",
            "who measures",
        ),
        key(
            "log",
            Form::Words(
                "`\"off\"`, `\"error\"`, `\"warn\"`, `\"info\"`, `\"debug\"` or `\"trace\"`",
            ),
            Fallback::Words("`\"info\"`"),
            "How much to log on the standard error output.",
            "who looks for a fault",
        ),
        key(
            "discovery_auth",
            Form::Words("list of user names"),
            Fallback::Words("open to all"),
            "The CHAP users that may ask which targets there are; with one or more, discovery sessions need CHAP.",
            "who keeps target names secret",
        ),
    ],
};

/// The limits.
pub(crate) const SECTION_LIMITS: SectionKeys = SectionKeys {
    heading: "[limits]",
    meaning: "Limits of the server and parameters of the protocol; the defaults are meant to be good.",
    keys: &LIMIT_KEYS,
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

/// The reference of all keys in Markdown, as it stands in `docs/CONFIG.md`.
pub fn reference() -> String {
    SECTIONS.iter().map(SectionKeys::to_string).collect()
}

impl fmt::Display for SectionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            heading,
            meaning,
            keys,
        } = self;
        let heading = if heading.starts_with('[') {
            format!("`{heading}`")
        } else {
            (*heading).to_owned()
        };
        writeln!(f, "### {heading}\n\n{meaning}\n")?;
        writeln!(
            f,
            "| Key | Takes | If left out | What it does | Who needs it |"
        )?;
        writeln!(f, "|---|---|---|---|---|")?;
        for key in *keys {
            writeln!(
                f,
                "| `{}` | {} | {} | {} | {} |",
                key.name,
                key.form,
                key.default_text(),
                key.meaning,
                key.needed_by
            )?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_size;

    #[test]
    fn a_size_text_reads_back_as_the_same_number() {
        for (bytes, text) in [
            (1, "1"),
            (512, "512"),
            (1024, "1k"),
            (1536, "1536"),
            (1 << 20, "1M"),
            (3 << 29, "1536M"),
            (1 << 50, "1024T"),
        ] {
            assert_eq!(size_text(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
    }
}
