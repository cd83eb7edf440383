//! Whole files in, models or one-line errors out.

use std::num::NonZeroU16;

use super::*;
use crate::{
    ChapAlgorithm, Coalescing, GroupIndex, HostPort, LogLevel, LunNumber, PORTAL_DEFAULT, Server,
    TargetIndex, TargetLun, UnitIndex, UserIndex,
};

fn read(text: &str) -> Result<Model, ConfigError> {
    Model::from_toml(text, Path::new("/etc/tarn/tarn.toml"))
}

fn message(text: &str) -> String {
    let error = Model::from_toml(text, Path::new("t.toml")).unwrap_err();
    error.to_string()
}

/// A file that is right, so that one line more makes it wrong in one way.
const GOOD: &str = "[[lun]]
id = \"a\"
store = \"mem:1M\"
[[target]]
name = \"iqn.2026-11.example.tarn:t\"
luns = [{ lun = 0, id = \"a\" }]
";

fn after_good(text: &str) -> String {
    message(&format!("{GOOD}{text}"))
}

const FULL: &str = r#"
        [server]
        state = "state"
        cores = 2
        busy_poll_us = 50
        coalescing = "always"
        log = "debug"
        discovery_auth = ["alice"]

        [limits]
        sessions_max = 5
        max_burst_bytes = "2M"
        first_burst_bytes = 65536
        initial_r2t = true
        data_digest = "require"

        [[lun]]
        id = "demo"
        store = "file:disk.img?thin=true"
        naa = "3000000000000001"
        serial = "S1"

        [[user]]
        name = "alice"
        secret_file = "alice.secret"
        mutual = { name = "tarn", secret_file = "/run/tarn.secret" }

        [[group]]
        id = "lab"
        initiators = ["iqn.1993-08.org.debian:*", "192.0.2.0/24", "::1", "alice", "user:alice"]

        [[target]]
        name = "iqn.2026-11.example.tarn:Demo"
        alias = "the demo"
        portals = ["127.0.0.1:3260", { bind = "[::]:3260", advertise = "san.example:3260", group = 2 }]
        auth = ["alice"]
        chap_algorithms = ["sha256", "md5"]
        luns = [{ lun = 3, id = "demo", groups = ["lab"], readonly = true }]
        "#;

#[test]
fn server_and_limits_of_the_full_form_are_read() {
    let model = read(FULL).unwrap();
    assert_eq!(
        *model.server(),
        Server {
            state: Some("/etc/tarn/state".into()),
            cores: NonZeroU16::new(2),
            busy_poll_us: 50,
            coalescing: Coalescing::Always,
            log: Some(LogLevel::Debug),
            discovery_auth: vec![UserIndex(0)],
        }
    );
    assert_eq!(
        *model.limits(),
        Limits {
            sessions_max: 5,
            max_burst_bytes: 2 << 20,
            first_burst_bytes: 65_536,
            initial_r2t: true,
            data_digest: DigestPolicy::Require,
            ..Limits::default()
        }
    );
}

#[test]
fn units_users_and_groups_of_the_full_form_are_read() {
    let model = read(FULL).unwrap();
    let unit = &model.units()[0];
    assert_eq!(unit.id.as_deref(), Some("demo"));
    assert_eq!(
        unit.store.at.node().map(|node| node.0),
        Some(Path::new("/etc/tarn/disk.img"))
    );
    assert_eq!(unit.serial.as_ref().unwrap().as_str(), "S1");
    assert_eq!(unit.naa.unwrap().to_string(), "3000000000000001");
    let user = &model.users()[0];
    assert_eq!(user.secret.path, Path::new("/etc/tarn/alice.secret"));
    let mutual = user.mutual.as_ref().unwrap();
    assert_eq!(mutual.name, "tarn");
    assert_eq!(mutual.secret.path, Path::new("/run/tarn.secret"));
    let group = &model.groups()[0];
    assert_eq!(group.initiators.len(), 5);
    assert_eq!(group.initiators[3], group.initiators[4]);
}

#[test]
fn targets_of_the_full_form_are_read() {
    let model = read(FULL).unwrap();
    let target = &model.targets()[0];
    assert_eq!(target.name.as_str(), "iqn.2026-11.example.tarn:demo");
    assert_eq!(target.alias.as_deref(), Some("the demo"));
    assert_eq!(target.auth, [UserIndex(0)]);
    assert_eq!(
        target.chap_algorithms,
        [ChapAlgorithm::Sha256, ChapAlgorithm::Md5]
    );
    let portals: Vec<_> = target
        .portals
        .iter()
        .map(|portal| {
            let advertise = portal.advertise.as_ref().map(HostPort::to_string);
            (portal.bind.to_string(), advertise, portal.group_tag)
        })
        .collect();
    assert_eq!(
        portals,
        [
            ("127.0.0.1:3260".to_owned(), None, 1),
            (
                "[::]:3260".to_owned(),
                Some("san.example:3260".to_owned()),
                2
            ),
        ]
    );
    assert_eq!(
        target.luns.entries(),
        [TargetLun {
            lun: LunNumber(3),
            unit: UnitIndex(0),
            groups: vec![GroupIndex(0)],
            read_only: true,
        }]
    );
    assert_eq!(model.warnings(), []);
}

#[test]
fn a_short_file_gets_the_defaults_of_the_command_line() {
    let model = read(GOOD).unwrap();
    assert_eq!(*model.limits(), Limits::default());
    assert_eq!(*model.server(), Server::default());
    let target = &model.targets()[0];
    assert_eq!(target.portals[0].bind, PORTAL_DEFAULT);
    assert_eq!(target.chap_algorithms, ChapAlgorithm::ALL);
    assert!(!target.luns.entries()[0].read_only);
}

/// The messages of the first minute, word for word.
#[test]
fn errors_name_the_line_the_key_and_the_remedy() {
    #[rustfmt::skip]
    let cases = [
        ("\n[[lun]]\nid = \"a\"\nstore = \"mem:10X\"\n", "t.toml:4: lun[0].store: size \"10X\": unknown suffix \"X\"; use k, M, G or T"),
        ("[[lun]]\nid = \"a\"\nstroe = \"mem:1M\"\n", "t.toml:3: lun[0]: unknown key \"stroe\"; did you mean \"store\"?"),
        ("[[user]]\nname = \"a\"\nsecret_file = \"a\"\nHunter2hunter2 = \"\"\n", "t.toml:4: user[0]: unknown key that is not shown, as it may be a secret; known here: name, secret_file, mutual, initiators"),
        ("[web]\nlisten = \"x\"\n", "t.toml:1: unknown key \"web\"; known here: lun, store, target, user, group, nbd, hyperscsi, quota, notify, server, limits, admin, confine"),
        ("\n\n[[lun]]\nid = \"a\"\n", "t.toml:3: lun[0]: key \"store\" is missing; [[lun]] needs it"),
        ("[[lun]]\nid = 7\nstore = \"mem:1M\"", "t.toml:2: lun[0].id: the number 7 found where a string is needed"),
        ("[server]\ncores = \"two\"", "t.toml:2: server.cores: the string \"two\" found where a whole number is needed"),
        ("lun = 1", "t.toml:1: lun: the number 1 found where a list is needed"),
        ("lun = [1]", "t.toml:1: lun[0]: the number 1 found where a table is needed; write { id = \"disk\", store = \"mem:1G\" }"),
        ("[lun]\nid = \"a\"", "t.toml:1: lun: a table found where a list is needed; write [[lun]] above it, with two brackets"),
        ("[hyperscsi.group]\nname = \"a\"",
            "t.toml:1: hyperscsi.group: a table found where a list is needed; write [[hyperscsi.group]] above it, with two \
             brackets"),
        ("[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n[[target]]\nname = \"iqn.2026-11.a:t\"\nluns = [{ lun = 0, id = \"a\" }, \"st\"]",
            "t.toml:6: target[0].luns[1]: the string \"st\" found where a table is needed; write { lun = 1, id = \"st\" }"),
        ("server = 2", "t.toml:1: server: the number 2 found where a table is needed; write { cores = 2 }"),
        ("admin = \"s\"", "t.toml:1: admin: the string \"s\" found where a table is needed; write { socket = \"s\" }"),
    ];
    for (text, expected) in cases {
        assert_eq!(message(text), expected);
    }
}

#[test]
fn text_that_is_no_toml_is_one_line_with_its_number() {
    let got = message("[[lun]]\nid = \"a\nstore = \"b\"\n");
    assert!(got.starts_with("t.toml:2: not valid TOML: "), "{got}");
    assert!(!got.contains('\n'), "{got}");
}

#[test]
fn a_key_given_twice_is_refused() {
    let got = message("[server]\ncores = 1\ncores = 2\n");
    assert!(got.starts_with("t.toml:3: not valid TOML: "), "{got}");
}

#[test]
fn the_earliest_unknown_key_is_named() {
    let got = after_good("[limits]\nzzz = 1\naaa = 1\n");
    assert!(
        got.starts_with("t.toml:8: limits: unknown key \"zzz\""),
        "{got}"
    );
}

#[test]
fn references_that_lead_nowhere_are_refused() {
    for (text, expected) in [
        (
            "[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nluns = [{ lun = 0, id = \"b\" }]",
            "t.toml:9: target[1].luns[0].id: lun \"b\" does not exist; did you mean \"a\"?",
        ),
        (
            "[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nauth = [\"alice\"]",
            "t.toml:9: target[1].auth[0]: user \"alice\" does not exist; add a [[user]] of that name",
        ),
        (
            "[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nluns = [{ lun = 0, id = \"a\", groups = [\"lab\"] }]",
            "t.toml:9: target[1].luns[0].groups[0]: group \"lab\" does not exist; add a [[group]] of that name",
        ),
        (
            "[server]\ndiscovery_auth = [\"x\"]",
            "t.toml:8: server.discovery_auth[0]: user \"x\" does not exist; add a [[user]] of that name",
        ),
        (
            "[[group]]\nid = \"g\"\ninitiators = [\"bob\"]",
            "t.toml:9: group[0].initiators[0]: initiator \"bob\" is neither an iSCSI name pattern (iqn.*, eui.*, \
             naa.* or *), nor an address or network (10.0.0.0/24), nor the name of a [[user]]",
        ),
        (
            "[[group]]\nid = \"g\"\ninitiators = [\"user:bob\"]",
            "t.toml:9: group[0].initiators[0]: user \"bob\" does not exist; add a [[user]] of that name",
        ),
    ] {
        assert_eq!(after_good(text), expected);
    }
}

#[test]
fn what_may_be_there_once_is_refused_twice() {
    let target = "[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\n";
    for (text, expected) in [
        (
            "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"".to_owned(),
            "t.toml:8: lun[1].id: lun \"a\" is already used at t.toml:2: lun[0].id; give each its own",
        ),
        (
            "[[target]]\nname = \"IQN.2026-11.example.tarn:T\"".to_owned(),
            "t.toml:8: target[1].name: target \"iqn.2026-11.example.tarn:t\" is already used at t.toml:5: \
             target[0].name; give each its own",
        ),
        (
            "[[user]]\nname = \"u\"\nsecret_file = \"s\"\n[[user]]\nname = \"u\"\nsecret_file = \"s\"".to_owned(),
            "t.toml:11: user[1].name: user \"u\" is already used at t.toml:8: user[0].name; give each its own",
        ),
        (
            "[[group]]\nid = \"g\"\ninitiators = [\"*\"]\n[[group]]\nid = \"g\"\ninitiators = [\"*\"]".to_owned(),
            "t.toml:11: group[1].id: group \"g\" is already used at t.toml:8: group[0].id; give each its own",
        ),
        (
            format!("{target}luns = [{{ lun = 1, id = \"a\" }}, {{ lun = 1, id = \"a\" }}]"),
            "t.toml:9: target[1].luns[1].lun: lun \"1\" is already used at t.toml:9: target[1].luns[0].lun; give \
             each its own",
        ),
        (
            format!("{target}portals = [\"127.0.0.1\", \"127.0.0.1:3260\"]"),
            "t.toml:9: target[1].portals[1]: portal \"127.0.0.1:3260\" is already used at t.toml:9: \
             target[1].portals[0]; give each its own",
        ),
        (
            format!("{target}chap_algorithms = [\"md5\", \"md5\"]"),
            "t.toml:9: target[1].chap_algorithms[1]: algorithm \"md5\" is already used at t.toml:9: \
             target[1].chap_algorithms[0]; give each its own",
        ),
    ] {
        assert_eq!(after_good(&text), expected);
    }
}

#[test]
fn one_file_carries_one_unit() {
    let units = "[[lun]]\nid = \"a\"\nstore = \"x/d.img\"\n[[lun]]\nid = \"b\"\nstore = \"file:x/d.img?readonly\"\n\
        [[target]]\nname = \"iqn.2026-11.a:t\"";
    let got = message(units);
    assert!(
        got.starts_with(
            "t.toml:6: lun[1].store: store \"x/d.img\" is already used at t.toml:3: lun[0].store"
        ),
        "{got}"
    );
}

#[rustfmt::skip]
const VALUES: &[(&str, &str)] = &[
    ("[server]\ncores = 0", "t.toml:8: server.cores: 0 is outside 1..=1024"),
    ("[server]\ncores = 1025", "1025 is outside 1..=1024"),
    ("[server]\ncores = -1", "-1 is outside 1..=1024"),
    ("[server]\ncores = 1.5", "the number 1.5 found where a whole number is needed"),
    ("[server]\ncores = true", "server.cores: true found where a whole number is needed"),
    ("[server]\ncores = 2026-11-30", "the date 2026-11-30 found where a whole number is needed"),
    ("[server]\ncores = [1]", "a list found where a whole number is needed"),
    ("[server]\ncores = { a = 1 }", "a table found where a whole number is needed"),
    ("[server]\nlog = \"loud\"", "\"loud\" is not known; use off, error, warn, info, debug or trace"),
    ("[limits]\nqueue_depth = 0", "limits.queue_depth: 0 is outside 1..=4096"),
    ("[limits]\nqueue_depth = 0x1001", "0x1001 is outside 1..=4096"),
    ("[limits]\nmax_burst_bytes = \"16M\"", "16M is outside 512..=16777215"),
    ("[limits]\nmax_burst_bytes = \"1Q\"", "unknown suffix \"Q\""),
    ("[limits]\nmax_burst_bytes = \"64k\"", "t.toml:7: limits: first_burst_bytes 262144 exceeds max_burst_bytes 65536"),
    ("[limits]\nheader_digest = \"no\"", "use allow, require or refuse"),
    ("[limits]\ninitial_r2t = 1", "the number 1 found where true or false is needed"),
    ("[[user]]\nname = \"\"\nsecret_file = \"s\"", "user name is empty"),
    ("[[user]]\nname = \"a\\nb\"\nsecret_file = \"s\"", "has the character '\\n'"),
    ("[[user]]\nname = \"a\"\nsecret_file = \"\"", "path of the secret is empty"),
    ("[[user]]\nname = \"a\"\nsecret_file = \"s\"\nmutual = { name = \"t\" }", "t.toml:10: user[0].mutual: key \"secret_file\" is missing"),
    ("[[group]]\nid = \"a b\"\ninitiators = [\"*\"]", "has the character ' '"),
    ("[[group]]\nid = \".\"\ninitiators = [\"*\"]", "id \".\" means a directory in paths and URLs; use another"),
    ("[[user]]\nname = \"..\"\nsecret_file = \"s\"", "user name \"..\" means a directory in paths and URLs; use another"),
    ("[[group]]\nid = \"g\"\ninitiators = []", "the list is empty; name an initiator"),
    ("[[group]]\nid = \"g\"\ninitiators = [\"!iqn.x\"]", "the group only excludes initiators, so nobody is in it; add"),
    ("[[group]]\nid = \"g\"\ninitiators = [\"*\", \"!!iqn.x\"]", "initiator \"!iqn.x\" is neither an iSCSI name"),
    ("[[user]]\nname = \"u\"\nsecret_file = \"f\"\n[[group]]\nid = \"g\"\ninitiators = [\"*\", \"!u\"]", "user \"u\" cannot be excluded"),
    ("[[group]]\nid = \"g\"\ninitiators = [\"10.0.0.1/8\"]", "has bits set behind its prefix; write 10.0.0.0/8"),
    ("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nportals = []", "the list is empty; name an address"),
    ("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nportals = [\"san:3260\"]", "portal \"san:3260\" is not an address"),
    ("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nportals = [{ bind = \"::\", advertise = \"[::]\" }]", "means all addresses"),
    ("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nportals = [{ bind = \"::\", group = 0 }]", "0 is outside 1..=65535"),
    ("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nchap_algorithms = []", "the list is empty; name an algorithm"),
    ("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nchap_algorithms = [\"md4\"]", "use md5, sha1, sha256 or sha3-256"),
    ("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nluns = [{ lun = 16384, id = \"a\" }]", "16384 is outside 0..=16383"),
    ("[[target]]\nname = \"disk\"", "does not begin with iqn."),
];

#[test]
fn single_values_are_checked_where_they_stand() {
    for &(text, expected) in VALUES {
        let got = after_good(text);
        assert!(got.contains(expected), "{text}\n{got}");
    }
    let of = |alias: &str| {
        format!("[[target]]\nname = \"iqn.2026-11.example.tarn:u\"\nalias = \"{alias}\"")
    };
    let longest = format!("{GOOD}\n{}", of(&"x".repeat(255)));
    assert!(read(&longest).is_ok());
    let got = after_good(&of(&"x".repeat(256)));
    assert!(
        got.contains("alias of 256 bytes is too long; the limit is 255"),
        "{got}"
    );
}

#[test]
fn a_serial_number_is_said_once() {
    let units = |a: &str, b: &str| format!("[[lun]]\nid = \"a\"\n{a}\n[[lun]]\nid = \"b\"\n{b}\n");
    assert_eq!(
        message(&units("store = \"mem:1M?serial=x\"\nserial = \"y\"", "")),
        "t.toml:4: lun[0].serial: serial is given twice, as \"x\" in the store and as \"y\" here; keep one"
    );
    let target = "[[target]]\nname = \"iqn.2026-11.a:t\"";
    let got = message(&format!(
        "{}{target}",
        units(
            "store = \"mem:1M\"\nnaa = \"3000000000000001\"",
            "store = \"mem:1M\"\nnaa = \"3000000000000001\""
        )
    ));
    assert_eq!(
        got,
        "t.toml:7: lun[1].store: naa \"3000000000000001\" is already that of the unit at t.toml:3: lun[0].store; \
         give each unit its own"
    );
}

#[test]
fn targets_share_a_listener_and_keep_their_own_portals() {
    let model = read(
        r#"
        [[target]]
        name = "iqn.2026-11.a:t"
        portals = ["127.0.0.1:1", "127.0.0.1:2"]
        [[target]]
        name = "iqn.2026-11.a:u"
        portals = [{ bind = "127.0.0.1:2", group = 9 }]
        "#,
    )
    .unwrap();
    let listeners: Vec<_> = model
        .listeners()
        .into_iter()
        .map(|listener| (listener.bind.port(), listener.portals))
        .collect();
    let (t, u) = (TargetIndex(0), TargetIndex(1));
    assert_eq!(listeners, [(1, vec![(t, 0)]), (2, vec![(t, 1), (u, 0)])]);
}

proptest::proptest! {
    /// Whatever stands in the file: a model or one line, never a panic.
    #[test]
    fn no_text_panics(text in "[\\[\\]a-z0-9\"={}, .:\n]{0,200}") {
        if let Err(error) = read(&text) {
            proptest::prop_assert!(!error.to_string().contains('\n'));
        }
    }
}

const NBD: &str = r#"
lun = [{ id = "a", store = "mem:1M" }, { id = "b", store = "mem:1M" }]
group = [{ id = "g", initiators = ["192.0.2.0/24", "iqn.a:*"] }]
[[nbd]]
luns = ["a", "b"]
[[nbd]]
bind = "0.0.0.0:1"
luns = ["b"]
groups = ["g"]
"#;

#[test]
fn servers_of_nbd_have_addresses_exports_and_groups() {
    let model = Model::from_toml(NBD, Path::new("t.toml")).unwrap();
    let [first, second] = model.nbd() else {
        panic!("{:?}", model.nbd());
    };
    assert_eq!(first.at.to_string(), "127.0.0.1:10809");
    let exports = |server, address: &str| {
        let units = model.exports(server, address.parse().unwrap(), &[]);
        units.iter().map(|unit| unit.position()).collect::<Vec<_>>()
    };
    assert_eq!(exports(first, "198.51.100.1"), [0, 1]);
    assert_eq!(exports(second, "198.51.100.1"), [] as [usize; 0]);
    assert_eq!(exports(second, "192.0.2.7"), [1]);
    let warnings: Vec<String> = model.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("0.0.0.0:1 without TLS"),
        "{warnings:?}"
    );
    assert!(
        warnings[0].ends_with("give the section a certificate, or listen on 127.0.0.1"),
        "{warnings:?}"
    );
    let made = Model::from_made_toml(NBD, &|_| Place::argument("--as")).unwrap();
    let warning = made.warnings()[0].to_string();
    assert!(
        warning.ends_with("listen on 127.0.0.1, or at a socket"),
        "{warning}"
    );
    let again = Model::from_toml(&model.effective(), Path::new("x")).unwrap();
    assert!(crate::diff(&model, &again).is_empty());
    let other = NBD.replace("groups = [\"g\"]", "");
    let other = Model::from_toml(&other, Path::new("t.toml")).unwrap();
    assert_eq!(crate::diff(&model, &other).nbd.len(), 1);
}

#[test]
fn a_server_of_nbd_may_be_a_unix_socket() {
    let text = NBD.replace(
        "bind = \"0.0.0.0:1\"",
        "socket = \"run/s\"\nmode = \"0664\"",
    );
    let model = Model::from_toml(&text, Path::new("/etc/t.toml")).unwrap();
    let socket = model.nbd()[1].at.socket();
    assert_eq!(socket, Some((Path::new("/etc/run/s"), 0o664)));
    assert_eq!(model.listeners().len(), 1);
    assert_eq!(model.warnings().len(), 0);
    let again = Model::from_toml(&model.effective(), Path::new("x")).unwrap();
    assert!(crate::diff(&model, &again).is_empty());
    let other = text.replace("mode = \"0664\"\n", "");
    let other = Model::from_toml(&other, Path::new("/etc/t.toml")).unwrap();
    let [crate::Difference::Changed { keys, .. }] = &crate::diff(&model, &other).nbd[..] else {
        panic!("{:?}", crate::diff(&model, &other).nbd);
    };
    assert_eq!(keys.len(), 1, "{keys:?}");
}

#[test]
fn clients_of_nbd_are_known_by_their_certificates() {
    let tls = "certificate = \"c.pem\"\nkey = \"/k.pem\"\nca = \"ca.pem\"\n";
    let text = NBD
        .replace("\"iqn.a:*\"", "\"certificate:*.Example\"")
        .replace("groups = [\"g\"]", &format!("groups = [\"g\"]\n{tls}"));
    let model = Model::from_toml(&text, Path::new("/etc/t.toml")).unwrap();
    let server = &model.nbd()[1];
    let tls = server.tls.as_ref().unwrap();
    assert_eq!(tls.certificate.certificate, Path::new("/etc/c.pem"));
    assert_eq!(tls.certificate.key, Path::new("/k.pem"));
    assert_eq!(tls.ca.as_deref(), Some(Path::new("/etc/ca.pem")));
    assert_eq!(model.warnings().len(), 0, "{:?}", model.warnings());
    let exports = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let units = model.exports(server, [198, 51, 100, 1].into(), &names);
        units.len()
    };
    let of_names = [&["a.example"][..], &["x", "B.EXAMPLE"], &["example"], &[]].map(exports);
    assert_eq!(of_names, [1, 1, 0, 0]);
    let again = Model::from_toml(&model.effective(), Path::new("x")).unwrap();
    assert!(crate::diff(&model, &again).is_empty());
    let other = text.replace("\nca = \"ca.pem\"", "");
    let other = Model::from_toml(&other, Path::new("/etc/t.toml")).unwrap();
    assert_eq!(crate::diff(&model, &other).nbd.len(), 1);
}

#[test]
fn groups_in_which_no_client_of_nbd_can_be_are_warned_of() {
    let tls = "certificate = \"c.pem\"\nkey = \"k.pem\"\n";
    let with_ca = &format!("{tls}ca = \"ca.pem\"\n")[..];
    for (entries, more, is_warned) in [
        ("\"iqn.a:*\"", tls, true),
        ("\"certificate:*\"", tls, true),
        ("\"certificate:*\"", with_ca, false),
        ("\"iqn.a:*\"", with_ca, true),
        ("\"iqn.a:*\", \"192.0.2.1\"", tls, false),
        ("\"*\"", tls, false),
    ] {
        let text = NBD
            .replace("\"192.0.2.0/24\", \"iqn.a:*\"", entries)
            .replace("groups = [\"g\"]", &format!("groups = [\"g\"]\n{more}"));
        let model = Model::from_toml(&text, Path::new("t.toml")).unwrap();
        let warnings = model.warnings();
        assert_eq!(
            warnings.len(),
            usize::from(is_warned),
            "{entries}: {warnings:?}"
        );
    }
}

#[test]
fn servers_of_nbd_that_cannot_be_are_refused() {
    for (from, to, message) in [
        ("luns = [\"b\"]", "luns = [\"c\"]", "\"c\""),
        ("luns = [\"b\"]", "luns = []", "name a lun"),
        ("luns = [\"b\"]", "luns = [\"b\", \"b\"]", "already used"),
        ("groups = [\"g\"]", "groups = [\"h\"]", "\"h\""),
        ("0.0.0.0:1", "127.0.0.1", "127.0.0.1:10809"),
        ("0.0.0.0:1", "0.0.0.0:10809", "127.0.0.1:10809"),
        ("0.0.0.0:1", "x", "write 192.0.2.1:10809"),
        (
            "luns = [\"b\"]",
            "luns = [\"b\"]\nsocket = \"s\"",
            "does not go with \"bind\"",
        ),
        (
            "luns = [\"b\"]",
            "luns = [\"b\"]\nkey = \"k\"",
            "needs \"certificate\" beside it",
        ),
        (
            "luns = [\"b\"]",
            "luns = [\"b\"]\ncertificate = \"c\"",
            "needs \"key\" beside it",
        ),
        (
            "luns = [\"b\"]",
            "luns = [\"b\"]\nca = \"c\"",
            "needs \"certificate\" beside it",
        ),
        (
            "luns = [\"b\"]",
            "luns = [\"b\"]\nmode = \"0660\"",
            "needs \"socket\" beside it",
        ),
        (
            "bind = \"0.0.0.0:1\"",
            "socket = \"s\"\nmode = \"660\"",
            "four octal digits",
        ),
        (
            "bind = \"0.0.0.0:1\"",
            "socket = \"s\"\nmode = \"1660\"",
            "four octal digits",
        ),
        (
            "bind = \"0.0.0.0:1\"\nluns",
            "socket = \"s\"\nluns = [\"a\"]\n[[nbd]]\nsocket = \"s\"\nluns",
            "already used",
        ),
        (
            "[[nbd]]\nbind = \"0.0.0.0:1\"",
            "[admin]\nsocket = \"s\"\n[[nbd]]\nsocket = \"s\"",
            "already used",
        ),
        (
            "[[nbd]]\nluns",
            "[[target]]\nname = \"iqn.2026-11.a:t\"\nportals = [\"127.0.0.1:10809\"]\n[[nbd]]\nluns",
            "127.0.0.1:10809",
        ),
    ] {
        assert!(NBD.contains(from), "{from}");
        let text = NBD.replace(from, to);
        let error = Model::from_toml(&text, Path::new("t.toml")).unwrap_err();
        assert!(error.to_string().contains(message), "{to}: {error}");
    }
}
