//! Datagrams: their frames, and the operations that receive and send them.

use std::mem;

use memory::{PIECE_BYTES, Pool};

use super::Reactor;
use crate::chunks::{Chunks, FRAME_GROUP};
use crate::datagram::{DatagramRoom, HEAD_BYTES};
use crate::event::{Event, OperationId, Token};
use crate::in_flight::Key;
use crate::operation::{Operation, ReceiveHeader};
use crate::settings::{Settings, SetupError};
use crate::{Address, DatagramSocket};

/// Rooms for datagrams that leave which are kept for the next ones: those that a turn needs. More are given back.
const SPARE_ROOMS_MAX: usize = 64;

/// The size of a frame with what the kernel writes in front of a datagram.
const fn frame_bytes(settings: &Settings) -> usize {
    settings.frame_bytes.saturating_add(HEAD_BYTES)
}

/// How much of the pool the frames take, and the ring that the kernel reads them from.
pub(super) fn pool_bytes(settings: &Settings) -> usize {
    let frame_bytes = frame_bytes(settings).next_power_of_two().max(PIECE_BYTES);
    settings
        .frames
        .saturating_mul(frame_bytes)
        .saturating_mul(2)
}

/// The frames, if there are to be any.
pub(super) fn frames(settings: &Settings, pool: &Pool) -> Result<Option<Chunks>, SetupError> {
    if settings.frames == 0 {
        return Ok(None);
    }
    let frame_bytes = frame_bytes(settings);
    let frames = Chunks::new(pool, settings.frames, frame_bytes);
    frames.map(Some).map_err(|_| SetupError::PoolTooSmall {
        chunks: settings.frames,
        chunk_bytes: frame_bytes,
        pool_bytes: pool.capacity_bytes(),
    })
}

impl Reactor {
    /// Makes frames for datagrams where the reactor was made without ([`Settings::frames`]): so many of this size,
    /// beside the address of the sender. Those that are there stay as they are.
    ///
    /// # Errors
    ///
    /// The pool has no room for them now, or the kernel none.
    pub fn prepare_frames(&mut self, frames: usize, frame_bytes: usize) -> Result<(), SetupError> {
        if self.frames.is_some() {
            return Ok(());
        }
        let settings = Settings {
            frames,
            frame_bytes,
            ..Settings::default()
        };
        let made = self::frames(&settings, &self.pool)?;
        if let Some(frames) = &made {
            self.ring.register_chunks(frames, FRAME_GROUP)?;
        }
        self.frames = made;
        Ok(())
    }

    /// Receives datagrams, an [`Event::Datagram`] for each, until it is cancelled or fails. While
    /// no frame is free they wait in the socket.
    ///
    /// # Panics
    ///
    /// When the reactor has no frames ([`Settings::frames`], [`Self::prepare_frames`]).
    pub fn receive_datagrams(&mut self, socket: &DatagramSocket, token: Token) -> OperationId {
        assert!(self.frames.is_some(), "a reactor without frames");
        self.start(Operation::ReceiveDatagrams {
            token,
            socket: socket.clone(),
            header: ReceiveHeader::new(),
        })
    }

    /// Sends what `write` puts into the room that it gets, and says the length of, as one datagram: to this address, or
    /// to where the socket is connected or bound. False where it puts nothing there.
    ///
    /// All that are queued in a turn are handed over with one system call. They end without waking a turn that sleeps:
    /// [`Event::DatagramsSent`] counts them. Those that find the socket full wait for it, and may leave in another
    /// order.
    pub fn send_datagram(
        &mut self,
        socket: &DatagramSocket,
        token: Token,
        to: Option<Address>,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let room = self.spare_rooms.pop();
        let mut room = room.unwrap_or_else(DatagramRoom::new);
        let is_written = room.fill(to, write);
        if is_written {
            self.start(Operation::SendDatagram {
                token,
                socket: socket.clone(),
                room,
                at_once: true,
            });
        } else {
            self.spare_rooms.push(room);
        }
        is_written
    }

    /// A datagram is over. Events of one token that follow each other are one.
    pub(super) fn finish_datagram(&mut self, token: Token, room: Box<DatagramRoom>, is_sent: bool) {
        if self.spare_rooms.len() < SPARE_ROOMS_MAX {
            self.spare_rooms.push(room);
        }
        let (is, not) = if is_sent { (1, 0) } else { (0, 1) };
        if let Some(Event::DatagramsSent {
            token: of,
            sent,
            lost,
        }) = self.ready.last_mut()
            && *of == token
        {
            *sent += is;
            *lost += not;
            return;
        }
        self.ready.push(Event::DatagramsSent {
            token,
            sent: is,
            lost: not,
        });
    }

    /// Has a receive wait for a chunk, or for a frame.
    pub(super) fn starve(&mut self, key: Key) {
        let slot = self.in_flight.find(key);
        if slot.is_some_and(|slot| matches!(slot.operation, Operation::ReceiveDatagrams { .. })) {
            self.starved_of_frames.push(key);
        } else {
            self.starved.push(key);
        }
    }

    /// Gives free frames to the kernel, and the receives that wait for one.
    pub(super) fn restock_frames(&mut self) {
        let Some(frames) = &mut self.frames else {
            return;
        };
        frames.restock();
        if frames.ready() > 0 {
            for key in mem::take(&mut self.starved_of_frames) {
                self.submit(key);
            }
        }
    }
}
