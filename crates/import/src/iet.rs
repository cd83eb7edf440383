//! The iSCSI Enterprise Target: `ietd.conf`, and `initiators.allow` or `.deny` beside it.
//!
//! A disk shows the T10 vendor designator of its ScsiId, which IET makes of the inode of the file if it
//! is not set, and no NAA designator.

use std::collections::BTreeMap;

use crate::acl::Acl;
use crate::found::{self, Found, Idle, Mutual, Portal, Secret, Target, Unit, User, View};
use crate::lines::{self, Line, base_name};
use crate::{Place, ReadError, Source, acl, address};
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

/// A line of a list: whom it is about, and its entries.
struct Rule {
    place: Place,
    target: String,
    entries: Vec<String>,
}

impl Rule {
    fn is_for_all(&self) -> bool {
        self.entries.iter().any(|entry| entry == "ALL")
    }
}

/// The lists, in the order of their lines; `None` is a list that is not there.
#[derive(Default)]
struct Lists {
    allowed: Option<Vec<Rule>>,
    denied: Option<Vec<Rule>>,
    shown_at: Option<Vec<Rule>>,
}

/// The line that counts for a target: the first that names it, or all.
fn rule_of<'a>(list: Option<&'a Vec<Rule>>, target: &str) -> Option<&'a Rule> {
    let mut rules = list.into_iter().flatten();
    rules.find(|rule| rule.target == target || rule.target == "ALL")
}

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    let lists = read_lists(sources)?;
    for source in sources {
        if kind_of(source) == Kind::Config {
            read_config(source, &lists, found)?;
        }
    }
    Ok(())
}

/// The lines of a text. Not every IET joins lines: what would be a statement of its own is not to be a part of another.
fn lines_of(source: &Source<'_>) -> Result<Vec<Line>, ReadError> {
    let lines = lines::joined(source.text);
    let is_statement = |part: &String| {
        let key = lines::first_word(part).0.to_ascii_lowercase();
        STATEMENTS.contains(&key.as_str()) || OF_TARGET.iter().any(|(known, _)| *known == key)
    };
    let is_doubtful =
        |line: &&Line| line.text.ends_with('\\') || line.joined.iter().any(is_statement);
    if let Some(line) = lines.iter().find(is_doubtful) {
        let problem = "it is not certain where this line ends; take the backslash out of it";
        return Err(ReadError::syntax(source.at(line.number), problem));
    }
    Ok(lines)
}

fn read_lists(sources: &[Source<'_>]) -> Result<Lists, ReadError> {
    let mut lists = Lists::default();
    for source in sources {
        let list = match kind_of(source) {
            Kind::Config => continue,
            Kind::Allow => &mut lists.allowed,
            Kind::Deny => &mut lists.denied,
            Kind::Targets => &mut lists.shown_at,
        };
        let list = list.get_or_insert_default();
        for line in lines_of(source)? {
            let (target, entries) = lines::first_word(&line.text);
            let entries = entries.split(',').map(str::trim);
            list.push(Rule {
                place: source.at(line.number),
                target: target.to_owned(),
                entries: entries
                    .filter(|entry| !entry.is_empty())
                    .map(str::to_owned)
                    .collect(),
            });
        }
    }
    Ok(lists)
}

/// The configuration as far as it is read.
struct Reader<'a> {
    source: &'a Source<'a>,
    lists: &'a Lists,
    target: Option<Target>,
    /// With what the target proves itself.
    outgoing: Option<Mutual>,
    /// Users of the target, which may stand before its OutgoingUser.
    incoming: Vec<User>,
}

fn read_config(source: &Source<'_>, lists: &Lists, found: &mut Found) -> Result<(), ReadError> {
    let mut reader = Reader {
        source,
        lists,
        target: None,
        outgoing: None,
        incoming: Vec::new(),
    };
    for line in lines_of(source)? {
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
                let (name, more) = lines::first_word(rest);
                let mut target = Target::new(place, name);
                target.portals = found::portal_of_all();
                target.is_guarded = !is_nothing(more, &target.place, name, found);
                self.target = Some(target);
            }
            ("incominguser", _) => {
                let (name, secret) = account(rest);
                self.incoming.push(User::new(place, name, secret));
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
                let is_known = found.idle_key(OF_TARGET, &place, &format!("target {name}"), key);
                match target {
                    Some(target) => target.is_guarded |= !is_known,
                    None => found.is_guarded |= !is_known,
                }
            }
        }
        Ok(())
    }

    /// Takes what was read since the last target, or before the first, to where it belongs.
    fn finish(&mut self, found: &mut Found) {
        let outgoing = self.outgoing.take();
        let users = self.incoming.drain(..).map(|user| User {
            mutual: outgoing.clone(),
            ..user
        });
        let Some(mut target) = self.target.take() else {
            // Before the first target stand the users of discovery.
            users.for_each(|user| found.add_discovery_user(user));
            return;
        };
        users.for_each(|user| found.add_target_user(&mut target, user));
        self.set_access(&mut target, found);
        self.set_portals(&mut target, found);
        found.targets.push(target);
    }

    /// Who sees the disks: whom `initiators.allow` names, or everyone where the lists keep nobody out.
    fn set_access(&self, target: &mut Target, found: &mut Found) {
        let Lists {
            allowed, denied, ..
        } = self.lists;
        let own = rule_of(allowed.as_ref(), &target.name);
        let is_denied = rule_of(denied.as_ref(), &target.name).is_some();
        let group = match own {
            Some(rule) => group_of(rule, &target.name, found),
            // With initiators.allow alone, IET since 1.4.18 keeps out whom it does not name.
            None if is_denied || (allowed.is_some() && denied.is_none()) => {
                let message = "the lists of initiators keep everyone out of it, or do not say who may come in";
                let remedy = "add the target by hand, with a group of those who may see its disks";
                let subject = format!("target {}", target.name);
                found.left_out(&target.place, &subject, message, remedy);
                target.is_guarded = true;
                None
            }
            None => None,
        };
        for view in &mut target.views {
            view.group.clone_from(&group);
        }
    }

    /// Where it is reached: `targets.allow` has addresses of this machine.
    fn set_portals(&self, target: &mut Target, found: &mut Found) {
        let Some(list) = &self.lists.shown_at else {
            return;
        };
        let rule = rule_of(Some(list), &target.name);
        if rule.is_some_and(Rule::is_for_all) {
            return;
        }
        let entries = rule.map(|rule| rule.entries.as_slice()).unwrap_or_default();
        let binds: Option<Vec<String>> = entries
            .iter()
            .map(|entry| address::address(entry).and_then(|_| address::bind(entry)))
            .collect();
        match binds.filter(|binds| !binds.is_empty()) {
            Some(binds) => {
                target.portals = binds
                    .into_iter()
                    .map(|bind| Portal { bind, tag: 1 })
                    .collect();
                target.is_bound = true;
            }
            None => {
                let place = rule.map_or(&target.place, |rule| &rule.place);
                let message = "targets.allow shows it at some addresses of the machine only, which it does not list \
                    one by one, or at none";
                let remedy = "list the addresses there and import again, or add the target by hand with these portals";
                found.left_out(place, &format!("target {}", target.name), message, remedy);
                target.is_guarded = true;
            }
        }
    }
}

/// What begins a line, beside the keys of a target that have no counterpart.
const STATEMENTS: &[&str] = &["target", "incominguser", "outgoinguser", "alias", "lun"];

/// Whether nothing stands at the end of a line but a comment.
fn is_nothing(more: &str, place: &Place, target: &str, found: &mut Found) -> bool {
    more.is_empty()
        || more.starts_with('#')
        || found.unknown_key(place, &format!("target {target}"), more)
}

/// The group of a line; `None` is everyone.
fn group_of(rule: &Rule, target: &str, found: &mut Found) -> Option<String> {
    if rule.is_for_all() || !found.has_room(&rule.place, rule.entries.len()) {
        return None;
    }
    let subject = format!("access to {target}");
    let mut names = Vec::new();
    let mut list = Vec::new();
    for entry in &rule.entries {
        match (address::network(entry), address::strict_network(entry)) {
            (_, Some(network)) => list.push(network),
            (None, _) => names.push(entry.clone()),
            (Some(_), None) => {
                let message =
                    format!("{entry:?} is nobody to IET, as it has bits behind its prefix");
                let remedy = "add the network to the group if it was meant";
                found.left_out(&rule.place, &subject, message, remedy);
            }
        }
    }
    // One entry is enough, so all are of one list: that of addresses takes names as well. Names are regular
    // expressions.
    list.extend(acl::literal(names, &rule.place, &subject, found));
    let acl = Acl {
        names: None,
        addresses: Some(list),
        unclear: None,
    };
    acl.into_group(target, &rule.place, found)
}

/// Name and secret. A user without a secret stays a user: who asks for CHAP goes on to.
fn account(rest: &str) -> (String, Option<Secret>) {
    let (name, secret) = lines::first_word(rest);
    let (secret, _) = lines::first_word(secret);
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
    let subject = format!("target {} LUN {lun}", target.name);
    let (parameters, unknown) = Parameters::of(parameters);
    let mut unit = parameters.unit(&place, &target.name, lun);
    for word in unknown {
        unit.is_guarded |= !found.unknown_key(&place, &subject, &word);
    }
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
    /// The parameters, and what is none that IET knows.
    fn of(text: &str) -> (Self, Vec<String>) {
        let mut parameters = BTreeMap::new();
        let mut unknown = Vec::new();
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let key = key.trim().to_ascii_lowercase();
            let value = value.trim();
            let is_known = match key.as_str() {
                "type" => ["fileio", "blockio", "nullio"]
                    .iter()
                    .any(|kind| value.eq_ignore_ascii_case(kind)),
                "iomode" => ["ro", "wb", "wt"]
                    .iter()
                    .any(|mode| value.eq_ignore_ascii_case(mode)),
                key => KNOWN.contains(&key) && !value.is_empty(),
            };
            if !is_known {
                unknown.push(word.to_owned());
            }
            parameters.insert(key, value.to_owned());
        }
        (Self(parameters), unknown)
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
