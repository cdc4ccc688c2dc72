//! Values of environment variables, read as the vendor's libraries read them.
//!
//! The safe crates judge a configuration by what a library will make of its environment, and the
//! CPU backend stands in for the library. They agree only if one parser serves all of them.

use std::ffi::OsString;

/// Where variables come from: the process's environment, or a test's.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A variable of this process; empty counts as unset, as it does to the vendor's libraries.
pub(crate) fn os_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A variable of this process: `None` when it is not set or empty, which the libraries treat
/// alike. Bytes that are not UTF-8 are replaced, since no value that means something has any.
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    os_variable(name).map(|value| value.to_string_lossy().into_owned())
}

/// What C takes for white space.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];

/// What C's `strtoul` makes of a text in base 10: blanks, a sign, digits up to anything else.
/// Without digits it is 0, a negative number wraps, and one that is too large is `u64::MAX`.
#[must_use]
pub fn strtoul(text: &str) -> u64 {
    let text = text.trim_start_matches(BLANKS);
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let digits = text.get(..end).unwrap_or_default();
    // Digits that cannot be parsed are too many.
    let value = if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok() };
    match value {
        Some(value) if negative => value.wrapping_neg(),
        Some(value) => value,
        None => u64::MAX,
    }
}

/// A whole number and nothing else: blanks, a plus sign, digits, the end. `None` for anything else
/// and for what needs more than 64 bits.
#[must_use]
pub fn strict_integer(text: &str) -> Option<u64> {
    let text = text.trim_start_matches(BLANKS);
    digits(text.strip_prefix('+').unwrap_or(text))
}

/// As [`strict_integer`], for a C `int` that is more than 0.
#[must_use]
pub fn positive_int(text: &str) -> Option<i32> {
    let value = strict_integer(text)?;
    i32::try_from(value).ok().filter(|value| *value > 0)
}

fn digits(text: &str) -> Option<u64> {
    let decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if decimal { text.parse().ok() } else { None }
}

/// `1`, `on` and `true`, or `0`, `off` and `false`, in any case; `None` for anything else.
#[must_use]
pub fn flag(text: &str) -> Option<bool> {
    match word(text, &["1", "on", "true", "0", "off", "false"])? {
        0..3 => Some(true),
        _ => Some(false),
    }
}

/// As [`flag`], or `yes` or `no`.
#[must_use]
pub fn flag_or_yes_no(text: &str) -> Option<bool> {
    match word(text, &["yes", "no"]) {
        Some(at) => Some(at == 0),
        None => flag(text),
    }
}

/// Which of the words it is, in any case.
#[must_use]
pub fn word(text: &str, words: &[&str]) -> Option<usize> {
    words.iter().position(|word| text.eq_ignore_ascii_case(word))
}

/// What a list of sizes must keep to; see [`size_list`].
#[derive(Debug, Clone, Copy)]
pub struct SizeListLimits {
    /// Most sizes.
    pub sizes: usize,
    /// The largest sum of the counts.
    pub counts: u64,
    /// The least that the largest size may be.
    pub largest_at_least: u64,
}

/// A list of `size[:count]` with commas between: sizes in bytes, or with `k` or `m` for 2^10 and
/// 2^20, and how many there are of each, 1 if it does not say. All are positive numbers without a
/// sign; blanks may stand around them. Gives sizes and counts by ascending size, `None` for
/// anything else, for one size twice, and for what breaks the limits.
#[must_use]
pub fn size_list(text: &str, limits: SizeListLimits) -> Option<Vec<(u64, u64)>> {
    let mut list = Vec::new();
    let mut sum = 0_u64;
    for item in text.split(',') {
        let (size, count) = match item.split_once(':') {
            Some((size, count)) => (size, digits(count.trim_matches(BLANKS))?),
            None => (item, 1),
        };
        let size = scaled(size.trim_matches(BLANKS))?;
        sum = sum.checked_add(count)?;
        if size == 0 || count == 0 || list.len() == limits.sizes {
            return None;
        }
        list.push((size, count));
    }
    list.sort_unstable();
    let distinct = list.iter().zip(list.iter().skip(1)).all(|(a, b)| a.0 != b.0);
    let enough = list.last().is_some_and(|(size, _)| *size >= limits.largest_at_least);
    (distinct && enough && sum <= limits.counts).then_some(list)
}

/// Digits, and `k` or `m` right after them.
fn scaled(text: &str) -> Option<u64> {
    let (number, unit) = if let Some(number) = text.strip_suffix(['k', 'K']) {
        (number, 1 << 10)
    } else if let Some(number) = text.strip_suffix(['m', 'M']) {
        (number, 1 << 20)
    } else {
        (text, 1)
    };
    digits(number)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strtoul_reads_a_sign_and_digits_and_ignores_the_rest() {
        for (text, value) in [
            ("40", 40),
            ("+16", 16),
            (" 40", 40),
            (" \t\n\u{b}\u{c}\r+40", 40),
            ("\t40x", 40),
            ("24 SMs", 24),
            ("007", 7),
            ("", 0),
            ("x40", 0),
            ("many", 0),
            ("+", 0),
            ("+-4", 0),
            ("- 4", 0),
            ("\u{a0}4", 0),
            ("-1", u64::MAX),
            ("-16", u64::MAX - 15),
            ("4294967312", (1 << 32) + 16),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("-18446744073709551616", u64::MAX),
            ("99999999999999999999", u64::MAX),
        ] {
            assert_eq!(strtoul(text), value, "{text:?}");
        }
    }

    #[test]
    fn strict_integers_have_nothing_after_them() {
        for (text, value) in [("7", 7), (" +7", 7), ("\r\n0", 0), ("007", 7)] {
            assert_eq!(strict_integer(text), Some(value), "{text:?}");
        }
        for text in ["", "+", "-1", "7 ", "7x", "++7", "+ 7", "99999999999999999999"] {
            assert_eq!(strict_integer(text), None, "{text:?}");
        }
        assert_eq!(positive_int("2147483647"), Some(i32::MAX));
        for text in ["0", "2147483648", "4x"] {
            assert_eq!(positive_int(text), None, "{text:?}");
        }
    }

    #[test]
    fn flags_are_words_in_any_case() {
        for on in ["1", "on", "TRUE", "On"] {
            assert_eq!((flag(on), flag_or_yes_no(on)), (Some(true), Some(true)), "{on}");
        }
        for off in ["0", "off", "False"] {
            assert_eq!((flag(off), flag_or_yes_no(off)), (Some(false), Some(false)), "{off}");
        }
        for neither in ["", "2", " 1", "1 ", "onn"] {
            assert_eq!((flag(neither), flag_or_yes_no(neither)), (None, None), "{neither:?}");
        }
        assert_eq!((flag("yes"), flag_or_yes_no("Yes")), (None, Some(true)));
        assert_eq!((flag("NO"), flag_or_yes_no("NO")), (None, Some(false)));
    }

    const LIMITS: SizeListLimits = SizeListLimits { sizes: 8, counts: 64, largest_at_least: 2048 };

    #[test]
    fn size_lists_scale_and_sort() {
        let list = |text| size_list(text, LIMITS);
        assert_eq!(list("8k:2,1m"), Some(vec![(8192, 2), (1 << 20, 1)]));
        assert_eq!(list("1m,8K:2"), Some(vec![(8192, 2), (1 << 20, 1)]));
        assert_eq!(list(" 4k : 2 ,\t8k\u{b}"), Some(vec![(4096, 2), (8192, 1)]));
        assert_eq!(list("2048"), Some(vec![(2048, 1)]));
        assert_eq!(list("1M,1k:63"), Some(vec![(1024, 63), (1 << 20, 1)]));
        assert_eq!(list("1,2048").map(|list| list.len()), Some(2));
        assert_eq!(list("1k,2k,3k,4k,5k,6k,7k,8k").map(|list| list.len()), Some(8));
    }

    #[test]
    fn size_lists_that_are_none() {
        let nine = "2048,2049,2050,2051,2052,2053,2054,2055,2056";
        for text in [
            "1k",
            "2k:65",
            "2k:63,4k:2",
            "4k,4096",
            "4k,",
            "4kb",
            "4 k",
            "4g",
            "",
            "4k:0",
            "0,4k",
            "+4k",
            "-4k",
            "4k:+2",
            "4k:",
            "4k:2:2",
            ":2",
            "k",
            "99999999999999999999",
            "18014398509481984k",
            nine,
        ] {
            assert_eq!(size_list(text, LIMITS), None, "{text:?}");
        }
    }
}
