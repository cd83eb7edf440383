//! What stands for the files of stores where there are none.

/// The file of a store. There is no such value here.
#[derive(Debug)]
pub enum StoreFile {}
