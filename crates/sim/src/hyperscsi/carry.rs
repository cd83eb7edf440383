//! What the host of the simulated world carries for HyperSCSI, beside what it carries for iSCSI.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ::hyperscsi::limits::FRAME_MAX_BYTES;
use engine::{Engine, SessionKey};
use front::Station;
use front::hyperscsi::{self, FrameSizes, Group, Place, PlaceKey, Server};
use front::{Others, Port};

use crate::host::Host;
use crate::host::{Core, Outside};
use crate::letter::{Letter, Receipt};

/// The sessions that are not of iSCSI.
pub(crate) struct Beside<'a>(pub(crate) &'a mut hyperscsi::Sessions<Outside>);

impl Others<Outside> for Beside<'_> {
    fn handle_events(&mut self, engine: &mut Engine<Outside>, session: SessionKey) {
        self.0.handle_events(engine, session);
    }

    fn note_ready(&mut self, _: &Engine<Outside>, session: SessionKey) {
        self.0.note_ready(session);
    }

    fn handle_over(&mut self, engine: &mut Engine<Outside>, port: Port) {
        if let Port::Hyperscsi(port) = port {
            self.0.handle_over(engine, &port);
        }
    }
}

impl hyperscsi::Wire for Outside {
    type HyperscsiSocket = ();

    fn send_frame(
        &mut self,
        (): &(),
        key: PlaceKey,
        to: Station,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let mut room = [0; FRAME_MAX_BYTES as usize];
        let Some(frame) = write(&mut room).and_then(|length| room.get(..length)) else {
            return false;
        };
        self.frames.push((key, to, frame.to_vec()));
        true
    }

    fn post_letter(&mut self, core: usize, letter: hyperscsi::Letter) {
        self.post_any(core, Letter::Hyperscsi(letter));
    }

    fn report(&mut self, _: hyperscsi::Notice<'_>) {}
}

impl Core {
    /// A frame has come at the only place.
    pub(crate) fn handle_frame(&mut self, from: Station, frame: &[u8]) {
        if let Some(place) = self.hyperscsi.place_keys().first() {
            self.hyperscsi
                .handle_frame(&mut self.engine, *place, from, frame);
        }
    }

    /// Takes the frames that are to leave.
    pub(crate) fn take_frames(&mut self) -> Vec<(Station, Vec<u8>)> {
        let frames = std::mem::take(&mut self.engine.carrier.frames);
        let left = frames.into_iter().map(|(place, to, frame)| {
            self.hyperscsi.handle_sent(place, 1, 0);
            (to, frame)
        });
        left.collect()
    }
}

impl Host {
    /// Serves these groups at one place from now on. Gives what is gone when every core has done all that it takes.
    pub fn set_groups(
        &mut self,
        (server, groups): (&Server, &Arc<[Group]>),
        (place, sizes): (&Place, FrameSizes),
        now: Duration,
    ) -> Weak<()> {
        let receipt: Receipt = Rc::new(());
        for core in &mut self.cores {
            core.turn(now, |core| {
                let what = (server.clone(), Arc::clone(groups));
                let door = vec![(place.clone(), (), sizes)];
                let changed = core
                    .hyperscsi
                    .set_groups(&mut core.engine, what, door, &receipt);
                for key in changed.opened {
                    core.hyperscsi.set_sizes(&mut core.engine, key, sizes);
                }
            });
        }
        Rc::downgrade(&receipt)
    }

    /// A frame has come, at the core of its station.
    pub fn handle_frame(&mut self, from: Station, frame: &[u8], now: Duration) {
        let core = from.core(self.cores.len());
        self.cores[core].turn(now, |core| core.handle_frame(from, frame));
    }

    /// Takes the frames that are to leave.
    pub fn take_frames(&mut self, now: Duration) -> Vec<(Station, Vec<u8>)> {
        let mut all = Vec::new();
        for core in &mut self.cores {
            while !core.engine.carrier.frames.is_empty() {
                all.extend(core.turn(now, Core::take_frames));
            }
        }
        all
    }

    /// All sessions of HyperSCSI end.
    pub fn end_hyperscsi(&mut self, now: Duration) {
        for core in &mut self.cores {
            let end =
                |core: &mut Core| core.hyperscsi.end_all(&mut core.engine, "the life is over");
            core.turn(now, end);
        }
    }
}
