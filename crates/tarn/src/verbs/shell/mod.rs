//! `tarn shell`: a walk through the running state, and verbs where one is.
//!
//! The tree is that of `tarn mount` ([`tree::Walker`]). A verb runs in a process of its own, which is this program
//! with the arguments that the line stands for: Ctrl-C ends it and not the shell, and one that hangs or fails takes
//! nothing with it. So the shell shares with a verb the terminal, which it does not read meanwhile, and nothing
//! else. The daemon may end, hang or start again at any time: each question to it has a deadline, and one line says
//! that there was no answer.
//!
//! From a terminal, lines are edited. From a pipe or a file they are a script, which ends at the first line that fails.

mod editor;
mod line;
mod show;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command as Process, ExitStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use api::view::Status;
use clap::Args;
use client::{Client, path};
use rustyline::error::ReadlineError;
use signal_hook::consts::SIGINT;
use tree::{Spot, Walker};

use self::editor::Names;
use self::line::Action;
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::remote::{EndpointArgs, Run};
use super::{Outcome, suggest};
use daemon::{Environment, error};

use crate::cli;

/// This program, also when its file was replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";

const AFTER_HELP: &str = "\
The directories are those of tarn mount: luns, targets, sessions, groups and so on. TAB completes
commands, paths and ids. In the directory of a thing its verbs need neither noun nor id:

  tarn:/> cd luns/web
  tarn:/luns/web> ls
  tarn:/luns/web> resize 20G

Everywhere the verbs are those of the command line. Lines from a pipe are a script, which ends at
the first line that fails, with its exit code:

  printf 'cd luns/web\\nresize 20G\\n' | tarn shell";

/// `tarn shell`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Shell {
    /// Print without colour. Use it for logs; the variable NO_COLOR does the same.
    #[arg(long)]
    no_color: bool,
    /// Where the daemon is.
    #[command(flatten)]
    endpoint: EndpointArgs,
}

impl Run for Shell {
    fn run(&self, environment: &Environment) -> Outcome {
        let client = Client::new(self.endpoint.find(environment)?, tree::LIMITS)?;
        // Who cannot reach the daemon learns it now.
        client.get::<Status>(&path(&["status"]))?;
        let has_person = io::stdin().is_terminal() && io::stdout().is_terminal();
        let may_colour = !self.no_color && !environment.no_color;
        let session = Session {
            walker: Rc::new(Walker::new(client)),
            spot: Rc::new(RefCell::new(Spot::ROOT)),
            command: cli::command(),
            variables: self.endpoint.variables(environment)?,
            output: Output::new(false, may_colour),
            has_colour: may_colour,
            has_person,
        };
        if has_person {
            let source = suggest::Daemon::new(Some(self.endpoint.find(environment)?));
            session.talk(source)
        } else {
            session.script()
        }
    }
}

/// A walk.
struct Session {
    walker: Rc<Walker>,
    spot: Rc<RefCell<Spot>>,
    command: clap::Command,
    /// What a process needs to ask the same daemon.
    variables: Vec<(&'static str, Option<OsString>)>,
    output: Output,
    has_colour: bool,
    has_person: bool,
}

/// How a line ended.
enum Ended {
    /// It is done, or failed and has said why.
    Line(Exit),
    /// The shell is to end.
    Shell,
}

impl Session {
    /// Lines of a person, until there are no more.
    fn talk(&self, source: suggest::Daemon) -> Outcome {
        // Ctrl-C is for the verb that runs, or for the line that is typed.
        signal_hook::flag::register(SIGINT, Arc::<AtomicBool>::default())
            .map_err(Failure::Signals)?;
        let failed = |error: ReadlineError| Failure::Terminal(io::Error::other(error));
        let mut lines = editor::lines(Names {
            command: self.command.clone(),
            walker: Rc::clone(&self.walker),
            spot: Rc::clone(&self.spot),
            source,
        })
        .map_err(failed)?;
        loop {
            let prompt = format!("tarn:{}> ", error::plain(&self.spot.borrow().path()));
            match lines.readline(&prompt) {
                Ok(line) => match self.run_line(&line) {
                    Ok(Ended::Line(_)) => {}
                    Ok(Ended::Shell) => return Ok(Exit::Done),
                    Err(failure) => self.report(failure),
                },
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(Exit::Done),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Lines of a script, until one fails.
    fn script(&self) -> Outcome {
        for (number, line) in io::stdin().lock().lines().enumerate() {
            let line = line.map_err(Failure::Terminal)?;
            let exit = match self.run_line(&line) {
                Ok(Ended::Line(Exit::Done)) => continue,
                Ok(Ended::Line(exit)) => exit,
                Ok(Ended::Shell) => return Ok(Exit::Done),
                Err(failure) => {
                    let exit = failure.exit();
                    self.report(failure);
                    exit
                }
            };
            return Err(Failure::Line {
                number: number + 1,
                exit,
            });
        }
        Ok(Exit::Done)
    }

    fn report(&self, failure: Failure) {
        // That there was no answer is kept for a second, too; the next line asks again.
        self.walker.forget();
        let line = error::one_line(&failure.into());
        self.output.remark(&format!("{line}\n"));
    }

    fn run_line(&self, line: &str) -> Result<Ended, Failure> {
        let words = suggest::split(line)?;
        let spot = self.spot.borrow().clone();
        match line::action(&self.command, &spot, &words)? {
            Action::Nothing => {}
            Action::Exit => return Ok(Ended::Shell),
            Action::Go(path) => *self.spot.borrow_mut() = self.walker.go(&spot, &path)?,
            Action::List(path) => {
                let text = show::list(&self.walker, &spot, &path, self.output)?;
                self.output.put(&text);
            }
            Action::Read(paths) => {
                for path in paths {
                    let text = self.walker.read(&spot, &path)?;
                    let lines = text.lines().map(|line| format!("{}\n", error::plain(line)));
                    self.output.put(&lines.collect::<String>());
                }
            }
            Action::Write(path, value) => self.walker.write(&spot, &path, &value)?,
            Action::Where => self
                .output
                .put(&format!("{}\n", error::plain(&spot.path()))),
            Action::Help(words) if words.is_empty() => {
                self.output.put(&show::help(&self.command, &spot));
            }
            Action::Help(words) => {
                let words = line::arguments(&self.command, &spot, &words).unwrap_or(words);
                let words = std::iter::once("help".to_owned()).chain(words);
                return self.run_verb(words);
            }
            Action::Verb(arguments) => return self.run_verb(arguments),
        }
        Ok(Ended::Line(Exit::Done))
    }

    /// Runs this program as a verb.
    fn run_verb(&self, arguments: impl IntoIterator<Item = String>) -> Result<Ended, Failure> {
        let mut process = Process::new(PROGRAM);
        process.arg0("tarn").args(arguments);
        for (name, value) in &self.variables {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
        if !self.has_colour {
            process.env("NO_COLOR", "1");
        }
        if !self.has_person {
            // The rest of the script is not for it. It is not given an input without text either: to apply that would
            // remove everything. A directory cannot be read.
            process.stdin(File::open("/").map_err(Failure::Child)?);
        }
        let status = process.status().map_err(Failure::Child)?;
        // It may have changed what is kept here.
        self.walker.forget();
        if self.has_person && status.signal().is_some() {
            self.output.remark("\n");
        }
        Ok(Ended::Line(exit_of(status)))
    }
}

/// How a process of this program ended.
fn exit_of(status: ExitStatus) -> Exit {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.and_then(Exit::of_code).unwrap_or(Exit::Failed)
}
