//! A configuration for those who may not read secrets.

use std::borrow::Cow;

use toml_edit::{DocumentMut, Item, TableLike, Value, value};

/// In place of a password.
const NOT_SHOWN: &str = "(not shown)";

/// The text with "(not shown)" in place of each password that is written in it. Everything else stays as it is.
#[must_use]
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        return Cow::Borrowed(text);
    };
    let groups = document.get_mut("hyperscsi");
    let groups = groups.and_then(Item::as_table_like_mut);
    let hidden = match groups.and_then(|served| served.get_mut("group")) {
        Some(Item::ArrayOfTables(groups)) => groups.iter_mut().filter_map(|one| hide(one)).count(),
        Some(Item::Value(Value::Array(groups))) => {
            let groups = groups.iter_mut().filter_map(Value::as_inline_table_mut);
            groups.filter_map(|one| hide(one)).count()
        }
        Some(Item::None | Item::Table(_) | Item::Value(_)) | None => 0,
    };
    match hidden {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(document.to_string()),
    }
}

fn hide(group: &mut dyn TableLike) -> Option<()> {
    *group.get_mut("password")? = value(NOT_SHOWN);
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
            let shown = without_passwords(text);
            assert!(!shown.contains("horse"), "{shown}");
            assert!(shown.contains("(not shown)"), "{shown}");
        }
        let text = "[[lun]]\nid = \"password\"   # as it is\n";
        assert_eq!(without_passwords(text), text);
    }
}
