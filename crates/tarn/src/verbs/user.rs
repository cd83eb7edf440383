//! `tarn user`

use std::path::PathBuf;

use api::edit::{Edit, Keys, Thing, UserKeys};
use api::spec::{Mutual, Secret, User};
use clap::{Args, Subcommand};
use client::{Path, path};

use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::remote::Ask;
use super::secrets::Rule;
use super::table::{Column, fields, words};
use super::{Outcome, secrets};

/// `tarn user`
#[derive(Debug, Subcommand)]
pub enum UserVerb {
    /// List all users.
    List {},
    /// Show everything about a user but the secret.
    Show {
        /// The user.
        name: String,
    },
    /// Add a user. Tarn asks for the secret, unless a flag names a file.
    Add(Change),
    /// Change the secrets of a user.
    Set(Set),
    /// Remove a user that no target or group refers to.
    Rm {
        /// The user.
        name: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

const CHANGE_HELP: &str = "\
A secret has 12 to 128 bytes. No flag takes it, because others could read it on the command line.

Examples:
  tarn user add blades
  openssl rand -hex 16 | tarn user add blades --secret-from -
  tarn user add blades --secret-file /etc/tarn/blades.secret";

/// `tarn user add`, and what `tarn user set` has in common with it
#[derive(Args, Debug)]
#[command(after_help = CHANGE_HELP)]
pub struct Change {
    /// CHAP name of the initiator.
    name: String,
    /// File to read the secret from, - for the standard input; Tarn stores the secret itself. Use
    /// it in scripts.
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    secret_from: Option<PathBuf>,
    /// File on the daemon's machine that holds the secret, chmod 600. Use it to manage secrets as
    /// files of your own.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
    /// CHAP name that the target authenticates with. Use it for mutual CHAP.
    #[arg(long, value_name = "NAME")]
    mutual: Option<String>,
    /// File to read the target's secret from, - for the standard input. Use it with --mutual.
    #[arg(
        long,
        value_name = "FILE",
        requires = "mutual",
        conflicts_with = "mutual_secret_file"
    )]
    mutual_secret_from: Option<PathBuf>,
    /// File on the daemon's machine that holds the target's secret. Use it with --mutual.
    #[arg(long, value_name = "FILE", requires = "mutual")]
    mutual_secret_file: Option<String>,
    /// Initiator names or patterns, separated by commas: this user may use no others, and no other user may use these;
    /// "" for any. Use it for users that do not trust each other.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    initiators: Option<Vec<String>>,
}

/// `tarn user set`
#[derive(Args, Debug)]
pub struct Set {
    /// What is to be so.
    #[command(flatten)]
    change: Change,
    /// Remove the CHAP name and secret of the target. Use it to end mutual CHAP.
    #[arg(long, conflicts_with = "mutual")]
    no_mutual: bool,
    /// Ask for a new secret. Use it at a terminal.
    #[arg(long, conflicts_with_all = ["secret_from", "secret_file"])]
    ask: bool,
    /// Whether a person is asked.
    #[command(flatten)]
    consent: Consent,
}

const COLUMNS: &[Column<User>] = &[
    words("name", |u| u.name.clone()),
    words("mutual", mutual_name),
    words("secret file", |u| u.secret_file.clone().unwrap_or_default()),
];

const FIELDS: &[Column<User>] = &[
    words("user", |u| u.name.clone()),
    words("secret file", |u| u.secret_file.clone().unwrap_or_default()),
    words("mutual", mutual_name),
    words("mutual secret file", |u| {
        let mutual = u.mutual.as_ref();
        mutual
            .and_then(|mutual| mutual.secret_file.clone())
            .unwrap_or_default()
    }),
    words("initiators", |u| {
        u.initiators.clone().unwrap_or_default().join(", ")
    }),
];

fn mutual_name(user: &User) -> String {
    let mutual = user.mutual.as_ref();
    mutual.map(|mutual| mutual.name.clone()).unwrap_or_default()
}

impl Ask for UserVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["users"]), COLUMNS),
            Self::Show { name } => api.show(&at(name), |user| fields(FIELDS, user)),
            Self::Add(change) => change.add(api),
            Self::Set(set) => set.ask(api),
            Self::Rm { name, consent } => {
                api.remove(&at(name), *consent, &format!("Remove user {name}?"))
            }
        }
    }
}

fn at(name: &str) -> Path {
    path(&["users", name])
}

/// Where a secret is: in a file of the daemon's, or here to be sent. Neither: as it was.
#[derive(Default)]
struct Kept {
    file: Option<String>,
    secret: Option<Secret>,
}

impl Kept {
    fn of(file: Option<&String>, from: Option<&PathBuf>) -> Result<Self, Failure> {
        let secret = from
            .map(|path| secrets::from_file(path, Rule::SECRET))
            .transpose()?;
        Ok(Self {
            file: file.cloned(),
            secret: secret.map(Secret::from),
        })
    }

    fn ask(&mut self, whose: &str) -> Result<(), Failure> {
        let secret = secrets::from_person(whose, Rule::SECRET)?;
        let secret = secret.ok_or_else(|| Failure::NoSecret {
            name: whose.to_owned(),
        })?;
        self.secret = Some(secret.into());
        Ok(())
    }

    const fn is_nothing(&self) -> bool {
        self.file.is_none() && self.secret.is_none()
    }
}

impl Change {
    fn forward(&self) -> Result<Kept, Failure> {
        Kept::of(self.secret_file.as_ref(), self.secret_from.as_ref())
    }

    fn mutual(&self) -> Result<Kept, Failure> {
        let (file, from) = (&self.mutual_secret_file, &self.mutual_secret_from);
        Kept::of(file.as_ref(), from.as_ref())
    }

    fn add(&self, api: &ApiSession) -> Outcome {
        let (mut forward, mut back) = (self.forward()?, self.mutual()?);
        if forward.is_nothing() {
            forward.ask(&self.name)?;
        }
        if let Some(name) = &self.mutual
            && back.is_nothing()
        {
            back.ask(name)?;
        }
        let user = User {
            name: self.name.clone(),
            secret_file: forward.file.clone(),
            secret: forward.secret.clone(),
            mutual: self.mutual_of(&back),
            initiators: self.initiators(),
        };
        api.edit(Consent::GIVEN, vec![Edit::Add(Thing::User(user))], None)
    }

    fn mutual_of(&self, back: &Kept) -> Option<Mutual> {
        Some(Mutual {
            name: self.mutual.clone()?,
            secret_file: back.file.clone(),
            secret: back.secret.clone(),
        })
    }

    fn initiators(&self) -> Option<Vec<String>> {
        let names = self.initiators.as_ref()?.iter();
        Some(names.filter(|name| !name.is_empty()).cloned().collect())
    }
}

impl Set {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let change = &self.change;
        let (mut forward, back) = (change.forward()?, change.mutual()?);
        if self.ask {
            forward.ask(&change.name)?;
        }
        let keeps_secrets = forward.is_nothing() && change.mutual.is_none() && !self.no_mutual;
        if keeps_secrets && change.initiators.is_none() {
            return Err(Failure::NothingGiven { noun: "user" });
        }
        let keys = UserKeys {
            name: change.name.clone(),
            secret_file: forward.file.clone(),
            secret: forward.secret.clone(),
            mutual: change.mutual_of(&back),
            no_mutual: self.no_mutual,
            initiators: change.initiators(),
        };
        api.edit(self.consent, vec![Edit::Set(Keys::User(keys))], None)
    }
}
