//! What an image is found to be when it is opened.

use std::sync::Arc;

use rbd::{CallError, Image, Library, Lock, words};
use store::SharedStore;

use super::disk::RbdDisk;
use super::errno::{EXISTS, NOT_FOUND};
use super::looks::Looks;
use super::options::{Claim, RbdFailure, RbdOpenError, RbdOptions};
use super::shared::{self, Found};
use super::texts::Texts;

/// Longer files of Ceph are none.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Objects, and bytes, that are walked through at a time to see which hold data: the thread does nothing else then.
const WALK_OBJECTS: u64 = 256;
const WALK_BYTES_MAX: u64 = 1 << 30;
/// The library compares and writes one sector at a time; larger ranges it refuses (`EINVAL`).
const COMPARE_BYTES: u32 = 512;

impl RbdOptions {
    /// Looks at the image over a connection of `looks`, and gives the store. Blocks; no thread is left but those of
    /// that connection.
    ///
    /// # Errors
    ///
    /// There is no library or no such image, it cannot be a disk, or it cannot be reached.
    pub fn open(self, looks: &Looks) -> Result<Arc<dyn SharedStore>, RbdOpenError> {
        let opened = Library::load().map_err(RbdFailure::from);
        self.open_with(opened, looks)
    }

    /// Looks at the image as [`RbdOptions::open`], and neither makes it nor makes it larger. `None`: it would be made.
    ///
    /// # Errors
    ///
    /// As [`RbdOptions::open`].
    pub fn probe(self, looks: &Looks) -> Result<Option<Arc<dyn SharedStore>>, RbdOpenError> {
        let (wanted, may_write, image) = (self.size_bytes, !self.is_read_only(), self.to_string());
        let as_it_is = Self {
            size_bytes: None,
            ..self
        };
        let store = match as_it_is.open(looks) {
            Err(error) => {
                let is_missing = matches!(error.reason, RbdFailure::Image { .. });
                let would_make = is_missing && may_write && wanted.is_some();
                return if would_make { Ok(None) } else { Err(error) };
            }
            Ok(store) => store,
        };
        let actual_bytes = store.capabilities().size_bytes;
        let reason = match wanted {
            Some(wanted_bytes) if wanted_bytes > actual_bytes && !may_write => {
                RbdFailure::CannotGrow {
                    actual_bytes,
                    wanted_bytes,
                }
            }
            Some(_) | None => return Ok(Some(store)),
        };
        Err(RbdOpenError { image, reason })
    }

    /// The same with a library that is loaded.
    pub(super) fn open_with(
        self,
        library: Result<Library, RbdFailure>,
        looks: &Looks,
    ) -> Result<Arc<dyn SharedStore>, RbdOpenError> {
        let found = library.and_then(|library| Ok((library, self.look(library, looks)?)));
        match found {
            Ok((library, found)) => Ok(Arc::new(RbdDisk::new(self, library, found))),
            Err(reason) => Err(RbdOpenError {
                image: self.to_string(),
                reason,
            }),
        }
    }

    fn look(&self, library: Library, looks: &Looks) -> Result<Found, RbdFailure> {
        self.look_at_files()?;
        let cluster = looks.connect(library, &self.cluster);
        let cluster = cluster.map_err(|error| self.failed(error))?;
        let fsid = cluster.fsid().map_err(RbdFailure::Call)?;
        let pool = || cluster.pool(&self.pool, &self.namespace);
        let pool_id = pool().map_err(|error| self.failed(error))?.id();
        let open = || Image::open(pool()?, &self.image, &self.mode());
        let image = match (open(), self.size_bytes) {
            (Err(error), Some(size_bytes)) if self.may_make(error) => pool()
                .and_then(|pool| pool.create_image(&self.image, size_bytes))
                .or_else(|error| match error.errno {
                    // Somebody was quicker.
                    EXISTS => Ok(()),
                    _ => Err(error),
                })
                .and_then(|()| open()),
            (opened, _) => opened,
        };
        let image = image.map_err(|error| self.failed(error))?;
        let id = image.id().to_owned();
        let snapshot = self.snapshot.as_deref().unwrap_or_default();
        let namespace = &self.namespace;
        let medium = format!("{fsid}/{pool_id}/{namespace}/{id}");
        if let Some(before) = shared::had_before(self, (&fsid, &medium, &id)) {
            return Err(RbdFailure::Replaced { found: id, before });
        }
        // Before its lock, which may be that of this process.
        let claim = Some(Claim::new(format!("{medium}@{snapshot}"))?);
        let found = self.look_at(&image).map_err(|error| self.failed(error))??;
        let (size_bytes, stripe_bytes) = found;
        let texts = match self.is_read_only() {
            true => None,
            false => Some(Texts::find(&image, id.clone()).map_err(|error| self.failed(error))?),
        };
        Ok(Found {
            size_bytes,
            compare_and_write_bytes: compare_bytes(self.block_bytes),
            walk_bytes: stripe_bytes
                .saturating_mul(WALK_OBJECTS)
                .min(WALK_BYTES_MAX),
            texts: texts.map(Arc::new),
            claim,
            id,
            medium,
        })
    }

    /// Whether this is the error for an image that is to be made.
    fn may_make(&self, error: CallError) -> bool {
        !self.is_read_only() && error.call == "rbd_open" && error.errno == NOT_FOUND
    }

    /// Makes the image as large as it is configured. Gives its size then.
    fn grow(&self, image: &Image) -> Result<Result<u64, RbdFailure>, CallError> {
        let actual_bytes = image.size_bytes()?;
        Ok(match self.size_bytes {
            // It is the least that is wanted.
            Some(wanted_bytes) if wanted_bytes <= actual_bytes => Ok(actual_bytes),
            Some(wanted_bytes) if self.is_read_only() => Err(RbdFailure::CannotGrow {
                actual_bytes,
                wanted_bytes,
            }),
            Some(wanted_bytes) => {
                image.grow(wanted_bytes)?;
                Ok(wanted_bytes)
            }
            None => Ok(actual_bytes),
        })
    }

    /// Size and stripe unit, if the image can be a disk.
    fn look_at(&self, image: &Image) -> Result<Result<(u64, u64), RbdFailure>, CallError> {
        let block_bytes = self.block_bytes;
        if image.has_cache()? {
            return Ok(Err(RbdFailure::Cache));
        }
        if self.waits_for_lock && !self.is_read_only() && !image.has_exclusive_lock()? {
            return Ok(Err(RbdFailure::Unlocked));
        }
        let lock = match self.is_read_only() {
            true => Lock::Free,
            false => image.lock()?,
        };
        let size_bytes = match lock {
            Lock::Held {
                holder,
                is_alive: true,
            } if !self.waits_for_lock => {
                let address = holder.to_string();
                return Ok(Err(RbdFailure::Locked { address }));
            }
            // Who has it may resize it.
            Lock::Held { is_alive: true, .. } | Lock::Own { .. } => image.size_bytes()?,
            Lock::Held { .. } | Lock::Free => match self.grow(image)? {
                Ok(size_bytes) => size_bytes,
                Err(failure) => return Ok(Err(failure)),
            },
        };
        if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes.into()) {
            return Ok(Err(RbdFailure::Size {
                size_bytes,
                block_bytes,
            }));
        }
        Ok(Ok((size_bytes, image.stripe_unit_bytes()?)))
    }

    /// The libraries would write to the standard error about files that are not there.
    fn look_at_files(&self) -> Result<(), RbdFailure> {
        if let Some(path) = &self.cluster.conf {
            read(path).map_err(|reason| RbdFailure::Conf {
                path: Some(path.clone()),
                reason,
            })?;
        }
        if let Some(path) = &self.cluster.keyring {
            read(path).map_err(|reason| RbdFailure::Keyring {
                path: path.clone(),
                reason,
                user: self.user(),
            })?;
        }
        Ok(())
    }
}

/// Within so many bytes the library may compare and write for an initiator, in place of a fence.
const fn compare_bytes(block_bytes: u32) -> u32 {
    match block_bytes {
        COMPARE_BYTES => COMPARE_BYTES,
        _ => 0,
    }
}

/// Whether a file can be read; the reason if not.
fn read(path: &std::path::Path) -> Result<(), String> {
    let in_words = |error: std::io::Error| words(error.raw_os_error().unwrap_or_default());
    // Looked at before it is opened: that of a pipe would wait for somebody who writes.
    let metadata = std::fs::metadata(path).map_err(in_words)?;
    match (metadata.is_file(), metadata.len()) {
        (false, _) => Err("it is no file".to_owned()),
        (true, length) if length > FILE_BYTES_MAX => {
            Err(format!("it has {length} bytes, more than such files have"))
        }
        (true, _) => std::fs::File::open(path).map(drop).map_err(in_words),
    }
}
