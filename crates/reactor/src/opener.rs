//! Sockets of frames from another process: the opener, which keeps the right to make them (CAP_NET_RAW) when this
//! process gives it up.
//!
//! It is the same program, started once more before rights are given up; the caller says with which words. Started, not
//! forked: it has none of this process' secrets and open files, and its memory lies elsewhere. They share a pair of
//! sockets (`SOCK_SEQPACKET`) and nothing else. There is one kind of request: the socket of one core of so many. The
//! answer is a socket that is bound nowhere and takes frames of one type alone, by a filter that nobody can change any
//! more ([`locked_socket`]). The request names no interface: to bind a socket of frames takes no right, so a name would
//! protect nothing, and would be one more thing to read.
//!
//! Threads of changes and of plans ask, never a core. One request is under way at a time; the others wait for it. An
//! opener that does not answer within [`PATIENCE`] fails that request, and later ones at once until its answer comes:
//! requests have numbers, and a late answer is dropped with its socket. One that has ended fails all of them; it cannot
//! be started again, as this process has given up the right. Sockets that it made do not need it. It ends when this
//! process ends: then its socket is closed, and a signal comes, should a worker of a store still have the other end.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result as SystemResult};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair, sockopt,
};

use crate::filter::{close, locked_socket};

/// How long an answer is waited for. The opener has nothing to do but this, so only a machine that is very busy, or a
/// process that was stopped, takes as long.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the opener may take to begin.
const START_MAX: Duration = Duration::from_secs(20);

/// Of each message: two numbers of 32 bits. In a request: its number, and the core (16 bits) of how many (16 bits). In
/// an answer: the number of its request, and the error, or 0.
const MESSAGE_BYTES: usize = 8;

/// The number of the answer by which the opener says that it has begun.
const READY: u32 = 0;

/// Stands for no account.
const NO_ACCOUNT: u32 = u32::MAX;

/// The largest error of the kernel.
const ERRNO_MAX: i32 = 4095;

/// The room for one descriptor of an answer.
const DESCRIPTOR: usize = cmsg_space!(ScmRights(1));

/// Why no socket came from the opener. Each message names the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OpenerError {
    /// It was not there from the beginning.
    #[error(
        "Tarn has given up CAP_NET_RAW, and the process that keeps it could not be started: {reason}; restart Tarn, or \
         use udp"
    )]
    NotStarted {
        /// Why.
        reason: String,
    },
    /// It was killed, or has failed.
    #[error(
        "the process that opens sockets of interfaces has ended; Tarn serves what it has open, and needs a restart to \
         take frames of another interface"
    )]
    Ended,
    /// It has an unanswered request.
    #[error(
        "the process that opens sockets of interfaces does not answer; try again, and restart Tarn if that does not \
         help"
    )]
    Silent,
    /// The kernel does not make one.
    #[error("the process that opens sockets of interfaces got none: {0}")]
    Refused(Errno),
}

/// The user and the group that the opener becomes.
pub type UserAndGroup = (u32, u32);

/// The opener of this process.
pub struct Opener {
    socket: OwnedFd,
    /// The type of the frames.
    protocol: u16,
    requests: Mutex<Requests>,
    /// `None` when its end was seen.
    child: Mutex<Option<Child>>,
}

struct Requests {
    /// Of the last one.
    number: u32,
    is_answered: bool,
    is_over: bool,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

/// An answer as it came.
struct Answer {
    number: u32,
    result: SystemResult<Option<OwnedFd>>,
}

impl Opener {
    /// Starts it, for frames of this type. The command is one that runs [`run`].
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(command: &mut Command, protocol: u16) -> std::io::Result<Self> {
        let (own, other) = pair()?;
        let child = command.stdin(Stdio::from(other)).spawn()?;
        Ok(Self::new(own, Some(child), protocol))
    }

    fn new(socket: OwnedFd, child: Option<Child>, protocol: u16) -> Self {
        let requests = Requests {
            number: READY,
            is_answered: false,
            is_over: false,
        };
        Self {
            socket,
            protocol,
            requests: Mutex::new(requests),
            child: Mutex::new(child),
        }
    }

    /// Has it become this user, give up everything but the one right, and begin. Waits until it has. To be called once.
    ///
    /// # Errors
    ///
    /// It has ended, or takes too long.
    pub fn begin(&self, account: Option<UserAndGroup>) -> Result<(), OpenerError> {
        let mut requests = self.requests();
        let (user, group) = account.unwrap_or((NO_ACCOUNT, NO_ACCOUNT));
        self.send(&mut requests, message(user, group))?;
        let ready = self.await_answer(&mut requests, START_MAX)?;
        ready.map(drop).map_err(OpenerError::Refused)
    }

    /// Its number as a process, as long as it was not seen to have ended.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// The socket of this core of so many.
    fn ask(&self, (core, cores): (u16, u16), patience: Duration) -> Result<OwnedFd, OpenerError> {
        let mut requests = self.requests();
        self.take_late_answers(&mut requests)?;
        if !requests.is_answered {
            return Err(OpenerError::Silent);
        }
        requests.number = requests.number.wrapping_add(1).max(READY + 1);
        let which = u32::from(core) << 16 | u32::from(cores);
        let request = message(requests.number, which);
        self.send(&mut requests, request)?;
        let answer = self.await_answer(&mut requests, patience)?;
        let socket = answer.map_err(OpenerError::Refused)?;
        socket.ok_or(OpenerError::Refused(Errno::BADMSG))
    }

    /// The same; what is no socket of frames is not taken for one.
    fn ask_for_frames(&self, which: (u16, u16)) -> Result<OwnedFd, OpenerError> {
        let socket = self.ask(which, PATIENCE)?;
        match sockopt::socket_domain(&socket) {
            Ok(AddressFamily::PACKET) => Ok(socket),
            Ok(_) | Err(_) => Err(OpenerError::Refused(Errno::BADMSG)),
        }
    }

    /// What is wrong with it.
    fn trouble(&self) -> Option<OpenerError> {
        // Somebody waits for it at this moment.
        let mut requests = self.requests.try_lock().ok()?;
        match self.take_late_answers(&mut requests) {
            Err(error) => Some(error),
            Ok(()) => (!requests.is_answered).then_some(OpenerError::Silent),
        }
    }

    /// How it has ended, once.
    fn take_end(&self) -> Option<ExitStatus> {
        let mut child = self.child();
        let status = child.as_mut()?.try_wait().ok()??;
        *child = None;
        Some(status)
    }

    fn send(&self, requests: &mut Requests, bytes: [u8; MESSAGE_BYTES]) -> Result<(), OpenerError> {
        if requests.is_over {
            return Err(OpenerError::Ended);
        }
        match send(
            &self.socket,
            &bytes,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        ) {
            Ok(_) => {
                requests.is_answered = false;
                Ok(())
            }
            // There is room for many, so it has read none.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Err(OpenerError::Silent),
            Err(_) => {
                requests.is_over = true;
                Err(OpenerError::Ended)
            }
        }
    }

    /// The answer to the last request.
    fn await_answer(
        &self,
        requests: &mut Requests,
        patience: Duration,
    ) -> Result<SystemResult<Option<OwnedFd>>, OpenerError> {
        let until = Instant::now() + patience;
        loop {
            while let Some(answer) = self.receive(requests)? {
                if answer.number == requests.number {
                    requests.is_answered = true;
                    return Ok(answer.result);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(OpenerError::Silent);
            }
            let left = Timespec::try_from(left).ok();
            let mut places = [PollFd::new(&self.socket, PollFlags::IN)];
            // Whatever it says, the socket is looked at again.
            let _ready = poll(&mut places, left.as_ref());
        }
    }

    /// Drops the answers that nobody waits for any more.
    fn take_late_answers(&self, requests: &mut Requests) -> Result<(), OpenerError> {
        while let Some(answer) = self.receive(requests)? {
            requests.is_answered |= answer.number == requests.number;
        }
        Ok(())
    }

    /// An answer, if there is one.
    fn receive(&self, requests: &mut Requests) -> Result<Option<Answer>, OpenerError> {
        if requests.is_over {
            return Err(OpenerError::Ended);
        }
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let mut room = [MaybeUninit::uninit(); DESCRIPTOR];
        let mut descriptors = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.socket, &mut into, &mut descriptors, flags);
        // Alignment leaves room for a second descriptor, which is closed here.
        let socket = descriptors.drain().find_map(|message| {
            let RecvAncillaryMessage::ScmRights(mut sockets) = message else {
                return None;
            };
            sockets.next()
        });
        let length = match received {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Ok(message) => message.bytes,
            Err(_) => 0,
        };
        let whole = bytes.first_chunk().filter(|_| length == MESSAGE_BYTES);
        let Some(&whole) = whole else {
            // It has ended, or is none.
            requests.is_over = true;
            return Err(OpenerError::Ended);
        };
        let (number, errno) = numbers(whole);
        let result = match i32::try_from(errno) {
            Ok(0) => Ok(socket),
            Ok(errno @ 1..=ERRNO_MAX) => Err(Errno::from_raw_os_error(errno)),
            Ok(_) | Err(_) => Err(Errno::BADMSG),
        };
        Ok(Some(Answer { number, result }))
    }

    /// A thread that panicked has left them as they were.
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair() -> SystemResult<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    socketpair(AddressFamily::UNIX, kind, flags, None)
}

const fn message(first: u32, second: u32) -> [u8; MESSAGE_BYTES] {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_be_bytes(), second.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

const fn numbers(bytes: [u8; MESSAGE_BYTES]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bytes;
    let (first, second) = ([a, b, c, d], [e, f, g, h]);
    (u32::from_be_bytes(first), u32::from_be_bytes(second))
}

// ---- of the process ----

/// From now on this process has no right to sockets of frames: they come from this opener, if there is one.
static INSTALLED: OnceLock<Result<Opener, OpenerError>> = OnceLock::new();

/// Has all sockets of frames come from this opener from now on. Without one, they get the reason. To be called once,
/// when the right is given up.
pub fn install(opener: Result<Opener, OpenerError>) {
    let _only_once = INSTALLED.set(opener);
}

/// The socket of a core of so many, for frames of this type, if sockets of frames come from an opener.
pub(crate) fn socket(
    protocol: u16,
    core: usize,
    cores: usize,
) -> Option<Result<OwnedFd, OpenerError>> {
    let opener = match INSTALLED.get()? {
        Ok(opener) if opener.protocol == protocol => opener,
        Ok(_) => return None,
        Err(reason) => return Some(Err(reason.clone())),
    };
    let which = u16::try_from(core).and_then(|core| Ok((core, u16::try_from(cores)?)));
    Some(match which {
        Ok(which) => opener.ask_for_frames(which),
        Err(_) => Err(OpenerError::Refused(Errno::INVAL)),
    })
}

/// Whether sockets of frames come from an opener now; `None` if this process has not been left to one. Asks for a
/// socket and closes it, so it may wait.
pub fn check() -> Option<Result<(), OpenerError>> {
    let checked = match INSTALLED.get()? {
        Ok(opener) => opener.ask_for_frames((0, 1)).map(drop),
        Err(reason) => Err(reason.clone()),
    };
    Some(checked)
}

/// What is wrong with the opener, as far as it was there once.
pub fn trouble() -> Option<OpenerError> {
    INSTALLED.get()?.as_ref().ok()?.trouble()
}

/// Logs the end of the opener. To be called now and then.
pub fn look_after() {
    let Some(Ok(opener)) = INSTALLED.get() else {
        return;
    };
    if let Some(status) = opener.take_end() {
        let (code, signal) = (status.code(), status.signal());
        tracing::error!(
            code,
            signal,
            "the process that opens sockets of interfaces has ended: a change that names another interface needs a \
             restart"
        );
    }
}

// ---- the opener itself ----

/// What the opener does: `socket` is its end of the pair, `confine` has it become a user, if one is given, and give up
/// all but the right to sockets of frames of this type. Ends with the process that has started it. Comes back only with
/// the reason why it cannot begin.
pub fn run<E>(
    socket: BorrowedFd<'_>,
    protocol: u16,
    confine: impl FnOnce(Option<UserAndGroup>) -> Result<(), E>,
) -> E
where
    E: From<Errno>,
{
    let account = match account(socket) {
        Ok(account) => account,
        Err(errno) => return errno.into(),
    };
    if let Err(error) = confine(account) {
        return error;
    }
    let ended = serve(socket, |core, cores| locked_socket(protocol, core, cores));
    // Nothing that the end of a program does is allowed any more.
    // SAFETY: `_exit` has no precondition, and does not return.
    unsafe { libc::_exit(i32::from(ended.is_err())) }
}

/// Whether this is one end of a pair.
pub fn is_socket_of_opener(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
}

/// The first message; the other end is closed where none comes.
fn account(socket: BorrowedFd<'_>) -> SystemResult<Option<UserAndGroup>> {
    let bytes = next(socket)?.ok_or(Errno::PIPE)?;
    let account = numbers(bytes);
    Ok((account != (NO_ACCOUNT, NO_ACCOUNT)).then_some(account))
}

/// The next message; `None` when the other end is closed.
fn next(socket: BorrowedFd<'_>) -> SystemResult<Option<[u8; MESSAGE_BYTES]>> {
    let mut bytes = [0; MESSAGE_BYTES + 1];
    loop {
        return match recv(socket, &mut bytes, RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            Err(errno) => Err(errno),
            Ok((0, _)) => Ok(None),
            Ok((MESSAGE_BYTES, _)) => Ok(bytes.first_chunk().copied()),
            // Who has started this process sends no such thing.
            Ok(_) => Err(Errno::BADMSG),
        };
    }
}

/// Answers requests until the other end is closed. Allocates nothing, and makes no system call but those that
/// `confine::opener` leaves.
fn serve(
    socket: BorrowedFd<'_>,
    make: impl Fn(u32, u32) -> SystemResult<OwnedFd>,
) -> SystemResult<()> {
    answer(socket, READY, Ok(None))?;
    while let Some(bytes) = next(socket)? {
        let (number, which) = numbers(bytes);
        let (core, cores) = (which >> 16, which & 0xffff);
        let made = match core < cores {
            true => make(core, cores),
            false => Err(Errno::INVAL),
        };
        let given = answer(
            socket,
            number,
            made.as_ref().map(Some).map_err(|errno| *errno),
        );
        if let Ok(made) = made {
            close(made);
        }
        given?;
    }
    Ok(())
}

fn answer(
    socket: BorrowedFd<'_>,
    number: u32,
    result: SystemResult<Option<&OwnedFd>>,
) -> SystemResult<()> {
    let errno = result
        .err()
        .map_or(0, |errno| errno.raw_os_error().unsigned_abs());
    let bytes = message(number, errno);
    let given = result.ok().flatten().map(AsFd::as_fd);
    let mut room = [MaybeUninit::uninit(); DESCRIPTOR];
    let mut descriptors = SendAncillaryBuffer::new(&mut room);
    if let Some(given) = &given {
        descriptors.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(given)));
    }
    let flags = SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut descriptors, flags).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd as _;
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    /// An end of a pair for this process, with the other one.
    fn opener() -> (Opener, OwnedFd) {
        let (own, other) = pair().unwrap();
        (Opener::new(own, None, 1), other)
    }

    /// What stands for a socket: one whose receive buffer is of this size.
    fn socket_of(bytes: u32) -> SystemResult<OwnedFd> {
        let (one, _) = pair()?;
        sockopt::set_socket_recv_buffer_size(&one, usize::try_from(bytes).unwrap())?;
        Ok(one)
    }

    fn size_of(socket: &OwnedFd) -> usize {
        // The kernel doubles it.
        sockopt::socket_recv_buffer_size(socket).unwrap() / 2
    }

    fn make(core: u32, cores: u32) -> SystemResult<OwnedFd> {
        match core {
            7 => Err(Errno::NODEV),
            core => socket_of(10_000 * core + cores),
        }
    }

    fn begin(opener: &Opener) {
        assert_eq!(opener.begin(None), Ok(()));
    }

    #[test]
    fn each_core_gets_a_socket_of_its_own_and_an_error_is_that_of_the_system() {
        let (opener, other) = opener();
        let serving = thread::spawn(move || {
            assert_eq!(account(other.as_fd()), Ok(None));
            serve(other.as_fd(), make)
        });
        begin(&opener);
        let sizes = (1..4).map(|core| size_of(&opener.ask((core, 8), PATIENCE).unwrap()));
        assert_eq!(sizes.collect::<Vec<_>>(), [10_008, 20_008, 30_008]);
        let refused = |which| opener.ask(which, PATIENCE).unwrap_err();
        assert_eq!(refused((7, 8)), OpenerError::Refused(Errno::NODEV));
        for which in [(8, 8), (1, 0), (u16::MAX, 1)] {
            assert_eq!(refused(which), OpenerError::Refused(Errno::INVAL));
        }
        assert_eq!(
            opener.ask((1, 8), PATIENCE).map(|one| size_of(&one)),
            Ok(10_008)
        );
        assert_eq!(opener.trouble(), None);
        // It is no socket of frames.
        let error = opener.ask_for_frames((1, 8)).unwrap_err();
        assert_eq!(error, OpenerError::Refused(Errno::BADMSG));
        drop(opener);
        assert_eq!(
            serving.join().unwrap(),
            Ok(()),
            "it ends with the other end"
        );
    }

    #[test]
    fn changes_at_the_same_time_each_get_what_they_asked_for() {
        let (opener, other) = opener();
        let serving = thread::spawn(move || {
            account(other.as_fd()).unwrap();
            serve(other.as_fd(), make)
        });
        begin(&opener);
        thread::scope(|scope| {
            for core in 1..7_u16 {
                let opener = &opener;
                scope.spawn(move || {
                    for cores in 50..100 {
                        let socket = opener.ask((core, cores), PATIENCE).unwrap();
                        let expected = 10_000 * usize::from(core) + usize::from(cores);
                        assert_eq!(size_of(&socket), expected);
                    }
                });
            }
        });
        drop(opener);
        assert_eq!(serving.join().unwrap(), Ok(()));
    }

    #[test]
    fn one_that_hangs_fails_requests_at_once_and_its_late_answer_is_nobodys() {
        let (opener, other) = opener();
        answer(other.as_fd(), READY, Ok(None)).unwrap();
        begin(&opener);
        let silent = |patience| opener.ask((1, 2), patience).unwrap_err();
        assert_eq!(silent(SOON), OpenerError::Silent);
        // Not even asked.
        assert_eq!(silent(PATIENCE), OpenerError::Silent);
        assert_eq!(opener.trouble(), Some(OpenerError::Silent));
        // It goes on: the account, then the one request.
        assert_eq!(account(other.as_fd()), Ok(None));
        let (number, _) = numbers(next(other.as_fd()).unwrap().unwrap());
        let late = socket_of(5_000).unwrap();
        answer(other.as_fd(), number, Ok(Some(&late))).unwrap();
        assert_eq!(opener.trouble(), None);
        let serving = thread::spawn(move || serve(other.as_fd(), make));
        let socket = opener.ask((1, 2), PATIENCE).unwrap();
        assert_eq!(size_of(&socket), 10_002);
        drop(opener);
        assert_eq!(serving.join().unwrap(), Ok(()));
    }

    #[test]
    fn one_that_ends_or_answers_nonsense_is_over() {
        let end: fn(OwnedFd) = drop;
        let nonsense: fn(OwnedFd) = |other| {
            send(&other, b"nonsense!", SendFlags::empty()).unwrap();
            let _lives_on = other.into_raw_fd();
        };
        let no_error: fn(OwnedFd) = |other| {
            send(&other, &message(READY + 1, u32::MAX), SendFlags::empty()).unwrap();
            send(&other, &message(READY + 1, 4096), SendFlags::empty()).unwrap();
            let _lives_on = other.into_raw_fd();
        };
        let no_socket: fn(OwnedFd) = |other| {
            answer(other.as_fd(), READY + 1, Ok(None)).unwrap();
            let _lives_on = other.into_raw_fd();
        };
        for (how, expected) in [
            (end, OpenerError::Ended),
            (nonsense, OpenerError::Ended),
            (no_error, OpenerError::Silent),
            (no_socket, OpenerError::Silent),
        ] {
            let (opener, other) = opener();
            answer(other.as_fd(), READY, Ok(None)).unwrap();
            begin(&opener);
            how(other);
            // An answer that came before its request is dropped.
            assert_eq!(opener.ask((0, 1), SOON).unwrap_err(), expected);
            assert_eq!(opener.ask((0, 1), SOON).unwrap_err(), expected);
            assert_eq!(opener.trouble(), Some(expected));
        }
        let (opener, other) = opener();
        drop(other);
        assert_eq!(opener.begin(None), Err(OpenerError::Ended));
    }

    #[test]
    fn what_is_no_request_ends_it() {
        for bytes in [&b"1234567"[..], b"123456789", &[0; 4096]] {
            let (own, other) = pair().unwrap();
            send(&own, bytes, SendFlags::empty()).unwrap();
            assert_eq!(serve(other.as_fd(), make), Err(Errno::BADMSG));
            let (own, other) = pair().unwrap();
            send(&own, bytes, SendFlags::empty()).unwrap();
            assert_eq!(account(other.as_fd()), Err(Errno::BADMSG));
        }
        let (own, other) = pair().unwrap();
        send(&own, &message(1000, 2000), SendFlags::empty()).unwrap();
        assert_eq!(account(other.as_fd()), Ok(Some((1000, 2000))));
        assert!(is_socket_of_opener(other.as_fd()));
        drop(own);
        assert_eq!(account(other.as_fd()), Err(Errno::PIPE));
        assert!(!is_socket_of_opener(
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap().as_fd()
        ));
    }

    /// Descriptors that come with a request are not taken.
    #[test]
    fn a_request_with_descriptors_leaves_none_behind() {
        let (own, other) = pair().unwrap();
        let (sent, kept) = pair().unwrap();
        let bytes = message(1, 1 << 16 | 2);
        let mut room = [MaybeUninit::uninit(); DESCRIPTOR];
        let mut descriptors = SendAncillaryBuffer::new(&mut room);
        let sent_as = [sent.as_fd()];
        descriptors.push(SendAncillaryMessage::ScmRights(&sent_as));
        sendmsg(
            &own,
            &[IoSlice::new(&bytes)],
            &mut descriptors,
            SendFlags::empty(),
        )
        .unwrap();
        drop(sent);
        assert_eq!(next(other.as_fd()), Ok(Some(bytes)));
        // The other end of what was sent is alone.
        assert_eq!(recv(&kept, &mut [0; 8], RecvFlags::DONTWAIT).unwrap().1, 0);
    }
}
