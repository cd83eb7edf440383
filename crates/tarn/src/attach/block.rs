//! `tarn attach --as block`: a block device by ublk, in front of a [`Service`].
//!
//! Requests come from the thread of the device and are handed to the disk, which takes as many as the device has under
//! way. With the child, on whose answers writes of other programs to the device
//! wait, this process shares the memory of the machine: neither takes any that is freed by such writes (`IO_FLUSHER`).

use std::io;

use reactor::ublk::{BlockControl, BlockDevice, BlockOperation, BlockRequest};

use super::disk::{Answer, Client};
use super::service::Service;
use super::{AttachArgs, wrong};
use daemon::Environment;

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
    let shape = disk.shape();
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

/// Has the disk do a request of the device.
fn hand_over(disk: &Client, request: BlockRequest) {
    let BlockRequest {
        offset,
        operation,
        answer,
    } = request;
    let answer: Answer = Box::new(move |result| answer.give(result));
    match operation {
        BlockOperation::Read(length) => disk.read(offset, length, answer),
        BlockOperation::Write { data, is_durable } => disk.write(offset, data, is_durable, answer),
        BlockOperation::Flush => disk.flush(answer),
        BlockOperation::Discard(length) => disk.discard(offset, length, answer),
        BlockOperation::Zero {
            length,
            keeps_space,
        } => disk.zero(offset, length, keeps_space, answer),
    }
}
