//! The syntax of istgt: `[Section]` headings and lines of words below them.

use crate::lines;
use crate::tree::Node;
use crate::{ReadError, Source};

/// The sections of a text, in its order. Lines before the first heading are refused.
pub(crate) fn read(source: &Source<'_>) -> Result<Vec<Node>, ReadError> {
    let mut sections: Vec<Node> = Vec::new();
    for line in lines::joined(source.text) {
        let place = source.at(line.number);
        if let Some(heading) = line.text.strip_prefix('[') {
            let Some((name, _)) = heading.split_once(']') else {
                return Err(ReadError::syntax(place, "a heading is not closed"));
            };
            sections.push(Node::new(place, vec![name.trim().to_owned()]));
            continue;
        }
        let words = lines::words(source, &line)?;
        let Some(section) = sections.last_mut() else {
            return Err(ReadError::syntax(place, "a line before the first heading"));
        };
        if !words.is_empty() {
            section.children.push(Node::new(place, words));
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_the_heading_before_them() {
        let text = "[A1]\n k \"v w\" \\\n x\n[B]\n#no\n";
        let sections = read(&Source { name: "f", text }).unwrap();
        let keys: Vec<_> = sections.iter().map(Node::key).collect();
        assert_eq!(keys, ["A1", "B"]);
        assert_eq!(sections[0].children[0].words, ["k", "v w", "x"]);
        for text in ["k v\n", "[A\n"] {
            assert!(read(&Source { name: "f", text }).is_err(), "{text}");
        }
    }
}
