//! A configuration file that says what a command line says: for `tarn serve STORE... --save FILE`, and for `tarn show`
//! of a Tarn that has no file.
//!
//! Pure but for the current directory: paths in a file begin at the directory of the file, so they are written whole.

use std::collections::BTreeSet;
use std::path::Path;

use api::edit::{Edit, Thing};
use api::spec;
use config::{
    Draft, Export, HyperScsiGroup, HyperScsiPassword, Image, Model, ServerAddress, StoreAt,
    StorePlace, StoreSpec, Unit,
};

/// What stands above a file that was made.
const HEAD: &str = "\
# Made by tarn serve --save. This file is the configuration from now on: tarn lun, tarn target and the other verbs
# change it while Tarn runs, and docs/reference/configuration.md has every key.

";

/// Longest `id` that is made of the name of a file.
const ID_BYTES_MAX: usize = 32;

/// Serial number and NAA designator of a unit, where they are known and stay.
pub(crate) type Identity = (String, String);

/// The text of a file that serves what this model of a command line does. `identity` gives what initiators know a unit
/// by.
///
/// # Errors
///
/// The edits of an empty file that make it are refused, which a model that was checked does not lead to.
pub(crate) fn text_of(
    model: &Model,
    identity: impl Fn(usize) -> Option<Identity>,
) -> Result<String, String> {
    let mut draft = Draft::parse("").map_err(|error| error.to_string())?;
    let mut add = |thing| {
        let made = draft.make(&Edit::Add(thing));
        made.map(|_is_new| ()).map_err(|error| error.to_string())
    };
    let ids = match model.hyperscsi() {
        [] => ids(model.units()),
        // Clients know the devices by these names.
        [group, ..] => group.devices.iter().map(|one| one.name.clone()).collect(),
    };
    for (position, (unit, id)) in model.units().iter().zip(&ids).enumerate() {
        if let Some(option) = relative_option(&unit.store) {
            let store = &unit.store.text;
            return Err(format!(
                "STORE {store:?}: {option}= begins at the current directory; write it from the root"
            ));
        }
        let (serial, naa) = identity(position).unzip();
        let lun = spec::Lun {
            id: id.clone(),
            store: whole(&unit.store),
            serial,
            naa,
            ..spec::Lun::default()
        };
        add(Thing::Lun(lun))?;
    }
    for target in model.targets() {
        let portals = target.portals.iter().map(|portal| spec::Portal {
            bind: portal.bind.to_string(),
            advertise: None,
            group: None,
        });
        let luns = target.luns.entries().iter().filter_map(|entry| {
            Some(spec::TargetLun {
                lun: entry.lun.value(),
                id: ids.get(entry.unit.position())?.clone(),
                groups: Vec::new(),
                readonly: false,
            })
        });
        let target = spec::Target {
            name: target.name.to_string(),
            portals: Some(portals.collect()),
            luns: luns.collect(),
            ..spec::Target::default()
        };
        add(Thing::Target(target))?;
    }
    for group in model.hyperscsi() {
        add(Thing::Hyperscsi(group_of(group)?))?;
    }
    Ok(format!("{HEAD}{draft}"))
}

/// A group as a file has it.
fn group_of(group: &HyperScsiGroup) -> Result<spec::Hyperscsi, String> {
    let HyperScsiPassword::File(password) = &group.password else {
        return Err(format!(
            "group {:?} has no file of its password",
            group.name
        ));
    };
    let password_file = std::path::absolute(&password.path).map_err(|error| error.to_string())?;
    let device = |device: &config::HyperScsiDevice| spec::HyperscsiDevice {
        id: device.name.clone(),
        level: None,
        readonly: device.read_only,
    };
    Ok(spec::Hyperscsi {
        name: group.name.clone(),
        interface: group.at.interface().map(str::to_owned),
        udp: group.at.udp().map(|address| address.to_string()),
        password_file: Some(password_file.display().to_string()),
        device: group.devices.iter().map(device).collect(),
        ..spec::Hyperscsi::default()
    })
}

/// The STORE with its path from the root.
fn whole(store: &StoreSpec) -> String {
    let StorePlace::Path(path) = &store.at.place else {
        return store.text.clone();
    };
    match std::path::absolute(path) {
        Ok(absolute) if path.is_relative() && absolute.to_str().is_some() => {
            let at = StoreAt {
                kind: store.at.kind,
                place: StorePlace::Path(absolute),
            };
            match store.text.split_once('?') {
                Some((_, options)) => format!("{at}?{options}"),
                None => at.to_string(),
            }
        }
        Ok(_) | Err(_) => store.text.clone(),
    }
}

/// The first option of a STORE that is a path from the current directory.
fn relative_option(store: &StoreSpec) -> Option<&'static str> {
    let at = &store.at;
    let image = at.image();
    let socket = match at.export().map(Export::server) {
        Some(ServerAddress::Unix(path)) => Some(path.as_path()),
        Some(ServerAddress::Tcp(_)) | None => None,
    };
    let options = [
        ("socket", socket),
        ("ca", store.ca.as_deref()),
        ("conf", image.and_then(Image::conf)),
        ("keyring", image.and_then(|image| image.keyring.as_deref())),
        (
            "password_file",
            at.device()
                .and_then(|device| device.password_file.as_deref())
                .or_else(|| at.target_lun()?.password_file.as_deref()),
        ),
        (
            "mutual_password_file",
            at.target_lun()
                .and_then(|lun| lun.mutual_password_file.as_deref()),
        ),
    ];
    let is_relative = |path: &Path| path.is_relative();
    let mut options = options.into_iter();
    options.find_map(|(word, path)| path.is_some_and(is_relative).then_some(word))
}

/// An `id` for each unit: the name of its file, or what kind of store it is.
fn ids(units: &[Unit]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let id = |unit: &Unit| {
        let name = if let StorePlace::Path(path) = &unit.store.at.place {
            path.file_stem().and_then(|name| name.to_str())
        } else {
            None
        };
        let name = cleaned(name.unwrap_or("disk"));
        let numbered = (2_u32..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let free = names.find(|name| taken.insert(name.clone()));
        free.unwrap_or(name)
    };
    units.iter().map(id).collect()
}

/// A name as an `id` may be.
fn cleaned(name: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().filter(allowed).take(ID_BYTES_MAX).collect();
    match name.trim_matches('.') {
        "" => "disk".to_owned(),
        name => name.to_owned(),
    }
}

/// What the arguments ask for that a file that is there does not have, if anything.
pub(crate) fn differs(asked: &Model, has: &Model) -> Option<String> {
    let mut missing = Vec::new();
    for unit in asked.units() {
        let text = whole(&unit.store);
        let asked = StoreSpec::parse(&text).ok();
        let medium = asked.as_ref().and_then(|store| store.at.medium());
        let has_medium = |one: &Unit| {
            let is_same = one.media().any(|it| Some(it) == medium);
            one.store.text == text || is_same && one.store.read_only == unit.store.read_only
        };
        if !has.units().iter().any(has_medium) {
            missing.push(format!("STORE {:?}", unit.store.text));
        }
    }
    for target in asked.targets() {
        if has.target_by_name(target.name.as_str()).is_none() {
            missing.push(format!("target {}", target.name));
        }
        let portals = |model: &Model, bind| {
            let mut all = model.targets().iter().flat_map(|target| &target.portals);
            all.any(|portal| portal.bind == bind)
        };
        for portal in target
            .portals
            .iter()
            .filter(|portal| !portals(has, portal.bind))
        {
            missing.push(format!("address {}", portal.bind));
        }
    }
    for group in asked.hyperscsi() {
        let is_it = |one: &HyperScsiGroup| one.name == group.name && one.at == group.at;
        if !has.hyperscsi().iter().any(is_it) {
            missing.push(format!("group {group}"));
        }
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}

#[cfg(test)]
mod tests {
    use config::IscsiName;

    use super::*;

    fn model(stores: &[&str], listens: &[&str]) -> Model {
        let owned = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        let name = IscsiName::parse("iqn.2026-11.example.tarn:demo").unwrap();
        Model::from_stores(&owned(stores), name, &owned(listens)).unwrap()
    }

    #[test]
    fn a_file_says_what_the_command_line_says() {
        let stores = [
            "/srv/demo.img?size=1G",
            "mem:1M",
            "/other/demo.img?readonly",
            "/srv/a b$.img",
            "null:1M",
        ];
        let line = model(&stores, &["127.0.0.1:3260", "[::1]:3261"]);
        let text = text_of(&line, |at| {
            (at == 0).then(|| ("S0".to_owned(), "3000000000000001".to_owned()))
        })
        .unwrap();
        let file = Model::from_toml(&text, Path::new("/etc/t.toml")).unwrap();
        let ids: Vec<_> = file.units().iter().map(ToString::to_string).collect();
        assert_eq!(ids, ["demo", "disk", "demo-2", "ab", "disk-2"]);
        let texts: Vec<_> = file
            .units()
            .iter()
            .map(|unit| unit.store.text.as_str())
            .collect();
        assert_eq!(texts, stores);
        let portals: Vec<_> = file.targets()[0]
            .portals
            .iter()
            .map(|one| one.bind.to_string())
            .collect();
        assert_eq!(portals, ["127.0.0.1:3260", "[::1]:3261"]);
        assert_eq!(file.targets()[0].luns.entries().len(), 5);
        assert_eq!(
            file.units()[0]
                .serial
                .as_ref()
                .map(ToString::to_string)
                .as_deref(),
            Some("S0")
        );
        assert_eq!(file.units()[1].serial, None);
        assert!(text.starts_with("# Made by tarn serve --save."));
    }

    #[test]
    fn a_group_of_hyperscsi_has_the_devices_that_the_command_line_gives_it() {
        let group = |at| config::HyperScsiArguments {
            at,
            group: "ABC",
            password_file: Path::new("abc.secret"),
        };
        let stores = [
            "/srv/a.img?size=1G".to_owned(),
            "mem:1M?readonly".to_owned(),
        ];
        for (at, key) in [
            ("eth1", "interface = \"eth1\""),
            ("udp:127.0.0.1:5674", "udp = \"127.0.0.1:5674\""),
        ] {
            let line = Model::from_arguments(&stores, None, Some(&group(at))).unwrap();
            let text = text_of(&line, |_| None).unwrap();
            assert!(text.contains(key), "{text}");
            let file = Model::from_toml(&text, Path::new("/etc/t.toml")).unwrap();
            let (asked, saved) = (&line.hyperscsi()[0], &file.hyperscsi()[0]);
            assert_eq!((&saved.name, &saved.at), (&asked.name, &asked.at));
            assert_eq!(saved.devices, asked.devices);
            assert_eq!(differs(&line, &file), None);
            let HyperScsiPassword::File(password) = &saved.password else {
                panic!("{text}");
            };
            assert_eq!(password.path, std::path::absolute("abc.secret").unwrap());
            assert!(file.targets().is_empty());
        }
        let other = Model::from_arguments(&stores, None, Some(&group("eth2"))).unwrap();
        let has = Model::from_arguments(&stores, None, Some(&group("eth1"))).unwrap();
        assert_eq!(differs(&other, &has).unwrap(), "group ABC at eth2");
    }

    #[test]
    fn a_relative_path_is_written_from_the_root() {
        let stores = ["demo.img?size=1M", "file:file?size=1M", "file:e", "a%3Fb"];
        let text = text_of(&model(&stores, &[]), |_| None).unwrap();
        let here = std::path::absolute("x").unwrap();
        let here = here.parent().unwrap().display();
        for whole in [
            format!("{here}/demo.img?size=1M"),
            format!("file:{here}/file?size=1M"),
            format!("file:{here}/e"),
            format!("{here}/a%3Fb"),
        ] {
            assert!(text.contains(&format!("store = \"{whole}\"")), "{text}");
        }
    }

    #[test]
    fn an_option_that_would_begin_elsewhere_is_refused() {
        for (store, option) in [
            ("nbd+unix:///e?socket=s", "socket="),
            ("nbds://h/e?ca=c.pem", "ca="),
            ("rbd:p/i?conf=c", "conf="),
            ("rbd:p/i?keyring=k", "keyring="),
            ("hyperscsi://g/d?udp=h&password_file=p", "password_file="),
        ] {
            let error = text_of(&model(&[store], &[]), |_| None).unwrap_err();
            assert!(error.contains(option), "{error}");
        }
    }

    #[test]
    fn what_a_file_lacks_of_the_arguments_is_named() {
        let has = model(&["/srv/a.img", "/srv/b.img"], &["127.0.0.1:3260"]);
        assert_eq!(differs(&model(&["/srv/b.img"], &[]), &has), None);
        let guarded = differs(&model(&["/srv/b.img?readonly"], &[]), &has).unwrap();
        assert_eq!(guarded, "STORE \"/srv/b.img?readonly\"");
        let other = differs(&model(&["/srv/c.img"], &["127.0.0.1:3261"]), &has).unwrap();
        assert_eq!(other, "STORE \"/srv/c.img\", address 127.0.0.1:3261");
    }
}
