//! The syntax of `targets.conf`, as `tgt-admin` has it read by Perl's Config::General: `key value` lines in
//! `<section argument>` ... `</section>`, C comments, here-documents, and lines that go on.
//!
//! A node has the key and all of its value as one word: what the value consists of is the matter of its key.
//!
//! Spec: Config::General(3pm), with `-UseApacheInclude` and `-MergeDuplicateBlocks`. Tried with 2.65.

use crate::source::DEPTH_MAX;
use crate::tree::{Node, Open};
use crate::{Place, ReadError, Source};

/// Reads a text into its sections.
pub(crate) fn read(source: &Source<'_>) -> Result<Node, ReadError> {
    let mut open = Open::new(source.at(0));
    for line in lines(source)? {
        let place = open.at(line.number);
        match line.content {
            Content::Document(key, value) => push(&mut open, Node::new(place, vec![key, value])),
            Content::Text(text) => statement(place, &text, &mut open)?,
        }
    }
    open.finish().map_err(|node| {
        ReadError::syntax(
            node.place.clone(),
            format!("<{}> is not closed", node.key()),
        )
    })
}

/// What counts of one line, or of several that belong together.
struct Line {
    number: usize,
    content: Content,
}

enum Content {
    Text(String),
    /// A key, and the here-document that is its value.
    Document(String, String),
}

/// A here-document that is being read.
struct Document {
    line: Line,
    marker: String,
    lines: Vec<String>,
}

/// First all lines are taken by themselves, before any of them means something.
fn lines(source: &Source<'_>) -> Result<Vec<Line>, ReadError> {
    let mut lines = Vec::new();
    let mut document: Option<Document> = None;
    let mut long: Option<(usize, String)> = None;
    let mut comment: Option<usize> = None;
    for (number, text) in (1..).zip(source.text.lines()) {
        if let Some(mut open) = document.take() {
            if text.trim() == open.marker {
                lines.push(open.finish(text));
            } else {
                open.lines.push(text.to_owned());
                document = Some(open);
            }
            continue;
        }
        let Some(text) = without_comment(text, number, &mut comment) else {
            continue;
        };
        if let Some(part) = text.strip_suffix('\\').filter(|part| !part.ends_with('\\')) {
            let (_, long) = long.get_or_insert_with(|| (number, String::new()));
            long.push_str(part.trim_start());
            continue;
        }
        if let Some(found) = Document::begin(&text, number) {
            document = Some(found);
            continue;
        }
        match long.take() {
            Some((number, long)) => lines.push(Line::text(number, long + text.trim_start())),
            None if text.trim().is_empty() => {}
            None => lines.push(Line::text(number, text)),
        }
    }
    let open = document.map(|open| (open.line.number, "a here-document is not closed"));
    let open = open.or_else(|| comment.map(|number| (number, "a comment is not closed")));
    let open = open.or_else(|| {
        long.map(|(number, _)| (number, "a line goes on, and there is none behind it"))
    });
    match open {
        None => Ok(lines),
        Some((number, problem)) => Err(ReadError::syntax(source.at(number), problem)),
    }
}

/// The line without comments; `None` if nothing of it counts. `comment` is the line where an open one began.
///
/// A C comment begins at the beginning of a line, or ends in the line in which it begins. That of `#` goes on to the
/// end of the line, unless a backslash is before it.
fn without_comment(text: &str, number: usize, comment: &mut Option<usize>) -> Option<String> {
    let mut text = text.to_owned();
    let closed = text.find("/*").and_then(|begin| {
        let end = text
            .rfind("*/")
            .filter(|end| *end >= begin.saturating_add(2))?;
        Some((begin, end.saturating_add(2)))
    });
    if let Some((begin, end)) = closed {
        let before = text.get(..begin).unwrap_or_default().trim_end();
        let after = text.get(end..).unwrap_or_default().trim_start();
        text = format!("{before}{after}");
    } else if text.trim_start().starts_with("/*") {
        *comment = comment.or(Some(number));
    } else if let Some(end) = text.rfind("*/") {
        *comment = None;
        text = text
            .get(end.saturating_add(2)..)
            .unwrap_or_default()
            .to_owned();
    }
    if comment.is_some() {
        return None;
    }
    let mut before = '\0';
    let hash = text.char_indices().find(|(_, c)| {
        let is_comment = *c == '#' && before != '\\';
        before = *c;
        is_comment
    });
    if let Some((at, _)) = hash {
        text.truncate(at);
    }
    (!text.trim_start().starts_with('#')).then_some(text)
}

impl Line {
    fn text(number: usize, text: String) -> Self {
        Self {
            number,
            content: Content::Text(text),
        }
    }
}

impl Document {
    /// `key << MARKER` or `key = << MARKER`.
    fn begin(text: &str, number: usize) -> Option<Self> {
        let (key, marker) = text.split_once("<<")?;
        let (key, marker) = (key.trim_start(), marker.trim());
        let bare = key.trim_end();
        let is_separated =
            bare.ends_with('=') || (bare.len() < key.len() && !bare.contains(char::is_whitespace));
        let bare = bare.strip_suffix('=').unwrap_or(bare).trim_end();
        let is_key = !bare.is_empty() && !bare.contains('=') && !marker.is_empty();
        (is_separated && is_key).then(|| Self {
            line: Line::text(number, bare.to_owned()),
            marker: marker.to_owned(),
            lines: Vec::new(),
        })
    }

    /// What stands before the marker is taken off the lines, too.
    fn finish(self, marker_line: &str) -> Line {
        let blank = marker_line
            .len()
            .saturating_sub(marker_line.trim_start().len());
        let indent = marker_line.get(..blank).unwrap_or_default();
        let lines = self
            .lines
            .iter()
            .map(|line| line.strip_prefix(indent).unwrap_or(line));
        let text = lines.collect::<Vec<_>>().join("\n");
        let key = match self.line.content {
            Content::Text(key) | Content::Document(key, _) => key,
        };
        Line {
            number: self.line.number,
            content: Content::Document(key, unescaped(text.trim())),
        }
    }
}

fn push(open: &mut Open, node: Node) {
    if let Some(section) = open.innermost() {
        section.children.push(node);
    }
}

/// A line that opens or closes a section, or has a key.
fn statement(place: Place, text: &str, open: &mut Open) -> Result<(), ReadError> {
    let text = text.trim();
    let tag = text
        .strip_prefix('<')
        .and_then(|inner| inner.strip_suffix('>'));
    match tag {
        Some(name) if name.starts_with('/') => close(place, name.trim_start_matches('/'), open),
        Some(inner) => match inner.strip_suffix('/') {
            None => begin(place, inner, open),
            // A section with nothing in it.
            Some(inner) => {
                begin(place.clone(), inner, open)?;
                let name = inner
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                close(place, &name, open)
            }
        },
        None if text.starts_with('<') || text.ends_with("/>") => Err(ReadError::syntax(
            place,
            "a tag has to stand alone in its line",
        )),
        None => {
            let end = text
                .find(|c: char| c == '=' || c.is_whitespace())
                .unwrap_or(text.len());
            let (key, rest) = text.split_at_checked(end).unwrap_or((text, ""));
            let rest = rest.trim_start();
            let value = rest.strip_prefix('=').unwrap_or(rest).trim_start();
            if key.is_empty() {
                return Err(ReadError::syntax(place, "a line without a key"));
            }
            let node = Node::new(place, vec![key.to_owned(), unescaped(unquoted(value))]);
            push(open, node);
            Ok(())
        }
    }
}

/// A value between two quotes loses them.
fn unquoted(value: &str) -> &str {
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(value)
}

/// A backslash before one of these signs goes.
fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars().peekable();
    while let Some(character) = characters.next() {
        let escaped =
            characters.next_if(|c| character == '\\' && matches!(c, '$' | '\\' | '"' | '#'));
        text.push(escaped.unwrap_or(character));
    }
    text
}

fn begin(place: Place, inner: &str, open: &mut Open) -> Result<(), ReadError> {
    if open.depth() >= DEPTH_MAX {
        return Err(ReadError::TooDeep { place });
    }
    let (name, argument) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
    if name.is_empty() || name.starts_with(['<', '"']) {
        return Err(ReadError::syntax(place, "a section without a name"));
    }
    let mut words = vec![name.to_owned()];
    if !argument.trim().is_empty() {
        words.push(unquoted(argument.trim()).to_owned());
    }
    open.push(Node::new(place, words));
    Ok(())
}

fn close(place: Place, name: &str, open: &mut Open) -> Result<(), ReadError> {
    let node = open.pop().filter(|node| node.key() == name.trim());
    let node = node.ok_or_else(|| {
        ReadError::syntax(place, format!("</{name}> closes nothing that is open"))
    })?;
    push(open, node);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Result<Node, ReadError> {
        read(&Source { name: "f", text })
    }

    /// As Config::General 2.65 reads them, with the options of tgt-admin.
    #[test]
    fn values_are_those_of_config_general() {
        for (text, expected) in [
            ("k v", "v"),
            ("k   v  w ", "v  w"),
            ("k=v", "v"),
            ("k = v=w", "v=w"),
            ("k \"v w\"", "v w"),
            ("k \"v\" w", "\"v\" w"),
            ("k ann abc\\#def", "ann abc#def"),
            ("k plain#tail", "plain"),
            ("k a\\\\b\\$c\\d", "a\\b$c\\d"),
            ("k v /* c */", "v"),
            ("k a\\\n   b", "ab"),
            ("k \\\n   b", "b"),
            ("k a\\\\", "a\\"),
            ("k <<END\n a\n # b\nEND", "a\n # b"),
            ("k = << END\n  a\n  b\n  END", "a\nb"),
            ("k", ""),
        ] {
            let file = tree(text).unwrap();
            assert_eq!(file.children.len(), 1, "{text}");
            assert_eq!(file.value_of("k"), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_stands_in_a_comment_does_not_count() {
        for text in [
            "a 1\n/* old\n<t x>\n</t>\n*/\nb 2",
            "a 1\n/* old */\nb 2",
            "a 1\n/* old\n*/ b 2",
            "a 1 # c \\\nb 2",
            "  # c \\\na 1\nb 2",
            "/* x */ a 1\nb 2 /* y */",
        ] {
            let file = tree(text).unwrap();
            let keys: Vec<_> = file.children.iter().map(Node::key).collect();
            assert_eq!(keys, ["a", "b"], "{text}");
        }
        // A comment that does not begin its line is none, unless it ends there.
        assert!(tree("a 1 /* no\nb 2").unwrap().find("b").is_some());
    }

    #[test]
    fn sections_nest_and_keep_their_places() {
        let file =
            tree("a 1\n<t x>\n  <s \"/dev/x y\">\n k = v # c\n </s>\n b\n</t> # end\n<e z/>")
                .unwrap();
        let target = file.find("t").unwrap();
        assert_eq!((target.value(), target.place.line), ("x", 2));
        let store = target.find("s").unwrap();
        assert_eq!(
            (store.value(), store.value_of("k")),
            ("/dev/x y", Some("v"))
        );
        assert_eq!(file.value_of("a"), Some("1"));
        assert_eq!(file.value_of("e"), Some("z"));
    }

    #[test]
    fn what_is_not_closed_or_not_open_is_told_with_its_line() {
        for (text, message) in [
            ("<t x>\n", "f:1: <t> is not closed"),
            ("a\n</t>\n", "f:2: </t> closes nothing"),
            ("<t x>\n</s>\n", "f:2: </s> closes nothing"),
            ("<>\n", "f:1: a section without a name"),
            ("<<include x>>\n", "f:1: a section without a name"),
            ("<t x> b\n", "f:1: a tag has to stand alone"),
            ("= v\n", "f:1: a line without a key"),
            ("\n/* a\n", "f:2: a comment is not closed"),
            ("k << E\nb\n", "f:1: a here-document is not closed"),
            ("k v\\\n", "f:1: a line goes on"),
        ] {
            let got = tree(text).unwrap_err().to_string();
            assert!(got.contains(message), "{got}");
        }
        let deep = "<a b>\n".repeat(100);
        assert!(matches!(tree(&deep), Err(ReadError::TooDeep { .. })));
    }
}
