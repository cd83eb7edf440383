//! The window of command numbers: how many commands an initiator may send.
//!
//! Spec: RFC 7143 section 4.2.2.1.

use super::session::Session;
use crate::SerialNumber;
use crate::pdu::{Bhs as _, NopInBhs, RESERVED_TAG};

impl Session {
    /// ExpCmdSN and MaxCmdSN, as a Login Response to a joining connection carries them.
    #[must_use]
    pub const fn window(&self) -> (SerialNumber, SerialNumber) {
        (self.exp_cmd_sn, self.max_cmd_sn)
    }

    /// How many commands [`Session::set_queue_limit`] may allow from now on; at least one.
    pub fn set_queue_depth(&mut self, commands: u32) {
        self.config.queue_depth = commands.max(1);
    }

    /// How many commands the session may have under way; at least one. The window shrinks as
    /// answers go out, never by moving MaxCmdSN back. True where the initiator could send nothing and gets
    /// a message that it can.
    pub fn set_queue_limit(&mut self, commands: u32) -> bool {
        self.queue_limit = commands.clamp(1, self.config.queue_depth);
        self.open_and_notify()
    }

    /// Opens the window where no answer follows that says so. An initiator that may send nothing has to get a
    /// message of its own, as nothing that it sends would be answered with the new number.
    ///
    /// Spec: RFC 7143 section 11.19: a NOP-In without a tag asks for no answer.
    pub(super) fn open_and_notify(&mut self) -> bool {
        let was_closed = self.max_cmd_sn.is_before(self.exp_cmd_sn);
        self.open_window();
        let (exp, max) = self.window();
        if !was_closed || max.is_before(exp) {
            return false;
        }
        let Some(state) = self.connections.iter_mut().flatten().next() else {
            return false;
        };
        let mut news = NopInBhs::new();
        news.initiator_task_tag = RESERVED_TAG.into();
        news.target_transfer_tag = RESERVED_TAG.into();
        news.stamp(state.transmitter.stat_sn, exp, max);
        state.transmitter.push(&news);
        true
    }

    pub(super) fn open_window(&mut self) {
        let room = self.queue_limit.saturating_sub(self.running);
        let last = self.exp_cmd_sn.plus(room).previous();
        if self.max_cmd_sn.is_before(last) {
            self.max_cmd_sn = last;
        }
    }
}
