//! What initiators may on the bench.

use ::iscsi::login::{TargetAuth, TargetPolicy};
use ::iscsi::negotiate::OperationalPreferences;
use ::iscsi::pdu::LoginStatus;
use engine::testing::bench::visible;
use engine::{TargetIndex, VisibleLun};

use crate::{Asker, Authorization, Policy, PortPlan, TargetPlan, VisibleTarget};

const TARGET: TargetIndex = TargetIndex(0);
pub(super) const TARGET_NAME: &str = "iqn.2026-11.example.tarn:test";

/// What initiators may.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// What they have to prove.
    pub(super) auth: TargetAuth,
    /// What they see of the target, or why it does not let them in.
    pub(super) luns: Result<Vec<VisibleLun>, LoginStatus>,
    pub(super) may_discover: bool,
    /// The target is listed.
    pub(super) is_listed: bool,
    /// The portal group in which it is.
    pub(super) tag: u16,
}

impl Rules {
    /// Everybody sees LUN 0.
    pub(super) fn new() -> Self {
        Self {
            auth: TargetAuth::None,
            luns: Ok(vec![visible(0, 0)]),
            may_discover: true,
            is_listed: true,
            tag: 1,
        }
    }
}

impl Policy for Rules {
    fn authorize(&self, _: &Asker<'_>, name: Option<&str>) -> Result<Authorization, LoginStatus> {
        Ok(Authorization {
            target: name.map(|_| TARGET),
            policy: TargetPolicy {
                auth: self.auth.clone(),
                preferences: preferences(),
                portal_group_tag: 1,
                target_alias: None,
            },
        })
    }

    fn luns(&self, _: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        self.luns.clone()
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        self.may_discover
    }

    fn targets(&self, _: &Asker<'_>, _: Option<TargetIndex>) -> Vec<VisibleTarget> {
        let target = VisibleTarget {
            name: TARGET_NAME.to_owned(),
            addresses: vec!["192.0.2.1:3260,1".to_owned()],
        };
        self.is_listed.then_some(target).into_iter().collect()
    }
}

pub(super) fn preferences() -> OperationalPreferences {
    OperationalPreferences {
        max_connections: 2,
        ..OperationalPreferences::default()
    }
}

/// The target, in this portal group.
pub(super) fn plan(portal_group_tag: u16) -> (TargetIndex, TargetPlan) {
    let plan = TargetPlan {
        name: TARGET_NAME.to_owned(),
        ports: vec![PortPlan {
            portal_group_tag,
            relative_id: 1,
        }],
        cold_reset: false,
    };
    (TARGET, plan)
}
