//! How many snapshots are taken at a time, and by whom.

use std::sync::{Mutex, PoisonError};

/// Orders at a time. Each takes a thread of the administration for as long as a file system hangs.
const ORDERS_MAX: usize = 2;

/// Who gives an order now. One author has one place, so that nobody keeps all others from theirs.
pub(super) type Orders = Mutex<Vec<String>>;

pub(super) static ORDERS: Orders = Mutex::new(Vec::new());

/// The right to take snapshots. Ends with this value.
#[derive(Debug)]
pub(super) struct Order<'a> {
    orders: &'a Orders,
    author: String,
}

/// Begins an order of this author.
///
/// # Errors
///
/// Why it may not, with what helps.
pub(super) fn begin<'a>(orders: &'a Orders, author: &str) -> Result<Order<'a>, String> {
    let mut given = orders.lock().unwrap_or_else(PoisonError::into_inner);
    if given.iter().any(|other| other == author) {
        return Err(format!(
            "another snapshot of {author} is being taken, and each has one at a time; try again in a moment"
        ));
    }
    if given.len() >= ORDERS_MAX {
        return Err(format!(
            "{ORDERS_MAX} snapshots are being taken; try again in a moment"
        ));
    }
    given.push(author.to_owned());
    Ok(Order {
        orders,
        author: author.to_owned(),
    })
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        let mut given = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|other| *other != self.author);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_author_has_one_place_and_all_together_have_two() {
        let orders = Orders::default();
        let first = begin(&orders, "uid 0").unwrap();
        let twice = begin(&orders, "uid 0").unwrap_err();
        assert!(twice.contains("of uid 0"), "{twice}");
        let _second = begin(&orders, "night").unwrap();
        let third = begin(&orders, "day").unwrap_err();
        assert!(third.contains("2 snapshots"), "{third}");
        drop(first);
        assert!(begin(&orders, "day").is_ok());
    }
}
