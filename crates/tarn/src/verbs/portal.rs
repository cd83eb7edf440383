//! `tarn portal`

use api::spec;
use api::view::Target;
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::exit::Exit;
use super::remote::Ask;
use super::table::{Column, figures, table, words};

/// `tarn portal`
#[derive(Debug, Subcommand)]
pub enum PortalVerb {
    /// List the addresses of all targets.
    List {},
    /// Add an address to a target, or change how it is advertised.
    Add(Add),
    /// Remove an address from a target; sessions through it end.
    Rm {
        /// The target.
        target: String,
        /// The address it listens on, ADDRESS:PORT.
        bind: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

const ADD_HELP: &str = "\
Examples:
  tarn portal add iqn.2026-11.example:web 192.0.2.1:3260
  tarn portal add iqn.2026-11.example:web '[::]:3260' --advertise san.example:3260";

/// `tarn portal add`
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// The target.
    target: String,
    /// The address to listen on, ADDRESS:PORT, IPv6 in brackets.
    bind: String,
    /// Address that discovery reports, HOST:PORT. Use it behind network address translation.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Target portal group tag. Use it to keep sessions from spanning several networks. [default:
    /// 1]
    #[arg(long, value_name = "TAG", value_parser = clap::value_parser!(u16).range(1..))]
    group: Option<u16>,
}

/// An address of a target, for the listing.
struct Row {
    target: String,
    portal: spec::Portal,
    bound: String,
}

const COLUMNS: &[Column<Row>] = &[
    words("target", |r| r.target.clone()),
    words("bind", |r| r.portal.bind.clone()),
    words("bound", |r| r.bound.clone()),
    figures("group", |r| r.portal.group.unwrap_or(1).to_string()),
    words("advertise", |r| {
        r.portal.advertise.clone().unwrap_or_default()
    }),
];

impl Ask for PortalVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => list(api),
            Self::Add(add) => {
                let portal = spec::Portal {
                    bind: add.bind.clone(),
                    advertise: add.advertise.clone(),
                    group: add.group,
                };
                api.put(Consent::GIVEN, &at(&add.target, &add.bind), &portal)
            }
            Self::Rm {
                target,
                bind,
                consent,
            } => {
                let question = format!("Take {bind} from {target}? Sessions through it end.");
                api.remove(&at(target, bind), *consent, &question)
            }
        }
    }
}

fn at(target: &str, bind: &str) -> Path {
    path(&["targets", target, "portals", bind])
}

fn list(api: &ApiSession) -> Outcome {
    let answer = api.get::<Vec<Target>>(&path(&["targets"]))?;
    let rows: Vec<Row> = answer.value.iter().flat_map(rows).collect();
    api.output.print(&answer.json, || table(COLUMNS, &rows));
    Ok(Exit::Done)
}

fn rows(target: &Target) -> Vec<Row> {
    let portals = target.spec.portals.iter().flatten();
    let bound = target.bound.iter().map(Some).chain(std::iter::repeat(None));
    portals
        .zip(bound)
        .map(|(portal, bound)| Row {
            target: target.spec.name.clone(),
            portal: portal.clone(),
            bound: bound.cloned().unwrap_or_default(),
        })
        .collect()
}
