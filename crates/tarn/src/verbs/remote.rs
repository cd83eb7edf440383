//! How the daemon is reached: the flags that every verb has.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use client::{Endpoint, Remote, Token};
use zeroize::Zeroizing;

use super::Outcome;
use super::api_session::ApiSession;
use super::failure::Failure;
use super::output::Output;
use daemon::{Environment, secret};

/// Something that can be asked of the daemon.
pub(super) trait Ask {
    /// Asks, and prints the answer.
    fn ask(&self, api: &ApiSession) -> Outcome;
}

/// A noun with its verbs, and how to reach the daemon.
#[derive(Args, Debug)]
pub struct Noun<V: Subcommand> {
    /// What to do with it.
    #[command(subcommand)]
    verb: V,
    /// How to reach the daemon.
    #[command(flatten)]
    remote: RemoteArgs,
}

/// A verb without a noun, and how to reach the daemon.
#[derive(Args, Debug)]
pub struct Alone<A: Args> {
    /// Its own flags.
    #[command(flatten)]
    verb: A,
    /// How to reach the daemon.
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Something that finds the daemon by itself.
pub(super) trait Run {
    /// Finds the daemon, asks, and prints the answer.
    fn run(&self, environment: &Environment) -> Outcome;
}

impl<V: Subcommand + Ask> Run for Noun<V> {
    fn run(&self, environment: &Environment) -> Outcome {
        self.verb.ask(&self.remote.api(environment)?)
    }
}

impl<A: Args + Ask> Run for Alone<A> {
    fn run(&self, environment: &Environment) -> Outcome {
        self.verb.ask(&self.remote.api(environment)?)
    }
}

/// How the daemon is reached, and how its answers are shown.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Daemon and output")]
pub(super) struct RemoteArgs {
    /// Where the daemon is.
    #[command(flatten)]
    endpoint: EndpointArgs,

    /// Print the answer of the API as JSON. Use it in programs.
    #[arg(long, global = true)]
    json: bool,

    /// Print without colour. Use it for logs; the variable NO_COLOR does the same.
    #[arg(long, global = true)]
    no_color: bool,
}

impl RemoteArgs {
    fn api(&self, environment: &Environment) -> Result<ApiSession, Failure> {
        let may_colour = !self.no_color && !environment.no_color;
        let output = Output::new(self.json, may_colour);
        ApiSession::open(self.endpoint.find(environment)?, output)
    }
}

/// Where the daemon is.
#[derive(Args, Debug, Default)]
pub(super) struct EndpointArgs {
    /// Socket of the daemon. Use it when several daemons run, or one of another user; the variable
    /// TARN_SOCKET does the same. [default: /run/tarn/tarn.sock for root, else
    /// $XDG_RUNTIME_DIR/tarn/tarn.sock, else tarn.sock in the state directory]
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "url")]
    socket: Option<PathBuf>,

    /// Address of a daemon on another machine, https://HOST:PORT. Use it with --token-file; see
    /// admin.listen in docs/reference/configuration.md. The variable TARN_URL does the same, unless --socket is given.
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,

    /// File with the token, chmod 600. Use it with --url; the variable TARN_TOKEN_FILE does the
    /// same.
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,

    /// Certificate authority of the daemon's certificate, PEM. Use it with --url when the system
    /// does not trust that certificate; the variable TARN_CA does the same.
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

impl EndpointArgs {
    fn url<'a>(&'a self, environment: &'a Environment) -> Option<&'a String> {
        let of_environment = environment.url.as_ref();
        let url = of_environment.filter(|_| self.socket.is_none());
        self.url.as_ref().or(url)
    }

    fn socket(&self, environment: &Environment) -> Result<PathBuf, Failure> {
        match &self.socket {
            Some(path) => Ok(path.clone()),
            None => Ok(environment.socket_path()?),
        }
    }

    /// What is said of the daemon in the words of a line, as far as they are there.
    pub(super) fn of_words(words: &[String]) -> Self {
        let value = |flag: &str| {
            let before = format!("{flag}=");
            let with = words.iter().find_map(|word| word.strip_prefix(&before));
            let apart = words.windows(2).find_map(|pair| match pair {
                [name, value] if name == flag => Some(value.as_str()),
                _ => None,
            });
            with.or(apart).map(str::to_owned)
        };
        Self {
            socket: value("--socket").map(PathBuf::from),
            url: value("--url"),
            token_file: value("--token-file").map(PathBuf::from),
            ca: value("--ca").map(PathBuf::from),
        }
    }

    /// Variables by which a process of this program asks the same daemon: name, and value or that it is to be removed.
    pub(super) fn variables(
        &self,
        environment: &Environment,
    ) -> Result<Vec<(&'static str, Option<OsString>)>, Failure> {
        let url = self.url(environment);
        let socket = match url {
            Some(_) => None,
            None => Some(self.socket(environment)?),
        };
        let token_file = self.token_file.as_ref().or(environment.token_file.as_ref());
        let ca = self.ca.as_ref().or(environment.ca.as_ref());
        let text = |path: Option<&PathBuf>| path.map(|path| path.clone().into_os_string());
        Ok(vec![
            ("TARN_URL", url.map(OsString::from)),
            ("TARN_SOCKET", text(socket.as_ref())),
            ("TARN_TOKEN_FILE", text(token_file)),
            ("TARN_CA", text(ca)),
        ])
    }

    /// The daemon that the flags and the environment name.
    pub(super) fn find(&self, environment: &Environment) -> Result<Endpoint, Failure> {
        let Some(url) = self.url(environment) else {
            return Ok(Endpoint::Socket(self.socket(environment)?));
        };
        let file = self.token_file.as_ref().or(environment.token_file.as_ref());
        let file = file.ok_or(Failure::NoToken)?;
        let token = secret::read_alone("--token-file", file, environment.uid)?;
        let token = Zeroizing::new(String::from_utf8_lossy(token.as_bytes()).into_owned());
        let ca = self.ca.as_ref().or(environment.ca.as_ref());
        let authorities = ca.map(|path| {
            let unreadable = |source| Failure::Unreadable {
                path: path.clone(),
                source,
            };
            fs::read(path).map_err(unreadable)
        });
        let remote = Remote::new(url, Token::new(token), authorities.transpose()?.as_deref())?;
        Ok(Endpoint::Remote(Box::new(remote)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_flag_is_asked_before_a_variable_and_a_url_before_a_socket() {
        let environment = Environment {
            url: Some("https://b".to_owned()),
            socket: Some("/b".into()),
            ..Environment::default()
        };
        for (line, url, socket) in [
            ("lun show", Some("https://b"), None),
            ("lun show --socket /a", None, Some("/a")),
            ("lun --url=https://a show", Some("https://a"), None),
        ] {
            let variables = EndpointArgs::of_words(&words(line))
                .variables(&environment)
                .unwrap();
            let value = |name| {
                let found = variables.iter().find(|(of, _)| *of == name);
                found.and_then(|(_, value)| value.clone())
            };
            assert_eq!(value("TARN_URL"), url.map(OsString::from), "{line}");
            assert_eq!(value("TARN_SOCKET"), socket.map(OsString::from), "{line}");
        }
    }
}
