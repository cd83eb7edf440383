//! A file of the tree as a row of a table: its name, how it is read, and what writing it asks for.

use crate::call::Call;
use crate::refusal::Refusal;

/// How a file is read.
enum Read<T> {
    /// From the thing itself.
    Shown(fn(&T) -> String),
    /// By way of a question that may fail.
    Asked(fn(&T) -> Result<String, Refusal>),
}

/// What writing a text to a thing asks for.
type Write<T> = fn(&T, &str) -> Result<Call, Refusal>;

/// A file that all things of one kind have.
pub(crate) struct Attribute<T> {
    /// Its name.
    pub(crate) name: &'static str,
    /// What is in it, for people.
    about: &'static str,
    read: Read<T>,
    write: Option<Write<T>>,
    is_list: bool,
}

impl<T> Attribute<T> {
    /// A file that shows something of the thing. Empty where there is nothing to show.
    pub(crate) const fn shows(
        name: &'static str,
        about: &'static str,
        read: fn(&T) -> String,
    ) -> Self {
        Self {
            name,
            about,
            read: Read::Shown(read),
            write: None,
            is_list: false,
        }
    }

    /// A file whose text has to be asked for.
    pub(crate) const fn asks(
        name: &'static str,
        about: &'static str,
        read: fn(&T) -> Result<String, Refusal>,
    ) -> Self {
        Self {
            name,
            about,
            read: Read::Asked(read),
            write: None,
            is_list: false,
        }
    }

    /// The same, and writing it asks for this. The text comes without the newline at its end.
    pub(crate) const fn writes(mut self, write: Write<T>) -> Self {
        self.write = Some(write);
        self
    }

    /// As [`Attribute::writes`], and the text has any number of lines.
    pub(crate) const fn writes_list(mut self, write: Write<T>) -> Self {
        self.is_list = true;
        self.writes(write)
    }

    fn text(&self, thing: &T) -> Result<String, Refusal> {
        let mut text = match self.read {
            Read::Shown(read) => read(thing),
            Read::Asked(read) => read(thing)?,
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }
}

/// What is shown as a directory of files.
pub(crate) trait Thing: Sized + 'static {
    /// The files of every thing of this kind.
    const FILES: &'static [Attribute<Self>];
}

/// A file as it is now.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct File {
    /// What is in it.
    pub(crate) text: String,
    /// It may be written.
    pub(crate) is_writable: bool,
    /// What is written has any number of lines, so it is whole when the file is closed.
    pub(crate) is_list: bool,
}

/// The files of one thing, whatever its kind.
pub(crate) trait Files {
    /// Their names.
    fn names(&self) -> Vec<&'static str>;

    /// The name as the table has it, which lives longer than a request.
    fn known(&self, name: &str) -> Option<&'static str>;

    /// One of them.
    fn file(&self, name: &str) -> Result<File, Refusal>;

    /// What writing one of them asks for.
    fn call(&self, name: &str, text: &str) -> Result<Call, Refusal>;
}

fn row<T: Thing>(name: &str) -> Option<&'static Attribute<T>> {
    T::FILES.iter().find(|attribute| attribute.name == name)
}

impl<T: Thing> Files for T {
    fn names(&self) -> Vec<&'static str> {
        T::FILES.iter().map(|attribute| attribute.name).collect()
    }

    fn known(&self, name: &str) -> Option<&'static str> {
        row::<T>(name).map(|attribute| attribute.name)
    }

    fn file(&self, name: &str) -> Result<File, Refusal> {
        let attribute = row::<T>(name).ok_or(Refusal::Absent)?;
        Ok(File {
            text: attribute.text(self)?,
            is_writable: attribute.write.is_some(),
            is_list: attribute.is_list,
        })
    }

    fn call(&self, name: &str, text: &str) -> Result<Call, Refusal> {
        let attribute = row::<T>(name).ok_or(Refusal::Absent)?;
        let write = attribute.write.ok_or(Refusal::ReadOnly)?;
        write(self, text.strip_suffix('\n').unwrap_or(text))
    }
}

/// A file, as `help` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its path, with a word in capitals for the name of the thing.
    pub(crate) path: String,
    /// It may be written.
    pub(crate) is_writable: bool,
    /// What is in it.
    pub(crate) about: &'static str,
}

/// The files of a kind of item in this directory, as `help` shows them.
pub(crate) fn rows<T: Thing>(directory: &str) -> Vec<Row> {
    let row = |attribute: &Attribute<T>| Row {
        path: format!("{directory}{}", attribute.name),
        is_writable: attribute.write.is_some(),
        about: attribute.about,
    };
    T::FILES.iter().map(row).collect()
}
