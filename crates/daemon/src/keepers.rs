//! What has the data of units, for people who look for it.

use config::{StorePlace, StoreSpec, Unit};

/// What to look at where data of these units may be lost.
pub(super) fn where_to_look<'a>(units: impl IntoIterator<Item = &'a Unit>) -> String {
    let parts = units.into_iter().flat_map(Unit::parts);
    let (mut servers, mut has_disk) = (Vec::new(), false);
    for (spec, _) in parts {
        match has_server(spec) {
            true => servers.push(spec.at.to_string()),
            false => has_disk = true,
        }
    }
    let disk = "the disk and the kernel log";
    let servers = servers.join(", ");
    match (servers.is_empty(), has_disk) {
        (true, _) => disk.to_owned(),
        (false, false) => format!("what has {servers}"),
        (false, true) => format!("what has {servers}, {disk}"),
    }
}

/// Whether the data is behind a server, of which the kernel of this machine knows nothing.
const fn has_server(spec: &StoreSpec) -> bool {
    match spec.at.place {
        StorePlace::Export(_)
        | StorePlace::Image(_)
        | StorePlace::Device(_)
        | StorePlace::Lun(_) => true,
        StorePlace::Path(_)
        | StorePlace::Size(_)
        | StorePlace::Members(_)
        | StorePlace::Snapshot(_)
        | StorePlace::Empty => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::Model;

    use super::*;

    #[test]
    fn the_server_is_named_where_there_is_one() {
        let unit = |store: &str| format!("[[lun]]\nid = \"a\"\nstore = \"{store}\"\n");
        let far = "hyperscsi://g/d?udp=192.0.2.7";
        let members = format!(
            "[[store]]\nid = \"x\"\nstore = \"{far}\"\n[[store]]\nid = \"y\"\nstore = \"{}\"\n",
            "nbd://h/e"
        );
        for (text, expected) in [
            (unit("mem:1M"), "the disk and the kernel log"),
            (unit(far), "what has hyperscsi://g/d?udp=192.0.2.7:5674"),
            (
                members + &unit("stripe:x,y"),
                "what has hyperscsi://g/d?udp=192.0.2.7:5674, nbd://h:10809/e",
            ),
        ] {
            let model = Model::from_toml(&text, Path::new("t.toml")).unwrap();
            assert_eq!(where_to_look(model.units()), expected);
        }
    }
}
