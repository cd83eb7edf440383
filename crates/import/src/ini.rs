//! The syntax of istgt: `[Section]` headings and lines of words below them, as `istgt_conf.c` reads them.
//!
//! A comment is a line of its own; behind words the sign has no meaning. Names of sections and keys have no case.

use crate::lines;
use crate::tree::Node;
use crate::{ReadError, Source};

/// The sections of a text, in its order. Lines before the first heading are refused.
pub(crate) fn read(source: &Source<'_>) -> Result<Vec<Node>, ReadError> {
    let mut sections: Vec<Node> = Vec::new();
    for line in lines::joined(source.text) {
        let place = source.at(line.number);
        if let Some(heading) = line.text.strip_prefix('[') {
            let Some(name) = heading.strip_suffix(']') else {
                return Err(ReadError::syntax(place, "a heading is not closed"));
            };
            sections.push(Node::new(place, vec![name.to_owned()]));
            continue;
        }
        let words = words(&line.text).ok_or_else(|| lines::unclosed(place.clone()))?;
        let Some(section) = sections.last_mut() else {
            return Err(ReadError::syntax(place, "a line before the first heading"));
        };
        section.children.push(Node::new(place, words));
    }
    Ok(sections)
}

/// The words of a line. Quotes, single or double, hold blanks together; a backslash takes the next character as it is,
/// but between single quotes. `None` if a quote is not closed, or nothing is behind a backslash.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().push(characters.next()?),
            (character, Some(open)) if character == open => quote = None,
            (character, Some(_)) => word.get_or_insert_default().push(character),
            ('"' | '\'', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (' ' | '\t', None) => words.extend(word.take()),
            (character, None) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_the_heading_before_them() {
        let text = "[A1]\n k \"v w\" \\\n x\n[B]\n#no \\\ny\n";
        let sections = read(&Source { name: "f", text }).unwrap();
        let keys: Vec<_> = sections.iter().map(Node::key).collect();
        assert_eq!(keys, ["A1", "B"]);
        assert_eq!(sections[0].children[0].words, ["k", "v w", "x"]);
        assert_eq!(sections[1].children[0].words, ["y"]);
        for text in ["k v\n", "[A\n", "[A] x\n", "[A]\nk \"v\n", "[A]\nk v\\ \n"] {
            assert!(read(&Source { name: "f", text }).is_err(), "{text}");
        }
    }

    #[test]
    fn words_are_those_of_istgt() {
        for (text, expected) in [
            ("a  b\tc", vec!["a", "b", "c"]),
            ("a \"b c\" d", vec!["a", "b c", "d"]),
            ("a 'b \"c' # d", vec!["a", "b \"c", "#", "d"]),
            ("a\"b\\\"c\" x#y", vec!["ab\"c", "x#y"]),
            ("a \\# b\\ c '\\'", vec!["a", "#", "b c", "\\"]),
            ("\"\"", vec![""]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
    }
}
