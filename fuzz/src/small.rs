//! Parsers without a state.

use std::path::Path;
use std::str;

use ::config::{Cidr, HostPort, IscsiName, Model, NamePattern, Serial, StoreSpec, parse_size};
use scsi::reservation::Reservations;
use scsi::{Lun, Owner};

use crate::disk;

/// Every address either is a unit, whose own address leads back to it, or is refused.
pub(crate) fn lun(bytes: &[u8]) {
    for address in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..address.len()].copy_from_slice(address);
        if let Ok(lun) = Lun::decode(u64::from_be_bytes(padded)) {
            assert!(lun <= Lun::MAX);
            assert_eq!(Lun::decode(lun.encode()), Ok(lun));
        }
    }
}

/// Kept state either restores a unit, and is kept again as the same, or is refused.
///
/// The input is read as it is, and once more as a record whose frame and checksum are right.
pub(crate) fn state(bytes: &[u8]) {
    for record in [bytes.to_vec(), kept(bytes)] {
        if let Ok(reservations) = Reservations::decode(&record) {
            let again = Reservations::decode(&reservations.encode());
            assert_eq!(again.as_ref(), Ok(&reservations));
        }
        let unit = [b"TARNUNIT\x01\x01", &record[..]].concat();
        for state in [&record, &unit] {
            if let Ok(owner) = Owner::new(disk::profile(0), Some(state)) {
                let reservations = &owner.shared().reservations;
                assert!(reservations.registration_count() <= scsi::reservation::REGISTRATIONS_MAX);
            }
        }
    }
}

/// A record of reservations with this body: magic, version and the FNV-1a sum that the format
/// has, so that changed bodies are looked into.
pub(crate) fn kept(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    [b"TarnPR\x00\x01", &sum.to_be_bytes()[..], body].concat()
}

/// A text as a configuration, and each line of it as everything a value can be. An error names a
/// place and a rule; what is accepted can be written down whole, and is the same then.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    match Model::from_toml(text, Path::new("/etc/tarn/tarn.toml")) {
        Ok(model) => {
            for warning in model.warnings() {
                assert!(!warning.to_string().is_empty());
            }
            let effective = model.effective();
            match Model::from_toml(&effective, Path::new("/etc/tarn/tarn.toml")) {
                Ok(again) => assert_eq!(again.effective(), effective),
                Err(error) => panic!("{error}\n{effective}"),
            }
        }
        Err(error) => assert!(error.to_string().contains("tarn.toml"), "{error}"),
    }
    for line in text.lines().take(32) {
        let value = line.split_once('=').map_or(line, |(_, value)| value).trim();
        let value = value.trim_matches(|c| matches!(c, '"' | '[' | ']'));
        if let (Ok(name), Ok(_)) = (IscsiName::parse(value), StoreSpec::parse(value)) {
            assert_eq!(IscsiName::parse(name.as_str()), Ok(name));
        }
        // Whatever they say, they say it.
        drop((Cidr::parse(value), HostPort::parse(value)));
        drop((NamePattern::parse(value), Serial::parse(value)));
        drop(parse_size(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused at its first line would lead nowhere.
    #[test]
    fn the_seeds_are_accepted() {
        let text = include_str!("seeds/full.toml");
        let model = Model::from_toml(text, Path::new("tarn.toml")).unwrap();
        assert_eq!((model.units().len(), model.targets().len()), (2, 1));
        for (name, body) in crate::seeds::of("state") {
            let record = if name.ends_with("kept") {
                body
            } else {
                kept(&body)
            };
            let count = if name.starts_with("two") { 2 } else { 0 };
            let reservations = Reservations::decode(&record).unwrap();
            assert_eq!(reservations.registration_count(), count, "{name}");
        }
    }
}
