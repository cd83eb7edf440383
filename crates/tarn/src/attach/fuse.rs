//! `tarn attach --as fuse:DIR`: a mount with the file `disk`, in front of a [`Service`].

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use tree::Mounted;

use super::service::Service;
use super::{AttachArgs, wrong};
use crate::Environment;

/// Mounts a disk until a signal.
pub(super) fn attach(
    args: &AttachArgs,
    directory: &Path,
    environment: &Environment,
) -> anyhow::Result<()> {
    let failed =
        |error: tree::MountError| wrong("--as", format!("{:#}", anyhow::Error::from(error)));
    tree::usable(directory).map_err(failed)?;
    let Some(mut service) = Service::start(args, environment)? else {
        return Ok(());
    };
    let mounted = match Mounted::of_disk(Arc::new(service.disk.handle()), directory) {
        Ok(mounted) => mounted,
        Err(error) => {
            service.give_up()?;
            return Err(failed(error).into());
        }
    };
    let until = format!("umount {} or SIGTERM", directory.display());
    service.announce(&directory.join("disk"), &until)?;
    let arrived = service.take_end();
    let (told, lost) = channel();
    let outcome = mounted.wait(move |stopper| {
        let why = arrived.recv().unwrap_or_default();
        // Nobody listens where it was unmounted by another one.
        drop(told.send(why));
        stopper.stop();
    });
    service.end(
        outcome.map_err(anyhow::Error::from),
        lost.try_recv().ok().flatten(),
    )
}
