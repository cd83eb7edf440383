//! Configurations that other people's programs took for something else than they seemed to say.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::fs;
use std::path::Path;

use config::Model;
use import::{Device, Format, Imported, Options, ReadError, Severity, Source};

/// A changer and two tapes, of which one has no name that stays, and one that has no node of the generic driver.
fn devices() -> Vec<Device> {
    let all = [
        ("7:0:0:0", 8, Some("/dev/tape/by-id/scsi-1STK_L700")),
        ("7:0:1:0", 1, Some("/dev/sg4")),
        ("7:0:2:0", 1, Some("/dev/tape/by-id/scsi-350011d00018a5f03")),
        ("7:0:3:0", 1, None),
    ];
    let device = |(address, device_type, path): (&str, u8, Option<&str>)| Device {
        address: address.to_owned(),
        device_type,
        model: "STK L700".to_owned(),
        path: path.map(str::to_owned),
    };
    all.map(device).into()
}

fn import_with(format: Format, file: &str, listen: &[&str]) -> Imported {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/import/cases")
        .join(file);
    let text = fs::read_to_string(path).unwrap();
    let options = Options {
        listen: listen.iter().map(|text| (*text).to_owned()).collect(),
        devices: devices(),
        ..Options::default()
    };
    import::import(
        format,
        &[Source {
            name: file,
            text: &text,
        }],
        &options,
    )
    .unwrap()
}

fn import(format: Format, file: &str) -> Imported {
    import_with(format, file, &[])
}

fn model(imported: &Imported) -> Model {
    Model::from_toml(&imported.toml, Path::new("tarn.toml")).unwrap()
}

/// The targets with their portals, and the `id`s of what each shows.
fn shown(imported: &Imported) -> Vec<String> {
    let model = model(imported);
    let effective: toml::Table = model.effective().parse().unwrap();
    let list = |value: &toml::Value, key: &str| {
        value
            .get(key)
            .and_then(toml::Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let targets = effective
        .get("target")
        .and_then(toml::Value::as_array)
        .cloned()
        .unwrap_or_default();
    let text = |value: &toml::Value, key: &str| {
        let value = value.get(key).unwrap_or(value);
        value.as_str().unwrap_or_default().to_owned()
    };
    let words = targets.iter().map(|target| {
        let name = text(target, "name");
        let name = name.rsplit(':').next().unwrap_or_default().to_owned();
        let portals: Vec<_> = list(target, "portals")
            .iter()
            .map(|portal| text(portal, "bind"))
            .collect();
        let luns: Vec<_> = list(target, "luns")
            .iter()
            .map(|lun| text(lun, "id"))
            .collect();
        let auth: Vec<_> = list(target, "auth")
            .iter()
            .map(|user| text(user, ""))
            .collect();
        format!(
            "{name} at {} shows [{}] to [{}]",
            portals.join(" "),
            luns.join(" "),
            auth.join(" ")
        )
    });
    words.collect()
}

const BOTH: &str = "0.0.0.0:3260 [::]:3260";

#[test]
fn what_is_commented_out_is_not_there() {
    let imported = import(Format::Tgt, "tgt-comment.conf");
    assert_eq!(
        shown(&imported),
        [format!("live at {BOTH} shows [live.img] to []")]
    );
    assert_eq!(model(&imported).units().len(), 1);
    assert!(
        imported
            .toml
            .contains("naa = \"60000000000000000e00000000010001\""),
        "{}",
        imported.toml
    );
}

#[test]
fn secrets_are_those_that_tgt_has() {
    let imported = import(Format::Tgt, "tgt-hash.conf");
    let secrets: Vec<_> = imported
        .secrets
        .iter()
        .filter_map(|file| file.secret.as_ref())
        .collect();
    let secrets: Vec<_> = secrets.iter().map(|secret| secret.as_str()).collect();
    assert_eq!(secrets, ["abc#defghijkl", "plain-secret-"]);
}

/// Neither can be said here, so nobody sees the disks; they are written, with what they were known by.
#[test]
fn access_that_has_no_form_here_is_not_given() {
    let imported = import(Format::Tgt, "tgt-acl.conf");
    let empty = |name: &str| format!("{name} at {BOTH} shows [] to []");
    assert_eq!(shown(&imported), [empty("either"), empty("mask")]);
    for known in [
        "id = \"a.img\"",
        "id = \"b.img\"",
        "serial = \"beaf11\"",
        "naa = \"60000000000000000e00000000020001\"",
    ] {
        assert!(imported.toml.contains(known), "{known}\n{}", imported.toml);
    }
    let left_out = |word: &str| {
        let mut notes = imported.notes.iter();
        notes.any(|note| note.severity == Severity::LeftOut && note.message.contains(word))
    };
    assert!(
        left_out("a listed name or a listed address")
            && left_out("nobody to tgt")
            && left_out("no target shows it")
    );
}

#[test]
fn the_acl_of_lio_asks_for_chap() {
    let imported = import(Format::Lio, "lio-acl-auth.json");
    assert_eq!(shown(&imported), ["x at 192.0.2.1:3260 shows [l] to [u]"]);
    assert_eq!(
        imported
            .secrets
            .first()
            .unwrap()
            .secret
            .as_ref()
            .unwrap()
            .as_str(),
        "passwordpass1"
    );
}

#[test]
fn an_image_of_a_cluster_is_a_store() {
    let imported = import(Format::Lio, "rbd.json");
    assert_eq!(
        shown(&imported),
        ["one at 192.0.2.1:3260 shows [img] to []"]
    );
    assert!(
        imported
            .toml
            .contains("store = \"rbd:pool/img?thin=false&conf=/etc/ceph/ceph.conf"),
        "{}",
        imported.toml
    );
    assert!(
        imported
            .toml
            .contains("naa = \"6001405aaaabbbb11114222833344445\""),
        "{}",
        imported.toml
    );
}

#[test]
fn a_target_that_lets_nobody_in_leaves_its_disk_and_the_reason() {
    let imported = import(Format::Ctl, "silent.conf");
    assert!(shown(&imported).is_empty());
    assert!(
        imported.toml.contains("id = \"a.img\""),
        "{}",
        imported.toml
    );
    assert!(
        imported
            .notes
            .iter()
            .any(|note| note.message.contains("its auth-group lets nobody in"))
    );
}

/// TrueNAS SCALE writes `INITIATOR name\#portal` for every initiator.
#[test]
fn initiators_by_portal_are_at_that_portal() {
    let imported = import(Format::Scst, "truenas.conf");
    assert_eq!(
        shown(&imported),
        [format!("t1 at {BOTH} shows [vol1] to []")]
    );
    for known in [
        "6589cfc00000012345678901234567ab",
        "6589cfc00000012345678901234567ac",
    ] {
        assert!(imported.toml.contains(known), "{}", imported.toml);
    }
    // At that address both are there.
    let imported = import_with(Format::Scst, "truenas.conf", &["192.0.2.5:3261"]);
    let at = "at 192.0.2.5:3261 shows";
    assert_eq!(
        shown(&imported),
        [
            format!("t1 {at} [vol1] to []"),
            format!("t2 {at} [vol2] to [joe]")
        ]
    );
    let imported = import_with(Format::Scst, "truenas.conf", &["192.0.2.6:3260"]);
    assert_eq!(
        shown(&imported),
        ["t1 at 192.0.2.6:3260 shows [vol1] to []"]
    );
}

#[test]
fn a_file_without_a_disk_says_why() {
    let text = r#"{"storage_objects": [{"plugin": "pscsi", "name": "tape", "dev": "3:0:1:0"}], "targets": []}"#;
    let source = Source { name: "f", text };
    let error = import::import(Format::Lio, &[source], &Options::default())
        .map(|_| ())
        .unwrap_err();
    let ReadError::Nothing { notes, .. } = &error else {
        panic!("{error}");
    };
    assert!(
        notes.iter().any(|note| note
            .message
            .contains("no SCSI device has the address 3:0:1:0")),
        "{notes:?}"
    );
    assert!(error.to_string().contains("the list has the reasons"));
    let source = Source {
        name: "f",
        text: "{}",
    };
    let error = import::import(Format::Lio, &[source], &Options::default())
        .map(|_| ())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("check that it is the right file")
    );
}

#[test]
fn ucl_is_named() {
    for text in [
        "target {\n a { }\n}\n",
        "debug = 1\nportal-group {\n}\n",
        "{\"portal-group\": {}}",
    ] {
        let source = Source {
            name: "ctl.conf",
            text,
        };
        let format = Format::detect(&[source]).unwrap();
        let error = import::import(format, &[source], &Options::default())
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(error, ReadError::Ucl { .. }), "{text:?}: {error}");
    }
}

#[test]
fn a_drive_stays_a_drive_with_what_is_in_it() {
    for (format, file, expected) in [
        (
            Format::Tgt,
            "drives.targets.conf",
            &["cdrom:/srv/a.iso"][..],
        ),
        (
            Format::Scst,
            "drives.scst.conf",
            &["cdrom:/srv/b.iso", "cdrom:"],
        ),
    ] {
        let imported = import(format, file);
        let model = model(&imported);
        let stores = model.units().iter().map(|unit| unit.store.to_string());
        assert_eq!(stores.collect::<Vec<_>>(), expected, "{}", imported.toml);
        assert_eq!(shown(&imported).len(), 1);
    }
}

/// Each unit that a target shows, with its store, and `!` where it is for reading only.
fn passed(imported: &Imported) -> Vec<String> {
    let model = model(imported);
    let entries = model
        .targets()
        .iter()
        .flat_map(|target| target.luns.entries());
    let shown = entries.map(|entry| {
        let store = &model.units()[entry.unit.position()].store;
        let mark = if entry.read_only { "!" } else { "" };
        format!("{} {store}{mark}", entry.lun.value())
    });
    shown.collect()
}

#[track_caller]
fn assert_left_out(imported: &Imported, words: &[&str]) {
    for word in words {
        let mut notes = imported.notes.iter();
        let is_noted =
            notes.any(|note| note.severity == Severity::LeftOut && note.message.contains(word));
        assert!(is_noted, "{word}\n{:#?}", imported.notes);
    }
}

/// INQUIRY went to the device, so nothing that the file has of an identity is in the result.
#[test]
fn what_tgt_passes_on_is_passed_on() {
    let imported = import(Format::Tgt, "passed.targets.conf");
    assert_eq!(
        passed(&imported),
        [
            "4 scsi:/dev/disk/by-id/usb-HL-DT-ST_BD-RE_BU40N-0:0!",
            "5 scsi:/dev/bsg/3:0:0:0",
            "1 scsi:/dev/sg5",
            "1 scsi:/dev/sg10",
            "2 scsi:/dev/sg2",
        ]
    );
    for key in ["serial", "naa", "vendor", "product"] {
        assert!(
            !imported.toml.contains(&format!("\n{key} =")),
            "{}",
            imported.toml
        );
    }
    assert_left_out(
        &imported,
        &[
            "device type \"pt\"",
            "no serial number",
            "VPD page 83h had the designators of the device",
        ],
    );
    let mut notes = imported.notes.iter();
    let numbered = notes
        .find(|note| note.message.contains("after a restart"))
        .unwrap();
    assert_eq!(
        numbered.subject,
        "disk \"3-0-0-0\", \"sg5\", \"sg10\", \"sg2\""
    );
    let imported = import(Format::TgtShow, "passed.show.txt");
    assert_eq!(passed(&imported), ["1 scsi:/dev/sg4"]);
}

#[test]
fn what_scst_passes_on_is_found_by_its_address_and_type() {
    let imported = import(Format::Scst, "passed.scst.conf");
    assert_eq!(
        passed(&imported),
        ["0 scsi:/dev/tape/by-id/scsi-1STK_L700", "1 scsi:/dev/sg4!"]
    );
    assert_left_out(
        &imported,
        &[
            "7:0:2:0 (STK L700) is another one: its type is 1, not 0",
            "7:0:3:0 (STK L700) has no node",
            "handler dev_tape_perf answers reads and writes without moving data",
            "handler dev_raid",
            "LUN 4 7:0:4:0 has no number, or has no disk",
        ],
    );
    let is_noted = |words: &str| imported.notes.iter().any(|note| note.message == words);
    assert!(is_noted(
        "its address 7:0:0:0 is now that of /dev/tape/by-id/scsi-1STK_L700 (STK L700)"
    ));
}

/// The serial number in the file is that of the device.
#[test]
fn what_lio_passes_on_is_found_by_path_or_address() {
    let imported = import(Format::Lio, "passed.json");
    let expected = ["0 scsi:/dev/st0", "1 scsi:/dev/tape/by-id/scsi-1STK_L700"];
    assert_eq!(passed(&imported), expected);
    assert!(
        imported.toml.contains("serial = \"HUE19490KD\""),
        "{}",
        imported.toml
    );
    for key in ["naa", "vendor", "product"] {
        assert!(
            !imported.toml.contains(&format!("\n{key} =")),
            "{}",
            imported.toml
        );
    }
    assert_left_out(&imported, &["no SCSI device has the address 7:0:9:0"]);
}
