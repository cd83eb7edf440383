//! Serves the administration of a daemon that has no data plane: a document in memory, invented
//! sessions and counters. For tests of the API alone.
//!
//! `fake STATE [--listen ADDRESS:PORT] [--tls] [--name NAME]` serves STATE/tarn.sock, prints one
//! line for each address and `ready`, and ends when its input does.
#![expect(clippy::print_stdout, reason = "that is how a test learns the port")]

mod control;

use std::error::Error;
use std::io::{Read as _, stdin};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use admin::{Admin, Certificate, Listeners, Settings};

use crate::control::Fake;

struct Arguments {
    state: PathBuf,
    listen: Vec<SocketAddr>,
    names: Vec<String>,
    is_tls: bool,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let state = words.next().ok_or("the first argument is a directory")?;
    let mut arguments = Arguments {
        state: state.into(),
        listen: Vec::new(),
        names: Vec::new(),
        is_tls: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--listen" => arguments.listen.push(value()?.parse()?),
            "--name" => arguments.names.push(value()?),
            "--tls" => arguments.is_tls = true,
            other => return Err(format!("{other} is not known").into()),
        }
    }
    Ok(arguments)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let (socket, _file) = admin::unix(&arguments.state.join("tarn.sock"))?;
    let mut listeners = Listeners {
        unix: vec![socket],
        tcp: Vec::new(),
    };
    for address in arguments.listen {
        let listener = admin::tcp(address)?;
        println!("tcp {}", listener.local_addr()?);
        listeners.tcp.push(listener.into());
    }
    let certificate = arguments.is_tls.then(|| Certificate::Own {
        directory: arguments.state.clone(),
    });
    let settings = Settings {
        state: arguments.state,
        names: arguments.names,
        certificate,
    };
    let handle = Admin::start(listeners, Arc::new(Fake::default()), settings)?;
    if let Some(fingerprint) = handle.fingerprint() {
        println!("fingerprint {fingerprint}");
    }
    println!("ready");
    stdin().read_to_end(&mut Vec::new())?;
    if handle.stop() {
        Ok(())
    } else {
        Err("the administration did not end in time".into())
    }
}
