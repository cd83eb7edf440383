//! The result as TOML, with comments that say where each thing comes from.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use toml::Value;

use crate::found::{Found, Group, Target, Unit, User, View};
use crate::settle::Secrets;
use crate::{Format, Place};
use config::{BlockSize, StoreOption, StoreSpec};

/// Where the sections of a text are, by the byte at which each begins.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    /// What all others may refer to ends here.
    head: usize,
    units: Vec<usize>,
    targets: Vec<usize>,
    /// Which units each target shows, by their positions, in the order of the targets.
    shows: Vec<(usize, usize)>,
    /// Units that no target shows.
    unseen: Vec<usize>,
}

impl Sections {
    /// The text of the section at a position of a list; `end` is where the last of them ends.
    fn text<'t>(text: &'t str, begins: &[usize], position: usize, end: usize) -> &'t str {
        let begin = begins.get(position).copied().unwrap_or(end);
        let end = begins
            .get(position.saturating_add(1))
            .copied()
            .unwrap_or(end);
        text.get(begin..end).unwrap_or_default()
    }

    /// See [`crate::Imported::parts`].
    pub(crate) fn parts<'t>(
        &'t self,
        text: &'t str,
        bytes: usize,
    ) -> impl Iterator<Item = String> + 't {
        let head = text.get(..self.head).unwrap_or_default();
        // All parts together take at most twice as long to read as the text.
        let bytes = bytes.max(head.len().saturating_mul(2));
        let end_of_units = self.targets.first().copied().unwrap_or(text.len());
        let mut position = 0;
        let mut shows = self.shows.iter().copied().peekable();
        let mut unseen = self.unseen.iter().copied().peekable();
        let mut is_first = true;
        std::iter::from_fn(move || {
            let is_whole = std::mem::take(&mut is_first) && text.len() <= bytes;
            if is_whole {
                position = self.targets.len();
                unseen = [].iter().copied().peekable();
                return Some(text.to_owned());
            }
            if position >= self.targets.len() && unseen.peek().is_none() {
                return None;
            }
            let (mut units, mut targets) = (BTreeSet::new(), String::new());
            let mut size = head.len();
            while position < self.targets.len() && (targets.is_empty() || size < bytes) {
                let target = Self::text(text, &self.targets, position, text.len());
                targets.push_str(target);
                size = size.saturating_add(target.len());
                while let Some((_, unit)) = shows.next_if(|(target, _)| *target == position) {
                    if units.insert(unit) {
                        let unit = Self::text(text, &self.units, unit, end_of_units);
                        size = size.saturating_add(unit.len());
                    }
                }
                position = position.saturating_add(1);
            }
            while let Some(unit) =
                unseen.next_if(|_| size < bytes && position >= self.targets.len())
            {
                units.insert(unit);
                size = size.saturating_add(Self::text(text, &self.units, unit, end_of_units).len());
            }
            let mut part = head.to_owned();
            for unit in units {
                part.push_str(Self::text(text, &self.units, unit, end_of_units));
            }
            part.push_str(&targets);
            Some(part)
        })
    }
}

/// The text of the configuration, and where its sections are.
pub(crate) fn write(format: Format, found: &Found, secrets: &Secrets) -> (String, Sections) {
    let mut text = String::new();
    let mut sections = Sections::default();
    // Writing to a String cannot fail.
    let _infallible = write_all((&mut text, &mut sections), format, found, secrets);
    (text, sections)
}

fn write_all(
    (out, sections): (&mut String, &mut Sections),
    format: Format,
    found: &Found,
    secrets: &Secrets,
) -> fmt::Result {
    writeln!(out, "# Imported from {}.", format.meaning())?;
    writeln!(
        out,
        "# docs/reference/configuration.md explains the keys, docs/guide/migration.md the move."
    )?;
    if !found.discovery_auth.is_empty() {
        writeln!(out, "\n[server]")?;
        writeln!(out, "discovery_auth = {}", strings(&found.discovery_auth))?;
    }
    for (position, user) in found.users.iter().enumerate() {
        if let Some(files) = secrets.names_of(position) {
            write_user(out, user, files)?;
        }
    }
    for group in &found.groups {
        write_group(out, group)?;
    }
    sections.head = out.len();
    for unit in &found.units {
        sections.units.push(out.len());
        write_unit(out, unit)?;
    }
    for (position, target) in found.targets.iter().enumerate() {
        sections.targets.push(out.len());
        let units = target.views.iter().map(|view| (position, view.unit));
        sections.shows.extend(units);
        write_target(out, target, &found.units)?;
    }
    let seen: BTreeSet<usize> = sections.shows.iter().map(|(_, unit)| *unit).collect();
    let all = 0..found.units.len();
    sections.unseen = all.filter(|unit| !seen.contains(unit)).collect();
    Ok(())
}

/// A string as TOML writes it.
fn string(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn strings(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|text| string(text)).collect())
}

/// The heading of a section, with the place it comes from.
fn heading(out: &mut String, name: &str, place: &Place) -> fmt::Result {
    // A line end in a file name would end the comment.
    let place: String = place
        .to_string()
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    writeln!(out, "\n# {place}\n[[{name}]]")
}

fn write_user(
    out: &mut String,
    user: &User,
    (own, mutual_file): (&str, Option<&str>),
) -> fmt::Result {
    heading(out, "user", &user.place)?;
    writeln!(out, "name = {}", string(&user.name))?;
    writeln!(out, "secret_file = {}", string(own))?;
    if !user.initiators.is_empty() {
        writeln!(out, "initiators = {}", strings(&user.initiators))?;
    }
    if let (Some(mutual), Some(file)) = (&user.mutual, mutual_file) {
        let name = string(&mutual.name);
        let file = string(file);
        writeln!(out, "mutual = {{ name = {name}, secret_file = {file} }}")?;
    }
    Ok(())
}

fn write_group(out: &mut String, group: &Group) -> fmt::Result {
    heading(out, "group", &group.place)?;
    writeln!(out, "id = {}", string(&group.id))?;
    writeln!(out, "initiators = {}", strings(&group.initiators))
}

fn write_unit(out: &mut String, unit: &Unit) -> fmt::Result {
    heading(out, "lun", &unit.place)?;
    writeln!(out, "id = {}", string(&unit.name))?;
    writeln!(out, "store = {}", string(&store(unit)))?;
    if let Some(serial) = &unit.serial {
        writeln!(out, "serial = {}", string(serial))?;
    }
    if let Some(naa) = &unit.naa {
        writeln!(out, "naa = {}", string(naa))?;
    }
    let (vendor, product) = &unit.inquiry;
    let product = match product.is_empty() && !unit.is_passed() {
        true => &unit.name,
        false => product,
    };
    for (key, text, most) in [("vendor", vendor, 8), ("product", product, 16)] {
        if let Some(text) = inquiry_text(text, most) {
            writeln!(out, "{key} = {}", string(&text))?;
        }
    }
    Ok(())
}

/// What initiators saw of a name of INQUIRY data: its field has so many characters, without blanks at the ends.
fn inquiry_text(text: &str, most: usize) -> Option<String> {
    let shown = text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ');
    let shown: String = shown.take(most).collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}

/// The STORE. The size of a file is not in it: a file that is not there is to be an error, not a new
/// and empty disk.
fn store(unit: &Unit) -> String {
    let mut store = unit.store.clone();
    if unit.block_bytes == 4096 {
        store.block_size = BlockSize::B4096;
    }
    let default = StoreSpec::new(store.at.clone());
    // How a cluster is found is a part of the place, so the default has it, too.
    let is_of_place = |option| {
        matches!(
            option,
            StoreOption::Conf | StoreOption::User | StoreOption::Keyring
        )
    };
    store.to_store(|row, value| {
        is_of_place(row.option) || row.option.value(&default).as_deref() != Some(value)
    })
}

fn write_target(out: &mut String, target: &Target, units: &[Unit]) -> fmt::Result {
    heading(out, "target", &target.place)?;
    writeln!(out, "name = {}", string(&target.name))?;
    if let Some(alias) = &target.alias {
        writeln!(out, "alias = {}", string(alias))?;
    }
    writeln!(out, "portals = [")?;
    for portal in &target.portals {
        let (bind, tag) = (string(&portal.bind), portal.tag);
        writeln!(out, "    {{ bind = {bind}, group = {tag} }},")?;
    }
    writeln!(out, "]")?;
    if !target.auth.is_empty() {
        writeln!(out, "auth = {}", strings(&target.auth))?;
    }
    if target.views.is_empty() {
        return Ok(());
    }
    writeln!(out, "luns = [")?;
    for entries in target
        .views
        .chunk_by(|a, b| (a.lun, a.unit, a.read_only) == (b.lun, b.unit, b.read_only))
    {
        write_view(out, entries, units)?;
    }
    writeln!(out, "]")
}

/// All entries of one unit under one number that are for reading only, or that are not.
fn write_view(out: &mut String, entries: &[View], units: &[Unit]) -> fmt::Result {
    let Some(first) = entries.first() else {
        return Ok(());
    };
    let Some(unit) = units.get(first.unit) else {
        return Ok(());
    };
    write!(
        out,
        "    {{ lun = {}, id = {}",
        first.lun,
        string(&unit.name)
    )?;
    let groups: Vec<String> = entries
        .iter()
        .filter_map(|view| view.group.clone())
        .collect();
    if !groups.is_empty() {
        write!(out, ", groups = {}", strings(&groups))?;
    }
    if first.read_only && !unit.store.read_only {
        write!(out, ", readonly = true")?;
    }
    writeln!(out, " }},")
}
