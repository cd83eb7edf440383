//! The verbs against a daemon that serves: the commands of `verbs.txt`, one after the other, and what each prints.
//! `BLESS=1` writes the answers anew; read the difference before it is committed.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use durable::scratch::Scratch;
use rustix::process::{Pid, Signal, kill_process};

const CONFIG: &str = r#"# shelf one
[[lun]]
id = "disk"     # the first
store = "mem:16M?removable"
serial = "S1"
naa = "3000000000000001"

[[lun]]
id = "file"
store = "file:{dir}/file.img?size=8M"
serial = "S2"
naa = "3000000000000002"

[[group]]
id = "blades"
initiators = ["iqn.2026-11.example:blade*"]

[[target]]
name = "iqn.2026-11.example:san"
portals = ["127.0.0.1:0"]
luns = [{ lun = 0, id = "disk" }, { lun = 1, id = "file", groups = ["blades"] }]

[server]
state = "state"
cores = 1

[limits]
pool_per_core_bytes = "16M"
sessions_max = 100

[admin]
socket = "tarn.sock"
"#;

struct Daemon {
    scratch: Scratch,
    child: Child,
}

impl Daemon {
    fn new() -> Self {
        let scratch = Scratch::new();
        let place = |text: &str| text.replace("{dir}", &scratch.path().display().to_string());
        for (name, text) in [
            ("tarn.toml", place(CONFIG)),
            ("secret", "correct horse battery\n".to_owned()),
            ("other.secret", "another horse battery\n".to_owned()),
            ("a.iso", "a".repeat(100 * 2048)),
            ("b.iso", "b".repeat(200 * 2048)),
        ] {
            let path = scratch.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut child = tarn(&scratch)
            .args(["serve", "--config", "tarn.toml", "--log", "error"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // It is printed when everything answers.
        lines.next().unwrap().unwrap();
        Self { scratch, child }
    }

    /// What a command line prints, and its exit code where that is not 0. What stands behind `<<<` is its input.
    fn run(&self, line: &str) -> String {
        let directory = self.scratch.path().display().to_string();
        let line = line.replace("{dir}", &directory);
        let (line, input) = line.split_once(" <<< ").unwrap_or((&line, ""));
        let mut child = tarn(&self.scratch)
            .args(line.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It need not read.
        let _unread = stdin.write_all(input.replace("\\n", "\n").as_bytes());
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let mut text = String::from_utf8(output.stdout).unwrap();
        text += &String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => {}
            code => {
                let _infallible = writeln!(text, "[exit {}]", code.unwrap());
            }
        }
        // The directory of secrets is named after the file.
        let named = directory[1..].replace('-', "--").replace('/', "-");
        squeezed(&text.replace(&directory, "{dir}").replace(&named, "{named}"))
    }
}

/// The text with two blanks between columns, however wide these are: a directory has any length.
fn squeezed(text: &str) -> String {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let mut rest = line[indent..].to_owned();
        while rest.contains("   ") {
            rest = rest.replace("   ", "  ");
        }
        format!("{}{rest}", &line[..indent])
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(std::thread::panicking() || status.success(), "{status}");
    }
}

/// The program in a directory, with all that it takes from its surroundings there, except which planted bug is switched
/// on and where counters of coverage go.
fn tarn(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
    command.current_dir(scratch.path()).env_clear();
    command
        .envs(
            ["TARN_MUTANT", "LLVM_PROFILE_FILE"]
                .into_iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .env("HOME", scratch.path())
        .env("TARN_SOCKET", scratch.path().join("tarn.sock"))
        .env("COLUMNS", "120");
    command
}

/// A text with words in place of what differs from run to run: ports, times, what was drawn by chance.
fn lasting(text: &str) -> String {
    let mut lasting = String::new();
    for line in text.split_inclusive('\n') {
        let mut word = String::new();
        for letter in line.chars() {
            if letter.is_ascii_alphanumeric() || ":.-_+".contains(letter) {
                word.push(letter);
                continue;
            }
            lasting += &lasting_word(&word);
            lasting.push(letter);
            word.clear();
        }
        lasting += &lasting_word(&word);
    }
    lasting
}

fn lasting_word(word: &str) -> String {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if let Some((address, port)) = word.rsplit_once(':').filter(|(_, port)| port.len() == 5)
        && is_digits(port)
    {
        return format!("{address}:PORT");
    }
    let is_date = word.len() == 10 && word.starts_with("20") && digits == 8;
    let is_time = word.len() == 9 && word.ends_with('Z') && digits == 6;
    let drawn = word.strip_suffix(".secret").unwrap_or(word);
    let is_drawn = drawn.len() >= 15 && drawn.bytes().all(|byte| byte.is_ascii_hexdigit());
    match word {
        _ if is_date => "DATE".to_owned(),
        _ if is_time => "TIME".to_owned(),
        _ if is_drawn && !word.starts_with("300000000000") => word.replace(drawn, "DRAWN"),
        _ if word.len() >= 40 && digits > 2 && !word.contains([':', '.']) => "DRAWN".to_owned(),
        _ => word.to_owned(),
    }
}

/// The machine may have findings of its own, so the text is compared with what the same daemon gives as JSON.
#[test]
fn doctor_says_all_is_well_only_where_nothing_is_found() {
    let daemon = Daemon::new();
    let check = |is_bad_for_certain: bool| {
        let (json, text) = (daemon.run("doctor --json"), daemon.run("doctor"));
        let found = json.matches("\"severity\"").count();
        assert_eq!(text.starts_with("nothing found: all is well"), found == 0);
        let remedies = text.lines().filter(|line| line.starts_with("    "));
        assert_eq!(remedies.count(), found, "{text}");
        let is_bad = ["warning", "error"].map(|word| format!("\"severity\": \"{word}\""));
        let is_bad = is_bad.iter().any(|word| json.contains(word));
        assert!(is_bad || !is_bad_for_certain, "{json}");
        assert!(!text.contains("[exit"), "{text}");
        let asked = daemon.run("doctor --exit-code");
        assert_eq!(asked.ends_with("[exit 10]\n"), is_bad, "{asked}");
    };
    check(false);
    // A disc with a rest behind its last block.
    let disc = daemon.scratch.path().join("disc.iso");
    fs::write(disc, [0; 2048 * 100 + 1]).unwrap();
    daemon.run("lun add cd cdrom:disc.iso");
    check(true);
}

#[test]
fn verbs_print_what_is_written() {
    let path = format!("{}/tests/verbs.txt", env!("CARGO_MANIFEST_DIR"));
    let written = fs::read_to_string(&path).unwrap();
    let daemon = Daemon::new();
    let mut text = String::new();
    for line in written.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let _infallible = write!(text, "$ {command}\n{}", lasting(&daemon.run(command)));
        } else if line.starts_with("## ") {
            let _infallible = writeln!(text, "{line}");
        }
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    let mut command = "";
    for (line, (found, expected)) in text.lines().zip(written.lines()).enumerate() {
        command = found.strip_prefix("$ ").unwrap_or(command);
        assert_eq!(
            found,
            expected,
            "line {} of verbs.txt, of {command}",
            line + 1
        );
    }
    assert_eq!(text.len(), written.len());
}
