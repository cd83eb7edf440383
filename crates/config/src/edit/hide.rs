//! A configuration for those who may not read secrets.
//!
//! It has no comments: a key that is replaced is often left as one, with its secret.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use toml_edit::{DocumentMut, Item, TableLike, Value, value};

use super::identity::hyperscsi_name_of as name_of;
use super::list::{Row, rows};
use crate::NOT_SHOWN;
use crate::notify::origin_of;

/// The text with "(not shown)" in place of each secret that is written in it: passwords of groups, and what follows the
/// host in the URLs of web servers that get events. Comments are left out; everything else stays on its line as it is.
/// Of a text that is no TOML nothing is shown.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        return Cow::Borrowed("");
    };
    let served = document.get_mut("hyperscsi");
    let served = served.and_then(Item::as_table_like_mut);
    let groups = served.and_then(|served| served.get_mut("group"));
    let passwords = change_each(groups, hide_password);
    let urls = change_each(document.get_mut("notify"), hide_path);
    match passwords + urls {
        0 => without_comments(text),
        _ => Cow::Owned(without_comments(&document.to_string()).into_owned()),
    }
}

/// A text with others, which nobody knows, in place of the secrets that are written in it. So what follows from it is
/// the same whether they are those of the configuration or not, and nobody can try what they are.
#[must_use]
pub fn with_other_secrets(text: &str) -> Cow<'_, str> {
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        return Cow::Borrowed(text);
    };
    let unknown = format!("{:016x}", RandomState::new().hash_one(0));
    let served = document.get_mut("hyperscsi");
    let served = served.and_then(Item::as_table_like_mut);
    let groups = served.and_then(|served| served.get_mut("group"));
    let passwords = change_each(groups, |group| {
        let password = group.get_mut("password")?;
        let written = password.as_str().filter(|text| *text != NOT_SHOWN)?;
        let other: String = unknown.chars().cycle().take(written.len()).collect();
        *password = value(other);
        Some(())
    });
    let urls = change_each(document.get_mut("notify"), |receiver| {
        let url = receiver.get_mut("url")?;
        let written = url.as_str()?;
        let shown = shown_url(written);
        let other = (shown != written).then(|| format!("{written}{unknown}"))?;
        *url = value(other);
        Some(())
    });
    match passwords + urls {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(document.to_string()),
    }
}

/// A text as it may have come from [`without_secrets`], with the secrets of another in place of "(not shown)": the
/// password of the same group, and the URL at the same server. What the other does not have stays as it is.
#[must_use]
pub fn with_secrets_of<'a>(text: &'a str, known: &str) -> Cow<'a, str> {
    if !text.contains(NOT_SHOWN) {
        return Cow::Borrowed(text);
    }
    let (Ok(mut document), Ok(known)) = (text.parse::<DocumentMut>(), known.parse()) else {
        return Cow::Borrowed(text);
    };
    let known: DocumentMut = known;
    let mut passwords = HashMap::new();
    for group in tables(groups(&known)) {
        if let (Some(name), Some(password)) = (name_of(group), group.get("password")) {
            passwords.insert(name, password);
        }
    }
    let mut urls: HashMap<_, VecDeque<&str>> = HashMap::new();
    for receiver in tables(known.get("notify")) {
        if let Some(url) = receiver.get("url").and_then(Item::as_str) {
            urls.entry(shown_url(url)).or_default().push_back(url);
        }
    }
    let served = document.get_mut("hyperscsi");
    let served = served.and_then(Item::as_table_like_mut);
    let own = served.and_then(|served| served.get_mut("group"));
    change_each(own, |group| {
        let is_masked = group.get("password").and_then(Item::as_str) == Some(NOT_SHOWN);
        let password = passwords.get(&name_of(group)?).filter(|_| is_masked)?;
        *group.get_mut("password")? = (*password).clone();
        Some(())
    });
    change_each(document.get_mut("notify"), |receiver| {
        let url = receiver.get_mut("url")?;
        // Those of one server are matched by their order.
        let of_server = url.as_str().and_then(|url| urls.get_mut(url))?;
        *url = value(of_server.pop_front()?);
        Some(())
    });
    Cow::Owned(document.to_string())
}

fn groups(document: &DocumentMut) -> Option<&Item> {
    document.get("hyperscsi")?.as_table_like()?.get("group")
}

fn tables(list: Option<&Item>) -> impl Iterator<Item = &dyn TableLike> {
    rows(list).into_iter().filter_map(|row| match row {
        Row::Table(table) => Some(table),
        Row::Text(_) => None,
    })
}

/// A document of TOML without its comments.
///
/// Spec: TOML 1.0: a comment begins with a `#` that is in no string, and ends with its line. Strings are in `"`, where
/// a backslash takes the next character with it, or in `'`; three of one kind begin one of several lines.
fn without_comments(text: &str) -> Cow<'_, str> {
    if !text.contains('#') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['#', '"', '\'']) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        if let Some(comment) = from.strip_prefix('#') {
            shown.truncate(shown.trim_end_matches([' ', '\t']).len());
            let end = comment.find('\n');
            rest = end.and_then(|end| comment.get(end..)).unwrap_or("");
            continue;
        }
        let (string, behind) = from.split_at(string_bytes(from));
        shown.push_str(string);
        rest = behind;
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// How many bytes the string has that a text begins with.
fn string_bytes(text: &str) -> usize {
    let (quote, three) = match text.starts_with('"') {
        true => ('"', "\"\"\""),
        false => ('\'', "'''"),
    };
    let is_long = text.starts_with(three);
    let mark = three.get(if is_long { 0 } else { 2 }..).unwrap_or(three);
    let mut at = mark.len();
    while let Some(next) = text.get(at..).and_then(|inner| inner.chars().next()) {
        let inner = text.get(at..).unwrap_or("");
        if inner.starts_with(mark) {
            at = at.saturating_add(mark.len());
            // One or two quotes more are in the string.
            let behind = text.get(at..).unwrap_or("");
            let more = behind.len() - behind.trim_start_matches(quote).len();
            return if is_long { at + more } else { at };
        }
        at = at.saturating_add(next.len_utf8());
        if next == '\\' && quote == '"' {
            let taken = inner.chars().nth(1).map_or(0, char::len_utf8);
            at = at.saturating_add(taken);
        }
    }
    text.len()
}

/// Changes something in each entry of a list, however it is written. Gives how many had it.
fn change_each(
    list: Option<&mut Item>,
    mut change: impl FnMut(&mut dyn TableLike) -> Option<()>,
) -> usize {
    match list {
        Some(Item::ArrayOfTables(all)) => all.iter_mut().filter_map(|one| change(one)).count(),
        Some(Item::Value(Value::Array(all))) => {
            let all = all.iter_mut().filter_map(Value::as_inline_table_mut);
            all.filter_map(|one| change(one)).count()
        }
        Some(Item::None | Item::Table(_) | Item::Value(_)) | None => 0,
    }
}

fn hide_password(group: &mut dyn TableLike) -> Option<()> {
    *group.get_mut("password")? = value(NOT_SHOWN);
    Some(())
}

fn hide_path(receiver: &mut dyn TableLike) -> Option<()> {
    let url = receiver.get_mut("url")?;
    let text = url.as_str()?;
    let shown = shown_url(text);
    (shown != text).then_some(())?;
    *url = value(shown);
    Some(())
}

/// A URL as it is shown.
pub(crate) fn shown_url(url: &str) -> String {
    let origin = origin_of(url);
    match url.get(origin.len()..) {
        Some("" | "/") => url.to_owned(),
        Some(_) | None => format!("{origin}/{NOT_SHOWN}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_however_the_group_is_written() {
        for text in [
            "# a\n[[hyperscsi.group]]\n# password = 'horse'\npassword = \"correct horse\" # horse\n",
            "hyperscsi.group = [{ name = \"A\", password = \"correct horse\" }]\n",
            "hyperscsi = { group = [{ name = \"A\", password = 'correct horse' }] }\n",
            "[hyperscsi]\n[[hyperscsi.group]]\npassword = \"\"\"correct horse\"\"\"\n",
        ] {
            let shown = without_secrets(text);
            assert!(!shown.contains("horse"), "{shown}");
            assert!(shown.contains("(not shown)"), "{shown}");
        }
        let text = "[[lun]]\nid = \"password\"\n";
        assert_eq!(without_secrets(text), text);
    }

    #[test]
    fn of_a_url_only_the_server_is_shown() {
        for text in [
            "[[notify]]\nurl = \"https://a.example:8443/horse\"\n",
            "[[notify]]\nurl = 'https://a.example:8443?horse'\n[[notify]]\nurl = \"https://b\"\n",
            "notify = [{ url = \"https://a.example:8443/x/horse#\" }]\n",
        ] {
            let shown = without_secrets(text);
            assert!(!shown.contains("horse"), "{shown}");
            assert!(
                shown.contains("https://a.example:8443/(not shown)"),
                "{shown}"
            );
        }
        let text = "[[notify]]\nurl = 'https://a.example/'\n";
        assert_eq!(without_secrets(text), text);
    }

    #[test]
    fn what_was_shown_gets_the_secrets_of_the_same_things_back() {
        let known = r#"
[[hyperscsi.group]]
name = "A"
udp = "127.0.0.1"
password = "correct horse"
[[hyperscsi.group]]
name = "B"
udp = "127.0.0.1:6000"
password = "battery staple"
[[notify]]
url = "https://a.example/one"
[[notify]]
url = "https://a.example/two"
"#;
        let shown = without_secrets(known);
        assert_eq!(with_secrets_of(&shown, known), known);
        let swapped = shown
            .replace("\"A\"", "\"C\"")
            .replace("a.example", "b.example");
        let planned = with_secrets_of(&swapped, known);
        assert!(planned.contains("battery staple"), "{planned}");
        for other in ["horse", "one", "two"] {
            assert!(!planned.contains(other), "{planned}");
        }
        assert_eq!(
            with_secrets_of("a = \"(not shown)", known),
            "a = \"(not shown)"
        );
    }

    #[test]
    fn secrets_that_are_written_become_others_and_what_was_shown_stays() {
        let known = "[[hyperscsi.group]]\nname = \"A\"\npassword = \"correct horse\"\n\
                     [[notify]]\nurl = \"https://a.example/one\"\n[[notify]]\nurl = \"https://b.example\"\n";
        let shown = without_secrets(known);
        assert_eq!(with_other_secrets(&shown), shown);
        let (one, two) = (with_other_secrets(known), with_other_secrets(known));
        assert_ne!(one, two);
        assert_eq!(without_secrets(&one), shown);
        assert!(!one.contains("horse") && !one.contains("/one\""), "{one}");
        assert!(one.contains("\"https://b.example\""), "{one}");
        let bytes = |text: &str| text.find("\n[[notify").unwrap();
        assert_eq!(bytes(&one), bytes(known));
        for text in ["a = 1 # b", "a = \""] {
            assert_eq!(with_other_secrets(text), text);
        }
    }

    #[test]
    fn comments_are_left_out_and_strings_stay() {
        for (text, shown) in [
            ("# a\nb = 1 # c\n\t# d", "\nb = 1\n"),
            ("a = \"#1\\\"#2\" # c\n", "a = \"#1\\\"#2\"\n"),
            ("a = '#\\' # c\nb = 2\n", "a = '#\\'\nb = 2\n"),
            (
                "a = \"\"\"\n# in\\\"\"\"\"\" # c \"\n",
                "a = \"\"\"\n# in\\\"\"\"\"\"\n",
            ),
            ("a = '''\n# in''''' # c ' \n", "a = '''\n# in'''''\n"),
            (
                "a = [ # c\n  \"\", '', # d\n]\n\"#\" = 1\n",
                "a = [\n  \"\", '',\n]\n\"#\" = 1\n",
            ),
            ("a = 'é#' # é\r\n", "a = 'é#'\n"),
            ("a = 1 #", "a = 1"),
        ] {
            assert!(text.parse::<DocumentMut>().is_ok(), "{text}");
            assert_eq!(without_secrets(text), shown, "{text}");
        }
        assert_eq!(without_secrets("a = \"secret # no TOML"), "");
    }
}
