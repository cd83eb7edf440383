//! Several stores as one: a stripe or a concat of its *members*.
//!
//! A request of a composition is a *whole*. What it asks of one member is a *part*: a piece that lies together, of
//! a read or a write; a member's whole share, of any other request. A whole has one outcome, when all of its parts are
//! over: the worst failure of any.
//!
//! # What members share, and what happens then
//!
//! * A member that hangs, is full or cannot be reached holds up or fails the requests that touch it, and flushes. Parts
//!   that it has no room for wait for it here, in order; the engine bounds how many requests there are and what data
//!   they hold. All other requests pass.
//! * A flush goes to all members. Each remembers its own failed flush, and fails the flushes after it, so those of the
//!   composition fail, too. A durable write goes to the members that it touches.
//! * Members that differ in what does not have to be alike are taken for the lesser: see [`Composed::capabilities`].
//!   What has to be alike is refused: see [`ComposeError`].
//! * A member of a concat that is not the last has the size for good that it had when it was opened: what lies behind
//!   it never moves. The last one, and the members of a stripe, may grow.

mod handle;
mod layout;
mod plan;
pub(crate) mod slots;
#[cfg(test)]
mod tests;
mod whole;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use self::handle::Handle;
pub use self::layout::Form;
pub use self::plan::Member;
use self::plan::{Shared, merged};
use crate::{Backstore, Bottom, Capabilities, Connections, SharedStore};

/// Why stores make no composition.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ComposeError {
    /// Two block sizes.
    #[error(
        "{name} has blocks of {bytes} bytes and {first} has {first_bytes}; give all members one blocksize="
    )]
    BlockSizes {
        /// A member.
        name: String,
        /// Its block size.
        bytes: u32,
        /// The first member.
        first: String,
        /// Its block size.
        first_bytes: u32,
    },
    /// Less than is to be used of it.
    #[error(
        "{name} has {bytes} bytes and not the {wanted_bytes} of its size=; write the size that it has"
    )]
    Small {
        /// The member.
        name: String,
        /// Its size.
        bytes: u64,
        /// What is to be used.
        wanted_bytes: u64,
    },
    /// A stripe of nothing.
    #[error(
        "{name} has {bytes} bytes, less than a chunk of {chunk_bytes}; use a larger member, or a smaller chunk="
    )]
    NoChunk {
        /// The smallest member.
        name: String,
        /// Its size.
        bytes: u64,
        /// The size of a chunk.
        chunk_bytes: u64,
    },
    /// Nothing can be put behind a stripe.
    #[error("a stripe does not grow by a member; make a new disk of more members")]
    Stripe,
    /// The data behind a member of a concat would be elsewhere.
    #[error(
        "{name} has {now_bytes} bytes of the disk, and what lies behind it would move; cut it back to that size, and \
         leave size= as it was"
    )]
    Moves {
        /// The member.
        name: String,
        /// What is used of it now.
        now_bytes: u64,
    },
    /// Initiators would have to learn that the disk is another one.
    #[error(
        "{name} differs from the other members in {what}; use one that is like them, or remove the lun and add it again"
    )]
    Unlike {
        /// The new member.
        name: String,
        /// A property of the disk.
        what: &'static str,
    },
}

/// Several stores as one, for all cores.
#[derive(Debug)]
pub struct Composed(Arc<Shared>);

impl Composed {
    /// A composition of at least one member.
    ///
    /// # Errors
    ///
    /// The stores do not fit together.
    pub fn new(
        form: Form,
        mut members: Vec<Member>,
        read_only: bool,
    ) -> Result<Self, ComposeError> {
        let all = check(form, &members)?;
        if form == Form::Concat {
            freeze(&mut members, &all);
        }
        Ok(Self(Arc::new(Shared {
            form,
            read_only,
            members: Mutex::new(members.into()),
        })))
    }

    /// How its bytes are laid over the members.
    pub fn form(&self) -> Form {
        self.0.form
    }

    /// The members, in order.
    pub fn members(&self) -> Arc<[Member]> {
        self.0.members()
    }

    /// Takes over how much is used of each member of a concat, and puts members behind the last one. The handles have
    /// them after their next [`Backstore::refresh_size`]. `sizes` has the members that are there, as [`Member::bytes`];
    /// only that of the last may have grown.
    ///
    /// # Errors
    ///
    /// Data would move, or the members do not fit; nothing has changed.
    pub fn grow_by(&self, sizes: &[Option<u64>], added: Vec<Member>) -> Result<(), ComposeError> {
        let grown = self.grown_by(sizes, added)?;
        let mut place = self
            .0
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = grown.into();
        Ok(())
    }

    /// The members after [`Composed::grow_by`], which has not happened.
    ///
    /// # Errors
    ///
    /// Data would move, or the members do not fit.
    pub fn grown_by(
        &self,
        sizes: &[Option<u64>],
        added: Vec<Member>,
    ) -> Result<Vec<Member>, ComposeError> {
        if self.0.form != Form::Concat {
            return Err(ComposeError::Stripe);
        }
        let before = self.capabilities();
        let mut members = self.0.members().to_vec();
        let (count, grows) = (members.len(), added.is_empty());
        for ((number, member), wanted) in members.iter_mut().enumerate().zip(sizes) {
            let now_bytes = member
                .bytes
                .unwrap_or_else(|| member.store.capabilities().size_bytes);
            let is_last = number + 1 == count;
            match wanted {
                Some(wanted) if *wanted == now_bytes || is_last && *wanted > now_bytes => {
                    member.bytes = Some(*wanted);
                }
                None if is_last && grows => member.bytes = None,
                Some(_) | None => {
                    return Err(ComposeError::Moves {
                        name: member.name.clone(),
                        now_bytes,
                    });
                }
            }
        }
        members.extend(added);
        let all = check(self.0.form, &members)?;
        freeze(&mut members, &all);
        let after = merged(&self.0, &members, &all);
        #[rustfmt::skip] // One property a line.
        let differs = [
            (before.volatile_cache != after.volatile_cache, "whether it has a volatile cache"),
            (before.writes_through != after.writes_through, "when its writes are durable (cache=)"),
            (before.thin != after.thin, "whether unmapped blocks release their space (thin)"),
            (before.read_only != after.read_only, "whether it can be written"),
            (before.compare_and_write_bytes != after.compare_and_write_bytes, "how it compares and writes"),
        ];
        if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
            let name = members.get(count).map(|one| one.name.clone());
            let name = name.unwrap_or_default();
            return Err(ComposeError::Unlike { name, what });
        }
        Ok(members)
    }
}

impl SharedStore for Composed {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(Handle::new(Arc::clone(&self.0))?))
    }

    /// Thin, solid state and read in place is what all members are. Read-only, volatile, to be written through or
    /// in need of buffers of its own is what one of them is. The physical block is the largest.
    fn capabilities(&self) -> Capabilities {
        let members = self.0.members();
        let all: Vec<Capabilities> = members.iter().map(|one| one.store.capabilities()).collect();
        merged(&self.0, &members, &all)
    }

    fn probe_size(&self) -> io::Result<()> {
        let members = self.0.members();
        members.iter().try_for_each(|one| one.store.probe_size())
    }

    fn is_flush_latched(&self) -> bool {
        let members = self.0.members();
        members.iter().any(|one| one.store.is_flush_latched())
    }

    fn is_outdated(&self) -> bool {
        let members = self.0.members();
        members.iter().any(|one| one.store.is_outdated())
    }

    fn outage(&self) -> Option<String> {
        let members = self.0.members();
        let outages = members.iter().filter_map(|one| {
            let why = one.store.outage()?;
            Some(format!("{}: {why}", one.name))
        });
        let outages: Vec<String> = outages.collect();
        (!outages.is_empty()).then(|| outages.join("; "))
    }

    fn connections(&self) -> Option<Connections> {
        let members = self.0.members();
        let connections = members.iter().filter_map(|one| one.store.connections());
        connections.reduce(Connections::with)
    }
}

/// What the members are, if they fit together.
fn check(form: Form, members: &[Member]) -> Result<Vec<Capabilities>, ComposeError> {
    let all = members.iter().map(|one| one.store.capabilities());
    let all: Vec<Capabilities> = all.collect();
    check_blocks(members, &all)?;
    check_sizes(form, members, &all)?;
    Ok(all)
}

fn check_blocks(members: &[Member], all: &[Capabilities]) -> Result<(), ComposeError> {
    let mut pairs = members.iter().zip(all);
    let Some((first, of_first)) = pairs.next() else {
        return Ok(());
    };
    match pairs.find(|(_, one)| one.block_bytes != of_first.block_bytes) {
        None => Ok(()),
        Some((member, one)) => Err(ComposeError::BlockSizes {
            name: member.name.clone(),
            bytes: one.block_bytes,
            first: first.name.clone(),
            first_bytes: of_first.block_bytes,
        }),
    }
}

fn check_sizes(form: Form, members: &[Member], all: &[Capabilities]) -> Result<(), ComposeError> {
    for (member, one) in members.iter().zip(all) {
        let (name, bytes) = (member.name.clone(), one.size_bytes);
        if let Some(wanted_bytes) = member.bytes.filter(|wanted| *wanted > bytes) {
            return Err(ComposeError::Small {
                name,
                bytes,
                wanted_bytes,
            });
        }
        if let Form::Stripe { chunk_bytes } = form
            && bytes < chunk_bytes
        {
            return Err(ComposeError::NoChunk {
                name,
                bytes,
                chunk_bytes,
            });
        }
    }
    Ok(())
}

/// What others lie behind keeps its size.
fn freeze(members: &mut [Member], all: &[Capabilities]) {
    if let Some((_, before)) = members.split_last_mut() {
        for (member, one) in before.iter_mut().zip(all) {
            member.bytes.get_or_insert(one.size_bytes);
        }
    }
}
