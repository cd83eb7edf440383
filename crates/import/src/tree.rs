//! What the nested formats have in common: statements of words, some with statements inside.

use std::sync::Arc;

use crate::Place;

/// A statement, or a section of statements.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    /// The key and what follows it on the line; never empty.
    pub(crate) words: Vec<String>,
    /// What is inside.
    pub(crate) children: Vec<Self>,
}

impl Node {
    pub(crate) fn new(place: Place, mut words: Vec<String>) -> Self {
        // There are many of these, and few words in each.
        words.shrink_to_fit();
        words.iter_mut().for_each(String::shrink_to_fit);
        Self {
            place,
            words,
            children: Vec::new(),
        }
    }

    /// The word at that position behind the key, counted from one; empty if there is none.
    pub(crate) fn word(&self, position: usize) -> &str {
        self.words.get(position).map_or("", String::as_str)
    }

    /// The first word.
    pub(crate) fn key(&self) -> &str {
        self.word(0)
    }

    /// What follows the key.
    pub(crate) fn value(&self) -> &str {
        self.word(1)
    }

    /// All that follows the key, in one.
    pub(crate) fn rest(&self) -> String {
        self.words.get(1..).unwrap_or_default().join(" ")
    }

    /// What is inside under that key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |node| node.key() == key)
    }

    /// The last thing inside under that key: a later line wins.
    pub(crate) fn find(&self, key: &str) -> Option<&Self> {
        self.children.iter().rev().find(|node| node.key() == key)
    }

    /// The value of the last thing inside under that key.
    pub(crate) fn value_of(&self, key: &str) -> Option<&str> {
        self.find(key).map(Self::value)
    }
}

/// Sections that are open, the outermost first, while a text is read.
pub(crate) struct Open {
    nodes: Vec<Node>,
}

impl Open {
    /// The file itself as the outermost section.
    pub(crate) fn new(file: Place) -> Self {
        Self {
            nodes: vec![Node::new(file, vec![String::new()])],
        }
    }

    /// A line of the file.
    pub(crate) fn at(&self, line: usize) -> Place {
        let file = self.nodes.first().map(|file| Arc::clone(&file.place.file));
        Place {
            file: file.unwrap_or_default(),
            line,
        }
    }

    /// The innermost section that is open.
    pub(crate) fn innermost(&mut self) -> Option<&mut Node> {
        self.nodes.last_mut()
    }

    /// How many sections are open, without the file.
    pub(crate) fn depth(&self) -> usize {
        self.nodes.len().saturating_sub(1)
    }

    pub(crate) fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Closes the innermost section and gives it back; `None` if only the file is open.
    pub(crate) fn pop(&mut self) -> Option<Node> {
        if self.depth() == 0 {
            return None;
        }
        let mut node = self.nodes.pop()?;
        node.children.shrink_to_fit();
        Some(node)
    }

    /// The file, if every section is closed; else the innermost that is not.
    pub(crate) fn finish(mut self) -> Result<Node, Node> {
        let is_closed = self.depth() == 0;
        let node = self.nodes.pop().unwrap_or_else(|| {
            Node::new(
                Place {
                    file: Arc::default(),
                    line: 0,
                },
                vec![String::new()],
            )
        });
        if is_closed { Ok(node) } else { Err(node) }
    }
}
