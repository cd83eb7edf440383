//! `[[target]]`: an iSCSI target, its addresses, and the units that it shows.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::error::{At as _, Broken as _};
use crate::fields::{read_text, read_u16};
use crate::keys::{SECTION_PORTAL, SECTION_TARGET, SECTION_TARGET_LUN};
use crate::names::{AllNames, FirstUse};
use crate::reader::{Field, Section};
use crate::views::ViewCheck;
use crate::words::words;
use crate::{
    ConfigError, GroupIndex, HostPort, ISCSI_PORT, IscsiName, LunNumber, Place, Rule, TargetIndex,
    TargetLun, TargetLuns, Unit, UnitIndex, UserIndex, address,
};

/// Where a target is reached that nobody gave a portal.
pub const PORTAL_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ISCSI_PORT);

/// The portal group tag of portals that nobody gave one.
pub(crate) const GROUP_TAG_DEFAULT: u16 = 1;

/// An iSCSI target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// TargetName.
    pub name: IscsiName,
    /// TargetAlias.
    pub alias: Option<String>,
    /// Where it is reached; at least one.
    pub portals: Vec<Portal>,
    /// The users that may log in; empty: everyone, without CHAP.
    pub auth: Vec<UserIndex>,
    /// What CHAP may use; at least one, in the order of the administrator.
    pub chap_algorithms: Vec<ChapAlgorithm>,
    /// Every initiator that is logged in may end all sessions with a TARGET COLD RESET.
    pub cold_reset: bool,
    /// The units it shows.
    pub luns: TargetLuns,
    /// Where the target is given.
    pub place: Place,
}

/// An address of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Portal {
    /// Where to listen; port 0 is any free port.
    pub bind: SocketAddr,
    /// The address that discovery reports, if not the bound one.
    pub advertise: Option<HostPort>,
    /// Target portal group tag.
    pub group_tag: u16,
    /// Where the portal is given, for errors that only binding it shows.
    pub place: Place,
}

impl Target {
    /// One that everyone may log in to.
    pub(crate) fn open(
        name: IscsiName,
        portals: Vec<Portal>,
        luns: TargetLuns,
        place: Place,
    ) -> Self {
        Self {
            name,
            alias: None,
            portals,
            auth: Vec::new(),
            chap_algorithms: ChapAlgorithm::ALL.to_vec(),
            cold_reset: false,
            luns,
            place,
        }
    }
}

impl Portal {
    /// The value of TargetAddress: what discovery reports to an initiator that came to our address
    /// `reached`, if the portal listens on `bound`. An address that stands for all becomes the one that
    /// was reached, as that is known to work; `None` if the portal is of the other family, or the address of
    /// the loopback interface and the initiator at `from` on another host.
    ///
    /// Spec: RFC 7143 section 13.8.
    pub fn target_address(
        &self,
        bound: SocketAddr,
        reached: SocketAddr,
        from: IpAddr,
    ) -> Option<String> {
        let tag = self.group_tag;
        if let Some(advertise) = &self.advertise {
            return Some(format!("{advertise},{tag}"));
        }
        let reached = reached.ip().to_canonical();
        let ip = if !bound.ip().is_unspecified() {
            bound.ip()
        } else if bound.is_ipv6() == reached.is_ipv6() {
            reached
        } else {
            // A socket for all addresses of one family takes no connection of the other.
            return None;
        };
        let is_reachable = !ip.to_canonical().is_loopback() || from.to_canonical().is_loopback();
        is_reachable.then(|| format!("{},{tag}", SocketAddr::new(ip, bound.port())))
    }
}

words! {
    /// An algorithm of CHAP. The numbers of CHAP_A are the data plane's business.
    ///
    /// Spec: RFC 7143 section 12.1.3 and the IANA registry of PPP authentication algorithms.
    ChapAlgorithm {
        /// The one every initiator has.
        Md5 = "md5",
        /// SHA-1.
        Sha1 = "sha1",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA3-256.
        Sha3_256 = "sha3-256",
    }
    "md5, sha1, sha256 or sha3-256"
}

impl ChapAlgorithm {
    /// All of them, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];
}

pub(crate) type Targets = (Vec<Target>, BTreeMap<String, TargetIndex>);

pub(crate) fn read_targets(
    top: &Section<'_>,
    names: &AllNames<'_>,
    units: &[Unit],
    views: &mut ViewCheck<'_>,
) -> Result<Targets, ConfigError> {
    let mut target_names = FirstUse::new("target");
    let mut by_name = BTreeMap::new();
    let mut targets = Vec::new();
    for (position, entry) in top.entries("target")?.iter().enumerate() {
        let section = entry.section(SECTION_TARGET)?;
        let name_field = section.required("name")?;
        let target = Target {
            name: IscsiName::parse(name_field.text()?).at(|| name_field.place())?,
            alias: match section.field("alias") {
                Some(field) => Some(read_text("alias", &field)?),
                None => None,
            },
            portals: read_portals(&section)?,
            auth: names.users.find_all(section.field("auth"), UserIndex)?,
            chap_algorithms: read_chap_algorithms(section.field("chap_algorithms"))?,
            cold_reset: section
                .field("cold_reset")
                .map_or(Ok(false), |field| field.flag())?,
            luns: read_target_luns(&section, names, units, views)?,
            place: name_field.place(),
        };
        target_names.insert(target.name.as_str(), name_field.place())?;
        by_name.insert(target.name.to_string(), TargetIndex(position));
        targets.push(target);
    }
    Ok((targets, by_name))
}

/// The one portal of a target that nobody gave any.
pub(crate) fn default_portal(place: Place) -> Portal {
    Portal {
        bind: PORTAL_DEFAULT,
        advertise: None,
        group_tag: GROUP_TAG_DEFAULT,
        place,
    }
}

fn read_portals(target: &Section<'_>) -> Result<Vec<Portal>, ConfigError> {
    let Some(field) = target.field("portals") else {
        return Ok(vec![default_portal(target.place())]);
    };
    let mut binds = FirstUse::new("portal");
    let mut portals = Vec::new();
    for entry in field.entries()? {
        let portal = read_portal(&entry)?;
        binds.insert(portal.bind.to_string(), portal.place.clone())?;
        portals.push(portal);
    }
    if portals.is_empty() {
        let remedy = "name an address, or remove the key to listen on 127.0.0.1:3260";
        return Err(Rule::EmptyList { remedy }.at(field.place()));
    }
    Ok(portals)
}

fn read_portal(entry: &Field<'_>) -> Result<Portal, ConfigError> {
    if let Some(text) = entry.text_or_none() {
        return Ok(Portal {
            bind: address::parse_bind(text).at(|| entry.place())?,
            advertise: None,
            group_tag: GROUP_TAG_DEFAULT,
            place: entry.place(),
        });
    }
    let section = entry.section(SECTION_PORTAL)?;
    let bind = section.required("bind")?;
    Ok(Portal {
        bind: address::parse_bind(bind.text()?).at(|| bind.place())?,
        advertise: match section.field("advertise") {
            Some(field) => Some(HostPort::parse(field.text()?).at(|| field.place())?),
            None => None,
        },
        group_tag: match section.field("group") {
            Some(field) => read_u16(&field, 1, u16::MAX)?,
            None => GROUP_TAG_DEFAULT,
        },
        place: bind.place(),
    })
}

fn read_chap_algorithms(field: Option<Field<'_>>) -> Result<Vec<ChapAlgorithm>, ConfigError> {
    let Some(field) = field else {
        return Ok(ChapAlgorithm::ALL.to_vec());
    };
    let mut seen = FirstUse::new("algorithm");
    let mut algorithms = Vec::new();
    for entry in field.entries()? {
        let text = entry.text()?;
        algorithms.push(ChapAlgorithm::parse(text).at(|| entry.place())?);
        seen.insert(text, entry.place())?;
    }
    if algorithms.is_empty() {
        let remedy = "name an algorithm, or remove the key to accept all";
        return Err(Rule::EmptyList { remedy }.at(field.place()));
    }
    Ok(algorithms)
}

fn read_target_luns(
    target: &Section<'_>,
    names: &AllNames<'_>,
    units: &[Unit],
    views: &mut ViewCheck<'_>,
) -> Result<TargetLuns, ConfigError> {
    let (mut luns, mut places) = (Vec::new(), Vec::new());
    for entry in target.entries("luns")? {
        let section = entry.section(SECTION_TARGET_LUN)?;
        let lun_field = section.required("lun")?;
        let lun = LunNumber(read_u16(&lun_field, 0, LunNumber::MAX)?);
        places.push(lun_field.place());
        let id_field = section.required("id")?;
        let position = names.units.find(id_field.text()?).at(|| id_field.place())?;
        let is_read_only_here = section
            .field("readonly")
            .map_or(Ok(false), |field| field.flag())?;
        luns.push(TargetLun {
            lun,
            unit: UnitIndex(position),
            groups: names.groups.find_all(section.field("groups"), GroupIndex)?,
            read_only: is_read_only_here
                || units
                    .get(position)
                    .is_some_and(|unit| unit.store.is_read_only_disk()),
        });
    }
    views.check(&luns, &places)?;
    Ok(TargetLuns::new(luns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_tells_an_address_that_the_initiator_can_use() {
        for (bound, advertise, reached, expected) in [
            ("127.0.0.1:1", None, "192.0.2.1:1", None),
            ("[::1]:1", None, "192.0.2.1:1", None),
            ("192.0.2.1:1", None, "192.0.2.1:1", Some("192.0.2.1:1,7")),
            ("192.0.2.1:1", None, "198.51.100.1:2", Some("192.0.2.1:1,7")),
            ("192.0.2.1:1", Some("san:9"), "192.0.2.1:1", Some("san:9,7")),
            ("0.0.0.0:1", None, "192.0.2.5:2", Some("192.0.2.5:1,7")),
            ("0.0.0.0:1", None, "[2001:db8::5]:2", None),
            ("[::]:1", None, "[2001:db8::5]:2", Some("[2001:db8::5]:1,7")),
            ("[::]:1", None, "192.0.2.5:2", None),
            ("[::]:1", None, "[::ffff:192.0.2.5]:2", None),
            (
                "0.0.0.0:1",
                None,
                "[::ffff:192.0.2.5]:2",
                Some("192.0.2.5:1,7"),
            ),
        ] {
            let portal = Portal {
                bind: bound.parse().unwrap(),
                advertise: advertise.map(|text| HostPort::parse(text).unwrap()),
                group_tag: 7,
                place: Place::argument("x"),
            };
            let reached = reached.parse().unwrap();
            let from = "198.51.100.9".parse().unwrap();
            let got = portal.target_address(portal.bind, reached, from);
            assert_eq!(got.as_deref(), expected, "{bound} {reached}");
        }
    }

    #[test]
    fn loopback_portals_are_for_this_host() {
        for (bound, from, is_given) in [
            ("127.0.0.1:1", "127.0.0.1", true),
            ("127.0.0.1:1", "::ffff:127.0.0.9", true),
            ("[::1]:1", "::1", true),
            ("127.0.0.1:1", "192.0.2.1", false),
            ("[::ffff:127.0.0.1]:1", "192.0.2.1", false),
        ] {
            let portal = Portal {
                bind: bound.parse().unwrap(),
                advertise: None,
                group_tag: 1,
                place: Place::argument("x"),
            };
            let got = portal.target_address(portal.bind, portal.bind, from.parse().unwrap());
            assert_eq!(got.is_some(), is_given, "{bound} for {from}");
        }
    }
}
