//! Tests made of tables.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libtest_mimic::Trial;

/// Checks every row, also after one that fails, and then fails with the name and the words of each
/// that did.
///
/// # Panics
/// If a row fails, or there is none.
#[track_caller]
pub fn check_rows<N: Display, R>(rows: impl IntoIterator<Item = (N, R)>, check: impl Fn(R)) {
    let (mut count, mut failures) = (0, Vec::new());
    for (name, row) in rows {
        count += 1;
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| check(row))) {
            failures.push(format!("{name}: {}", words(&*payload)));
        }
    }
    assert!(count > 0, "the table is empty");
    assert!(failures.is_empty(), "{} of {count} rows:\n{}", failures.len(), failures.join("\n"));
}

/// A trial that passes unless `check` panics.
pub fn trial(name: impl Into<String>, check: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        check();
        Ok(())
    })
}

fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_that_fails_is_named() {
        let rows = [("one", 1), ("two", 2), ("three", 3)];
        let check = |n: i32| assert!(n % 2 == 0, "{n} is odd");
        let payload = catch_unwind(|| check_rows(rows, check)).unwrap_err();
        assert_eq!(words(&*payload), "2 of 3 rows:\none: 1 is odd\nthree: 3 is odd");
        check_rows([("two", 2)], check);
    }

    #[test]
    fn an_empty_table_fails() {
        let none: [(&str, ()); 0] = [];
        assert!(catch_unwind(|| check_rows(none, |()| ())).is_err());
    }
}
