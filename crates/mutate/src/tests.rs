//! A small source in, its mutants out: one test for each operator, and for what is left alone.

use std::collections::BTreeSet;
use std::path::Path;

use crate::enums::Enums;
use crate::finder::{NAME, find};
use crate::{enums_of, read, sites_of};

const ENUM: &str = "enum Colour { Red, Green, Blue, Mixed(u8) }";

/// What each mutant of a source makes of it, with its operator.
fn mutants(text: &str) -> BTreeSet<(String, String)> {
    let mut enums = Enums::default();
    enums.add("paint", ENUM).unwrap();
    let found = find(text, "paint", &enums).unwrap();
    let mutated = found.sites.into_iter().map(|site| {
        let mut whole = text.to_owned();
        for edit in site.edits.iter().rev() {
            whole.replace_range(edit.range.clone(), &edit.new);
        }
        (site.operator, whole)
    });
    mutated.collect()
}

/// The mutants of the body of a function.
fn of_body(body: &str) -> BTreeSet<(String, String)> {
    let bare = |text: String| {
        text.strip_prefix("fn f() { ")
            .and_then(|text| text.strip_suffix(" }"))
            .unwrap()
            .to_owned()
    };
    mutants(&format!("fn f() {{ {body} }}"))
        .into_iter()
        .map(|(operator, text)| (operator, bare(text)))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    expected
        .iter()
        .map(|(operator, text)| ((*operator).to_owned(), (*text).to_owned()))
        .collect()
}

#[test]
fn a_comparison_becomes_its_neighbour() {
    for (from, to) in [
        ("<", "<="),
        ("<=", "<"),
        (">", ">="),
        (">=", ">"),
        ("==", "!="),
        ("!=", "=="),
    ] {
        let operator = format!("comparison: {from} to {to}");
        assert_eq!(
            of_body(&format!("a {from} b")),
            pairs(&[(&operator, &format!("a {to} b"))])
        );
    }
    assert_eq!(of_body("a + b"), pairs(&[]));
}

#[test]
fn a_number_moves_by_one_and_keeps_its_type() {
    assert_eq!(
        of_body("g(5_u8)"),
        pairs(&[
            ("boundary: 5_u8 to 4_u8", "g(4_u8)"),
            ("boundary: 5_u8 to 6_u8", "g(6_u8)")
        ])
    );
    assert_eq!(of_body("g(0)"), pairs(&[("boundary: 0 to 1", "g(1)")]));
    assert_eq!(
        of_body("g(0xff)"),
        pairs(&[
            ("boundary: 0xff to 254", "g(254)"),
            ("boundary: 0xff to 256", "g(256)")
        ])
    );
    assert_eq!(of_body("a.0"), pairs(&[]));
}

#[test]
fn and_becomes_or_around_the_whole_operands() {
    assert_eq!(
        of_body("a && b"),
        pairs(&[("logic: && to ||", "((a) || (b))")])
    );
    let both = pairs(&[
        ("logic: || to &&", "((a) && (b && c))"),
        ("logic: && to ||", "a || ((b) || (c))"),
    ]);
    assert_eq!(of_body("a || b && c"), both);
}

#[test]
fn a_condition_is_negated_unless_it_binds_or_compares() {
    assert_eq!(
        of_body("if a.b() {}"),
        pairs(&[("negation", "if !(a.b()) {}")])
    );
    assert_eq!(
        of_body("while !a {}"),
        pairs(&[("negation", "while !(!a) {}")])
    );
    assert_eq!(
        of_body("match a { b if c => {} }"),
        pairs(&[("negation", "match a { b if !(c) => {} }")])
    );
    assert_eq!(of_body("if let Some(b) = a && b {}"), pairs(&[]));
    assert_eq!(
        of_body("if a == b {}"),
        pairs(&[("comparison: == to !=", "if a != b {}")])
    );
}

#[test]
fn a_statement_without_a_value_is_dropped() {
    assert_eq!(of_body("a.b(); c"), pairs(&[("statement: none", " c")]));
    assert_eq!(of_body("a = b; c"), pairs(&[("statement: none", " c")]));
    assert_eq!(of_body("let _ = a; c"), pairs(&[("statement: none", " c")]));
    assert_eq!(of_body("let b = a; c"), pairs(&[]));
    assert_eq!(of_body("info!(5); c"), pairs(&[]));
}

#[test]
fn an_early_exit_is_dropped_where_it_may_be() {
    assert_eq!(of_body("return a; c"), pairs(&[("exit: no return", " c")]));
    assert_eq!(
        of_body("loop { break; }"),
        pairs(&[("exit: no break", "loop {  }")])
    );
    assert_eq!(
        of_body("loop { continue; }"),
        pairs(&[("exit: no continue", "loop {  }")])
    );
    assert_eq!(of_body("let Some(b) = a else { return; }; c"), pairs(&[]));
}

#[test]
fn two_arms_are_exchanged_where_neither_needs_what_the_other_binds() {
    let exchanged = ("arms", "match a { B => { y() } C => { x() } }");
    assert_eq!(
        of_body("match a { B => { x() } C => { y() } }"),
        pairs(&[exchanged])
    );
    assert_eq!(of_body("match a { B(x) => x, C => y }"), pairs(&[]));
    assert_eq!(of_body("match a { B(_) => x, C => x }"), pairs(&[]));
}

#[test]
fn a_constant_becomes_another_one() {
    assert_eq!(
        of_body("g(true)"),
        pairs(&[("constant: true to false", "g(false)")])
    );
    let green = ("constant: Colour::Red to Colour::Green", "g(Colour::Green)");
    assert_eq!(of_body("g(Colour::Red)"), pairs(&[green]));
    let red = (
        "constant: paint::Colour::Blue to paint::Colour::Red",
        "g(paint::Colour::Red)",
    );
    assert_eq!(of_body("g(paint::Colour::Blue)"), pairs(&[red]));
    assert_eq!(of_body("g(Colour::Mixed)"), pairs(&[]));
    let own = mutants("impl Colour { fn f() { Self::Red } }");
    assert_eq!(
        own,
        pairs(&[(
            "constant: Self::Red to Self::Green",
            "impl Colour { fn f() { Self::Green } }"
        )])
    );
}

#[test]
fn min_and_max_are_exchanged() {
    assert_eq!(
        of_body("a.min(b)"),
        pairs(&[("extreme: min to max", "a.max(b)")])
    );
    assert_eq!(
        of_body("a.max()"),
        pairs(&[("extreme: max to min", "a.min()")])
    );
    assert_eq!(
        of_body("cmp::max(a, b)"),
        pairs(&[("extreme: max to min", "cmp::min(a, b)")])
    );
}

#[test]
fn what_is_checked_is_ignored() {
    for what in ["add", "mul", "sub"] {
        let operator = format!("unchecked: checked_{what}");
        let wrapping = format!("Some(a.wrapping_{what}(b))");
        let body = format!("a.checked_{what}(b)");
        assert_eq!(of_body(&body), pairs(&[(&operator, &wrapping)]));
    }
    assert_eq!(of_body("a.saturating_sub(b)"), pairs(&[]));
    let ignored = ("unchecked: error ignored", "let _ = a.b(); c");
    assert_eq!(
        of_body("a.b()?; c"),
        pairs(&[ignored, ("statement: none", " c")])
    );
    assert_eq!(of_body("let b = a()?; c"), pairs(&[]));
}

#[test]
fn tests_constants_patterns_and_texts_are_left_alone() {
    for text in [
        "#[cfg(test)] mod tests { fn f() { a < b } }",
        "#[cfg(feature = \"testing\")] fn f() { a < b }",
        "#[cfg(any(test, feature = \"testing\"))] impl A { fn f() { a < b } }",
        "#[test] fn f() { a < b }",
        "#[cfg(test)] mod tests;",
        "const A: bool = 1 < 2; static B: [u8; 3] = [0; 3];",
        "enum A { B = 1 }",
        "impl fmt::Display for A { fn fmt() { a < b } }",
        "impl Debug for A { fn fmt() { a < b } }",
        "fn f(a: [u8; 4]) -> [u8; 5] { match a { [1, ..] => g::<6>([b; 7]), _ => const { 8 } } }",
        "fn f() { debug_assert!(a < b, \"{}\", 1) }",
        "macro_rules! m { () => { 1 < 2 } }",
    ] {
        let left: Vec<_> = mutants(text)
            .into_iter()
            .filter(|(operator, _)| operator != "arms")
            .collect();
        assert_eq!(left, [], "{text}");
    }
    assert_eq!(
        mutants("#[cfg(target_os = \"linux\")] fn f() { a < b }").len(),
        1
    );
}

#[test]
fn what_follows_a_broken_invariant_is_left_alone() {
    let broken = "if a { debug_assert!(false, \"no\"); g(); return; }";
    let negated = broken.replace("if a", "if !(a)");
    assert_eq!(of_body(broken), pairs(&[("negation", &negated)]));
    assert_eq!(
        of_body("debug_assert!(a, \"no\"); g();"),
        pairs(&[("statement: none", "debug_assert!(a, \"no\"); ")]),
    );
}

#[test]
fn each_is_a_switch_with_the_text_as_it_was() {
    let find = |text: &str| find(text, "paint", &Enums::default()).unwrap().sites;
    let [site] = &find("impl A { fn f() { a\n  < b } }")[..] else {
        panic!("one")
    };
    assert_eq!(
        (site.function.as_str(), site.text.as_str()),
        ("A::f", "a < b")
    );
    let put = format!("(if crate::mutant(\"{NAME}\") {{ (a\n  <= b) }} else {{ (a\n  < b) }})");
    assert_eq!(site.edits[0].put, put);
    let [site] = &find("fn f() { g(); }")[..] else {
        panic!("one")
    };
    assert_eq!(
        site.edits[0].put,
        format!("if crate::mutant(\"{NAME}\") {{  }} else {{ g(); }}")
    );
    let [site] = &find("fn f() { match a { B => x, C => y } }")[..] else {
        panic!("one")
    };
    let puts: Vec<&str> = site.edits.iter().map(|edit| edit.put.as_str()).collect();
    let switch = |new: &str, old: &str| {
        format!("{{ if crate::mutant(\"{NAME}\") {{ ({new}) }} else {{ ({old}) }} }}")
    };
    assert_eq!(puts, [switch("y", "x"), switch("x", "y")]);
}

#[test]
fn a_constant_is_known_by_what_stands_around_it() {
    let found = find(
        "fn f() { let a = g(1,\n 2); h(1); }",
        "paint",
        &Enums::default(),
    )
    .unwrap();
    let texts: BTreeSet<_> = found
        .sites
        .iter()
        .filter(|site| site.kind == "boundary")
        .map(|site| site.text.as_str())
        .collect();
    assert_eq!(texts, BTreeSet::from(["let a = g(1, 2);", "h(1);"]));
}

#[test]
fn modules_in_files_are_followed_unless_they_are_tests() {
    let text = "mod a; pub mod b { mod c; } #[cfg(test)] mod tests; #[cfg(feature = \"testing\")] pub mod testing;";
    assert_eq!(
        find(text, "paint", &Enums::default()).unwrap().modules,
        ["a", "b/c"]
    );
}

#[test]
fn each_mark_of_an_equivalent_mutant_has_a_reason_and_fits_an_edit() {
    const KEY: [&str; 4] = ["crate", "function", "operator", "text"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let marks: toml::Table = read(&root.join("tests/mutants/equivalent.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let enums = enums_of(&root.join("crates")).unwrap();
    let mut keys = BTreeSet::new();
    for mark in marks["equivalent"].as_array().unwrap() {
        let name = mark["crate"].as_str().unwrap();
        if keys.iter().all(|key: &[String; 4]| key[0] != name) {
            let sites = sites_of(&root, name, &enums).unwrap();
            keys.extend(
                sites
                    .iter()
                    .map(|site| KEY.map(|part| site[part].as_str().unwrap().to_owned())),
            );
        }
        let key = KEY.map(|part| mark[part].as_str().unwrap().to_owned());
        assert!(keys.contains(&key), "no edit fits {key:?}");
        assert!(
            !mark["reason"].as_str().unwrap().is_empty(),
            "{key:?} has no reason"
        );
    }
}
