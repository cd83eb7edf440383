//! Memory that a library outside works on.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Buffer, Payload};

/// What all loans have leaked, in bytes.
static LEAKED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Memory whose address a library outside may have.
pub trait Lendable {
    /// How much of it there is, in bytes.
    fn size_bytes(&self) -> usize;
}

impl Lendable for Buffer {
    fn size_bytes(&self) -> usize {
        self.capacity()
    }
}

impl Lendable for Payload {
    fn size_bytes(&self) -> usize {
        self.len()
    }
}

/// Memory that is lent to a library, which reads or writes it by its address until it says that it is done.
///
/// A library that still holds the memory when its user ends cannot be made to return it. So a loan that is dropped
/// before [`Loan::end`] leaks the memory: it is never freed, used again or unmapped, and [`leaked_bytes`] counts it.
#[must_use = "dropping a loan leaks its memory"]
pub struct Loan<T: Lendable>(Option<T>);

impl<T: Lendable> Loan<T> {
    /// Lends the memory. Take its address from `memory` before.
    pub const fn new(memory: T) -> Self {
        Self(Some(memory))
    }

    /// The library is done with the memory, and never touches it again.
    #[expect(
        clippy::expect_used,
        reason = "only this takes it, with the loan itself"
    )]
    pub fn end(mut self) -> T {
        self.0.take().expect("a loan ends once")
    }
}

impl<T: Lendable> Drop for Loan<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            LEAKED_BYTES.fetch_add(memory.size_bytes(), Ordering::Relaxed);
            let _leaked = ManuallyDrop::new(memory);
        }
    }
}

impl<T: Lendable> fmt::Debug for Loan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size_bytes = self.0.as_ref().map_or(0, T::size_bytes);
        f.debug_struct("Loan")
            .field("size_bytes", &size_bytes)
            .finish()
    }
}

/// How much memory was leaked, because libraries held it when a loan was dropped. In bytes, since the process began.
pub fn leaked_bytes() -> usize {
    LEAKED_BYTES.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn a_loan_that_ends_gives_its_memory_back_and_one_that_is_dropped_leaks_it() {
        let before = leaked_bytes();
        let pool = Pool::new(0).unwrap();
        let free = pool.free_bytes();
        let loan = Loan::new(pool.allocate(8192).unwrap());
        drop(loan.end());
        assert_eq!(pool.free_bytes(), free);
        assert_eq!(leaked_bytes(), before);

        let mut buffer = pool.allocate(8192).unwrap();
        buffer.fill(7);
        let address = buffer.address();
        drop(Loan::new(buffer));
        assert_eq!(leaked_bytes(), before + 8192);
        assert_eq!(pool.free_bytes(), free - 8192);
        drop(Loan::new(Payload::Heap(vec![1; 100])));
        assert_eq!(leaked_bytes(), before + 8292);

        // Code that still has the address finds its memory there, also after the pool is gone, and no other buffer.
        let others: Vec<Buffer> = std::iter::from_fn(|| pool.allocate(8192).ok()).collect();
        assert!(others.iter().all(|other| other.address() != address));
        drop((others, pool));
        // SAFETY: the buffer is leaked, so its memory stays mapped and nobody else uses it.
        let bytes = unsafe { std::slice::from_raw_parts(address.as_ptr(), 8192) };
        assert_eq!(bytes, [7; 8192]);
    }
}
