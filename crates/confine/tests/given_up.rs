//! What was given up is gone. A process of its own gives it up, as nothing brings it back: this test's binary,
//! started once more for the test that is ignored otherwise.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::io::ErrorKind::PermissionDenied;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::{env, fs, thread};

use confine::calls::{Connections, Devices};
use confine::files::{Right, Rule};
use confine::{Enforced, calls, files, privileges};

const DIRECTORY: &str = "CONFINE_TEST_DIRECTORY";

/// Starts a test of this file in a process of its own, with a directory for it.
fn in_a_process(test: &str) -> (Output, PathBuf) {
    let name = format!("confine-{test}.{}", std::process::id());
    let directory = env::temp_dir().join(name);
    fs::create_dir_all(directory.join("in")).unwrap();
    fs::write(directory.join("out"), "outside").unwrap();
    fs::write(directory.join("in/there"), "inside").unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(DIRECTORY, &directory)
        .output()
        .unwrap();
    (output, directory)
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[test]
fn only_the_calls_of_the_table_are_left() {
    let (output, directory) = in_a_process("gives_calls_up");
    fs::remove_dir_all(directory).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    if said.contains("no seccomp here") {
        return;
    }
    let names = [
        "execve",
        "socket",
        "setsockopt",
        "unshare",
        "clone",
        "fchmodat",
        "fchmod",
        "openat",
        "prlimit64",
    ];
    for name in names {
        let found = said
            .lines()
            .find(|line| line.ends_with(&format!("({name}) refused")));
        let line = found.unwrap_or_else(|| panic!("{name} is not logged:\n{said}"));
        assert!(line.starts_with("confinement: system call "), "{line}");
    }
}

#[test]
#[ignore = "confines its process; the test above starts it"]
fn gives_calls_up() {
    if calls::restrict(Devices::None).unwrap() == Enforced::Not {
        println!("no seccomp here");
        return;
    }
    let error = Command::new("/bin/true").exec();
    assert_eq!(error.kind(), PermissionDenied, "execve");
    let netlink = rustix::net::AddressFamily::NETLINK;
    let error = rustix::net::socket(netlink, rustix::net::SocketType::RAW, None).unwrap_err();
    assert_eq!(error, rustix::io::Errno::PERM, "socket");
    refuses_modes_and_limits();
    // Options of sockets, but none of those of frames.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_broadcast(true).unwrap();
    let (zero, bytes) = (0_u64, 8);
    // SAFETY: the call is refused. Were it not, it would read bytes that are there.
    let refused = unsafe {
        let value = (&raw const zero).cast();
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            value,
            bytes,
        )
    };
    let error = std::io::Error::last_os_error();
    assert_eq!(
        (refused, error.kind()),
        (-1, PermissionDenied),
        "setsockopt"
    );
    let network = rustix::thread::UnshareFlags::NEWUSER;
    // SAFETY: the call is refused, and nothing of this thread changes.
    let error = unsafe { rustix::thread::unshare_unsafe(network) }.unwrap_err();
    assert_eq!(error, rustix::io::Errno::PERM, "unshare");

    let worker = libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;
    for flags in [
        libc::SIGCHLD,
        worker & !libc::CLONE_FILES,
        worker & !libc::CLONE_VM,
        worker & !libc::SIGCHLD,
        worker | libc::CLONE_FS,
        worker | libc::CLONE_VFORK,
        worker | libc::CLONE_NEWUSER,
    ] {
        assert_eq!(clone(flags), Some(libc::EPERM), "clone {flags:#x}");
    }
    start_a_worker(worker);

    // What is needed is there: threads, files, sockets.
    let directory = PathBuf::from(env::var_os(DIRECTORY).unwrap());
    let work = move || {
        fs::write(directory.join("in/new"), "x").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    };
    thread::spawn(work).join().unwrap();
}

/// What the kernel says to a process like this one, if it does not make it.
fn clone(flags: i32) -> Option<i32> {
    // SAFETY: the call is refused. Were it not, the child would end at once.
    let pid = unsafe { libc::syscall(libc::SYS_clone, i64::from(flags), 0, 0, 0, 0) };
    if pid == 0 {
        // SAFETY: it has no precondition.
        unsafe { libc::_exit(0) };
    }
    (pid < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap())
}

/// Starts what the workers of stores are, and waits for its end.
fn start_a_worker(flags: i32) {
    extern "C" fn end(_: *mut libc::c_void) -> libc::c_int {
        7
    }
    let mut stack = vec![0_u128; 4096];
    let top = stack.as_mut_ptr_range().end.cast();
    // SAFETY: the stack is there until the child has ended, and the child does nothing.
    let pid = unsafe { libc::clone(end, top, flags, std::ptr::null_mut()) };
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: the status is there to be written.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(libc::WEXITSTATUS(status), 7);
}

#[test]
fn what_only_the_start_needs_ends_with_it() {
    let (output, directory) = in_a_process("seals_itself");
    fs::remove_dir_all(directory).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    if said.contains("no seccomp here") {
        return;
    }
    for name in ["io_uring_setup", "socket", "connect", "seccomp"] {
        let is_logged = said
            .lines()
            .any(|line| line.ends_with(&format!("({name}) refused")));
        assert!(is_logged, "{name} is not logged:\n{said}");
    }
}

/// The mode of a path, one with the rights of the owner, and limits of another process.
fn refuses_modes_and_limits() {
    let path = PathBuf::from(env::var_os(DIRECTORY).unwrap()).join("in/there");
    let file = fs::File::open(&path).unwrap();
    let mode = fs::Permissions::from_mode;
    file.set_permissions(mode(0o640)).unwrap();
    for wrong in [0o4755, 0o2755] {
        let error = file.set_permissions(mode(wrong)).unwrap_err();
        assert_eq!(error.kind(), PermissionDenied, "fchmod {wrong:o}");
        let new = path.with_file_name("new");
        let made = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .mode(wrong)
            .open(new);
        assert_eq!(made.unwrap_err().kind(), PermissionDenied, "open {wrong:o}");
    }
    let flags = rustix::fs::AtFlags::empty();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let changed = rustix::fs::chmodat(rustix::fs::CWD, &path, mode, flags);
    assert_eq!(changed, Err(rustix::io::Errno::PERM), "fchmodat");
    let (own, core) = (rustix::process::getpid(), rustix::process::Resource::Core);
    let none = || rustix::process::getrlimit(core);
    rustix::process::setrlimit(core, none()).unwrap();
    let limited = rustix::process::prlimit(Some(own), core, none());
    assert_eq!(limited, Err(rustix::io::Errno::PERM), "prlimit64");
}

#[test]
#[ignore = "confines its process; the test above starts it"]
fn seals_itself() {
    if calls::restrict(Devices::None).unwrap() == Enforced::Not {
        println!("no seccomp here");
        return;
    }
    // Another thread that was there before is sealed, too.
    let (go, gone) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        gone.recv().unwrap();
        UnixDatagram::unbound().map_err(|error| error.kind())
    });
    let pair = UnixDatagram::pair().unwrap();
    assert!(UnixDatagram::unbound().is_ok());
    assert_ne!(set_up_a_ring(), Some(libc::EPERM));
    assert_eq!(command_a_device(), Some(libc::EPERM));
    assert_eq!(calls::seal(Connections::Ended).unwrap(), Enforced::Fully);
    go.send(()).unwrap();
    assert_eq!(other.join().unwrap().unwrap_err(), PermissionDenied);
    assert_eq!(
        UnixDatagram::unbound().unwrap_err().kind(),
        PermissionDenied
    );
    assert_eq!(set_up_a_ring(), Some(libc::EPERM));
    assert!(calls::seal(Connections::Ended).is_err());

    // What is open stays usable, and portals may still be made.
    pair.0.send(b"x").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = TcpStream::connect(listener.local_addr().unwrap()).unwrap_err();
    assert_eq!(refused.kind(), PermissionDenied);
    thread::spawn(|| ()).join().unwrap();
}

#[test]
fn connections_that_are_kept_do_not_end_with_the_start() {
    let (output, directory) = in_a_process("seals_itself_and_connects");
    fs::remove_dir_all(directory).unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
#[ignore = "confines its process; the test above starts it"]
fn seals_itself_and_connects() {
    if calls::restrict(Devices::Some).unwrap() == Enforced::Not {
        println!("no seccomp here");
        return;
    }
    // The device is none, and its driver says so.
    assert_eq!(command_a_device(), Some(libc::ENOTTY));
    assert_eq!(calls::seal(Connections::Kept).unwrap(), Enforced::Fully);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    UnixDatagram::unbound().unwrap();
    assert_eq!(set_up_a_ring(), Some(libc::EPERM));
    assert!(calls::seal(Connections::Kept).is_err());
}

/// Asks what is no SCSI device for a command. Gives why not.
fn command_a_device() -> Option<i32> {
    let file = fs::File::open("/dev/null").unwrap();
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: /dev/null has no such control, and nothing is at address 0 where one would look.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), 0x2285, nothing) };
    assert_eq!(asked, -1, "a command for /dev/null");
    std::io::Error::last_os_error().raw_os_error()
}

/// Tries it with parameters that no kernel takes. Gives why not.
fn set_up_a_ring() -> Option<i32> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel looks for the parameters at address 0, finds none and makes nothing.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, nothing) };
    assert_eq!(made, -1, "a ring without parameters");
    std::io::Error::last_os_error().raw_os_error()
}

#[test]
fn only_the_files_of_the_rules_are_left() {
    let (output, directory) = in_a_process("gives_files_up");
    fs::remove_dir_all(directory).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
}

#[test]
#[ignore = "confines its process; the test above starts it"]
fn gives_files_up() {
    let directory = PathBuf::from(env::var_os(DIRECTORY).unwrap());
    let rule = |path: PathBuf, right| Rule { path, right };
    let rules = [
        rule(directory.join("in"), Right::Store),
        rule("/proc/self".into(), Right::Read),
        rule(directory.join("nowhere"), Right::Keep),
    ];
    let [listener, allowed] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [address, reached] = [&listener, &allowed].map(|one| one.local_addr().unwrap());
    let name = format!("confine-test-{}", std::process::id());
    let outside = SocketAddr::from_abstract_name(name).unwrap();
    let _listening = UnixListener::bind_addr(&outside).unwrap();
    privileges::no_new_privileges().unwrap();
    if files::restrict(&rules, Some(&[reached.port()])).unwrap() == Enforced::Not {
        println!("no Landlock here");
        return;
    }
    let refused = |path: &Path| fs::read(path).unwrap_err().kind() == PermissionDenied;
    assert!(refused(&directory.join("out")));
    assert!(refused(Path::new("/etc/passwd")));
    assert!(fs::write(directory.join("out"), "x").is_err());
    assert_eq!(fs::read(directory.join("in/there")).unwrap(), b"inside");
    fs::write(directory.join("in/new"), "x").unwrap();
    fs::rename(directory.join("in/new"), directory.join("in/newer")).unwrap();
    fs::remove_file(directory.join("in/newer")).unwrap();
    assert!(fs::read("/proc/self/status").is_ok());
    assert!(Command::new("/bin/true").exec().kind() == PermissionDenied);
    // Sockets without a path are governed since Landlock's sixth version.
    if let Err(error) = UnixStream::connect_addr(&outside) {
        assert_eq!(error.kind(), PermissionDenied);
    }
    // Connections are governed since Landlock's fourth version.
    if let Err(error) = TcpStream::connect(address) {
        assert_eq!(error.kind(), PermissionDenied);
    }
    TcpStream::connect(reached).unwrap();
}
