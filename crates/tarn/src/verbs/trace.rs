//! `tarn trace`

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::request::Tracing;
use api::view::Trace;
use clap::{Args, Subcommand};
use client::path;
use serde_json::Value;

use super::api_session::ApiSession;
use super::exit::Exit;
use super::failure::Failure;
use super::remote::Ask;
use super::table::{Column, figures, words};
use super::{Outcome, human};

const START_HELP: &str = "\
SUBJECT is the id of a session, as tarn session list shows it, or the name of an initiator. The
trace of an initiator also has its logins, even those that fail. Secrets are blanked.

Examples:
  tarn trace start iqn.2026-11.example:blade7
  tarn trace save iqn.2026-11.example:blade7 -o blade7.pcap
  tarn trace save iqn.2026-11.example:blade7 -o - | wireshark -k -i -
  tarn trace stop iqn.2026-11.example:blade7
For other ports than 3260, give Wireshark -d tcp.port==PORT,iscsi";

/// `tarn trace`
#[derive(Debug, Subcommand)]
pub enum TraceVerb {
    /// List all traces.
    List {},
    /// Start to keep the last PDUs of a session or an initiator.
    #[command(after_help = START_HELP)]
    Start(Start),
    /// Save a trace as a file for Wireshark; the trace goes on.
    Save {
        /// The session or initiator, as tarn trace list shows it.
        subject: String,
        /// File to write; - is the standard output. Use it always; the flag is required.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// End a trace and discard what it has kept.
    Stop {
        /// The session or initiator, as tarn trace list shows it.
        subject: String,
    },
}

/// `tarn trace start`
#[derive(Args, Debug)]
pub struct Start {
    /// Id of a session, or name of an initiator.
    subject: String,

    /// Bytes to keep of the data of each PDU, 8192 at most. Use it to look into the data of blocks.
    /// [default: 64]
    #[arg(long, value_name = "N")]
    bytes: Option<u32>,

    /// Total size to keep, 64k to 16M; new PDUs replace the oldest. Use it to wait longer for a
    /// fault. [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = keep_bytes)]
    keep: Option<u32>,
}

const COLUMNS: &[Column<Trace>] = &[
    words("subject", |t| t.subject.clone()),
    words("since", |t| human::moment(t.since_ms)),
    figures("pdus", |t| t.pdus.to_string()),
    figures("dropped", |t| t.dropped.to_string()),
    figures("data", |t| human::size(t.data_bytes.into())),
    figures("keeps", |t| human::size(t.keep_bytes.into())),
];

impl Ask for TraceVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["traces"]), COLUMNS),
            Self::Start(start) => start.ask(api),
            Self::Save { subject, output } => save(api, subject, output),
            Self::Stop { subject } => stop(api, subject),
        }
    }
}

impl Start {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let how = Tracing {
            data_bytes: self.bytes,
            keep_bytes: self.keep,
        };
        let at = path(&["traces", &self.subject]);
        let answer = api.client.put::<Trace>(&at, &how, None)?;
        api.output.print(&answer.json, || {
            let subject = &answer.value.subject;
            if answer.is_new {
                format!("{subject} is traced from now on\n")
            } else {
                format!("{subject} is traced already\n")
            }
        });
        Ok(Exit::Done)
    }
}

fn save(api: &ApiSession, subject: &str, output: &Path) -> Outcome {
    let file = api.client.download(&path(&["traces", subject]))?;
    let unwritable = |source| Failure::Unwritable {
        path: output.to_owned(),
        source,
    };
    if output == Path::new("-") {
        let mut out = io::stdout().lock();
        out.write_all(&file)
            .and_then(|()| out.flush())
            .map_err(unwritable)?;
        return Ok(Exit::Done);
    }
    write_private(output, &file).map_err(unwritable)?;
    let size = human::size(file.len() as u64);
    api.output
        .print(&Value::Null, || format!("{}: {size}\n", output.display()));
    Ok(Exit::Done)
}

/// Writes a private file, whatever rights one of that name had. What is no file, a pipe or a
/// terminal, is written as it is.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(content),
        // A link stays, and what it leads to is replaced.
        Ok(_) => durable::replace(&fs::canonicalize(path)?, content),
        Err(_) => durable::replace(path, content),
    }
}

fn stop(api: &ApiSession, subject: &str) -> Outcome {
    let at = path(&["traces", subject]);
    let answer = api.client.delete::<()>(&at, None)?;
    api.output
        .print(&answer.json, || format!("{subject} is traced no more\n"));
    Ok(Exit::Done)
}

/// What is too large for any trace is left to the daemon to refuse.
fn keep_bytes(text: &str) -> Result<u32, config::SizeRule> {
    let bytes = config::parse_size(text)?;
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use durable::scratch::Scratch;

    #[test]
    fn a_trace_is_private_whatever_the_file_was() {
        let scratch = Scratch::new();
        let (file, link) = (scratch.path().join("a.pcap"), scratch.path().join("b.pcap"));
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        write_private(&file, b"one").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"one".to_vec(), 0o600));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        symlink("a.pcap", &link).unwrap();
        write_private(&link, b"two").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"two".to_vec(), 0o600));
        assert!(link.is_symlink());
        write_private(Path::new("/dev/null"), b"three").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
