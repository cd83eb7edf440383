//! The verbs against a daemon that serves: the commands of `verbs.txt`, one after the other, and what each prints;
//! those of `pair.txt` against two, of which one serves disks of the other; those of `terminal.txt` on a terminal where
//! a person types. `BLESS=1` writes the answers anew; read the difference before it is committed.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

#[path = "verbs/terminal.rs"]
mod terminal;

use std::cell::{LazyCell, RefCell};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

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

/// A daemon that serves a disk of the other one, whose portal is `{near}`. `pair.txt` adds a second disk, so that the
/// order of their sessions is known.
const FAR: &str = r#"[[lun]]
id = "far"
store = "iscsi://{near}/iqn.2026-11.example:san/0"
serial = "F1"
naa = "300000000000000f"

[[target]]
name = "iqn.2026-11.example:far"
portals = ["127.0.0.1:0"]
luns = []

[confine]
roots = ["{dir}"]

[server]
state = "state"
cores = 1

[limits]
pool_per_core_bytes = "16M"
sessions_max = 100

[admin]
socket = "tarn.sock"
listen = ["127.0.0.1:0"]
"#;

/// What begins a line whose value is another one in each run.
const CHANGING: [&str; 3] = ["process  ", "tsih  ", "up  "];

/// Of tgt.
const TGT: &str = "<target iqn.2026-11.example:tgt>
    <backing-store {dir}/b.iso>
        lun 1
    </backing-store>
    <backing-store /srv/tape>
        device-type tape
        lun 2
    </backing-store>
    incominguser alice correct-horse-1
    initiator-address 192.0.2.0/24
</target>
";

struct Daemon {
    scratch: Scratch,
    child: RefCell<Option<Child>>,
    /// The portal of the other daemon.
    near: String,
}

impl Daemon {
    fn new(config: &str, near: String) -> Self {
        let scratch = Scratch::new();
        let directory = scratch.path().display().to_string();
        for (name, text) in [
            (
                "tarn.toml",
                config.replace("{dir}", &directory).replace("{near}", &near),
            ),
            (
                "other.toml",
                config
                    .replace("{dir}", &directory)
                    .replace(
                        "[[group]]",
                        "[[user]]\nname = \"bob\"\nsecret_file = \"secret\"\n\n[[group]]",
                    )
                    .replace(
                        "\nluns = [{ lun = 0",
                        "\nalias = \"shelf\"\nluns = [{ lun = 7",
                    ),
            ),
            ("tgt.conf", TGT.replace("{dir}", &directory)),
            ("secret", "correct horse battery\n".to_owned()),
            ("other.secret", "another horse battery\n".to_owned()),
            ("a.iso", "a".repeat(100 * 2048)),
            ("b.iso", "b".repeat(200 * 2048)),
        ] {
            let path = scratch.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let daemon = Self {
            scratch,
            child: RefCell::default(),
            near,
        };
        daemon.start();
        daemon
    }

    fn start(&self) {
        let mut child = tarn(&self.scratch)
            .args(["serve", "--config", "tarn.toml", "--log", "error"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The addresses of a target are printed when everything answers.
        lines.next().unwrap().unwrap();
        self.child.replace(Some(child));
    }

    fn stop(&self) {
        if let Some(mut child) = self.child.take() {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            let status = child.wait().unwrap();
            assert!(std::thread::panicking() || status.success(), "{status}");
        }
    }

    /// What is no command of Tarn's, behind an exclamation mark: to start and to stop it, to copy and to remove files.
    fn aside(&self, line: &str) {
        let path = |name| self.scratch.path().join(name);
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["start"] => self.start(),
            ["stop"] => self.stop(),
            ["copy", from, to] => assert!(fs::copy(path(from), path(to)).is_ok(), "{line}"),
            ["remove", name] => fs::remove_file(path(name)).unwrap(),
            _ => panic!("{line}"),
        }
    }

    /// What a command line prints, and its exit code where that is not 0. What stands behind `<<<` is its input. A dot
    /// in the middle of the line stands for a blank within a word.
    fn run(&self, line: &str) -> String {
        if let Some(line) = line.strip_prefix('!') {
            self.aside(line);
            return String::new();
        }
        let (mut command, input) = self.command(line);
        let mut child = command
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
        self.ended(text, output.status)
    }

    /// The same on a terminal. Behind `<<<` are pairs, with `|` between all: what must be seen first, and what is typed
    /// then.
    fn typed(&self, line: &str) -> String {
        let (command, input) = self.command(line);
        let key = |text: &str| {
            let text = text.replace("\\n", "\n").replace("\\t", "\t");
            text.replace("^C", "\x03").replace("^D", "\x04")
        };
        let texts: Vec<_> = input.split('|').map(key).collect();
        let pairs = texts.chunks_exact(2);
        let keys: Vec<_> = pairs
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect();
        let (text, status) = terminal::typed(command, &keys);
        self.ended(text, status)
    }

    /// The command of a line, and what stands behind `<<<`.
    fn command(&self, line: &str) -> (Command, String) {
        let line = line
            .replace("{dir}", &self.scratch.path().display().to_string())
            .replace("{near}", &self.near);
        let (line, input) = line.split_once(" <<< ").unwrap_or((&line, ""));
        let mut command = tarn(&self.scratch);
        command.args(line.split(' ').map(|word| word.replace('·', " ")));
        (command, input.to_owned())
    }

    fn ended(&self, mut text: String, status: ExitStatus) -> String {
        let directory = self.scratch.path().display().to_string();
        match status.code() {
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
        self.stop();
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
        if let Some(name) = CHANGING.iter().find(|name| line.starts_with(**name)) {
            lasting += &format!("{name}CHANGES\n");
            continue;
        }
        let rated = line.strip_suffix(" in the last second\n");
        if let Some((who, _)) = rated.and_then(|line| line.rsplit_once(": ")) {
            lasting += &format!("{who}: I/Os in the last second\n");
            continue;
        }
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
    if let Some(word) = word.strip_suffix(':') {
        return lasting_word(word) + ":";
    }
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
    // The first is an ISID.
    let is_drawn = (drawn.len() == 12 || drawn.len() >= 15)
        && drawn.bytes().all(|byte| byte.is_ascii_hexdigit());
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
    let daemon = Daemon::new(CONFIG, String::new());
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
    let status = daemon.run("status");
    let fields: Vec<_> = status
        .lines()
        .map_while(|line| line.split_once("  "))
        .collect();
    let value = |name| {
        fields
            .iter()
            .find(|(one, _)| *one == name)
            .unwrap()
            .1
            .trim()
    };
    for (name, expected) in [
        ("revision", "1"),
        ("cores", "1"),
        ("luns", "2"),
        ("targets", "1"),
        ("sessions", "0"),
        ("pending", "nothing"),
    ] {
        assert_eq!(value(name), expected, "{name}: {status}");
    }
    let remedies = status.lines().filter(|line| line.starts_with("    "));
    match remedies.count() {
        0 => assert_eq!(value("findings"), "none"),
        count => assert_eq!(value("findings"), format!("{count}, the worst first:")),
    }
    // A disc with a rest behind its last block.
    let disc = daemon.scratch.path().join("disc.iso");
    fs::write(disc, [0; 2048 * 100 + 1]).unwrap();
    daemon.run("lun add cd cdrom:disc.iso");
    check(true);
}

#[test]
fn verbs_print_what_is_written() {
    let daemon = Daemon::new(CONFIG, String::new());
    compare("verbs.txt", |command| daemon.run(command));
}

#[test]
fn a_person_at_a_terminal_sees_what_is_written() {
    let daemon = Daemon::new(CONFIG, String::new());
    compare("terminal.txt", |command| daemon.typed(command));
}

#[test]
fn verbs_of_two_daemons_print_what_is_written() {
    let near = Daemon::new(CONFIG, String::new());
    let portals = near.run("portal list");
    let portal = portals.split_whitespace().nth(7).unwrap().to_owned();
    // It is started when the other one has all that it wants.
    let far = LazyCell::new(|| Daemon::new(FAR, portal));
    compare("pair.txt", |command| match command.strip_prefix("far ") {
        Some(command) => far.run(command),
        None => near.run(command),
    });
}

fn compare(name: &str, mut answer: impl FnMut(&str) -> String) {
    let path = format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    let written = fs::read_to_string(&path).unwrap();
    let mut text = String::new();
    for line in written.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let _infallible = write!(text, "$ {command}\n{}", lasting(&answer(command)));
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
        assert_eq!(found, expected, "line {} of {name}, of {command}", line + 1);
    }
    assert_eq!(text.len(), written.len());
}
