//! Where results go: text for people or JSON for programs, with or without colour.

use std::io::{self, IsTerminal as _};

use serde_json::Value;

use daemon::say;

/// What a piece of text says, and so in what colour it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tone {
    /// Something good or new.
    Good,
    /// Something to look at.
    Odd,
    /// Something bad or gone.
    Bad,
    /// A title.
    Strong,
}

impl Tone {
    /// The parameter of Select Graphic Rendition.
    ///
    /// Spec: ECMA-48 section 8.3.117.
    const fn parameter(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Odd => "33",
            Self::Bad => "31",
            Self::Strong => "1",
        }
    }
}

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    /// JSON is wanted.
    pub(super) is_json: bool,
    has_colour: bool,
}

impl Output {
    pub(super) fn new(is_json: bool, may_colour: bool) -> Self {
        Self {
            is_json,
            has_colour: may_colour && io::stdout().is_terminal(),
        }
    }

    /// The text in the colour of what it says, if there is colour.
    pub(super) fn toned(self, tone: Tone, text: &str) -> String {
        if self.has_colour {
            format!("\x1b[{}m{text}\x1b[0m", tone.parameter())
        } else {
            text.to_owned()
        }
    }

    /// Prints a result: the JSON of the API, or the text.
    pub(super) fn print(self, json: &Value, text: impl FnOnce() -> String) {
        if self.is_json {
            self.put(&format!("{json:#}\n"));
        } else {
            self.put(&text());
        }
    }

    /// Prints a result of a stream: one line of JSON, or the text.
    pub(super) fn print_line(self, json: &Value, text: impl FnOnce() -> String) {
        if self.is_json {
            self.put(&format!("{json}\n"));
        } else {
            self.put(&text());
        }
    }

    /// Prints text.
    #[expect(clippy::unused_self, reason = "printing needs an output")]
    pub(super) fn put(self, text: &str) {
        say(io::stdout().lock(), text);
    }

    /// Says something that is no result.
    #[expect(clippy::unused_self, reason = "printing needs an output")]
    pub(super) fn remark(self, text: &str) {
        say(io::stderr().lock(), text);
    }
}
