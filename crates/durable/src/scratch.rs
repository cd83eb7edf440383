//! Directories for tests, gone when the test ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of its own for one test.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new directory.
    ///
    /// # Panics
    ///
    /// It cannot be made.
    #[expect(clippy::expect_used, reason = "a test cannot go on without it")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tarn-test-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a fresh directory");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left for the system to clean.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}
