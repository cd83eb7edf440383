//! `[[hyperscsi.group]]`: groups of devices that clients of HyperSCSI find by their name.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::address::parse_interface;
use crate::error::{At as _, Broken as _};
use crate::fields::{check_text, read_text_of};
use crate::keys::{SECTION_HYPERSCSI, SECTION_HYPERSCSI_DEVICE, SECTION_HYPERSCSI_GROUP};
use crate::names::{AllNames, FirstUse};
use crate::reader::{Field, Section};
use crate::words::words;
use crate::{
    AddressRule, ConfigError, NOT_SHOWN, Place, Rule, SecretFile, Unit, UnitIndex, address,
};

/// Why a group of HyperSCSI cannot be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HyperScsiRule {
    /// A group of HyperSCSI that is nowhere.
    #[error(
        "the group has no place; give interface = \"NAME\" for frames of Ethernet, or udp = \"ADDRESS\""
    )]
    Nowhere,
    /// A group of HyperSCSI without a password.
    #[error(
        "the group has no password; give password_file, or open = true if everybody who reaches it may have its \
         devices"
    )]
    NoPassword,
    /// A group of HyperSCSI without devices.
    #[error(
        "group {name:?} has no device; name a lun, or remove the group (tarn hyperscsi group rm {name:?})"
    )]
    NoDevice {
        /// The group.
        name: String,
    },
    /// A group of HyperSCSI with more devices than the wire has.
    #[error("the group has {got} devices, at most {max} are possible; make several groups")]
    Devices {
        /// How many there are.
        got: usize,
        /// How many there may be.
        max: usize,
    },
    /// What stands where a secret is not shown.
    #[error(
        "{:?} stands in place of a secret for those who may not read it; write the secret itself",
        NOT_SHOWN
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
}

/// Longest name of a group, or of the user that logs in to it, in bytes.
pub const HYPERSCSI_NAME_BYTES_MAX: usize = 64;

/// Shortest password in bytes. Nobody can try passwords without asking the server once for each.
pub const PASSWORD_BYTES_MIN: usize = 8;

/// Longest password in bytes.
pub const PASSWORD_BYTES_MAX: usize = 128;

/// Most devices of a group: the wire has no more.
const DEVICES_MAX: usize = 1024;

/// Where clients of HyperSCSI come in.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum HyperScsiPlace {
    /// Frames of Ethernet on this interface.
    Interface(String),
    /// Datagrams at this address; port 0 is any free port.
    Udp(SocketAddr),
}

impl HyperScsiPlace {
    /// The address, where it is one of UDP.
    pub const fn udp(&self) -> Option<SocketAddr> {
        match self {
            Self::Interface(_) => None,
            Self::Udp(address) => Some(*address),
        }
    }

    /// The interface, where frames of Ethernet are taken.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface(name) => Some(name),
            Self::Udp(_) => None,
        }
    }

    /// The key of the file that says it, and its value.
    pub(crate) fn key_and_value(&self) -> (&'static str, String) {
        match self {
            Self::Interface(name) => ("interface", name.clone()),
            Self::Udp(address) => ("udp", address.to_string()),
        }
    }

    /// Reads `udp:ADDRESS`, or else an interface, as the command line has it.
    ///
    /// # Errors
    ///
    /// [`AddressRule::HyperScsi`], [`AddressRule::Interface`].
    pub fn parse(text: &str) -> Result<Self, AddressRule> {
        match text.strip_prefix("udp:") {
            Some(address) => address::parse_hyperscsi_bind(address).map(Self::Udp),
            None => parse_interface(text).map(Self::Interface),
        }
    }
}

/// The interface, or `udp:` and the address.
impl fmt::Display for HyperScsiPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

words! {
    /// How the frames of a device are protected, the weakest first.
    #[derive(Default)]
    HyperScsiLevel {
        /// By the check of Ethernet alone.
        None = "none",
        /// Against wrong bytes.
        Crc = "crc",
        /// Against those who change what is under way.
        Hash = "hash",
        /// Against those who listen, too.
        #[default]
        Encrypt = "encrypt",
    }
    "none, crc, hash or encrypt"
}

words! {
    /// What is sent again after a loss.
    #[derive(Default)]
    HyperScsiRetransmit {
        /// What is lost.
        #[default]
        Selective = "selective",
        /// All that was sent after it, too.
        Window = "window",
    }
    "selective or window"
}

words! {
    /// What the path is like.
    #[derive(Default)]
    HyperScsiProfile {
        /// Losses are rare and mean that a queue is full.
        #[default]
        Wired = "wired",
        /// Losses are common and mean nothing.
        Wireless = "wireless",
    }
    "wired or wireless"
}

/// A password that stands in the configuration itself. Its `Debug` does not show it.
#[derive(Clone, Eq, PartialEq)]
pub struct WrittenPassword(String);

impl WrittenPassword {
    /// The password.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for WrittenPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrittenPassword")
    }
}

/// What clients of a group have to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HyperScsiPassword {
    /// Nothing: everybody who reaches the place may have the devices.
    Open {
        /// Where that is said.
        place: Place,
    },
    /// What stands in the configuration.
    Written {
        /// The password.
        password: WrittenPassword,
        /// Where it stands.
        place: Place,
    },
    /// What is in a file.
    File(SecretFile),
}

/// A device of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HyperScsiDevice {
    /// By which clients know it: the `id` of its unit, or `disk0` and so on for those of a command line.
    pub name: String,
    /// The unit.
    pub unit: UnitIndex,
    /// The least protection that is accepted.
    pub level: HyperScsiLevel,
    /// Nothing writes to it, by the entry or by its store.
    pub read_only: bool,
}

/// A group of devices, and where clients find it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HyperScsiGroup {
    /// By which clients find it.
    pub name: String,
    /// Where they find it.
    pub at: HyperScsiPlace,
    /// The name that clients log in with, if not that of the group.
    pub user: Option<String>,
    /// What they have to know.
    pub password: HyperScsiPassword,
    /// What is sent again after a loss.
    pub retransmit: HyperScsiRetransmit,
    /// What the path is like.
    pub profile: HyperScsiProfile,
    /// At least one; none twice.
    pub devices: Vec<HyperScsiDevice>,
    /// Where its name is given.
    pub place: Place,
    /// Where its place is given, for errors that only opening it shows.
    pub at_place: Place,
}

/// `NAME at PLACE`, by which a group is known.
impl fmt::Display for HyperScsiGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.at)
    }
}

/// The groups of a file.
pub(crate) fn read_hyperscsi(
    top: &Section<'_>,
    names: &AllNames<'_>,
    units: &[Unit],
    directory: &Path,
) -> Result<Vec<HyperScsiGroup>, ConfigError> {
    let Some(section) = top.section("hyperscsi", SECTION_HYPERSCSI)? else {
        return Ok(Vec::new());
    };
    let mut seen = FirstUse::new("group");
    let mut groups = Vec::new();
    for entry in section.entries("group")? {
        let section = entry.section(SECTION_HYPERSCSI_GROUP)?;
        let name = section.required("name")?;
        let (at, at_place) = read_at(&section)?;
        let user = section.field("user");
        let user =
            user.map(|field| read_text_of("name of the user", HYPERSCSI_NAME_BYTES_MAX, &field));
        let group = HyperScsiGroup {
            name: read_text_of("name of the group", HYPERSCSI_NAME_BYTES_MAX, &name)?,
            at,
            user: user.transpose()?,
            password: read_password(&section, directory)?,
            retransmit: match section.field("retransmit") {
                Some(field) => HyperScsiRetransmit::parse(field.text()?).at(|| field.place())?,
                None => HyperScsiRetransmit::default(),
            },
            profile: match section.field("profile") {
                Some(field) => HyperScsiProfile::parse(field.text()?).at(|| field.place())?,
                None => HyperScsiProfile::default(),
            },
            devices: read_devices(&section, names, units)?,
            place: name.place(),
            at_place,
        };
        seen.insert(group.to_string(), name.place())?;
        groups.push(group);
    }
    Ok(groups)
}

fn read_at(section: &Section<'_>) -> Result<(HyperScsiPlace, Place), ConfigError> {
    match (section.field("interface"), section.field("udp")) {
        (Some(field), None) => {
            let name = parse_interface(field.text()?).at(|| field.place())?;
            Ok((HyperScsiPlace::Interface(name), field.place()))
        }
        (None, Some(field)) => {
            let address = address::parse_hyperscsi_bind(field.text()?);
            let address = address.at(|| field.place())?;
            Ok((HyperScsiPlace::Udp(address), field.place()))
        }
        (Some(_), Some(udp)) => {
            let other = "interface";
            Err(Rule::NotBoth { other }.at(udp.place()))
        }
        (None, None) => Err(HyperScsiRule::Nowhere.at(section.place())),
    }
}

fn read_password(
    section: &Section<'_>,
    directory: &Path,
) -> Result<HyperScsiPassword, ConfigError> {
    let (file, written) = (section.field("password_file"), section.field("password"));
    let open = section.field("open");
    let is_open = open.as_ref().map_or(Ok(false), Field::flag)?;
    match (file, written, open.filter(|_| is_open)) {
        (Some(_), Some(more), _) => {
            let other = "password_file";
            Err(Rule::NotBoth { other }.at(more.place()))
        }
        (Some(more), None, Some(_)) | (None, Some(more), Some(_)) => {
            Err(Rule::NotBoth { other: "open" }.at(more.place()))
        }
        (Some(file), None, None) => {
            let file = SecretFile::read("path of the password", &file, directory)?;
            Ok(HyperScsiPassword::File(file))
        }
        (None, Some(written), None) => {
            let text = written.text()?;
            check_password(text.as_bytes()).at(|| written.place())?;
            Ok(HyperScsiPassword::Written {
                password: WrittenPassword(text.to_owned()),
                place: written.place(),
            })
        }
        (None, None, Some(open)) => Ok(HyperScsiPassword::Open {
            place: open.place(),
        }),
        (None, None, None) => Err(HyperScsiRule::NoPassword.at(section.place())),
    }
}

/// Whether a password may be one.
fn check_password(password: &[u8]) -> Result<(), HyperScsiRule> {
    if password == NOT_SHOWN.as_bytes() {
        return Err(HyperScsiRule::NotShown);
    }
    let got_bytes = password.len();
    match (PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&got_bytes) {
        true => Ok(()),
        false => Err(HyperScsiRule::PasswordLength {
            got_bytes,
            min_bytes: PASSWORD_BYTES_MIN,
            max_bytes: PASSWORD_BYTES_MAX,
        }),
    }
}

fn read_devices(
    group: &Section<'_>,
    names: &AllNames<'_>,
    units: &[Unit],
) -> Result<Vec<HyperScsiDevice>, ConfigError> {
    let no_device = |place: Place| {
        let name = group.field("name").and_then(|name| name.text_or_none());
        let name = name.unwrap_or_default().to_owned();
        HyperScsiRule::NoDevice { name }.at(place)
    };
    let field = group.field("device");
    let field = field.ok_or_else(|| no_device(group.place()))?;
    let mut ids = FirstUse::new("device");
    let mut devices = Vec::new();
    for entry in field.entries()? {
        let section = entry.section(SECTION_HYPERSCSI_DEVICE)?;
        let id = section.required("id")?;
        let position = names.units.find(id.text()?).at(|| id.place())?;
        ids.insert(id.text()?, id.place())?;
        let is_read_only_here = section
            .field("readonly")
            .map_or(Ok(false), |field| field.flag())?;
        let store = units.get(position).map(|unit| &unit.store);
        devices.push(HyperScsiDevice {
            name: id.text()?.to_owned(),
            unit: UnitIndex(position),
            level: match section.field("level") {
                Some(field) => HyperScsiLevel::parse(field.text()?).at(|| field.place())?,
                None => HyperScsiLevel::default(),
            },
            read_only: is_read_only_here || store.is_some_and(crate::StoreSpec::is_read_only_disk),
        });
    }
    match devices.len() {
        0 => Err(no_device(field.place())),
        1..=DEVICES_MAX => Ok(devices),
        got => Err(HyperScsiRule::Devices {
            got,
            max: DEVICES_MAX,
        }
        .at(field.place())),
    }
}

/// A group that the command line asks for, with all units as its devices.
#[derive(Clone, Debug)]
pub struct HyperScsiArguments<'a> {
    /// Where clients come in.
    pub at: &'a str,
    /// The name of the group.
    pub group: &'a str,
    /// The file of its password.
    pub password_file: &'a Path,
}

impl HyperScsiArguments<'_> {
    /// The group that serves these units.
    pub(crate) fn read(&self, units: &[Unit]) -> Result<HyperScsiGroup, ConfigError> {
        let place = |flag: &str, value: &str| Place::argument(format!("{flag} {value}"));
        let at_place = place("--hyperscsi", self.at);
        let name_place = place("--group", self.group);
        let text = self.password_file.display().to_string();
        check_text("name of the group", HYPERSCSI_NAME_BYTES_MAX, self.group)
            .at(|| name_place.clone())?;
        let device = |(position, unit): (usize, &Unit)| HyperScsiDevice {
            name: format!("disk{position}"),
            unit: UnitIndex(position),
            level: HyperScsiLevel::default(),
            read_only: unit.store.is_read_only_disk(),
        };
        if units.len() > DEVICES_MAX {
            let (got, max) = (units.len(), DEVICES_MAX);
            return Err(HyperScsiRule::Devices { got, max }.at(at_place));
        }
        Ok(HyperScsiGroup {
            name: self.group.to_owned(),
            at: HyperScsiPlace::parse(self.at).at(|| at_place.clone())?,
            user: None,
            password: HyperScsiPassword::File(SecretFile {
                path: self.password_file.to_owned(),
                place: place("--password-file", &text),
                text,
            }),
            retransmit: HyperScsiRetransmit::default(),
            profile: HyperScsiProfile::default(),
            devices: units.iter().enumerate().map(device).collect(),
            place: name_place,
            at_place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Difference, Model, Warning};

    const FILE: &str = r#"
lun = [{ id = "a", store = "mem:1M" }, { id = "b", store = "mem:1M?readonly" }]
[[hyperscsi.group]]
name = "ABC"
interface = "eth1"
password_file = "abc.secret"
retransmit = "window"
profile = "wireless"
[[hyperscsi.group.device]]
id = "a"
level = "crc"
[[hyperscsi.group.device]]
id = "b"
[[hyperscsi.group]]
name = "ABC"
udp = "127.0.0.1"
user = "alice"
password = "eight by"
device = [{ id = "a", readonly = true }]
"#;

    fn model(text: &str) -> Result<Model, String> {
        Model::from_toml(text, Path::new("/etc/t.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_group_has_a_place_a_password_and_devices_and_needs_no_target() {
        let model = model(FILE).unwrap();
        assert_eq!(model.warnings(), []);
        let [first, second] = model.hyperscsi() else {
            panic!("{:?}", model.hyperscsi());
        };
        assert_eq!(first.to_string(), "ABC at eth1");
        assert_eq!(second.to_string(), "ABC at udp:127.0.0.1:5674");
        let HyperScsiPassword::File(file) = &first.password else {
            panic!("{:?}", first.password);
        };
        assert_eq!(file.path, Path::new("/etc/abc.secret"));
        let HyperScsiPassword::Written { password, .. } = &second.password else {
            panic!("{:?}", second.password);
        };
        assert_eq!(password.as_str(), "eight by");
        assert!(!format!("{:?}", second.password).contains("eight"));
        let words = (
            first.retransmit,
            first.profile,
            second.retransmit,
            second.profile,
        );
        let expected = (
            HyperScsiRetransmit::Window,
            HyperScsiProfile::Wireless,
            HyperScsiRetransmit::Selective,
            HyperScsiProfile::Wired,
        );
        assert_eq!(words, expected);
        let devices = model.hyperscsi().iter().flat_map(|group| &group.devices);
        let devices: Vec<_> = devices
            .map(|one| (one.name.as_str(), one.level.as_str(), one.read_only))
            .collect();
        assert_eq!(
            devices,
            [
                ("a", "crc", false),
                ("b", "encrypt", true),
                ("a", "encrypt", true)
            ]
        );
    }

    #[test]
    fn groups_read_back_from_the_effective_configuration_without_their_password() {
        let one = model(FILE).unwrap();
        let effective = one.effective();
        assert!(!effective.contains("eight by"), "{effective}");
        let refused = model(&effective).unwrap_err().to_string();
        assert!(refused.contains("in place of a secret"), "{refused}");
        let again = model(&crate::with_secrets_of(&effective, FILE)).unwrap();
        assert_eq!(again.effective(), effective);
        let differences = crate::diff(&one, &again);
        assert!(differences.is_empty(), "{differences:?}");
    }

    #[test]
    fn each_key_of_a_group_differs_alone() {
        let old = model(FILE).unwrap();
        for (from, to, key) in [
            ("user = \"alice\"", "user = \"bob\"", "user"),
            (
                "password = \"eight by\"",
                "password = \"another 8\"",
                "password",
            ),
            ("password = \"eight by\"", "open = true", "password open"),
            ("abc.secret", "other.secret", "password_file"),
            ("retransmit = \"window\"", "", "retransmit"),
            ("profile = \"wireless\"", "", "profile"),
            ("level = \"crc\"", "level = \"hash\"", "device"),
            ("readonly = true", "readonly = false", "device"),
        ] {
            assert!(FILE.contains(from), "{from}");
            let new = model(&FILE.replace(from, to)).unwrap();
            let differences = crate::diff(&old, &new);
            let [Difference::Changed { keys, .. }] = &differences.hyperscsi[..] else {
                panic!("{differences:?}");
            };
            let keys: Vec<_> = keys.iter().map(|change| change.key).collect();
            assert_eq!(keys.join(" "), key, "{from} -> {to}");
            let shown = format!("{differences:?}");
            assert!(
                !shown.contains("eight by") && !shown.contains("another 8"),
                "{shown}"
            );
        }
        let moved = model(&FILE.replace("eth1", "eth2")).unwrap();
        assert_eq!(
            crate::diff(&old, &moved).hyperscsi.len(),
            2,
            "one goes, one comes"
        );
        let mut same = crate::diff(&old, &old);
        same.add_new_passwords(&old, &old, |name| name == "ABC at eth1");
        assert_eq!(same.hyperscsi.len(), 1, "{same:?}");
    }

    /// What is replaced in the file, by what, the place of the error, and a part of its words.
    #[rustfmt::skip]
    const MISTAKES: &[(&str, &str, &str, &str)] = &[
        ("name = \"ABC\"\ninterface", "name = \"\"\ninterface", "t.toml:4", "is empty"),
        ("\"eth1\"", "\"a/b\"", "t.toml:5: hyperscsi.group[0].interface", "ip link"),
        ("\"eth1\"", "\"sixteen-bytes-xx\"", "t.toml:5", "1 to 15 bytes"),
        ("\"eth1\"", "\"\"", "t.toml:5", "ip link"),
        ("interface = \"eth1\"", "", "t.toml:3: hyperscsi.group[0]", "give interface"),
        ("interface =", "udp = \"[::1]\"\ninterface =", "t.toml:5", "does not go with \"interface\""),
        ("\"127.0.0.1\"", "\"eth1\"", "t.toml:16: hyperscsi.group[1].udp", "192.0.2.1:5674"),
        ("\"127.0.0.1\"", "\"127.0.0.1:70000\"", "t.toml:16", "65535"),
        ("\"eight by\"", "\"seven b\"", "t.toml:18: hyperscsi.group[1].password", "has 7 bytes; it must have 8 to 128"),
        ("password = \"eight by\"", "", "t.toml:14: hyperscsi.group[1]", "open = true"),
        ("password = \"eight by\"", "open = false", "t.toml:14", "open = true"),
        ("user = \"alice\"", "open = true", "t.toml:18", "does not go with \"open\""),
        ("user = \"alice\"", "password_file = \"p\"", "t.toml:18", "does not go with \"password_file\""),
        ("{ id = \"a\", readonly", "{ id = \"nowhere\", readonly", "t.toml:19: hyperscsi.group[1].device[0].id", "[[lun]]"),
        ("id = \"b\"\n[", "id = \"a\"\n[", "t.toml:13: hyperscsi.group[0].device[1].id", "already used at"),
        ("device = [{ id = \"a\", readonly = true }]", "device = []", "t.toml:19", "tarn hyperscsi group rm"),
        ("device = [{ id = \"a\", readonly = true }]", "", "t.toml:14", "tarn hyperscsi group rm"),
        ("\"crc\"", "\"md5\"", "t.toml:11", "none, crc, hash or encrypt"),
        ("\"window\"", "\"all\"", "t.toml:7", "selective or window"),
        ("\"wireless\"", "\"radio\"", "t.toml:8", "wired or wireless"),
        ("udp = \"127.0.0.1\"", "interface = \"eth1\"", "t.toml:15: hyperscsi.group[1].name", "already used at"),
        ("level = \"crc\"", "levels = 1", "t.toml:11", "did you mean \"level\""),
    ];

    fn refused(from: &str, to: &str, at: &str, words: &str) {
        assert!(FILE.contains(from), "{from}");
        let found = model(&FILE.replacen(from, to, 1)).err();
        let found = found.unwrap_or_else(|| panic!("{from} -> {to} is taken"));
        assert!(found.starts_with(&format!("/etc/{at}")), "{to}: {found}");
        assert!(found.contains(words), "{to}: {found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }

    #[test]
    fn mistakes_have_a_place_and_a_remedy() {
        for (from, to, at, words) in MISTAKES {
            refused(from, to, at, words);
        }
    }

    #[test]
    fn names_and_passwords_have_a_limit() {
        let name = |bytes: usize| format!("name = \"{}\"\ninterface", "n".repeat(bytes));
        let password = |bytes: usize| format!("password = \"{}\"", "p".repeat(bytes));
        for (from, good, bad, at, words) in [
            (
                "name = \"ABC\"\ninterface",
                name(HYPERSCSI_NAME_BYTES_MAX),
                name(HYPERSCSI_NAME_BYTES_MAX + 1),
                "t.toml:4: hyperscsi.group[0].name",
                "the limit is 64",
            ),
            (
                "password = \"eight by\"",
                password(PASSWORD_BYTES_MAX),
                password(PASSWORD_BYTES_MAX + 1),
                "t.toml:18",
                "has 129 bytes",
            ),
        ] {
            assert!(model(&FILE.replacen(from, &good, 1)).is_ok(), "{good}");
            refused(from, &bad, at, words);
        }
    }

    #[test]
    fn one_port_is_not_taken_twice_and_one_address_serves_several_groups() {
        let group = |name: &str, udp: &str| {
            format!(
                "[[hyperscsi.group]]\nname = \"{name}\"\nudp = \"{udp}\"\nopen = true\ndevice = [{{ id = \"a\" }}]\n"
            )
        };
        let lun = "lun = [{ id = \"a\", store = \"mem:1M\" }]\n";
        for (one, other, is_good) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.2:1", true),
            ("127.0.0.1:1", "0.0.0.0:2", true),
            ("[::1]:1", "0.0.0.0:1", true),
            ("127.0.0.1:1", "0.0.0.0:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", false),
        ] {
            let text = format!("{lun}{}{}", group("x", one), group("y", other));
            let found = model(&text);
            assert_eq!(found.is_ok(), is_good, "{one} and {other}");
            assert!(found.err().is_none_or(|error| error.contains("overlaps")));
        }
        let target = "[[target]]\nname = \"iqn.2026-11.a:t\"\nportals = [\"127.0.0.1:1\"]\n";
        let text = format!("{lun}{}{target}", group("x", "127.0.0.1:1"));
        assert!(model(&text).is_ok(), "a port of UDP is not one of TCP");
    }

    #[test]
    fn who_needs_no_password_and_who_shows_one_is_warned_of() {
        let open = FILE.replace("password = \"eight by\"", "open = true");
        let [Warning::HyperScsiOpen { group, at, .. }] = &model(&open).unwrap().warnings()[..]
        else {
            panic!("one warning");
        };
        assert_eq!((group.as_str(), at.as_str()), ("ABC", "udp:127.0.0.1:5674"));
        let model = model(FILE).unwrap();
        let exposed = |mode| model.exposed_passwords(Path::new("/etc/t.toml"), mode);
        assert_eq!(exposed(0o600), []);
        for mode in [0o640, 0o604] {
            let [warning] = &exposed(mode)[..] else {
                panic!("{mode:o}");
            };
            let text = warning.to_string();
            assert!(
                text.starts_with("/etc/t.toml:18: hyperscsi.group[1].password"),
                "{text}"
            );
            assert!(text.ends_with("run chmod 600 /etc/t.toml"), "{text}");
        }
    }

    #[test]
    fn a_command_line_names_a_group_of_all_its_stores() {
        let stores = ["mem:1M".to_owned(), "mem:2M?readonly".to_owned()];
        let group = |at, group| HyperScsiArguments {
            at,
            group,
            password_file: Path::new("p"),
        };
        let read = |at, name| Model::from_arguments(&stores, None, Some(&group(at, name)));
        let model = read("udp:127.0.0.1:0", "G").unwrap();
        assert!(model.targets().is_empty() && model.warnings().is_empty());
        let [one] = model.hyperscsi() else {
            panic!("{:?}", model.hyperscsi());
        };
        let devices = one
            .devices
            .iter()
            .map(|one| (one.name.as_str(), one.read_only));
        assert_eq!(
            devices.collect::<Vec<_>>(),
            [("disk0", false), ("disk1", true)]
        );
        assert_eq!(
            read("eth0", "G").unwrap().hyperscsi()[0].at.interface(),
            Some("eth0")
        );
        for (at, name, error) in [
            ("udp:x", "G", "--hyperscsi udp:x: \"x\" is not an address"),
            (
                "a b",
                "G",
                "--hyperscsi a b: \"a b\" is not the name of an interface",
            ),
            ("eth0", "", "--group : name of the group is empty"),
        ] {
            let found = read(at, name).unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
