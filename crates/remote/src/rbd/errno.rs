//! Error numbers of the system that mean something of their own here.

pub(super) const NOT_PERMITTED: i32 = 1;
pub(super) const NOT_FOUND: i32 = 2;
pub(super) const INPUT_OUTPUT: i32 = 5;
pub(super) const AGAIN: i32 = 11;
pub(super) const DENIED: i32 = 13;
/// `EFAULT`
pub(super) const NO_BUFFER: i32 = 14;
/// Another client has the lock and keeps it, as with `READ_ONLY`; or something is in use.
pub(super) const BUSY: i32 = 16;
pub(super) const EXISTS: i32 = 17;
pub(super) const INVALID: i32 = 22;
pub(super) const NO_SPACE: i32 = 28;
/// `EROFS`
pub(super) const READ_ONLY: i32 = 30;
/// `EILSEQ`
pub(super) const DIFFERENT: i32 = 84;
pub(super) const NOT_SUPPORTED: i32 = 95;
pub(super) const NOT_CONNECTED: i32 = 107;
/// `ESHUTDOWN`: this client was blocklisted.
pub(super) const BLOCKLISTED: i32 = 108;
pub(super) const TIMED_OUT: i32 = 110;
pub(super) const ALREADY: i32 = 114;
pub(super) const QUOTA: i32 = 122;
pub(super) const CANCELED: i32 = 125;
