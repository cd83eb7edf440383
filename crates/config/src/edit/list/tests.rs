//! One list and one edit in, the list afterwards out.

use super::*;

/// The list after an edit, as text.
fn after(text: &str, edit: impl FnOnce(&mut List<'_>)) -> String {
    let mut document: toml_edit::DocumentMut = format!("x = {text}\n").parse().unwrap();
    edit(&mut List::of(&mut document["x"]).unwrap());
    let text = document.to_string();
    let _: toml_edit::DocumentMut = text.parse().unwrap();
    text.trim_start_matches("x = ").trim_end().to_owned()
}

#[test]
fn an_entry_is_added_in_the_manner_of_the_list() {
    for (text, at, expected) in [
        ("[]", 0, "[9]"),
        ("[ ]", 0, "[ 9 ]"),
        ("[\n]", 0, "[\n    9\n]"),
        ("[1]", 1, "[1, 9]"),
        ("[ 1 ]", 1, "[ 1, 9 ]"),
        ("[ 1, 2 ]", 0, "[ 9, 1, 2 ]"),
        ("[1, 2]", 1, "[1, 9, 2]"),
        ("[\n  1,\n  2,\n]", 2, "[\n  1,\n  2,\n  9,\n]"),
        ("[\n  1,\n  2\n]", 2, "[\n  1,\n  2,\n  9\n]"),
        ("[\n  1, # one\n]", 1, "[\n  1, # one\n  9,\n]"),
        ("[\n  1 # one\n]", 1, "[\n  1, # one\n  9\n]"),
        ("[\n  1, # one\n  2,\n]", 0, "[\n  9,\n  1, # one\n  2,\n]"),
        (
            "[\n  1, # one\n  # of two\n  2,\n]",
            1,
            "[\n  1, # one\n  9,\n  # of two\n  2,\n]",
        ),
        ("[1 # one\n]", 1, "[1, # one\n    9\n]"),
    ] {
        let got = after(text, |list| list.insert(at, Value::from(9)));
        assert_eq!(got, expected, "{text}");
    }
}

#[test]
fn an_entry_goes_with_its_comments_and_leaves_those_of_others() {
    for (text, at, expected) in [
        ("[1]", 0, "[]"),
        ("[ 1, 2 ]", 0, "[ 2 ]"),
        ("[ 1, 2 ]", 1, "[ 1 ]"),
        ("[\n  1, # one\n  2, # two\n]", 0, "[\n  2, # two\n]"),
        ("[\n  1, # one\n  2, # two\n]", 1, "[\n  1, # one\n]"),
        ("[\n  1, # one\n  2 # two\n]", 1, "[\n  1 # one\n]"),
        (
            "[\n  # of one\n  1,\n  # of two\n  2,\n]",
            0,
            "[\n  # of two\n  2,\n]",
        ),
        ("[1, # one\n 2, 3]", 1, "[1, # one\n 3]"),
        ("[1, # one\n 2]", 1, "[1 # one\n ]"),
    ] {
        let got = after(text, |list| assert!(list.remove(at).is_none()));
        assert_eq!(got, expected, "{text}");
    }
}

#[test]
fn a_list_becomes_another_with_what_both_have_in_its_place() {
    let texts = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>();
    for (text, wanted, expected) in [
        ("[\"a\", \"b\"]", &["a", "b"][..], "[\"a\", \"b\"]"),
        ("[\"a\", \"b\"]", &["b", "a"], "[\"b\", \"a\"]"),
        ("[\"a\",\n \"b\"]", &["c", "b"], "[\n \"c\",\n \"b\"]"),
        (
            "[\n  \"a\", # a\n  \"b\", # b\n]",
            &["a", "c", "b"],
            "[\n  \"a\", # a\n  \"c\",\n  \"b\", # b\n]",
        ),
    ] {
        let wanted = texts(wanted);
        let name = |row: Row<'_>| match row {
            Row::Text(text) => text.to_owned(),
            Row::Table(_) => String::new(),
        };
        let got = after(text, |list| {
            list.reconcile(&wanted, name, |at| Value::from(wanted[at].as_str()));
        });
        assert_eq!(got, expected, "{text}");
    }
}
