//! The syntax of `ctl.conf`, as the grammar of ctld has it: lines have no meaning, a key says how many words follow.
//!
//! A word that is no key where one has to stand ends the reading: how many words belong to it is not known, so what
//! it says of those behind it is not known either. In a target or a disk it makes all up to the end of that unknown,
//! which is then not shown. ctld refuses such a file, too.
//!
//! Spec: ctl.conf(5), `parse.y` and `token.l` of ctld.

use std::iter::Peekable;
use std::str::Chars;

use crate::tree::Node;
use crate::{Place, ReadError, Source};

/// What follows a key.
#[derive(Clone, Copy)]
enum Form {
    /// So many words.
    Words(usize),
    /// A word, and perhaps another one.
    OneOrTwo,
    /// A name, and statements in braces.
    Section(&'static [(&'static str, Self)]),
    /// A number, and statements in braces or the name of a disk.
    Lun,
    /// A name, and something in braces that is not iSCSI.
    Foreign,
}

use Form::{Foreign, Lun, OneOrTwo, Section, Words};

type Table = &'static [(&'static str, Form)];

#[rustfmt::skip]
const GLOBAL: Table = &[
    ("debug", Words(1)), ("timeout", Words(1)), ("maxproc", Words(1)), ("pidfile", Words(1)),
    ("isns-server", Words(1)), ("isns-period", Words(1)), ("isns-timeout", Words(1)),
    ("auth-group", Section(AUTH_GROUP)), ("portal-group", Section(PORTAL_GROUP)), ("lun", Section(LUN)),
    ("target", Section(TARGET)), ("transport-group", Foreign), ("controller", Foreign),
];

#[rustfmt::skip]
const AUTH_GROUP: Table = &[
    ("auth-type", Words(1)), ("chap", Words(2)), ("chap-mutual", Words(4)), ("initiator-name", Words(1)),
    ("initiator-portal", Words(1)), ("host-address", Words(1)), ("host-nqn", Words(1)),
];

#[rustfmt::skip]
const PORTAL_GROUP: Table = &[
    ("discovery-auth-group", Words(1)), ("discovery-filter", Words(1)), ("dscp", Words(1)), ("foreign", Words(0)),
    ("listen", Words(1)), ("listen-iser", Words(1)), ("offload", Words(1)), ("option", Words(2)), ("pcp", Words(1)),
    ("redirect", Words(1)), ("tag", Words(1)),
];

#[rustfmt::skip]
const TARGET: Table = &[
    ("alias", Words(1)), ("auth-group", Words(1)), ("auth-type", Words(1)), ("chap", Words(2)),
    ("chap-mutual", Words(4)), ("initiator-name", Words(1)), ("initiator-portal", Words(1)), ("lun", Lun),
    ("offload", Words(1)), ("port", Words(1)), ("portal-group", OneOrTwo), ("redirect", Words(1)),
];

#[rustfmt::skip]
const LUN: Table = &[
    ("backend", Words(1)), ("blocksize", Words(1)), ("ctl-lun", Words(1)), ("device-id", Words(1)),
    ("device-type", Words(1)), ("option", Words(2)), ("path", Words(1)), ("serial", Words(1)), ("size", Words(1)),
];

/// Whether a bare word is a key somewhere: then it is nowhere a value.
fn is_keyword(word: &str) -> bool {
    let tables = [GLOBAL, AUTH_GROUP, PORTAL_GROUP, TARGET, LUN];
    tables
        .iter()
        .any(|table| table.iter().any(|(key, _)| *key == word))
}

/// Reads a text into its sections: each node has its key and the words that belong to it.
///
/// # Errors
///
/// What the grammar does not allow; a text in UCL is named as one.
pub(super) fn read(source: &Source<'_>) -> Result<Node, ReadError> {
    let mut reader = Reader {
        tokens: Tokens::of(source).peekable(),
        source,
        line: 1,
    };
    let mut file = Node::new(source.at(0), vec![String::new()]);
    reader.statements(GLOBAL, &mut file)?;
    match reader.tokens.next() {
        None => Ok(file),
        Some(token) => {
            let place = source.at(token.line);
            Err(ReadError::syntax(
                place,
                "a brace closes nothing that is open",
            ))
        }
    }
}

/// What a text consists of.
#[derive(Debug)]
enum Kind {
    Bare(String),
    Quoted(String),
    Open,
    Close,
    Semicolon,
    /// A quote that no other one follows.
    Unclosed,
}

struct Token {
    kind: Kind,
    line: usize,
}

/// The tokens of a text, as the scanner of ctld finds them.
struct Tokens<'a> {
    characters: Peekable<Chars<'a>>,
    line: usize,
}

impl<'a> Tokens<'a> {
    fn of(source: &Source<'a>) -> Self {
        Self {
            characters: source.text.chars().peekable(),
            line: 1,
        }
    }

    /// What stands up to the next quote, which may be lines away. No character has another meaning there.
    fn quoted(&mut self) -> Kind {
        let mut text = String::new();
        for character in self.characters.by_ref() {
            match character {
                '"' => return Kind::Quoted(text),
                '\n' => self.line = self.line.saturating_add(1),
                _ => {}
            }
            text.push(character);
        }
        Kind::Unclosed
    }

    /// Letters, digits and some signs are a word together; every other character is one alone.
    fn bare(&mut self, first: char) -> Kind {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || ".-@_/:[]".contains(*c);
        let mut text = String::from(first);
        if is_part(&first) {
            while let Some(character) = self.characters.next_if(is_part) {
                text.push(character);
            }
        }
        Kind::Bare(text)
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            let line = self.line;
            let kind = match self.characters.next()? {
                ' ' | '\t' | '\r' => continue,
                '\n' => {
                    self.line = self.line.saturating_add(1);
                    continue;
                }
                '#' => {
                    while self.characters.next_if(|&c| c != '\n').is_some() {}
                    continue;
                }
                '{' => Kind::Open,
                '}' => Kind::Close,
                ';' => Kind::Semicolon,
                '"' => self.quoted(),
                first => self.bare(first),
            };
            return Some(Token { kind, line });
        }
    }
}

struct Reader<'a> {
    source: &'a Source<'a>,
    tokens: Peekable<Tokens<'a>>,
    /// Of the last token.
    line: usize,
}

impl Reader<'_> {
    fn here(&self) -> Place {
        self.source.at(self.line)
    }

    fn next(&mut self) -> Option<Kind> {
        let token = self.tokens.next()?;
        self.line = token.line;
        Some(token.kind)
    }

    /// Statements of a section, up to the brace that closes it or the end of the text.
    fn statements(&mut self, table: Table, section: &mut Node) -> Result<(), ReadError> {
        while self
            .tokens
            .peek()
            .is_some_and(|token| !matches!(token.kind, Kind::Close))
        {
            let kind = self.next();
            let place = self.here();
            let key = match kind {
                Some(Kind::Bare(key)) => key,
                Some(Kind::Quoted(_)) if section.key().is_empty() => {
                    return Err(ReadError::Ucl { place });
                }
                Some(Kind::Unclosed) => return Err(crate::lines::unclosed(place)),
                Some(Kind::Quoted(_) | Kind::Open | Kind::Close | Kind::Semicolon) | None => {
                    return Err(ReadError::syntax(place, "a key is expected here"));
                }
            };
            let Some((_, form)) = table.iter().find(|(known, _)| *known == key) else {
                let error = self.not_a_key(&key, place.clone());
                let is_ucl = matches!(error, ReadError::Ucl { .. });
                let is_bounded = matches!(section.key(), "target" | "lun");
                if is_ucl || !is_bounded || is_keyword(&key) {
                    return Err(error);
                }
                // The reader finds the word, and does not show what it stands in.
                section.children.push(Node::new(place, vec![key]));
                self.pass_over();
                break;
            };
            let statement = self.statement(key, *form, place)?;
            section.children.push(statement);
            let is_semicolon = |token: &Token| matches!(token.kind, Kind::Semicolon);
            let _separator = self.tokens.next_if(is_semicolon);
        }
        section.children.shrink_to_fit();
        Ok(())
    }

    /// A bare word that is no key of the section.
    fn not_a_key(&mut self, key: &str, place: Place) -> ReadError {
        if let Some(ucl) = self.ucl(&place) {
            return ucl;
        }
        if key.ends_with(':') {
            return ReadError::Ucl { place };
        }
        let problem =
            format!("{key:?} is not known at this place, and neither is what it says of the rest");
        ReadError::syntax(place, problem)
    }

    /// What UCL has behind a key, and the grammar has not.
    fn ucl(&mut self, place: &Place) -> Option<ReadError> {
        let next = self.tokens.peek().map(|token| &token.kind);
        let is_ucl = match next {
            Some(Kind::Open) => true,
            Some(Kind::Bare(word)) => word == "=" || word == ":",
            Some(Kind::Quoted(_) | Kind::Close | Kind::Semicolon | Kind::Unclosed) | None => false,
        };
        is_ucl.then(|| ReadError::Ucl {
            place: place.clone(),
        })
    }

    /// What belongs to a key.
    fn statement(&mut self, key: String, form: Form, place: Place) -> Result<Node, ReadError> {
        // `key:` of UCL is one word here, and no key; `key {` and `key =` are seen here.
        if !matches!(form, Words(0))
            && let Some(ucl) = self.ucl(&place)
        {
            return Err(ucl);
        }
        let mut words = vec![key];
        let wanted = match form {
            Words(count) => count,
            OneOrTwo | Section(_) | Lun | Foreign => 1,
        };
        let is_type = words.iter().any(|key| key == "auth-type");
        for _ in 0..wanted {
            // Two types are keys, too; ctl.conf(5) has them without quotes.
            let kind =
                |token: &Token| matches!(&token.kind, Kind::Bare(word) if word.starts_with("chap"));
            let named = self.tokens.next_if(|token| is_type && kind(token));
            words.push(match named.map(|token| token.kind) {
                Some(Kind::Bare(word)) => word,
                Some(_) | None => self.word(&place)?,
            });
        }
        let is_open = self
            .tokens
            .peek()
            .is_some_and(|token| matches!(token.kind, Kind::Open));
        let is_word = self.tokens.peek().is_some_and(|token| match &token.kind {
            Kind::Bare(word) => !is_keyword(word),
            Kind::Quoted(_) => true,
            Kind::Open | Kind::Close | Kind::Semicolon | Kind::Unclosed => false,
        });
        match form {
            Words(_) => Ok(Node::new(place, words)),
            OneOrTwo => {
                if is_word {
                    words.push(self.word(&place)?);
                }
                Ok(Node::new(place, words))
            }
            Lun if !is_open => {
                words.push(self.word(&place)?);
                Ok(Node::new(place, words))
            }
            Lun => self.section(LUN, Node::new(place, words)),
            Section(table) => self.section(table, Node::new(place, words)),
            Foreign => self.foreign(Node::new(place, words)),
        }
    }

    /// A value: quoted, or a word that is no key.
    fn word(&mut self, place: &Place) -> Result<String, ReadError> {
        match self.next() {
            Some(Kind::Quoted(word)) => Ok(word),
            Some(Kind::Bare(word)) if !is_keyword(&word) => Ok(word),
            Some(Kind::Unclosed) => Err(crate::lines::unclosed(self.here())),
            Some(Kind::Bare(_) | Kind::Open | Kind::Close | Kind::Semicolon) | None => Err(
                ReadError::syntax(place.clone(), "a statement that begins here lacks a value"),
            ),
        }
    }

    fn open(&mut self, node: &Node) -> Result<(), ReadError> {
        match self.next() {
            Some(Kind::Open) => Ok(()),
            Some(_) | None => {
                let problem = format!("{:?} needs a brace behind its name", node.key());
                Err(ReadError::syntax(node.place.clone(), problem))
            }
        }
    }

    fn close(&mut self, node: &Node) -> Result<(), ReadError> {
        match self.next() {
            Some(Kind::Close) => Ok(()),
            Some(_) | None => {
                let problem = format!("the brace of {:?} is not closed", node.key());
                Err(ReadError::syntax(node.place.clone(), problem))
            }
        }
    }

    fn section(&mut self, table: Table, mut node: Node) -> Result<Node, ReadError> {
        self.open(&node)?;
        self.statements(table, &mut node)?;
        self.close(&node)?;
        // There are many of these, and few statements in each.
        node.children.shrink_to_fit();
        Ok(node)
    }

    /// Everything up to the brace that closes this one.
    fn foreign(&mut self, node: Node) -> Result<Node, ReadError> {
        self.open(&node)?;
        self.pass_over();
        self.close(&node)?;
        Ok(node)
    }

    /// Everything before the brace that closes the section.
    fn pass_over(&mut self) {
        let mut inside = 0_usize;
        while let Some(token) = self.tokens.peek() {
            match token.kind {
                Kind::Open => inside = inside.saturating_add(1),
                Kind::Close if inside == 0 => break,
                Kind::Close => inside = inside.saturating_sub(1),
                Kind::Bare(_) | Kind::Quoted(_) | Kind::Semicolon | Kind::Unclosed => {}
            }
            self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Result<Node, ReadError> {
        read(&Source { name: "f", text })
    }

    fn words(node: &Node) -> Vec<&[String]> {
        node.children
            .iter()
            .map(|child| child.words.as_slice())
            .collect()
    }

    #[test]
    fn line_ends_mean_nothing() {
        let text = "auth-group a { auth-type none initiator-name \"iqn.x\"; initiator-portal [::1]/64 }\n\
            target t { portal-group p lun 0 d portal-group q a lun 1 { path /x option readonly on } }";
        let flat = tree(text).unwrap();
        for separator in ["\n", " # no }\n", "\r\n\t"] {
            let long = tree(&text.replace(' ', separator)).unwrap();
            assert_eq!(format!("{:?}", words(&long)), format!("{:?}", words(&flat)));
        }
        let group = flat.find("auth-group").unwrap();
        assert_eq!(group.value_of("auth-type"), Some("none"));
        assert_eq!(group.value_of("initiator-name"), Some("iqn.x"));
        assert_eq!(group.value_of("initiator-portal"), Some("[::1]/64"));
        let target = flat.find("target").unwrap();
        let names: Vec<_> = target.all("portal-group").map(Node::rest).collect();
        assert_eq!(names, ["p", "q a"]);
        let luns: Vec<_> = target.all("lun").map(Node::rest).collect();
        assert_eq!(luns, ["0 d", "1"]);
        assert_eq!(target.find("lun").unwrap().value_of("path"), Some("/x"));
    }

    #[test]
    fn a_quoted_word_is_no_key_and_has_no_escapes() {
        let file = tree("lun \"lun\" {\n path \"/a\\\n#b\" }\npidfile /x").unwrap();
        assert_eq!(file.find("lun").unwrap().value(), "lun");
        assert_eq!(file.find("lun").unwrap().value_of("path"), Some("/a\\\n#b"));
        assert_eq!(file.find("pidfile").unwrap().place.line, 4);
    }

    #[test]
    fn what_the_grammar_has_not_is_named_with_its_line() {
        for (text, message) in [
            (
                "auth-group a {\n chap u\n}",
                "f:2: a statement that begins here lacks a value",
            ),
            (
                "auth-group a {\n chap u s x\n}",
                "f:2: \"x\" is not known at this place",
            ),
            (
                "pidfile debug 1",
                "f:1: a statement that begins here lacks a value",
            ),
            (
                "auth-group a {\n",
                "f:1: the brace of \"auth-group\" is not closed",
            ),
            ("\n}", "f:2: a brace closes nothing"),
            ("debug 1 ;;", "f:1: a key is expected here"),
            ("auth-group \"a", "f:1: a quote is not closed"),
            ("auth-group a chap", "needs a brace"),
            ("\ncolour blue", "f:2: \"colour\" is not known"),
        ] {
            let got = tree(text).unwrap_err().to_string();
            assert!(got.contains(message), "{text:?}: {got}");
        }
    }

    #[test]
    fn ucl_is_named_as_such() {
        for text in [
            "auth-group {\n a { }\n}",
            "debug = 1",
            "pidfile: /x",
            "target = { }",
            "\"target\" : { }",
            "timeout : 60",
        ] {
            assert!(matches!(tree(text), Err(ReadError::Ucl { .. })), "{text}");
        }
    }

    #[test]
    fn what_is_not_iscsi_is_passed_over_as_a_whole() {
        let file = tree("controller nqn.x { a { b } c; } debug 1").unwrap();
        assert_eq!(words(&file).len(), 2);
        assert!(tree("controller x { a {").is_err());
    }
}
