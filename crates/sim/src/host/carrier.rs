//! What leaves a simulated core is put down for the world to carry.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use engine::{
    Carrier, Ending, Life, News, PartKey, Phase, Save, StoreWork, TargetIndex, UnitIndex,
};
use front::Station;
use front::hyperscsi::PlaceKey;
use front::iscsi::{Detail, FrontLetter, LineKey, Notice, Wire};
use front::{Command, CommandId, Port, SendEnd};
use iscsi::target::Receive;
use memory::{Buffer, Message, Pool};
use scsi::Status;
use store::{Descriptor, SocketTag, Waker};

use super::line::{Link, Sending, UnderWay};
use crate::letter::{Letter, Receipt};
use crate::prng::Prng;
use crate::sabotage::Saboteur;
use crate::setup::Settings;

/// What one core has put down.
#[derive(Debug)]
pub struct Outside {
    index: usize,
    /// Letters of this core to itself.
    pub(super) own_letters: VecDeque<Letter>,
    /// Letters to others, and to whom.
    pub(super) posted: Vec<(usize, Letter)>,
    pub(crate) links: BTreeMap<usize, UnderWay>,
    /// Links that were shut, for the world to close.
    pub(super) closed: Vec<usize>,
    /// Frames of HyperSCSI that are to leave.
    pub(crate) frames: Vec<(PlaceKey, Station, Vec<u8>)>,
    /// A state of the unit that is to be saved.
    pub(super) to_save: Option<Save>,
    pub(crate) saboteur: Saboteur,
    pool: Pool,
    prng: Prng,
    /// How long a command may wait for fences.
    fence_timeout: Duration,
    /// What was found to be wrong with the engine.
    pub(crate) broken: Option<&'static str>,
}

impl Outside {
    pub(super) fn new(index: usize, settings: &Settings, pool: Pool, prng: &Prng) -> Self {
        let stream = |name| Prng::stream(prng.clone().next_u64(), &format!("{name} {index}"));
        Self {
            index,
            own_letters: VecDeque::new(),
            posted: Vec::new(),
            links: BTreeMap::new(),
            closed: Vec::new(),
            frames: Vec::new(),
            to_save: None,
            saboteur: Saboteur::new(settings.sabotage, stream("saboteur")),
            pool,
            prng: stream("outside"),
            fence_timeout: settings.fence_timeout,
            broken: None,
        }
    }

    pub(crate) fn post_any(&mut self, core: usize, letter: Letter) {
        if core == self.index {
            self.own_letters.push_back(letter);
        } else {
            self.posted.push((core, letter));
        }
    }
}

impl Carrier for Outside {
    type Port = Port;
    /// The simulated disk does nothing on a ring, nor by a helper.
    type Operation = Infallible;
    type Receipt = Receipt;
    type Account = ();

    fn post(&mut self, core: usize, unit: UnitIndex, letter: engine::Letter) {
        self.post_any(core, Letter::Unit(unit, Box::new(letter)));
    }

    fn begin(&mut self, part: PartKey, work: StoreWork) -> Infallible {
        unreachable!("{part:?} asks for {work:?}")
    }

    /// The world wakes cores by itself.
    fn waker(&self, _: UnitIndex) -> Waker {
        Waker::new(|| {})
    }

    fn open_socket(&mut self, _: UnitIndex, socket: SocketTag, _: Descriptor) -> bool {
        unreachable!("the disk opens {socket:?}")
    }

    fn close_socket(&mut self, _: UnitIndex, socket: SocketTag) {
        unreachable!("the disk closes {socket:?}")
    }

    fn cancel(&mut self, operation: Infallible) {
        match operation {}
    }

    fn save(&mut self, _: UnitIndex, save: Save) {
        debug_assert!(self.to_save.is_none(), "one state at a time is saved");
        self.to_save = Some(save);
    }

    fn lend_chunk(&mut self, _: &Rc<Buffer>) -> bool {
        self.prng.chance(500)
    }

    fn notify(&mut self, news: News) {
        if let News::Broken(what) = news {
            self.broken.get_or_insert(what);
        }
    }

    fn series(&mut self, _: UnitIndex, _: &Port) -> u32 {
        0
    }

    fn account(_: u32, _: &Port, _: CommandId, _: &Command) {}

    fn note_answer(&mut self, (): (), _: Status) {
        self.saboteur.leak(&self.pool);
    }

    fn note_wait(&mut self, (): ()) {}

    fn note_end(&mut self, (): (), _: Ending, life: Life) {
        self.saboteur.leak(&self.pool);
        // No command here has more than one request that a fence can stop.
        let mut phases = life.phases().into_iter();
        let fences = phases.find(|time| time.phase == Phase::Fence);
        if fences.is_some_and(|time| time.took > self.fence_timeout) {
            let what = "a command waits for fences after its deadline";
            self.broken.get_or_insert(what);
        }
    }

    fn note_starved(&mut self) {}
}

impl Wire for Outside {
    type Line = Link;

    fn context(&self) -> &() {
        &()
    }

    fn receive(&mut self, line: &Link, key: LineKey, how: Receive) {
        let link = self.links.entry(line.0).or_default();
        debug_assert!(link.receiving.is_none(), "two receives on {line:?}");
        link.receiving = Some((key, how));
    }

    /// A send that nobody waits for may find room for all of it.
    fn send(&mut self, line: &Link, key: LineKey, message: Message, end: SendEnd) {
        let link = self.links.entry(line.0).or_default();
        let is_free = link.sending.is_none() && link.unwatched.is_none();
        debug_assert!(is_free, "two sends on {line:?}");
        if end == SendEnd::Waits && self.prng.chance(700) {
            link.buffered.extend(message.to_vec());
            link.unwatched = Some((key, message));
        } else {
            link.sending = Some(Sending::new(key, message));
        }
    }

    fn shut(&mut self, line: &Link) {
        let link = self.links.entry(line.0).or_default();
        if !std::mem::replace(&mut link.is_shut, true) {
            self.closed.push(line.0);
        }
    }

    /// What is said is lost with the link, as it may be in life.
    fn send_last(&mut self, line: Link, _: &Message) {
        self.shut(&line);
    }

    fn post_letter(&mut self, core: usize, letter: FrontLetter<Link>) {
        if let FrontLetter::Adopt(adoption) = &letter {
            let under_way = self.links.remove(&adoption.line.0).unwrap_or_default();
            debug_assert!(
                under_way.receiving.is_none() && under_way.sending.is_none(),
                "{under_way:?} on a line that leaves"
            );
        }
        self.post_any(core, Letter::Front(letter));
    }

    fn takes_cold_reset(&self, _: TargetIndex) -> bool {
        false
    }

    fn note_send(&mut self, _: &Detail, _: Duration, _: usize) {}

    fn report(&mut self, _: Notice<'_>) {}
}
