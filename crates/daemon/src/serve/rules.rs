//! The dry run of the rules: what each would meet, and why.

use std::fmt::Write as _;

use api::control::Control as _;
use api::plan::{Inspection, Origin};
use api::problem::ProblemKind;
use api::view::{Access, AccessQuestion};

use super::living::Living;
use super::tests::assert_written;

const REST: &str = r#"
[server]
state = "{dir}/state"
cores = 1
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#;

const RULES: &str = r#"
[[lun]]
id = "a"
store = "mem:1M"
[[lun]]
id = "b"
store = "null:1M?readonly"
[[group]]
id = "ours"
initiators = ["iqn.2026-11.x:ours", "127.0.0.0/8", "certificate:ours.example"]
[[group]]
id = "theirs"
initiators = ["iqn.2026-11.x:theirs"]
[[user]]
name = "alice"
secret_file = "a.secret"
[[target]]
name = "iqn.2026-11.x:all"
portals = ["127.0.0.1:0"]
luns = [{ lun = 0, id = "a" }]
[[target]]
name = "iqn.2026-11.x:some"
portals = ["127.0.0.1:0"]
auth = ["alice"]
luns = [
    { lun = 0, id = "a", groups = ["ours"] }, { lun = 0, id = "b", groups = ["theirs"] },
    { lun = 1, id = "b", groups = ["ours"], readonly = true }, { lun = 2, id = "a", groups = ["theirs"] },
]
[[target]]
name = "iqn.2026-11.x:many"
portals = ["127.0.0.1:0"]
luns = [
    { lun = 0, id = "a", groups = ["theirs"] }, { lun = 1, id = "a", groups = ["theirs"] },
    { lun = 2, id = "a", groups = ["theirs"] }, { lun = 3, id = "a", groups = ["theirs"] },
    { lun = 4, id = "a", groups = ["theirs"] }, { lun = 5, id = "a", groups = ["theirs"] },
    { lun = 6, id = "a", groups = ["theirs"] }, { lun = 7, id = "a", groups = ["theirs"] },
    { lun = 8, id = "a", groups = ["theirs"] }, { lun = 9, id = "b" },
]
[[nbd]]
bind = "127.0.0.1:10809"
luns = ["a", "b"]
[[nbd]]
bind = "127.0.0.1:10810"
luns = ["a"]
groups = ["ours"]
[[nbd]]
bind = "127.0.0.1:10811"
luns = ["a"]
groups = ["ours"]
certificate = "c.pem"
key = "k.pem"
ca = "ca.pem"
[[nbd]]
socket = "/run/tarn-nbd"
mode = "0660"
luns = ["b"]
[[hyperscsi.group]]
name = "OPEN"
udp = "127.0.0.1"
open = true
[[hyperscsi.group.device]]
id = "a"
level = "crc"
[[hyperscsi.group]]
name = "PROVED"
udp = "127.0.0.1"
password_file = "a.secret"
[[hyperscsi.group.device]]
id = "a"
level = "crc"
[[hyperscsi.group.device]]
id = "b"
level = "encrypt"
readonly = true
[[hyperscsi.group]]
name = "USER"
udp = "127.0.0.1"
user = "carol"
password_file = "a.secret"
[[hyperscsi.group.device]]
id = "a"
level = "hash"
[server]
discovery_auth = ["alice"]
"#;

/// Who asks: name, address, user, certificate.
const ASKERS: &[[&str; 4]] = &[
    ["iqn.2026-11.x:nobody", "", "", ""],
    ["iqn.2026-11.x:ours", "", "", ""],
    ["iqn.2026-11.x:ours", "127.0.0.1", "alice", ""],
    ["iqn.2026-11.x:theirs", "192.0.2.1", "alice", "ours.example"],
    ["iqn.2026-11.x:nobody", "127.0.0.1", "", "theirs.example"],
];

fn in_words(one: &Access) -> String {
    let facts = [
        (one.may_login, "may log in"),
        (one.needs_chap, "with CHAP"),
        (one.needs_password, "with a password"),
        (one.is_discovered, "finds it"),
        (one.discovery_needs_chap, "discovery with CHAP"),
    ];
    let facts = facts
        .iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, word)| *word);
    let luns = one.luns.iter().map(|lun| {
        let access = if lun.readonly { "read" } else { "write" };
        let level = lun.level.as_deref().unwrap_or("-");
        format!("{}={}:{access}:{level}", lun.lun, lun.id)
    });
    let (facts, luns) = (
        facts.collect::<Vec<_>>().join(", "),
        luns.collect::<Vec<_>>().join(" "),
    );
    format!(
        "  {} {}: {facts} [{luns}]\n    {}",
        one.protocol, one.target, one.reason
    )
}

#[test]
fn the_dry_run_says_what_each_would_meet_at_each_place_and_why() {
    let living = Living::new(REST);
    living.pretend(RULES, |_| ());
    let ask = |[name, address, user, certificate]: [&str; 4]| {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        living.daemon.access(&AccessQuestion {
            initiator: name.to_owned(),
            address: some(address),
            user: some(user),
            certificate: some(certificate),
        })
    };
    let mut text = String::new();
    for asker in ASKERS {
        let _infallible = writeln!(text, "== {asker:?}");
        for one in ask(*asker).unwrap() {
            let _infallible = writeln!(text, "{}", in_words(&one));
        }
    }
    assert_written("access.txt", &text);
    for wrong in [
        ["a name", "", "", ""],
        ["iqn.2026-11.x:a", "somewhere", "", ""],
        ["iqn.2026-11.x:a", "", "carol", ""],
    ] {
        let kind = ask(wrong).unwrap_err().kind;
        assert_eq!(kind, ProblemKind::BadRequest, "{wrong:?}");
    }
    living.stop();
}

#[test]
fn an_empty_document_takes_nothing_away_and_a_plan_says_whether_it_changes_the_text() {
    let living = Living::new(REST);
    let plan = |text: &str, inspection| {
        let plan = living.daemon.plan(text, &Origin::Written, inspection);
        plan.map(|plan| (plan.changes_text, plan.steps.len(), plan.not_probed.len()))
            .map_err(|problem| problem.kind)
    };
    let files = |text: &str| plan(text, Inspection::Files);
    let disk = "[[lun]]\nid = \"m\"\nstore = \"mem:1M\"\n";
    assert!(files(" \n").is_ok(), "there is nothing to be taken away");
    let group = "[[hyperscsi.group]]\nname = \"ABC\"\nudp = \"127.0.0.1:0\"\npassword = \"secret of ABC\"\n\
                 device = [{ id = \"m\", level = \"crc\" }]\n";
    living
        .apply(&format!("{}{disk}{group}", living.text()))
        .unwrap();
    assert_eq!(files(" \n"), Err(ProblemKind::InvalidConfig));
    assert!(files("# nothing\n").is_ok());
    let text = living.text();
    let other = text.replace("secret of ABC", "another secret");
    let file = "[[lun]]\nid = \"n\"\nstore = \"file:n.img?size=1M\"\n";
    for (text, seen, unseen) in [
        (text.clone(), (false, 0, 0), (false, 0, 0)),
        (format!("{text}# more\n"), (true, 0, 0), (true, 0, 0)),
        (other, (true, 1, 0), (true, 1, 1)),
        (format!("{text}{file}"), (true, 1, 0), (true, 1, 1)),
    ] {
        assert_eq!(files(&text), Ok(seen), "{text}");
        assert_eq!(plan(&text, Inspection::DocumentOnly), Ok(unseen), "{text}");
    }
    living.stop();
}
