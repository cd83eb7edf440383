//! Identity and state that a unit has on its medium itself, so that another machine that serves it shows the same disk.
//!
//! The state has the names of the target ports that registrations are for: each machine numbers them for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use plane::{Save, SaveError, SavedState, Version};
use store::{Note, Notes};

use super::directory::State;
use super::ports::PortName;

/// The form of the text of a state: this, its version, the ports, the content in hexadecimal digits; then length and
/// checksum of all that, all with a space between. The ports are `NUMBER=TAG=TARGET`, with commas between, or a hyphen.
const FORM: &str = "1";
const NO_PORTS: &str = "-";

/// What to do after a conflict.
const REMEDY: &str = "see that only one Tarn serves this image; then remove the lun and add it again, or restart Tarn";

/// The state of a unit on its medium.
#[derive(Debug)]
pub(super) struct OnMedium {
    notes: Arc<dyn Notes>,
    /// It has the numbers of target ports.
    ledger: State,
    own: Mutex<Own>,
    /// What was found where this process had left something else.
    conflict: OnceLock<String>,
    /// It was logged that nobody may write here.
    is_told: AtomicBool,
}

/// Checksums of the files that this process knows to be its own.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// That which was loaded or saved last.
    pub(super) last: Option<String>,
    /// Those that may be there all the same, oldest first: their saves have failed since, and not before the name of
    /// the file was to be changed.
    pub(super) left: Vec<String>,
}

/// How many files of saves that failed are known. Beyond that the oldest is dropped: later ones were to replace it.
pub(super) const LEFT_MAX: usize = 64;

impl Own {
    /// The save of the file of this sum has failed, and the file may be there.
    pub(super) fn note_left(&mut self, sum: String) {
        self.left.retain(|other| *other != sum);
        self.left.push(sum);
        if self.left.len() > LEFT_MAX {
            self.left.remove(0);
        }
    }
}

/// The version of what was saved without one.
pub(super) const FIRST: Version = Version(0);

/// The version of what is saved next.
pub(super) fn after(last: Option<Version>) -> Version {
    Version(last.unwrap_or(FIRST).0.saturating_add(1))
}

impl OnMedium {
    pub(super) fn new(notes: Arc<dyn Notes>, ledger: State) -> Self {
        Self {
            notes,
            ledger,
            own: Mutex::default(),
            conflict: OnceLock::new(),
            is_told: AtomicBool::new(false),
        }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        // Whatever panicked, each sum in it is of a text that this process has read or written.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn conflict(&self) -> Option<String> {
        self.conflict.get().cloned()
    }

    /// What was saved here, if anything was.
    pub(super) fn load(&self) -> io::Result<Option<SavedState>> {
        let Some(text) = self.notes.read(Note::State)? else {
            return Ok(None);
        };
        let noted = Noted::parse(&text);
        let noted = noted.ok_or_else(|| invalid("the state on the medium is damaged"))?;
        let names = noted.ports.values().cloned().collect::<BTreeSet<_>>();
        let numbers = match names.is_empty() {
            true => BTreeMap::new(),
            false => {
                let numbers = self.ledger.port_numbers_of_start(&names);
                numbers.map_err(io::Error::other)?
            }
        };
        let here = |port: u16| numbers.get(noted.ports.get(&port)?).copied();
        let state = scsi::with_ports_of_kept_state(&noted.state, here).map_err(invalid)?;
        self.own().last = Some(durable::sum_of(text.as_bytes()));
        Ok(Some(SavedState {
            version: noted.version,
            state,
        }))
    }

    /// Replaces what was saved here. With `None` nobody may, and nothing was ever saved.
    pub(super) fn save(&self, save: &Save) -> Option<Result<Version, SaveError>> {
        let found = match self.notes.read(Note::State) {
            Ok(found) => found,
            Err(error) => return Some(Err(SaveError::Failed(error))),
        };
        let is_empty = found.is_none();
        match self.replace(found.as_deref(), save) {
            Err(SaveError::Failed(error))
                if is_empty && error.kind() == io::ErrorKind::PermissionDenied =>
            {
                if !self.is_told.swap(true, Ordering::SeqCst) {
                    tracing::warn!(
                        %error,
                        "the state of a unit is kept in the state directory, as its medium cannot be given it: another \
                         Tarn would not have it"
                    );
                }
                None
            }
            outcome => Some(outcome),
        }
    }

    fn replace(&self, found: Option<&str>, save: &Save) -> Result<Version, SaveError> {
        let mut own = self.own();
        let last = match found.and_then(|text| Some((text, Noted::parse(text)?.version))) {
            Some((text, found)) => {
                let sum = durable::sum_of(text.as_bytes());
                let is_last = Some(found) == save.replaces && Some(&sum) == own.last.as_ref();
                if !is_last && !own.left.contains(&sum) {
                    return Err(self.conflict_with(found, save.replaces));
                }
                Some(found)
            }
            // What is damaged holds nobody's state.
            None => save.replaces,
        };
        let version = after(last);
        let text = self.text(version, &save.state).map_err(SaveError::Failed)?;
        let sum = durable::sum_of(text.as_bytes());
        match self.notes.write(Note::State, &text) {
            Ok(()) => {
                *own = Own {
                    last: Some(sum),
                    left: Vec::new(),
                };
                Ok(version)
            }
            // The medium has refused it, or was not there.
            Err(error)
                if [io::ErrorKind::PermissionDenied, io::ErrorKind::NotConnected]
                    .contains(&error.kind()) =>
            {
                Err(SaveError::Failed(error))
            }
            Err(error) => {
                own.note_left(sum);
                Err(SaveError::Uncertain(error))
            }
        }
    }

    fn text(&self, version: Version, state: &[u8]) -> io::Result<String> {
        let numbers = scsi::ports_of_kept_state(state).map_err(invalid)?;
        let names = self.ledger.port_names(&numbers).map_err(io::Error::other)?;
        if let Some(unknown) = numbers.iter().find(|number| !names.contains_key(number)) {
            let what = format!("target port {unknown} has no name in the state directory");
            return Err(io::Error::other(what));
        }
        let noted = Noted {
            version,
            ports: names,
            state: state.to_vec(),
        };
        Ok(noted.to_text())
    }

    fn conflict_with(&self, found: Version, left: Option<Version>) -> SaveError {
        let left = left.map_or_else(|| "none".to_owned(), |version| version.to_string());
        let what = format!(
            "its medium is not as this Tarn left it, so it is left alone: it has {found} of the state where {left} was"
        );
        let advice = format!("{what}; {REMEDY}");
        self.conflict.get_or_init(|| what);
        SaveError::Conflict { found, advice }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A state as it stands on a medium.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Noted {
    version: Version,
    /// The names of the ports that the state has by number.
    ports: BTreeMap<u16, PortName>,
    state: Vec<u8>,
}

impl Noted {
    fn to_text(&self) -> String {
        let ports = self.ports.iter();
        let ports = ports.map(|(number, (target, tag))| format!("{number}={tag}={target}"));
        let ports = match self.ports.is_empty() {
            true => NO_PORTS.to_owned(),
            false => ports.collect::<Vec<_>>().join(","),
        };
        let state: String = self
            .state
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let body = format!("{FORM} {} {ports} {state}", self.version.0);
        let sum = durable::sum_of(body.as_bytes());
        format!("{body} {sum}")
    }

    /// `None` for what is damaged, or of another form.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        let [form, version, ports, state] = [next()?, next()?, next()?, next()?];
        let body = [form, version, ports, state].join(" ");
        if form != FORM || text != format!("{body} {}", durable::sum_of(body.as_bytes())) {
            return None;
        }
        let ports = match ports {
            NO_PORTS => BTreeMap::new(),
            ports => ports.split(',').map(parse_port).collect::<Option<_>>()?,
        };
        Some(Self {
            version: Version(version.parse().ok()?),
            ports,
            state: parse_hex(state)?,
        })
    }
}

fn parse_port(text: &str) -> Option<(u16, PortName)> {
    let (number, name) = text.split_once('=')?;
    let (tag, target) = name.split_once('=')?;
    Some((number.parse().ok()?, (target.to_owned(), tag.parse().ok()?)))
}

fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            u8::from_str_radix(
                std::str::from_utf8(pair).ok().filter(|it| it.len() == 2)?,
                16,
            )
            .ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::AtomicU64;

    use plane::StateAuthority as _;

    use config::{Model, Naa, Serial};
    use store::SharedStore;

    use super::*;
    use crate::StartError;
    use crate::scratch::Scratch;
    use crate::state::{UnitIdentity, UnitState, check_identities};

    /// The state of a unit without reservations.
    const NOTHING: &[u8] = b"TARNUNIT\x02";

    /// A medium that two machines can reach.
    #[derive(Debug, Default)]
    struct Medium {
        texts: Mutex<HashMap<u8, String>>,
        refuses: Mutex<Option<io::ErrorKind>>,
    }

    impl Medium {
        fn text(&self, note: Note) -> Option<String> {
            self.texts.lock().unwrap().get(&(note as u8)).cloned()
        }

        fn put(&self, note: Note, text: &str) {
            self.texts
                .lock()
                .unwrap()
                .insert(note as u8, text.to_owned());
        }
    }

    #[derive(Debug)]
    struct Shared(Arc<Medium>);

    impl Notes for Shared {
        fn read(&self, note: Note) -> io::Result<Option<String>> {
            Ok(self.0.text(note))
        }

        fn write(&self, note: Note, text: &str) -> io::Result<()> {
            let refuses = *self.0.refuses.lock().unwrap();
            // A write of which nobody knows whether it is done is done.
            if refuses != Some(io::ErrorKind::PermissionDenied) {
                self.0.put(note, text);
            }
            refuses.map_or(Ok(()), |kind| Err(kind.into()))
        }
    }

    #[derive(Debug)]
    struct Disk(Arc<Medium>);

    impl SharedStore for Disk {
        fn inner(&self) -> &dyn SharedStore {
            &store::Bottom
        }

        fn handle(&self) -> io::Result<Box<dyn store::Backstore>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn capabilities(&self) -> store::Capabilities {
            store::NullDisk::new(512, 512, false).capabilities()
        }

        fn notes(&self) -> Option<Arc<dyn Notes>> {
            Some(Arc::new(Shared(Arc::clone(&self.0))))
        }
    }

    /// Each start makes another identity, to be used or not.
    static COUNT: AtomicU64 = AtomicU64::new(1);

    struct Machine {
        scratch: Scratch,
        state: State,
    }

    impl Machine {
        fn new() -> Self {
            let scratch = Scratch::new();
            let state = State::open(scratch.path().join("state")).unwrap();
            Self { scratch, state }
        }

        /// A start with a unit on this medium.
        fn start(&self, medium: &Arc<Medium>, store: &str) -> UnitIdentity {
            let name = config::IscsiName::parse("iqn.2026-11.example:t").unwrap();
            let model = Model::from_stores(&[store.to_owned()], name, &[]).unwrap();
            let unit = &model.units()[0];
            let directory = self.scratch.path().join("unit");
            let naa = Naa::locally_assigned(COUNT.fetch_add(1, Ordering::SeqCst).to_be_bytes());
            let identity = UnitIdentity {
                was_served: false,
                serial: Serial::of_naa(naa),
                naa: unit.naa.unwrap_or(naa),
                record: naa,
                state: Arc::new(UnitState::lock(&directory).unwrap().unwrap()),
                is_withheld: false,
            };
            self.state
                .settle_identity(unit, identity, &Disk(Arc::clone(medium)))
        }
    }

    fn save(state: &[u8], replaces: Option<u64>) -> Save {
        Save {
            state: state.to_vec(),
            replaces: replaces.map(Version),
        }
    }

    #[test]
    fn two_machines_show_one_disk_unless_a_serial_number_is_configured() {
        let (medium, machines) = (Arc::default(), [Machine::new(), Machine::new()]);
        let first = machines[0].start(&medium, "rbd:p/i");
        let second = machines[1].start(&medium, "rbd:p/i");
        assert_eq!((first.naa, &first.serial), (second.naa, &second.serial));
        drop(second);
        let named = machines[1].start(&medium, "rbd:p/i?serial=ABC");
        assert_eq!((named.naa, named.serial.as_str()), (first.naa, "ABC"));
        let kept = format!("{} {}", first.naa, first.serial);
        assert_eq!(medium.text(Note::Identity).unwrap(), kept);
    }

    #[test]
    fn an_identity_that_nobody_can_read_is_replaced() {
        let medium = Arc::new(Medium::default());
        for bad in ["", "x", "3 4", " a", "naa serial"] {
            medium.put(Note::Identity, bad);
            let identity = Machine::new().start(&medium, "rbd:p/i");
            let kept = format!("{} {}", identity.naa, identity.serial);
            assert_eq!(medium.text(Note::Identity).unwrap(), kept, "{bad:?}");
        }
    }

    #[test]
    fn the_state_goes_with_the_medium_and_who_lost_it_meets_a_conflict() {
        let (medium, machines) = (Arc::default(), [Machine::new(), Machine::new()]);
        let first = machines[0].start(&medium, "rbd:p/i").state;
        assert_eq!(first.load().unwrap(), None);
        assert_eq!(first.save(&save(NOTHING, None)).unwrap(), Version(1));
        let second = machines[1].start(&medium, "rbd:p/i").state;
        let saved = second.load().unwrap().unwrap();
        assert_eq!(
            (saved.version, saved.state.as_slice()),
            (Version(1), NOTHING)
        );
        assert_eq!(second.save(&save(NOTHING, Some(1))).unwrap(), Version(2));
        let error = first.save(&save(NOTHING, Some(1))).unwrap_err();
        assert!(matches!(
            error,
            SaveError::Conflict {
                found: Version(2),
                ..
            }
        ));
        assert!(
            error.to_string().contains("only one Tarn serves"),
            "{error}"
        );
        assert!(first.conflict().unwrap().contains("version 2"));
        assert_eq!(second.save(&save(NOTHING, Some(2))).unwrap(), Version(3));
    }

    #[test]
    fn what_a_failed_save_has_left_is_no_conflict() {
        let (medium, machine) = (Arc::new(Medium::default()), Machine::new());
        let state = machine.start(&medium, "rbd:p/i").state;
        assert_eq!(state.save(&save(NOTHING, None)).unwrap(), Version(1));
        *medium.refuses.lock().unwrap() = Some(io::ErrorKind::TimedOut);
        let failed = state.save(&save(NOTHING, Some(1)));
        assert!(matches!(failed, Err(SaveError::Uncertain(_))));
        *medium.refuses.lock().unwrap() = None;
        assert_eq!(state.save(&save(NOTHING, Some(1))).unwrap(), Version(3));
    }

    #[test]
    fn who_may_not_write_there_keeps_files() {
        let (medium, machine) = (Arc::new(Medium::default()), Machine::new());
        *medium.refuses.lock().unwrap() = Some(io::ErrorKind::PermissionDenied);
        let state = machine.start(&medium, "rbd:p/i").state;
        assert_eq!(state.save(&save(NOTHING, None)).unwrap(), Version(1));
        assert_eq!(state.save(&save(NOTHING, Some(1))).unwrap(), Version(2));
        assert_eq!(medium.text(Note::State), None);
        drop(state);
        let state = machine.start(&medium, "rbd:p/i").state;
        assert_eq!(state.load().unwrap().unwrap().version, Version(2));
        // With the right the medium has it from then on, and the file is not asked.
        *medium.refuses.lock().unwrap() = None;
        assert_eq!(state.save(&save(NOTHING, Some(2))).unwrap(), Version(3));
        assert_eq!(state.load().unwrap().unwrap().version, Version(3));
        *medium.refuses.lock().unwrap() = Some(io::ErrorKind::PermissionDenied);
        let refused = state.save(&save(NOTHING, Some(3)));
        assert!(
            matches!(refused, Err(SaveError::Failed(_))),
            "an old text would be loaded"
        );
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_damage() {
        let target = "iqn.2026-11.example:t".to_owned();
        let noted = Noted {
            version: Version(7),
            ports: BTreeMap::from([(3, (target.clone(), 1)), (4, (target, 2))]),
            state: vec![0, 255, 7],
        };
        let text = noted.to_text();
        assert_eq!(Noted::parse(&text), Some(noted));
        for at in 0..text.len() {
            assert_eq!(Noted::parse(&text[..at]), None, "{at}");
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            assert_eq!(
                Noted::parse(&String::from_utf8(changed).unwrap()),
                None,
                "{at}"
            );
        }
        for bad in [
            "",
            "1 1 - ",
            "1 1 - 0",
            "1 x - 00",
            "2 1 - 00",
            "1 1 3 00",
            "1 1 3=t 00",
        ] {
            let sealed = format!("{bad} {}", durable::sum_of(bad.as_bytes()));
            let is_whole = bad == "1 1 - ";
            assert_eq!(Noted::parse(&sealed).is_some(), is_whole, "{bad:?}");
        }
        let medium = Arc::new(Medium::default());
        medium.put(Note::State, "1 1 - 00");
        let state = Machine::new().start(&medium, "rbd:p/i").state;
        assert_eq!(state.load().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(state.save(&save(NOTHING, None)).unwrap(), Version(1));
    }

    #[test]
    fn a_unit_of_an_identity_that_is_there_is_refused() {
        let stores = ["rbd:p/a".to_owned(), "rbd:p/b".to_owned()];
        let name = config::IscsiName::parse("iqn.2026-11.example:t").unwrap();
        let model = Model::from_stores(&stores, name, &[]).unwrap();
        let (medium, machines) = (Arc::default(), [Machine::new(), Machine::new()]);
        let units = machines.each_ref().map(|it| it.start(&medium, "rbd:p/a"));
        let twice = check_identities(&model, units.iter()).unwrap_err();
        assert!(matches!(twice, StartError::IdentityShared { .. }));
        check_identities(&model, units.iter().take(1)).unwrap();
    }
}
