//! What is counted, by cause.

use ::hyperscsi::Counters;

/// What a core has counted since it began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Frames that came.
    pub frames_in: u64,
    /// Frames that left.
    pub frames_out: u64,
    /// Frames that the system did not take: lost.
    pub unsent: u64,
    /// Copies for another core, which has them: broadcasts over UDP.
    pub misplaced: u64,
    /// Frames too short to have a header, or longer than any.
    pub strange: u64,
    /// Frames with the tag of no session.
    pub unknown_tag: u64,
    /// Questions of discovery.
    pub questions: u64,
    /// Answers to those.
    pub answers: u64,
    /// Answers that were not sent, because too many waited.
    pub answers_dropped: u64,
    /// Steps of logins.
    pub login_steps: u64,
    /// Clients that have authenticated.
    pub proved: u64,
    /// Of those, clients that got no session.
    pub refused: u64,
    /// Logins that ended without a proof of the password.
    pub unproved: u64,
    /// What sessions counted, also those that are over.
    pub sessions: Counters,
}

/// Adds what a session has counted.
pub(super) const fn add(to: &mut Counters, more: &Counters) {
    let Counters {
        frames_in,
        frames_out,
        joined,
        retransmitted,
        spurious,
        probes,
        strange,
        forged,
        stale,
        corrupt,
        no_room,
        fallbacks,
    } = more;
    to.frames_in = to.frames_in.wrapping_add(*frames_in);
    to.frames_out = to.frames_out.wrapping_add(*frames_out);
    to.joined = to.joined.wrapping_add(*joined);
    to.retransmitted = to.retransmitted.wrapping_add(*retransmitted);
    to.spurious = to.spurious.wrapping_add(*spurious);
    to.probes = to.probes.wrapping_add(*probes);
    to.strange = to.strange.wrapping_add(*strange);
    to.forged = to.forged.wrapping_add(*forged);
    to.stale = to.stale.wrapping_add(*stale);
    to.corrupt = to.corrupt.wrapping_add(*corrupt);
    to.no_room = to.no_room.wrapping_add(*no_room);
    to.fallbacks = to.fallbacks.wrapping_add(*fallbacks);
}
