//! The front that ships ([`front::iscsi::Front`]), and the links that log in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{TargetIndex, VisibleLun};
use front::iscsi::{Action, Front, FrontSettings, Line, LoginKey, LoginRandom};
use front::{Asker, Authorization, Policy, PortPlan, TargetPlan, VisibleTarget};
use iscsi::framing::Pdu;
use iscsi::login::{TargetAuth, TargetPolicy};
use iscsi::names::IscsiName;
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::LoginStatus;
use iscsi::target::Budget;
use memory::Message;

use super::core::{Core, UNIT};
use super::{Letter, Settings, TARGET_NAME};
use crate::network::Arrival;

/// The one portal group of the one target.
const PORTAL_GROUP: u16 = 1;

/// The one target.
const TARGET: TargetIndex = TargetIndex(0);

/// More connections than any world has.
const MANY: usize = 10_000;

/// A link in its login phase.
#[derive(Debug)]
pub struct LoginLine(pub(super) usize);

impl Line for LoginLine {
    type Context = ();

    /// Every link has an address of its own.
    fn peer(&self) -> SocketAddr {
        let [.., high, low] = self.0.to_be_bytes();
        SocketAddr::from(([10, 0, high, low], 49_152))
    }

    fn portal(&self) -> SocketAddr {
        SocketAddr::from(([10, 1, 0, 1], 3260))
    }

    fn note_received(&mut self, _: &Pdu, _: Option<&IscsiName>, (): &()) {}

    fn note_sent(&mut self, _: &Message) {}
}

/// Everybody here is granted the same.
#[derive(Debug)]
struct Everybody(OperationalPreferences);

impl Policy for Everybody {
    fn authorize(
        &self,
        _: &Asker<'_>,
        target_name: Option<&str>,
    ) -> Result<Authorization, LoginStatus> {
        if target_name != Some(TARGET_NAME) {
            return Err(LoginStatus::NotFound);
        }
        Ok(Authorization {
            target: Some(TARGET),
            policy: TargetPolicy {
                auth: TargetAuth::None,
                preferences: self.0.clone(),
                portal_group_tag: PORTAL_GROUP,
                target_alias: None,
            },
        })
    }

    fn luns(&self, _: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        Ok(vec![VisibleLun {
            lun: 0,
            unit: UNIT,
            read_only: false,
        }])
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        false
    }

    fn targets(&self, _: &Asker<'_>, _: Option<TargetIndex>) -> Vec<VisibleTarget> {
        vec![VisibleTarget {
            name: TARGET_NAME.to_owned(),
            addresses: Vec::new(),
        }]
    }
}

/// A front that lets everybody in.
pub(super) fn desk(settings: &Settings) -> Front<LoginLine> {
    let own = FrontSettings {
        cores: settings.cores,
        sessions_max: MANY,
        logins_max: MANY,
        discovery_max: MANY,
        unproved_per_address_max: MANY,
        connections_max: MANY,
        unproved: Arc::new(Budget::new(usize::MAX)),
        login_timeout: settings.login_timeout,
    };
    let policy: Arc<dyn Policy> = Arc::new(Everybody(settings.preferences.clone()));
    let mut desk = Front::new(&own, Arc::clone(&policy), Arc::default());
    let port = PortPlan {
        portal_group_tag: PORTAL_GROUP,
        relative_id: 1,
    };
    let plan = TargetPlan {
        name: TARGET_NAME.to_owned(),
        ports: vec![port],
        cold_reset: false,
    };
    desk.set_access(policy, [(TARGET, plan)].into_iter());
    desk
}

impl Core {
    pub(super) fn accept(&mut self, link: usize, now: Duration) {
        self.begin(now);
        let random = LoginRandom {
            challenges: std::array::from_fn(|_| self.prng.next_u64().to_be_bytes()[0]),
            tsih: u16::from_be_bytes(std::array::from_fn(|_| {
                self.prng.next_u64().to_be_bytes()[0]
            })),
        };
        if let Some(desk) = &mut self.desk {
            let key = desk.accept(LoginLine(link), random, now);
            self.logins.insert(link, (key, false));
        }
        self.settle();
    }

    /// Something arrived on a link in its login phase.
    pub(super) fn arrive_at_front(&mut self, link: usize, key: LoginKey, arrival: Arrival) {
        let times = self.times();
        let Some(desk) = &mut self.desk else {
            return;
        };
        if let Some((_, is_receiving)) = self.logins.get_mut(&link) {
            *is_receiving = false;
        }
        match arrival {
            Arrival::Bytes(bytes) => desk.handle_bytes(key, &bytes, &(), times),
            Arrival::End | Arrival::Reset => desk.handle_end(key),
        }
    }

    /// All of a message on a link in its login phase is sent.
    pub(super) fn note_login_sent(&mut self, key: LoginKey) {
        let times = self.times();
        if let Some(desk) = &mut self.desk {
            desk.handle_sent(key, true, times);
        }
    }

    pub(super) fn times(&self) -> (Duration, SystemTime) {
        (self.now, SystemTime::UNIX_EPOCH + self.now)
    }

    fn link_of(&self, key: LoginKey) -> Option<usize> {
        Some(self.desk.as_ref()?.line(key)?.0)
    }

    /// Does what the front wants done next. False when there is nothing.
    pub(super) fn carry_front(&mut self) -> bool {
        let Some(action) = self.desk.as_mut().and_then(Front::poll_action) else {
            return false;
        };
        match action {
            Action::Receive(key) => {
                let link = self.link_of(key);
                if let Some((_, is_receiving)) = link.and_then(|it| self.logins.get_mut(&it)) {
                    *is_receiving = true;
                }
            }
            Action::Send(key, message) => {
                if let Some(link) = self.link_of(key) {
                    self.outgoing.entry(link).or_default().push(message);
                }
            }
            // What is under way ends at once.
            Action::Shut(key) => {
                if let Some(link) = self.link_of(key) {
                    let is_sending = self.outgoing.remove(&link).is_some_and(|it| !it.is_empty());
                    let login = self.logins.get_mut(&link);
                    let is_receiving = login.is_some_and(|(_, it)| std::mem::take(it));
                    self.end_under_way(key, is_sending, is_receiving);
                }
            }
            Action::Close(LoginLine(link)) => {
                self.logins.remove(&link);
                self.close_link(link);
            }
            Action::Adopt { core, adoption } => {
                let LoginLine(link) = adoption.line;
                self.logins.remove(&link);
                self.outgoing.remove(&link);
                self.post(core, Letter::Adopt(adoption));
            }
            Action::TurnAway {
                line: LoginLine(link),
                mut machine,
                status,
            } => {
                self.logins.remove(&link);
                machine.admit_reply(Err(status));
                // The answer is lost with the link, as it may be in life.
                self.close_link(link);
            }
            Action::EndSession { core, tsih } => self.post(core, Letter::EndSession(tsih)),
            Action::EndDiscovery { .. } => debug_assert!(false, "nobody discovers here"),
            Action::Failed { .. } | Action::Guessing { .. } | Action::Displaced => {}
        }
        true
    }

    fn end_under_way(&mut self, key: LoginKey, is_sending: bool, is_receiving: bool) {
        let times = self.times();
        let Some(desk) = &mut self.desk else {
            return;
        };
        if is_sending {
            desk.handle_sent(key, false, times);
        }
        if is_receiving {
            desk.handle_end(key);
        }
    }
}
