//! A session between the front and its core.

use ::nbd::server::Terms;
use scsi::NexusId;

use super::session::Detail;
use super::tls::Tls;

/// A line on its way to the core of its session.
#[derive(Debug)]
pub struct Adoption<L> {
    /// Nothing is under way on it.
    pub(super) line: L,
    pub(super) tls: Option<Tls>,
    pub(super) detail: Detail,
    pub(super) terms: Terms,
    /// The store keeps nothing of what is written.
    pub(super) takes_at_once: bool,
    pub(super) nexus: NexusId,
    /// Bytes that came behind the handshake.
    pub(super) unread: Vec<u8>,
}

impl<L> Adoption<L> {
    /// The same on a line of another kind; `None` where there is none.
    pub(super) fn with_line<M>(self, change: impl FnOnce(L) -> Option<M>) -> Option<Adoption<M>> {
        Some(Adoption {
            line: change(self.line)?,
            tls: self.tls,
            detail: self.detail,
            terms: self.terms,
            takes_at_once: self.takes_at_once,
            nexus: self.nexus,
            unread: self.unread,
        })
    }
}
