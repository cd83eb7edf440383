//! What a composition of certain members is.

use std::sync::{Arc, Mutex, PoisonError};

use super::layout::{Form, Layout};
use crate::{Capabilities, SharedStore};

/// A member of a composition.
#[derive(Clone, Debug)]
pub struct Member {
    /// What errors call it.
    pub name: String,
    /// The store.
    pub store: Arc<dyn SharedStore>,
    /// Just so many bytes of it are used, which it must have. `None`: all of it.
    pub bytes: Option<u64>,
}

/// What all cores share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) form: Form,
    pub(super) read_only: bool,
    pub(super) members: Mutex<Arc<[Member]>>,
}

impl Shared {
    /// As they are now: replaced as a whole, never changed.
    pub(super) fn members(&self) -> Arc<[Member]> {
        Arc::clone(&self.members.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where the bytes are, for members that are found to be so.
pub(super) fn layout(form: Form, members: &[Member], all: &[Capabilities]) -> Layout {
    let size = |(member, one): (&Member, &Capabilities)| member.bytes.unwrap_or(one.size_bytes);
    let sizes: Vec<u64> = members.iter().zip(all).map(size).collect();
    Layout::new(form, &sizes)
}

/// What a composition of such members is.
pub(super) fn merged(shared: &Shared, members: &[Member], all: &[Capabilities]) -> Capabilities {
    let layout = layout(shared.form, members, all);
    let any = |is: fn(&Capabilities) -> bool| all.iter().any(is);
    let every = |is: fn(&Capabilities) -> bool| all.iter().all(is);
    let most = |of: fn(&Capabilities) -> u32| all.iter().map(of).max().unwrap_or_default();
    let granularity = most(|one| one.unmap_granularity_bytes);
    let unit = layout.unit();
    let compares = all.iter().map(|one| u64::from(one.compare_and_write_bytes));
    let compares = if every(|one| one.compare_and_write_bytes > 0) {
        compares.fold(unit, common_divisor)
    } else {
        0
    };
    let in_place_units = all.iter().map(|one| one.in_place_unit_bytes);
    Capabilities {
        size_bytes: layout.size(),
        block_bytes: most(|one| one.block_bytes),
        physical_block_bytes: match shared.form {
            Form::Stripe { chunk_bytes } => u32::try_from(chunk_bytes).unwrap_or(u32::MAX),
            Form::Concat => u32::MAX,
        }
        .min(most(|one| one.physical_block_bytes)),
        read_only: shared.read_only || any(|one| one.read_only),
        thin: every(|one| one.thin),
        unmap_granularity_bytes: match shared.form {
            // A member gives back what lies together on it: a row of chunks on all of them.
            Form::Stripe { chunk_bytes } if !chunk_bytes.is_multiple_of(granularity.into()) => {
                granularity.saturating_mul(u32::try_from(all.len()).unwrap_or(u32::MAX))
            }
            Form::Stripe { .. } | Form::Concat => granularity,
        },
        reads_in_place: every(|one| one.reads_in_place),
        // Of two powers of two the smaller; none is larger than any.
        in_place_unit_bytes: in_place_units.fold(unit, |unit, one| match (unit, one) {
            (0, other) | (other, 0) => other,
            (unit, one) => unit.min(one),
        }),
        needs_own_buffer: any(|one| one.needs_own_buffer),
        volatile_cache: any(|one| one.volatile_cache),
        writes_through: any(|one| one.writes_through),
        solid_state: every(|one| one.solid_state),
        compare_and_write_bytes: u32::try_from(compares).unwrap_or_default(),
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => common_divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;

    fn merged_of(form: Form, read_only: bool, all: [&Capabilities; 2]) -> Capabilities {
        let store = Arc::new(MemoryDisk::new(1 << 20, 512, false, true).unwrap());
        let member = |name: &str| Member {
            name: name.to_owned(),
            store: Arc::<MemoryDisk>::clone(&store),
            bytes: None,
        };
        let members = ["a", "b"].map(member);
        let shared = Shared {
            form,
            read_only,
            members: Mutex::new(Arc::from([])),
        };
        merged(&shared, &members, &all.map(Clone::clone))
    }

    #[test]
    fn a_composition_can_what_all_members_can_and_has_the_units_of_the_largest() {
        let one = Capabilities {
            physical_block_bytes: 4096,
            thin: true,
            unmap_granularity_bytes: 8192,
            reads_in_place: true,
            in_place_unit_bytes: 16_384,
            compare_and_write_bytes: 6144,
            ..Capabilities::plain(1 << 20, 512)
        };
        let other = Capabilities {
            physical_block_bytes: 2048,
            unmap_granularity_bytes: 4096,
            in_place_unit_bytes: 0,
            compare_and_write_bytes: 4096,
            size_bytes: 2 << 20,
            ..one.clone()
        };
        let stripe = |chunk_bytes| Form::Stripe { chunk_bytes };
        let expected = Capabilities {
            compare_and_write_bytes: 2048,
            size_bytes: 2 << 20,
            ..one.clone()
        };
        for all in [[&one, &other], [&other, &one]] {
            assert_eq!(merged_of(stripe(65_536), false, all), expected);
            let small = Capabilities {
                physical_block_bytes: 2048,
                unmap_granularity_bytes: 2 * 8192,
                in_place_unit_bytes: 2048,
                ..expected.clone()
            };
            assert_eq!(merged_of(stripe(2048), false, all), small);
            let joined = Capabilities {
                size_bytes: 3 << 20,
                ..expected.clone()
            };
            assert_eq!(merged_of(Form::Concat, false, all), joined);
        }
        // What one lacks all lack, and what one has or needs all have or need.
        type Change = fn(&mut Capabilities);
        let changes: [Change; 8] = [
            |it| it.thin = false,
            |it| it.reads_in_place = false,
            |it| it.solid_state = false,
            |it| it.compare_and_write_bytes = 0,
            |it| it.read_only = true,
            |it| it.needs_own_buffer = true,
            |it| it.volatile_cache = true,
            |it| it.writes_through = true,
        ];
        for change in changes {
            let mut changed = one.clone();
            change(&mut changed);
            let mut expected = expected.clone();
            change(&mut expected);
            assert_eq!(
                merged_of(stripe(65_536), false, [&changed, &other]),
                expected
            );
            assert_eq!(
                merged_of(stripe(65_536), false, [&other, &changed]),
                expected
            );
        }
        assert!(merged_of(Form::Concat, true, [&one, &other]).read_only);
    }
}
