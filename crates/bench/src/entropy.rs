//! Random bytes of the system.

use std::io;

use crate::error::BenchError;

/// `N` bytes that nobody can foretell.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], BenchError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        BenchError::system("get random bytes")(io::Error::other(error.to_string()))
    })?;
    Ok(bytes)
}
