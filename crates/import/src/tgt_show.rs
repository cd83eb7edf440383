//! tgt: what `tgtadm --op show --mode target` prints, the running state with every number.

use crate::found::{self, Found, Target, User, View};
use crate::tgt::{self, TgtUnit};
use crate::{Place, ReadError, Source, acl, address};

/// What is wrong with a line that numbers a target or unit.
const NUMBER: &str = "a number is expected behind the colon";

/// The part of a target that is being read.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Part {
    System,
    Nexus,
    Units,
    Accounts,
    Acl,
}

/// The headings of the parts.
const PARTS: &[(&str, Part)] = &[
    ("System information:", Part::System),
    ("I_T nexus information:", Part::Nexus),
    ("LUN information:", Part::Units),
    ("Account information:", Part::Accounts),
    ("ACL information:", Part::Acl),
];

pub(crate) fn read(sources: &[Source<'_>], found: &mut Found) -> Result<(), ReadError> {
    for source in sources {
        let mut shown: Option<Shown<'_>> = None;
        for (number, line) in (1..).zip(source.text.lines()) {
            let place = source.at(number);
            if let Some(heading) = line.strip_prefix("Target ") {
                let next = Shown::begin(place, heading)?;
                if let Some(done) = shown.replace(next) {
                    done.finish(found);
                }
            } else if let Some(shown) = &mut shown {
                if !line.trim().is_empty() {
                    shown.line(place, line.trim())?;
                }
            } else if !line.trim().is_empty() {
                let problem = "a line before the first target; take out what tgtadm did not print";
                return Err(ReadError::syntax(place, problem));
            }
        }
        if let Some(done) = shown {
            done.finish(found);
        }
        tgt::note_common(&source.at(0), found);
    }
    Ok(())
}

/// A target as it is shown.
struct Shown<'a> {
    place: Place,
    tid: u64,
    name: &'a str,
    driver: &'a str,
    state: &'a str,
    part: Part,
    /// How many headings have been passed.
    parts: usize,
    units: Vec<(u64, TgtUnit<'a>)>,
    accounts: Vec<(Place, &'a str)>,
    acl: Vec<&'a str>,
    /// Lines that nothing is known of.
    unknown: Vec<(Place, &'a str)>,
}

fn number(place: &Place, text: &str) -> Result<u64, ReadError> {
    text.trim()
        .parse()
        .map_err(|_not_a_number| ReadError::syntax(place.clone(), NUMBER))
}

impl<'a> Shown<'a> {
    fn begin(place: Place, heading: &'a str) -> Result<Self, ReadError> {
        let (tid, name) = heading.split_once(": ").unwrap_or((heading, ""));
        Ok(Self {
            tid: number(&place, tid)?,
            place,
            name: name.trim(),
            driver: "iscsi",
            state: "",
            part: Part::System,
            parts: 0,
            units: Vec::new(),
            accounts: Vec::new(),
            acl: Vec::new(),
            unknown: Vec::new(),
        })
    }

    fn line(&mut self, place: Place, line: &'a str) -> Result<(), ReadError> {
        if let Some(position) = PARTS.iter().position(|(heading, _)| *heading == line) {
            // They come once each, in this order; else a target begins that is not seen as one.
            if self.parts > position {
                return Err(ReadError::syntax(
                    place,
                    format!("{line:?} comes a second time in one target"),
                ));
            }
            self.parts = position.saturating_add(1);
            self.part = PARTS.get(position).map_or(self.part, |(_, part)| *part);
            return Ok(());
        }
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        match self.part {
            Part::System if key == "Driver" => self.driver = value,
            Part::System if key == "State" => self.state = value,
            Part::Units if key == "LUN" => {
                let lun = number(&place, value)?;
                self.units.push((lun, empty_unit(place)));
            }
            Part::Units => {
                let unit = self.units.last_mut().map(|(_, unit)| unit);
                if !unit.is_some_and(|unit| set(unit, key, value)) {
                    self.unknown.push((place, line));
                }
            }
            Part::Accounts => self.accounts.push((place, line)),
            Part::Acl => self.acl.push(line),
            Part::System => self.unknown.push((place, line)),
            Part::Nexus => {}
        }
        Ok(())
    }

    fn finish(self, found: &mut Found) {
        let subject = format!("target {}", self.name);
        if self.driver != "iscsi" {
            let message = format!("driver {:?}; Tarn speaks iSCSI over TCP", self.driver);
            let remedy = "log the initiators in over TCP";
            found.left_out(&self.place, &subject, message, remedy);
            return;
        }
        let mut target = Target::new(self.place.clone(), self.name);
        target.portals = found::portal_of_all();
        for (place, line) in &self.unknown {
            target.is_guarded |= !found.unknown_key(place, &subject, line);
        }
        if self.state != "ready" || self.acl.is_empty() {
            let message = format!(
                "nobody could log in: its state is {:?}, and {} names and addresses are let in",
                self.state,
                self.acl.len()
            );
            found.left_out(
                &self.place,
                &subject,
                message,
                "add it by hand, if it is used",
            );
            target.is_guarded = true;
        }
        add_accounts(&self.accounts, &mut target, found);
        let (addresses, names): (Vec<String>, Vec<String>) = self
            .acl
            .iter()
            .map(|entry| (*entry).to_owned())
            .partition(|entry| entry == "ALL" || address::network(entry).is_some());
        // What is neither may be either.
        for name in names.iter().filter(|name| !acl::is_literal(name)) {
            target.is_guarded |= !found.unknown_key(&self.place, &subject, name);
        }
        let group = tgt::acl_of(names, addresses, self.name, &self.place, found);
        for (lun, unit) in self.units {
            let place = unit.place.clone();
            if unit.device_type == "controller" {
                continue;
            }
            if let Some(unit) = unit.finish(self.tid, lun, found) {
                target.views.push(View {
                    place,
                    lun,
                    unit: found.add_unit(unit),
                    group: group.clone(),
                    read_only: false,
                });
            }
        }
        found.targets.push(target);
    }
}

/// The names of accounts; their secrets are not shown.
fn add_accounts(accounts: &[(Place, &str)], target: &mut Target, found: &mut Found) {
    let outgoing = accounts
        .iter()
        .find_map(|(_, line)| line.strip_suffix(" (outgoing)"));
    let mutual = outgoing.map(|name| found::Mutual {
        name: name.to_owned(),
        secret: None,
    });
    for (place, name) in accounts {
        if !name.is_empty() && !name.ends_with(" (outgoing)") {
            target.needs_user = true;
            target.auth.push((*name).to_owned());
            let user = User::new(place.clone(), *name, None);
            found.users.push(User {
                mutual: mutual.clone(),
                ..user
            });
        }
    }
}

fn empty_unit<'a>(place: Place) -> TgtUnit<'a> {
    TgtUnit {
        place,
        path: String::new(),
        is_direct: false,
        scsi_id: None,
        scsi_sn: None,
        vendor: "IET",
        product: tgt::DISK,
        backing_type: "rdwr",
        device_type: "disk",
        block_bytes: None,
        read_only: false,
        removable: false,
        is_through: false,
        is_unbuffered: false,
        thin: false,
        options: "",
        is_offline: false,
        idle: Vec::new(),
    }
}

/// False if the key is not known.
fn set<'a>(unit: &mut TgtUnit<'a>, key: &str, value: &'a str) -> bool {
    match key {
        "Online" => unit.is_offline = value != "Yes",
        "Prevent removal" | "SWP" => {}
        "Type" => unit.device_type = value,
        "SCSI ID" => unit.scsi_id = Some(value),
        "SCSI SN" => unit.scsi_sn = Some(value),
        "Size" => unit.block_bytes = block_bytes(value),
        "Readonly" => unit.read_only = value != "No",
        "Removable media" => unit.removable = value == "Yes",
        "Thin-provisioning" => unit.thin = value == "Yes",
        "Backing store type" => unit.backing_type = value,
        "Backing store path" => value.clone_into(&mut unit.path),
        "Backing store flags" => {
            unit.is_through = value.contains("sync");
            unit.is_unbuffered = value.contains("direct");
        }
        _ => return false,
    }
    true
}

/// The block size in `17 MB, Block size: 512`.
fn block_bytes(size: &str) -> Option<u64> {
    let (_, block) = size.rsplit_once("Block size:")?;
    block.trim().parse().ok()
}
