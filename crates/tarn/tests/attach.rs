//! `tarn attach` and `tarn discover` with a server of HyperSCSI in memory.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

#[path = "../../remote/src/scsi/testing/answer.rs"]
mod answer;
#[path = "../../remote/src/scsi/testing/medium.rs"]
mod medium;
#[path = "../../remote/src/scsi/testing/tape.rs"]
mod tape;
#[path = "../../remote/src/hyperscsi/tests/target.rs"]
mod target;

/// Where the target finds its disk.
mod scsi {
    pub(crate) mod testing {
        pub(crate) use crate::medium::{BLOCK, Medium};
    }
}

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use durable::scratch::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use target::{GROUP, PASSWORD, Target};

const SIZE: usize = 16 << 20;

fn tarn(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["TARN_PASSWORD", "TARN_SOCKET", "TARN_LOG"] {
        command.env_remove(name);
    }
    command
}

/// An attached disk.
struct Attached {
    child: Child,
    url: String,
}

impl Attached {
    /// Attaches, and waits until it is served.
    fn new(directory: &Path, arguments: &[&str]) -> Self {
        let socket = directory.join("s");
        let form = format!("nbd:{}", socket.display());
        let mut child = tarn(&[&["attach", "--as", &form], arguments].concat())
            .env("TARN_PASSWORD", String::from_utf8_lossy(PASSWORD).as_ref())
            .env("XDG_RUNTIME_DIR", directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = lines.map_while(Result::ok);
        assert!(
            seen.any(|line| line.contains("export disk")),
            "it is not served"
        );
        // It may write on: nobody reads, and nothing fails.
        let url = format!("nbd+unix:///?socket={}", socket.display());
        Self { child, url }
    }

    fn verify(&self, seconds: &str) -> Child {
        let load = ["--rw", "mixed", "--bs", "4k,64k", "--iodepth", "8"];
        let times = ["--runtime", seconds, "--warmup", "0", "--repeat", "1"];
        let bench = ["bench", "--verify", "--overwrite"];
        tarn(&[&bench[..], &load, &times, &[&self.url]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Ends it as a service manager does; it ends with this code.
    fn end(mut self, code: i32) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
    }
}

fn good(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

fn url_of(target: &Target) -> String {
    format!("hyperscsi://{GROUP}/disk?udp=127.0.0.1:{}", target.port())
}

fn left_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn an_attached_disk_keeps_what_is_written_and_leaves_nothing_behind() {
    let target = Target::new(SIZE);
    let scratch = Scratch::new();
    let attached = Attached::new(scratch.path(), &[&url_of(&target)]);
    good(&attached.verify("0.3").wait_with_output().unwrap());
    let flushes = target.medium().counts.get(&0x91).copied();
    attached.end(0);
    assert!(target.medium().bytes.iter().any(|byte| *byte != 0));
    assert!(
        target.medium().counts.get(&0x91).copied() > flushes,
        "the end flushes"
    );
    let left = left_in(scratch.path());
    let left: Vec<_> = left.iter().filter(|path| path.is_dir()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn verified_data_survives_a_restart_of_the_server() {
    let mut target = Target::new(SIZE);
    let scratch = Scratch::new();
    let attached = Attached::new(scratch.path(), &[&url_of(&target), "--retry", "60"]);
    let bench = attached.verify("2");
    let writes = |target: &Target| target.medium().counts.get(&0x8a).copied().unwrap_or(0);
    let before = writes(&target);
    while writes(&target) < before + 64 {
        std::thread::yield_now();
    }
    target.kill();
    target.start();
    good(&bench.wait_with_output().unwrap());
    // The last flush says that the server may have lost what it had answered.
    attached.end(1);
}

#[test]
fn several_devices_are_one_disk() {
    let targets = [Target::new(SIZE), Target::new(SIZE)];
    let scratch = Scratch::new();
    let [first, second] = [url_of(&targets[0]), url_of(&targets[1])];
    let attached = Attached::new(scratch.path(), &["--stripe", "64k", &first, &second]);
    good(&attached.verify("0.3").wait_with_output().unwrap());
    attached.end(0);
    for target in &targets {
        assert!(target.medium().counts.contains_key(&0x8a));
    }
}

#[test]
fn servers_and_devices_are_found() {
    let target = Target::new(SIZE);
    let scratch = Scratch::new();
    let file = scratch.path().join("password");
    std::fs::write(&file, [PASSWORD, b"\n"].concat()).unwrap();
    let udp = format!("127.0.0.1:{}", target.port());
    let file = file.display().to_string();
    let arguments = ["discover", "hyperscsi", "--udp", &udp, "--group", GROUP];
    let found = tarn(&[&arguments[..], &["--password-file", &file]].concat())
        .output()
        .unwrap();
    good(&found);
    let said = String::from_utf8(found.stdout).unwrap();
    assert_eq!(
        said,
        format!("s1\t{udp}\t{GROUP}\tpassword\n  1\tdisk\t16M\thash\n")
    );
    let json = tarn(&[&arguments[..], &["--json"]].concat())
        .output()
        .unwrap();
    good(&json);
    let json = String::from_utf8(json.stdout).unwrap();
    assert!(
        json.contains("\"needs_password\": true") && !json.contains("devices"),
        "{json}"
    );
}

#[test]
fn what_is_wrong_is_one_line_with_a_remedy() {
    let target = Target::new(SIZE);
    let scratch = Scratch::new();
    let url = url_of(&target);
    let form = format!("nbd:{}", scratch.path().join("s").display());
    for (arguments, password, words) in [
        (
            &["--as", "blocks", &url][..],
            "",
            "write nbd:SOCKET, nbd:ADDR[:PORT] or block",
        ),
        (&["--as", &form, &url], "short", "a password has at least 8"),
        (
            &["--as", &form, &url],
            "wrong password",
            "check the password",
        ),
        (
            &["--as", &form, &url, "--level", "all"],
            "",
            "use none, crc, hash or encrypt",
        ),
    ] {
        let output = tarn(&[&["attach"], arguments].concat())
            .env("TARN_PASSWORD", password)
            .env("XDG_RUNTIME_DIR", scratch.path())
            .output()
            .unwrap();
        refused(&output, words);
    }
}

fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(words), "{said}");
}

#[test]
fn without_ublk_a_block_device_is_refused_with_a_remedy() {
    // With it, the stage `kernel` shows the device.
    if !Path::new("/dev/ublk-control").exists() {
        let url = "hyperscsi://g/d?udp=127.0.0.1:9";
        let output = tarn(&["attach", "--as", "block", url]).output().unwrap();
        refused(&output, "run modprobe ublk_drv");
    }
}
