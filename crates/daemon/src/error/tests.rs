use super::*;

#[test]
fn causes_follow_in_the_same_line() {
    let error = StartError::ConfigUnreadable {
        path: "a\nb\u{1b}.toml".into(),
        source: io::Error::other("broken"),
    };
    assert_eq!(
        one_line(&error.into()),
        "tarn: cannot read configuration file a\\nb\\u{1b}.toml, name one that exists and is readable: broken"
    );
}

#[test]
fn a_cause_that_was_said_is_not_said_again() {
    let socket = || admin::ListenError::Unix {
        path: "/run/x.sock".into(),
        source: io::Error::other("broken"),
    };
    let once = "/run/x.sock: cannot be made: broken; check its directory, or name another socket";
    assert_eq!(chain(&StartError::AdminSocket(socket())), once);
    let whole = anyhow::Error::from(StartError::AdminSocket(socket())).context("no start");
    assert_eq!(one_line(&whole), format!("tarn: no start: {once}"));
}
