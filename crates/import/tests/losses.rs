//! What initiators would miss, or find other than it was, is in the list; what would be unsafe is not shown.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::path::Path;

use config::Model;
use import::{Format, Imported, Options, Severity, Source};
use serde_json::{Value, json};

fn import(format: Format, text: &str) -> Imported {
    let source = Source { name: "f", text };
    let imported = import::import(format, &[source], &Options::default()).unwrap();
    Model::from_toml(&imported.toml, Path::new("tarn.toml")).unwrap();
    imported
}

/// How many notes of that severity have all of these words in their text.
fn noted(imported: &Imported, severity: Severity, words: &[&str]) -> usize {
    let notes = imported.notes.iter();
    let notes = notes.filter(|note| note.severity == severity);
    let texts = notes.map(|note| format!("{} {} {}", note.subject, note.message, note.remedy));
    texts
        .filter(|text| words.iter().all(|word| text.contains(word)))
        .count()
}

#[track_caller]
fn assert_noted(imported: &Imported, severity: Severity, words: &[&str]) {
    let count = noted(imported, severity, words);
    assert_eq!(count, 1, "{words:?}\n{:#?}", imported.notes);
}

fn object(change: &Value) -> Value {
    let mut object = json!({"plugin": "fileio", "name": "web", "dev": "/srv/web.img", "write_back": true,
        "wwn": "2f1c8b0e-77a3-4d6f-9b11-0a1b2c3d4e5f"});
    for (key, value) in change.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn tpg(tag: u64, change: &Value) -> Value {
    let mut tpg = json!({"tag": tag, "enable": true, "attributes": {"authentication": 0},
        "portals": [{"ip_address": format!("192.0.2.{tag}"), "port": 3260}],
        "luns": [{"index": 0, "storage_object": "/backstores/fileio/web", "alias": format!("a{tag}")}],
        "node_acls": [{"node_wwn": "iqn.2026-11.example:h", "mapped_luns":
            [{"index": 0, "tpg_lun": 0, "write_protect": false, "alias": format!("b{tag}")}]}]});
    for (key, value) in change.as_object().unwrap() {
        tpg[key] = value.clone();
    }
    tpg
}

fn lio(object: &Value, tpgs: &[Value]) -> Imported {
    let file = json!({"storage_objects": [object], "targets": [
        {"fabric": "iscsi", "wwn": "iqn.2026-11.example:t", "tpgs": tpgs}]});
    import(Format::Lio, &file.to_string())
}

/// A LUN in a group of that state is shown only if that state is an active one.
#[test]
fn a_path_of_lio_that_was_not_active_is_not_shown() {
    let acl =
        json!([{"node_wwn": "iqn.2026-11.example:h", "mapped_luns": [{"index": 0, "tpg_lun": 0}]}]);
    for (state, name) in [
        (json!(0), None),
        (json!(1), None),
        (json!(2), Some("standby")),
        (json!(3), Some("unavailable")),
        (json!(14), Some("offline")),
        (json!(15), Some("transitioning")),
        (json!(9), Some("is 9")),
        (json!("0"), Some("is \"0\"")),
    ] {
        for group in ["default_tg_pt_gp", "second"] {
            let groups = json!([{"name": group, "alua_access_state": state}, {"name": "else", "alua_access_state": 2}]);
            let mut lun = json!({"index": 0, "storage_object": "/backstores/fileio/web"});
            if group == "second" {
                lun["alua_tg_pt_gp_name"] = group.into();
            }
            let change = json!({"luns": [lun], "node_acls": acl});
            let imported = lio(&object(&json!({"alua_tpgs": groups})), &[tpg(1, &change)]);
            let is_shown = imported.toml.contains("lun = 0, id = \"web\"");
            assert_eq!(is_shown, name.is_none(), "{state}\n{}", imported.toml);
            if let Some(name) = name {
                assert_noted(
                    &imported,
                    Severity::LeftOut,
                    &["ALUA", name, "\"web\"", group],
                );
            }
        }
    }
    // A group that is not in the list is active; what is not known in one may be a state.
    let lun = json!([{"index": 0, "storage_object": "/backstores/fileio/web", "alua_tg_pt_gp_name": "gone"}]);
    let imported = lio(&object(&json!({})), &[tpg(1, &json!({"luns": lun}))]);
    assert!(imported.toml.contains("lun = 0, id = \"web\""));
    let groups = json!([{"name": "else", "alua_new_state": 1}]);
    let imported = lio(
        &object(&json!({"alua_tpgs": groups})),
        &[tpg(1, &json!({}))],
    );
    assert!(
        !imported.toml.contains("lun = 0, id = \"web\""),
        "{}",
        imported.toml
    );
}

#[test]
fn a_disk_of_lio_without_a_write_cache_gets_none() {
    for (plugin, is_back, reported, is_through) in [
        ("block", false, None, true),
        ("block", false, Some(0), true),
        ("block", true, Some(0), true),
        ("block", false, Some(1), false),
        ("block", true, None, false),
        ("fileio", false, Some(1), true),
        ("fileio", true, Some(0), true),
        ("fileio", true, Some(1), false),
        ("fileio", true, None, false),
    ] {
        let mut change = json!({"plugin": plugin, "write_back": is_back, "attributes": {}});
        if let Some(reported) = reported {
            change["attributes"]["emulate_write_cache"] = reported.into();
        }
        let imported = lio(&object(&change), &[tpg(1, &json!({}))]);
        let got = imported.toml.contains("cache=writethrough");
        assert_eq!(got, is_through, "{change}\n{}", imported.toml);
        let is_noted = noted(
            &imported,
            Severity::Changed,
            &["LIO reported no write cache"],
        ) == 1;
        assert_eq!(is_noted, is_through && plugin == "block", "{change}");
    }
}

#[test]
fn write_through_comes_before_direct() {
    let tgt = |lines: &str| {
        let text = format!(
            "<target iqn.x>\n<backing-store /srv/a.img>\n{lines}</backing-store>\n</target>\n"
        );
        (Format::Tgt, text)
    };
    let shown = |flags: &str| {
        let text = format!(
            "Target 1: iqn.x\nSystem information:\nDriver: iscsi\nState: ready\nI_T nexus information:\n\
             LUN information:\nLUN: 1\nType: disk\nBacking store type: rdwr\nBacking store path: /srv/a.img\n\
             Backing store flags: {flags}\nAccount information:\nACL information:\nALL\n"
        );
        (Format::TgtShow, text)
    };
    let scst = |lines: &str| {
        let text =
            format!("HANDLER vdisk_fileio {{\nDEVICE a {{\nfilename /srv/a.img\n{lines}}}\n}}\n");
        (Format::Scst, text)
    };
    for ((format, text), cache, is_dropped) in [
        (
            tgt("write-cache off\nbsoflags direct\n"),
            "writethrough",
            true,
        ),
        (tgt("bsoflags sync direct\n"), "writethrough", true),
        (tgt("write-cache on\nbsoflags direct\n"), "direct", false),
        (tgt("write-cache off\n"), "writethrough", false),
        (shown("sync direct"), "writethrough", true),
        (shown("direct"), "direct", false),
        (shown("sync"), "writethrough", false),
        (scst("write_through 1\no_direct 1\n"), "writethrough", true),
        (scst("nv_cache 1\no_direct 1\n"), "writethrough", true),
        (scst("o_direct 1\n"), "direct", false),
    ] {
        let imported = import(format, &text);
        let cache = format!("cache={cache}");
        assert!(imported.toml.contains(&cache), "{text}\n{}", imported.toml);
        let count = noted(
            &imported,
            Severity::Changed,
            &["a.img", "direct was dropped"],
        ) + noted(
            &imported,
            Severity::Changed,
            &["disk \"a\"", "direct was dropped"],
        );
        assert_eq!(count, usize::from(is_dropped), "{text}");
    }
}

/// The import does not look at files, so what the old configuration has of their length is in the list.
#[test]
fn a_length_in_the_configuration_is_named() {
    let changed = |imported: &Imported, size: &str| {
        let words = [
            size,
            "as long as its file",
            "truncate -s",
            "tarn lun resize",
        ];
        noted(imported, Severity::Changed, &words)
    };
    let ctl = |lines: &str| {
        let text = format!("lun a {{\npath /srv/a.img\n{lines}}}\n");
        import(Format::Ctl, &text)
    };
    assert_eq!(changed(&ctl("size 32M\n"), "length of 32M"), 1);
    assert_eq!(changed(&ctl(""), ""), 0);
    assert_eq!(changed(&ctl("backend ramdisk\nsize 32M\n"), ""), 0);
    let istgt = |size: &str| {
        let text = format!(
            "[PortalGroup1]\nPortal A 192.0.2.1:3260\n[InitiatorGroup1]\nInitiatorName ALL\n[LogicalUnit1]\n\
             TargetName iqn.2026-11.example:t\nMapping PortalGroup1 InitiatorGroup1\nLUN0 Storage /srv/a.img {size}\n"
        );
        import(Format::Istgt, &text)
    };
    assert_eq!(changed(&istgt("10GB"), "length of 10GB"), 1);
    assert_eq!(changed(&istgt("Auto"), ""), 0);
    let imported = lio(&object(&json!({"size": 1_048_576})), &[tpg(1, &json!({}))]);
    assert_eq!(changed(&imported, "length of 1048576 bytes"), 1);
    let device = json!({"size": 1_048_576, "dev": "/dev/sdb"});
    assert_eq!(
        changed(&lio(&object(&device), &[tpg(1, &json!({}))]), ""),
        0
    );
    // Disks of one length are in one line.
    let other = json!({"name": "db", "dev": "/srv/db.img", "wwn": "3f", "size": 1_048_576});
    let objects = [object(&json!({"size": 1_048_576})), object(&other)];
    let file = json!({"storage_objects": objects, "targets": []});
    let imported = import(Format::Lio, &file.to_string());
    assert_eq!(changed(&imported, "disk \"web\", \"db\""), 1);
    let scst = "HANDLER vdisk_fileio {\nDEVICE a {\nfilename /srv/a.img\nsize_mb 32\n}\n}\n";
    assert_eq!(changed(&import(Format::Scst, scst), "length of 32M"), 1);
}

/// rtslib gives each LUN a random alias, and lists have the order of a directory.
#[test]
fn portal_groups_of_lio_that_show_the_same_are_one() {
    let second = "bind = \"192.0.2.2:3260\", group = 2";
    let acls =
        |names: [&str; 2]| json!(names.map(|name| json!({"node_wwn": name, "mapped_luns": []})));
    let names = ["iqn.2026-11.example:a", "iqn.2026-11.example:b"];
    for changes in [
        [json!({}), json!({})],
        [
            json!({"node_acls": acls(names)}),
            json!({"node_acls": acls([names[1], names[0]])}),
        ],
    ] {
        let [one, two] = &changes;
        let imported = lio(&object(&json!({})), &[tpg(1, one), tpg(2, two)]);
        assert!(imported.toml.contains(second), "{}", imported.toml);
    }
    for (change, word) in [
        (json!({"node_acls": []}), "in node_acls;"),
        (json!({"luns": []}), "in luns;"),
        (
            json!({"attributes": {"authentication": 1}}),
            "in attributes;",
        ),
        (
            json!({"parameters": {"AuthMethod": "CHAP"}}),
            "in AuthMethod;",
        ),
        (json!({"new": 1}), "in what is not known;"),
    ] {
        let imported = lio(&object(&json!({})), &[tpg(1, &json!({})), tpg(2, &change)]);
        assert!(!imported.toml.contains(second), "{}", imported.toml);
        let words = [
            "portal group 2 differs from portal group 1",
            word,
            "those of portal group 1 now",
        ];
        assert_noted(&imported, Severity::LeftOut, &words);
    }
}

#[test]
fn attributes_of_lio_that_initiators_notice_are_named() {
    for (key, other, of_tarn, severity) in [
        ("pi_prot_type", 1, 0, Severity::LeftOut),
        ("emulate_caw", 0, 1, Severity::Changed),
        ("emulate_pr", 0, 1, Severity::Changed),
        ("emulate_ua_intlck_ctrl", 2, 0, Severity::Changed),
        ("is_nonrot", 1, 0, Severity::Changed),
    ] {
        for (value, count) in [(Some(other), 1), (Some(of_tarn), 0), (None, 0)] {
            let mut change = json!({"attributes": {}});
            if let Some(value) = value {
                change["attributes"][key] = value.into();
            }
            let imported = lio(&object(&change), &[tpg(1, &json!({}))]);
            assert_eq!(noted(&imported, severity, &[key]), count, "{key} {value:?}");
        }
    }
}

#[test]
fn a_proof_of_the_target_that_is_that_of_a_user_is_named() {
    let acl = |name: &str, secret: &str, mutual: &str| {
        json!({"node_wwn": format!("iqn.2026-11.example:{name}"), "chap_userid": name, "chap_password": secret,
            "chap_mutual_userid": "san", "chap_mutual_password": mutual, "mapped_luns": []})
    };
    let acls = json!([
        acl("web", "web-secret-0001", "san-secret-0001"),
        acl("db", "db-secret-00001", "web-secret-0001")
    ]);
    let change = json!({"node_acls": acls, "attributes": {"authentication": 1}});
    let imported = lio(&object(&json!({})), &[tpg(1, &change)]);
    let words = [
        "the target towards user \"db\"",
        "that of user \"web\"",
        "new secret",
        "at the initiators",
    ];
    assert_noted(&imported, Severity::LeftOut, &words);
    assert_eq!(noted(&imported, Severity::LeftOut, &["not in the file"]), 0);
    let text = "<target iqn.x>\nbacking-store /srv/a.img\nincominguser u PLEASE_CORRECT_THE_PASSWORD\n</target>\n";
    let imported = import(Format::Tgt, text);
    assert_noted(
        &imported,
        Severity::LeftOut,
        &[
            "user \"u\"",
            "not in the file",
            "the same as at the initiators",
        ],
    );
}

/// A word of ours in another case is shown; any other one may be of a file that is not to be seen.
#[test]
fn an_included_file_that_is_none_is_named_with_line_and_key() {
    for (text, words) in [
        (
            "\n<Target iqn.x>\n</Target>\n",
            ["inc:2: ", "\"target\" in another case"],
        ),
        ("INCLUDE x\n", ["inc:1: ", "\"include\" in another case"]),
        ("hidden x\n", ["inc:1: ", "is no key of targets.conf"]),
        ("<hidden x>\n", ["inc:1: ", "cannot be read"]),
    ] {
        let source = Source { name: "inc", text };
        let error = import::check_included(Format::Tgt, source)
            .unwrap_err()
            .to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(
            !error.contains("hidden") && !error.contains("iqn.x"),
            "{error}"
        );
    }
}

#[test]
fn a_word_that_is_not_known_costs_its_target_of_ctld_and_no_other() {
    let target = |name: &str, lines: &str| {
        format!(
            "target iqn.2026-11.example:{name} {{\nportal-group p\nauth-group no-authentication\n{lines}\n\
             lun 0 {{\npath /srv/{name}.img\n}}\n}}\n"
        )
    };
    let portals = "portal-group p {\nlisten 192.0.2.1\n}\n";
    for (line, word, is_of_disk) in [
        ("physical-port isp0", "\"physical-port\"", false),
        ("new-key a b c", "\"new-key\"", false),
        (
            "lun 1 {\npath /srv/more.img\nnew-key \"}\" x\n}\n",
            "\"new-key\"",
            true,
        ),
    ] {
        let text = format!("{portals}{}{}", target("a", line), target("b", ""));
        let imported = import(Format::Ctl, &text);
        assert!(imported.toml.contains("example:b\""), "{}", imported.toml);
        let is_there = imported.toml.contains("example:a\"");
        assert_eq!(is_there, is_of_disk, "{}", imported.toml);
        assert!(!imported.toml.contains("lun = 1"), "{}", imported.toml);
        assert_noted(&imported, Severity::LeftOut, &[word, "is not known here"]);
    }
    // A word of another section is a sign of a brace that is missing.
    let text = format!("{portals}{}", target("a", "maxproc 1"));
    let source = Source {
        name: "f",
        text: &text,
    };
    assert!(import::import(Format::Ctl, &[source], &Options::default()).is_err());
}

#[test]
fn what_has_no_counterpart_has_a_line() {
    let text = "<target iqn.x>\n<backing-store /srv/a.img>\nproduct_rev 12\n</backing-store>\n\
        initiator-address 127.0.0.1/32\n</target>\n";
    let imported = import(Format::Tgt, text);
    assert_noted(&imported, Severity::Changed, &["product_rev"]);
    assert_noted(
        &imported,
        Severity::LeftOut,
        &["127.0.0.1/32", "prefix has all bits or none"],
    );
    let text = "target iqn.2026-11.example:t {\nauth-group no-authentication\noffload cxgbe\nlun 0 {\npath /a\n}\n}\n";
    assert_noted(&import(Format::Ctl, text), Severity::Changed, &["offload"]);
}
