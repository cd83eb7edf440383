//! Files that outlive a crash: replaced as a whole, and known to be whole when they are read.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `replace` | the one way in which Tarn replaces a file |
//! | `seal` | length and checksum of a text, and the copy of its last good version |
//!
//! Knows nothing of what the files hold.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod replace;
mod seal;

pub use replace::{
    NotReplaced, TEMPORARY, make, make_like, make_private_directory, open_private, replace,
    replace_content, try_replace,
};
pub use seal::{
    Damage, FILE_BYTES_MAX, Found, copy_of, open, read, read_bytes, seal, sum_of, write,
    write_copy, write_with_copy,
};

#[cfg(any(test, feature = "testing"))]
pub mod scratch;
