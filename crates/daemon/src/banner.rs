//! What is said to a person once Tarn listens: what is served, where, and how to reach it.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};

use config::{
    Authentication, HostPort, HyperScsiGroup, HyperScsiPassword, Model, Naa, Place, Serial,
    StoreSpec, Target, TargetIndex, Unit,
};

/// A unit as it is served, by the position of its index.
#[derive(Clone, Debug)]
pub(crate) struct ServedUnit {
    /// Size of the open store in bytes.
    pub size_bytes: u64,
    /// What it is, if it is a device of others, which has no size here.
    pub device: Option<&'static str>,
    /// Serial number.
    pub serial: Serial,
    /// NAA designator.
    pub naa: Naa,
}

impl ServedUnit {
    /// Its size, or what it is, for people.
    fn size(&self) -> String {
        let device = self.device.map(str::to_owned);
        device.unwrap_or_else(|| size_text(self.size_bytes))
    }
}

/// A portal of a target as it was bound.
#[derive(Clone, Debug)]
pub(crate) struct BoundPortal {
    /// The target that is reached there.
    pub target: TargetIndex,
    /// Where it listens; never port 0.
    pub address: SocketAddr,
    /// The address that discovery reports instead.
    pub advertise: Option<HostPort>,
}

/// The text for the standard output: each target with its units and portals, then how the usual
/// initiators reach the first one. Every line ends with a newline.
pub(crate) fn banner(model: &Model, units: &[ServedUnit], portals: &[BoundPortal]) -> String {
    let mut text = String::new();
    let mut example = None;
    for (index, target) in model.target_indices().zip(model.targets()) {
        let addresses: Vec<String> = portals
            .iter()
            .filter(|portal| portal.target == index)
            .map(reachable_at)
            .collect();
        write_target(&mut text, target, units, model, &addresses);
        if let (None, Some(address)) = (&example, addresses.into_iter().next()) {
            example = Some((target, address));
        }
    }
    if let Some(users) = discoverers(model) {
        let _infallible = writeln!(text, "discovery needs CHAP as {users}\n");
    }
    if let Some((target, address)) = example {
        write_example(&mut text, model, target, &address);
    }
    text
}

/// The text for each server of NBD, with the places at which they listen.
pub(crate) fn nbd_banner(model: &Model, units: &[ServedUnit], places: &[String]) -> String {
    let mut text = String::new();
    for (server, place) in model.nbd().iter().zip(places) {
        let _infallible = writeln!(text, "nbd at {place}");
        for unit in &server.luns {
            let position = unit.position();
            let (Some(unit), Some(served)) = (model.units().get(position), units.get(position))
            else {
                continue;
            };
            let (size, store) = (served.size(), store_text(unit));
            let _infallible = writeln!(text, "  export {unit}  {size}  {store}");
        }
        text.push('\n');
    }
    text
}

/// Where the data of a unit lives. Members of one that was made from arguments have names that nobody has given.
fn store_text(unit: &Unit) -> String {
    let members = unit.store.members();
    match unit.place {
        Place::Argument { .. } if !members.is_empty() => {
            let places: Vec<String> = members.iter().map(|one| place_of(&one.store)).collect();
            let chunk = size_text(unit.store.chunk_bytes);
            format!("stripe of {}, {chunk} each in turn", places.join(", "))
        }
        Place::Argument { .. } | Place::File { .. } => unit.store.to_string(),
    }
}

/// A store without its options.
fn place_of(store: &StoreSpec) -> String {
    let text = store.to_string();
    let place = text.split('?').next();
    place.unwrap_or_default().to_owned()
}

/// The text for each group of HyperSCSI, with the places at which they are.
pub(crate) fn hyperscsi_banner(model: &Model, units: &[ServedUnit], places: &[String]) -> String {
    let mut text = String::new();
    for (group, place) in model.hyperscsi().iter().zip(places) {
        let _infallible = writeln!(text, "hyperscsi group {} at {place}", group.name);
        for device in &group.devices {
            let position = device.unit.position();
            let (Some(unit), Some(served)) = (model.units().get(position), units.get(position))
            else {
                continue;
            };
            let _infallible = writeln!(
                text,
                "  device {}  {}  {}  {}{}",
                device.name,
                served.size(),
                unit.store,
                device.level.as_str(),
                if device.read_only {
                    "  (read-only)"
                } else {
                    ""
                },
            );
        }
        if let Some(device) = group.devices.first() {
            write_attach(&mut text, group, &device.name, place);
        }
        text.push('\n');
    }
    text
}

/// How a client on Linux uses a device. Names with signs that a shell or a URL takes for its own are left out.
fn write_attach(text: &mut String, group: &HyperScsiGroup, device: &str, place: &str) {
    let is_plain = |name: &str| {
        let mut bytes = name.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let user = group.user.as_deref();
    if !is_plain(&group.name) || !is_plain(device) || !user.is_none_or(is_plain) {
        return;
    }
    let from = match place.strip_prefix("udp:") {
        Some(address) => {
            let here = address.parse().map(nearest);
            let address = here.map_or_else(|_| address.to_owned(), |here| here.to_string());
            format!("--udp {address}")
        }
        None => "--interface INTERFACE".to_owned(),
    };
    let password = match group.password {
        HyperScsiPassword::Open { .. } => "",
        HyperScsiPassword::Written { .. } | HyperScsiPassword::File(_) => " --password-file FILE",
    };
    let url = format!("hyperscsi://{}/{device}", group.name);
    // The question mark is one of a shell, too.
    let url = user.map_or_else(|| url.clone(), |user| format!("'{url}?user={user}'"));
    let _infallible = writeln!(
        text,
        "  use it:  tarn attach {from}{password} --as nbd:SOCKET {url}"
    );
}

fn write_target(
    text: &mut String,
    target: &Target,
    units: &[ServedUnit],
    model: &Model,
    addresses: &[String],
) {
    // Writing to a String cannot fail, here and below.
    let _infallible = writeln!(text, "target {}", target.name);
    let _infallible = writeln!(text, "  at {}", addresses.join(", "));
    for entry in target.luns.entries() {
        let position = entry.unit.position();
        let (Some(unit), Some(served)) = (model.units().get(position), units.get(position)) else {
            continue;
        };
        let _infallible = writeln!(
            text,
            "  LUN {:<3} {:>10}  {}{}  serial {}  naa.{}",
            entry.lun.value(),
            served.size(),
            unit.store,
            if entry.read_only { " (read-only)" } else { "" },
            served.serial,
            served.naa,
        );
    }
    if let Some(users) = users_text(model, target) {
        let _infallible = writeln!(text, "  CHAP users: {users}");
    }
    text.push('\n');
}

fn write_example(text: &mut String, model: &Model, target: &Target, address: &str) {
    let name = &target.name;
    let first = target.luns.entries().first();
    let lun = first.map_or(0, |entry| entry.lun.value());
    let user = target
        .auth
        .first()
        .and_then(|user| model.users().get(user.position()));
    let login = user.map_or_else(String::new, |user| format!("{}%SECRET@", user.name));
    let node = format!("iscsiadm -m node -T {name} -p {address}");
    let set = "-o update -n node.session.auth";
    // Discovery with CHAP takes six commands; a node can be named without.
    let first = match model.discovery_authentication() {
        Authentication::Required(_) => format!("{node} -o new"),
        Authentication::None | Authentication::Optional(_) => {
            format!("iscsiadm -m discovery -t sendtargets -p {address}")
        }
    };
    let _infallible = writeln!(text, "Linux      {first}");
    if let Some(user) = user {
        let mut keys = vec![
            ("authmethod", "CHAP"),
            ("username", user.name.as_str()),
            ("password", "SECRET"),
        ];
        if let Some(mutual) = &user.mutual {
            keys.push(("username_in", mutual.name.as_str()));
            keys.push(("password_in", "SECRET_OF_TARGET"));
        }
        for (key, value) in keys {
            let _infallible = writeln!(text, "           {node} {set}.{key} -v {value}");
        }
    }
    let _infallible = writeln!(
        text,
        "           {node} --login\n\
         QEMU       qemu-system-x86_64 -drive file=iscsi://{login}{address}/{name}/{lun},format=raw\n\
         libiscsi   iscsi-inq iscsi://{login}{address}/{name}/{lun}\n\
         \n\
         Ctrl-C ends it."
    );
}

/// What an initiator is to be given: the advertised address, or the bound one. An address that
/// stands for all is shown as that of this machine itself, which is where the reader sits.
fn reachable_at(portal: &BoundPortal) -> String {
    if let Some(advertise) = &portal.advertise {
        return advertise.to_string();
    }
    nearest(portal.address).to_string()
}

/// An address at which this machine itself reaches one that may stand for all.
fn nearest(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip([127, 0, 0, 1].into()),
        IpAddr::V6(ip) if ip.is_unspecified() => {
            address.set_ip(std::net::Ipv6Addr::LOCALHOST.into());
        }
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

/// The users that discovery asks for, if it does.
fn discoverers(model: &Model) -> Option<String> {
    let Authentication::Required(users) = model.discovery_authentication() else {
        return None;
    };
    let users = users
        .iter()
        .filter_map(|user| model.users().get(user.position()));
    let names: Vec<_> = users.map(|user| user.name.as_str()).collect();
    Some(names.join(" or "))
}

fn users_text(model: &Model, target: &Target) -> Option<String> {
    let users: Vec<_> = target
        .auth
        .iter()
        .filter_map(|user| model.users().get(user.position()))
        .map(|user| user.name.as_str())
        .collect();
    (!users.is_empty()).then(|| users.join(", "))
}

/// A size for people: the largest unit that leaves a number of at least one, with one digit
/// behind the point where the number is not whole.
fn size_text(bytes: u64) -> String {
    let (suffix, shift) = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| bytes >> shift != 0)
        .unwrap_or(("B", 0));
    let whole = bytes >> shift;
    let rest = bytes - (whole << shift);
    // Tenths, rounded down: a disk is not to look larger than it is.
    match (rest, (u128::from(rest) * 10) >> shift) {
        (0, _) => format!("{whole} {suffix}"),
        (_, tenths) => format!("{whole}.{tenths} {suffix}"),
    }
}

/// Writes to a stream of the process. A failure is ignored: nobody reads the stream any more.
pub fn say(mut stream: impl io::Write, text: &str) {
    let _unread = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush());
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn served(size_bytes: u64, naa: &str) -> ServedUnit {
        let naa = Naa::parse(naa).unwrap();
        ServedUnit {
            size_bytes,
            device: None,
            serial: Serial::of_naa(naa),
            naa,
        }
    }

    fn bound(model: &Model, addresses: &[&str]) -> Vec<BoundPortal> {
        let portals = model
            .target_indices()
            .zip(model.targets())
            .flat_map(|(target, checked)| checked.portals.iter().map(move |p| (target, p)));
        portals
            .zip(addresses)
            .map(|((target, portal), address)| BoundPortal {
                target,
                address: address.parse().unwrap(),
                advertise: portal.advertise.clone(),
            })
            .collect()
    }

    #[test]
    fn who_listens_at_all_addresses_is_reached_at_that_of_this_machine() {
        for (bound, near) in [
            ("0.0.0.0:7", "127.0.0.1:7"),
            ("[::]:7", "[::1]:7"),
            ("192.0.2.1:7", "192.0.2.1:7"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
        ] {
            assert_eq!(nearest(bound.parse().unwrap()).to_string(), near);
        }
    }

    #[test]
    fn servers_of_nbd_are_shown_with_their_exports() {
        let text = "lun = [{ id = \"a\", store = \"mem:1M\" }]\n[[nbd]]\nluns = [\"a\"]\n";
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let unit = served(1 << 20, "3000000000000001");
        let bound = ["127.0.0.1:7".to_owned()];
        assert_eq!(
            nbd_banner(&model, &[unit], &bound),
            "nbd at 127.0.0.1:7\n  export a  1 MiB  mem:1M\n\n"
        );
    }

    #[test]
    fn a_stripe_of_arguments_is_shown_with_their_places() {
        let text = "[[store]]\nid = \"d0\"\nstore = \"hyperscsi://G/d3?udp=h\"\n\
                    [[store]]\nid = \"d1\"\nstore = \"hyperscsi://G/4?udp=h\"\n\
                    [[lun]]\nid = \"disk\"\nstore = \"stripe:d0,d1?chunk=64k\"\n\
                    [[nbd]]\nbind = \"127.0.0.1:0\"\nluns = [\"disk\"]\n";
        let shown = |model: &Model| {
            let unit = served(1 << 20, "3000000000000001");
            nbd_banner(model, &[unit], &["127.0.0.1:7".to_owned()])
        };
        let made = Model::from_made_toml(text, &|_| Place::argument("--stripe")).unwrap();
        assert_eq!(
            shown(&made),
            "nbd at 127.0.0.1:7\n  export disk  1 MiB  \
             stripe of hyperscsi://G/d3, hyperscsi://G/4, 64 KiB each in turn\n\n"
        );
        let file = Model::from_toml(text, Path::new("t.toml")).unwrap();
        assert!(shown(&file).contains("stripe:d0,d1?chunk=64k"));
    }

    #[test]
    fn groups_of_hyperscsi_are_shown_with_their_devices() {
        let text = "lun = [{ id = \"a\", store = \"mem:1M\" }, { id = \"b\", store = \"mem:1M?readonly\" }]\n\
                    [[hyperscsi.group]]\nname = \"G\"\nudp = \"127.0.0.1:0\"\nopen = true\n\
                    device = [{ id = \"a\", level = \"crc\" }, { id = \"b\" }]\n";
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let unit = || served(1 << 20, "3000000000000001");
        let shown = |model: &Model, place: &str| {
            hyperscsi_banner(model, &[unit(), unit()], &[place.to_owned()])
        };
        assert_eq!(
            shown(&model, "udp:127.0.0.1:7"),
            "hyperscsi group G at udp:127.0.0.1:7\n  device a  1 MiB  mem:1M  crc\n  \
             device b  1 MiB  mem:1M?readonly  encrypt  (read-only)\n  \
             use it:  tarn attach --udp 127.0.0.1:7 --as nbd:SOCKET hyperscsi://G/a\n\n"
        );
        assert!(shown(&model, "udp:0.0.0.0:7").contains("attach --udp 127.0.0.1:7 --as"));
        assert!(shown(&model, "eth1").contains("attach --interface INTERFACE --as"));
        let with_password = text.replace("open = true", "password = \"12345678\"");
        let model = Model::from_toml(&with_password, Path::new("t.toml")).unwrap();
        assert!(shown(&model, "eth1").contains(" --password-file FILE --as"));
        for (user, end) in [
            ("alice", "SOCKET 'hyperscsi://G/a?user=alice'\n\n"),
            ("a b", "(read-only)\n\n"),
        ] {
            let user = format!("user = \"{user}\"\npassword = \"12345678\"");
            let of_user = text.replace("open = true", &user);
            let model = Model::from_toml(&of_user, Path::new("t.toml")).unwrap();
            let said = shown(&model, "eth1");
            assert!(said.ends_with(end), "{said}");
        }
        let odd = text.replace("\"G\"", "\"a b\"");
        let model = Model::from_toml(&odd, Path::new("t.toml")).unwrap();
        assert!(!shown(&model, "eth1").contains("attach"));
    }

    #[test]
    fn the_first_minute_is_told_in_full() {
        let stores = ["mem:256M", "disk.img?readonly", "handler:/s"].map(str::to_owned);
        let model = Model::from_stores(&stores, config::default_target_name("box"), &[]).unwrap();
        let units = [
            served(256 << 20, "3000000000000001"),
            served(3 << 29, "3000000000000002"),
            ServedUnit {
                device: Some("tape"),
                ..served(0, "3000000000000003")
            },
        ];
        let expected = "\
target iqn.2026-11.example.tarn:box
  at 127.0.0.1:3260
  LUN 0      256 MiB  mem:256M  serial 000000000000001  naa.3000000000000001
  LUN 1      1.5 GiB  disk.img?readonly (read-only)  serial 000000000000002  naa.3000000000000002
  LUN 2         tape  handler:/s  serial 000000000000003  naa.3000000000000003

Linux      iscsiadm -m discovery -t sendtargets -p 127.0.0.1:3260
           iscsiadm -m node -T iqn.2026-11.example.tarn:box -p 127.0.0.1:3260 --login
QEMU       qemu-system-x86_64 -drive file=iscsi://127.0.0.1:3260/iqn.2026-11.example.tarn:box/0,format=raw
libiscsi   iscsi-inq iscsi://127.0.0.1:3260/iqn.2026-11.example.tarn:box/0

Ctrl-C ends it.
";
        let portals = bound(&model, &["127.0.0.1:3260"]);
        assert_eq!(banner(&model, &units, &portals), expected);
    }

    #[test]
    fn discovery_with_chap_is_shown_with_its_users_and_is_left_out_of_the_commands() {
        let text = "user = [{ name = \"alice\", secret_file = \"s\" }, { name = \"bob\", secret_file = \"t\" }]\n\
                    [server]\ndiscovery_auth = [\"alice\", \"bob\"]\n\
                    [[target]]\nname = \"iqn.2026-11.example.tarn:a\"\nauth = [\"alice\"]\n";
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let text = banner(&model, &[], &bound(&model, &["192.0.2.1:3260"]));
        assert!(
            text.contains("\ndiscovery needs CHAP as alice or bob\n"),
            "{text}"
        );
        let node = "iscsiadm -m node -T iqn.2026-11.example.tarn:a -p 192.0.2.1:3260 -o new\n";
        assert!(
            text.contains(node) && !text.contains("-m discovery"),
            "{text}"
        );
    }

    #[test]
    fn users_portals_and_advertised_addresses_are_told() {
        let text = r#"
            [[lun]]
            id = "a"
            store = "mem:1M"
            [[user]]
            name = "alice"
            secret_file = "s"
            [[target]]
            name = "iqn.2026-11.example.tarn:a"
            auth = ["alice"]
            portals = [{ bind = "[::]:0", advertise = "san.example:9" }, "0.0.0.0:0", "[::1]:0"]
            luns = [{ lun = 7, id = "a" }]
            [[target]]
            name = "iqn.2026-11.example.tarn:b"
        "#;
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let addresses = ["[::]:1", "0.0.0.0:2", "[::1]:3", "127.0.0.1:4"];
        let units = [served(1 << 20, "3000000000000001")];
        let expected = "\
target iqn.2026-11.example.tarn:a
  at san.example:9, 127.0.0.1:2, [::1]:3
  LUN 7        1 MiB  mem:1M  serial 000000000000001  naa.3000000000000001
  CHAP users: alice

target iqn.2026-11.example.tarn:b
  at 127.0.0.1:4

Linux      iscsiadm -m discovery -t sendtargets -p san.example:9
           iscsiadm -m node -T iqn.2026-11.example.tarn:a -p san.example:9 -o update -n node.session.auth.authmethod \
           -v CHAP
           iscsiadm -m node -T iqn.2026-11.example.tarn:a -p san.example:9 -o update -n node.session.auth.username \
           -v alice
           iscsiadm -m node -T iqn.2026-11.example.tarn:a -p san.example:9 -o update -n node.session.auth.password \
           -v SECRET
           iscsiadm -m node -T iqn.2026-11.example.tarn:a -p san.example:9 --login
QEMU       qemu-system-x86_64 -drive file=iscsi://alice%SECRET@san.example:9/iqn.2026-11.example.tarn:a/7,format=raw
libiscsi   iscsi-inq iscsi://alice%SECRET@san.example:9/iqn.2026-11.example.tarn:a/7

Ctrl-C ends it.
";
        assert_eq!(banner(&model, &units, &bound(&model, &addresses)), expected);
    }

    #[test]
    fn mutual_chap_is_shown_and_discovery_with_chap_is_gone_around() {
        let text = r#"
            [server]
            discovery_auth = ["alice"]
            [[user]]
            name = "alice"
            secret_file = "s"
            mutual = { name = "tarn", secret_file = "m" }
            [[target]]
            name = "iqn.2026-11.example.tarn:a"
            auth = ["alice"]
        "#;
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let text = banner(&model, &[], &bound(&model, &["127.0.0.1:4"]));
        assert!(!text.contains("sendtargets"), "{text}");
        for line in [
            "-p 127.0.0.1:4 -o new\n",
            "node.session.auth.username_in -v tarn\n",
            "node.session.auth.password_in -v SECRET_OF_TARGET\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn sizes_are_short_and_never_too_large() {
        for (bytes, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (1 << 10, "1 KiB"),
            ((1 << 20) - 1, "1023.9 KiB"),
            (3 << 29, "1.5 GiB"),
            (1 << 40, "1 TiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
