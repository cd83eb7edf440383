//! `tarn store`

use api::edit::{Edit, Keys, StoreKeys, Thing};
use api::spec::Store;
use clap::Subcommand;
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::remote::Ask;
use super::table::{Column, words};
use crate::store_options::StoreOptions;
use daemon::error::plain;

const ADD_HELP: &str = "\
Examples:
  tarn store add left /srv/left.img?size=10G
  tarn store add right /mnt/right.img?size=10G
  tarn lun add both stripe:left,right";

/// `tarn store`
#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// List all named stores.
    List {},
    /// Show a named store.
    Show {
        /// The store.
        id: String,
    },
    /// Add a store for a LUN of several stores.
    #[command(after_help = ADD_HELP)]
    Add {
        /// Id of the new store.
        id: String,
        /// Where its data is.
        store: String,
        /// What else is true of STORE.
        #[command(flatten)]
        options: StoreOptions,
    },
    /// Change where the data of a store is.
    Set {
        /// The store.
        id: String,
        /// Where its data is.
        store: String,
        /// What else is true of STORE.
        #[command(flatten)]
        options: StoreOptions,
    },
    /// Remove a store that no LUN has. Its data stays where it is.
    Rm {
        /// The store.
        id: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

const COLUMNS: &[Column<Store>] = &[
    words("id", |store| store.id.clone()),
    words("store", |store| store.store.clone()),
];

fn at(id: &str) -> Path {
    path(&["stores", id])
}

impl Ask for StoreVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["stores"]), COLUMNS),
            Self::Show { id } => api.show(&at(id), |store: &Store| {
                format!("{}\n", plain(&store.store))
            }),
            Self::Add { id, store, options } => {
                let store = Store {
                    id: id.clone(),
                    store: options.of(store).map_err(Failure::Store)?,
                };
                api.edit(Consent::GIVEN, vec![Edit::Add(Thing::Store(store))], None)
            }
            Self::Set { id, store, options } => {
                let store = options.of(store).map_err(Failure::Store)?;
                let keys = StoreKeys::of([id]).with("store", store);
                api.edit(Consent::GIVEN, vec![Edit::Set(Keys::Store(keys))], None)
            }
            Self::Rm { id, consent } => {
                api.remove(&at(id), *consent, &format!("Remove store {id}?"))
            }
        }
    }
}
