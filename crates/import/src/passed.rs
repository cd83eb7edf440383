//! Devices that have their commands passed on, as a file names them: by a path, or by a SCSI address.

use config::StoreSpec;

/// A SCSI device of the machine that the files are of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    /// `HOST:CHANNEL:TARGET:LUN`, as Linux numbers it.
    pub address: String,
    /// PERIPHERAL DEVICE TYPE of its INQUIRY data.
    pub device_type: u8,
    /// Vendor and product of its INQUIRY data, for messages.
    pub model: String,
    /// Its name below `/dev`, one that stays if it has one; `None` where it has no node of the generic driver.
    pub path: Option<String>,
}

/// What to do where a device was not found.
pub(crate) const NO_DEVICE: &str = "run the import on the machine of that configuration, with the module sg loaded \
    (modprobe sg), or name its file system with --root; or add a [[lun]] by hand, with a store such as \
    scsi:/dev/tape/by-id/NAME";

/// What to do where an address was looked up.
const COMPARE: &str = "compare with lsscsi --generic on the machine of that configuration: after a restart, and on \
    another machine, the address may be that of another device";

/// What to do where a name has a number of the kernel.
const NUMBERED: &str =
    "name it as below /dev/tape/by-id or /dev/disk/by-id, where it has a name that stays";

/// How the kernel names devices, each with a number behind it.
const KERNEL_NAMES: [&str; 6] = ["sg", "st", "nst", "sr", "scd", "sch"];

/// A device that was found.
pub(crate) struct Passed {
    pub(crate) store: StoreSpec,
    /// What to look at, and what to do.
    pub(crate) change: Option<(String, &'static str)>,
}

impl Passed {
    /// The device at a path, or why there is none.
    pub(crate) fn at_path(path: &str) -> Result<Self, String> {
        let store = store(path).ok_or_else(|| format!("{path:?} is no device below /dev"))?;
        let message = "after a restart its name may be that of another device";
        let change = is_numbered(path).then(|| (message.to_owned(), NUMBERED));
        Ok(Self { store, change })
    }

    /// The device at an address, of a certain type or of any, or why there is none.
    pub(crate) fn at_address(
        devices: &[Device],
        address: &str,
        wanted: Option<u8>,
    ) -> Result<Self, String> {
        let device = devices.iter().find(|device| device.address == address);
        let Some(device) = device else {
            return Err(format!("no SCSI device has the address {address}"));
        };
        let (model, found) = (&device.model, device.device_type);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            return Err(format!(
                "the SCSI device {address} ({model}) is another one: its type is {found}, not {wanted}"
            ));
        }
        let Some(path) = &device.path else {
            return Err(format!(
                "the SCSI device {address} ({model}) has no node of the generic driver"
            ));
        };
        Ok(Self {
            change: Some((
                format!("its address {address} is now that of {path} ({model})"),
                COMPARE,
            )),
            ..Self::at_path(path)?
        })
    }
}

fn store(path: &str) -> Option<StoreSpec> {
    let place = path.replace('%', "%25").replace('?', "%3F");
    let is_device = path.starts_with("/dev/");
    let store = is_device.then(|| StoreSpec::parse(&format!("scsi:{place}")));
    store?.ok()
}

/// Whether a path is that of a node which can only pass commands on, of the driver sg or bsg.
pub(crate) fn is_generic(path: &str) -> bool {
    path.starts_with("/dev/bsg/") || kernel_name(path) == Some("sg")
}

/// Whether a path may lead to another device after a restart.
fn is_numbered(path: &str) -> bool {
    let disk = path.strip_prefix("/dev/sd");
    let is_disk = disk.is_some_and(|letters| letters.len() <= 2);
    is_disk || path.starts_with("/dev/bsg/") || kernel_name(path).is_some()
}

/// The name before the number that the kernel has given.
fn kernel_name(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/dev/")?;
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (word != name && KERNEL_NAMES.contains(&word)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(address: &str, device_type: u8, path: Option<&str>) -> Device {
        Device {
            address: address.to_owned(),
            device_type,
            model: "HP Ultrium 3-SCSI".to_owned(),
            path: path.map(str::to_owned),
        }
    }

    #[test]
    fn an_address_leads_to_the_device_of_its_type_and_to_no_other() {
        let devices = [
            device("7:0:1:0", 1, Some("/dev/tape/by-id/scsi-350011d00018a5f03")),
            device("7:0:2:0", 1, None),
        ];
        let at = |address, wanted| {
            let passed = Passed::at_address(&devices, address, wanted);
            passed.map(|passed| passed.store.at.to_string())
        };
        let found = "scsi:/dev/tape/by-id/scsi-350011d00018a5f03";
        for wanted in [None, Some(1)] {
            assert_eq!(at("7:0:1:0", wanted).as_deref(), Ok(found));
        }
        for (address, wanted, why) in [
            ("7:0:1:0", Some(8), "its type is 1, not 8"),
            ("7:0:2:0", Some(1), "no node of the generic driver"),
            ("7:0:1:1", None, "no SCSI device has the address 7:0:1:1"),
        ] {
            let problem = at(address, wanted).unwrap_err();
            assert!(problem.contains(why), "{problem}");
        }
    }

    #[test]
    fn names_of_the_kernel_are_told_from_those_that_stay() {
        for (path, numbered, generic) in [
            ("/dev/sg12", true, true),
            ("/dev/bsg/3:0:0:0", true, true),
            ("/dev/nst0", true, false),
            ("/dev/sr1", true, false),
            ("/dev/sdab", true, false),
            ("/dev/sda1", true, false),
            ("/dev/sg", false, false),
            ("/dev/storage0", false, false),
            ("/dev/tape/by-id/scsi-3500-nst", false, false),
            ("/srv/sg1", false, false),
        ] {
            assert_eq!(is_numbered(path), numbered, "{path}");
            assert_eq!(is_generic(path), generic, "{path}");
        }
    }

    #[test]
    fn a_path_below_dev_is_a_device_whatever_characters_it_has() {
        let at = |path| Passed::at_path(path).map(|passed| passed.store.at);
        let odd = at("/dev/a?b%20").unwrap();
        assert_eq!(
            odd.local_device(),
            Some(std::path::Path::new("/dev/a?b%20"))
        );
        for path in ["", "sg1", "/srv/tape", "iscsi://h/iqn.2026-11.example:t/0"] {
            assert!(at(path).is_err(), "{path}");
        }
    }
}
