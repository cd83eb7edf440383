//! What the administration asks of the daemon it belongs to.

use crate::edit::SecretOf;
use crate::event::{Event, Finding};
use crate::figures::{Figures, Range};
use crate::plan::{Applied, Change, Document, Inspection, Origin, Plan, Revision};
use crate::problem::Problem;
use crate::request::{EventQuestion, Rollback, TakeSnapshots, Tracing};
use crate::stats::{Space, Stats};
use crate::view::{
    Access, AccessQuestion, Check, Flattened, Hyperscsi, Lun, Places, Quota, Reservations,
    RolledBack, Session, Snapshot, SnapshotsTaken, Status, Target, Trace,
};

/// The daemon, as its administration sees it. Calls may block for as long as a step of a plan
/// takes, which is bounded; none is made by a core. All may be made from several threads at once.
pub trait Control: Send + Sync + 'static {
    /// The daemon in one look.
    fn status(&self) -> Status;

    /// The configuration that runs.
    fn document(&self) -> Document;

    /// Whether it can be changed while it runs.
    ///
    /// # Errors
    ///
    /// It has no document that could be changed.
    fn check_changeable(&self) -> Result<(), Problem>;

    /// How long the text of that configuration is, in bytes.
    fn document_bytes(&self) -> usize;

    /// Gives memory back to the system that the last questions have used.
    fn give_memory_back(&self);

    /// The same with every default written out, and without comments.
    fn effective(&self) -> Document;

    /// What applying this document would do, as far as `inspection` lets the plan look. Changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The document breaks a rule.
    fn plan(&self, text: &str, origin: &Origin, inspection: Inspection) -> Result<Plan, Problem>;

    /// Applies a document, as a whole or not at all. `only_at` is the revision it must start from;
    /// `None` takes any. A document that changes nothing is no new revision. On success, it is in
    /// force and on disk, and has taken effect everywhere unless it says what is not settled:
    /// [`Control::settle`] returns when it is.
    ///
    /// # Errors
    ///
    /// Why nothing was changed.
    fn apply(
        &self,
        change: Change,
        origin: Origin,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem>;

    /// Applies an earlier document again. A configuration file that was edited by hand and not
    /// applied does not stand in the way: its text is kept beside it, and a warning says where.
    ///
    /// # Errors
    ///
    /// As [`Control::apply`], or the revision is not kept.
    fn roll_back(
        &self,
        back: Rollback,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem>;

    /// Asks again what a change that was not settled waits for, without waiting for it: when it has
    /// taken effect everywhere, nothing is unsettled any more, and warnings may have come.
    fn settle(&self, applied: &mut Applied);

    /// The revisions that are kept, the last first.
    fn history(&self) -> Vec<Revision>;

    /// The document of a revision that is kept.
    fn document_of(&self, revision: u64) -> Option<Document>;

    /// All units, in the order of the file.
    fn luns(&self) -> Vec<Lun>;

    /// All quotas with what they hold, in the order of the file.
    fn quotas(&self) -> Vec<Quota>;

    /// Ejects the medium of a unit, when the commands at work on it have ended and it is flushed.
    /// `force`: although initiators prevent that.
    ///
    /// # Errors
    ///
    /// There is no such unit, its medium is fixed, initiators prevent the removal, or a step took too
    /// long. Unless the detail says otherwise the medium is in.
    fn eject(&self, lun: &str, force: bool) -> Result<(), Problem>;

    /// Loads the medium of a unit.
    ///
    /// # Errors
    ///
    /// There is no such unit, its medium is fixed, or the data plane does not answer.
    fn load(&self, lun: &str) -> Result<(), Problem>;

    /// The reservations of a unit, with all registrations.
    ///
    /// # Errors
    ///
    /// There is no such unit.
    fn reservations(&self, lun: &str) -> Result<Reservations, Problem>;

    /// Ends all reservations of a unit and all registrations, as the service action CLEAR does. They are gone from what
    /// is saved, too, when this returns.
    ///
    /// # Errors
    ///
    /// There is no such unit, the state cannot be saved, or a step took too long.
    fn clear_reservations(&self, lun: &str) -> Result<(), Problem>;

    /// Takes the image of a unit from another client of its cluster, and serves it. The cluster refuses that client
    /// from then on.
    ///
    /// # Errors
    ///
    /// There is no such unit, it is no such image, or its cluster does not answer or does not allow it.
    fn take_over(&self, lun: &str) -> Result<(), Problem>;

    /// Serves a unit that waits for its log without what that may have, with a new log.
    ///
    /// # Errors
    ///
    /// There is no such unit, it does not wait, or it cannot be opened.
    fn discard_log(&self, lun: &str) -> Result<(), Problem>;

    /// Writes to the store of a unit what its log has, of which the state directory does not know, and serves the unit.
    ///
    /// # Errors
    ///
    /// There is no such unit, it does not wait for that, or it cannot be opened.
    fn replay_log(&self, lun: &str) -> Result<(), Problem>;

    /// Serves a unit with what is at the place of its store, although that is not what was served: an administrator has
    /// looked at it.
    ///
    /// # Errors
    ///
    /// There is no such unit, its store is what was served, or it cannot be opened.
    fn adopt(&self, lun: &str) -> Result<(), Problem>;

    /// The snapshots of a unit, or of all, the oldest of each unit first.
    ///
    /// # Errors
    ///
    /// There is no such unit, or its file system does not answer.
    fn snapshots(&self, lun: Option<&str>) -> Result<Vec<Snapshot>, Problem>;

    /// Takes snapshots of units, all at one moment: commands of all of them wait meanwhile. They are on stable storage
    /// when this returns.
    ///
    /// # Errors
    ///
    /// Why there is none of them.
    fn take_snapshots(
        &self,
        wanted: TakeSnapshots,
        author: &str,
    ) -> Result<SnapshotsTaken, Problem>;

    /// Removes a snapshot that nobody uses.
    ///
    /// # Errors
    ///
    /// There is none of this name, or it is in use.
    fn remove_snapshot(&self, lun: &str, name: &str) -> Result<(), Problem>;

    /// Gives a unit the data of its snapshot back; what was written since is gone. Sessions that see it end first.
    ///
    /// # Errors
    ///
    /// There is no such snapshot, or a step failed; the data is as it was unless the detail says otherwise.
    fn restore_snapshot(&self, lun: &str, name: &str) -> Result<RolledBack, Problem>;

    /// Makes the file or the image that a STORE names with the data of a snapshot, of this unit and name, for a
    /// unit that is added next.
    ///
    /// # Errors
    ///
    /// There is no such snapshot, the STORE is nothing new beside it, or has other blocks.
    fn clone_snapshot(&self, which: (&str, &str), store: &str) -> Result<(), Problem>;

    /// The unit was not added: what was made for it, as a clone of this unit, goes.
    fn discard_clone(&self, lun: &str, store: &str);

    /// Gives a unit that is a clone all data of its snapshot, or goes on waiting for that. Answers after some
    /// seconds how far it is.
    ///
    /// # Errors
    ///
    /// There is no such unit, it is no clone, or it has failed.
    fn flatten(&self, lun: &str) -> Result<Flattened, Problem>;

    /// All targets, in the order of the file.
    ///
    /// # Errors
    ///
    /// The data plane does not answer, so nobody knows how many sessions they have.
    fn targets(&self) -> Result<Vec<Target>, Problem>;

    /// All groups of HyperSCSI, in the order of the file.
    ///
    /// # Errors
    ///
    /// The data plane does not answer, so nobody knows which sessions they have.
    fn hyperscsi(&self) -> Result<Vec<Hyperscsi>, Problem>;

    /// What HyperSCSI counts. Nothing where nothing is served by it, or the data plane does not answer.
    fn hyperscsi_stats(&self) -> crate::stats::Hyperscsi;

    /// All sessions.
    ///
    /// # Errors
    ///
    /// The data plane does not answer.
    fn sessions(&self) -> Result<Vec<Session>, Problem>;

    /// Has a session end, with all its commands, and does not wait for that.
    ///
    /// # Errors
    ///
    /// There is none of that id.
    fn end_session(&self, id: u64) -> Result<(), Problem>;

    /// All traces, in the order they began.
    fn traces(&self) -> Vec<Trace>;

    /// Keeps the last PDUs of a session or an initiator from now on. The same again changes
    /// nothing; other limits restart the trace. True when a trace has begun.
    ///
    /// # Errors
    ///
    /// The subject is none, a limit is beyond its own, or there are too many traces.
    fn start_trace(&self, subject: &str, how: Tracing) -> Result<(Trace, bool), Problem>;

    /// What a trace has, as a file of `pcap`.
    ///
    /// # Errors
    ///
    /// There is none of this subject.
    fn read_trace(&self, subject: &str) -> Result<Vec<u8>, Problem>;

    /// Ends a trace and drops what it has kept.
    ///
    /// # Errors
    ///
    /// There is none of this subject, or the data plane does not answer.
    fn stop_trace(&self, subject: &str) -> Result<(), Problem>;

    /// Keeps a secret in a private file that belongs to the daemon, and replaces none. Gives the
    /// path to put into the document; [`Control::release_secret`] is due then.
    ///
    /// # Errors
    ///
    /// The secret breaks a rule, or cannot be written.
    fn keep_secret(&self, of: SecretOf<'_>, secret: &str) -> Result<String, Problem>;

    /// The change that was to name a kept secret has been made, or not: a file that nothing names
    /// goes.
    fn release_secret(&self, path: &str);

    /// The dry run of the rules of access, target by target.
    ///
    /// # Errors
    ///
    /// The question has no sense: a name or address that is none.
    fn access(&self, question: &AccessQuestion) -> Result<Vec<Access>, Problem>;

    /// Counters, now.
    fn stats(&self) -> Stats;

    /// What the doctor looks for.
    fn checks(&self) -> Vec<Check>;

    /// Where the data of units may be. Looks at directories, but does not wait for those that do not answer.
    fn places(&self) -> Places;

    /// What the main figures were, of a unit or of all together.
    ///
    /// # Errors
    ///
    /// There is no such unit.
    fn figures(&self, range: Range, lun: Option<&str>) -> Result<Figures, Problem>;

    /// The space of units and of the file systems they are on, as of a moment ago.
    fn space(&self) -> Space;

    /// The events that are asked for, the oldest first.
    fn events(&self, question: EventQuestion) -> Vec<Event>;

    /// Notes what an administrator did, for the events and the audit log. Takes a moment only: it
    /// waits neither for the data plane nor for a disk.
    fn note(&self, event: Event);

    /// What limits or endangers the service.
    fn findings(&self) -> Vec<Finding>;
}
