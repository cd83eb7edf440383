//! Bugs on purpose: a checker that never fails proves nothing.

/// Something the target or its disk does wrong. No seed ever draws one; tests put them in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sabotage {
    /// Now and then the disk says that a write is done and has not done it.
    LoseWrites,
    /// Now and then the disk reads the block before the right one.
    MisplaceReads,
    /// A flush keeps nothing.
    FlushInVain,
    /// Now and then a command is not answered.
    ForgetAnswers,
    /// Now and then a command leaves a buffer behind.
    LeakBuffers,
    /// Now and then a connection is closed for no reason.
    HangUp,
}

impl Sabotage {
    /// Every kind, and the rule that must notice it.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::LoseWrites, "reads-give-what-was-written"),
        (Self::MisplaceReads, "reads-give-what-was-written"),
        (Self::FlushInVain, "reads-give-what-was-written"),
        (Self::ForgetAnswers, "one-outcome"),
        (Self::LeakBuffers, "nothing-is-left"),
        (Self::HangUp, "legal-initiators-are-not-hung-up-on"),
    ];
}
