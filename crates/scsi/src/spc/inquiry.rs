//! INQUIRY: standard data and vital product data.
//!
//! Spec: SPC-5, INQUIRY, Vital product data parameters.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::peripheral::Peripheral;
use crate::sam::cdb::Cdb;
use crate::sam::nexus::PortName;
use crate::sam::profile::{Identity, Profile, TargetPort};
use crate::sam::sense::Sense;

/// VPD pages of every device type, in ascending order; those of one type come behind them.
const PAGES: [u8; 5] = [0x00, 0x80, 0x83, 0x86, 0x87];

/// Version descriptors; spec: SPC-5, Version descriptor values.
const SAM_5: u16 = 0x00a0;
const SPC_4: u16 = 0x0460;

/// Executes INQUIRY for a command that came through `port`; the caller cuts to the allocation
/// length.
#[inline(never)]
pub(crate) fn inquiry(
    cdb: &Cdb,
    profile: &Profile,
    device: &impl Peripheral,
    port: &PortName,
) -> Result<Vec<u8>, Sense> {
    let page_code = cdb.u8(2);
    if cdb.has(1, 0x01) {
        vital_product_data(page_code, profile, device, port).ok_or(Sense::invalid_byte_in_cdb(2))
    } else if page_code == 0 {
        let own = standard(&profile.identity, device, port);
        Ok(match device.standard_inquiry() {
            Some(data) => merged(data, &own),
            None => own,
        })
    } else {
        Err(Sense::invalid_byte_in_cdb(2))
    }
}

/// `text` in `length` bytes of printable ASCII, padded with blanks.
fn padded(text: &str, length: usize) -> impl Iterator<Item = u8> {
    let printable = |byte: u8| {
        if (0x20..0x7f).contains(&byte) {
            byte
        } else {
            b'?'
        }
    };
    text.bytes()
        .map(printable)
        .chain(std::iter::repeat(b' '))
        .take(length)
}

fn standard(identity: &Identity, device: &impl Peripheral, port: &PortName) -> Vec<u8> {
    const RMB: u8 = 0x80;
    /// SPC-4.
    const VERSION: u8 = 0x06;
    /// HISUP (LUNs as SAM lays them out) and response data format 2.
    const FORMAT: u8 = 0x12;
    const LENGTH: usize = 96;
    /// TPGS 01b: implicit asymmetric access.
    const TPGS_IMPLICIT: u8 = 0x10;
    const MULTIP: u8 = 0x10;
    const CMDQUE: u8 = 0x02;

    let features = device.features();
    let removable = if features.removable { RMB } else { 0 };
    let mut data = vec![features.device_type as u8, removable, VERSION, FORMAT, 91];
    data.extend_from_slice(&[TPGS_IMPLICIT, MULTIP, CMDQUE]);
    data.extend(padded(&identity.vendor, 8));
    data.extend(padded(&identity.product, 16));
    data.extend(padded(&identity.revision, 4));
    data.resize(58, 0);
    let command_set = device.version_descriptor();
    let transport = port_of(identity, port).map_or(0, |port| port.protocol_version);
    for version in [SAM_5, SPC_4, command_set, transport] {
        data.extend_from_slice(&version.to_be_bytes());
    }
    data.resize(LENGTH, 0);
    data
}

/// The data of a device of others, with the names that it has here and without what Tarn does not do for it.
fn merged(of_device: &[u8], own: &[u8]) -> Vec<u8> {
    const NORMACA: u8 = 0x20;
    let mut data = of_device.to_vec();
    data.resize(data.len().max(36), 0);
    // Ports, groups of ports and queuing are Tarn's, and so are the names.
    for at in [0].into_iter().chain(5..36) {
        if let (Some(to), Some(from)) = (data.get_mut(at), own.get(at)) {
            *to = *from;
        }
    }
    if let Some(format) = data.get_mut(3) {
        *format &= !NORMACA;
    }
    if let Some(length) = data.get(5..).map(<[u8]>::len) {
        data.splice(4..5, [u8::try_from(length).unwrap_or(u8::MAX)]);
    }
    data
}

fn vital_product_data(
    code: u8,
    profile: &Profile,
    device: &impl Peripheral,
    port: &PortName,
) -> Option<Vec<u8>> {
    let body = match code {
        0x00 => {
            let mut codes = [&PAGES, device.vpd_pages()].concat();
            codes.sort_unstable();
            codes
        }
        0x80 => padded(&profile.identity.serial, profile.identity.serial.len()).collect(),
        0x83 => identification(profile, port),
        0x86 => extended(device),
        // Every page, one policy: shared by all I_T nexuses.
        0x87 => vec![0x3f, 0xff, 0x00, 0x00],
        _ => device.vpd_page(code)?,
    };
    let mut page = vec![device.features().device_type as u8, code];
    page.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    page.extend_from_slice(&body);
    Some(page)
}

/// Code set, designator type and association of a designation descriptor.
mod designator {
    pub(crate) const BINARY: u8 = 0x1;
    pub(crate) const ASCII: u8 = 0x2;
    pub(crate) const UTF_8: u8 = 0x3;

    pub(crate) const T10_VENDOR: u8 = 0x01;
    pub(crate) const EUI_64: u8 = 0x02;
    pub(crate) const NAA: u8 = 0x03;
    pub(crate) const RELATIVE_PORT: u8 = 0x04;
    pub(crate) const PORT_GROUP: u8 = 0x05;
    pub(crate) const SCSI_NAME: u8 = 0x08;

    pub(crate) const OF_UNIT: u8 = 0x00;
    pub(crate) const OF_PORT: u8 = 0x10;
    pub(crate) const OF_DEVICE: u8 = 0x20;
    /// The PROTOCOL IDENTIFIER counts.
    pub(crate) const PIV: u8 = 0x80;
}

/// The page in the making.
#[derive(Default)]
struct Descriptors {
    page: Vec<u8>,
    /// The PROTOCOL IDENTIFIER of the port, for designators with PIV.
    protocol: u8,
}

impl Descriptors {
    fn push(&mut self, code_set: u8, kind: u8, bytes: &[u8]) {
        let protocol = if kind & designator::PIV != 0 {
            self.protocol << 4
        } else {
            0
        };
        let bytes = bytes.get(..252).unwrap_or(bytes);
        let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
        self.page
            .extend_from_slice(&[protocol | code_set, kind, 0, length]);
        self.page.extend_from_slice(bytes);
    }

    /// SCSI name strings end in a zero and are padded to a multiple of four.
    fn push_name(&mut self, association: u8, name: &str) {
        let mut bytes = name
            .as_bytes()
            .get(..251)
            .unwrap_or(name.as_bytes())
            .to_vec();
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let kind = designator::PIV | association | designator::SCSI_NAME;
        self.push(designator::UTF_8, kind, &bytes);
    }
}

/// Spec: SPC-5, Device Identification VPD page.
fn identification(profile: &Profile, port: &PortName) -> Vec<u8> {
    use designator::{
        ASCII, BINARY, EUI_64, NAA, OF_DEVICE, OF_PORT, OF_UNIT, PIV, PORT_GROUP, RELATIVE_PORT,
        T10_VENDOR,
    };
    let identity = &profile.identity;
    let mut descriptors = Descriptors::default();
    descriptors.push(BINARY, OF_UNIT | NAA, &identity.naa);
    let vendor: Vec<u8> = padded(&identity.vendor, 8)
        .chain(padded(&identity.serial, identity.serial.len()))
        .collect();
    descriptors.push(ASCII, OF_UNIT | T10_VENDOR, &vendor);
    if let Some(eui) = identity.eui {
        descriptors.push(BINARY, OF_UNIT | EUI_64, &eui.to_be_bytes());
    }
    if let Some(TargetPort {
        relative_id,
        group,
        scsi_name,
        device_name,
        protocol_identifier,
        protocol_version: _,
    }) = port_of(identity, port)
    {
        descriptors.protocol = *protocol_identifier;
        let [high, low] = relative_id.to_be_bytes();
        descriptors.push(BINARY, PIV | OF_PORT | RELATIVE_PORT, &[0, 0, high, low]);
        let [high, low] = group.to_be_bytes();
        descriptors.push(BINARY, PIV | OF_PORT | PORT_GROUP, &[0, 0, high, low]);
        descriptors.push_name(OF_PORT, scsi_name);
        descriptors.push_name(OF_DEVICE, device_name);
    }
    descriptors.page
}

/// The port that a command came through; `None` for those that SCSI initiators cannot name, as of HyperSCSI.
fn port_of<'a>(identity: &'a Identity, port: &PortName) -> Option<&'a TargetPort> {
    let mut ports = identity.target_ports.iter();
    ports.find(|candidate| candidate.relative_id == port.target_port)
}

/// Spec: SPC-5, Extended INQUIRY Data VPD page.
fn extended(device: &impl Peripheral) -> Vec<u8> {
    /// HEADSUP, ORDSUP, SIMPSUP.
    const ALL_ATTRIBUTES: u8 = 0x07;
    let volatile = u8::from(device.has_volatile_cache());
    let mut body = vec![0x00, ALL_ATTRIBUTES, volatile];
    body.resize(60, 0);
    body
}
