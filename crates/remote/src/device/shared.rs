//! What the handles of all cores and the back end of a device have in common.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use store::{DeviceFacts, IoFailure, Sender};

use super::look::Found;
use super::telling::Telling;
use super::turns::Turns;
use crate::lock;
use crate::scsi::command::{BUSY, CHECK_CONDITION, GOOD, KEY_ATTENTION, Sense};
use crate::scsi::job::{Bytes, Mail};
use crate::scsi::link::{Link, NoDisk, Whose};

/// Commands of one nexus that wait. What it sends beyond that finds the device busy.
pub(crate) const SHARE_MAX: usize = 64;
/// Commands under way at a time, of a device that may have several.
const DEPTH: usize = 32;
/// Their data, in bytes. One command may always begin.
pub(crate) const BYTES_MAX: u64 = 8 << 20;
/// Unit attentions that are kept. A device has few, each once.
const ATTENTIONS_MAX: usize = 8;
/// Sense data of a command, in bytes.
///
/// Spec: SPC-5 section 4.5.1.
pub(crate) const SENSE_BYTES_MAX: usize = 252;
/// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED: initiators take nothing of before for granted.
const RESET: (u8, u8) = (0x29, 0x00);
/// Types of devices that have one position, and so one command at a time.
const TAPE: u8 = 0x01;
const CHANGER: u8 = 0x08;
/// Commands that report no unit attention: INQUIRY, REPORT LUNS, REQUEST SENSE.
///
/// Spec: SAM-6 section 5.14.
const WITHOUT_ATTENTION: [u8; 3] = [0x12, 0xa0, 0x03];

/// The device was given a command, and its answer is lost (`ECONNABORTED`).
pub(crate) const LOST: IoFailure = IoFailure::Hardware { errno: 103 };

/// A command on its way to the device.
#[derive(Debug)]
pub(crate) struct Command {
    /// The handle that wants it, and what that calls it.
    pub(crate) core: usize,
    pub(crate) number: u64,
    pub(crate) nexus: u64,
    pub(crate) cdb: Vec<u8>,
    /// Data-Out.
    pub(crate) data: Bytes,
    /// For Data-In, in bytes.
    pub(crate) room: u32,
}

impl Command {
    /// The data that it moves.
    pub(crate) fn bytes(&self) -> u64 {
        self.data.len() as u64 + u64::from(self.room)
    }

    fn reports_attentions(&self) -> bool {
        reports_attentions(&self.cdb)
    }
}

/// Whether a command with this CDB is answered with a unit attention that is due.
pub(crate) fn reports_attentions(cdb: &[u8]) -> bool {
    let opcode = cdb.first();
    opcode.is_none_or(|opcode| !WITHOUT_ATTENTION.contains(opcode))
}

/// What others have to know of a command with this operation code, if it was carried out: MODE SELECT, LOG SELECT;
/// what moves a medium.
pub(crate) const fn unseen(opcode: u8) -> Option<(u8, u8)> {
    match opcode {
        0x15 | 0x55 => Some((0x2a, 0x01)),
        0x4c => Some((0x2a, 0x02)),
        0x1b | 0xa6 => Some((0x28, 0x00)),
        _ => None,
    }
}

/// What a device was found to be, last.
#[derive(Debug)]
pub(crate) struct Known {
    /// As it was when it was opened.
    device_type: u8,
    facts: Mutex<Arc<DeviceFacts>>,
}

impl Known {
    pub(crate) fn new(facts: DeviceFacts) -> Self {
        Self {
            device_type: facts.device_type(),
            facts: Mutex::new(Arc::new(facts)),
        }
    }

    pub(crate) fn facts(&self) -> Arc<DeviceFacts> {
        Arc::clone(&lock(&self.facts))
    }

    /// It has one position, and so one command at a time.
    pub(crate) const fn is_sequential(&self) -> bool {
        matches!(self.device_type, TAPE | CHANGER)
    }

    /// Takes over what a look has found; `None`: it does not say what it is. An error: why it must not be used.
    pub(crate) fn renew<B: Send>(
        &self,
        link: &Link<B>,
        found: Option<Found>,
    ) -> Result<(), String> {
        let now = found.ok_or_else(|| link.of_device("does not say what it is any more"))?;
        link.check_identity(now.identity.as_ref())?;
        if now.facts.device_type() != self.device_type {
            return Err(link.of_device("is of another type now"));
        }
        *lock(&self.facts) = Arc::new(now.facts);
        Ok(())
    }
}

/// What the device has answered.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Ended {
    pub(crate) status: u8,
    pub(crate) sense: Vec<u8>,
    /// Data-In.
    pub(crate) data: Vec<u8>,
    pub(crate) transfer_bytes: u64,
}

impl Ended {
    /// An answer that the device has not given itself.
    pub(crate) fn busy() -> Self {
        Self {
            status: BUSY,
            ..Self::default()
        }
    }

    pub(crate) fn attention(code: (u8, u8)) -> Self {
        Self::check(KEY_ATTENTION, code)
    }

    /// CHECK CONDITION with fixed sense data.
    pub(crate) fn check(key: u8, (code, qualifier): (u8, u8)) -> Self {
        let mut sense = vec![0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0];
        sense.extend([code, qualifier, 0, 0, 0, 0]);
        Self {
            status: CHECK_CONDITION,
            sense,
            ..Self::default()
        }
    }

    fn is_attention(&self) -> bool {
        self.status == CHECK_CONDITION && Sense::parse(&self.sense).key == KEY_ATTENTION
    }
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotTaken {
    /// Its nexus has enough of them, or has not been told yet what another one was told.
    Share,
    /// The device cannot be reached, and that for too long.
    Away,
}

/// What the handles leave for the back end.
#[derive(Debug, Default)]
struct Waiting {
    turns: Turns<Command>,
    /// Codes and qualifiers of unit attentions that no command has reported yet.
    attentions: VecDeque<(u8, u8)>,
    /// There was a session.
    has_begun: bool,
    is_away: bool,
    /// The last user is gone.
    is_ended: bool,
}

/// Starts the back end, as soon as somebody uses the store.
type Begin = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// What all share.
pub(crate) struct Shared {
    pub(crate) link: Link<Ended>,
    known: Known,
    waiting: Mutex<Waiting>,
    telling: Telling,
    /// Wakes threads that carry commands out, where the back end has such.
    ready: Option<Condvar>,
    begin: Mutex<Option<Begin>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("device", &self.link.device)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(whose: Whose, found: Found, begin: Begin) -> Result<Self, NoDisk> {
        Ok(Self {
            link: Link::at_place(whose, found.identity, true)?,
            known: Known::new(found.facts),
            waiting: Mutex::default(),
            telling: Telling::default(),
            ready: None,
            begin: Mutex::new(Some(begin)),
        })
    }

    /// The same, of a back end whose threads wait with [`Shared::wait_for_work`].
    pub(crate) fn of_threads(whose: Whose, found: Found, begin: Begin) -> Result<Self, NoDisk> {
        Ok(Self {
            ready: Some(Condvar::new()),
            ..Self::new(whose, found, begin)?
        })
    }

    pub(crate) fn facts(&self) -> Arc<DeviceFacts> {
        self.known.facts()
    }

    /// How many commands the device gets at a time.
    pub(crate) const fn depth(&self) -> usize {
        match self.known.is_sequential() {
            true => 1,
            false => DEPTH,
        }
    }

    /// Takes over what a look has found, as [`Known::renew`] does.
    pub(crate) fn renew(&self, found: Option<Found>) -> Result<(), String> {
        self.known.renew(&self.link, found)
    }

    // ---- handles -----------------------------------------------------------------------------

    /// From now on a handle gets mail. The first one starts the back end: a confined process has all its rights already
    /// then.
    pub(crate) fn begin(self: &Arc<Self>, core: usize, mailbox: Sender<Mail<Ended>>) {
        self.link.add_mailbox(core, mailbox);
        if let Some(begin) = lock(&self.begin).take() {
            begin(self);
        }
    }

    /// Takes a command, which is answered by mail.
    pub(crate) fn add(&self, command: Command) -> Result<(), NotTaken> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_away || self.link.is_gone() {
            return Err(NotTaken::Away);
        }
        let is_kept_out = command.reports_attentions() && self.telling.keeps_out(command.nexus);
        if is_kept_out || waiting.turns.len_of(command.nexus) >= SHARE_MAX {
            return Err(NotTaken::Share);
        }
        waiting.turns.push(command.nexus, command);
        drop(waiting);
        match &self.ready {
            Some(ready) => ready.notify_one(),
            None => self.link.wake(),
        }
        Ok(())
    }

    /// Whether a command was still here, which is not handed over any more then.
    pub(crate) fn cancel(&self, core: usize, number: u64) -> bool {
        let is_it = |command: &Command| command.core == core && command.number == number;
        lock(&self.waiting).turns.remove(is_it).is_some()
    }

    fn end_use(&self) {
        lock(&self.waiting).is_ended = true;
        self.link.wake();
        self.wake_workers();
    }

    // ---- the back end ------------------------------------------------------------------------

    /// The last user is gone.
    pub(crate) fn is_ended(&self) -> bool {
        lock(&self.waiting).is_ended
    }

    /// How many commands wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.waiting).turns.len()
    }

    /// Takes the command whose turn it is, if there is room for it.
    pub(crate) fn take(&self, has_room: impl Fn(&Command) -> bool) -> Option<Command> {
        loop {
            let mut waiting = lock(&self.waiting);
            let next = waiting.turns.next()?;
            let reports = next.reports_attentions();
            if !has_room(next) {
                return None;
            }
            let command = waiting.turns.take()?;
            let attention = match reports {
                true => waiting.attentions.pop_front(),
                false => None,
            };
            drop(waiting);
            match attention {
                Some(attention) => self.end(&command, Ok(Ended::attention(attention))),
                None => return Some(command),
            }
        }
    }

    /// Waits until there is a command, or so long.
    pub(crate) fn wait_for_work(&self, limit: Duration) {
        let waiting = lock(&self.waiting);
        if let Some(ready) = &self.ready
            && waiting.turns.len() == 0
            && !waiting.is_ended
        {
            let _waited = ready.wait_timeout(waiting, limit);
        }
    }

    /// Has threads look what there is to be done.
    pub(crate) fn wake_workers(&self) {
        if let Some(ready) = &self.ready {
            ready.notify_all();
        }
    }

    /// The back end did not take a command now: it is the next one again.
    pub(crate) fn put_back(&self, command: Command) {
        lock(&self.waiting).turns.put_back(command.nexus, command);
    }

    /// A command is over.
    pub(crate) fn end(&self, command: &Command, result: Result<Ended, IoFailure>) {
        // What comes when this is answered is sent in knowledge of it.
        let others = match &result {
            Ok(ended) if ended.is_attention() => {
                self.telling.begin(command.nexus);
                lock(&self.waiting).turns.drain()
            }
            Ok(_) | Err(_) => Vec::new(),
        };
        let answer = |command: &Command, result| {
            let number = command.number;
            self.link
                .answer(command.core, Mail::Done { number, result });
        };
        answer(command, result);
        for other in others {
            answer(&other, Ok(Ended::busy()));
        }
    }

    /// A command has ended whose initiator does not wait for it: what others have to know of it is told to the next.
    pub(crate) fn note_unseen(&self, opcode: u8, ended: &Ended) {
        self.note_attention(Sense::parse(&ended.sense));
        if ended.status == GOOD
            && let Some(attention) = unseen(opcode)
        {
            lock(&self.waiting).note(attention);
        }
    }

    /// The device has said this in place of an answer that no initiator sees.
    pub(crate) fn note_attention(&self, sense: Sense) {
        if sense.key == KEY_ATTENTION {
            lock(&self.waiting).note((sense.code, sense.qualifier));
        }
    }

    /// The device can be used. Where it could before, it may have been reset meanwhile.
    pub(crate) fn begin_session(&self) {
        let was_away = {
            let mut waiting = lock(&self.waiting);
            match std::mem::replace(&mut waiting.has_begun, true) {
                true => waiting.note(RESET),
                // Initiators have used nothing of the device yet.
                false => waiting.attentions.clear(),
            }
            std::mem::take(&mut waiting.is_away)
        };
        self.link.begin_session();
        self.link.note_held(0);
        if was_away {
            self.link.report_reach(true);
        }
    }

    /// The device cannot be reached, and that for too long: what waits ends, and what comes fails at once.
    pub(crate) fn give_up(&self) {
        let (was_away, all) = {
            let mut waiting = lock(&self.waiting);
            let was_away = std::mem::replace(&mut waiting.is_away, true);
            (was_away, waiting.turns.drain())
        };
        for command in all {
            self.end(&command, Err(IoFailure::NotReady));
        }
        if !was_away {
            self.link.report_reach(false);
        }
    }
}

impl Waiting {
    /// A reset comes first, and all of them are one.
    fn note(&mut self, attention: (u8, u8)) {
        if attention.0 == RESET.0 {
            self.attentions.retain(|(code, _)| *code != RESET.0);
            self.attentions.push_front(RESET);
        } else if !self.attentions.contains(&attention) && self.attentions.len() < ATTENTIONS_MAX {
            self.attentions.push_back(attention);
        }
    }
}

/// Handles and the store have it; when the last is gone, the back end ends.
#[derive(Debug)]
pub(crate) struct Users(pub(crate) Arc<Shared>);

impl Drop for Users {
    fn drop(&mut self) {
        self.0.end_use();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: SPC-5, MODE PARAMETERS CHANGED, LOG PARAMETERS CHANGED, MEDIUM MAY HAVE CHANGED.
    #[test]
    fn others_learn_of_commands_that_change_modes_logs_or_the_medium() {
        const MODES: Option<(u8, u8)> = Some((0x2a, 0x01));
        const LOGS: Option<(u8, u8)> = Some((0x2a, 0x02));
        const MEDIUM: Option<(u8, u8)> = Some((0x28, 0x00));
        for (name, opcode, expected) in [
            ("MODE SELECT (6)", 0x15, MODES),
            ("MODE SELECT (10)", 0x55, MODES),
            ("LOG SELECT", 0x4c, LOGS),
            ("START STOP UNIT, LOAD UNLOAD", 0x1b, MEDIUM),
            ("EXCHANGE MEDIUM", 0xa6, MEDIUM),
            ("MODE SENSE (6)", 0x1a, None),
            ("WRITE (10)", 0x2a, None),
        ] {
            assert_eq!(unseen(opcode), expected, "{name}");
        }
    }
}
