//! `tarn who-sees`

use api::view::{Access, SessionLun};
use clap::Args;
use client::path;

use super::Outcome;
use super::api_session::ApiSession;
use super::remote::Ask;
use super::table::{Column, figures, mark, table, words};
use daemon::error::plain;

const AFTER_HELP: &str = "\
Examples:
  tarn who-sees iqn.2026-11.example:blade7
  tarn who-sees iqn.2026-11.example:blade7 --address 192.0.2.7 --user blades

Servers of NBD know a client by its address and its certificate, groups of HyperSCSI by their
password alone; both are listed behind the targets.";

/// `tarn who-sees`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct WhoSees {
    /// InitiatorName, as iqn.2026-11.example:blade7.
    #[arg(value_name = "IQN")]
    initiator: String,
    /// Address it would connect from. Use it when groups contain addresses or networks.
    #[arg(long, value_name = "ADDR")]
    address: Option<String>,
    /// CHAP user it would authenticate as. Use it when targets or groups name users.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Name that its certificate proves to servers of NBD. Use it when they ask for certificates.
    #[arg(long, value_name = "NAME")]
    certificate: Option<String>,
}

/// Exports of NBD have no numbers.
const EXPORTS: &[Column<SessionLun>] = &[
    words("export", |l| l.id.clone()),
    words("flags", |l| mark(l.readonly, "readonly")),
];

const DEVICES: &[Column<SessionLun>] = &[
    figures("device", |l| l.lun.to_string()),
    words("id", |l| l.id.clone()),
    words("level", |l| l.level.clone().unwrap_or_default()),
    words("flags", |l| mark(l.readonly, "readonly")),
];

pub(super) const LUNS: &[Column<SessionLun>] = &[
    figures("lun", |l| l.lun.to_string()),
    words("id", |l| l.id.clone()),
    words("flags", |l| mark(l.readonly, "readonly")),
];

impl Ask for WhoSees {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let question = path(&["access"])
            .with("initiator", Some(&self.initiator))
            .with("address", self.address.as_deref())
            .with("user", self.user.as_deref())
            .with("certificate", self.certificate.as_deref());
        api.show(&question, |answers: &Vec<Access>| {
            answers.iter().map(target).collect()
        })
    }
}

fn target(access: &Access) -> String {
    let (what, columns) = match access.protocol.as_str() {
        "nbd" => ("server of NBD ", EXPORTS),
        "hyperscsi" => ("group of HyperSCSI ", DEVICES),
        _ => ("", LUNS),
    };
    let login = match (access.may_login, access.needs_chap, access.needs_password) {
        (true, true, _) => "may log in, with CHAP",
        (true, false, true) => "may log in, with the password",
        (true, false, false) => "may log in",
        (false, ..) => "may not log in",
    };
    let discovery = match (access.is_discovered, access.discovery_needs_chap) {
        (true, _) if access.protocol == "hyperscsi" => "discovery by its name finds it",
        (true, _) => "discovery shows it",
        (false, true) => {
            "discovery needs CHAP as a user of discovery_auth; the initiator may name the target instead"
        }
        (false, false) => "discovery hides it",
    };
    let head = format!(
        "{what}{}: {login}; {discovery}\n  {}\n",
        plain(&access.target),
        plain(&access.reason)
    );
    if access.luns.is_empty() {
        return format!("{head}  no units\n");
    }
    let luns = table(columns, &access.luns);
    let luns: String = luns.lines().map(|line| format!("  {line}\n")).collect();
    format!("{head}{luns}")
}
