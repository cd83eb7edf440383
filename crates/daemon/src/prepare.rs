//! From the command line to all that is needed to serve, without touching a store or a socket.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use config::{
    ConfigError, HyperScsiArguments, IscsiName, Model, Place, Warning, default_target_name,
};
use confine::privileges::{self, opening};

use crate::administration::{self, SocketPath};
use crate::asked::{Asked, Flags};
use crate::confinement::{self, Reach};
use crate::file::text_of;
use crate::locate::{Located, Location, OwnFiles, locate_each, locate_for_start};
use crate::logging::LogFilter;
use crate::save;
use crate::secret::Secrets;
use crate::state::{State, UnitIdentity};
use crate::{Environment, StartError, expiry, headroom};

/// All that is needed to serve. The state of every unit is locked for this process as long as
/// this lives.
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Prepared {
    /// What to serve, with the flags of the command line worked in.
    pub model: Model,
    /// The secrets of its users.
    pub secrets: Arc<Secrets>,
    /// The identity and the state of each unit, by the position of its index.
    pub identities: Vec<UnitIdentity>,
    /// By the position of a unit: why it may not be opened, where another one has its file or device.
    pub(crate) twice: Vec<Option<StartError>>,
    /// The state directory.
    pub state: State,
    /// What is legal and most likely not meant, to be logged.
    pub warnings: Vec<Warning>,
    /// Which events to log.
    pub log: LogFilter,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Its text; empty without one.
    pub text: String,
    /// The file is not there yet: it is made when everything could be opened.
    pub(crate) is_to_be_made: bool,
    /// The user this process runs as.
    pub uid: u32,
    /// Whether it was started as another.
    pub(crate) is_other_user: bool,
    /// What stays within reach.
    pub(crate) reach: Reach,
    /// What the command line has set.
    pub flags: Flags,
    /// Where the socket of the administration may be.
    pub(crate) socket: SocketPath,
    /// The name of the machine.
    pub(crate) host: String,
}

/// Reads and checks everything that serving needs.
///
/// # Errors
///
/// The first thing that is wrong. Nothing was started, and nothing was made but the state
/// directory and identities in it.
pub fn prepare(args: &Asked, environment: &Environment) -> Result<Prepared, StartError> {
    let read = read_model(args, environment)?;
    if let Some(file) = &args.save {
        return prepare_saved(read.0, file, Flags::of(args), environment);
    }
    let file = args.config.as_deref();
    prepare_model(read, file, Flags::of(args), environment)
}

/// The same for a command line that is kept in a file: made when all is right, or read if it is there.
fn prepare_saved(
    asked: Model,
    file: &Path,
    flags: Flags,
    environment: &Environment,
) -> Result<Prepared, StartError> {
    let save = |source| StartError::Save {
        path: file.to_owned(),
        source,
    };
    if !file.exists() {
        let text = save::text_of(&asked, |_| None);
        let text = text.map_err(|error| save(io::Error::other(error)))?;
        let mut model = Model::from_toml(&text, file)?;
        flags.work_into(&mut model);
        let prepared = prepare_model((model, text), Some(file), flags, environment)?;
        // Disks that were made configuration just now are new ones, whatever else the directory knows.
        prepared.state.troubles().withdraw("state-foreign");
        return Ok(Prepared {
            is_to_be_made: true,
            ..prepared
        });
    }
    let (mut model, text) = read_file(file)?;
    if let Some(missing) = save::differs(&asked, &model) {
        let file = file.display();
        let note = format!(
            "tarn: note: {file} exists and is used as it is; it lacks {missing}: add it with tarn lun, tarn target \
             or tarn portal, or name another file\n"
        );
        crate::banner::say(io::stderr().lock(), &note);
    }
    flags.work_into(&mut model);
    prepare_model((model, text), Some(file), flags, environment)
}

/// The mode of a configuration file that is made.
const SAVED_MODE: u32 = 0o640;

/// The same for a model with its text.
///
/// # Errors
///
/// As [`prepare`].
pub fn prepare_model(
    (model, text): (Model, String),
    file: Option<&Path>,
    flags: Flags,
    environment: &Environment,
) -> Result<Prepared, StartError> {
    crate::check_interfaces(&model)?;
    let log = LogFilter::choose(flags.log, environment, model.server().log)?;
    let uid = confinement::become_user(&model, environment.uid)?;
    let secrets = Secrets::read(&model, uid)?;
    let Located { locations, twice } = opening(|| locate_for_start(&model, file.is_some()))?;
    let directory = match &model.server().state {
        Some(directory) => directory.clone(),
        None => environment.state_directory()?,
    };
    let state = opening(|| State::open(directory))?;
    let reach = opening(|| Reach::of(&model, file, Some(state.directory())))?;
    let identities = state.identities(&model, &locations)?;
    Ok(Prepared {
        socket: SocketPath::choose(environment, &model, state.directory()),
        warnings: warnings(&model, file),
        model,
        secrets: Arc::new(secrets),
        identities,
        twice,
        state,
        log,
        file: file.map(Path::to_owned),
        text,
        is_to_be_made: false,
        uid,
        is_other_user: uid != environment.uid,
        reach,
        flags,
        host: environment.host.clone(),
    })
}

impl Prepared {
    /// A unit that cannot be served keeps no other from being served. What somebody waits for at a terminal ends
    /// instead: the STOREs of a command line, also where they are to be kept in a file.
    pub(crate) fn holds_units(&self) -> bool {
        self.file.is_some() && !self.is_to_be_made
    }

    /// Makes the configuration file, if it is to be made. One that has come meanwhile is not touched.
    ///
    /// # Errors
    ///
    /// It is there, or cannot be made.
    pub(crate) fn make_file(&self) -> Result<(), StartError> {
        match &self.file {
            Some(file) if self.is_to_be_made => {
                let made = durable::make(file, self.text.as_bytes(), SAVED_MODE);
                made.map_err(|source| StartError::Save {
                    path: file.clone(),
                    source,
                })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Notes the files that opening the stores has made, so that they are known again when they
    /// are moved. To be called when all stores are open. Gives where they are.
    ///
    /// # Errors
    ///
    /// A store is gone again, or the state directory cannot be used.
    pub fn note_files(&self) -> Result<Vec<Option<Location>>, StartError> {
        let Located { locations, .. } = locate_for_start(&self.model, self.file.is_some())?;
        self.state.note_files(&self.model, &locations)?;
        Ok(locations)
    }
}

fn read_model(args: &Asked, environment: &Environment) -> Result<(Model, String), StartError> {
    let (mut model, text) = match &args.config {
        Some(path) => read_file(path)?,
        None => {
            let name = match &args.target {
                Some(name) => IscsiName::parse(name)
                    .map_err(|rule| ConfigError::new(rule, Place::argument("--target")))?,
                None => default_target_name(&environment.host),
            };
            (model_of(args, name)?, String::new())
        }
    };
    Flags::of(args).work_into(&mut model);
    Ok((model, text))
}

/// The model of a command line. With a group of HyperSCSI there is a target only if something asks for one.
fn model_of(args: &Asked, name: IscsiName) -> Result<Model, StartError> {
    let group = args.hyperscsi.as_deref().zip(args.group.as_deref());
    let group = group.zip(args.password_file.as_deref());
    let group = group.map(|((at, group), password_file)| HyperScsiArguments {
        at,
        group,
        password_file,
    });
    let has_target = group.is_none() || args.target.is_some() || !args.listen.is_empty();
    let target = has_target.then_some((name, args.listen.as_slice()));
    Ok(Model::from_arguments(&args.stores, target, group.as_ref())?)
}

fn read_file(path: &Path) -> Result<(Model, String), StartError> {
    let text = read_text(path)?;
    let model = Model::from_toml(&text, path)?;
    Ok((model, text))
}

/// The text of a configuration file.
///
/// # Errors
///
/// It cannot be read, or is no text.
pub fn read_text(path: &Path) -> Result<String, StartError> {
    text_of(path, fs::read(path))
}

/// Checks a configuration file with its secrets and stores, and reports what it found. Makes
/// nothing.
///
/// # Errors
///
/// All that would keep `serve` from starting, as far as it can be seen without starting.
pub fn check(file: &Path, environment: &Environment) -> Result<String, Vec<StartError>> {
    let one = |error| vec![error];
    let text = read_text(file).map_err(one)?;
    let wrong = |errors: Vec<ConfigError>| errors.into_iter().map(StartError::from).collect();
    let model = Model::read(&text, file).map_err(|errors| -> Vec<_> { wrong(errors) })?;
    let mut mistakes: Vec<StartError> = confinement::account(&model).err().into_iter().collect();
    // As the start does it: what that user cannot read is found here.
    let uid = match privileges::is_root() && mistakes.is_empty() {
        true => confinement::become_user(&model, environment.uid).map_err(one)?,
        false => environment.uid,
    };
    mistakes.extend(Secrets::read_all(&model, uid).1);
    mistakes.extend(crate::check_interfaces(&model).err());
    mistakes.extend(administration::check_certificate(&model));
    let of_nbd = crate::read_all_tls(&model).1.into_iter();
    mistakes.extend(of_nbd.map(|(_, error)| error));
    let (locations, misplaced) = opening(|| locate_each(&model));
    mistakes.extend(misplaced);
    let state = model.server().state.clone();
    let state = state.or_else(|| environment.state_directory().ok());
    let own_files = OwnFiles::of([&model], Some(file), state.as_deref());
    let opener = crate::Opener::of_start(1, &model, own_files);
    for (unit, location) in model.units().iter().zip(&locations) {
        // What is not found is not looked at again.
        for (store, place) in unit.parts().filter(|_| location.is_some()) {
            mistakes.extend(opening(|| crate::look_at_new(store, place, &opener)).err());
        }
        mistakes.extend(opening(|| crate::look_at_new_log(unit, &opener)).err());
    }
    // It asks the same of stores, and ends at the first.
    if mistakes.is_empty() {
        mistakes.extend(opening(|| Reach::of(&model, Some(file), None)).err());
    }
    let sizing = headroom::cores(&model).ok();
    let sizing = sizing.map(|cores| headroom::size(&model, cores, headroom::at_start()));
    let note = match sizing.transpose() {
        Ok(sizing) => sizing.and_then(|sizing| sizing.in_words()),
        Err(error) => {
            mistakes.push(error);
            None
        }
    };
    let mut said = BTreeSet::new();
    mistakes.retain(|error| said.insert(crate::error::chain(error)));
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Ok(report(file, &model, &locations, note.as_deref()))
}

/// What is legal and most likely not meant, also in the mode of the file.
pub(crate) fn warnings(model: &Model, file: Option<&Path>) -> Vec<Warning> {
    let exposed = file.map(|file| exposed_passwords(model, file));
    let warnings = model.warnings().into_iter();
    warnings.chain(exposed.into_iter().flatten()).collect()
}

/// Warnings of passwords that stand in a file which others may read.
pub(crate) fn exposed_passwords(model: &Model, file: &Path) -> Vec<Warning> {
    let metadata = fs::metadata(file).ok();
    metadata.map_or_else(Vec::new, |metadata| {
        model.exposed_passwords(file, metadata.mode() & 0o7777)
    })
}

fn report(
    file: &Path,
    model: &Model,
    locations: &[Option<Location>],
    note: Option<&str>,
) -> String {
    let mut text = String::new();
    for warning in warnings(model, Some(file)) {
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "warning: {warning}");
    }
    for warning in expiry::warnings(model, SystemTime::now()) {
        let _infallible = writeln!(text, "warning: {warning}");
    }
    let to_make = locations
        .iter()
        .flatten()
        .flat_map(|location| std::iter::once(location).chain(&location.further))
        .filter(|location| !location.exists);
    for location in to_make {
        let _infallible = writeln!(text, "note: {} will be made", location.path.display());
    }
    if let Some(note) = note {
        let _infallible = writeln!(text, "note: {note}");
    }
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    let mut counts = vec![
        count(model.targets().len(), "target"),
        count(model.units().len(), "lun"),
        count(model.users().len(), "user"),
        count(model.groups().len(), "group"),
    ];
    let further = [
        (model.nbd().len(), "NBD server"),
        (model.hyperscsi().len(), "HyperSCSI group"),
    ];
    let further = further.iter().filter(|(number, _)| *number > 0);
    counts.extend(further.map(|(number, what)| count(*number, what)));
    let _infallible = writeln!(text, "{}: good: {}", file.display(), counts.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::os::unix::fs::PermissionsExt as _;

    use config::LogLevel;

    use super::*;
    use crate::scratch::Scratch;

    fn environment(scratch: &Scratch) -> Environment {
        Environment {
            uid: rustix::process::geteuid().as_raw(),
            xdg_state_home: Some(scratch.path().to_owned()),
            host: "Box".to_owned(),
            ..Environment::default()
        }
    }

    fn args(scratch: &Scratch, stores: &[&str]) -> Asked {
        Asked {
            stores: stores.iter().map(|&store| store.to_owned()).collect(),
            state: Some(scratch.path().join("state")),
            ..Asked::default()
        }
    }

    #[test]
    fn a_memory_disk_needs_nothing_else() {
        let scratch = Scratch::new();
        let prepared = prepare(&args(&scratch, &["mem:256M"]), &environment(&scratch))
            .ok()
            .unwrap();
        let target = &prepared.model.targets()[0];
        assert_eq!(target.name.as_str(), "iqn.2026-11.example.tarn:box");
        assert_eq!(prepared.identities.len(), 1);
        assert_eq!(prepared.warnings, []);
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_defaults() {
        let scratch = Scratch::new();
        let file = scratch.path().join("t.toml");
        let text = "[server]\ncores = 2\nbusy_poll_us = 5\nlog = \"warn\"\nstate = \"kept\"\n[[target]]\n\
            name = \"iqn.2026-11.a:t\"\n";
        fs::write(&file, text).unwrap();
        let plain = Asked {
            config: Some(file.clone()),
            ..Asked::default()
        };
        let prepared = prepare(&plain, &environment(&scratch)).ok().unwrap();
        let server = prepared.model.server();
        assert_eq!(server.cores, NonZeroU16::new(2));
        assert_eq!(server.busy_poll_us, 5);
        assert_eq!(server.log, Some(LogLevel::Warn));
        assert_eq!(prepared.state.directory(), scratch.path().join("kept"));

        let flags = Asked {
            config: Some(file),
            cores: Some(3),
            busy_poll: Some(0),
            log: Some(LogLevel::Error),
            state: Some(scratch.path().join("other")),
            ..Asked::default()
        };
        let prepared = prepare(&flags, &environment(&scratch)).ok().unwrap();
        let server = prepared.model.server();
        assert_eq!(server.cores, NonZeroU16::new(3));
        assert_eq!(server.busy_poll_us, 0);
        assert_eq!(server.log, Some(LogLevel::Error));
        assert_eq!(prepared.state.directory(), scratch.path().join("other"));
    }

    #[test]
    fn nothing_is_made_when_something_is_wrong() {
        let scratch = Scratch::new();
        for stores in [&["mem:10X"][..], &["mem:1M", "/nowhere/disk.img"], &[]] {
            assert!(prepare(&args(&scratch, stores), &environment(&scratch)).is_err());
        }
        assert!(!scratch.path().join("state").exists());
    }

    #[test]
    fn a_file_that_is_no_text_is_reported_by_the_line_of_its_first_bad_byte() {
        let scratch = Scratch::new();
        let file = scratch.path().join("t.toml");
        let message = |path: &Path| crate::error::chain(&read_text(path).unwrap_err());
        for (bytes, line) in [(&b"\xff"[..], 1), (b"# \xc3\xa4\n# a\n# \xe4\n", 3)] {
            fs::write(&file, bytes).unwrap();
            let found = message(&file);
            assert!(
                found.contains(&format!("t.toml:{line}: a byte is not UTF-8 text")),
                "{found}"
            );
        }
        assert!(message(scratch.path()).contains("is a directory, name a file"));
        assert!(message(&scratch.path().join("absent")).contains("name one that exists"));
    }

    #[test]
    fn a_check_tells_what_it_found_and_makes_nothing() {
        let scratch = Scratch::new();
        let file = scratch.path().join("t.toml");
        let text = "[[lun]]\nid = \"a\"\nstore = \"new.img?size=1M\"\n[[target]]\nname = \"iqn.2026-11.a:t\"\n\
            portals = [\"0.0.0.0\"]\nluns = [{ lun = 0, id = \"a\" }]\n";
        fs::write(&file, text).unwrap();
        let found = check(&file, &environment(&scratch)).unwrap();
        let found = found.replace(scratch.path().to_str().unwrap(), "D");
        assert_eq!(
            found,
            "warning: D/t.toml:6: target[0].portals[0]: target iqn.2026-11.a:t is open without CHAP to everyone who \
             can connect to 0.0.0.0:3260; set auth or groups in a configuration file, or listen on 127.0.0.1\n\
             note: D/new.img will be made\n\
             D/t.toml: good: 1 target, 1 lun, 0 users, 0 groups\n"
        );
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_check_counts_servers_of_nbd_and_groups_of_hyperscsi() {
        let scratch = Scratch::new();
        let file = scratch.path().join("t.toml");
        let text = "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n[[nbd]]\nbind = \"127.0.0.1:0\"\nluns = [\"a\"]\n\
            [[hyperscsi.group]]\nname = \"A\"\nudp = \"127.0.0.1:0\"\nopen = true\ndevice = [{ id = \"a\" }]\n\
            [[hyperscsi.group]]\nname = \"B\"\nudp = \"127.0.0.1:0\"\nopen = true\ndevice = [{ id = \"a\" }]\n";
        fs::write(&file, text).unwrap();
        let found = check(&file, &environment(&scratch)).unwrap();
        let end = "good: 0 targets, 1 lun, 0 users, 0 groups, 1 NBD server, 2 HyperSCSI groups\n";
        assert!(found.ends_with(end), "{found}");
    }

    #[test]
    fn a_check_refuses_a_user_that_is_not_there() {
        let scratch = Scratch::new();
        let file = scratch.path().join("t.toml");
        fs::write(&file, "[confine]\nuser = \"nosuch\"\n").unwrap();
        let errors = check(&file, &environment(&scratch)).unwrap_err();
        let [error] = &errors[..] else {
            panic!("{errors:?}");
        };
        let error = crate::error::chain(error);
        assert!(
            error.contains("t.toml:2: confine.user") && error.contains("nosuch"),
            "{error}"
        );
    }

    #[test]
    fn a_check_names_all_that_is_wrong_at_once() {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.path().join(name);
        let text = "[admin]\nlisten = [\"127.0.0.1:0\"]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n\
            [[user]]\nname = \"u\"\nsecret_file = \"none\"\n\
            [[lun]]\nid = \"a\"\nstore = \"no/a.img?size=1M\"\n\
            [[lun]]\nid = \"b\"\nstore = \"b.img\"\n";
        fs::write(path("t.toml"), text).unwrap();
        fs::write(path("k.pem"), "").unwrap();
        fs::set_permissions(path("k.pem"), fs::Permissions::from_mode(0o644)).unwrap();
        let file = path("t.toml");
        let errors = check(&file, &environment(&scratch)).unwrap_err();
        let found = errors.iter().map(|error| crate::error::chain(error));
        let found: Vec<String> = found
            .map(|text| text.replace(scratch.path().to_str().unwrap(), "D"))
            .collect();
        let starts = [
            "D/t.toml:7: user[0].secret_file: cannot read secret file D/none",
            "D/t.toml:3: admin.certificate: D/c.pem: ",
            "D/t.toml:3: admin.certificate: D/k.pem: the key has mode 0644, which gives others access; run chmod 600 \
             D/k.pem",
            "D/t.toml:10: lun[0].store: D/no/a.img cannot be created because its directory does not exist",
            "D/t.toml:13: lun[1].store: D/b.img does not exist",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
        fs::write(
            path("t.toml"),
            "[server]\ncores = 0\n[limits]\nqueue_depth = 0\n",
        )
        .unwrap();
        let file = path("t.toml");
        assert_eq!(check(&file, &environment(&scratch)).unwrap_err().len(), 2);
    }

    #[test]
    fn a_command_line_is_kept_in_a_file_once_and_read_from_it_then() {
        let scratch = Scratch::new();
        let file = scratch.path().join("kept.toml");
        let asked = |stores: &[&str]| Asked {
            save: Some(file.clone()),
            ..args(&scratch, stores)
        };
        let made = prepare(&asked(&["mem:1M"]), &environment(&scratch))
            .ok()
            .unwrap();
        assert!(made.is_to_be_made && !file.exists());
        made.make_file().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!((&made.text, text.matches("[[lun]]").count()), (&text, 1));
        assert!(made.make_file().is_err(), "it is there");
        drop(made);
        let again = prepare(&asked(&["mem:1M", "mem:2M"]), &environment(&scratch))
            .ok()
            .unwrap();
        assert!(!again.is_to_be_made);
        assert_eq!((&again.text, again.model.units().len()), (&text, 1));
        again.make_file().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}
