//! What was guarded stays guarded: a target that asked for proof, or let only some in, never becomes one that is
//! open, whatever of it could not be carried over.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::path::Path;

use config::Model;
use import::{Format, Options, ReadError, Source};

/// What the result says of `iqn.2026-11.example:t`.
#[derive(Debug, Eq, PartialEq)]
enum Access {
    /// It is not in it.
    Absent,
    /// These users log in.
    Users(&'static [&'static str]),
    /// No proof is asked for, and these groups see its disk.
    Groups(&'static [&'static str]),
    /// Everyone sees its disk.
    Open,
}

fn import(format: Format, texts: &[(&str, &str)]) -> Result<Model, ReadError> {
    let sources: Vec<_> = texts
        .iter()
        .map(|&(name, text)| Source { name, text })
        .collect();
    let imported = import::import(format, &sources, &Options::default())?;
    Ok(Model::from_toml(&imported.toml, Path::new("tarn.toml")).unwrap())
}

fn assert_access(format: Format, texts: &[(&str, &str)], expected: &Access) {
    let model = import(format, texts);
    let effective = match &model {
        Ok(model) => model.effective(),
        Err(ReadError::Nothing { .. }) => String::new(),
        Err(error) => panic!("{error}"),
    };
    let value: toml::Table = effective.parse().unwrap();
    let target = value.get("target").and_then(|targets| targets.get(0));
    let strings = |value: Option<&toml::Value>| -> Vec<String> {
        let list = value.and_then(toml::Value::as_array);
        let texts = list.into_iter().flatten().filter_map(toml::Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let users = strings(target.and_then(|target| target.get("auth")));
    let lun = target.and_then(|target| target.get("luns")?.get(0));
    let groups = strings(lun.and_then(|lun| lun.get("groups")));
    match expected {
        Access::Absent => assert!(target.is_none(), "{texts:?}\n{effective}"),
        Access::Users(expected) => assert_eq!(users, *expected, "{texts:?}\n{effective}"),
        Access::Groups(expected) => {
            assert_eq!(groups, *expected, "{texts:?}\n{effective}");
            assert!(users.is_empty(), "{texts:?}\n{effective}");
        }
        Access::Open => {
            assert!(lun.is_some(), "{texts:?}\n{effective}");
            assert!(
                users.is_empty() && groups.is_empty(),
                "{texts:?}\n{effective}"
            );
        }
    }
}

/// A target of ctld with these lines, behind these auth-groups.
fn assert_ctl(groups: &str, lines: &str, expected: &Access) {
    let text = format!(
        "{groups}\nportal-group p {{ listen 192.0.2.1; }}\nportal-group q {{ listen 192.0.2.2; }}\n\
         target iqn.2026-11.example:t {{\n{lines}\nlun 0 {{ path /d; }}\n}}\n"
    );
    assert_access(Format::Ctl, &[("ctl.conf", &text)], expected);
}

#[test]
fn ctld_wants_users_or_a_word_that_none_are_needed() {
    let group = "auth-group a { chap u secret-of-user; }";
    let names = "auth-group a { initiator-name iqn.2026-11.example:h; }";
    let none = "auth-group a { auth-type none; initiator-name iqn.2026-11.example:h; }";
    for (groups, lines, expected) in [
        ("", "auth-group no-authentication", Access::Open),
        ("", "auth-group no-access", Access::Absent),
        ("", "auth-group a", Access::Absent),
        ("", "", Access::Absent),
        (group, "auth-group a", Access::Users(&["u"])),
        (names, "auth-group a", Access::Absent),
        (none, "auth-group a", Access::Groups(&["a"])),
        ("", "auth-type chap", Access::Absent),
        ("", "auth-type none", Access::Open),
        ("", "chap u secret-of-user", Access::Users(&["u"])),
        ("auth-group default { auth-type none; }", "", Access::Open),
        (
            "auth-group a { auth-type deny; chap u s; }",
            "auth-group a",
            Access::Absent,
        ),
    ] {
        assert_ctl(groups, lines, &expected);
    }
}

#[test]
fn an_auth_group_of_a_portal_group_holds_there_and_only_there() {
    let group = "auth-group a { chap u secret-of-user; }";
    assert_ctl(
        group,
        "auth-group no-authentication\nportal-group p a",
        &Access::Users(&["u"]),
    );
    assert_ctl(
        "",
        "auth-group no-authentication\nportal-group p no-access",
        &Access::Absent,
    );
    let text = "auth-group a { chap u secret-of-user; }\n\
        portal-group p { listen 192.0.2.1; }\nportal-group q { listen 192.0.2.2; }\n\
        target iqn.2026-11.example:t {\nauth-group no-authentication\nportal-group p\nportal-group q a\n\
        lun 0 { path /d; }\n}\n";
    let model = import(Format::Ctl, &[("ctl.conf", text)]).unwrap();
    let effective = model.effective();
    assert!(effective.contains("192.0.2.1:3260"), "{effective}");
    assert!(!effective.contains("192.0.2.2"), "{effective}");
}

#[test]
fn a_user_without_a_usable_secret_is_still_asked_for() {
    let scst = |line: &str| {
        format!(
            "HANDLER vdisk_fileio {{\nDEVICE d {{\nfilename /d\n}}\n}}\nTARGET_DRIVER iscsi {{\nenabled 1\n\
             TARGET iqn.2026-11.example:t {{\nenabled 1\n{line}\nLUN 0 d\n}}\n}}\n"
        )
    };
    let iet =
        |line: &str| format!("Target iqn.2026-11.example:t\n{line}\nLun 0 Path=/d,Type=fileio\n");
    let tgt = |line: &str| {
        format!("<target iqn.2026-11.example:t>\n{line}\nbacking-store /d\n</target>\n")
    };
    for (line, expected) in [
        ("", Access::Open),
        ("IncomingUser \"u short\"", Access::Users(&["u"])),
        ("IncomingUser \"u\"", Access::Users(&["u"])),
        ("IncomingUser1 \"u secret-of-user\"", Access::Users(&["u"])),
        ("IncomingUser \"\"", Access::Absent),
    ] {
        assert_access(Format::Scst, &[("scst.conf", &scst(line))], &expected);
    }
    for (line, expected) in [
        ("", Access::Open),
        ("IncomingUser u short", Access::Users(&["u"])),
        ("IncomingUser u", Access::Users(&["u"])),
        ("IncomingUser", Access::Absent),
    ] {
        assert_access(Format::Iet, &[("ietd.conf", &iet(line))], &expected);
        let lower = line.to_ascii_lowercase();
        assert_access(Format::Tgt, &[("targets.conf", &tgt(&lower))], &expected);
    }
}

#[test]
fn lists_of_initiators_stay() {
    let config = "Target iqn.2026-11.example:t\nLun 0 Path=/d,Type=fileio\n";
    #[rustfmt::skip]
    let cases = [
        ("initiators.allow", "iqn.2026-11.example:t 192.0.2.0/24\n", Access::Groups(&["iqn.2026-11.example-t"])),
        // Whom the list does not name IET keeps out since 1.4.18.
        ("initiators.allow", "iqn.2026-11.example:other 192.0.2.0/24\n", Access::Absent),
        ("initiators.allow", "ALL 192.0.2.0/24\niqn.2026-11.example:t ALL\n", Access::Groups(&["iqn.2026-11.example-t"])),
        ("targets.allow", "ALL ALL\n", Access::Open),
        ("targets.allow", "iqn.2026-11.example:t 192.0.2.0/24\n", Access::Absent),
        ("targets.allow", "iqn.2026-11.example:other ALL\n", Access::Absent),
        ("initiators.allow", "ALL ALL\n", Access::Open),
        ("initiators.deny", "ALL ALL\n", Access::Absent),
        ("initiators.deny", "iqn.2026-11.example:t 192.0.2.0/24\n", Access::Absent),
        ("initiators.deny", "iqn.2026-11.example:other ALL\n", Access::Open),
    ];
    for (name, list, expected) in cases {
        let texts = [("ietd.conf", config), (name, list)];
        assert_access(Format::Iet, &texts, &expected);
    }
    let both = [
        ("ietd.conf", config),
        ("initiators.deny", "ALL ALL\n"),
        (
            "initiators.allow",
            "iqn.2026-11.example:t iqn.2026-11.example:h\n",
        ),
    ];
    assert_access(
        Format::Iet,
        &both,
        &Access::Groups(&["iqn.2026-11.example-t"]),
    );
    let tgt =
        "<target iqn.2026-11.example:t>\nbacking-store /d\ninitiator-name not a name\n</target>\n";
    let model = import(Format::Tgt, &[("targets.conf", tgt)]).unwrap();
    assert!(seen(&model, "h", "192.0.2.1").is_empty());
}

#[test]
fn chap_without_a_user_lets_nobody_in() {
    let lio = r#"{"storage_objects": [{"plugin": "fileio", "name": "d", "dev": "/d"}],
        "targets": [{"fabric": "iscsi", "wwn": "iqn.2026-11.example:t", "tpgs": [{"tag": 1,
            "attributes": {"authentication": 1, "generate_node_acls": 1},
            "portals": [{"ip_address": "192.0.2.1", "port": 3260}],
            "luns": [{"index": 0, "storage_object": "/backstores/fileio/d"}], "node_acls": []}]}]}"#;
    assert_access(Format::Lio, &[("saveconfig.json", lio)], &Access::Absent);
    let open = lio.replace("\"authentication\": 1", "\"authentication\": 0");
    assert_access(Format::Lio, &[("saveconfig.json", &open)], &Access::Open);
    let istgt = |method: &str| {
        format!(
            "[PortalGroup1]\nPortal A 192.0.2.1:3260\n[InitiatorGroup1]\nInitiatorName \"ALL\"\nNetmask ALL\n\
             [LogicalUnit1]\nTargetName iqn.2026-11.example:t\nMapping PortalGroup1 InitiatorGroup1\n\
             AuthMethod {method}\n\
             AuthGroup AuthGroup1\nUnitType Disk\nLUN0 Storage /d Auto\n"
        )
    };
    assert_access(
        Format::Istgt,
        &[("istgt.conf", &istgt("CHAP"))],
        &Access::Absent,
    );
    assert_access(
        Format::Istgt,
        &[("istgt.conf", &istgt("None"))],
        &Access::Open,
    );
}

/// A short file can name a long list very often; what comes of it has a limit.
#[test]
fn lists_that_multiply_are_refused() {
    const MANY: usize = 1100;
    let hosts: Vec<String> = (0..MANY)
        .map(|n| format!("10.0.{}.{}", n / 256, n % 256))
        .collect();
    let each = |line: &dyn Fn(usize) -> String| (0..MANY).map(line).collect::<String>();
    let iet = each(&|n| format!("Target iqn.2026-11.example:{n}\nLun 0 Path=/d{n}\n"));
    let allow = format!("ALL {}\n", hosts.join(", "));
    let ctl = format!(
        "auth-group a {{\n{}}}\n{}",
        each(&|n| format!("chap user{n} secret-of-user\n")),
        each(&|n| format!("target iqn.2026-11.example:{n} {{\nauth-group a\n}}\n"))
    );
    let istgt = format!(
        "[PortalGroup1]\nPortal A 192.0.2.1:3260\n{}[LogicalUnit1]\nTargetName iqn.2026-11.example:t\n{}{}",
        each(&|n| format!("[InitiatorGroup{n}]\nInitiatorName iqn.2026-11.example:h{n}\n")),
        each(&|n| format!("Mapping PortalGroup1 InitiatorGroup{n}\n")),
        each(&|n| format!("LUN{n} Storage /d{n} Auto\n"))
    );
    // A portal group is that of each target that names it.
    let ctl_portals = format!(
        "portal-group p {{\n{}}}\n{}",
        each(&|n| format!("listen 192.0.2.1:{}\n", n + 1)),
        each(&|n| format!(
            "target iqn.2026-11.example:{n} {{\nportal-group p no-authentication\n}}\n"
        ))
    );
    let istgt_portals = format!(
        "[PortalGroup1]\n{}[InitiatorGroup1]\nInitiatorName \"ALL\"\n{}",
        each(&|n| format!("Portal A{n} 192.0.2.1:{}\n", n + 1)),
        each(&|n| format!(
            "[LogicalUnit{n}]\nTargetName iqn.2026-11.example:{n}\n\
             Mapping PortalGroup1 InitiatorGroup1\nLUN0 Storage /d{n} Auto\n"
        ))
    );
    for (format, texts) in [
        (
            Format::Iet,
            vec![("ietd.conf", iet.as_str()), ("initiators.allow", &allow)],
        ),
        (Format::Ctl, vec![("ctl.conf", &ctl)]),
        (Format::Istgt, vec![("istgt.conf", &istgt)]),
        (Format::Ctl, vec![("ctl.conf", &ctl_portals)]),
        (Format::Istgt, vec![("istgt.conf", &istgt_portals)]),
    ] {
        let error = import(format, &texts).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, ReadError::TooMuch { .. }),
            "{format:?} {error}"
        );
    }
}

/// A user of discovery who is a user of one target sees that one, and the list says what of the
/// other; one for discovery alone sees both.
#[test]
fn what_discovery_no_longer_tells_is_in_the_list() {
    for (finder, hidden) in [("bob", 1), ("finder", 0)] {
        let text = format!(
            "IncomingUser {finder} secret-of-twelve\n\
             Target iqn.2026-11.example:a\n IncomingUser alice secret-of-alice\n Lun 0 Path=/srv/a\n\
             Target iqn.2026-11.example:b\n IncomingUser bob secret-of-twelve\n Lun 0 Path=/srv/b\n"
        );
        let source = Source {
            name: "ietd.conf",
            text: &text,
        };
        let imported = import::import(Format::Iet, &[source], &Options::default()).unwrap();
        let is_about = |note: &&import::Note| note.message.contains("discovery does not show it");
        let notes: Vec<_> = imported.notes.iter().filter(is_about).collect();
        assert_eq!(notes.len(), hidden, "{finder}");
        assert!(notes.iter().all(|note| note.subject.ends_with(":a")));
        let model = Model::from_toml(&imported.toml, Path::new("tarn.toml")).unwrap();
        let shown = model.target_indices().filter(|&target| {
            let initiator = config::Initiator {
                name: "iqn.2026-11.example:i",
                address: std::net::Ipv4Addr::LOCALHOST.into(),
                user: model.user_by_name(finder),
                certificate: &[],
            };
            model.discovers(target, &initiator)
        });
        assert_eq!(shown.count(), 2 - hidden, "{finder}");
    }
}

/// What an initiator of this name, at this address, sees of each target: LUN and `id`.
fn seen(model: &Model, name: &str, address: &str) -> Vec<String> {
    let initiator = config::Initiator {
        name: &format!("iqn.2026-11.example:{name}"),
        address: address.parse().unwrap(),
        user: None,
        certificate: &[],
    };
    let units = |index| -> Vec<String> {
        let map = model.login(index, &initiator).unwrap_or_default();
        let entries = map.entries().iter();
        let unit = |entry: &config::LunEntry| &model.units()[entry.unit.position()];
        let read = |entry: &config::LunEntry| if entry.read_only { " (read)" } else { "" };
        let words = entries.map(|entry| format!("{} {}{}", entry.lun, unit(entry), read(entry)));
        words.collect()
    };
    model.target_indices().flat_map(units).collect()
}

/// An initiator of SCST is in one group: the first that has it, or else that of the target itself.
#[test]
fn groups_of_scst_show_each_initiator_what_they_showed_it() {
    let config = |groups: &str| {
        format!(
            "HANDLER vdisk_fileio {{\nDEVICE a {{\nfilename /a\n}}\nDEVICE b {{\nfilename /b\n}}\nDEVICE c {{\n\
             filename /c\n}}\n}}\nTARGET_DRIVER iscsi {{\nenabled 1\nTARGET iqn.2026-11.example:t {{\n\
             enabled 1\n{groups}\n}}\n\
             }}\n"
        )
    };
    let group = |name: &str, initiators: &[&str], luns: &str| {
        let initiators = initiators.iter();
        let lines = initiators
            .map(|one| format!("INITIATOR {}\n", one.replace('@', "iqn.2026-11.example:")));
        format!("GROUP {name} {{\n{luns}\n{}}}\n", lines.collect::<String>())
    };
    let (h1, h2, h3) = ("h1", "h2", "x");
    let two = group("g", &["@h1"], "LUN 0 a") + &group("g2", &["@h*"], "LUN 0 b");
    #[rustfmt::skip]
    let cases: [(String, [&[&str]; 3]); 12] = [
        (two.clone(), [&["0 a"], &["0 b"], &[]]),
        (format!("LUN 0 c\n{two}"), [&["0 a"], &["0 b"], &["0 c"]]),
        (group("g", &["@h*", "!@h2"], "LUN 0 a"), [&["0 a"], &[], &[]]),
        (group("g", &["!@h2"], "LUN 0 a"), [&["0 a"], &[], &["0 a"]]),
        // What Tarn cannot exclude takes along what it guarded, and those it was for do not get the disks of others.
        (group("g", &["@h*", "!@h2\\#192.0.2.1"], "LUN 0 a"), [&[], &[], &[]]),
        (format!("LUN 1 c\n{}", group("g", &["@h1\\#*"], "LUN 0 a")), [&["1 c"], &["1 c"], &["1 c"]]),
        // By portal: at all of them, at the same of them, and in ways that have no form here.
        (format!("per_portal_acl 1\n{}", group("g", &["@h1\\#*", "@h2"], "LUN 0 a")), [&["0 a"], &[], &[]]),
        (format!("per_portal_acl 1\n{}", group("g", &["@h1\\#192.0.2.1", "@h2\\#192.0.2.1"], "LUN 0 a")), [&["0 a"], &["0 a"], &[]]),
        (format!("per_portal_acl 1\n{}", group("g", &["@h1\\#192.0.2.1", "@h2\\#192.0.2.2"], "LUN 0 a")), [&[], &[], &[]]),
        (format!("per_portal_acl 1\n{}", group("g", &["@h1\\#*", "@h2\\#192.0.2.2"], "LUN 0 a")), [&[], &[], &[]]),
        (format!("per_portal_acl 1\n{}", group("g", &["@h*\\#*", "!@h2\\#192.0.2.2"], "LUN 0 a")), [&[], &[], &[]]),
        // A pattern that is turned round may be one for all others, so nobody is in a later group.
        (group("g", &["@h1", "!@h2"], "LUN 0 a") + &group("g2", &["@x"], "LUN 0 b"), [&["0 a"], &[], &[]]),
    ];
    for (groups, expected) in cases {
        let model = import(Format::Scst, &[("scst.conf", &config(&groups))]);
        let got = match &model {
            Ok(model) => [h1, h2, h3].map(|name| seen(model, name, "198.51.100.1")),
            Err(ReadError::Nothing { .. }) => [const { Vec::new() }; 3],
            Err(error) => panic!("{error}"),
        };
        assert_eq!(got, expected.map(<[&str]>::to_vec), "{groups}");
    }
}

#[test]
fn a_name_and_an_address_that_were_both_needed_still_are() {
    let text = "auth-group a { auth-type none; initiator-name iqn.2026-11.example:h; initiator-portal 192.0.2.0/24; }\n\
        portal-group p { listen 192.0.2.1; discovery-auth-group no-authentication; }\n\
        target iqn.2026-11.example:t { auth-group a; portal-group p; lun 0 { path /d; } }\n";
    let model = import(Format::Ctl, &[("ctl.conf", text)]).unwrap();
    for (name, address, is_in) in [
        ("h", "198.51.100.1", false),
        ("x", "192.0.2.9", false),
        ("h", "192.0.2.9", true),
    ] {
        let is_seen = !seen(&model, name, address).is_empty();
        assert_eq!(is_seen, is_in, "{name} {address}");
    }
}

/// A target that was reached in one network is not reached in all because another one is.
#[test]
fn a_portal_of_one_address_does_not_become_one_of_all() {
    let text = "portal-group inside { listen 192.0.2.1; discovery-auth-group no-authentication; }\n\
        portal-group all { listen 0.0.0.0; discovery-auth-group no-authentication; }\n\
        target iqn.2026-11.example:t { auth-group no-authentication; portal-group inside; lun 0 { path /a; } }\n\
        target iqn.2026-11.example:u { auth-group no-authentication; portal-group all; lun 0 { path /b; } }\n\
        target iqn.2026-11.example:v { auth-group no-authentication; portal-group all; portal-group inside; lun 0 { \
        path /c; } }\n";
    let model = import(Format::Ctl, &[("ctl.conf", text)]).unwrap();
    let targets = model.targets().iter();
    let got: Vec<_> = targets
        .map(|target| (target.name.as_str(), target.portals.len()))
        .collect();
    assert_eq!(
        got,
        [("iqn.2026-11.example:u", 1), ("iqn.2026-11.example:v", 1)]
    );
}

#[test]
fn discovery_that_asked_for_a_user_does_not_become_open() {
    let long = "x".repeat(300);
    let text = format!(
        "auth-group d {{ chap {long} secret-of-user; }}\n\
         portal-group p {{ listen 192.0.2.1; discovery-auth-group d; }}\n\
         target iqn.2026-11.example:t {{ auth-group no-authentication; portal-group p; lun 0 {{ path /d; }} }}\n"
    );
    let model = import(Format::Ctl, &[("ctl.conf", &text)]).unwrap();
    assert!(model.targets().is_empty(), "{model:?}");
}

/// LIO: who has an ACL has what stands there, also whether he has to prove himself; all others have the rest.
#[test]
fn an_acl_of_lio_beats_its_portal_group() {
    let config = |attributes: &str, acls: &str| {
        format!(
            r#"{{"storage_objects": [{{"plugin": "fileio", "name": "d", "dev": "/d"}},
                {{"plugin": "fileio", "name": "e", "dev": "/e"}}],
            "targets": [{{"fabric": "iscsi", "wwn": "iqn.2026-11.example:t", "tpgs": [{{"tag": 1,
                "attributes": {{{attributes}}}, "portals": [{{"ip_address": "192.0.2.1", "port": 3260}}],
                "luns": [{{"index": 0, "storage_object": "/backstores/fileio/d"}},
                    {{"index": 1, "storage_object": "/backstores/fileio/e"}}],
                "node_acls": [{acls}]}}]}}]}}"#
        )
    };
    let acl = |name: &str, more: &str| {
        format!(
            r#"{{"node_wwn": "iqn.2026-11.example:{name}", "mapped_luns": [{{"index": 0, "tpg_lun": 0{more}}}]}}"#
        )
    };
    let protect = r#", "write_protect": true"#;
    let two = acl("h", "") + "," + &acl("x", protect);
    let open = r#""authentication": 0"#;
    let demo = r#""authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 0"#;
    #[rustfmt::skip]
    let cases: [(&str, &str, [&[&str]; 3]); 5] = [
        (open, &two, [&["0 d"], &["0 d (read)"], &[]]),
        (demo, &two, [&["0 d"], &["0 d (read)"], &["0 d", "1 e"]]),
        (r#""authentication": 0, "generate_node_acls": 1"#, &two, [&["0 d"], &["0 d (read)"], &["0 d (read)", "1 e (read)"]]),
        (r#""authentication": 0, "prod_mode_write_protect": 1"#, &two, [&["0 d (read)"], &["0 d (read)"], &[]]),
        // It is 1 where it is not set, and then nobody comes in without an account.
        ("", &two, [&[], &[], &[]]),
    ];
    for (attributes, acls, [h, x, other]) in cases {
        let text = config(attributes, acls);
        let model = import(Format::Lio, &[("saveconfig.json", &text)]).unwrap();
        for (name, expected) in [("h", h), ("x", x), ("y", other)] {
            assert_eq!(
                seen(&model, name, "192.0.2.9"),
                expected,
                "{name} {attributes}"
            );
        }
    }
    let asks = r#""attributes": {"authentication": 1}, "chap_userid": "u", "chap_password": "secret-of-user"}"#;
    let one = acl("h", "").replace("]}", &format!("], {asks}"));
    let text = config(open, &one);
    assert_access(
        Format::Lio,
        &[("saveconfig.json", &text)],
        &Access::Users(&["u"]),
    );
}

/// A name has one secret in Tarn. Where it had two, only the targets with the first of them ask for it.
#[test]
fn another_secret_of_a_name_opens_nothing() {
    let text = "Target iqn.2026-11.example:t\nIncomingUser u secret-of-first\nLun 0 Path=/a,Type=fileio\n\
        Target iqn.2026-11.example:v\nIncomingUser u secret-of-second\nLun 0 Path=/b,Type=fileio\n";
    let model = import(Format::Iet, &[("ietd.conf", text)]).unwrap();
    let names: Vec<_> = model
        .targets()
        .iter()
        .map(|target| target.name.as_str())
        .collect();
    assert_eq!(names, ["iqn.2026-11.example:t"]);
    // What is not shown is written.
    assert_eq!(model.units().len(), 2);
}

#[test]
fn a_mapping_of_istgt_is_for_its_portals() {
    let config = |mappings: &str| {
        format!(
            "[PortalGroup1]\nPortal A 192.0.2.1:3260\n[PortalGroup2]\nPortal B 192.0.2.2:3260\n\
             [InitiatorGroup1]\nInitiatorName \"ALL\"\n[InitiatorGroup2]\nInitiatorName iqn.2026-11.example:h\n\
             [InitiatorGroup3]\nInitiatorName !iqn.2026-11.example:x\nInitiatorName ALL\n[InitiatorGroup4]\n\
             Netmask ALL\n\
             [LogicalUnit1]\nTargetName iqn.2026-11.example:t\n{mappings}UnitType Disk\nLUN0 Storage /d Auto\n"
        )
    };
    #[rustfmt::skip]
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("Mapping PortalGroup1 InitiatorGroup1\n", &["0 d"], &["0 d"]),
        ("mapping portalgroup1 INITIATORGROUP2\n", &["0 d"], &[]),
        ("Mapping PortalGroup1 InitiatorGroup2\nMapping PortalGroup2 InitiatorGroup2\n", &["0 d"], &[]),
        ("Mapping PortalGroup1 InitiatorGroup1\nMapping PortalGroup2 InitiatorGroup2\n", &[], &[]),
        ("Mapping PortalGroup1 InitiatorGroup3\n", &["0 d"], &[]),
        ("Mapping PortalGroup1 InitiatorGroup4\n", &[], &[]),
        ("Mapping PortalGroup1 InitiatorGroup1\nUnitOnline No\n", &[], &[]),
    ];
    for (mappings, h, x) in cases {
        let model = import(Format::Istgt, &[("istgt.conf", &config(mappings))]).unwrap();
        assert_eq!(seen(&model, "h", "192.0.2.9"), h, "{mappings}");
        assert_eq!(seen(&model, "x", "192.0.2.9"), x, "{mappings}");
    }
}
