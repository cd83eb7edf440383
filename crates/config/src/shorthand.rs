//! From the STOREs of a command line to a [`Model`]: a short way to say what a file would.

use std::collections::BTreeSet;

use crate::error::{At as _, Broken as _};
use crate::target::{GROUP_TAG_DEFAULT, default_portal};
use crate::{
    Admin, ConfigError, Confine, HyperScsiArguments, IscsiName, Limits, LunNumber, Model, Place,
    Portal, Rule, Server, StoreSpec, Target, TargetIndex, TargetLun, TargetLuns, Unit, UnitIndex,
    address,
};

/// What a command line cannot say.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ArgumentRule {
    /// A snapshot of a unit where no unit has a name.
    #[error(
        "store {text:?} names a [[lun]] section, which a command line has not; name the file of the snapshot, as \
         file:PATH?readonly"
    )]
    SnapshotWithoutFile {
        /// The store as written.
        text: String,
    },
    /// A composition where no section can be named.
    #[error(
        "store {text:?} names [[store]] sections, which a command line has not; write a file with them and start with \
         --config FILE"
    )]
    MembersWithoutFile {
        /// The store as written.
        text: String,
    },
    /// A configuration that serves nothing.
    #[error("nothing to serve; {remedy}")]
    NothingToServe {
        /// What to write.
        remedy: &'static str,
    },
}

/// A store that names a section has none on a command line.
fn check_alone(store: &StoreSpec) -> Result<(), ArgumentRule> {
    let text = store.text.clone();
    if !store.member_ids().is_empty() {
        return Err(ArgumentRule::MembersWithoutFile { text });
    }
    match store.snapshot() {
        Some(_) => Err(ArgumentRule::SnapshotWithoutFile { text }),
        None => Ok(()),
    }
}

impl Model {
    /// The model of a command line: one target with the stores as LUN 0, 1, 2 and so on, open to
    /// everyone who can reach it.
    ///
    /// `listens` are the values of `--listen`; without any the target listens on
    /// [`PORTAL_DEFAULT`](crate::PORTAL_DEFAULT).
    ///
    /// # Errors
    ///
    /// The first broken rule, with the argument it is in.
    pub fn from_stores(
        stores: &[String],
        target_name: IscsiName,
        listens: &[String],
    ) -> Result<Self, ConfigError> {
        Self::from_arguments(stores, Some((target_name, listens)), None)
    }

    /// As [`Model::from_stores`], with a target or without one, and with a group of HyperSCSI.
    ///
    /// # Errors
    ///
    /// The first broken rule, with the argument it is in.
    pub fn from_arguments(
        stores: &[String],
        target: Option<(IscsiName, &[String])>,
        group: Option<&HyperScsiArguments<'_>>,
    ) -> Result<Self, ConfigError> {
        if stores.is_empty() {
            let remedy = "name a STORE such as disk.img?size=1G or mem:256M, or give --config FILE";
            return Err(ArgumentRule::NothingToServe { remedy }.at(Place::argument("STORE")));
        }
        let (units, luns) = read_stores(stores)?;
        let hyperscsi = group.map(|group| group.read(&units)).transpose()?;
        let mut targets = Vec::new();
        if let Some((name, listens)) = target {
            let place = Place::argument("--target");
            let portals = read_listens(listens)?;
            targets.push(Target::open(name, portals, TargetLuns::new(luns), place));
        }
        let names = targets.iter().map(|target| target.name.to_string());
        let model = Self {
            server: Server::default(),
            limits: Limits::default(),
            admin: Admin::default(),
            confine: Confine::default(),
            stores: Vec::new(),
            units,
            users: Vec::new(),
            groups: Vec::new(),
            target_names: names.zip((0..).map(TargetIndex)).collect(),
            targets,
            nbd: Vec::new(),
            hyperscsi: hyperscsi.into_iter().collect(),
            quotas: Vec::new(),
            notify: Vec::new(),
            discoverers: BTreeSet::new(),
            place: Place::argument("STORE"),
        };
        model.seal()
    }
}

/// The stores of a command line as units, and as those of a target.
fn read_stores(stores: &[String]) -> Result<(Vec<Unit>, Vec<TargetLun>), ConfigError> {
    let mut units = Vec::new();
    let mut luns = Vec::new();
    for (position, text) in stores.iter().enumerate() {
        let place = Place::argument(format!("STORE {text:?}"));
        let store = StoreSpec::parse(text).at(|| place.clone())?;
        check_alone(&store).at(|| place.clone())?;
        let lun = u16::try_from(position).ok().and_then(LunNumber::new);
        luns.push(TargetLun {
            lun: lun.ok_or_else(|| {
                Rule::OutOfRange {
                    got: position.to_string(),
                    min: 0,
                    max: u64::from(LunNumber::MAX),
                }
                .at(place.clone())
            })?,
            unit: UnitIndex(position),
            groups: Vec::new(),
            read_only: store.read_only,
        });
        units.push(Unit::of_store(store, place));
    }
    Ok((units, luns))
}

fn read_listens(listens: &[String]) -> Result<Vec<Portal>, ConfigError> {
    let mut portals: Vec<Portal> = Vec::new();
    for text in listens {
        let place = Place::argument(format!("--listen {text}"));
        let bind = address::parse_bind(text).at(|| place.clone())?;
        if let Some(first) = portals.iter().find(|portal| portal.bind == bind) {
            return Err(Rule::Twice {
                what: "portal",
                name: bind.to_string(),
                first: first.place.clone(),
            }
            .at(place));
        }
        portals.push(Portal {
            bind,
            advertise: None,
            group_tag: GROUP_TAG_DEFAULT,
            place,
        });
    }
    if portals.is_empty() {
        portals.push(default_portal(Place::argument("--listen")));
    }
    Ok(portals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreAt;

    fn model(stores: &[&str], listens: &[&str]) -> Result<Model, ConfigError> {
        let owned = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        let name = IscsiName::parse("iqn.2026-11.example.tarn:test").unwrap();
        Model::from_stores(&owned(stores), name, &owned(listens))
    }

    #[test]
    fn stores_become_luns_in_their_order_on_loopback() {
        let model = model(&["mem:1M", "disk.img?readonly"], &[]).unwrap();
        let [target] = model.targets() else {
            panic!("one target");
        };
        assert_eq!(target.portals[0].bind.to_string(), "127.0.0.1:3260");
        let luns: Vec<_> = target
            .luns
            .entries()
            .iter()
            .map(|entry| (entry.lun.value(), entry.unit.position(), entry.read_only))
            .collect();
        assert_eq!(luns, [(0, 0, false), (1, 1, true)]);
        assert_eq!(model.units()[1].store.at, StoreAt::path("disk.img"));
        assert_eq!(
            model.target_by_name("IQN.2026-11.example.tarn:test"),
            Some(TargetIndex(0))
        );
    }

    #[test]
    fn what_is_wrong_names_the_argument() {
        for (stores, listens, message) in [
            (
                &[][..],
                &[][..],
                "STORE: nothing to serve; name a STORE such as disk.img?size=1G or mem:256M, or give --config FILE",
            ),
            (
                &["mem:10X"],
                &[],
                "STORE \"mem:10X\": size \"10X\": unknown suffix \"X\"; use k, M, G or T",
            ),
            (
                &["a", "a?readonly"],
                &[],
                "STORE \"a?readonly\": store \"a\" is already used at STORE \"a\"; keep one, and show its unit under \
                 several LUN numbers or targets instead",
            ),
            (
                &["mem:1M?serial=x", "mem:1M?serial=x"],
                &[],
                "STORE \"mem:1M?serial=x\": serial \"x\" is already that of the unit at STORE \"mem:1M?serial=x\"; \
                 give each unit its own",
            ),
            (
                &["mem:1M"],
                &["127.0.0.1", "127.0.0.1:3260"],
                "--listen 127.0.0.1:3260: portal \"127.0.0.1:3260\" is already used at --listen 127.0.0.1; give each \
                 its own",
            ),
            (
                &["mem:1M"],
                &["127.0.0.1:3260", "0.0.0.0:3260"],
                "--listen 0.0.0.0:3260: address 0.0.0.0:3260 overlaps 127.0.0.1:3260 at --listen 127.0.0.1:3260; keep \
                 the one for all addresses or name each address",
            ),
        ] {
            assert_eq!(model(stores, listens).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn addresses_that_do_not_overlap_may_stand_side_by_side() {
        for listens in [
            ["127.0.0.1:3260", "0.0.0.0:3261"],
            ["127.0.0.1:3260", "[::]:3260"],
            ["127.0.0.1:0", "0.0.0.0:0"],
            ["127.0.0.1:3260", "127.0.0.2:3260"],
        ] {
            assert_eq!(model(&["mem:1M"], &listens).unwrap().listeners().len(), 2);
        }
    }

    #[test]
    fn the_last_lun_number_is_used_and_the_one_after_it_refused() {
        let stores = vec!["mem:512"; 1 << 14];
        assert!(model(&stores, &[]).is_ok());
        let stores = vec!["mem:512"; (1 << 14) + 1];
        assert_eq!(
            model(&stores, &[]).unwrap_err().broken(),
            Some(&Rule::OutOfRange {
                got: "16384".to_owned(),
                min: 0,
                max: 16_383
            })
        );
    }
}
