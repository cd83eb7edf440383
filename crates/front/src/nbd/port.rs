//! A session as [`crate::Port`] has it for the engine.

use std::time::Duration;

use engine::Response;
use memory::{Need, Payload, Pool};
use scsi::Status;

use super::session::SessionPort;
use crate::names::CommandId;

impl SessionPort {
    pub(crate) fn arrival_of(&self, id: CommandId) -> Duration {
        self.task(id).map_or(Duration::ZERO, |task| task.arrival)
    }

    /// It was there before the command was given.
    #[inline(never)]
    pub(crate) fn request_data(&mut self, id: CommandId, length: u32) -> Option<Payload> {
        let task = self.task_mut(id)?;
        debug_assert_eq!(task.data.len(), length as usize, "data of another length");
        Some(std::mem::replace(&mut task.data, Payload::Empty))
    }

    /// A write has waited too long for its store: with its data it can be given again.
    pub(crate) fn return_data(&mut self, id: CommandId, data: Payload) {
        if let Some(task) = self.task_mut(id) {
            task.data = data;
        }
    }

    /// All commands are SIMPLE: none waits for its turn with its data in a chunk, unless memory is very short.
    pub(crate) fn leave_chunk(&mut self, id: CommandId, pool: &Pool) {
        if let Some(task) = self.task_mut(id)
            && let Payload::Received { .. } = task.data
            && let Ok(mut buffer) = pool.allocate_for(Need::GoOn, task.data.len())
        {
            task.data.copy_to(0, &mut buffer);
            task.data = buffer.into();
        }
    }

    /// Apart from the way of iSCSI, which is shorter without it.
    #[inline(never)]
    pub(crate) fn respond(&mut self, id: CommandId, response: Response<'_>) {
        if response.status == Status::Good {
            self.handle_good(id, response.data);
        } else {
            self.handle_failure(id, response.status, response.sense);
        }
    }
}
