//! What the host of the simulated world carries for HyperSCSI, beside what it carries for iSCSI.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use front::Station;
use front::hyperscsi::{FrameSizes, Group, Place, Server};

use crate::host::{Core, Host};
use crate::letter::Receipt;

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
        let frames = std::mem::take(&mut self.engine.carrier.lines.frames);
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
            while !core.engine.carrier.lines.frames.is_empty() {
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
