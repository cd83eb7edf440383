//! What the process takes from its surroundings, read once.

use std::fs;
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::StartError;
use crate::secret::Secret;

/// The name of the socket of the administration in its directory.
pub(crate) const SOCKET_NAME: &str = "tarn.sock";

/// The user who may do everything.
const ROOT: u32 = 0;

/// What the process takes from its surroundings. No other code reads the environment.
#[derive(Clone, Default)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Environment {
    /// Effective user.
    pub uid: u32,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub xdg_state_home: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `RUNTIME_DIRECTORY`: what the service manager has made for this service, the first of them.
    pub runtime_directory: Option<PathBuf>,
    /// `TARN_SOCKET`: where the administration listens, and where the verbs look for it.
    pub socket: Option<PathBuf>,
    /// `TARN_URL`: a daemon elsewhere that the verbs ask.
    pub url: Option<String>,
    /// `TARN_CA`: the certificate authority of a daemon elsewhere.
    pub ca: Option<PathBuf>,
    /// `TARN_TOKEN_FILE`: what the verbs prove themselves with to a daemon elsewhere.
    pub token_file: Option<PathBuf>,
    /// `NO_COLOR` is set.
    ///
    /// Spec: no-color.org.
    pub no_color: bool,
    /// `TARN_LOG`.
    pub log: Option<String>,
    /// `TARN_BENCH_SECRET`.
    pub bench_secret: Option<Secret>,
    /// `TARN_PASSWORD`: of a HyperSCSI group or user, or of a user of an iSCSI target.
    pub password: Option<Zeroizing<String>>,
    /// The host name.
    pub host: String,
}

impl Environment {
    /// Reads it from the process.
    pub fn of_process() -> Self {
        let path = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                // The rule of the XDG base directories: a relative path is to be ignored.
                .filter(|path| path.is_absolute())
        };
        Self {
            uid: rustix::process::geteuid().as_raw(),
            home: path("HOME"),
            xdg_state_home: path("XDG_STATE_HOME"),
            xdg_runtime_dir: path("XDG_RUNTIME_DIR"),
            runtime_directory: std::env::var_os("RUNTIME_DIRECTORY").and_then(|paths| {
                // Spec: systemd.exec(5); several are joined by colons.
                let first = std::env::split_paths(&paths).next()?;
                first.is_absolute().then_some(first)
            }),
            socket: std::env::var_os("TARN_SOCKET")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            url: std::env::var_os("TARN_URL")
                .filter(|url| !url.is_empty())
                .map(|url| url.to_string_lossy().into_owned()),
            ca: std::env::var_os("TARN_CA")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            token_file: std::env::var_os("TARN_TOKEN_FILE")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            no_color: std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty()),
            log: std::env::var_os("TARN_LOG").map(|text| text.to_string_lossy().into_owned()),
            bench_secret: std::env::var_os("TARN_BENCH_SECRET").map(|text| {
                Secret::from_text(&Zeroizing::new(text.to_string_lossy().into_owned()))
            }),
            password: std::env::var_os("TARN_PASSWORD")
                .map(|text| Zeroizing::new(text.to_string_lossy().into_owned())),
            // Only a name to show; without one the target is called localhost.
            host: fs::read_to_string("/proc/sys/kernel/hostname")
                .map(|name| name.trim().to_owned())
                .unwrap_or_default(),
        }
    }

    /// Where the socket of the administration is when nobody says, the best place first. The verbs
    /// look there too.
    pub fn socket_directories(&self) -> Vec<PathBuf> {
        let system = (self.uid == ROOT).then(|| PathBuf::from("/run/tarn"));
        let user = self.xdg_runtime_dir.as_ref().map(|path| path.join("tarn"));
        let mut places: Vec<PathBuf> = self.runtime_directory.clone().into_iter().collect();
        places.extend(system.or(user));
        places.dedup();
        places
    }

    /// Where the verbs look for the daemon when nobody says: the first place that has a socket, or
    /// the best one, for the message that it has none.
    ///
    /// # Errors
    ///
    /// There is no such place.
    pub fn socket_path(&self) -> Result<PathBuf, StartError> {
        if let Some(path) = &self.socket {
            return Ok(path.clone());
        }
        let mut places = self.socket_directories();
        let state = self.state_directory();
        places.extend(state.as_ref().ok().cloned());
        let mut places = places.iter().map(|place| place.join(SOCKET_NAME));
        let there = places.clone().find(|path| path.exists());
        match there.or_else(|| places.next()) {
            Some(path) => Ok(path),
            None => state,
        }
    }

    /// Where the state lives when nobody says.
    ///
    /// # Errors
    ///
    /// The user has no home.
    pub fn state_directory(&self) -> Result<PathBuf, StartError> {
        if self.uid == ROOT {
            return Ok(PathBuf::from("/var/lib/tarn"));
        }
        let of_home = || self.home.as_ref().map(|home| home.join(".local/state"));
        self.xdg_state_home
            .clone()
            .or_else(of_home)
            .map(|directory| directory.join("tarn"))
            .ok_or(StartError::NoHome)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_verbs_find_the_socket_that_is_there_and_name_the_best_place_otherwise() {
        let scratch = Scratch::new();
        let (run, state) = (scratch.path().join("run"), scratch.path().join("state"));
        let mut environment = Environment {
            uid: 1000,
            xdg_runtime_dir: Some(run.clone()),
            xdg_state_home: Some(state.clone()),
            ..Environment::default()
        };
        let best = run.join("tarn").join(SOCKET_NAME);
        assert_eq!(environment.socket_path().unwrap(), best);
        fs::create_dir_all(state.join("tarn")).unwrap();
        let there = state.join("tarn").join(SOCKET_NAME);
        fs::write(&there, b"").unwrap();
        assert_eq!(environment.socket_path().unwrap(), there);
        environment.socket = Some("/named".into());
        assert_eq!(environment.socket_path().unwrap(), Path::new("/named"));
        let nowhere = Environment {
            uid: 1000,
            ..Environment::default()
        };
        assert!(matches!(nowhere.socket_path(), Err(StartError::NoHome)));
    }

    #[test]
    fn the_state_directory_is_the_system_s_or_the_user_s() {
        let environment = |uid, xdg: Option<&str>, home: Option<&str>| Environment {
            uid,
            xdg_state_home: xdg.map(PathBuf::from),
            home: home.map(PathBuf::from),
            ..Environment::default()
        };
        #[rustfmt::skip]
        let cases = [
            (environment(0, Some("/x"), Some("/root")), Some("/var/lib/tarn")),
            (environment(1000, Some("/x"), Some("/home/a")), Some("/x/tarn")),
            (environment(1000, None, Some("/home/a")), Some("/home/a/.local/state/tarn")),
            (environment(1000, None, None), None),
        ];
        for (environment, expected) in cases {
            let got = environment.state_directory().ok();
            assert_eq!(got, expected.map(PathBuf::from), "user {}", environment.uid);
        }
    }
}
