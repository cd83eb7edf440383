//! The front that ships ([`front::iscsi::Front`]), at which everybody is let in.

use std::sync::Arc;

use engine::{TargetIndex, VisibleLun};
use front::iscsi::{Front, FrontSettings};
use front::{Asker, Authorization, Policy, PortPlan, TargetPlan, VisibleTarget};
use iscsi::login::{TargetAuth, TargetPolicy};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::LoginStatus;
use iscsi::target::Budget;

use super::core::UNIT;
use super::line::Link;
use super::{Settings, TARGET_NAME};

/// The one portal group of the one target.
const PORTAL_GROUP: u16 = 1;

/// The one target.
const TARGET: TargetIndex = TargetIndex(0);

/// More connections than any world has.
const MANY: usize = 10_000;

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
pub(super) fn front(settings: &Settings) -> Front<Link> {
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
    let mut front = Front::new(&own, Arc::clone(&policy), Arc::default());
    let port = PortPlan {
        portal_group_tag: PORTAL_GROUP,
        relative_id: 1,
    };
    let plan = TargetPlan {
        name: TARGET_NAME.to_owned(),
        ports: vec![port],
        cold_reset: false,
    };
    front.set_access(policy, [(TARGET, plan)].into_iter());
    front
}
