//! The syntax of Apache's configuration: `key value` lines in `<section argument>` ... `</section>`.

use crate::lines::{self, Line};
use crate::source::DEPTH_MAX;
use crate::tree::{Node, Open};
use crate::{ReadError, Source};

/// Reads a text into its sections.
pub(crate) fn read(source: &Source<'_>) -> Result<Node, ReadError> {
    let mut open = Open::new(source.at(0));
    for line in lines::joined(source.text) {
        let text = line.text.as_str();
        if let Some(name) = inside(text, "</") {
            close(source, &line, name, &mut open)?;
        } else if let Some(inner) = inside(text, "<").filter(|_| !text.starts_with("<<")) {
            let inner = Line {
                number: line.number,
                text: inner.to_owned(),
            };
            begin(source, &inner, &mut open)?;
        } else {
            let words = statement(source, &line)?;
            let node = Node::new(open.at(line.number), words);
            if let Some(section) = open.innermost() {
                section.children.push(node);
            }
        }
    }
    open.finish().map_err(|node| {
        ReadError::syntax(
            node.place.clone(),
            format!("<{}> is not closed", node.key()),
        )
    })
}

/// What stands between `start` and the angle that ends the line.
fn inside<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let end = text.split(" #").next().unwrap_or(text).trim_end();
    end.strip_prefix(start)?.strip_suffix('>').map(str::trim)
}

fn begin(source: &Source<'_>, line: &Line, open: &mut Open) -> Result<(), ReadError> {
    let place = open.at(line.number);
    if open.depth() >= DEPTH_MAX {
        return Err(ReadError::TooDeep { place });
    }
    let words = lines::words(source, line)?;
    if words.is_empty() {
        return Err(ReadError::syntax(place, "a section without a name"));
    }
    open.push(Node::new(place, words));
    Ok(())
}

fn close(source: &Source<'_>, line: &Line, name: &str, open: &mut Open) -> Result<(), ReadError> {
    let node = open.pop().filter(|node| node.key() == name);
    let node = node.ok_or_else(|| {
        let problem = format!("</{name}> closes nothing that is open");
        ReadError::syntax(source.at(line.number), problem)
    })?;
    if let Some(section) = open.innermost() {
        section.children.push(node);
    }
    Ok(())
}

/// `key value` or `key = value`; `<<include file>>` is `include file`.
fn statement(source: &Source<'_>, line: &Line) -> Result<Vec<String>, ReadError> {
    let text = line.text.trim_start_matches("<<").trim_end_matches(">>");
    let text = match text.split_once('=') {
        Some((key, value)) if is_bare(key.trim()) => format!("{} {value}", key.trim()),
        Some(_) | None => text.to_owned(),
    };
    let line = Line {
        number: line.number,
        text,
    };
    let words = lines::words(source, &line)?;
    if words.is_empty() {
        return Err(ReadError::syntax(
            source.at(line.number),
            "a line without a key",
        ));
    }
    Ok(words)
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && !key.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Result<Node, ReadError> {
        read(&Source { name: "f", text })
    }

    #[test]
    fn sections_nest_and_keep_their_places() {
        let file = tree("a 1\n<t x>\n  <s /dev/x>\n k = v # c\n </s>\n b\n</t> # end\n").unwrap();
        let target = file.find("t").unwrap();
        assert_eq!((target.value(), target.place.line), ("x", 2));
        let store = target.find("s").unwrap();
        assert_eq!(store.value_of("k"), Some("v"));
        assert_eq!(file.value_of("a"), Some("1"));
    }

    #[test]
    fn what_is_not_closed_or_not_open_is_told_with_its_line() {
        for (text, message) in [
            ("<t x>\n", "f:1: <t> is not closed"),
            ("a\n</t>\n", "f:2: </t> closes nothing"),
            ("<t x>\n</s>\n", "f:2: </s> closes nothing"),
            ("<>\n", "f:1: a section without a name"),
            ("a \"b\n", "f:1: a quote is not closed"),
        ] {
            let got = tree(text).unwrap_err().to_string();
            assert!(got.contains(message), "{got}");
        }
        let deep = "<a b>\n".repeat(100);
        assert!(matches!(tree(&deep), Err(ReadError::TooDeep { .. })));
    }
}
