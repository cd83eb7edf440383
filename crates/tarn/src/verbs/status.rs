//! `tarn status`

use api::event::Finding;
use api::view;
use clap::Args;
use client::path;

use super::api_session::ApiSession;
use super::remote::Ask;
use super::table::{Column, fields, words};
use super::{Outcome, doctor, human};

/// `tarn status`
#[derive(Args, Debug)]
pub struct Status {}

const FIELDS: &[Column<view::Status>] = &[
    words("version", |s| s.version.clone()),
    words("process", |s| s.pid.to_string()),
    words("up", |s| human::age(s.started_ms, s.now_ms)),
    words("revision", |s| s.revision.to_string()),
    words("configuration", |s| {
        s.config_file
            .clone()
            .unwrap_or_else(|| "none: stores of the command line".to_owned())
    }),
    words("state", |s| s.state_directory.clone()),
    words("cores", |s| s.cores.to_string()),
    words("luns", |s| s.luns.to_string()),
    words("targets", |s| s.targets.to_string()),
    words("sessions", |s| s.sessions.to_string()),
    words("certificates", |s| {
        let until = |one: &view::Certificate| {
            format!("{} until {}", one.of, human::moment(one.not_after_ms))
        };
        s.certificates
            .iter()
            .map(until)
            .collect::<Vec<_>>()
            .join("; ")
    }),
    words("pending", |s| pending(&s.pending)),
    words("findings", |s| findings(&s.findings)),
];

impl Ask for Status {
    fn ask(&self, api: &ApiSession) -> Outcome {
        api.show(&path(&["status"]), |status: &view::Status| {
            let listed = doctor::findings(api.output, &status.findings);
            format!("{}{listed}", fields(FIELDS, status))
        })
    }
}

/// What waits for a restart.
fn pending(keys: &[String]) -> String {
    match keys {
        [] => "nothing".to_owned(),
        keys => format!("until a restart: {}", keys.join("; ")),
    }
}

fn findings(findings: &[Finding]) -> String {
    match findings.len() {
        0 => "none".to_owned(),
        some => format!("{some}, the worst first:"),
    }
}
