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

/// Every flag and argument of every command whose value is a number, by its real parser.
#[test]
fn no_wrong_number_is_answered_with_the_words_of_a_library() {
    use clap::error::ErrorKind;

    fn numbers(command: &clap::Command, path: &[String], found: &mut Vec<Vec<String>>) {
        for argument in command.get_arguments() {
            let value = |flag: String| [path, &[flag]].concat();
            match argument.get_long() {
                Some(long) if argument.get_action().takes_values() => {
                    found.extend(
                        ["x", "0x1", "", "99999999999999999999"]
                            .map(|number| value(format!("--{long}={number}"))),
                    );
                }
                Some(_) | None => {}
            }
        }
        for one in command.get_subcommands() {
            let path = [path, &[one.get_name().to_owned()]].concat();
            numbers(one, &path, found);
        }
    }
    let mut command = crate::cli::command();
    command.build();
    let mut lines = Vec::new();
    numbers(&command, &["tarn".to_owned()], &mut lines);
    let mut refused = 0;
    for line in lines {
        let Err(error) = crate::cli::parse(&line) else {
            continue;
        };
        if error.kind() == ErrorKind::ValueValidation {
            let text = plain_numbers(&error, &error.render().to_string());
            for raw in [
                "invalid digit",
                "parse integer",
                "too large to fit",
                "ParseIntError",
            ] {
                assert!(!text.contains(raw), "{line:?}: {text}");
            }
            refused += usize::from(text.contains("a whole number is expected"));
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn usage_errors_are_one_line_too() {
    assert_eq!(
        usage_line("error: invalid\n  value\n\nUsage: tarn\n", "tarn"),
        "tarn: invalid value; see tarn --help"
    );
    let tips = "error: what is --x\n\n  tip: put it last\n  tip: a similar one is --y\n";
    assert_eq!(
        usage_line(tips, "tarn lun add"),
        "tarn: what is --x; a similar one is --y; see tarn lun add --help"
    );
}
