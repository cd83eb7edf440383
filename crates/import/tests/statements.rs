//! What is not understood guards what it stands in: a statement that nothing is known of never shows a disk to more
//! initiators than the file did with it.
//!
//! Each statement of a file is made one that means nothing, one after the other. Taking it out is another matter:
//! without its only list of initiators a target of ctld is open to all, and has to be here. So a statement is also
//! taken out, if it is none that keeps somebody away.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::collections::BTreeSet;
use std::path::Path;

use config::{Initiator, Model};
use import::{Format, Imported, Options, Source};
use proptest::prelude::*;

/// Names, addresses and accounts that initiators come with.
const NAMES: [&str; 4] = ["h1", "h2", "x", "h1x"];
const ADDRESSES: [&str; 3] = ["192.0.2.9", "198.51.100.7", "2001:db8::9"];
const ACCOUNTS: [Option<(&str, &str)>; 3] = [
    None,
    Some(("u1", "secret-of-u1-a")),
    Some(("u2", "secret-of-u2-a")),
];

/// What some initiator can do to some disk at some portal.
type Sights = BTreeSet<(
    &'static str,
    &'static str,
    Option<&'static str>,
    String,
    bool,
)>;

fn secret_of<'a>(imported: &'a Imported, user: &str) -> Option<&'a str> {
    let purpose = format!("user {user:?}");
    let file = imported
        .secrets
        .iter()
        .find(|file| file.purpose == purpose)?;
    file.secret.as_ref().map(|secret| secret.as_str())
}

fn sights(format: Format, files: &[(&str, String)]) -> Sights {
    let sources: Vec<_> = files
        .iter()
        .map(|(name, text)| Source { name, text })
        .collect();
    // At one address for all targets of SCST no target is in the way of another.
    let listen = if format == Format::Scst {
        vec!["192.0.2.1:3260".to_owned()]
    } else {
        Vec::new()
    };
    let options = Options {
        listen,
        ..Options::default()
    };
    let Ok(imported) = import::import(format, &sources, &options) else {
        return Sights::new();
    };
    let model = Model::from_toml(&imported.toml, Path::new("tarn.toml")).unwrap();
    let mut sights = Sights::new();
    for (name, address) in NAMES
        .iter()
        .flat_map(|name| ADDRESSES.map(|address| (*name, address)))
    {
        for account in ACCOUNTS {
            let user = match account {
                None => None,
                Some((user, secret)) if secret_of(&imported, user) == Some(secret) => {
                    model.user_by_name(user)
                }
                Some(_) => continue,
            };
            let initiator = Initiator {
                name: &format!("iqn.2026-11.example:{name}"),
                address: address.parse().unwrap(),
                user,
                certificate: &[],
            };
            for (index, target) in model.target_indices().zip(model.targets()) {
                // Who needs no account has all that one gives.
                if user.is_some() && target.auth.is_empty() {
                    continue;
                }
                let map = model.login(index, &initiator).unwrap_or_default();
                for (entry, portal) in map
                    .entries()
                    .iter()
                    .flat_map(|entry| target.portals.iter().map(move |p| (entry, p)))
                {
                    let unit = &model.units()[entry.unit.position()];
                    let may_write = !entry.read_only && !unit.store.read_only;
                    let place = format!("{:?} at {}", unit.store.at.place, portal.bind);
                    let secret = account.map(|(_, secret)| secret);
                    sights.insert((name, address, secret, place.clone(), false));
                    if may_write {
                        sights.insert((name, address, secret, place, true));
                    }
                }
            }
        }
    }
    sights
}

/// A line that means nothing in place of one.
fn garbled(line: &str) -> String {
    let at = line.len() - line.trim_start().len();
    match line.trim_start().strip_prefix('<') {
        Some(rest) if !rest.starts_with('/') => format!("<x-{rest}"),
        _ => format!("{}x-{}", &line[..at], &line[at..]),
    }
}

/// Whether a line keeps somebody away, or is a part of one that has others: a brace, or the end of a section.
fn restricts(line: &str) -> bool {
    let words = [
        "initiator",
        "auth",
        "chap",
        "user",
        "mapping",
        "netmask",
        "readonly",
        "read_only",
        "iomode",
        "listen",
        "portal",
        "enabled",
        "unitonline",
        "per_portal_acl",
        "group",
        "allow",
        "acl",
        "192.0.2",
        "198.51",
        "discovery",
        "targetname",
        "unittype",
        "iqn.",
        "all ",
        "lun ",
        "[",
        "{",
        "}",
        "<",
        "option",
        "u1",
        "u2",
        "(outgoing)",
    ];
    let line = line.to_ascii_lowercase();
    words.iter().any(|word| line.contains(word))
}

fn check(format: Format, files: &[(&str, String)]) -> Result<(), TestCaseError> {
    let whole = sights(format, files);
    for (at, (_, text)) in files.iter().enumerate() {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines
            .iter()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let with = |change: &[String]| {
                let mut files = files.to_vec();
                let before = lines[..number].iter().map(|line| (*line).to_owned());
                let after = lines[number + 1..].iter().map(|line| (*line).to_owned());
                let all: Vec<String> = before.chain(change.iter().cloned()).chain(after).collect();
                files[at].1 = all.join("\n") + "\n";
                files
            };
            let mut changes = Vec::new();
            if !line.trim_start().starts_with(['}', '{']) {
                changes.push(with(&[garbled(line)]));
            }
            if !restricts(line) {
                changes.push(with(&[]));
            }
            for changed in changes {
                let more: Vec<_> = sights(format, &changed)
                    .difference(&whole)
                    .cloned()
                    .collect();
                prop_assert!(more.is_empty(), "{}\nshows with {more:?}", changed[at].1);
            }
        }
    }
    Ok(())
}

/// Some of these lines.
fn some(lines: &'static [&'static str]) -> impl Strategy<Value = String> {
    let picked = proptest::sample::subsequence(lines, 0..=lines.len());
    picked.prop_map(|lines| lines.iter().map(|line| format!("{line}\n")).collect())
}

/// Two targets of these lines.
fn two(lines: &'static [&'static str]) -> impl Strategy<Value = [String; 2]> {
    [some(lines), some(lines)]
}

const CTL_ACCESS: &[&str] = &[
    "auth-type none",
    "chap u1 secret-of-u1-a",
    "chap-mutual u2 secret-of-u2-a m secret-of-m-abc",
    "initiator-name iqn.2026-11.example:h1",
    "initiator-name iqn.2026-11.example:h2",
    "initiator-portal 192.0.2.0/24",
];
const CTL_TARGET: &[&str] = &[
    "alias one",
    "auth-group a",
    "portal-group p",
    "portal-group q no-authentication",
];
const TGT_TARGET: &[&str] = &[
    "initiator-address 192.0.2.0/24",
    "initiator-address 198.51.100.7",
    "initiator-name iqn.2026-11.example:h1",
    "incominguser u1 secret-of-u1-a",
    "incominguser u2 secret-of-u2-a",
    "outgoinguser m secret-of-m-abc",
    "readonly 1",
    "write-cache off",
    "MaxBurstLength 262144",
];
const SCST_GROUP: &[&str] = &[
    "INITIATOR iqn.2026-11.example:h1",
    "INITIATOR iqn.2026-11.example:h*",
    "INITIATOR !iqn.2026-11.example:h2",
    "INITIATOR *\\#*",
    "INITIATOR iqn.2026-11.example:h1\\#192.0.2.1",
    "LUN 0 a",
    "LUN 1 b {\nread_only 1\n}",
];
const SCST_TARGET: &[&str] = &[
    "per_portal_acl 1",
    "IncomingUser \"u1 secret-of-u1-a\"",
    "IncomingUser \"u2 secret-of-u2-a\"",
    "allowed_portal 192.0.2.1",
    "rel_tgt_id 1",
    "LUN 3 c",
];
const IET_TARGET: &[&str] = &[
    "IncomingUser u1 secret-of-u1-a",
    "IncomingUser u2 secret-of-u2-a",
    "OutgoingUser m secret-of-m-abc",
    "Lun 0 Path=/a,Type=fileio,IOMode=ro",
    "Lun 1 Path=/b,Type=blockio",
    "MaxConnections 1",
];
const ISTGT_GROUP: &[&str] = &[
    "InitiatorName iqn.2026-11.example:h1",
    "InitiatorName !iqn.2026-11.example:h2",
    "InitiatorName ALL",
    "Netmask 192.0.2.0/24",
    "Comment some",
];
const ISTGT_UNIT: &[&str] = &[
    "Mapping PortalGroup1 InitiatorGroup1",
    "Mapping PortalGroup1 InitiatorGroup2",
    "Mapping PortalGroup2 InitiatorGroup2",
    "AuthMethod CHAP",
    "AuthGroup AuthGroup1",
    "ReadOnly Yes",
    "UnitOnline No",
];
const SHOWN_ACL: &[&str] = &["ALL", "192.0.2.0/24", "iqn.2026-11.example:h1"];
const SHOWN_ACCOUNTS: &[&str] = &["u1", "u2", "m (outgoing)"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_ctld(groups in two(CTL_ACCESS), targets in two(CTL_TARGET), own in some(CTL_ACCESS)) {
        let [a, b] = groups;
        let [one, two] = targets;
        // None listens at all addresses, so that none is in the way of another.
        let text = format!(
            "auth-group a {{\n{a}}}\nauth-group default {{\n{b}}}\nportal-group p {{\nlisten 192.0.2.1\n\
             discovery-auth-group no-authentication\n}}\nportal-group q {{\nlisten 192.0.2.2\n}}\n\
             portal-group default {{\nlisten 192.0.2.3\n}}\n\
             target iqn.2026-11.example:t1 {{\n{one}lun 0 {{\npath /a\noption readonly on\noption unmap on\n}}\n}}\n\
             target iqn.2026-11.example:t2 {{\n{two}{own}lun 0 {{\npath /b\n}}\n}}\n"
        );
        check(Format::Ctl, &[("ctl.conf", text.clone())])?;
        // Lines have no meaning to ctld.
        let flat = text.replace('\n', " ");
        prop_assert_eq!(sights(Format::Ctl, &[("ctl.conf", text)]), sights(Format::Ctl, &[("ctl.conf", flat)]));
    }

    #[test]
    fn of_tgt(targets in two(TGT_TARGET), unit in some(TGT_TARGET)) {
        let [one, two] = targets;
        let of_unit = unit.lines().filter(|line| line.starts_with(['r', 'w']));
        let unit: String = of_unit.map(|line| format!("{line}\n")).collect();
        let text = format!(
            "default-driver iscsi\n<target iqn.2026-11.example:t1>\n{one}backing-store /a\n</target>\n\
             <target iqn.2026-11.example:t2>\n{two}<backing-store /b>\n{unit}</backing-store>\n</target>\n"
        );
        check(Format::Tgt, &[("targets.conf", text)])?;
    }

    #[test]
    fn of_scst(groups in two(SCST_GROUP), targets in two(SCST_TARGET)) {
        let [g, h] = groups;
        let [one, two] = targets;
        let text = format!(
            "HANDLER vdisk_fileio {{\nDEVICE a {{\nfilename /a\n}}\nDEVICE b {{\nfilename /b\nread_only 1\n}}\n\
             DEVICE c {{\nfilename /c\n}}\n}}\nTARGET_DRIVER iscsi {{\nenabled 1\nTARGET iqn.2026-11.example:t1 {{\n\
             enabled 1\n{one}GROUP g {{\n{g}}}\nGROUP h {{\n{h}}}\n}}\n\
             TARGET iqn.2026-11.example:t2 {{\nenabled 1\n{two}}}\n}}\n"
        );
        check(Format::Scst, &[("scst.conf", text)])?;
    }

    #[test]
    fn of_iet(targets in two(IET_TARGET)) {
        let [one, two] = targets;
        let text = format!("Target iqn.2026-11.example:t1\n{one}Target iqn.2026-11.example:t2\n{two}");
        check(Format::Iet, &[("ietd.conf", text)])?;
    }

    #[test]
    fn of_istgt(groups in two(ISTGT_GROUP), units in two(ISTGT_UNIT)) {
        let [g, h] = groups;
        let [one, two] = units;
        let text = format!(
            "[AuthGroup1]\nAuth u1 secret-of-u1-a\n[PortalGroup1]\nPortal A 192.0.2.1:3260\n[PortalGroup2]\n\
             Portal B 192.0.2.2:3260\n[InitiatorGroup1]\n{g}[InitiatorGroup2]\n{h}[LogicalUnit1]\n\
             TargetName iqn.2026-11.example:t1\n{one}UnitType Disk\nLUN0 Storage /a Auto\nLUN0 Option Serial A\n\
             [LogicalUnit2]\nTargetName iqn.2026-11.example:t2\n{two}UnitType Disk\nLUN0 Storage /b Auto\n"
        );
        check(Format::Istgt, &[("istgt.conf", text)])?;
    }

    #[test]
    fn of_a_running_tgt(acls in two(SHOWN_ACL), accounts in two(SHOWN_ACCOUNTS)) {
        let target = |number: usize, accounts: &str, acl: &str| format!(
            "Target {number}: iqn.2026-11.example:t{number}\n    System information:\nDriver: iscsi\nState: ready\n\
             I_T nexus information:\nLUN information:\nLUN: 1\nType: disk\nReadonly: Yes\nBacking store type: rdwr\n\
             Backing store path: /d{number}\nAccount information:\n{accounts}ACL information:\n{acl}"
        );
        let [a, b] = acls;
        let [c, d] = accounts;
        check(Format::TgtShow, &[("show.txt", target(1, &c, &a) + &target(2, &d, &b))])?;
    }

    /// In JSON an entry is a statement.
    #[test]
    fn of_lio(bits in proptest::collection::vec(0..4_i64, 8)) {
        let acl = |name: &str, authentication: i64, protect: bool, user: bool| {
            let mut acl = serde_json::json!({"node_wwn": format!("iqn.2026-11.example:{name}"), "mapped_luns":
                [{"index": 0, "tpg_lun": 0, "write_protect": protect}], "attributes": {"nopin_timeout": 5}});
            if (0..2).contains(&authentication) {
                acl["attributes"]["authentication"] = authentication.into();
            }
            if user {
                acl["chap_userid"] = "u1".into();
                acl["chap_password"] = "secret-of-u1-a".into();
            }
            acl
        };
        let mut tpg = serde_json::json!({"tag": 1, "enable": true, "node_acls": [],
            "portals": [{"ip_address": "192.0.2.1", "port": 3260}],
            "luns": [{"index": 0, "storage_object": "/backstores/fileio/a"},
                {"index": 1, "storage_object": "/backstores/fileio/b"}],
            "attributes": {"generate_node_acls": bits[1] & 1, "demo_mode_write_protect": bits[1] >> 1}});
        if bits[0] < 2 {
            tpg["attributes"]["authentication"] = bits[0].into();
        }
        if bits[2] & 1 != 0 {
            tpg["chap_userid"] = "u2".into();
            tpg["chap_password"] = "secret-of-u2-a".into();
        }
        let acl = |name, at: usize| acl(name, bits[at], bits[at + 1] & 1 != 0, bits[at + 1] & 2 != 0);
        let acls = [acl("h1", 3), acl("h2", 5)];
        let count = usize::try_from(bits[7] % 3).unwrap();
        tpg["node_acls"] = acls[..count].to_vec().into();
        let file = serde_json::json!({"storage_objects": [
            {"plugin": "fileio", "name": "a", "dev": "/a", "write_back": true, "attributes": {"block_size": 512}},
            {"plugin": "fileio", "name": "b", "dev": "/b", "readonly": true}],
            "targets": [{"fabric": "iscsi", "wwn": "iqn.2026-11.example:t1", "tpgs": [tpg]}]});
        let text = serde_json::to_string_pretty(&file).unwrap();
        let whole = sights(Format::Lio, &[("saveconfig.json", text.clone())]);
        for (at, _) in text.match_indices("\": ") {
            let begin = text[..at].rfind('"').unwrap();
            let garbled = format!("{}\"x-{}", &text[..begin], &text[begin + 1..]);
            let seen = sights(Format::Lio, &[("saveconfig.json", garbled.clone())]);
            let more: Vec<_> = seen.difference(&whole).cloned().collect();
            prop_assert!(more.is_empty(), "{}\nshows with {:?}", garbled, more);
        }
    }
}
