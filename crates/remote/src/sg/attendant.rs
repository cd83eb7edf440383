//! The threads of a device: one has the node and watches it, the others carry commands out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::node::Node;
use super::options::ScsiOptions;
use crate::attendants::{spawn, wait};
use crate::device::shared::Shared;

/// Commands under way at a time, of a device that may have several.
const THREADS_MAX: usize = 8;
/// How often a device that is gone is looked for, and one that is there watched.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the thread.
pub(super) fn begin(shared: &Arc<Shared>, options: ScsiOptions, node: Node) {
    let attendant = Attendant {
        shared: Arc::clone(shared),
        options,
    };
    if let Err(error) = spawn("tarn-scsi", move || attendant.run(node)) {
        shared.link.note_gone(&error);
    }
}

struct Attendant {
    shared: Arc<Shared>,
    options: ScsiOptions,
}

impl Attendant {
    fn run(self, node: Node) {
        let mut found = Some(node);
        let mut gives_up_at = Instant::now() + self.options.retry;
        while !self.shared.is_ended() {
            if let Some(node) = found.take() {
                self.shared.begin_session();
                self.serve(&node);
                if self.shared.is_ended() {
                    break;
                }
                self.shared.link.lose_session("the device is gone");
                gives_up_at = Instant::now() + self.options.retry;
            }
            if gives_up_at <= Instant::now() {
                self.shared.give_up();
            }
            self.shared.link.note_held(self.shared.waiting() as u64);
            match self.find() {
                Ok(node) => found = Some(node),
                Err(reason) => {
                    self.shared.link.note_reason(reason);
                    self.wait(None);
                }
            }
        }
        self.shared.link.end_session();
    }

    /// Looks whether the device is there again. An error: why it cannot be used.
    fn find(&self) -> Result<Node, String> {
        let node = Node::open(&self.options.path).map_err(|error| error.to_string())?;
        let found = node.look().map_err(|error| crate::words(&error))?;
        self.shared.renew(found)?;
        Ok(node)
    }

    /// Carries commands out until the device is gone or nobody has the store.
    fn serve(&self, node: &Node) {
        let is_gone = AtomicBool::new(false);
        let count = self.shared.depth().min(THREADS_MAX);
        thread::scope(|scope| {
            for _ in 0..count {
                let worker = thread::Builder::new().name("tarn-scsi-io".to_owned());
                let work = || self.work(node, &is_gone);
                if let Err(error) = worker.spawn_scoped(scope, work) {
                    // Those that there are go on; without any it is tried again.
                    tracing::warn!(%error, "a thread for a SCSI device cannot be started");
                }
            }
            while !self.shared.is_ended() && !is_gone.load(Ordering::SeqCst) {
                if self.wait(Some(node)) {
                    is_gone.store(true, Ordering::SeqCst);
                }
            }
            self.shared.wake_workers();
        });
    }

    /// Waits a moment, for the end of the store or of a device. True: the device is gone.
    fn wait(&self, node: Option<&Node>) -> bool {
        let mut places = vec![PollFd::new(&self.shared.link.event, PollFlags::IN)];
        // That it hangs up is always reported.
        places.extend(node.map(|node| PollFd::new(node, PollFlags::empty())));
        wait(&mut places, PAUSE);
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let device = places.get(1);
        device.is_some_and(|device| device.revents().intersects(gone))
    }

    fn work(&self, node: &Node, is_gone: &AtomicBool) {
        while !self.shared.is_ended() && !is_gone.load(Ordering::SeqCst) {
            let Some(command) = self.shared.take(|_| true) else {
                self.shared.wait_for_work(PAUSE);
                continue;
            };
            let (result, is_lost) = node.execute(&command);
            if is_lost {
                is_gone.store(true, Ordering::SeqCst);
                self.shared.link.wake();
            }
            self.shared.end(&command, result);
        }
    }
}
