//! A line of a command as words, by the rules of shells: blanks part words, quotes and backslashes keep them together.

/// A line as far as the cursor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Partial {
    /// The words before the one that is being written.
    pub(crate) words: Vec<String>,
    /// That one, as far as it is there.
    pub(crate) last: String,
    /// Where it begins in the line.
    pub(crate) start: usize,
}

/// A quote has no end.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a quote {quote} has no end in this line")]
pub(crate) struct Unclosed {
    quote: char,
}

/// What the reader of a line is in the middle of.
struct Reader {
    words: Vec<String>,
    /// The word that is being read, and where it began.
    word: Option<(String, usize)>,
    quote: Option<char>,
}

/// The words of a line. What follows a `#` at the beginning of a word is a remark.
pub(crate) fn split(line: &str) -> Result<Vec<String>, Unclosed> {
    let Reader {
        mut words,
        word,
        quote,
    } = read(line);
    if let Some(quote) = quote {
        return Err(Unclosed { quote });
    }
    words.extend(word.map(|(word, _)| word));
    Ok(words)
}

/// The words of a line that is not finished.
pub(crate) fn partial(line: &str) -> Partial {
    let Reader { words, word, .. } = read(line);
    let (last, start) = word.unwrap_or_else(|| (String::new(), line.len()));
    Partial { words, last, start }
}

fn read(line: &str) -> Reader {
    let mut reader = Reader {
        words: Vec::new(),
        word: None,
        quote: None,
    };
    let mut characters = line.char_indices();
    while let Some((at, character)) = characters.next() {
        match (reader.quote, character) {
            (Some(quote), _) if character == quote => reader.quote = None,
            (None, '\'' | '"') => {
                reader.quote = Some(character);
                reader.word.get_or_insert_with(|| (String::new(), at));
            }
            (None | Some('"'), '\\') => {
                let (word, _) = reader.word.get_or_insert_with(|| (String::new(), at));
                word.extend(characters.next().map(|(_, character)| character));
            }
            (None, '#') if reader.word.is_none() => return reader,
            (None, character) if character.is_whitespace() => {
                reader
                    .words
                    .extend(reader.word.take().map(|(word, _)| word));
            }
            (None | Some(_), character) => {
                let (word, _) = reader.word.get_or_insert_with(|| (String::new(), at));
                word.push(character);
            }
        }
    }
    reader
}

/// A word as it is written in a line, so that a shell reads it as this one.
pub(crate) fn quoted(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    for (at, character) in word.char_indices() {
        let is_special = character.is_whitespace()
            || "'\"\\$`!*?[](){}<>|;&".contains(character)
            || (at == 0 && "#~".contains(character));
        if is_special {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_keep_words_together() {
        for (line, expected) in [
            ("", &[][..]),
            ("  lun  show\tweb ", &["lun", "show", "web"]),
            ("a 'b c' \"d 'e\" f\\ g", &["a", "b c", "d 'e", "f g"]),
            ("a'b'\"c\"d ''", &["abcd", ""]),
            ("'\\n' \"\\\"\"", &["\\n", "\""]),
            ("lun list # all", &["lun", "list"]),
            ("a#b", &["a#b"]),
            ("a\\", &["a"]),
        ] {
            assert_eq!(split(line).unwrap(), expected, "{line}");
        }
        for line in ["'a", "a \"b", "it's"] {
            assert!(split(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_last_word_is_the_one_that_is_written() {
        for (line, words, last, start) in [
            ("", &[][..], "", 0),
            ("lun", &[], "lun", 0),
            ("lun ", &["lun"], "", 4),
            ("lun show 'a b", &["lun", "show"], "a b", 9),
            ("lun sh", &["lun"], "sh", 4),
        ] {
            let found = partial(line);
            assert_eq!(found.words, words, "{line}");
            assert_eq!((found.last.as_str(), found.start), (last, start), "{line}");
        }
    }

    #[test]
    fn a_quoted_word_reads_back_as_itself() {
        for word in [
            "web",
            "iqn.2026-11.example:a",
            "ABC at eth1",
            "#a",
            "a'b\"c\\d",
            "pool:/srv",
            "x*?",
            "$(a)",
        ] {
            assert_eq!(split(&quoted(word)).unwrap(), [word], "{word}");
        }
    }
}
