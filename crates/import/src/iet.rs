//! The iSCSI Enterprise Target: `ietd.conf`, and `initiators.allow` or `.deny` beside it.
//!
//! A disk shows the T10 vendor designator of its ScsiId, which IET makes of the inode of the file if it
//! is not set, and no NAA designator.

use std::collections::{BTreeMap, BTreeSet};

use crate::acl::Acl;
use crate::found::{self, Found, Idle, Mutual, Secret, Target, Unit, View};
use crate::lines::{self, Line, base_name};
use crate::{Place, ReadError, Source, address};
use config::{CacheMode, StoreAt, StoreKind};

const OF_TARGET: &[(&str, Idle)] = &[
    ("headerdigest", Idle::Tuning),
    ("datadigest", Idle::Tuning),
    ("maxconnections", Idle::Tuning),
    ("maxsessions", Idle::Tuning),
    ("initialr2t", Idle::Tuning),
    ("immediatedata", Idle::Tuning),
    ("maxrecvdatasegmentlength", Idle::Tuning),
    ("maxxmitdatasegmentlength", Idle::Tuning),
    ("maxburstlength", Idle::Tuning),
    ("firstburstlength", Idle::Tuning),
    ("defaulttime2wait", Idle::Tuning),
    ("defaulttime2retain", Idle::Tuning),
    ("maxoutstandingr2t", Idle::Tuning),
    ("nopinterval", Idle::Tuning),
    ("noptimeout", Idle::Tuning),
    ("errorrecoverylevel", Idle::Tuning),
    ("datapduinorder", Idle::Housekeeping),
    ("datasequenceinorder", Idle::Housekeeping),
    ("wthreads", Idle::Housekeeping),
    ("queuedcommands", Idle::Housekeeping),
    ("target_vendor", Idle::Housekeeping),
    (
        "isnsserver",
        Idle::Missed(
            "Tarn does not register with iSNS",
            "give the initiators the address of the portal",
        ),
    ),
    ("isnsaccesscontrol", Idle::Housekeeping),
];

/// What initiators go by.
const T10_VENDOR: &str =
    "a T10 vendor designator, IET with the ScsiId (made of the file's inode if it is not set)";

/// Which of the files of IET a text is; the lists have no syntax of their own.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Config,
    Allow,
    Deny,
    /// `targets.allow`: which addresses show which target.
    Targets,
}

fn kind_of(source: &Source<'_>) -> Kind {
    match base_name(source.name) {
        name if name.starts_with("targets.") => Kind::Targets,
        name if name.ends_with(".deny") => Kind::Deny,
        name if name.ends_with(".allow") => Kind::Allow,
        _ => Kind::Config,
    }
}

/// What the lists say of each target, and of `ALL`.
#[derive(Default)]
struct Lists {
    /// Who is in `initiators.allow`.
    allowed: BTreeMap<String, (Place, Acl)>,
    /// Targets that `initiators.deny` names.
    denied: BTreeSet<String>,
}

impl Lists {
    /// The list of that target, or else that of all.
    fn allowed(&self, target: &str) -> Option<&(Place, Acl)> {
        let own = self.allowed.get(target);
        own.or_else(|| self.allowed.get("ALL"))
    }

    /// Whether initiators are shut out of a target, and no list says who is not.
    fn is_closed(&self, target: &str) -> bool {
        let is_denied = [target, "ALL"]
            .iter()
            .any(|name| self.denied.contains(*name));
        is_denied && self.allowed(target).is_none()
    }
}

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    let lists = read_lists(sources, found);
    for source in sources {
        if kind_of(source) == Kind::Config {
            read_config(source, &lists, found)?;
        }
    }
    Ok(())
}

fn read_lists(sources: &[Source<'_>], found: &mut Found) -> Lists {
    let mut lists = Lists::default();
    for source in sources {
        let kind = kind_of(source);
        if kind == Kind::Config {
            continue;
        }
        for line in lines::joined(source.text) {
            let place = source.at(line.number);
            let (target, entries) = lines::first_word(&line.text);
            match kind {
                Kind::Allow => allow(&mut lists, place, target, entries),
                Kind::Config | Kind::Deny | Kind::Targets => {
                    if kind == Kind::Deny {
                        lists.denied.insert(target.to_owned());
                    }
                    let message = format!(
                        "{target}: {entries}; groups of Tarn only include initiators, and a target shows \
                         itself at all its portals"
                    );
                    let remedy = "list who may see the disks in a group, and set portals";
                    found.left_out(&place, &format!("target {target}"), message, remedy);
                }
            }
        }
    }
    lists
}

fn allow(lists: &mut Lists, place: Place, target: &str, entries: &str) {
    let (_, acl) = lists
        .allowed
        .entry(target.to_owned())
        .or_insert_with(|| (place, Acl::default()));
    for entry in entries
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        // One entry is enough, so all are of one list: that of addresses takes names as well.
        acl.addresses
            .push(address::network(entry).unwrap_or_else(|| entry.to_owned()));
    }
}

/// The configuration as far as it is read.
struct Reader<'a> {
    source: &'a Source<'a>,
    lists: &'a Lists,
    target: Option<Target>,
    /// With what the target proves itself.
    outgoing: Option<Mutual>,
    /// Users of the target, which may stand before its OutgoingUser.
    incoming: Vec<(Place, String, Option<Secret>)>,
}

fn read_config(source: &Source<'_>, lists: &Lists, found: &mut Found) -> Result<(), ReadError> {
    let mut reader = Reader {
        source,
        lists,
        target: None,
        outgoing: None,
        incoming: Vec::new(),
    };
    for line in lines::joined(source.text) {
        reader.line(&line, found)?;
    }
    reader.finish(found);
    let message =
        "the addresses of ietd are on its command line; Tarn would listen on all, port 3260";
    let remedy = "give --listen ADDRESS:PORT if it listened elsewhere";
    found.changed(&source.at(0), "portals", message, remedy);
    Ok(())
}

impl Reader<'_> {
    fn line(&mut self, line: &Line, found: &mut Found) -> Result<(), ReadError> {
        let place = self.source.at(line.number);
        let (key, rest) = lines::first_word(&line.text);
        let key = key.to_ascii_lowercase();
        match (key.as_str(), &mut self.target) {
            ("target", _) => {
                self.finish(found);
                let mut target = Target::new(place, rest);
                target.portals = found::portal_of_all();
                self.target = Some(target);
            }
            ("incominguser", _) => {
                let (name, secret) = account(rest);
                self.incoming.push((place, name, secret));
            }
            ("outgoinguser", _) => {
                let (name, secret) = account(rest);
                self.outgoing = Some(Mutual { name, secret });
            }
            ("alias", Some(target)) => target.alias = Some(rest.to_owned()),
            ("lun", Some(target)) => read_lun(place, rest, target, found)?,
            (key, target) => {
                let name = target
                    .as_ref()
                    .map_or("global", |target| target.name.as_str());
                let subject = format!("target {name}");
                found.idle_key(OF_TARGET, &place, &subject, key);
            }
        }
        Ok(())
    }

    /// Takes what was read since the last target, or before the first, to where it belongs.
    fn finish(&mut self, found: &mut Found) {
        let outgoing = self.outgoing.take();
        let mut names = Vec::new();
        for (place, name, secret) in self.incoming.drain(..) {
            found.add_user(place, &name, secret, outgoing.clone());
            names.push(name);
        }
        let Some(mut target) = self.target.take() else {
            // Before the first target stand the users of discovery.
            found.discovery_auth.extend(names);
            return;
        };
        target.auth = names;
        if self.lists.is_closed(&target.name) {
            let message = "initiators.deny shuts initiators out of it, and no list says who may come in; \
                without the list it would be open";
            let remedy = "add the target by hand, with a group of those who may see its disks";
            let subject = format!("target {}", target.name);
            found.left_out(&target.place, &subject, message, remedy);
            return;
        }
        let list = self.lists.allowed(&target.name);
        if let Some((place, acl)) = list.filter(|_| found.has_room(&target.place, 0)) {
            let acl = Acl {
                names: Vec::new(),
                addresses: acl.addresses.clone(),
            };
            let group = acl.into_group(&target.name, place, found);
            for view in &mut target.views {
                view.group.clone_from(&group);
            }
        }
        found.targets.push(target);
    }
}

/// Name and secret. A user without a secret stays a user: who asks for CHAP goes on to.
fn account(rest: &str) -> (String, Option<Secret>) {
    let (name, secret) = lines::first_word(rest);
    let secret = (!secret.is_empty()).then(|| Secret::new(secret.to_owned()));
    (name.to_owned(), secret)
}

fn read_lun(
    place: Place,
    rest: &str,
    target: &mut Target,
    found: &mut Found,
) -> Result<(), ReadError> {
    let (number, parameters) = lines::first_word(rest);
    let lun = number
        .parse()
        .map_err(|_not_a_number| ReadError::syntax(place.clone(), "Lun wants a number"))?;
    let parameters = Parameters::of(parameters);
    let subject = format!("target {} LUN {lun}", target.name);
    for key in parameters
        .0
        .keys()
        .filter(|key| !KNOWN.contains(&key.as_str()))
    {
        found.unknown_key(&place, &subject, key);
    }
    let unit = parameters.unit(&place, &target.name, lun);
    target.views.push(View {
        place,
        lun,
        unit: found.add_unit(unit),
        group: None,
        read_only: false,
    });
    Ok(())
}

/// Parameters of a `Lun` line.
const KNOWN: &[&str] = &[
    "path",
    "type",
    "scsiid",
    "scsisn",
    "iomode",
    "blocksize",
    "blocks",
    "sectors",
];

/// `Key=value` pairs, joined by commas; keys in small letters.
struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn of(text: &str) -> Self {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        Self(
            pairs
                .map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
        )
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn unit(&self, place: &Place, target: &str, lun: u64) -> Unit {
        let block = self.get("blocksize");
        let block_bytes = block.map_or(512, |text| text.parse().unwrap_or(0));
        let blocks = self.get("blocks").or_else(|| self.get("sectors"));
        let blocks: u64 = blocks.and_then(|text| text.parse().ok()).unwrap_or(0);
        let path = self.get("path").unwrap_or_default();
        let is_null = self
            .get("type")
            .is_some_and(|kind| kind.eq_ignore_ascii_case("nullio"));
        let (name, store) = if is_null {
            let store = StoreAt::sized(StoreKind::Null, blocks.saturating_mul(block_bytes));
            (
                format!("{}-{lun}", target.rsplit(':').next().unwrap_or(target)),
                store,
            )
        } else {
            (base_name(path).to_owned(), StoreAt::path(path.to_owned()))
        };
        let mode = self.get("iomode").unwrap_or("wt");
        let mut unit = Unit::new(place.clone(), name, store);
        unit.block_bytes = block_bytes;
        unit.store.read_only = mode.eq_ignore_ascii_case("ro");
        // Write-through is the default of IET.
        if !mode.eq_ignore_ascii_case("wb") {
            unit.store.cache = CacheMode::Writethrough;
        }
        unit.store.thin = Some(false);
        unit.inquiry = ("IET".to_owned(), "VIRTUAL-DISK".to_owned());
        unit.serial = self.get("scsisn").map(str::to_owned);
        unit.other_designator = Some(T10_VENDOR);
        unit
    }
}
