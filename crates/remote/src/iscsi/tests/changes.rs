//! The disk becomes another one than it was found to be.

use super::*;
use crate::scsi::testing::{Medium, changes};

changes::tests!("disk of this LUN is another one now");

#[test]
fn a_target_that_was_off_without_a_cache_fails_the_next_flush_too() {
    let mut target = prepared(|medium| medium.writes_back = false);
    let mut client = client(&target, 60);
    client.write_now(0, vec![1; BLOCK]);
    target.kill();
    target.medium().attentions.push_back((0x29, 0x00));
    target.start();
    assert_eq!(client.flush_now(), Err(IoFailure::CacheLost));
    assert_eq!(client.flush_now(), Ok(()));
}

#[test]
fn a_write_that_the_target_never_took_is_not_done() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 60);
    let before = target.rules.logins.load(Ordering::SeqCst);
    target.set(|rules| &rules.ignores_data, true);
    client.write_now(0, vec![7; 64 << 10]);
    // In another session.
    assert!(target.rules.logins.load(Ordering::SeqCst) > before);
    assert_eq!(target.medium().bytes[..64 << 10], [7; 64 << 10]);
}
