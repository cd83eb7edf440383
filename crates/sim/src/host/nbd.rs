//! What the host of the simulated world carries for NBD, beside what it carries for iSCSI.

use std::net::SocketAddr;
use std::time::Duration;

use front::testing::{Noted, TestLine};
use iscsi::target::Receive;

use super::{Core, Host};

/// Where the client of a link comes from: all have one address.
fn peer(link: usize) -> SocketAddr {
    let port = u16::try_from(link % 60_000).unwrap_or_default();
    SocketAddr::from(([10, 0, 1, 1], port + 1))
}

impl Core {
    fn accept_nbd(&mut self, link: usize) {
        let line = TestLine {
            number: link,
            peer: peer(link),
            portal: SocketAddr::from(([10, 0, 0, 2], 10_809)),
            has_had_all: false,
            noted: Noted::default(),
        };
        if let Some(front) = &mut self.nbd.front {
            front.accept(&mut self.engine, line, "nbd".into());
        }
    }

    fn end_nbd(&mut self) {
        self.nbd.end_all(&mut self.engine, "the life is over");
        if let Some(front) = &mut self.nbd.front {
            front.close_all(&mut self.engine);
        }
    }
}

impl Host {
    /// A client of NBD has connected.
    pub fn accept_nbd(&mut self, link: usize, now: Duration) {
        self.places.insert(link, 0);
        self.cores[0].turn(now, |core| core.accept_nbd(link));
    }

    /// The target receives on a link into a buffer, which is to be filled.
    pub fn wants_all(&mut self, link: usize) -> bool {
        let core = self.core_of(link);
        let under_way = core.and_then(|core| core.engine.carrier.lines.all.get(&link));
        let receiving = under_way.and_then(|under_way| under_way.receiving.as_ref());
        receiving.is_some_and(|(_, how)| matches!(how, Receive::Exact { .. }))
    }

    /// What is being sent on a link fails.
    pub fn fail_output(&mut self, link: usize, now: Duration) {
        if let Some(core) = self.core_of(link) {
            core.turn(now, |core| core.fail_output(link));
        }
    }

    /// All sessions and handshakes of NBD end.
    pub fn end_nbd(&mut self, now: Duration) {
        for core in &mut self.cores {
            core.turn(now, Core::end_nbd);
        }
    }
}
