//! Commands that only report: units, logs, what is supported, target port groups.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use store::DeviceCommand;

use crate::sam::cdb::Cdb;
use crate::sam::lun::{Lun, LunInventory};
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode};
use crate::spc::peripheral::Peripheral;
use crate::table::commands::rows_of;
use crate::table::row::CommandSpec;

/// REPORT LUNS, for units that exist and for those that do not.
///
/// Spec: SPC-5, REPORT LUNS.
pub(crate) fn luns(cdb: &Cdb, inventory: &dyn LunInventory) -> Result<Vec<u8>, Sense> {
    /// SELECT REPORT: units of this target, well-known units (there are none), both.
    const ADDRESSED: u8 = 0x00;
    const WELL_KNOWN: u8 = 0x01;
    const ALL: u8 = 0x02;
    let mut list = vec![0; 8];
    match cdb.u8(2) {
        ADDRESSED | ALL => inventory.for_each(&mut |lun: Lun| {
            list.extend_from_slice(&lun.encode().to_be_bytes());
        }),
        WELL_KNOWN => {}
        _ => return Err(Sense::invalid_byte_in_cdb(2)),
    }
    let length = u32::try_from(list.len().saturating_sub(8)).unwrap_or(u32::MAX);
    for (to, from) in list.iter_mut().zip(length.to_be_bytes()) {
        *to = from;
    }
    Ok(list)
}

/// LOG SENSE: which pages there are, and the informational exceptions page.
///
/// Spec: SPC-5, LOG SENSE, Log parameters.
pub(crate) fn log(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    const SUPPORTED: u8 = 0x00;
    const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
    const SUBPAGES: u8 = 0xff;
    const SPF: u8 = 0x40;
    let (code, subpage) = (cdb.u8(2) & 0x3f, cdb.u8(3));
    let body = match (code, subpage) {
        (SUPPORTED, 0x00) => vec![SUPPORTED, INFORMATIONAL_EXCEPTIONS],
        (SUPPORTED, SUBPAGES) => vec![
            SUPPORTED,
            0x00,
            SUPPORTED,
            SUBPAGES,
            INFORMATIONAL_EXCEPTIONS,
            0x00,
        ],
        // Parameter 0000h, in list format, saved never: no exception, temperature unknown.
        (INFORMATIONAL_EXCEPTIONS, 0x00) => vec![0x00, 0x00, 0x03, 0x04, 0x00, 0x00, 0xff, 0x00],
        (SUPPORTED | INFORMATIONAL_EXCEPTIONS, _) => return Err(Sense::invalid_byte_in_cdb(3)),
        _ => return Err(Sense::invalid_field_in_cdb(2, 5)),
    };
    let flag = if subpage == 0 { 0 } else { SPF };
    let mut page = vec![code | flag, subpage];
    page.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    page.extend_from_slice(&body);
    Ok(page)
}

/// Spec: SPC-5, REPORT TARGET PORT GROUPS.
pub(crate) fn target_port_groups(cdb: &Cdb, profile: &Profile) -> Result<Vec<u8>, Sense> {
    const ACTIVE_OPTIMIZED: u8 = 0x00;
    /// AO_SUP: no other state is ever entered.
    const SUPPORTED_STATES: u8 = 0x01;
    const EXTENDED_HEADER: [u8; 4] = [0x10, 0x00, 0x00, 0x00];
    let ports = &profile.identity.target_ports;
    let mut groups: Vec<u16> = ports.iter().map(|port| port.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut body = match cdb.u8(1) >> 5 {
        0 => Vec::new(),
        1 => EXTENDED_HEADER.to_vec(),
        _ => return Err(Sense::invalid_field_in_cdb(1, 7)),
    };
    for group in groups {
        let members = ports.iter().filter(|port| port.group == group);
        let count = u8::try_from(members.clone().count()).unwrap_or(u8::MAX);
        let [high, low] = group.to_be_bytes();
        body.extend_from_slice(&[
            ACTIVE_OPTIMIZED,
            SUPPORTED_STATES,
            high,
            low,
            0,
            0,
            0,
            count,
        ]);
        for port in members.take(usize::from(count)) {
            let [high, low] = port.relative_id.to_be_bytes();
            body.extend_from_slice(&[0, 0, high, low]);
        }
    }
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    Ok([length.to_be_bytes().as_slice(), &body].concat())
}

/// Spec: SPC-5, REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
pub(crate) fn task_management(cdb: &Cdb, profile: &Profile) -> Vec<u8> {
    /// REPD: the extended form, which adds timeouts; zero says that none are given.
    const EXTENDED: u8 = 0x80;
    let [first, second] = profile.identity.task_management;
    if cdb.has(2, EXTENDED) {
        let mut data = vec![first, second, 0, 12];
        data.resize(16, 0);
        data
    } else {
        vec![first, second, 0, 0]
    }
}

const RCTD: u8 = 0x80;
/// CTDP in the list of all commands.
const LISTED_CTDP: u8 = 0x02;
const SERVACTV: u8 = 0x01;
/// CTDP in the report of one command.
const SINGLE_CTDP: u8 = 0x80;
/// SUPPORT of one command: not supported, or in conformance with a standard.
const NOT_SUPPORTED: u8 = 0x01;
const SUPPORTED: u8 = 0x03;
/// SUPPORT: in a way of the vendor.
const SUPPORTED_BY_VENDOR: u8 = 0x05;

/// Spec: SPC-5, REPORT SUPPORTED OPERATION CODES.
#[inline(never)]
pub(crate) fn operation_codes(cdb: &Cdb, device: &impl Peripheral) -> Result<Vec<u8>, Sense> {
    let with_timeouts = cdb.has(2, RCTD);
    let (opcode, service_action) = (cdb.u8(3), cdb.u16(4));
    let unit = device.features();
    let there = rows_of(&unit);
    let rows = there.iter().filter(|row| device.lists(row));
    let vendor = device.vendor_commands().iter();
    let all = rows.map(|row| Listed::of_row(row));
    let all: Vec<Listed> = all.chain(vendor.map(Listed::of_vendor)).collect();
    let of_opcode = || all.iter().filter(|one| one.opcode == opcode);
    let with_action = || of_opcode().find(|one| one.service_action == Some(service_action));
    let has_actions = of_opcode().any(|one| one.service_action.is_some());
    let found = match cdb.u8(2) & 0x07 {
        0b000 => return Ok(all_commands(&all, with_timeouts)),
        0b001 if has_actions => return Err(Sense::invalid_field_in_cdb(2, 2)),
        0b001 => of_opcode().next(),
        0b010 if !has_actions && of_opcode().next().is_some() => {
            return Err(Sense::invalid_field_in_cdb(2, 2));
        }
        0b010 => with_action(),
        0b011 if has_actions => with_action(),
        0b011 => of_opcode().next().filter(|_| service_action == 0),
        _ => return Err(Sense::invalid_field_in_cdb(2, 2)),
    };
    Ok(one_command(found, with_timeouts))
}

/// A command that is listed.
struct Listed {
    opcode: u8,
    service_action: Option<u16>,
    cdb_bytes: u16,
    /// CDB usage data; `None`: the device evaluates what it wants.
    usage: Option<&'static [u8]>,
    /// 0: not known.
    timeout_seconds: u32,
}

impl Listed {
    fn of_row(row: &CommandSpec) -> Self {
        Self {
            opcode: row.opcode(),
            service_action: row.service_action(),
            cdb_bytes: u16::try_from(row.usage.len()).unwrap_or(0),
            usage: Some(row.usage),
            timeout_seconds: row.timeout_seconds,
        }
    }

    const fn of_vendor(command: &DeviceCommand) -> Self {
        Self {
            opcode: command.opcode,
            service_action: command.service_action,
            cdb_bytes: command.cdb_bytes,
            usage: None,
            timeout_seconds: 0,
        }
    }
}

fn all_commands(listed: &[Listed], with_timeouts: bool) -> Vec<u8> {
    let mut body = Vec::new();
    for one in listed {
        let flags = if with_timeouts { LISTED_CTDP } else { 0 }
            | one.service_action.map_or(0, |_| SERVACTV);
        let [high, low] = one.service_action.unwrap_or(0).to_be_bytes();
        body.extend_from_slice(&[one.opcode, 0, high, low, 0, flags]);
        body.extend_from_slice(&one.cdb_bytes.to_be_bytes());
        if with_timeouts {
            body.extend_from_slice(&timeouts(one));
        }
    }
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), &body].concat()
}

fn one_command(found: Option<&Listed>, with_timeouts: bool) -> Vec<u8> {
    let Some(found) = found else {
        return vec![0, NOT_SUPPORTED, 0, 0];
    };
    let (support, usage) = match found.usage {
        Some(usage) => (SUPPORTED, usage.to_vec()),
        None => {
            let mut usage = vec![found.opcode];
            usage.resize(found.cdb_bytes.into(), 0xff);
            (SUPPORTED_BY_VENDOR, usage)
        }
    };
    let flags = if with_timeouts { SINGLE_CTDP } else { 0 };
    let mut data = vec![0, support | flags];
    data.extend_from_slice(&found.cdb_bytes.to_be_bytes());
    data.extend_from_slice(&usage);
    if with_timeouts {
        data.extend_from_slice(&timeouts(found));
    }
    data
}

/// Command timeouts descriptor: no nominal time, and the recommended timeout.
fn timeouts(one: &Listed) -> [u8; 12] {
    let [t0, t1, t2, t3] = one.timeout_seconds.to_be_bytes();
    [0x00, 0x0a, 0, 0, 0, 0, 0, 0, t0, t1, t2, t3]
}

/// There is no unit, or the nexus is not attached to it.
pub(crate) const fn no_such_unit() -> Sense {
    Sense::illegal_request(SenseCode::LOGICAL_UNIT_NOT_SUPPORTED)
}
