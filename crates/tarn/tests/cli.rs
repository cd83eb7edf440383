//! The program as a person or a service manager sees it: exit codes, and errors of one line.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of its own for one test, gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cli-{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a private file.
    fn put(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Runs the program in the directory, with state and home in it; a planted bug that is switched on stays, as does
    /// the place of counters of coverage.
    fn tarn(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tarn"))
            .args(arguments)
            .current_dir(&self.0)
            .env_clear()
            .envs(
                ["TARN_MUTANT", "LLVM_PROFILE_FILE"]
                    .into_iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env("HOME", &self.0)
            .output()
            .unwrap()
    }

    /// Runs the program, which must refuse with exit code 2 and one line; gives the line.
    fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.tarn(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
        assert_eq!(said.matches('\n').count(), 1, "{arguments:?}: {said}");
        let line = said.strip_suffix('\n').unwrap();
        line.strip_prefix("tarn: ").unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let scratch = Scratch::new();
    for (arguments, expected) in [
        (&["--version"][..], "tarn 0."),
        (&["--help"], "Serve disks until stopped by a signal"),
        (&["serve", "--help"], "tarn serve mem:256M"),
    ] {
        let output = scratch.tarn(arguments);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(said.contains(expected), "{said}");
        assert_eq!(output.stderr, b"");
    }
}

#[test]
fn a_wrong_command_line_is_one_line() {
    let scratch = Scratch::new();
    for (arguments, expected) in [
        (
            &["serve", "--sise", "1M"][..],
            "unexpected argument '--sise' found; a similar argument exists: '--size'; see tarn serve --help",
        ),
        (
            &["serve", "--lissen", "::1", "mem:1M"],
            "unexpected argument '--lissen' found; a similar argument exists: '--listen'; see tarn serve --help",
        ),
        (
            &["serve", "--cores", "0", "mem:1M"],
            "invalid value '0' for '--cores <N>': 0 is not in 1..=1024; see tarn serve --help",
        ),
        (
            &["serve", "--log", "loud", "mem:1M"],
            "invalid value 'loud' for '--log <LEVEL>': \"loud\" is not known; use off, error, warn, info, debug or \
             trace; see tarn serve --help",
        ),
        (
            &["serve", "--config", "f", "mem:1M"],
            "the argument '--config <FILE>' cannot be used with '[STORE]...'; see tarn serve --help",
        ),
        (
            &["mirror"],
            "unrecognized subcommand 'mirror'; see tarn --help",
        ),
    ] {
        assert_eq!(scratch.refusal(arguments), expected);
    }
}

#[test]
fn a_wrong_store_or_name_is_named_with_its_remedy() {
    let scratch = Scratch::new();
    for (arguments, expected) in [
        (
            &[][..],
            "STORE: nothing to serve; name a STORE such as disk.img?size=1G or mem:256M, or give --config FILE",
        ),
        (
            &["mem:10X"],
            "STORE \"mem:10X\": size \"10X\": unknown suffix \"X\"; use k, M, G or T",
        ),
        (
            &["mem:1M", "disk.img"],
            "STORE \"disk.img\": disk.img does not exist; create it, or add the option size= to create it",
        ),
        (
            &["mem:1000"],
            "STORE \"mem:1000\": size 1000 is not a multiple of blocksize 512; the next that fits is 1024",
        ),
        (
            &["--listen", "localhost", "mem:1M"],
            "--listen localhost: portal \"localhost\" is not an address; write 192.0.2.1:3260 or [2001:db8::1]:3260; \
             0.0.0.0:3260 stands for all IPv4 addresses, [::]:3260 for all IPv6 addresses",
        ),
        (
            &["--target", "disk", "mem:1M"],
            "--target: iSCSI name \"disk\" does not begin with iqn., eui. or naa.; write it as \
             iqn.2026-11.com.example:disk, eui. with 16 or naa. with 16 or 32 hex digits",
        ),
    ] {
        let arguments = [&["serve", "--state", "state"], arguments].concat();
        assert_eq!(scratch.refusal(&arguments), expected);
    }
    assert_eq!(
        fs::read_dir(&scratch.0).unwrap().count(),
        0,
        "nothing starts half"
    );
}

#[test]
fn a_wrong_file_is_named_with_its_line() {
    let scratch = Scratch::new();
    let unit = "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n";
    let target =
        "[[target]]\nname = \"iqn.2026-11.example.tarn:t\"\nluns = [{ lun = 0, id = \"a\" }]\n";
    for (text, expected) in [
        (
            format!("{unit}{target}[web]\n"),
            "t.toml:7: unknown key \"web\"; known here: lun, store, target, user, group, nbd, hyperscsi, quota, \
             notify, server, limits, admin, confine",
        ),
        (
            format!("{unit}sise = 1\n{target}"),
            "t.toml:4: lun[0]: unknown key \"sise\"; \
             known here: id, store, serial, naa, vendor, product, revision, owner, log, sync_bias, vendor_commands, \
             snapshots",
        ),
        (
            target.to_owned(),
            "t.toml:3: target[0].luns[0].id: lun \"a\" does not exist; add a [[lun]] of that name",
        ),
        (
            format!("{unit}{target}[[user]]\nname = \"u\"\nsecret_file = \"s\"\n"),
            "t.toml:9: user[0].secret_file: cannot read secret file s, make it with 12 to 128 bytes and chmod 600: \
             No such file or directory (os error 2)",
        ),
    ] {
        scratch.put("t.toml", &text);
        assert_eq!(scratch.refusal(&["check", "t.toml"]), expected);
        let serve = ["serve", "--state", "state", "--config", "t.toml"];
        assert_eq!(scratch.refusal(&serve), expected);
    }
    // A daemon serves the others meanwhile.
    scratch.put(
        "t.toml",
        &format!("{unit}{target}[[lun]]\nid = \"b\"\nstore = \"gone.img\"\n"),
    );
    assert_eq!(
        scratch.refusal(&["check", "t.toml"]),
        "t.toml:9: lun[1].store: gone.img does not exist; create it, or add the option size= to create it"
    );
    assert_eq!(
        scratch.refusal(&["check", "gone.toml"]),
        "cannot read configuration file gone.toml, name one that exists and is readable: No such file or directory \
         (os error 2)"
    );
}

#[test]
fn a_good_file_is_told_to_be_good() {
    let scratch = Scratch::new();
    scratch.put(
        "t.toml",
        "[[user]]\nname = \"u\"\nsecret_file = \"s\"\n[[target]]\n\
        name = \"iqn.2026-11.example.tarn:t\"\nauth = [\"u\"]\n",
    );
    scratch.put("s", "twelve bytes\n");
    let output = scratch.tarn(&["check", "t.toml"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "warning: t.toml:5: target[0].name: target iqn.2026-11.example.tarn:t has no luns; initiators will see an \
         empty target\n\
         t.toml: good: 1 target, 0 luns, 1 user, 0 groups\n"
    );
}

#[test]
fn a_secret_that_others_can_read_keeps_the_daemon_from_starting() {
    let scratch = Scratch::new();
    scratch.put(
        "t.toml",
        "[[user]]\nname = \"u\"\nsecret_file = \"s\"\n[[target]]\n\
        name = \"iqn.2026-11.example.tarn:t\"\n",
    );
    scratch.put("s", "twelve bytes\n");
    fs::set_permissions(scratch.0.join("s"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        scratch.refusal(&["serve", "--state", "state", "--config", "t.toml"]),
        "t.toml:3: user[0].secret_file: secret file s has mode 0644, which gives others access; run chmod 600 s"
    );
}

#[test]
fn a_file_name_cannot_break_the_line() {
    let scratch = Scratch::new();
    let line = scratch.refusal(&["serve", "--state", "state", "a\nb"]);
    assert!(line.contains("a\\nb does not exist"), "{line}");
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let scratch = Scratch::new();
    scratch.put("file", "");
    assert_eq!(
        scratch.refusal(&["serve", "--state", "file/state", "mem:1M"]),
        "cannot use state directory file/state, make it writable or give --state DIR: Not a directory (os error 20)"
    );
}
