//! Zeros for everyone: one read-only field that takes no memory.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use memory::{BUFFER_BYTES_MAX, CoreMapping, Mapping};

/// How many zeros there are in one piece, in bytes: as many as the largest transfer needs.
pub(crate) const ZEROS_BYTES: usize = BUFFER_BYTES_MAX;

static FIELD: Mutex<Option<Arc<Mapping>>> = Mutex::new(None);

/// [`ZEROS_BYTES`] zeros for the calling core.
pub(crate) fn for_this_core() -> io::Result<Rc<CoreMapping>> {
    let mut field = FIELD.lock().unwrap_or_else(PoisonError::into_inner);
    let mapping = match &*field {
        Some(mapping) => Arc::clone(mapping),
        None => Arc::clone(field.insert(Arc::new(Mapping::zeros(ZEROS_BYTES)?))),
    };
    drop(field);
    Ok(CoreMapping::new(&mapping))
}
