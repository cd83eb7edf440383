//! Tables as text: columns that are as wide as what is in them.

use daemon::error::plain;

/// Between two columns.
const GAP: &str = "  ";

/// A column of a table of `T`s, or a line of what is shown about one `T`.
pub(super) struct Column<T> {
    title: &'static str,
    is_figure: bool,
    cell: fn(&T) -> String,
}

/// A column of words, which begin at one place.
pub(super) const fn words<T>(title: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column {
        title,
        is_figure: false,
        cell,
    }
}

/// A column of figures, which end at one place.
pub(super) const fn figures<T>(title: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column {
        title,
        is_figure: true,
        cell,
    }
}

/// A line for each thing, under a line of titles. Names come from peers, so control characters
/// are escaped.
pub(super) fn table<T>(columns: &[Column<T>], things: &[T]) -> String {
    let titles = columns.iter().map(|c| c.title.to_uppercase()).collect();
    let cells = |thing| columns.iter().map(|c| plain(&(c.cell)(thing))).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles)
        .chain(things.iter().map(cells))
        .collect();
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = columns.iter().zip(&widths).zip(row);
        let cells = cells.map(|((column, &width), cell)| {
            if column.is_figure {
                format!("{cell:>width$}")
            } else {
                format!("{cell:width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join(GAP);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A line for each property of one; those without a value are left out.
pub(super) fn fields<T>(columns: &[Column<T>], thing: &T) -> String {
    let width = columns.iter().map(|column| column.title.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for column in columns {
        let value = plain(&(column.cell)(thing));
        if !value.is_empty() {
            text.push_str(&format!("{:width$}{GAP}{value}\n", column.title));
        }
    }
    text
}

/// Those that are not empty, in one cell.
pub(super) fn joined(texts: &[String], by: &str) -> String {
    let texts = texts.iter().map(String::as_str);
    texts
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join(by)
}

/// Names in one cell; none means no limit.
pub(super) fn or_everyone(names: &[String]) -> String {
    match names {
        [] => "everyone".to_owned(),
        names => names.join(", "),
    }
}

/// The word, or nothing.
pub(super) fn mark(is: bool, word: &str) -> String {
    if is { word.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column<(&str, u32)>] = &[
        words("name", |(name, _)| (*name).to_owned()),
        figures("count", |(_, count)| count.to_string()),
        words("more", |(_, count)| mark(*count > 5, "much")),
    ];

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        assert_eq!(
            table(COLUMNS, &[("a", 1), ("longer", 123_456)]),
            "NAME     COUNT  MORE\na            1\nlonger  123456  much\n"
        );
        assert_eq!(table(COLUMNS, &[]), "NAME  COUNT  MORE\n");
    }

    #[test]
    fn fields_without_a_value_are_left_out() {
        assert_eq!(fields(COLUMNS, &("a", 5)), "name   a\ncount  5\n");
    }

    #[test]
    fn a_name_from_a_peer_cannot_steer_the_terminal() {
        let text = table(COLUMNS, &[("a\x1b[2J\nb", 1)]);
        assert!(text.contains("a\\u{1b}[2J\\nb"), "{text}");
        assert_eq!(text.matches('\n').count(), 2, "{text}");
    }
}
