//! `tarn discover`: servers of HyperSCSI groups, and their devices.

use std::fmt::Write as _;
use std::io;

use config::{ConfigError, Place, StoreSpec};
use remote::{Carrier, HyperscsiOptions, Password, ServerFound};
use serde_json::{Value, json};

use super::{DiscoverVerb, escaped, wrong};
use daemon::interface::FrameUse;
use daemon::{Environment, StartError, password, say};

/// Finds servers, and their devices where a password is known or not needed.
///
/// # Errors
///
/// An argument is wrong, or there is no network.
pub(crate) fn discover(verb: &DiscoverVerb, environment: &Environment) -> anyhow::Result<()> {
    let DiscoverVerb::Hyperscsi(args) = verb;
    if args.group.len() > 16 {
        return Err(wrong("--group", "16 groups at most are asked for at a time").into());
    }
    let (flag, carrier) = carrier(args.udp.as_deref(), args.interface.as_deref())?;
    if let Some(user) = &args.user {
        let spec = format!("hyperscsi://g/d?udp=h&user={}", escaped(user));
        let checked = StoreSpec::parse(&spec);
        checked
            .map_err(|rule| StartError::from(ConfigError::new(rule, Place::argument("--user"))))?;
    }
    let password = password::given(
        args.password_file.as_deref(),
        environment,
        "--password-file",
    )?;
    let failed = |error: remote::HyperscsiFailure| wrong(flag, error.to_string());
    let servers = remote::discover(&carrier, &args.group).map_err(failed)?;
    let mut found = Vec::new();
    for server in servers {
        for (group, is_open) in &server.groups {
            let (user, password) = match is_open {
                true => (None, Some(Password::default())),
                false => (args.user.clone(), password.clone()),
            };
            let options = |password| options(&carrier, &server, group, user, password);
            let devices = password.map(|password| {
                let found = options(password).devices();
                found.map_err(|error| error.to_string())
            });
            found.push((server.clone(), group.clone(), *is_open, devices));
        }
    }
    let text = match args.json {
        true => format!("{:#}\n", Value::from_iter(found.iter().map(in_json))),
        false => found.iter().map(in_words).collect(),
    };
    say(io::stdout().lock(), &text);
    let given = args.password_file.as_ref();
    let given = given.map_or("TARN_PASSWORD", |_| "--password-file");
    for lack in [
        silent(&found, &args.group, &carrier),
        untaken(&found, given),
    ] {
        match lack {
            Lack::Nothing => {}
            Lack::Part(reason) => {
                let line = daemon::error::plain(&format!("tarn: warning: {reason}"));
                say(io::stderr().lock(), &format!("{line}\n"));
            }
            Lack::All(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What was asked for and not found.
#[derive(Debug)]
enum Lack {
    Nothing,
    /// Some of it, which is a warning.
    Part(String),
    /// All of it.
    All(StartError),
}

/// The groups that no server answers for.
fn silent(found: &[FoundGroup], groups: &[String], carrier: &Carrier) -> Lack {
    let is_silent = |name: &&String| found.iter().all(|(_, group, ..)| group != *name);
    let silent: Vec<_> = groups.iter().filter(is_silent).cloned().collect();
    let silent = silent.join(", ");
    let reason = format!(
        "no server answers for {silent} at {carrier}; check the names, the address, and that servers run"
    );
    match (found.is_empty(), silent.is_empty()) {
        (true, _) => Lack::All(wrong("--group", reason)),
        (false, true) => Lack::Nothing,
        (false, false) => Lack::Part(reason),
    }
}

/// The servers that do not show their devices for the password.
fn untaken(found: &[FoundGroup], given: &str) -> Lack {
    let asked = found.iter().filter(|(_, _, is_open, _)| !is_open);
    let asked: Vec<_> = asked.filter_map(|(.., devices)| devices.as_ref()).collect();
    let mut reasons = asked.iter().filter_map(|devices| devices.as_ref().err());
    let Some(first) = reasons.next() else {
        return Lack::Nothing;
    };
    let count = 1 + reasons.count();
    match asked.len() == count {
        true => Lack::All(wrong(given, format!("no server shows devices: {first}"))),
        false => {
            let all = asked.len();
            Lack::Part(format!("{count} of {all} show no devices: {first}"))
        }
    }
}

/// The address or the interface of a flag, checked as that of a store; and the flag.
fn carrier(
    udp: Option<&str>,
    interface: Option<&str>,
) -> Result<(&'static str, Carrier), StartError> {
    let (flag, option, value) = match (interface, udp) {
        (Some(name), _) => ("--interface", "interface", escaped(name)),
        (None, Some(udp)) => ("--udp", "udp", udp.to_owned()),
        (None, None) => {
            let reason =
                "it is not said where servers are asked; add --udp HOST[:PORT], or --interface IF";
            return Err(wrong("--udp", reason));
        }
    };
    let place = || Place::argument(flag);
    let spec = StoreSpec::parse(&format!("hyperscsi://group/device?{option}={value}"));
    let spec = spec.map_err(|rule| StartError::from(ConfigError::new(rule, place())))?;
    let device = spec.at.device().cloned().unwrap_or_default();
    let carrier = match (device.interface(), device.udp()) {
        (Some(name), _) => {
            daemon::interface::check_frames(name, &place(), FrameUse::Store)?;
            Carrier::interface(name)
        }
        (None, Some(address)) => Carrier::udp(address.host.clone(), Some(address.port)),
        (None, None) => return Err(wrong(flag, "it names nothing")),
    };
    Ok((flag, carrier))
}

type Devices = Result<Vec<remote::Device>, String>;

/// How the devices of this server are asked for. Others may have its name, but not its address.
fn options(
    carrier: &Carrier,
    server: &ServerFound,
    group: &str,
    user: Option<String>,
    password: Password,
) -> HyperscsiOptions {
    HyperscsiOptions {
        carrier: carrier.clone(),
        group: group.to_owned(),
        device: String::new(),
        server: Some(server.address.clone()),
        user,
        password,
        level: None,
        retry: std::time::Duration::ZERO,
        read_only: true,
        thin: false,
        block_bytes: 512,
    }
}

type FoundGroup = (ServerFound, String, bool, Option<Devices>);

fn in_json((server, group, is_open, devices): &FoundGroup) -> Value {
    let id: String = server.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut value = json!({
        "server": server.name, "id": id, "address": server.address, "group": group, "needs_password": !is_open,
    });
    let key = match devices {
        None => None,
        Some(Err(error)) => Some(("error", Value::from(error.as_str()))),
        Some(Ok(devices)) => {
            let devices = devices.iter().enumerate().map(|(at, device)| {
                json!({
                    "place": at + 1, "name": device.name, "level": level(device.level),
                    "read_only": device.is_read_only, "removable": device.is_removable,
                    "type": device.peripheral_type, "block_bytes": device.block_bytes,
                    "size_bytes": device.blocks.saturating_mul(device.block_bytes.into()),
                })
            });
            Some(("devices", Value::from_iter(devices)))
        }
    };
    if let (Some((key, devices)), Some(map)) = (key, value.as_object_mut()) {
        map.insert(key.to_owned(), devices);
    }
    value
}

const fn level(level: remote::Level) -> &'static str {
    match level {
        remote::Level::None => "none",
        remote::Level::Crc => "crc",
        remote::Level::Hash => "hash",
        remote::Level::Encrypt => "encrypt",
    }
}

fn in_words((server, group, is_open, devices): &FoundGroup) -> String {
    // What another machine has sent may have signs that a terminal obeys, or that turn the line round.
    let plain = daemon::error::plain;
    let password = if *is_open { "no password" } else { "password" };
    let mut text = format!(
        "{}\t{}\t{group}\t{password}\n",
        plain(&server.name),
        server.address
    );
    match devices {
        None => {}
        Some(Err(error)) => {
            let _infallible = writeln!(text, "  its devices are not known: {}", plain(error));
        }
        Some(Ok(devices)) => {
            for (at, device) in devices.iter().enumerate() {
                let size = config::keys::size_text(
                    device.blocks.saturating_mul(device.block_bytes.into()),
                );
                let (name, level) = (plain(&device.name), level(device.level));
                let read_only = if device.is_read_only {
                    "\tread-only"
                } else {
                    ""
                };
                let _infallible =
                    writeln!(text, "  {}\t{name}\t{size}\t{level}{read_only}", at + 1);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_calls_itself_cannot_pass_for_another_line() {
        let server = ServerFound {
            name: "a\u{202e}b\u{2028}c\n\x1b[31m".to_owned(),
            id: [1; 16],
            address: "192.0.2.7:5674".to_owned(),
            groups: Vec::new(),
        };
        let devices = Some(Err("broken\u{2066}\n".to_owned()));
        let text = in_words(&(server, "storage".to_owned(), true, devices));
        assert_eq!(
            text,
            "a\\u{202e}b\\u{2028}c\\n\\u{1b}[31m\t192.0.2.7:5674\tstorage\tno password\n  \
             its devices are not known: broken\\u{2066}\\n\n"
        );
    }

    #[test]
    fn what_is_not_found_is_a_warning_and_nothing_at_all_an_error() {
        let server = |last| ServerFound {
            name: "vm".to_owned(),
            id: [last; 16],
            address: format!("192.0.2.{last}:5674"),
            groups: Vec::new(),
        };
        let of = |last, is_open, devices| (server(last), "g".to_owned(), is_open, devices);
        let refused = || Some(Err("wrong".to_owned()));
        let taken = || Some(Ok(Vec::new()));
        let (groups, carrier) = (["g".to_owned(), "h".to_owned()], Carrier::interface("e"));
        let told = |lack: Lack| match lack {
            Lack::Nothing => (0, String::new()),
            Lack::Part(reason) => (1, reason),
            Lack::All(error) => (2, error.to_string()),
        };
        let silent = |found: &[FoundGroup], groups| told(silent(found, groups, &carrier)).0;
        assert_eq!(silent(&[], &groups[..]), 2);
        assert_eq!(silent(&[of(1, true, taken())], &groups[..]), 1);
        assert_eq!(silent(&[of(1, true, taken())], &groups[..1]), 0);
        let untaken = |found: &[FoundGroup]| told(untaken(found, "--password-file"));
        let all = "--password-file: no server shows devices: wrong";
        assert_eq!(untaken(&[of(1, false, refused())]), (2, all.to_owned()));
        // An open group takes no password.
        let found = [of(1, false, refused()), of(2, true, taken())];
        assert_eq!(untaken(&found), (2, all.to_owned()));
        let part = "1 of 2 show no devices: wrong";
        let found = [of(1, false, refused()), of(2, false, taken())];
        assert_eq!(untaken(&found), (1, part.to_owned()));
        for found in [
            of(1, false, None),
            of(1, false, taken()),
            of(1, true, refused()),
        ] {
            assert_eq!(untaken(&[found]).0, 0);
        }
    }

    #[test]
    fn devices_are_listed_with_their_places_for_people_and_programs() {
        let server = ServerFound {
            name: "vm".to_owned(),
            id: [0x1a; 16],
            address: "192.0.2.7:5674".to_owned(),
            groups: Vec::new(),
        };
        use remote::Level::{Crc, Encrypt, Hash, None as Open};
        let levels = [
            (Open, "none"),
            (Crc, "crc"),
            (Hash, "hash"),
            (Encrypt, "encrypt"),
        ];
        let device = |level, is_read_only| remote::Device {
            handle: 7,
            level,
            is_read_only,
            is_removable: !is_read_only,
            peripheral_type: 5,
            block_bytes: 2048,
            blocks: 512,
            data_max_bytes: 0,
            designator: [0; 16],
            name: "d\n".to_owned(),
        };
        for (level, word) in levels {
            let devices = Some(Ok(vec![device(level, false), device(level, true)]));
            let found = (server.clone(), "g".to_owned(), false, devices);
            let words = format!("  1\td\\n\t1M\t{word}\n  2\td\\n\t1M\t{word}\tread-only\n");
            assert_eq!(
                in_words(&found),
                format!("vm\t192.0.2.7:5674\tg\tpassword\n{words}")
            );
            let listed = |place, is_read_only: bool| {
                json!({
                    "place": place, "name": "d\n", "level": word, "read_only": is_read_only,
                    "removable": !is_read_only, "type": 5, "block_bytes": 2048, "size_bytes": 1 << 20,
                })
            };
            let mut expected = json!({
                "server": "vm", "id": "1a".repeat(16), "address": "192.0.2.7:5674", "group": "g",
                "needs_password": true, "devices": [listed(1, false), listed(2, true)],
            });
            assert_eq!(in_json(&found), expected);
            let failed = (
                server.clone(),
                "g".to_owned(),
                true,
                Some(Err("no".to_owned())),
            );
            let members = expected.as_object_mut().unwrap();
            members.remove("devices");
            members.insert("error".to_owned(), "no".into());
            members.insert("needs_password".to_owned(), false.into());
            assert_eq!(in_json(&failed), expected);
        }
    }

    #[test]
    fn a_server_is_asked_by_its_address_for_its_devices() {
        let server = ServerFound {
            name: "vm".to_owned(),
            id: [1; 16],
            address: "192.0.2.7:5674".to_owned(),
            groups: Vec::new(),
        };
        let carrier = Carrier::interface("e");
        let user = Some("alice".to_owned());
        let options = options(&carrier, &server, "g", user.clone(), Password::default());
        assert_eq!(options.server.as_deref(), Some("192.0.2.7:5674"));
        assert_eq!(options.user, user);
    }

    #[test]
    fn where_servers_are_asked_must_be_said() {
        assert!(
            carrier(None, None)
                .unwrap_err()
                .to_string()
                .contains("add --udp HOST[:PORT]")
        );
    }
}
