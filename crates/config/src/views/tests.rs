use std::path::Path;

use crate::Model;

const UNITS: &str = r#"
    lun = [{ id = "a", store = "mem:1M" }, { id = "b", store = "mem:1M" }]
    user = [{ name = "alice", secret_file = "a" }]
"#;

fn read(groups: &[(&str, &str)], luns: &str) -> Result<Model, String> {
    let groups: String = groups
        .iter()
        .map(|(id, initiators)| format!("[[group]]\nid = \"{id}\"\ninitiators = [{initiators}]\n"))
        .collect();
    let target = "[[target]]\nname = \"iqn.2026-11.example.tarn:t\"";
    let text = format!("{UNITS}{groups}{target}\nluns = [{luns}]\n");
    Model::from_toml(&text, Path::new("t.toml")).map_err(|error| error.to_string())
}

const BOTH: &str =
    r#"{ lun = 0, id = "a", groups = ["g1"] }, { lun = 0, id = "b", groups = ["g2"] }"#;

/// Who is certain to be in both groups is named with both; who may be is left to the login.
#[test]
fn an_initiator_that_is_in_two_groups_of_one_number_is_refused_with_both_names() {
    #[rustfmt::skip]
    let cases = [
        (r#""iqn.a:h""#, r#""iqn.a:i""#, None),
        (r#""iqn.a:h""#, r#""IQN.A:H""#, Some(r#"initiator "iqn.a:h""#)),
        (r#""iqn.a:h""#, r#""iqn.a:*""#, Some(r#"initiator "iqn.a:h""#)),
        (r#""iqn.a:*""#, r#""iqn.a:x", "iqn.b:x""#, Some(r#"initiator "iqn.a:x""#)),
        (r#""iqn.a:h""#, r#""*", "!iqn.a:h""#, None),
        (r#""iqn.a:h", "!iqn.a:*""#, r#""*""#, None),
        (r#""iqn.a:h""#, r#""*", "!iqn.a:i""#, Some(r#"initiator "iqn.a:h""#)),
        (r#""iqn.a:*""#, r#""*", "!iqn.a:*""#, None),
        (r#""iqn.a:*1""#, r#""iqn.a:1*""#, Some(r#"name matches "iqn.a:*1" and "iqn.a:1*""#)),
        (r#""iqn.a:*""#, r#""iqn.a:*""#, Some(r#"initiator "iqn.a:*""#)),
        (r#""10.0.0.0/8""#, r#""10.1.0.0/16""#, Some("an initiator at 10.1.0.0")),
        (r#""10.0.0.0/8", "!10.1.0.0/16""#, r#""10.1.0.0/16""#, None),
        (r#""10.0.0.0/8""#, r#""192.0.2.1""#, None),
        (r#""alice""#, r#""user:alice""#, Some("a user that both name")),
        (r#""iqn.a:h@10.0.0.0/8""#, r#""iqn.a:*@10.1.0.0/16""#, Some(r#"initiator "iqn.a:h" at 10.1.0.0"#)),
        (r#""iqn.a:h@10.0.0.0/8""#, r#""iqn.a:h""#, Some(r#"initiator "iqn.a:h" at 10.0.0.0"#)),
        (r#""iqn.a:h@10.0.0.0/8""#, r#""10.0.0.1""#, Some(r#"initiator "iqn.a:h" at 10.0.0.1"#)),
        (r#""iqn.a:h@10.0.0.0/8""#, r#""iqn.a:h@192.0.2.1""#, None),
        (r#""iqn.a:h@10.0.0.0/8""#, r#""*", "!iqn.a:h@10.0.0.0/8""#, None),
        (r#""10.0.0.0/8""#, r#""10.0.0.0/8", "!*@10.0.0.0/8""#, None),
        // What comes from where, and as whom, is known at the login.
        (r#""iqn.a:h""#, r#""10.0.0.0/8""#, None),
        (r#""iqn.a:h""#, r#""alice""#, None),
    ];
    for (one, two, who) in cases {
        for groups in [[("g1", one), ("g2", two)], [("g1", two), ("g2", one)]] {
            let got = read(&groups, BOTH).err();
            match (who, &got) {
                (None, None) => {}
                (Some(who), Some(got)) => {
                    assert!(
                        got.contains("LUN 0 is one unit for group \"g1\" (at t.toml:"),
                        "{got}"
                    );
                    assert!(got.contains("and another for group \"g2\", and "), "{got}");
                    let other_way = groups[0].1 == two && who.contains(" and ");
                    assert!(got.contains(who) || other_way, "{got}");
                }
                (_, got) => panic!("{groups:?}: {got:?}"),
            }
        }
    }
}

#[test]
fn one_group_sees_one_unit_under_a_number_and_so_does_everyone_else() {
    let groups = [("g1", r#""iqn.a:h""#), ("g2", r#""iqn.a:i""#)];
    for (luns, message) in [
        (BOTH, None),
        (
            r#"{ lun = 0, id = "a", groups = ["g1", "g2"] }, { lun = 0, id = "b" }"#,
            None,
        ),
        (
            r#"{ lun = 0, id = "a" }, { lun = 0, id = "b" }"#,
            Some("lun \"0\" is already used at"),
        ),
        (
            r#"{ lun = 0, id = "a", groups = ["g1"] }, { lun = 0, id = "b", groups = ["g2", "g1"] }"#,
            Some("group \"g1\" already sees another unit as LUN 0, at t.toml:"),
        ),
        (
            r#"{ lun = 0, id = "a", groups = ["g1"] }, { lun = 0, id = "a", groups = ["g1"], readonly = true }"#,
            Some("group \"g1\" already sees"),
        ),
    ] {
        let got = read(&groups, luns).err();
        let is_expected = match (&got, message) {
            (Some(got), Some(message)) => got.contains(message),
            (None, None) => true,
            (_, _) => false,
        };
        assert!(is_expected, "{luns}: {got:?}");
    }
}

/// As COMSTAR has it for a thousand hosts that boot from SAN.
#[test]
fn a_thousand_groups_with_a_thousand_numbers_are_read_soon() {
    let names: Vec<(String, String)> = (0..1000)
        .map(|at| {
            (
                format!("g{at}"),
                format!("\"iqn.a:h{at}\", \"iqn.a:h{at}-*\""),
            )
        })
        .collect();
    let groups: Vec<(&str, &str)> = names
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let entry = |lun: usize, at: usize| {
        let id = if at.is_multiple_of(2) { "a" } else { "b" };
        format!("{{ lun = {lun}, id = \"{id}\", groups = [\"g{at}\"] }}")
    };
    let luns: Vec<String> = (0..10)
        .flat_map(|lun| (0..1000).map(move |at| entry(lun, at)))
        .collect();
    let model = read(&groups, &luns.join(", ")).unwrap();
    assert_eq!(model.targets()[0].luns.entries().len(), 10_000);
}
