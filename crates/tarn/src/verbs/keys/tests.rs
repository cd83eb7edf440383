//! Flags in, keys out.

use super::*;

fn parsed<T: Flagged, const IS_CHANGE: bool>(words: &[&str]) -> Result<Given<T, IS_CHANGE>, Error> {
    let command = Given::<T, IS_CHANGE>::augment_args(Command::new("tarn"));
    let words = std::iter::once("tarn").chain(words.iter().copied());
    Given::from_arg_matches(&command.try_get_matches_from(words)?)
}

#[test]
fn flags_are_the_keys_of_a_new_thing() {
    let words = [
        "--portals",
        "192.0.2.1,[::1]:1",
        "--auth",
        "a,b",
        "--cold-reset",
    ];
    let target = parsed::<spec::Target, false>(&words).unwrap().made();
    assert_eq!(marks(&target), "cold_reset");
    assert_eq!(target.auth, ["a", "b"]);
    let binds = target
        .portals
        .unwrap()
        .into_iter()
        .map(|portal| portal.bind);
    assert_eq!(binds.collect::<Vec<_>>(), ["192.0.2.1", "[::1]:1"]);
    let nothing = parsed::<spec::Target, false>(&[]).unwrap();
    assert!(marks(&nothing.made()).is_empty() && !nothing.has("portals"));
    let words = ["--snapshots", "hourly=24,weekly=4,at=02:30"];
    let schedule = parsed::<spec::Lun, false>(&words)
        .unwrap()
        .made()
        .snapshots
        .unwrap();
    assert_eq!(
        (schedule.hourly, schedule.daily, schedule.weekly),
        (Some(24), None, Some(4))
    );
    assert_eq!(schedule.at.as_deref(), Some("02:30"));
}

#[test]
fn flags_of_a_change_are_what_is_set_or_taken_out() {
    let words = ["--alias", "", "--cold-reset", "false", "--auth", ""];
    let keys = parsed::<spec::Target, true>(&words).unwrap().of(["iqn.x"]);
    let expected = Patch::<spec::Target>::of(["iqn.x"])
        .with("alias", "")
        .with("cold_reset", false)
        .with("auth", Vec::<String>::new());
    assert_eq!(keys, expected);
    assert!(parsed::<spec::Target, true>(&[]).unwrap().is_empty());
    let keys = parsed::<spec::Quota, true>(&["--soft", "0"]).unwrap();
    assert_eq!(keys.of(["owner:a"]).get("soft"), Some(&Value::from(0)));
    assert!(parsed::<spec::Nbd, true>(&["--client-ca", "/ca.pem"]).is_ok());
}

#[test]
fn words_that_are_no_keys_are_named() {
    for text in ["hourly", "hourly=x", "monthly=1", "daily=-1"] {
        let error = parsed::<spec::Lun, false>(&["--snapshots", text]).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    for words in [["--soft", "100"], ["--soft", "0"]] {
        assert!(parsed::<spec::Quota, false>(&words).is_err());
    }
}

#[test]
fn help_names_pages_and_has_no_marks() {
    let text = "A [[quota]], see [Log devices](../guide/log-devices.md), `a` [b].";
    assert_eq!(
        plain(text),
        "A [[quota]], see docs/guide/log-devices.md, a [b]."
    );
}
