//! The hosts at the other end of the connections, and the recent state of the network to each.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::Inquirer;
use super::tcp::{Asker, Connection, Counts};

/// Between two questions to the kernel, at least.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The same where nobody waits for it: for each question the kernel goes through all connections of the machine.
const WATCH_EVERY: Duration = Duration::from_secs(15);

/// A host with connections to the daemon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Host {
    pub(super) address: IpAddr,
    /// The connection with the smallest segments.
    pub(super) narrowest: Connection,
    /// Of the segment of all connections that timed out most often in a row.
    pub(super) timeouts: u8,
    /// Of all connections together, since the look before; since they began, if that is newer.
    pub(super) counts: Counts,
}

/// The network, looked at from time to time.
#[derive(Debug)]
pub(super) struct Network {
    /// `None` where the kernel does not answer such questions.
    asker: Option<Asker>,
    last: Option<Instant>,
    counts: BTreeMap<SocketAddr, Counts>,
    hosts: Vec<Host>,
}

impl Network {
    /// To be called before the process gives up what it may.
    pub(super) fn open() -> Self {
        let asker = Asker::open().inspect_err(|error| {
            tracing::debug!(%error, "cannot read TCP connections from the kernel");
        });
        Self {
            asker: asker.ok(),
            last: None,
            counts: BTreeMap::new(),
            hosts: Vec::new(),
        }
    }

    /// The hosts that came to one of the portals, as of now or of a moment ago.
    pub(super) fn hosts(
        &mut self,
        now: Instant,
        portals: &[SocketAddr],
        inquirer: Inquirer,
    ) -> Vec<Host> {
        let pause = match inquirer {
            Inquirer::Administrator => LOOK_EVERY,
            Inquirer::Watch => WATCH_EVERY,
        };
        let is_due = |last: Instant| now.saturating_duration_since(last) >= pause;
        if self.last.is_none_or(is_due)
            && let Some(asker) = &mut self.asker
        {
            self.last = Some(now);
            match asker.connections(portals) {
                Ok(connections) => self.take(&connections),
                Err(error) => {
                    tracing::debug!(%error, "cannot read TCP connections from the kernel")
                }
            }
        }
        self.hosts.clone()
    }

    fn take(&mut self, connections: &[Connection]) {
        let mut hosts: BTreeMap<IpAddr, Host> = BTreeMap::new();
        for connection in connections {
            let before = self.counts.get(&connection.peer).copied();
            let since = connection.counts.since(before.unwrap_or_default());
            let address = connection.peer.ip();
            let host = hosts.entry(address).or_insert_with(|| Host {
                address,
                narrowest: *connection,
                timeouts: 0,
                counts: Counts::default(),
            });
            if connection.segment_bytes < host.narrowest.segment_bytes {
                host.narrowest = *connection;
            }
            host.timeouts = host.timeouts.max(connection.timeouts);
            host.counts.add(since);
        }
        let counts = connections.iter().map(|one| (one.peer, one.counts));
        self.counts = counts.collect();
        self.hosts = hosts.into_values().collect();
    }
}

impl Counts {
    /// What came since then. A connection that took the place of another began at zero.
    fn since(self, before: Self) -> Self {
        if self.segments < before.segments || self.busy_us < before.busy_us {
            return self;
        }
        Self {
            segments: self.segments - before.segments,
            again: self.again.saturating_sub(before.again),
            busy_us: self.busy_us - before.busy_us,
            window_us: self.window_us.saturating_sub(before.window_us),
            buffer_us: self.buffer_us.saturating_sub(before.buffer_us),
        }
    }

    fn add(&mut self, other: Self) {
        self.segments = self.segments.saturating_add(other.segments);
        self.again = self.again.saturating_add(other.again);
        self.busy_us = self.busy_us.saturating_add(other.busy_us);
        self.window_us = self.window_us.saturating_add(other.window_us);
        self.buffer_us = self.buffer_us.saturating_add(other.buffer_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: u16, segment_bytes: u32, segments: u32, again: u32) -> Connection {
        Connection {
            peer: SocketAddr::from(([192, 0, 2, 1], port)),
            segment_bytes,
            own_segment_bytes: 8960,
            path_mtu: 9000,
            timeouts: 0,
            counts: Counts {
                segments,
                again,
                busy_us: u64::from(segments),
                ..Counts::default()
            },
        }
    }

    #[test]
    fn an_administrator_has_the_kernel_asked_sooner_than_the_watch() {
        let mut network = Network {
            asker: Asker::open().ok(),
            last: None,
            counts: BTreeMap::new(),
            hosts: Vec::new(),
        };
        let begin = Instant::now();
        let mut asked = |seconds, inquirer| {
            let now = begin + Duration::from_secs(seconds);
            network.hosts(now, &[], inquirer);
            network.last == Some(now)
        };
        assert!(asked(0, Inquirer::Watch), "the first time");
        assert!(!asked(5, Inquirer::Watch) && !asked(1, Inquirer::Administrator));
        assert!(asked(5, Inquirer::Administrator));
        assert!(!asked(15, Inquirer::Watch), "it has been asked meanwhile");
        assert!(asked(20, Inquirer::Watch));
    }

    #[test]
    fn a_host_is_the_sum_of_its_connections_since_the_look_before() {
        let mut network = Network {
            asker: None,
            last: None,
            counts: BTreeMap::new(),
            hosts: Vec::new(),
        };
        network.take(&[connection(1, 8948, 100, 1), connection(2, 1448, 10, 0)]);
        let [host] = &network.hosts[..] else {
            panic!("one host")
        };
        assert_eq!((host.counts.segments, host.counts.again), (110, 1));
        assert_eq!(host.narrowest.segment_bytes, 1448);
        // The first went on, the second is another now.
        network.take(&[connection(1, 8948, 150, 4), connection(2, 8948, 5, 2)]);
        let host = &network.hosts[0];
        assert_eq!((host.counts.segments, host.counts.again), (55, 5));
        assert_eq!(host.narrowest.segment_bytes, 8948);
        network.take(&[]);
        assert_eq!(network.hosts, []);
    }
}
