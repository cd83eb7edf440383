//! `tarn completion`: the script of a shell, and what that script asks for at each key.
//!
//! The scripts of bash, zsh and fish hand the line to `tarn complete`, which offers ids of the daemon too. They
//! are ours because bash takes an iSCSI name for several words: it breaks words at colons, and puts what it is
//! given in place of the last part only.

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use super::exit::Exit;
use super::remote::EndpointArgs;
use super::suggest::{self, Partial, Suggestions};
use crate::cli;
use daemon::{Environment, say};

const AFTER_HELP: &str = "\
With bash, zsh and fish, TAB offers ids of the running daemon, too.

Examples:
  tarn completion bash > /etc/bash_completion.d/tarn
  tarn completion zsh > ~/.zfunc/_tarn
  tarn completion fish > ~/.config/fish/completions/tarn.fish";

/// The line before all others that says that names of files may stand there. No word begins like this.
const FILES: &str = "\tfiles";

const BASH: &str = r#"# Completion of tarn for bash.
_tarn() {
    local IFS=$'\n' line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == $'\tfiles' ]]; then
            compopt -o default 2> /dev/null
        else
            COMPREPLY+=("$line")
        fi
    done < <(tarn complete bash --breaks="$COMP_WORDBREAKS" -- "${COMP_LINE:0:COMP_POINT}" 2> /dev/null)
}
complete -F _tarn tarn
"#;

const ZSH: &str = r#"#compdef tarn
# Completion of tarn for zsh.
_tarn() {
    local line files=0
    local -a candidates shown
    while IFS= read -r line; do
        if [[ $line == $'\tfiles' ]]; then
            files=1
            continue
        fi
        candidates+=("${line%%$'\t'*}")
        if [[ ${line#*$'\t'} == "" ]]; then
            shown+=("${line%%$'\t'*}")
        else
            shown+=("${line%%$'\t'*}  -- ${line#*$'\t'}")
        fi
    done < <(tarn complete zsh -- "${(j: :)words[1,CURRENT-1]} $PREFIX" 2> /dev/null)
    if (( files )); then
        _files
    fi
    if (( $#candidates )); then
        compadd -l -d shown -a candidates
    fi
}
if [[ $funcstack[1] == _tarn ]]; then
    _tarn "$@"
else
    compdef _tarn tarn
fi
"#;

const FISH: &str = r#"# Completion of tarn for fish.
function __tarn_complete
    set -l lines (tarn complete fish -- (commandline -cp | string collect) 2> /dev/null)
    if test (count $lines) -gt 0; and test "$lines[1]" = \tfiles
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $lines
    end
end
complete -c tarn -f -a '(__tarn_complete)'
"#;

/// `tarn completion`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    pub(super) fn print(&self) -> Exit {
        let own = match self.shell {
            Shell::Bash => Some(BASH),
            Shell::Zsh => Some(ZSH),
            Shell::Fish => Some(FISH),
            Shell::Elvish | Shell::PowerShell => None,
            _ => None,
        };
        let text = own.map_or_else(|| of_library(self.shell), str::to_owned);
        say(std::io::stdout().lock(), &text);
        Exit::Done
    }
}

/// The script of a shell that is offered commands and flags.
fn of_library(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "tarn", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// `tarn complete`: what may stand at the end of a line, for the scripts above.
#[derive(Args, Debug)]
pub struct Complete {
    /// The shell that asks.
    shell: Asker,
    /// Characters at which the shell breaks words. Use it with bash.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    breaks: String,
    /// The line, as far as the cursor.
    #[arg(allow_hyphen_values = true)]
    line: String,
}

/// A shell whose script asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Asker {
    /// It takes words as they are to stand in the line.
    Bash,
    /// It takes words with what they are.
    Zsh,
    /// The same.
    Fish,
}

impl Complete {
    /// Prints what may stand there. Nothing that is wrong with the line or the daemon is said: a person is typing.
    pub(super) fn print(&self, environment: &Environment) -> Exit {
        let Partial {
            mut words, last, ..
        } = suggest::partial(&self.line);
        if !words.is_empty() {
            words.remove(0);
        }
        let endpoint = EndpointArgs::of_words(&words).find(environment).ok();
        let source = suggest::Daemon::new(endpoint);
        let found = suggest::suggest(&cli::command(), &words, &last, &source);
        say(std::io::stdout().lock(), &self.written(&found, &last));
        Exit::Done
    }

    fn written(&self, found: &Suggestions, last: &str) -> String {
        let mut text = String::new();
        if found.are_files {
            text.push_str(&format!("{FILES}\n"));
        }
        for one in &found.words {
            let line = match self.shell {
                // It puts the word behind the last break in it.
                Asker::Bash => {
                    let there = last.rfind(|c: char| self.breaks.contains(c) && !c.is_whitespace());
                    let behind = there.map_or(0, |at| at + 1);
                    suggest::quoted(one.word.get(behind..).unwrap_or_default())
                }
                Asker::Zsh | Asker::Fish => format!("{}\t{}", one.word, one.about),
            };
            // A name with a line end cannot be offered, as one line is one name.
            if !line.contains('\n') {
                text.push_str(&format!("{line}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::suggest::Suggestion;
    use super::*;

    fn written(shell: Asker, breaks: &str, last: &str, words: &[&str]) -> String {
        let complete = Complete {
            shell,
            breaks: breaks.to_owned(),
            line: String::new(),
        };
        let words = words.iter().map(|word| Suggestion {
            word: (*word).to_owned(),
            about: "about it".to_owned(),
        });
        let found = Suggestions {
            words: words.collect(),
            are_files: false,
        };
        complete.written(&found, last)
    }

    #[test]
    fn bash_is_given_what_follows_its_last_break() {
        let breaks = " \t\n\"'><=;|&(:";
        let names = ["iqn.2026-11.example:a", "iqn.2026-11.example:b"];
        assert_eq!(
            written(Asker::Bash, breaks, "iqn.2026-11.example:", &names),
            "a\nb\n"
        );
        assert_eq!(
            written(Asker::Bash, breaks, "iqn.2", &names),
            "iqn.2026-11.example:a\niqn.2026-11.example:b\n"
        );
        assert_eq!(written(Asker::Bash, "", "x:", &["x:a b"]), "x:a\\ b\n");
        assert_eq!(
            written(Asker::Bash, breaks, "--luns=a:", &["--luns=a:1"]),
            "1\n"
        );
    }

    #[test]
    fn other_shells_are_given_what_a_word_is() {
        assert_eq!(written(Asker::Zsh, "", "l", &["lun"]), "lun\tabout it\n");
        assert_eq!(
            written(Asker::Fish, "", "l", &["a\nb", "lun"]),
            "lun\tabout it\n"
        );
    }

    #[test]
    fn each_shell_has_a_script() {
        for shell in Shell::value_variants() {
            let completion = Completion { shell: *shell };
            assert_eq!(completion.print(), Exit::Done);
        }
        assert!(of_library(Shell::Elvish).contains("tarn"));
    }
}
