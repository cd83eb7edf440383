//! The hosts at the other end of the connections, and the recent state of the network to each.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::tcp::{Asker, Connection, Counts};

/// Between two questions to the kernel, at least.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The same while nothing happens: the kernel goes through all connections of the machine for one question.
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(30);

/// Cores that turn less often in a second, all together, have no traffic beyond pings.
const IDLE_TURNS: u64 = 50;

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
    /// How often the cores had turned at the last call, and when that was.
    turns: Option<(u64, Instant)>,
    /// Nothing has happened since the last question.
    is_idle: bool,
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
            turns: None,
            is_idle: false,
            counts: BTreeMap::new(),
            hosts: Vec::new(),
        }
    }

    /// The hosts that came to one of the portals, as of now or of a moment ago; `turns` is how often the cores have
    /// turned.
    pub(super) fn hosts(&mut self, now: Instant, portals: &[SocketAddr], turns: u64) -> Vec<Host> {
        if self.is_due(now, turns)
            && let Some(asker) = &mut self.asker
        {
            self.last = Some(now);
            self.is_idle = true;
            match asker.connections(portals) {
                Ok(connections) => self.take(&connections),
                Err(error) => {
                    tracing::debug!(%error, "cannot read TCP connections from the kernel")
                }
            }
        }
        self.hosts.clone()
    }

    /// Whether the kernel is to be asked again. Where something has happened since the last question, or a peer did not
    /// acknowledge by then, that is soon.
    fn is_due(&mut self, now: Instant, turns: u64) -> bool {
        let before = self.turns.replace((turns, now));
        let is_quiet = before.is_some_and(|(before, at)| {
            let seconds = now.saturating_duration_since(at).as_secs().max(1);
            turns.saturating_sub(before) < IDLE_TURNS * seconds
        });
        self.is_idle &= is_quiet && self.hosts.iter().all(|host| host.timeouts == 0);
        let pause = if self.is_idle {
            LOOK_EVERY_IDLE
        } else {
            LOOK_EVERY
        };
        let is_over = |last: Instant| now.saturating_duration_since(last) >= pause;
        self.last.is_none_or(is_over)
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
    fn the_kernel_is_asked_rarely_while_nothing_happens() {
        let mut network = Network {
            asker: None,
            last: None,
            turns: None,
            is_idle: false,
            counts: BTreeMap::new(),
            hosts: Vec::new(),
        };
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let asked = |network: &mut Network, seconds| {
            network.last = Some(at(seconds));
            network.is_idle = true;
        };
        assert!(network.is_due(at(0), 0), "the first time");
        asked(&mut network, 0);
        assert!(!network.is_due(at(5), 10) && !network.is_due(at(25), 60));
        assert!(network.is_due(at(30), 70));
        asked(&mut network, 30);
        assert!(network.is_due(at(35), 1000), "there is traffic");
        asked(&mut network, 35);
        assert!(!network.is_due(at(36), 5000), "not at once");
        assert!(network.is_due(at(40), 5001), "once more after it");
        asked(&mut network, 40);
        assert!(!network.is_due(at(45), 5002));
        network.take(&[Connection {
            timeouts: 1,
            ..connection(1, 1448, 1, 1)
        }]);
        assert!(network.is_due(at(50), 5003), "somebody does not answer");
    }

    #[test]
    fn a_host_is_the_sum_of_its_connections_since_the_look_before() {
        let mut network = Network {
            asker: None,
            last: None,
            turns: None,
            is_idle: false,
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
