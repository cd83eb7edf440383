//! What an administrator changes of HyperSCSI, and asks about it.

use std::sync::{Arc, mpsc};

use front::hyperscsi::{Group, Place};
use reactor::{Site, SiteSocket};

use crate::counters::HyperscsiReport;
use crate::handle::{ANSWER_PATIENCE, Handle};
use crate::letter::Letter;
use crate::plan::Hyperscsi;
use crate::receipt::{Confirmation, NoAnswer, receipt};

impl Handle {
    /// Serves these groups of HyperSCSI from now on, and no others. Confirmed when sessions of what is gone are over,
    /// and nothing is under way on devices that were taken out of a group that stays. A change that is not confirmed
    /// will still be done: a core reads its letters in order.
    pub fn set_hyperscsi(&self, wanted: Hyperscsi) -> Confirmation {
        let Hyperscsi {
            server,
            groups,
            open,
        } = wanted;
        let groups: Arc<[Group]> = groups.into();
        let (held, returned) = receipt();
        let mut sockets: Vec<Vec<(Place, SiteSocket)>> = Vec::new();
        sockets.resize_with(self.posts.len(), Vec::new);
        for (place, site) in open {
            for (own, socket) in sockets.iter_mut().zip(Site::into_sockets(site)) {
                own.push((place.clone(), socket));
            }
        }
        for (post, sockets) in self.posts.iter().zip(sockets) {
            post.push(Letter::SetHyperscsi {
                server: server.clone(),
                groups: Arc::clone(&groups),
                sockets,
                receipt: held.clone(),
            });
        }
        returned
    }

    /// What HyperSCSI has counted on each core, and which of its places are away.
    ///
    /// # Errors
    ///
    /// A core does not answer.
    pub fn hyperscsi(&self) -> Result<Vec<HyperscsiReport>, NoAnswer> {
        let (report, reports) = mpsc::channel();
        for post in &self.posts {
            post.push(Letter::ReportHyperscsi(report.clone()));
        }
        drop(report);
        let mut all = Vec::new();
        for _ in &self.posts {
            let one = reports.recv_timeout(ANSWER_PATIENCE);
            all.push(one.map_err(|_| NoAnswer)?);
        }
        all.sort_by_key(|report| report.core);
        Ok(all)
    }
}
