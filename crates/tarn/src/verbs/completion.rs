//! `tarn completion`

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::exit::Exit;
use crate::cli::Cli;
use crate::say;

const AFTER_HELP: &str = "\
Examples:
  tarn completion bash > /etc/bash_completion.d/tarn
  tarn completion zsh > ~/.zfunc/_tarn
  tarn completion fish > ~/.config/fish/completions/tarn.fish";

/// `tarn completion`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    pub(super) fn print(&self) -> Exit {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tarn", &mut text);
        say(std::io::stdout().lock(), &String::from_utf8_lossy(&text));
        Exit::Done
    }
}
