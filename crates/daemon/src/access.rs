//! The rules of access of the model, as the data plane asks for them.

use std::net::SocketAddr;
use std::sync::Arc;

use config::{Authentication, Denial, DigestPolicy, Initiator, Limits, Model, UserIndex};
use iscsi::chap::{ChapAccount, ChapAlgorithm, Credentials, Secret};
use iscsi::limits::DISCOVERY_SEGMENT_MAX_BYTES;
use iscsi::login::{TargetAuth, TargetPolicy};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::LoginStatus;
use plane::{
    Asker, Authorization, ConnectionReport, ExportAsker, Grant, Policy, SessionReport, TargetIndex,
    TlsConfig, TransportDetails, UnitIndex, VisibleExport, VisibleLun, VisibleTarget,
};

use crate::secret::Secrets;

/// In place of a unit that nobody may see.
pub(crate) const WITHHELD: UnitIndex = UnitIndex(u32::MAX);

/// The model, the addresses its portals really have, what its units and targets are called in the
/// data plane, and the accounts of its users.
pub(crate) struct ModelPolicy {
    model: Arc<Model>,
    /// By the position of the unit.
    units: Vec<UnitIndex>,
    /// By the position of the target.
    targets: Vec<TargetIndex>,
    /// By target and position of the portal in it.
    bound: Vec<Vec<SocketAddr>>,
    /// By the position of the user. Every user has one, but in the rules of a plan that reads no
    /// secrets.
    accounts: Vec<Option<ChapAccount>>,
    /// By the position of the server of NBD.
    tls: Vec<Option<TlsConfig>>,
}

/// What a policy is made from.
pub(crate) struct Rules<'a> {
    pub(crate) model: Arc<Model>,
    pub(crate) secrets: &'a Secrets,
    /// What each unit is called in the data plane, by its position.
    pub(crate) units: Vec<UnitIndex>,
    /// What each target is called in the data plane, by its position.
    pub(crate) targets: Vec<TargetIndex>,
    /// The real address of every portal, by target and position.
    pub(crate) bound: Vec<Vec<SocketAddr>>,
    pub(crate) tls: Vec<Option<TlsConfig>>,
}

impl std::fmt::Debug for ModelPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelPolicy")
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

impl ModelPolicy {
    /// What each unit is called in the data plane, by its position.
    pub(super) fn units(&self) -> &[UnitIndex] {
        &self.units
    }

    /// The rules of a configuration.
    pub(crate) fn new(rules: Rules<'_>) -> Self {
        let Rules {
            model,
            secrets,
            units,
            targets,
            bound,
            tls,
        } = rules;
        let accounts = (0..model.users().len())
            .map(|position| model.user_by_name(&model.users()[position].name))
            .map(|user| account(&model, secrets, user?))
            .collect();
        Self {
            model,
            units,
            targets,
            bound,
            accounts,
            tls,
        }
    }

    fn target(&self, index: TargetIndex) -> Option<config::TargetIndex> {
        let position = self.targets.iter().position(|&target| target == index)?;
        self.model.target_indices().nth(position)
    }

    /// Whether the target is still reached at this address of ours, in this portal group.
    pub(crate) fn is_reached(&self, target: TargetIndex, portal: SocketAddr, tag: u16) -> bool {
        let reached = self.target(target).and_then(|index| {
            let position = self.portal_reached(index, portal)?;
            self.model
                .targets()
                .get(index.position())?
                .portals
                .get(position)
        });
        reached.is_some_and(|portal| portal.group_tag == tag)
    }

    fn initiator<'a>(&self, asker: &Asker<'a>) -> Initiator<'a> {
        Initiator {
            name: asker.initiator_name,
            address: asker.address.to_canonical(),
            user: asker.user.and_then(|name| self.model.user_by_name(name)),
            certificate: &[],
        }
    }

    /// The portal of the target that was reached, by its position.
    fn portal_reached(&self, target: config::TargetIndex, reached: SocketAddr) -> Option<usize> {
        let portals = self.bound.get(target.position())?;
        let is_it = |bound: &SocketAddr| {
            let same_host = bound.ip().is_unspecified()
                || bound.ip().to_canonical() == reached.ip().to_canonical();
            bound.port() == reached.port() && same_host
        };
        // An address of its own is meant before one that stands for all.
        let exact = portals
            .iter()
            .position(|bound| is_it(bound) && !bound.ip().is_unspecified());
        exact.or_else(|| portals.iter().position(is_it))
    }

    fn auth(
        &self,
        is_required: bool,
        name: &str,
        users: &[UserIndex],
        algorithms: &[config::ChapAlgorithm],
    ) -> TargetAuth {
        // Under a name that is not its own a user is as good as unknown.
        let may_have_name = |user: &UserIndex| {
            let user = self.model.users().get(user.position());
            user.is_some_and(|user| user.may_have_name(name))
        };
        let account = |user: &UserIndex| {
            let account = self.accounts.get(user.position());
            account.filter(|_| may_have_name(user)).cloned().flatten()
        };
        TargetAuth::Chap {
            is_required,
            algorithms: algorithms
                .iter()
                .map(|algorithm| chap_algorithm(*algorithm))
                .collect(),
            accounts: users
                .iter()
                .filter_map(account)
                .collect::<Arc<[ChapAccount]>>(),
        }
    }

    fn authorize_discovery(&self, name: &str) -> Authorization {
        let auth = match self.model.discovery_authentication() {
            Authentication::None => TargetAuth::None,
            Authentication::Optional(users) | Authentication::Required(users) => {
                self.auth(true, name, &users, &self.model.discovery_algorithms())
            }
        };
        let policy = TargetPolicy {
            auth,
            preferences: OperationalPreferences {
                max_recv_data_segment_length_bytes: DISCOVERY_SEGMENT_MAX_BYTES
                    .min(self.model.limits().max_recv_data_segment_bytes),
                ..preferences(self.model.limits())
            },
            portal_group_tag: 0,
            target_alias: None,
        };
        Authorization {
            target: None,
            policy,
        }
    }
}

impl Policy for ModelPolicy {
    fn authorize(
        &self,
        asker: &Asker<'_>,
        target_name: Option<&str>,
    ) -> Result<Authorization, LoginStatus> {
        let Some(name) = target_name else {
            return Ok(self.authorize_discovery(asker.initiator_name));
        };
        let index = self
            .model
            .target_by_name(name)
            .ok_or(LoginStatus::NotFound)?;
        let position = self
            .portal_reached(index, asker.portal)
            .ok_or(LoginStatus::NotFound)?;
        let target = self
            .model
            .targets()
            .get(index.position())
            .ok_or(LoginStatus::NotFound)?;
        let portal = target.portals.get(position).ok_or(LoginStatus::NotFound)?;
        let initiator = self.initiator(asker);
        // As if there were none: one that it may not see is not to be found by its name.
        if !self.model.discovers(index, &initiator) {
            let denial = self.model.login(index, &initiator).err();
            if let Some(denial @ Denial::TwoUnits { .. }) = denial {
                tracing::warn!(initiator = asker.initiator_name, %denial, "login denied");
            }
            return Err(LoginStatus::NotFound);
        }
        let auth = |is_required, users: &[UserIndex]| {
            let name = asker.initiator_name;
            self.auth(is_required, name, users, &target.chap_algorithms)
        };
        let auth = match self.model.authentication(index) {
            Authentication::None => TargetAuth::None,
            Authentication::Required(users) => auth(true, &users),
            Authentication::Optional(users) => auth(false, &users),
        };
        let policy = TargetPolicy {
            auth,
            preferences: preferences(self.model.limits()),
            portal_group_tag: portal.group_tag,
            target_alias: target.alias.clone(),
        };
        let target = self.targets.get(index.position()).copied();
        Ok(Authorization { target, policy })
    }

    fn luns(&self, asker: &Asker<'_>, target: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        let index = self.target(target).ok_or(LoginStatus::NotFound)?;
        let map = self
            .model
            .login(index, &self.initiator(asker))
            .map_err(|denial| {
                tracing::info!(initiator = asker.initiator_name, %denial, "login denied");
                LoginStatus::AuthorizationFailure
            })?;
        let visible = |entry: &config::LunEntry| {
            let unit = *self.units.get(entry.unit.position())?;
            (unit != WITHHELD).then_some(VisibleLun {
                lun: entry.lun.value(),
                unit,
                read_only: entry.read_only,
            })
        };
        Ok(map.entries().iter().filter_map(visible).collect())
    }

    fn may_discover(&self, asker: &Asker<'_>) -> bool {
        match self.model.discovery_authentication() {
            Authentication::None => true,
            Authentication::Optional(users) | Authentication::Required(users) => {
                asker.user.is_some_and(|name| {
                    users.iter().any(|user| {
                        let user = self.model.users().get(user.position());
                        user.is_some_and(|user| {
                            user.name == name && user.may_have_name(asker.initiator_name)
                        })
                    })
                })
            }
        }
    }

    fn targets(&self, asker: &Asker<'_>, only: Option<TargetIndex>) -> Vec<VisibleTarget> {
        let initiator = self.initiator(asker);
        let only = only.and_then(|index| self.target(index));
        let mut visible = Vec::new();
        for (index, target) in self.model.target_indices().zip(self.model.targets()) {
            let is_wanted = match only {
                Some(only) => only == index,
                None => self.model.discovers(index, &initiator),
            };
            if !is_wanted {
                continue;
            }
            let bound = self.bound.get(index.position());
            let addresses: Vec<String> = target
                .portals
                .iter()
                .zip(bound.into_iter().flatten())
                .filter_map(|(portal, bound)| {
                    portal.target_address(*bound, asker.portal, asker.address)
                })
                .collect();
            // Without an address the initiator would try the one that it asked here.
            if addresses.is_empty() && only.is_none() {
                continue;
            }
            visible.push(VisibleTarget {
                name: target.name.as_str().to_owned(),
                addresses,
            });
        }
        visible
    }

    fn exports(&self, asker: &ExportAsker<'_>) -> Vec<VisibleExport> {
        let mut servers = self.model.nbd().iter();
        let Some(server) = servers.find(|one| one.at.to_string() == asker.service) else {
            return Vec::new();
        };
        let address = asker.address.to_canonical();
        let exports = self.model.exports(server, address, asker.names).into_iter();
        let visible = |index: config::UnitIndex| {
            let position = index.position();
            let unit = *self.units.get(position)?;
            (unit != WITHHELD).then_some(VisibleExport {
                name: self.model.units().get(position)?.to_string(),
                lun: VisibleLun {
                    lun: 0,
                    unit,
                    read_only: false,
                },
            })
        };
        exports.filter_map(visible).collect()
    }

    fn tls(&self, service: &str) -> Option<TlsConfig> {
        let mut servers = self.model.nbd().iter();
        let position = servers.position(|one| one.at.to_string() == service)?;
        self.tls.get(position)?.clone()
    }
}

fn account(model: &Model, secrets: &Secrets, user: UserIndex) -> Option<ChapAccount> {
    let configured = model.users().get(user.position())?;
    let read = secrets.of(user)?;
    let secret = |bytes: &[u8]| Secret::new(bytes.to_vec());
    let target = configured
        .mutual
        .as_ref()
        .zip(read.mutual.as_ref())
        .map(|(mutual, own)| Credentials {
            name: mutual.name.clone(),
            secret: secret(own.as_bytes()),
        });
    let initiator = Credentials {
        name: configured.name.clone(),
        secret: secret(read.forward.as_bytes()),
    };
    Some(ChapAccount { initiator, target })
}

const fn chap_algorithm(algorithm: config::ChapAlgorithm) -> ChapAlgorithm {
    match algorithm {
        config::ChapAlgorithm::Md5 => ChapAlgorithm::Md5,
        config::ChapAlgorithm::Sha1 => ChapAlgorithm::Sha1,
        config::ChapAlgorithm::Sha256 => ChapAlgorithm::Sha256,
        config::ChapAlgorithm::Sha3_256 => ChapAlgorithm::Sha3_256,
    }
}

const fn digest(policy: DigestPolicy) -> iscsi::negotiate::DigestPolicy {
    match policy {
        DigestPolicy::Allow => iscsi::negotiate::DigestPolicy::Allowed,
        DigestPolicy::Require => iscsi::negotiate::DigestPolicy::Required,
        DigestPolicy::Refuse => iscsi::negotiate::DigestPolicy::Never,
    }
}

fn preferences(limits: &Limits) -> OperationalPreferences {
    OperationalPreferences {
        header_digest: digest(limits.header_digest),
        data_digest: digest(limits.data_digest),
        max_connections: limits.connections_per_session_max,
        initial_r2t: limits.initial_r2t,
        immediate_data: limits.immediate_data,
        max_recv_data_segment_length_bytes: limits.max_recv_data_segment_bytes,
        max_burst_length_bytes: limits.max_burst_bytes,
        first_burst_length_bytes: limits.first_burst_bytes,
        max_outstanding_r2t: limits.outstanding_r2t_max,
        ..OperationalPreferences::default()
    }
}

/// Which session may stay, and what it sees then.
pub(super) struct Verdict {
    pub(super) ended: Vec<SessionReport>,
    pub(super) granted: Vec<Grant>,
}

/// What the rules say of sessions that are there.
pub(super) fn judge(policy: &ModelPolicy, sessions: &[SessionReport]) -> Verdict {
    let (mut ended, mut granted) = (Vec::new(), Vec::new());
    // The caller that ends it waits for it.
    for session in sessions.iter().filter(|session| !session.is_ending) {
        let asker = session.asker();
        match luns_of(policy, session) {
            Some(luns) => granted.push(Grant {
                session: session.id,
                core: session.core,
                luns,
                targets: policy.targets(&asker, session.target),
            }),
            None => ended.push(session.clone()),
        }
    }
    Verdict { ended, granted }
}

/// What a session may see, if it may stay. Its first login says what that is, also when that
/// connection is gone; every connection it has now must be granted as much.
fn luns_of(policy: &ModelPolicy, session: &SessionReport) -> Option<Vec<VisibleLun>> {
    match &session.transport {
        TransportDetails::Iscsi {
            portal_group_tag,
            connections,
            ..
        } => luns_of_iscsi(policy, session, *portal_group_tag, connections),
        TransportDetails::Nbd {
            export,
            service,
            names,
        } => {
            let exports = policy.exports(&ExportAsker {
                service,
                address: session.peer.ip(),
                names,
            });
            let same = exports.into_iter().find(|one| one.name == *export);
            same.map(|one| vec![one.lun])
                .filter(|luns| *luns == session.luns)
        }
        // The plane changes what they see.
        TransportDetails::Hyperscsi { .. } => Some(session.luns.clone()),
    }
}

/// The same of a session of iSCSI.
fn luns_of_iscsi(
    policy: &ModelPolicy,
    session: &SessionReport,
    tag: u16,
    connections: &[ConnectionReport],
) -> Option<Vec<VisibleLun>> {
    let Some(target) = session.target else {
        return policy.may_discover(&session.asker()).then(Vec::new);
    };
    let granted = |asker: Asker<'_>| {
        policy
            .is_reached(target, asker.portal, tag)
            .then(|| policy.luns(&asker, target).ok())
            .flatten()
    };
    let luns = granted(session.asker())?;
    let has_all = |connection: &ConnectionReport| {
        granted(session.asker_of(connection)).is_some_and(|own| VisibleLun::cover(&own, &luns))
    };
    connections.iter().all(has_all).then_some(luns)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::IpAddr;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use iscsi::negotiate;

    use super::*;
    use crate::scratch::Scratch;

    const TEXT: &str = r#"
[server]
discovery_auth = ["alice", "bob"]

[limits]
header_digest = "require"
data_digest = "refuse"

[[user]]
name = "alice"
secret_file = "{dir}/alice"
initiators = ["iqn.2026-11.example:a*"]

[[user]]
name = "bob"
secret_file = "{dir}/bob"

[[lun]]
id = "one"
store = "mem:1M"

[[lun]]
id = "two"
store = "mem:1M"

[[group]]
id = "of-bob"
initiators = ["user:bob"]

[[target]]
name = "iqn.2026-11.example:proved"
portals = [{ bind = "127.0.0.1:3260", group = 7 }]
auth = ["alice", "bob"]
chap_algorithms = ["sha1", "sha3-256", "md5", "sha256"]
luns = [{ lun = 0, id = "one" }, { lun = 3, id = "two", groups = ["of-bob"], readonly = true }]

[[target]]
name = "iqn.2026-11.example:open"
portals = ["127.0.0.1:3260"]
luns = [{ lun = 0, id = "one" }, { lun = 1, id = "two" }]
"#;

    fn policy() -> ModelPolicy {
        let scratch = Scratch::new();
        for name in ["alice", "bob"] {
            let path = scratch.path().join(name);
            fs::write(&path, format!("correct horse of {name}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let text = TEXT.replace("{dir}", &scratch.path().display().to_string());
        let model = Model::from_toml(&text, Path::new("tarn.toml")).unwrap();
        let secrets = Secrets::read(&model, rustix::process::getuid().as_raw()).unwrap();
        let bound = vec!["127.0.0.1:3260".parse().unwrap()];
        ModelPolicy::new(Rules {
            model: Arc::new(model),
            secrets: &secrets,
            units: vec![UnitIndex(10), UnitIndex(20)],
            targets: vec![TargetIndex(1), TargetIndex(2)],
            bound: vec![bound, Vec::new()],
            tls: Vec::new(),
        })
    }

    fn asker<'a>(name: &'a str, user: Option<&'a str>) -> Asker<'a> {
        Asker {
            initiator_name: name,
            address: IpAddr::from([127, 0, 0, 1]),
            portal: "127.0.0.1:3260".parse().unwrap(),
            user,
        }
    }

    const A: &str = "iqn.2026-11.example:a1";
    const B: &str = "iqn.2026-11.example:b1";

    #[test]
    fn only_the_secrets_of_users_that_may_have_the_name_are_accepted() {
        let policy = policy();
        let given = [
            ChapAlgorithm::Sha1,
            ChapAlgorithm::Sha3_256,
            ChapAlgorithm::Md5,
            ChapAlgorithm::Sha256,
        ];
        let usual = [
            ChapAlgorithm::Sha3_256,
            ChapAlgorithm::Sha256,
            ChapAlgorithm::Sha1,
            ChapAlgorithm::Md5,
        ];
        let target = Some("iqn.2026-11.example:proved");
        for (name, target, expected, users) in [
            (A, None, usual, &["alice", "bob"][..]),
            (B, None, usual, &["bob"]),
            (A, target, given, &["alice", "bob"]),
            (B, target, given, &["bob"]),
        ] {
            let found = policy.authorize(&asker(name, None), target).ok().unwrap();
            assert_eq!(found.target, target.map(|_| TargetIndex(1)));
            let tag = if target.is_some() { 7 } else { 0 };
            assert_eq!(found.policy.portal_group_tag, tag);
            let preferences = found.policy.preferences;
            assert_eq!(preferences.header_digest, negotiate::DigestPolicy::Required);
            assert_eq!(preferences.data_digest, negotiate::DigestPolicy::Never);
            let segment = preferences.max_recv_data_segment_length_bytes;
            assert_eq!(segment <= DISCOVERY_SEGMENT_MAX_BYTES, target.is_none());
            let TargetAuth::Chap {
                is_required,
                algorithms,
                accounts,
            } = found.policy.auth
            else {
                panic!("{name} at {target:?} needs no CHAP");
            };
            assert!(is_required);
            assert_eq!(algorithms, expected);
            let names = accounts.iter().map(|one| one.initiator.name.as_str());
            assert_eq!(names.collect::<Vec<_>>(), users, "{name} at {target:?}");
        }
    }

    #[test]
    fn a_digest_that_is_allowed_is_not_asked_for() {
        use DigestPolicy::{Allow, Refuse, Require};
        use negotiate::DigestPolicy::{Allowed, Never, Required};
        let policies = [Allow, Require, Refuse].map(digest);
        assert_eq!(policies, [Allowed, Required, Never]);
    }

    #[test]
    fn discovery_is_for_users_under_names_that_they_may_have() {
        let policy = policy();
        for (name, user, expected) in [
            (A, Some("alice"), true),
            (B, Some("alice"), false),
            (B, Some("bob"), true),
            (A, None, false),
            (A, Some("carol"), false),
        ] {
            let found = policy.may_discover(&asker(name, user));
            assert_eq!(found, expected, "{name} as {user:?}");
        }
        // One that is bound nowhere has no address to be shown.
        let found = policy.targets(&asker(A, Some("alice")), None);
        let found: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(found, ["iqn.2026-11.example:proved"]);
    }

    #[test]
    fn a_session_sees_what_is_for_its_user() {
        let mut policy = policy();
        let luns = |policy: &ModelPolicy, name, user| {
            let luns = policy.luns(&asker(name, user), TargetIndex(1));
            luns.map(|luns| {
                let all = luns.into_iter();
                all.map(|one| (one.lun, one.unit.0, one.read_only))
                    .collect::<Vec<_>>()
            })
        };
        let alice = luns(&policy, A, Some("alice")).ok().unwrap();
        assert_eq!(alice, [(0, 10, false)]);
        let bob = luns(&policy, B, Some("bob")).ok().unwrap();
        assert_eq!(bob, [(0, 10, false), (3, 20, true)]);
        // A name that is bound to one user is refused to others.
        for user in [None, Some("bob")] {
            let denied = luns(&policy, A, user).err();
            assert_eq!(denied, Some(LoginStatus::AuthorizationFailure), "{user:?}");
        }
        let absent = policy.luns(&asker(A, None), TargetIndex(3)).err();
        assert_eq!(absent, Some(LoginStatus::NotFound));
        policy.units[1] = WITHHELD;
        let bob = luns(&policy, B, Some("bob")).ok().unwrap();
        assert_eq!(bob, [(0, 10, false)]);
    }

    #[test]
    fn a_portal_is_reached_at_its_own_address_before_one_that_stands_for_all() {
        let mut policy = policy();
        let reached = |policy: &ModelPolicy, portal: &str, tag| {
            policy.is_reached(TargetIndex(1), portal.parse().unwrap(), tag)
        };
        assert!(reached(&policy, "127.0.0.1:3260", 7));
        assert!(reached(&policy, "[::ffff:127.0.0.1]:3260", 7));
        for (portal, tag) in [
            ("127.0.0.1:3260", 6),
            ("127.0.0.1:3261", 7),
            ("127.0.0.2:3260", 7),
        ] {
            assert!(!reached(&policy, portal, tag), "{portal} {tag}");
        }
        assert!(!policy.is_reached(TargetIndex(3), "127.0.0.1:3260".parse().unwrap(), 7));
        let target = policy.model.target_indices().next().unwrap();
        policy.bound[0] = ["0.0.0.0:3260", "127.0.0.1:3260", "127.0.0.1:3261"]
            .map(|one| one.parse().unwrap())
            .into();
        for (portal, position) in [
            ("127.0.0.1:3260", Some(1)),
            ("127.0.0.2:3260", Some(0)),
            ("127.0.0.1:3261", Some(2)),
            ("127.0.0.2:3261", None),
        ] {
            assert_eq!(
                policy.portal_reached(target, portal.parse().unwrap()),
                position,
                "{portal}"
            );
        }
    }

    #[test]
    fn a_login_to_what_is_not_there_is_not_found_and_a_target_without_users_needs_no_proof() {
        let mut policy = policy();
        let login = |policy: &ModelPolicy, target: &str, portal: &str| {
            let asker = Asker {
                portal: portal.parse().unwrap(),
                ..asker(B, None)
            };
            let authorized = policy.authorize(&asker, Some(target));
            authorized.map(|one| (one.target, matches!(one.policy.auth, TargetAuth::None)))
        };
        let (proved, open) = ("iqn.2026-11.example:proved", "iqn.2026-11.example:open");
        let here = "127.0.0.1:3260";
        let not_found = Err(LoginStatus::NotFound);
        assert_eq!(
            login(&policy, proved, here),
            Ok((Some(TargetIndex(1)), false))
        );
        assert_eq!(login(&policy, proved, "127.0.0.1:3261"), not_found);
        assert_eq!(
            login(&policy, "iqn.2026-11.example:absent", here),
            not_found
        );
        assert_eq!(login(&policy, open, here), not_found, "it is bound nowhere");
        policy.bound[1] = policy.bound[0].clone();
        assert_eq!(login(&policy, open, here), Ok((Some(TargetIndex(2)), true)));
        let names = |only| -> Vec<String> {
            let found = policy.targets(&asker(B, None), only).into_iter();
            found
                .map(|one| format!("{} {}", one.name, one.addresses.join(" ")))
                .collect()
        };
        assert_eq!(
            names(Some(TargetIndex(2))),
            [format!("{open} 127.0.0.1:3260,1")]
        );
        assert_eq!(
            names(Some(TargetIndex(1))),
            [format!("{proved} 127.0.0.1:3260,7")]
        );
        assert_eq!(names(None).len(), 2);
        let users = policy.accounts.iter().map(|one| one.as_ref().unwrap());
        let users: Vec<_> = users
            .map(|one| (one.initiator.name.as_str(), one.target.is_some()))
            .collect();
        assert_eq!(users, [("alice", false), ("bob", false)]);
    }
}
