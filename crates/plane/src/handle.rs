//! What the administration can change while the plane runs.
//!
//! Every call sends a letter to some cores and waits for their answers, up to a time limit. A core that does
//! not answer delays only the caller.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::Space;
use reactor::mail::Post;

use crate::counters::{CoreCounters, CoreCounts};
use crate::letter::Letter;
use crate::logins::LoginCounts;
use crate::medium::Media;
use crate::plan::{Access, PortalIndex, Settings, UnitDescription, UnitIndex, UnitPlan};
use crate::receipt::{AddUnitError, Confirmation, NoAnswer, Receipt, receipt};
use crate::slow::SlowLimit;
use crate::times::Times;
use crate::trace::Trace;
use front::iscsi::{FRONT_CORE, Grant};
use front::{SessionId, SessionReport};

/// How long a core may take to answer what it can do at once.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// How many times the limit on aborts the end of units may take: commands get time to end by themselves, then
/// to be aborted, on two units one after the other.
const END_PATIENCE: u32 = 3;

/// Changes a running plane. Of several at once each waits for the one before.
#[derive(Debug)]
pub struct Handle {
    pub(crate) posts: Vec<Post<Letter>>,
    counters: Vec<Arc<CoreCounters>>,
    slow: Arc<SlowLimit>,
    logins: Arc<Mutex<LoginCounts>>,
    pub(crate) media: Arc<Media>,
    /// Who has it holds media of several units.
    pub(crate) holding: Mutex<()>,
    /// The number of the next hold.
    pub(crate) holds: AtomicU64,
    times: Arc<Times>,
    next: Mutex<Next>,
    traces: Mutex<Vec<Arc<Trace>>>,
}

/// The first index of each kind that was never given.
#[derive(Debug, Default)]
struct Next {
    unit: u32,
    portal: u32,
}

impl Handle {
    pub(crate) fn new(
        posts: Vec<Post<Letter>>,
        counters: Vec<Arc<CoreCounters>>,
        slow: Arc<SlowLimit>,
        logins: Arc<Mutex<LoginCounts>>,
        times: Arc<Times>,
    ) -> Self {
        Self {
            posts,
            counters,
            slow,
            logins,
            media: Arc::default(),
            holding: Mutex::default(),
            holds: AtomicU64::new(0),
            times,
            next: Mutex::default(),
            traces: Mutex::default(),
        }
    }

    /// What every core has counted. No core is asked.
    pub fn counts(&self) -> Vec<CoreCounts> {
        self.counters.iter().map(|core| core.read()).collect()
    }

    /// Commands that take longer are reported from now on; `None`: none are. No core is asked.
    pub fn set_slow_command(&self, limit: Option<Duration>) {
        self.slow.set(limit);
    }

    /// Times that not a core keeps to.
    pub(crate) const fn times(&self) -> &Arc<Times> {
        &self.times
    }

    /// Other limits, which every core knows when this returns. Nothing ends that is there: what goes beyond a lower
    /// limit is there until it ends by itself, or gives its place to another that has a right to it; what waits is
    /// given up at the later of both times. Sessions keep the times of pings and gaps that they began with. Of the
    /// settings those stay whatever they are here that need a new process: cores, pools, busy polling, coalescing and
    /// the number of connections; and slow commands have [`Handle::set_slow_command`].
    ///
    /// # Errors
    ///
    /// A core does not answer, and will still do it: a core reads its letters in order.
    pub fn set_limits(&self, settings: Settings) -> Result<(), NoAnswer> {
        self.times.set(&settings);
        let settings = Arc::new(settings);
        self.ask_all(ANSWER_PATIENCE, |receipt| Letter::SetLimits {
            settings: Arc::clone(&settings),
            receipt,
        })
    }

    /// Logins since the plane began.
    pub fn login_counts(&self) -> LoginCounts {
        self.logins
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The numbers are right even if a caller panicked: each is changed in one step.
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list is right even if a caller panicked: a trace is added or removed in one step.
    pub(crate) fn traces(&self) -> MutexGuard<'_, Vec<Arc<Trace>>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_patience(&self) -> Duration {
        self.times.abort_timeout() * END_PATIENCE + ANSWER_PATIENCE
    }

    /// Sends every core the letter and waits until all have done what it says.
    pub(crate) fn ask_all(
        &self,
        limit: Duration,
        letter: impl Fn(Receipt) -> Letter,
    ) -> Result<(), NoAnswer> {
        self.post_to_all(letter).wait(limit)
    }

    fn post_to_all(&self, letter: impl Fn(Receipt) -> Letter) -> Confirmation {
        let (held, returned) = receipt();
        for post in &self.posts {
            post.push(letter(held.clone()));
        }
        returned
    }

    /// Adds units that no session sees yet. Gives their indices, in the same order. Cores take one unit after
    /// the other and serve between them; the time limit is that of one unit.
    ///
    /// # Errors
    ///
    /// A core cannot use a store, or does not answer; none of the units is there.
    pub fn add_units(&self, plans: Vec<UnitPlan>) -> Result<Vec<UnitIndex>, AddUnitError> {
        let mut added = Vec::with_capacity(plans.len());
        for plan in plans {
            let (index, outcome) = self.add_unit(plan);
            added.push(index);
            if let Err(error) = outcome {
                if let Err(no_answer) = self.close_units(&added).wait(self.end_patience()) {
                    tracing::error!(%no_answer, "units that were not added are still there");
                }
                return Err(error);
            }
        }
        Ok(added)
    }

    /// The unit has its index also when it is not added.
    fn add_unit(&self, plan: UnitPlan) -> (UnitIndex, Result<(), AddUnitError>) {
        let plan = Arc::new(plan);
        let (report, reports) = mpsc::channel();
        // Held until the letters are sent, so that every core gets the indices in order.
        let mut next = self.next();
        let unit = UnitIndex(next.unit);
        next.unit += 1;
        for core in cores_to_add_to(unit, self.posts.len()) {
            self.posts[core].push(Letter::AddUnit {
                unit,
                plan: Arc::clone(&plan),
                report: report.clone(),
            });
        }
        drop((next, report));
        let end = Instant::now() + ANSWER_PATIENCE;
        let mut outcome = Ok(());
        for _ in &self.posts {
            let left = end.saturating_duration_since(Instant::now());
            let one = reports.recv_timeout(left);
            outcome = outcome.and_then(|()| one.unwrap_or_else(|_| Err(NoAnswer.into())));
        }
        (unit, outcome)
    }

    /// Drains units that no session sees any more. Confirmed when nothing in the data plane uses them; a unit
    /// whose store does not end a request stays, unseen.
    pub fn drain_units(&self, units: &[UnitIndex]) -> Confirmation {
        let units: Arc<[UnitIndex]> = units.into();
        self.post_to_all(|receipt| Letter::DrainUnits {
            units: Arc::clone(&units),
            receipt,
        })
    }

    /// Flushes and closes the stores of removed units.
    pub fn close_units(&self, units: &[UnitIndex]) -> Confirmation {
        let units: Arc<[UnitIndex]> = units.into();
        self.post_to_all(|receipt| Letter::CloseUnits {
            units: Arc::clone(&units),
            receipt,
        })
    }

    /// Changes names and profiles of units. Their stores and limits stay.
    ///
    /// # Errors
    ///
    /// A core does not answer.
    pub fn describe_units(&self, units: Vec<UnitDescription>) -> Result<(), NoAnswer> {
        if units.is_empty() {
            return Ok(());
        }
        let units: Arc<[UnitDescription]> = units.into();
        self.ask_all(ANSWER_PATIENCE, |receipt| Letter::DescribeUnits {
            units: Arc::clone(&units),
            receipt,
        })
    }

    /// Changes the rules for all logins from now on. Returns the indices of the new portals, and whether the
    /// front has confirmed. A front that has not confirmed will still do it: a core reads its letters in order.
    /// Existing sessions keep what they see until [`Handle::change_sessions`].
    pub fn set_access(&self, access: Access) -> (Vec<PortalIndex>, Result<(), NoAnswer>) {
        let mut next = self.next();
        let first = next.portal;
        let count = access.open.len() + access.open_nbd.len();
        next.portal += u32::try_from(count).unwrap_or(u32::MAX);
        let opened = (first..next.portal).map(PortalIndex).collect();
        let (held, returned) = receipt();
        if let Some(front) = self.posts.get(FRONT_CORE) {
            front.push(Letter::SetAccess {
                access: Box::new(access),
                receipt: held,
            });
        }
        (opened, returned.wait(ANSWER_PATIENCE))
    }

    /// All sessions, also those whose login ended just before the call.
    ///
    /// # Errors
    ///
    /// A core does not answer.
    pub fn sessions(&self) -> Result<Vec<SessionReport>, NoAnswer> {
        let (report, reports) = mpsc::channel();
        for post in &self.posts {
            post.push(Letter::Report(report.clone()));
        }
        drop(report);
        let mut sessions = Vec::new();
        for _ in &self.posts {
            let some = reports.recv_timeout(ANSWER_PATIENCE);
            sessions.extend(some.map_err(|_| NoAnswer)?);
        }
        sessions.sort_by_key(|session| session.id);
        Ok(sessions)
    }

    /// Changes what sessions see, and ends others, each named by its core and id. It is confirmed
    /// when no command is under way on what they no longer see, and those that were to end are
    /// over with all their commands. Commands get time to end by themselves; initiators get a unit attention
    /// for changed LUNs. A session that is not found has ended.
    pub fn change_sessions(
        &self,
        granted: Vec<Grant>,
        ended: &[(usize, SessionId)],
        reason: &'static str,
    ) -> Confirmation {
        let (held, returned) = receipt();
        for &(core, session) in ended {
            if let Some(post) = self.posts.get(core) {
                post.push(Letter::Dismiss {
                    session,
                    reason,
                    receipt: held.clone(),
                });
            }
        }
        for grant in granted {
            if let Some(post) = self.posts.get(grant.core) {
                post.push(Letter::Grant {
                    grant: Box::new(grant),
                    receipt: held.clone(),
                });
            }
        }
        returned
    }

    /// How much space the store of a unit may take from now on. Nobody waits for it.
    pub fn set_space(&self, unit: UnitIndex, space: Space) {
        for post in &self.posts {
            post.push(Letter::SetSpace { unit, space });
        }
    }

    /// Notifies initiators that the stores of these units have another size, which the stores know already.
    pub fn announce_sizes(&self, units: &[UnitIndex]) -> Confirmation {
        let (held, returned) = receipt();
        for &unit in units {
            if let Some(owner) = self.posts.get(unit.owner(self.posts.len().max(1))) {
                owner.push(Letter::SizeChanged {
                    unit,
                    receipt: held.clone(),
                });
            }
        }
        returned
    }
}

/// The cores in the order in which they are to add a unit: its owner last. What the owner posts of it to all, as
/// soon as its store is found to have another size, comes after this letter then.
fn cores_to_add_to(unit: UnitIndex, cores: usize) -> impl Iterator<Item = usize> {
    let owner = unit.owner(cores.max(1));
    (owner + 1..cores).chain(0..cores.min(owner + 1))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use engine::{Save, SaveError, SavedState, StateAuthority, Version};
    use reactor::mail::{self, Mailbox};
    use scsi::{DeviceType, Identity, Limits, Profile};
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use store::{NullDisk, SharedStore as _};

    use crate::plan::Restored;

    #[derive(Debug)]
    struct Nowhere;

    impl StateAuthority for Nowhere {
        fn load(&self) -> io::Result<Option<SavedState>> {
            Ok(None)
        }

        fn save(&self, _: &Save) -> Result<Version, SaveError> {
            Ok(Version(1))
        }
    }

    pub(crate) fn unit(name: &str) -> UnitPlan {
        let store = NullDisk::new(4096, 512, false);
        let identity = Identity {
            vendor: String::new(),
            product: String::new(),
            revision: String::new(),
            serial: String::new(),
            naa: Vec::new(),
            eui: None,
            target_ports: Vec::new(),
            task_management: [0; 2],
            removable: false,
        };
        UnitPlan {
            name: name.to_owned(),
            profile: Profile {
                device_type: DeviceType::Disk,
                foreign: None,
                has_vendor_commands: false,
                identity,
                limits: Limits::default(),
                capabilities: store.capabilities(),
                keeps_state: false,
            },
            store: Arc::new(store),
            restored: Restored::Nothing,
            authority: Arc::new(Nowhere),
            losses: Arc::default(),
        }
    }

    /// Ends the cores when it goes, also with a test that fails.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Runs `ask` while `count` cores answer letters.
    pub(crate) fn with_cores<R>(
        count: usize,
        answer: impl Fn(usize, Letter) + Sync,
        ask: impl FnOnce(&Arc<Handle>) -> R,
    ) -> R {
        let channels = (0..count).map(|_| mail::channel().unwrap());
        let (posts, mailboxes): (Vec<_>, Vec<_>) = channels.unzip();
        let handle = Arc::new(Handle::new(
            posts,
            Vec::new(),
            Arc::default(),
            Arc::default(),
            Arc::default(),
        ));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _over = Over(&is_over);
            scope.spawn(|| {
                let mut is_last = false;
                while !is_last {
                    is_last = is_over.load(Ordering::SeqCst);
                    for (core, mailbox) in mailboxes.iter().enumerate() {
                        for letter in mailbox.take() {
                            answer(core, letter);
                        }
                    }
                    thread::yield_now();
                }
            });
            ask(&handle)
        })
    }

    /// A core that cannot use the store of unit 1. Gives the units it was to add, and those that it
    /// was to close afterwards.
    fn serve(mailbox: &Mailbox<Letter>) -> (Vec<UnitIndex>, Vec<UnitIndex>) {
        let (mut added, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        loop {
            assert!(Instant::now() < end, "the units are never closed");
            for letter in mailbox.take() {
                if let Letter::CloseUnits { units, .. } = letter {
                    return (added, units.to_vec());
                }
                let Letter::AddUnit { unit, plan, report } = letter else {
                    panic!("{letter:?}");
                };
                let name = plan.name.clone();
                let source = io::Error::other("no descriptor");
                let failed = Err(AddUnitError::Store { name, source });
                let outcome = if unit == UnitIndex(1) { failed } else { Ok(()) };
                report.send(outcome).unwrap();
                added.push(unit);
            }
            thread::yield_now();
        }
    }

    #[test]
    fn the_owner_of_a_unit_is_the_last_core_to_add_it() {
        let order = |unit, cores| cores_to_add_to(UnitIndex(unit), cores).collect::<Vec<_>>();
        assert_eq!(order(0, 3), [1, 2, 0]);
        assert_eq!(order(4, 3), [2, 0, 1]);
        assert_eq!(order(5, 3), [0, 1, 2]);
        assert_eq!(order(7, 1), [0]);
        assert_eq!(order(7, 0), []);
    }

    #[test]
    fn a_unit_that_cannot_be_added_takes_those_before_it_out_again() {
        let mailboxes = [mail::channel().unwrap(), mail::channel().unwrap()];
        let (posts, mailboxes): (Vec<_>, Vec<_>) = mailboxes.into_iter().unzip();
        let handle = Handle::new(
            posts,
            Vec::new(),
            Arc::default(),
            Arc::default(),
            Arc::default(),
        );
        thread::scope(|scope| {
            let cores = mailboxes
                .iter()
                .map(|mailbox| scope.spawn(|| serve(mailbox)));
            let cores: Vec<_> = cores.collect();
            let outcome = handle.add_units(vec![unit("a"), unit("b"), unit("c")]);
            assert!(matches!(outcome, Err(AddUnitError::Store { name, .. }) if name == "b"));
            for core in cores {
                let both = vec![UnitIndex(0), UnitIndex(1)];
                assert_eq!(core.join().unwrap(), (both.clone(), both));
            }
        });
        // The index of the unit that failed is not given again.
        assert_eq!(handle.next().unit, 2);
    }
}
