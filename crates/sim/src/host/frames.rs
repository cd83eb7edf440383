//! What the host of the simulated world carries for HyperSCSI, beside what it carries for iSCSI.

use std::time::Duration;

use front::Station;

use super::{Core, Host};

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
