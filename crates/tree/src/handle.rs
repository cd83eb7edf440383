//! Open files and directories: each holds what it showed when it was opened, so that one who reads
//! in pieces reads one state.

use std::collections::HashMap;
use std::sync::Arc;

use crate::place::Place;
use crate::refusal::{OPEN_MAX, Refusal, VALUE_BYTES_MAX};

/// What is open.
#[derive(Clone, Debug)]
pub(crate) enum Open {
    /// A file, with its text.
    File(Arc<str>),
    /// A directory, with its names.
    Directory(Arc<[(String, Place)]>),
}

/// What is being written to a list. Shells write it line by line, and every part alone would be another list.
#[derive(Debug)]
struct List {
    /// Who opened it. Programs that inherit it close it, too, and the list may not be whole then.
    process: u32,
    bytes: Vec<u8>,
    /// Something came since it was last taken.
    is_due: bool,
}

/// All that is open.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: HashMap<u64, Open>,
    lists: HashMap<u64, List>,
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

    /// A process opens a list to write it.
    pub(crate) fn open_list(&mut self, open: Open, process: u32) -> Result<u64, Refusal> {
        let number = self.open(open)?;
        let list = List {
            process,
            bytes: Vec::new(),
            is_due: false,
        };
        self.lists.insert(number, list);
        Ok(number)
    }

    /// Collects a part of a list; `None` if it is none.
    pub(crate) fn collect(
        &mut self,
        number: u64,
        offset: u64,
        data: &[u8],
    ) -> Option<Result<(), Refusal>> {
        let list = self.lists.get_mut(&number)?;
        if offset != list.bytes.len() as u64 {
            return Some(Err(Refusal::NotWhole));
        }
        let got = list.bytes.len() + data.len();
        if got > VALUE_BYTES_MAX {
            return Some(Err(Refusal::TooLong { got }));
        }
        list.bytes.extend_from_slice(data);
        list.is_due = true;
        Some(Ok(()))
    }

    /// The list that was written, when this process closes it, or the last one does (`None`).
    pub(crate) fn written(&mut self, number: u64, process: Option<u32>) -> Option<Vec<u8>> {
        let list = self.lists.get_mut(&number)?;
        let is_whole = process.is_none_or(|process| process == list.process);
        let is_taken = list.is_due && is_whole;
        list.is_due &= !is_taken;
        is_taken.then(|| list.bytes.clone())
    }

    /// One of them.
    pub(crate) fn of(&self, number: u64) -> Option<Open> {
        self.open.get(&number).cloned()
    }

    /// It is closed.
    pub(crate) fn close(&mut self, number: u64) {
        self.open.remove(&number);
        self.lists.remove(&number);
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

    #[test]
    fn a_list_is_taken_whole_when_who_opened_it_closes_it_or_the_last_one() {
        let mut handles = Handles::default();
        let file = handles.open(Open::File("".into())).unwrap();
        assert!(handles.collect(file, 0, b"a\n").is_none());
        let list = handles.open_list(Open::File("".into()), 7).unwrap();
        let collect = |handles: &mut Handles, offset, data: &[u8]| {
            handles.collect(list, offset, data).unwrap().is_ok()
        };
        // A shell closes the number that it opened when it has given it another one.
        assert_eq!(handles.written(list, Some(7)), None);
        assert!(collect(&mut handles, 0, b"a\n"));
        assert!(!collect(&mut handles, 0, b"b\n"));
        assert_eq!(handles.written(list, Some(8)), None);
        assert!(collect(&mut handles, 2, b"b\n"));
        assert!(!collect(&mut handles, 4, &[b'x'; VALUE_BYTES_MAX]));
        assert_eq!(handles.written(list, Some(7)).unwrap(), b"a\nb\n");
        assert_eq!(handles.written(list, None), None);
        assert!(collect(&mut handles, 4, b"c\n"));
        assert_eq!(handles.written(list, None).unwrap(), b"a\nb\nc\n");
        handles.close(list);
        assert!(handles.collect(list, 6, b"d\n").is_none());
    }
}
