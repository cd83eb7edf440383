//! One line for each thing that happens. The columns are explained in the README of this crate.

use std::fmt;
use std::time::Duration;

/// The diary of a run. Writing costs more than running, so it is on only when somebody will
/// read it; what a run does never depends on that.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
    now: Duration,
}

/// Who does something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Actor {
    /// The world itself: faults, ends.
    World,
    /// A core of the target.
    Core(usize),
    /// An initiator.
    Initiator(usize),
    /// A TCP connection.
    Link(usize),
    /// The disk.
    Disk,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (letter, number) = match *self {
            Self::World => return f.pad("world"),
            Self::Disk => return f.pad("disk"),
            Self::Core(number) => ("core", number),
            Self::Initiator(number) => ("init", number),
            Self::Link(number) => ("link", number),
        };
        f.pad(&format!("{letter}{number}"))
    }
}

impl Trace {
    /// A diary that is kept.
    pub const fn kept() -> Self {
        Self {
            lines: Some(Vec::new()),
            now: Duration::ZERO,
        }
    }

    /// The time of the lines to come.
    pub const fn set_now(&mut self, now: Duration) {
        self.now = now;
    }

    /// Whether lines are kept.
    pub const fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Writes a line.
    pub fn note(&mut self, actor: Actor, what: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>10} {actor:<6} {what}", self.now.as_micros()));
        }
    }

    /// All lines.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_actor_and_event() {
        let mut trace = Trace::kept();
        trace.set_now(Duration::from_micros(1250));
        trace.note(Actor::Link(3), format_args!("reset"));
        assert_eq!(trace.lines(), ["      1250 link3  reset"]);
        let mut off = Trace::default();
        off.note(Actor::World, format_args!("nobody reads this"));
        assert!(off.lines().is_empty());
    }
}
