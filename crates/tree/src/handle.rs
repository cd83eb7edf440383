//! Open files and directories: each holds what it showed when it was opened, so that one who reads
//! in pieces reads one state.

use std::collections::HashMap;
use std::sync::Arc;

use crate::place::Place;
use crate::refusal::Refusal;

/// Files and directories that may be open at once.
pub(crate) const OPEN_MAX: usize = 256;

/// What is open.
#[derive(Clone, Debug)]
pub(crate) enum Open {
    /// A file, with its text.
    File(Arc<str>),
    /// A directory, with its names.
    Directory(Arc<[(String, Place)]>),
}

/// All that is open.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: HashMap<u64, Open>,
    last: u64,
}

impl Handles {
    /// Takes one in. Numbers are never given twice.
    pub(crate) fn open(&mut self, open: Open) -> Result<u64, Refusal> {
        if self.open.len() >= OPEN_MAX {
            return Err(Refusal::TooManyOpen);
        }
        self.last += 1;
        self.open.insert(self.last, open);
        Ok(self.last)
    }

    /// One of them.
    pub(crate) fn of(&self, number: u64) -> Option<Open> {
        self.open.get(&number).cloned()
    }

    /// It is closed.
    pub(crate) fn close(&mut self, number: u64) {
        self.open.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_open_as_may_be_and_closing_makes_room() {
        let mut handles = Handles::default();
        let file = || Open::File("".into());
        let numbers: Vec<u64> = (0..OPEN_MAX)
            .map(|_| handles.open(file()).unwrap())
            .collect();
        assert!(handles.open(file()).is_err());
        handles.close(numbers[0]);
        let next = handles.open(file()).unwrap();
        assert!(!numbers.contains(&next));
        assert!(handles.of(numbers[0]).is_none());
    }
}
