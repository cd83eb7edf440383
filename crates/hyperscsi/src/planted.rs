//! Bugs that tests plant, to show that the simulated wire finds them. Without tests there are none.

/// A bug.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Bug {
    /// A request that comes twice is given out twice.
    Duplicates,
    /// Checksums are not looked at.
    Checksum,
    /// What is lost at the end of a burst is not asked for.
    Probe,
    /// A PDU that arrived wrong is not sent again.
    Void,
    /// Frames stay too large for the path.
    FrameSize,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this bug is planted in this thread.
#[cfg(test)]
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.with(|planted| planted.get() == Some(bug))
}

#[cfg(not(test))]
pub(crate) const fn has(bug: Bug) -> bool {
    let _none_is_planted = bug;
    false
}

/// Plants a bug in this thread, or removes it.
#[cfg(test)]
pub(crate) fn plant(bug: Option<Bug>) {
    PLANTED.with(|planted| planted.set(bug));
}
