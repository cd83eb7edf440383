//! Another size in the text of a STORE; everything else of the text stays.

use super::error::EditError;
use crate::{DeviceType, StoreAt, StoreOption, StorePlace, StoreSpec, keys};

/// The STORE of unit `id` with another size.
pub(super) fn resized(id: &str, text: &str, wanted_bytes: u64) -> Result<String, EditError> {
    let store = StoreSpec::parse(text)?;
    let at = &store.at;
    if at.kind.row().device != DeviceType::Disk {
        return Err(EditError::SizeOfDrive {
            id: id.to_owned(),
            store: text.to_owned(),
        });
    }
    if at.export().is_some() || at.device().is_some() || at.target_lun().is_some() {
        return Err(EditError::SizeOfExport {
            id: id.to_owned(),
            store: text.to_owned(),
        });
    }
    let is_image = store.at.image().is_some_and(|it| it.snapshot().is_some());
    if is_image || store.snapshot().is_some() {
        return Err(EditError::SizeOfSnapshot {
            id: id.to_owned(),
            store: text.to_owned(),
        });
    }
    if store.at.kind.row().is_composition() {
        return Err(EditError::SizeOfMembers {
            id: id.to_owned(),
            store: text.to_owned(),
        });
    }
    if !has_size(&store) {
        return Err(EditError::SizeOfDevice {
            id: id.to_owned(),
            store: text.to_owned(),
        });
    }
    match store.configured_size_bytes() {
        Some(size_bytes) if size_bytes == wanted_bytes => return Ok(text.to_owned()),
        Some(size_bytes) if size_bytes > wanted_bytes => {
            return Err(EditError::CannotShrink {
                id: id.to_owned(),
                size_bytes,
                wanted_bytes,
            });
        }
        Some(_) | None => {}
    }
    let resized = if let StorePlace::Size(_) = store.at.place {
        let options = text.find('?').and_then(|at| text.get(at..));
        let resized = StoreAt::sized(store.at.kind, wanted_bytes);
        format!("{resized}{}", options.unwrap_or(""))
    } else {
        with_option(text, "size=", &keys::size_text(wanted_bytes))
    };
    StoreSpec::parse(&resized)?;
    Ok(resized)
}

/// Whether the configuration gives it a size, rather than the medium.
fn has_size(store: &StoreSpec) -> bool {
    matches!(store.at.place, StorePlace::Size(_)) || store.takes(StoreOption::Size)
}

/// The text with this option set: where it was, or at the end.
fn with_option(text: &str, option: &str, value: &str) -> String {
    let Some((place, options)) = text.split_once('?') else {
        return format!("{text}?{option}{value}");
    };
    let mut options: Vec<String> = options.split('&').map(str::to_owned).collect();
    let new = format!("{option}{value}");
    match options.iter_mut().find(|old| old.starts_with(option)) {
        Some(old) => *old = new,
        None => options.push(new),
    }
    format!("{place}?{}", options.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn only_the_size_changes() {
        for (text, bytes, expected) in [
            ("mem:1G", 2 * GIB, "mem:2G"),
            ("mem:1G?blocksize=4096", 2 * GIB, "mem:2G?blocksize=4096"),
            ("null:1G", GIB + 512, "null:1073742336"),
            ("mem:1024M", GIB, "mem:1024M"),
            ("disk.img", GIB, "disk.img?size=1G"),
            ("disk.img?thin", GIB, "disk.img?thin&size=1G"),
            ("file:a?size=1M&thin", GIB, "file:a?size=1G&thin"),
            ("file:a?size=1G", GIB, "file:a?size=1G"),
            ("rbd:p/a?user=u", GIB, "rbd:p/a?user=u&size=1G"),
        ] {
            assert_eq!(resized("a", text, bytes).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_says_why_and_what_to_do() {
        #[rustfmt::skip]
        let cases = [
            ("mem:1G", GIB - 512, "lun \"a\" has 1073741824 bytes and cannot shrink to 1073741312; make a new lun and copy what is needed"),
            ("block:/dev/vg/a", GIB, "lun \"a\" is the block device block:/dev/vg/a, which brings its own size; grow the device itself, as with lvextend"),
            ("cdrom:a.iso", GIB, "lun \"a\" is cdrom:a.iso, which has the size of its medium: load another disc, or look at the device itself"),
            ("scsi:/dev/sg0", GIB, "lun \"a\" is scsi:/dev/sg0, which has the size of its medium: load another disc, or look at the device itself"),
            ("nbd://h/a", GIB, "lun \"a\" is the export nbd://h/a of a server, which gives it its size; grow it there, and the disk grows when Tarn connects again"),
            ("rbd:p/a@s", GIB, "lun \"a\" is the snapshot rbd:p/a@s, which keeps the size that it has; grow the image, and make a snapshot of that"),
            ("rbd:p/a?size=2G", GIB, "lun \"a\" has 2147483648 bytes and cannot shrink to 1073741824; make a new lun and copy what is needed"),
            ("stripe:a,b", GIB, "lun \"a\" is stripe:a,b, whose members have the size; give a member a larger size= (tarn store set), or add a member to a concat (tarn lun set)"),
            ("a.img?blocksize=4096", 5120, "size 5120 is not a multiple of blocksize 4096; the next that fits is 8192"),
            ("a.img", 0, "size \"0\" is 0 bytes; give at least one block"),
        ];
        for (text, bytes, expected) in cases {
            let error = resized("a", text, bytes).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
        }
    }
}
