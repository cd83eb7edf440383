//! Characters that have a meaning of their own, and how they are written where they have not.

/// Characters, and the hexadecimal digits that stand for each after a percent sign. The percent sign comes first.
pub(super) type Escapes = &'static [(char, &'static str)];

/// What has a meaning of its own in a path.
pub(super) const IN_PATH: Escapes = &[('%', "25"), ('?', "3F")];

/// Writes these characters as a percent sign with their digits.
pub(super) fn escape(text: &str, escapes: Escapes) -> String {
    escapes
        .iter()
        .fold(text.to_owned(), |text, (character, digits)| {
            text.replace(*character, &format!("%{digits}"))
        })
}

/// Turns percent signs with the digits of these characters into the characters; all others stay.
pub(super) fn unescape(text: &str, escapes: Escapes) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut pieces = text.split('%');
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).unwrap_or(("", piece));
        let escape = escapes
            .iter()
            .find(|escape| escape.1.eq_ignore_ascii_case(digits));
        match escape {
            Some((character, _)) => {
                plain.push(*character);
                plain.push_str(rest);
            }
            None => {
                plain.push('%');
                plain.push_str(piece);
            }
        }
    }
    plain
}
