//! `tarn attach --as block`: a block device by ublk, in front of a [`Service`].
//!
//! Requests come from the thread of the device and are handed to the disk, which never has more of them than
//! it takes, so that the thread does not wait. With the child, on whose answers writes of other programs to the device
//! wait, this process shares the memory of the machine: neither takes any that is freed by such writes (`IO_FLUSHER`).

use std::io;

use reactor::Errno;
use reactor::ublk::{BlockControl, BlockDevice, BlockOperation, BlockRequest, BlockShape};
use tree::{Disk as _, DiskError};

use super::disk::{Client, REQUESTS_MAX};
use super::service::Service;
use super::{AttachArgs, wrong};
use crate::Environment;

const _: () = assert!(reactor::ublk::QUEUE_DEPTH as u32 <= REQUESTS_MAX);
const _: () = assert!(reactor::ublk::ZERO_BYTES_MAX <= super::disk::ZERO_BYTES_MAX);

/// Has a block device until a signal.
pub(super) fn attach(args: &AttachArgs, environment: &Environment) -> anyhow::Result<()> {
    let failed = |error| wrong("--as", format!("{:#}", anyhow::Error::from(error)));
    let control = BlockControl::open().map_err(failed)?;
    // The child has it from here.
    let flusher = rustix::process::configure_io_flusher_behavior(true);
    flusher.map_err(|error| {
        let reason =
            format!("memory cannot be kept apart ({error}), run it as root (CAP_SYS_RESOURCE)");
        wrong("--as", reason)
    })?;
    let Some(mut service) = Service::start(args, environment)? else {
        return Ok(());
    };
    let (disk, events) = (service.disk.handle(), service.events());
    let shape = shape(&disk);
    let ended = move |outcome: io::Result<()>| {
        let why = outcome
            .err()
            .map(|error| format!("its queue broke: {error}"));
        // Nobody listens where the end has begun.
        drop(events.send(why));
    };
    let device = BlockDevice::start(
        control,
        shape,
        move |request| hand_over(&disk, request),
        ended,
    );
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            service.give_up()?;
            return Err(failed(error).into());
        }
    };
    service.announce(&device.path(), "SIGTERM")?;
    let lost = service.take_end().recv().unwrap_or_default();
    let stopped = device.stop().map_err(|error| {
        anyhow::anyhow!(
            "the device was not taken away well ({error}): what was written last may be lost"
        )
    });
    service.end(stopped, lost)
}

fn shape(disk: &Client) -> BlockShape {
    let shape = disk.shape();
    BlockShape {
        size_bytes: shape.size_bytes,
        block_bytes: shape.block_bytes,
        is_read_only: shape.is_read_only,
        can_discard: disk.can_discard(),
        can_zero: disk.can_zero(),
    }
}

/// Has the disk do a request of the device.
fn hand_over(disk: &Client, request: BlockRequest) {
    let BlockRequest {
        offset,
        operation,
        answer,
    } = request;
    let done = |result: Result<(), DiskError>| result.map(|()| Vec::new()).map_err(error_of);
    match operation {
        BlockOperation::Read(length) => {
            let answer = |result: Result<_, _>| answer.give(result.map_err(error_of));
            disk.read(offset, length, Box::new(answer));
        }
        BlockOperation::Write { data, is_durable } => {
            let answer = move |result| answer.give(done(result));
            disk.write(offset, data, is_durable, Box::new(answer));
        }
        BlockOperation::Flush => disk.flush(Box::new(move |result| answer.give(done(result)))),
        BlockOperation::Discard(length) => {
            disk.discard(
                offset,
                length,
                Box::new(move |result| answer.give(done(result))),
            );
        }
        BlockOperation::Zero {
            length,
            keeps_space,
        } => {
            let answer = move |result| answer.give(done(result));
            disk.zero(offset, length.into(), keeps_space, Box::new(answer));
        }
    }
}

const fn error_of(error: DiskError) -> Errno {
    match error {
        DiskError::Io => Errno::IO,
        DiskError::NoSpace => Errno::NOSPC,
        DiskError::ReadOnly => Errno::ROFS,
        DiskError::NotSupported => Errno::OPNOTSUPP,
    }
}
