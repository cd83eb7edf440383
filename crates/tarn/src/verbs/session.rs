//! `tarn session`

use api::view::{Connection, IscsiSession, Session};
use clap::Subcommand;
use client::{Path, path};

use super::access::LUNS;
use super::api_session::ApiSession;
use super::exit::Exit;
use super::remote::Ask;
use super::table::{Column, fields, figures, mark, table, words};
use super::{Outcome, human};

/// `tarn session`
#[derive(Debug, Subcommand)]
pub enum SessionVerb {
    /// List all sessions.
    List {},
    /// Show everything about a session.
    Show {
        /// Id of the session, as tarn session list shows it.
        id: u64,
    },
    /// End a session and abort its commands; the initiator may log in again.
    Rm {
        /// Id of the session, as tarn session list shows it.
        id: u64,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
}

const COLUMNS: &[Column<Session>] = &[
    figures("id", |s| s.id.to_string()),
    words("initiator", |s| s.initiator.clone()),
    words("address", |s| s.address.clone()),
    words("target", target),
    figures("luns", |s| s.luns.len().to_string()),
];

const FIELDS: &[Column<Session>] = &[
    words("session", |s| s.id.to_string()),
    words("initiator", |s| s.initiator.clone()),
    words("address", |s| s.address.clone()),
    words("target", target),
    words("user", |s| s.user.clone().unwrap_or_default()),
    words("since", |s| human::moment(s.since_ms)),
    words("core", |s| s.core.to_string()),
    words("commands", |s| {
        format!("{} under way, of {}", s.commands, s.window)
    }),
    words("transport", |s| s.transport.as_str().to_owned()),
    words("tsih", |s| of_iscsi(s, |it| it.tsih.to_string())),
    words("isid", |s| of_iscsi(s, |it| it.isid.clone())),
    words("portal group", |s| {
        of_iscsi(s, |it| it.portal_group.to_string())
    }),
    words("violations", |s| {
        of_iscsi(s, |it| it.violations.to_string())
    }),
    words("reinstated", |s| {
        of_iscsi(s, |it| human::count(it.reinstatements, "time"))
    }),
    words("server", |s| {
        s.transport.server().unwrap_or_default().to_owned()
    }),
    words("certificate", |s| s.transport.names().join(", ")),
];

const CONNECTIONS: &[Column<Connection>] = &[
    figures("cid", |c| c.cid.to_string()),
    words("address", |c| c.address.clone()),
    words("portal", |c| c.portal.clone()),
    words("digests", |c| {
        let (header, data) = (mark(c.header_digest, "header"), mark(c.data_digest, "data"));
        super::table::joined(&[header, data], ", ")
    }),
];

impl Ask for SessionVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["sessions"]), COLUMNS),
            Self::Show { id } => api.show(&at(*id), show),
            Self::Rm { id, yes } => end(api, *id, *yes),
        }
    }
}

fn at(id: u64) -> Path {
    path(&["sessions", &id.to_string()])
}

fn target(session: &Session) -> String {
    let target = session.target.clone();
    target.unwrap_or_else(|| "(discovery)".to_owned())
}

/// What only sessions of iSCSI have; empty for others.
fn of_iscsi(session: &Session, value: impl FnOnce(&IscsiSession) -> String) -> String {
    session.iscsi().map(value).unwrap_or_default()
}

fn show(session: &Session) -> String {
    let mut text = fields(FIELDS, session);
    let connections = session.iscsi().map(|it| it.connections.as_slice());
    if let Some(connections @ [_, ..]) = connections {
        text += &format!("\n{}", table(CONNECTIONS, connections));
    }
    if !session.luns.is_empty() {
        text += &format!("\n{}", table(LUNS, &session.luns));
    }
    text
}

fn end(api: &ApiSession, id: u64, is_said: bool) -> Outcome {
    api.confirm(is_said, &format!("End session {id} and its commands?"))?;
    let answer = api.client.delete::<()>(&at(id), None)?;
    api.output
        .print(&answer.json, || format!("session {id} has ended\n"));
    Ok(Exit::Done)
}
