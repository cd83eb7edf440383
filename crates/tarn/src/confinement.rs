//! What the process gives up, as `[confine]` says: the user before anything is made, the rest when all is
//! open. A change of the configuration is asked first whether it stays within reach.

use std::io;
use std::path::{Path, PathBuf};

use api::plan::Kind;
use api::problem::{Problem, ProblemKind};
use config::{Model, SecretFile, Unit};
use confine::account::Account;
use confine::files::{Right, Rule};
use confine::roots::Roots;
use confine::{Enforced, calls, files, privileges};

use crate::StartError;
use crate::daemon::{Consequence, PlannedStep};

/// The first port that anybody may listen at.
const PORT_OF_ALL_MIN: u16 = 1024;

/// What the kernel reports about this process, and about devices.
const SYSTEM: [&str; 2] = ["/proc/self", "/sys"];

/// Becomes the user that the configuration names. Gives the user this process then is.
///
/// # Errors
///
/// There is no such user, or only root could become it.
pub(crate) fn become_user(model: &Model, uid: u32) -> Result<u32, StartError> {
    let (Some(wanted), Some(account)) = (&model.confine().user, account(model)?) else {
        return Ok(uid);
    };
    if account.uid == uid {
        return Ok(uid);
    }
    if !privileges::is_root() {
        return Err(StartError::NotRoot {
            place: wanted.place.clone(),
            user: wanted.user.clone(),
        });
    }
    privileges::become_user(&account).map_err(StartError::Confine)?;
    Ok(account.uid)
}

/// The user that the configuration names, if it names one.
///
/// # Errors
///
/// There is no such user or group.
pub(crate) fn account(model: &Model) -> Result<Option<Account>, StartError> {
    let Some(wanted) = &model.confine().user else {
        return Ok(None);
    };
    let place = wanted.place.clone();
    Account::find(&wanted.user, wanted.group.as_deref())
        .map(Some)
        .map_err(|source| StartError::Account { place, source })
}

/// Whether this host leaves rings to those with `CAP_SYS_ADMIN`, of which no other user was named.
fn needs_right_to_rings() -> bool {
    let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let is_needed = privileges::is_root() && switch.is_ok_and(|text| text.trim() == "1");
    if is_needed {
        tracing::warn!(
            "kernel.io_uring_disabled is 1: CAP_SYS_ADMIN is kept to make rings; name a user of \
             kernel.io_uring_group in confine.user instead"
        );
    }
    is_needed
}

/// What stays within reach: everything, or stores below the roots and secrets where some are already.
#[derive(Debug, Default)]
pub(crate) struct Reach(Option<Within>);

#[derive(Debug)]
struct Within {
    stores: Roots,
    secrets: Roots,
}

impl Reach {
    /// What the configuration leaves; `file` is where it stands, `state` the state directory if it is known.
    ///
    /// # Errors
    ///
    /// A root that is not there, or a store that lies elsewhere.
    pub(crate) fn of(
        model: &Model,
        file: Option<&Path>,
        state: Option<&Path>,
    ) -> Result<Self, StartError> {
        let Some(roots) = &model.confine().roots else {
            return Ok(Self(None));
        };
        let mut stores = Roots::default();
        for root in roots {
            stores
                .add(&root.path)
                .map_err(|source| StartError::RootMissing {
                    place: root.place.clone(),
                    path: root.path.clone(),
                    source,
                })?;
        }
        let secrets = secrets_of(model).map(|secret| directory_of(&secret.path));
        let mut readable = stores.clone();
        for directory in secrets
            .chain(file.map(directory_of))
            .chain(state.map(Path::to_owned))
        {
            readable.add(&directory).map_err(StartError::Confine)?;
        }
        let reach = Self(Some(Within {
            stores,
            secrets: readable,
        }));
        match model.units().iter().find_map(|unit| reach.outside(unit)) {
            Some(error) => Err(error),
            None => Ok(reach),
        }
    }

    /// The error if a store lies elsewhere.
    fn outside(&self, unit: &Unit) -> Option<StartError> {
        let (within, path) = (self.0.as_ref()?, unit.store.at.node()?.0);
        (!within.stores.contain(path)).then(|| StartError::StoreOutside {
            place: unit.place.clone(),
            path: path.to_owned(),
            roots: within.stores.to_string(),
        })
    }

    /// Refuses the steps to stores that lie elsewhere.
    pub(crate) fn refuse(&self, steps: &mut [PlannedStep], model: &Model) {
        for unit in model.units() {
            let name = unit.to_string();
            let is_its = |step: &&mut PlannedStep| step.kind == Kind::Lun && step.name == name;
            // What no step concerns is not looked at: its file system may hang.
            if let Some(step) = steps.iter_mut().find(is_its)
                && let Some(outside) = self.outside(unit)
            {
                step.consequence = Consequence::OutOfReach(outside.to_string());
            }
        }
    }

    /// The problem if a secret lies where this process cannot read it.
    pub(crate) fn check_secrets(&self, model: &Model) -> Result<(), Problem> {
        let Some(within) = &self.0 else {
            return Ok(());
        };
        match secrets_of(model).find(|secret| !within.secrets.contain(&secret.path)) {
            None => Ok(()),
            Some(secret) => {
                let detail = format!(
                    "secret file {} is out of reach of the confined process; move it beside the configuration file, \
                     or put it into the file and restart Tarn",
                    secret.path.display()
                );
                let mut problem = Problem::new(ProblemKind::Refused, detail);
                problem.place = Some(secret.place.to_string());
                Err(problem)
            }
        }
    }
}

fn secrets_of(model: &Model) -> impl Iterator<Item = &SecretFile> {
    model.users().iter().flat_map(|user| {
        let mutual = user.mutual.as_ref().map(|mutual| &mutual.secret);
        std::iter::once(&user.secret).chain(mutual)
    })
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// What is left to be given up when all is open.
pub(crate) struct Confinement<'a> {
    pub(crate) model: &'a Model,
    pub(crate) reach: &'a Reach,
    /// Whether this process has become another user.
    pub(crate) is_other_user: bool,
    /// The configuration file.
    pub(crate) file: Option<&'a Path>,
    /// The state directory.
    pub(crate) state: &'a Path,
    /// The socket of the administration.
    pub(crate) socket: Option<&'a Path>,
}

impl Confinement<'_> {
    /// Gives it up. To be called before any other thread is started.
    ///
    /// # Errors
    ///
    /// The kernel cannot, and the configuration wants it; or what is needed later is out of reach.
    pub(crate) fn give_up(&self) -> Result<(), StartError> {
        if !confine::is_alone().map_err(StartError::Confine)? {
            let error = io::Error::other("other threads run already");
            return Err(StartError::Confine(error));
        }
        // Kernels before 6.4 report it in a file below /proc, which is out of reach from now on; once
        // asked for, it is remembered.
        rustix::param::page_size();
        privileges::no_new_privileges().map_err(StartError::Confine)?;
        if self.is_other_user {
            privileges::give_up(self.has_low_ports()).map_err(StartError::Confine)?;
            self.check_file()?;
        } else {
            privileges::keep_serving(needs_right_to_rings()).map_err(StartError::Confine)?;
        }
        if let Some(rules) = self.rules() {
            let enforced = files::restrict(&rules).map_err(StartError::ConfineFiles)?;
            self.tell("files (Landlock)", enforced)?;
        }
        if self.model.confine().seccomp {
            let enforced = calls::restrict().map_err(StartError::ConfineCalls)?;
            self.tell("system calls (seccomp)", enforced)?;
        }
        Ok(())
    }

    /// Gives up what only the start needed. To be called when all threads run that the start makes.
    ///
    /// # Errors
    ///
    /// The kernel cannot, and the configuration wants it.
    pub(crate) fn seal(model: &Model) -> Result<(), StartError> {
        if !model.confine().seccomp {
            return Ok(());
        }
        let enforced = calls::seal().map_err(StartError::ConfineCalls)?;
        match enforced {
            // It has been reported already.
            Enforced::Not if !model.confine().is_required => Ok(()),
            Enforced::Not => Err(StartError::Unconfined {
                what: "system calls of the start (seccomp)",
            }),
            Enforced::Fully | Enforced::Partly => Ok(()),
        }
    }

    fn has_low_ports(&self) -> bool {
        let portals = self.model.listeners();
        let portals = portals.iter().map(|listener| listener.bind);
        let admin = self.model.admin().listen.iter().map(|one| one.bind);
        portals
            .chain(admin)
            .any(|bind| (1..PORT_OF_ALL_MIN).contains(&bind.port()))
    }

    /// It is read again at every reload.
    fn check_file(&self) -> Result<(), StartError> {
        let Some(file) = self.file else {
            return Ok(());
        };
        rustix::fs::access(file, rustix::fs::Access::READ_OK).map_err(|error| StartError::Hidden {
            path: file.to_owned(),
            source: error.into(),
        })
    }

    /// A rule for each path that is needed from now on; `None` where all paths are left.
    fn rules(&self) -> Option<Vec<Rule>> {
        let within = self.reach.0.as_ref()?;
        let admin = self.model.admin();
        let certificates = admin.certificate.iter();
        let certificates = certificates.flat_map(|pair| [&pair.certificate, &pair.key]);
        let read = SYSTEM.map(PathBuf::from).into_iter();
        let read = read
            .chain(certificates.map(|path| directory_of(path)))
            .chain(within.secrets.paths().iter().cloned());
        let kept = [self.file.map(directory_of), self.socket.map(directory_of)];
        // What a link leads to is replaced where it lies.
        let linked = self.file.and_then(|file| std::fs::canonicalize(file).ok());
        let linked = linked.map(|file| directory_of(&file));
        let kept = kept.into_iter().flatten().chain(linked);
        let kept = kept.chain([self.state.to_owned()]);
        let stores = within.stores.paths().iter().cloned();
        let rule = |right| move |path| Rule { path, right };
        Some(
            read.map(rule(Right::Read))
                .chain(kept.map(rule(Right::Keep)))
                .chain(stores.map(rule(Right::Store)))
                .collect(),
        )
    }

    fn tell(&self, what: &'static str, enforced: Enforced) -> Result<(), StartError> {
        match enforced {
            Enforced::Fully => tracing::info!(what, "confined"),
            Enforced::Partly => tracing::info!(what, "confined as far as this kernel can"),
            Enforced::Not if self.model.confine().is_required => {
                return Err(StartError::Unconfined { what });
            }
            Enforced::Not => tracing::warn!(what, "not confined: this kernel cannot, or may not"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    fn model(scratch: &Scratch, text: &str) -> Model {
        Model::from_toml(text, &scratch.path().join("tarn.toml")).unwrap()
    }

    fn lun(store: &str) -> String {
        format!("[[lun]]\nid = \"a\"\nstore = \"{store}\"\n")
    }

    const ROOTS: &str = "[confine]\nroots = [\"disks\"]\n";

    #[test]
    fn a_store_outside_the_roots_is_told_with_place_and_remedy() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("disks")).unwrap();
        let reach = |store: &str| {
            let model = model(&scratch, &format!("{}{ROOTS}", lun(store)));
            Reach::of(&model, None, None).map_err(|error| {
                let directory = fs::canonicalize(scratch.path()).unwrap();
                error.to_string().replace(directory.to_str().unwrap(), "D")
            })
        };
        for store in ["mem:1M", "disks/a.img?size=1M"] {
            assert!(reach(store).is_ok(), "{store}");
        }
        let directory = fs::canonicalize(scratch.path()).unwrap();
        let outside = format!("{}/a.img?size=1M", directory.display());
        let error = reach(&outside).unwrap_err();
        assert!(
            error.ends_with(
                "tarn.toml:3: lun[0].store: D/a.img is outside the roots (D/disks); move it there, or name its \
                 directory in confine.roots and restart Tarn"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_root_that_is_not_there_is_told() {
        let scratch = Scratch::new();
        let error = Reach::of(&model(&scratch, ROOTS), None, None).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("confine.roots[0]: cannot look at root"),
            "{error}"
        );
    }

    #[test]
    fn steps_and_secrets_out_of_reach_are_refused() {
        let scratch = Scratch::new();
        for directory in ["disks", "etc"] {
            fs::create_dir(scratch.path().join(directory)).unwrap();
        }
        let file = scratch.path().join("etc/tarn.toml");
        let reach = Reach::of(&model(&scratch, ROOTS), Some(&file), None).unwrap();
        let (action, name) = (api::plan::Action::Add, "a".to_owned());
        let mut step = PlannedStep::new(action, Kind::Lun, name, String::new());
        let inside = model(&scratch, &lun("disks/a.img?size=1M"));
        reach.refuse(std::slice::from_mut(&mut step), &inside);
        assert_eq!(step.consequence, Consequence::Nothing);
        let outside = model(&scratch, &lun("a.img?size=1M"));
        reach.refuse(std::slice::from_mut(&mut step), &outside);
        assert!(matches!(step.consequence, Consequence::OutOfReach(_)));
        assert!(
            step.consequence
                .to_string()
                .contains("is outside the roots")
        );

        let user = |path| format!("[[user]]\nname = \"u\"\nsecret_file = \"{path}\"\n");
        let beside = model(&scratch, &user("etc/secret"));
        assert!(reach.check_secrets(&beside).is_ok());
        let hidden = model(&scratch, &user("secret"));
        let problem = reach.check_secrets(&hidden).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Refused);
        assert!(problem.place.unwrap().ends_with("user[0].secret_file"));
        let everywhere = Reach::default();
        assert!(everywhere.check_secrets(&hidden).is_ok());
    }

    #[test]
    fn only_root_becomes_another_user() {
        let scratch = Scratch::new();
        let text = "[confine]\nuser = \"nobody-of-that-name\"\n";
        let error = become_user(&model(&scratch, text), 1000).unwrap_err();
        assert!(matches!(error, StartError::Account { .. }), "{error}");
        let own = rustix::process::geteuid().as_raw();
        let text = format!("[confine]\nuser = \"{own}\"\ngroup = \"0\"\n");
        assert_eq!(become_user(&model(&scratch, &text), own).unwrap(), own);
    }
}
