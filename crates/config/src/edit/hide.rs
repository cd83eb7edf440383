//! A configuration for those who may not read secrets.

use std::borrow::Cow;

use toml_edit::{DocumentMut, Item, TableLike, Value, value};

use crate::notify::origin_of;

/// In place of a secret. With it a URL is no URL, so that nobody puts it into the configuration by mistake.
const NOT_SHOWN: &str = "(not shown)";

/// The text with "(not shown)" in place of each secret that is written in it: passwords of groups, and what follows the
/// host in the URLs of web servers that get events. Everything else stays as it is.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        return Cow::Borrowed(text);
    };
    let served = document.get_mut("hyperscsi");
    let served = served.and_then(Item::as_table_like_mut);
    let groups = served.and_then(|served| served.get_mut("group"));
    let passwords = hide_each(groups, hide_password);
    let urls = hide_each(document.get_mut("notify"), hide_path);
    match passwords + urls {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(document.to_string()),
    }
}

/// Hides something in each entry of a list, however it is written. Gives how many had it.
fn hide_each(list: Option<&mut Item>, hide: fn(&mut dyn TableLike) -> Option<()>) -> usize {
    match list {
        Some(Item::ArrayOfTables(all)) => all.iter_mut().filter_map(|one| hide(one)).count(),
        Some(Item::Value(Value::Array(all))) => {
            let all = all.iter_mut().filter_map(Value::as_inline_table_mut);
            all.filter_map(|one| hide(one)).count()
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
    let origin = origin_of(text);
    let has_path = !matches!(text.get(origin.len()..), Some("" | "/"));
    has_path.then_some(())?;
    *url = value(format!("{origin}/{NOT_SHOWN}"));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_however_the_group_is_written() {
        for text in [
            "# a\n[[hyperscsi.group]]\nname = \"A\"\npassword = \"correct horse\" # b\n",
            "hyperscsi.group = [{ name = \"A\", password = \"correct horse\" }]\n",
            "hyperscsi = { group = [{ name = \"A\", password = 'correct horse' }] }\n",
            "[hyperscsi]\n[[hyperscsi.group]]\npassword = \"\"\"correct horse\"\"\"\n",
        ] {
            let shown = without_secrets(text);
            assert!(!shown.contains("horse"), "{shown}");
            assert!(shown.contains("(not shown)"), "{shown}");
        }
        let text = "[[lun]]\nid = \"password\"   # as it is\n";
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
        let text = "[[notify]]\nurl = 'https://a.example/'   # as it is\n";
        assert_eq!(without_secrets(text), text);
    }
}
