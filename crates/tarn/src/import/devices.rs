//! The SCSI devices of a machine, with the names by which they are served best.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use ::import::Device;

/// Where devices have names that stay, below the root.
const STABLE: [&str; 2] = ["dev/disk/by-id", "dev/tape/by-id"];

/// Directories of a device in sysfs that list its nodes.
const NODES: [&str; 4] = ["scsi_generic", "scsi_tape", "scsi_changer", "block"];

/// The devices of the machine with this root directory. What cannot be read is not there.
pub(super) fn find(root: &Path) -> Vec<Device> {
    let names = stable_names(root);
    let addresses = entries(&root.join("sys/class/scsi_device"));
    let device = |address: PathBuf| {
        read(
            &address.join("device"),
            text_of(address.file_name()),
            &names,
        )
    };
    addresses.into_iter().filter_map(device).collect()
}

/// Everything in a directory, in the order of the names.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn text_of(name: Option<&OsStr>) -> Option<&str> {
    name.and_then(OsStr::to_str)
}

/// The names that stay, by the node that each leads to. Of several the shortest, which has nothing behind the
/// identifier of the device.
fn stable_names(root: &Path) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for link in STABLE
        .iter()
        .flat_map(|directory| entries(&root.join(directory)))
    {
        let target = fs::read_link(&link).unwrap_or_default();
        let name = link.strip_prefix(root).ok().and_then(Path::to_str);
        let (Some(node), Some(name)) = (text_of(target.file_name()), name) else {
            continue;
        };
        let name = format!("/{name}");
        let known = names.entry(node.to_owned()).or_insert_with(|| name.clone());
        if (name.len(), &name) < (known.len(), known) {
            *known = name;
        }
    }
    names
}

/// A device by its directory in sysfs; `None` where it does not say what it is.
fn read(
    directory: &Path,
    address: Option<&str>,
    names: &BTreeMap<String, String>,
) -> Option<Device> {
    let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let nodes = |class: &&str| entries(&directory.join(class));
    let generic = nodes(&"scsi_generic")
        .first()
        .and_then(|node| text_of(node.file_name()).map(str::to_owned));
    let nodes = NODES.iter().flat_map(nodes);
    let stable = nodes.filter_map(|node| names.get(text_of(node.file_name())?).cloned());
    let stable = stable.min_by_key(|name| (name.len(), name.clone()));
    Some(Device {
        address: address?.to_owned(),
        device_type: text("type").trim().parse().ok()?,
        model: format!("{} {}", text("vendor").trim(), text("model").trim()),
        // Without that node Tarn cannot serve it.
        path: generic.map(|node| stable.unwrap_or_else(|| format!("/dev/{node}"))),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use durable::scratch::Scratch;

    /// A machine with a device: its address, type, nodes by class, and links below `/dev`.
    fn add(root: &Path, address: &str, device_type: &str, nodes: &[&str], links: &[(&str, &str)]) {
        let device = root.join("sys/devices").join(address);
        for node in nodes {
            fs::create_dir_all(device.join(node)).unwrap();
        }
        fs::create_dir_all(&device).unwrap();
        for (file, text) in [
            ("type", device_type),
            ("vendor", "HP      \n"),
            ("model", "Ultrium 3-SCSI  \n"),
        ] {
            fs::write(device.join(file), text).unwrap();
        }
        let class = root.join("sys/class/scsi_device").join(address);
        fs::create_dir_all(&class).unwrap();
        symlink(format!("../../../devices/{address}"), class.join("device")).unwrap();
        for (link, target) in links {
            let link = root.join("dev").join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        }
    }

    #[test]
    fn an_address_has_the_type_of_its_device_and_its_shortest_name_that_stays() {
        let scratch = Scratch::new();
        let root = scratch.path();
        add(
            root,
            "7:0:0:0",
            "8\n",
            &["scsi_generic/sg3", "scsi_changer/sch0"],
            &[
                ("tape/by-id/scsi-1HP_MSL-changer", "../../sg3"),
                ("tape/by-id/scsi-1HP_MSL", "../../sg3"),
            ],
        );
        add(
            root,
            "7:0:1:0",
            "1\n",
            &["scsi_generic/sg4", "scsi_tape/nst0", "scsi_tape/st0"],
            &[
                ("tape/by-id/scsi-350011d00018a5f03", "../../st0"),
                ("tape/by-id/scsi-350011d00018a5f03-nst", "../../nst0"),
            ],
        );
        add(
            root,
            "0:0:0:0",
            "0\n",
            &["scsi_generic/sg0", "block/sda"],
            &[
                ("disk/by-id/scsi-35000c500a1b2c3d4", "../../sda"),
                ("disk/by-id/wwn-0x5000c500a1b2c3d4-part1", "../../sda1"),
            ],
        );
        add(root, "1:0:0:0", "5\n", &["scsi_generic/sg1"], &[]);
        add(
            root,
            "2:0:0:0",
            "1\n",
            &["scsi_tape/st1"],
            &[("tape/by-id/scsi-3500", "../../st1")],
        );
        add(root, "3:0:0:0", "what\n", &["scsi_generic/sg9"], &[]);
        let found: Vec<_> = find(root)
            .into_iter()
            .map(|device| (device.address, device.device_type, device.path))
            .collect();
        let expected = [
            ("0:0:0:0", 0, Some("/dev/disk/by-id/scsi-35000c500a1b2c3d4")),
            ("1:0:0:0", 5, Some("/dev/sg1")),
            ("2:0:0:0", 1, None),
            ("7:0:0:0", 8, Some("/dev/tape/by-id/scsi-1HP_MSL")),
            ("7:0:1:0", 1, Some("/dev/tape/by-id/scsi-350011d00018a5f03")),
        ];
        assert_eq!(
            found,
            expected.map(|(address, kind, path)| (
                address.to_owned(),
                kind,
                path.map(str::to_owned)
            ))
        );
        assert_eq!(find(root).first().unwrap().model, "HP Ultrium 3-SCSI");
        assert!(find(&root.join("none")).is_empty());
    }
}
