//! What the data plane asks of the configuration: who may log in, and what they see.
//!
//! The plane knows no file format and no rule of access; it asks this trait at login and keeps
//! the answers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use iscsi::login::TargetPolicy;
use iscsi::pdu::LoginStatus;

use engine::{TargetIndex, VisibleLun};

use crate::nbd::TlsConfig;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Asker<'a> {
    /// InitiatorName.
    pub initiator_name: &'a str,
    /// Where the connection comes from.
    pub address: IpAddr,
    /// The address of ours that was reached.
    pub portal: SocketAddr,
    /// The user that CHAP has proved, if it was asked for.
    pub user: Option<&'a str>,
}

/// A client of NBD that asks.
#[derive(Clone, Copy, Debug)]
pub struct ExportAsker<'a> {
    /// The place where it came in, as the configuration calls it.
    pub service: &'a str,
    /// Where the connection comes from.
    pub address: IpAddr,
    /// The DNS names that its certificate proves.
    pub names: &'a [String],
}

/// A unit as an export of NBD.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VisibleExport {
    /// By which clients ask for it.
    pub name: String,
    /// The unit; its number is that of the session's only one.
    pub lun: VisibleLun,
}

/// A target that discovery may list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VisibleTarget {
    /// Its iSCSI name.
    pub name: String,
    /// `address:port,group tag` of each portal, as the initiator is to use them.
    pub addresses: Vec<String>,
}

/// The rules of access. Asked on one core only, never on the data path.
pub trait Policy: Send + Sync + fmt::Debug {
    /// Whether and how a login to a target may go on: what CHAP it takes, and the limits of
    /// negotiation. `target_name` is `None` for discovery.
    fn authorize(
        &self,
        asker: &Asker<'_>,
        target_name: Option<&str>,
    ) -> Result<Authorization, LoginStatus>;

    /// What the nexus sees once it has proved who it is, or why it may not come in after all. An
    /// empty list is legal.
    fn luns(&self, asker: &Asker<'_>, target: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus>;

    /// Whether this initiator may be in a discovery session, by what it has proved.
    fn may_discover(&self, asker: &Asker<'_>) -> bool;

    /// What discovery reports to this initiator; with `only`, of that target alone.
    fn targets(&self, asker: &Asker<'_>, only: Option<TargetIndex>) -> Vec<VisibleTarget>;

    /// What a client of NBD may have.
    fn exports(&self, asker: &ExportAsker<'_>) -> Vec<VisibleExport> {
        let _nobody = asker;
        Vec::new()
    }

    /// What the TLS is made from that clients of NBD have to begin at this service; `None` where there is none.
    fn tls(&self, service: &str) -> Option<TlsConfig> {
        let _none = service;
        None
    }
}

/// The answer of [`Policy::authorize`].
#[derive(Debug)]
pub struct Authorization {
    /// `None` for discovery.
    pub target: Option<TargetIndex>,
    /// What the login machine must know.
    pub policy: TargetPolicy,
}

/// A target as initiators see it.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// Its iSCSI name.
    pub name: String,
    /// One entry for each portal group.
    pub ports: Vec<PortPlan>,
    /// Its initiators may end all of its sessions (TARGET COLD RESET).
    pub cold_reset: bool,
}

/// A SCSI target port: a target seen through one portal group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortPlan {
    /// TargetPortalGroupTag.
    pub portal_group_tag: u16,
    /// The relative target port identifier, unique over all targets.
    pub relative_id: u16,
}
