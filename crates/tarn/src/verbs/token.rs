//! `tarn token`

use api::access::{NewToken, Role, Token};
use clap::{Subcommand, ValueEnum};
use client::path;

use super::api_session::ApiSession;
use super::exit::Exit;
use super::remote::Ask;
use super::table::{Column, words};
use super::{Outcome, human};

const ADD_HELP: &str = "\
The token is printed once; Tarn keeps only its hash.

Examples:
  tarn token add grafana metrics
  (umask 77; tarn token add laptop admin > ~/.tarn-token)
  tarn status --url https://san.example:3262 --token-file ~/.tarn-token";

/// `tarn token`
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// List all tokens, without the secret part.
    List {},
    /// Create a token and print it; it is not printed again.
    #[command(after_help = ADD_HELP)]
    Add {
        /// Name of the token, for the audit log and to revoke it.
        name: String,
        /// What it may do.
        role: RoleName,
    },
    /// Revoke a token.
    Rm {
        /// The token's name.
        name: String,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
}

/// What a token may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleName {
    /// Read /metrics, nothing else.
    Metrics,
    /// Read everything but secrets.
    Viewer,
    /// End sessions, trace them, resize and rename LUNs, eject and load their media, take snapshots.
    Operator,
    /// Everything.
    Admin,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Metrics => Self::Metrics,
            RoleName::Viewer => Self::Viewer,
            RoleName::Operator => Self::Operator,
            RoleName::Admin => Self::Admin,
        }
    }
}

const fn word(role: Role) -> &'static str {
    match role {
        Role::Metrics => "metrics",
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Admin => "admin",
    }
}

const COLUMNS: &[Column<Token>] = &[
    words("name", |t| t.name.clone()),
    words("role", |t| word(t.role).to_owned()),
    words("made", |t| human::moment(t.made_ms)),
];

impl Ask for TokenVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["tokens"]), COLUMNS),
            Self::Add { name, role } => add(api, name, *role),
            Self::Rm { name, yes } => revoke(api, name, *yes),
        }
    }
}

/// The token alone goes to the standard output, so that it can go into a file as it is.
fn add(api: &ApiSession, name: &str, role: RoleName) -> Outcome {
    let new = NewToken {
        name: name.to_owned(),
        role: role.into(),
    };
    let answer = api.client.post::<Token>(&path(&["tokens"]), &new, None)?;
    let token = answer.value.token.unwrap_or_default();
    api.output.print(&answer.json, || format!("{token}\n"));
    Ok(Exit::Done)
}

fn revoke(api: &ApiSession, name: &str, is_said: bool) -> Outcome {
    let question = format!("Revoke token {name}? Its users are shut out.");
    api.confirm(is_said, &question)?;
    let answer = api.client.delete::<()>(&path(&["tokens", name]), None)?;
    api.output
        .print(&answer.json, || format!("token {name} is revoked\n"));
    Ok(Exit::Done)
}
