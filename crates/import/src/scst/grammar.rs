//! The syntax of `scst.conf`, as `scstadmin` reads it: a statement in each line, and sections in braces.
//!
//! `scstadmin` drops what stands in a line with the brace that closes a section, a fourth word, and a section whose
//! brace has nothing before it in its line. Such a text is refused here: it does not say what it seems to.
//!
//! Spec: scst.conf(5), `readConfigFile` and `parseStanza` of scstadmin.

use crate::source::DEPTH_MAX;
use crate::tree::{Node, Open};
use crate::{ReadError, Source, lines};

/// Most words of a statement.
const WORDS_MAX: usize = 3;

/// Reads a text into its sections.
pub(super) fn read(source: &Source<'_>) -> Result<Node, ReadError> {
    let mut open = Open::new(source.at(0));
    for (number, line) in (1..).zip(source.text.lines()) {
        let line = unescaped(without_comment(line));
        let mut rest = line.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
            let is_open = after.starts_with('{');
            rest = after.get(1..).unwrap_or_default();
            match (is_open, before.trim()) {
                (true, before) => begin(source, number, before, &mut open)?,
                (false, "") => end(source, number, &mut open)?,
                (false, _) => {
                    let problem = "a brace that closes a section has to stand in a line of its own";
                    return Err(ReadError::syntax(source.at(number), problem));
                }
            }
        }
        if !rest.trim().is_empty() {
            let node = statement(source, number, rest)?;
            push(&mut open, node);
        }
    }
    open.finish().map_err(|node| {
        ReadError::syntax(
            node.place.clone(),
            format!("the brace of {:?} is not closed", node.key()),
        )
    })
}

/// The line up to a sign of a comment. A backslash before one takes its meaning away; any other character before it
/// goes, too.
fn without_comment(line: &str) -> &str {
    let mut before = None;
    for (at, character) in line.char_indices() {
        match (character, before) {
            ('#', None) => return "",
            ('#', Some((at, before))) if before != '\\' => {
                return line.get(..at).unwrap_or_default();
            }
            _ => {}
        }
        before = Some((at, character));
    }
    line
}

/// A backslash takes the next character as it is, before any of them means something.
fn unescaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let next = (character == '\\').then(|| characters.next()).flatten();
        text.push(next.unwrap_or(character));
    }
    text
}

fn push(open: &mut Open, node: Node) {
    if let Some(section) = open.innermost() {
        section.children.push(node);
    }
}

fn begin(source: &Source<'_>, number: usize, text: &str, open: &mut Open) -> Result<(), ReadError> {
    let place = source.at(number);
    if open.depth() >= DEPTH_MAX {
        return Err(ReadError::TooDeep { place });
    }
    if text.is_empty() {
        return Err(ReadError::syntax(
            place,
            "a brace with nothing before it in its line",
        ));
    }
    open.push(statement(source, number, text)?);
    Ok(())
}

fn end(source: &Source<'_>, number: usize, open: &mut Open) -> Result<(), ReadError> {
    let node = open.pop().ok_or_else(|| {
        ReadError::syntax(source.at(number), "a brace closes nothing that is open")
    })?;
    push(open, node);
    Ok(())
}

/// The words of a statement. Quotes hold blanks together, where they begin a word.
fn statement(source: &Source<'_>, number: usize, text: &str) -> Result<Node, ReadError> {
    let place = source.at(number);
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let word = match rest.strip_prefix('"') {
            Some(inner) => {
                let (word, after) = inner
                    .split_once('"')
                    .ok_or_else(|| lines::unclosed(place.clone()))?;
                rest = after;
                word
            }
            None => {
                let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                rest = after;
                word
            }
        };
        words.push(word.to_owned());
        rest = rest.trim_start();
    }
    if words.len() > WORDS_MAX {
        let problem = format!(
            "{} words; scstadmin takes no more than {WORDS_MAX}",
            words.len()
        );
        return Err(ReadError::syntax(place, problem));
    }
    Ok(Node::new(place, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Result<Node, ReadError> {
        read(&Source { name: "f", text })
    }

    #[test]
    fn statements_and_sections_keep_their_places() {
        let text =
            "a 1 # c\nb x {\n c \"d e\"\n f 2\n}\ng y { h z {\n i 1\n }\n}\n# no\nj \\*\\#\\*\n";
        let file = tree(text).unwrap();
        let keys: Vec<_> = file.children.iter().map(Node::key).collect();
        assert_eq!(keys, ["a", "b", "g", "j"]);
        let b = file.find("b").unwrap();
        assert_eq!((b.place.line, b.value_of("c")), (2, Some("d e")));
        assert_eq!(
            file.find("g").unwrap().find("h").unwrap().value_of("i"),
            Some("1")
        );
        assert_eq!(file.value_of("a"), Some("1"));
        assert_eq!(file.value_of("j"), Some("*#*"));
    }

    #[test]
    fn what_scstadmin_would_drop_is_named_with_its_line() {
        for (text, message) in [
            ("a {\n b\n", "f:1: the brace of \"a\" is not closed"),
            ("\n}\n", "f:2: a brace closes nothing"),
            ("a\n{\n}\n", "f:2: a brace with nothing before it"),
            ("a {\n b c }\n", "f:2: a brace that closes a section has to"),
            ("a \"b\n", "f:1: a quote is not closed"),
            ("a b c d\n", "f:1: 4 words"),
        ] {
            let got = tree(text).unwrap_err().to_string();
            assert!(got.contains(message), "{got}");
        }
        let deep = "a {\n".repeat(100);
        assert!(matches!(tree(&deep), Err(ReadError::TooDeep { .. })));
    }
}
