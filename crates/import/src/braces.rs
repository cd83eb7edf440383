//! The syntax of `scst.conf` and `ctl.conf`: a statement per line, or before a semicolon, and
//! statements inside braces.

use std::iter::Peekable;
use std::str::Chars;

use crate::source::DEPTH_MAX;
use crate::tree::{Node, Open};
use crate::{ReadError, Source, lines};

/// Reads a text into its sections.
pub(crate) fn read(source: &Source<'_>) -> Result<Node, ReadError> {
    let mut reader = Reader {
        source,
        characters: source.text.chars().peekable(),
        line: 1,
        words: Vec::new(),
        open: Open::new(source.at(0)),
    };
    while let Some(character) = reader.characters.next() {
        reader.take(character)?;
    }
    reader.end_statement();
    reader.open.finish().map_err(|node| {
        ReadError::syntax(
            node.place.clone(),
            format!("the brace of {:?} is not closed", node.key()),
        )
    })
}

struct Reader<'a> {
    source: &'a Source<'a>,
    characters: Peekable<Chars<'a>>,
    line: usize,
    /// Of the statement that is being read.
    words: Vec<String>,
    open: Open,
}

impl Reader<'_> {
    fn take(&mut self, character: char) -> Result<(), ReadError> {
        match character {
            '\n' => {
                self.end_statement();
                self.line = self.line.saturating_add(1);
            }
            ';' => self.end_statement(),
            '\\' if self.characters.peek() == Some(&'\n') => {
                self.characters.next();
                self.line = self.line.saturating_add(1);
            }
            '#' => while self.characters.next_if(|&c| c != '\n').is_some() {},
            '{' => self.begin_section()?,
            '}' => self.end_section()?,
            character if character.is_whitespace() => {}
            character => {
                let word = self.word(character)?;
                self.words.push(word);
            }
        }
        Ok(())
    }

    /// The rest of a word that begins with `first`.
    fn word(&mut self, first: char) -> Result<String, ReadError> {
        let mut word = String::new();
        if first == '"' {
            self.quoted(&mut word)?;
            return Ok(word);
        }
        word.push(first);
        let is_part = |c: &char| !c.is_whitespace() && !matches!(c, '{' | '}' | ';' | '"');
        while let Some(character) = self.characters.next_if(is_part) {
            match character {
                '\\' => word.extend(self.characters.next_if(|&c| c != '\n')),
                character => word.push(character),
            }
        }
        Ok(word)
    }

    fn quoted(&mut self, word: &mut String) -> Result<(), ReadError> {
        let place = self.source.at(self.line);
        loop {
            let next = self.characters.next();
            let character = next.ok_or_else(|| lines::unclosed(place.clone()))?;
            match character {
                '"' => return Ok(()),
                '\\' => word.extend(self.characters.next()),
                '\n' => return Err(lines::unclosed(place)),
                character => word.push(character),
            }
        }
    }

    fn end_statement(&mut self) {
        let words = std::mem::take(&mut self.words);
        if words.is_empty() {
            return;
        }
        let node = Node::new(self.open.at(self.line), words);
        if let Some(section) = self.open.innermost() {
            section.children.push(node);
        }
    }

    /// A brace opens the statement before it, which may stand on the line before.
    fn begin_section(&mut self) -> Result<(), ReadError> {
        self.end_statement();
        let place = self.source.at(self.line);
        if self.open.depth() >= DEPTH_MAX {
            return Err(ReadError::TooDeep { place });
        }
        let node = self.open.innermost().and_then(|open| open.children.pop());
        let node = node.filter(|node| node.children.is_empty());
        let node =
            node.ok_or_else(|| ReadError::syntax(place, "a brace with nothing before it"))?;
        self.open.push(node);
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), ReadError> {
        self.end_statement();
        let node = self.open.pop().ok_or_else(|| {
            let place = self.source.at(self.line);
            ReadError::syntax(place, "a brace closes nothing that is open")
        })?;
        if let Some(section) = self.open.innermost() {
            section.children.push(node);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Result<Node, ReadError> {
        read(&Source { name: "f", text })
    }

    #[test]
    fn statements_and_sections_keep_their_places() {
        let text = "a 1 # c\nb x {\n c \"d \\\"e\"; f 2\n}\ng\n{\n h }\ni \\\n j\n";
        let file = tree(text).unwrap();
        let keys: Vec<_> = file.children.iter().map(Node::key).collect();
        assert_eq!(keys, ["a", "b", "g", "i"]);
        let b = file.find("b").unwrap();
        assert_eq!((b.place.line, b.value_of("c")), (2, Some("d \"e")));
        assert_eq!(b.value_of("f"), Some("2"));
        assert!(file.find("g").unwrap().find("h").is_some());
        assert_eq!(file.value_of("i"), Some("j"));
    }

    #[test]
    fn what_is_not_closed_or_not_open_is_told_with_its_line() {
        for (text, message) in [
            ("a {\n b\n", "f:1: the brace of \"a\" is not closed"),
            ("\n}\n", "f:2: a brace closes nothing"),
            ("{\n}\n", "f:1: a brace with nothing before it"),
            ("a \"b\n", "f:1: a quote is not closed"),
            ("a \"b", "f:1: a quote is not closed"),
        ] {
            let got = tree(text).unwrap_err().to_string();
            assert!(got.contains(message), "{got}");
        }
        let deep = "a {\n".repeat(100);
        assert!(matches!(tree(&deep), Err(ReadError::TooDeep { .. })));
    }
}
