//! What "to" stands for between two places.

/// All places between two ends, which differ in their last number or letter; none where they differ
/// in more.
pub(super) fn between(from: &str, to: &str) -> Vec<String> {
    let (Some((head, first)), Some((other, last))) = (split_last(from), split_last(to)) else {
        return Vec::new();
    };
    if head != other {
        return Vec::new();
    }
    if let (Some(first), Some(last)) = (single_letter(first), single_letter(last)) {
        return (first..last).skip(1).map(|letter| format!("{head}{letter}")).collect();
    }
    // The ends of "28d to 32" have letters; the rows between are not split.
    let number = |text: &str| text.trim_end_matches(char::is_alphabetic).parse::<u32>().ok();
    let (Some(from), Some(to)) = (number(first), number(last)) else { return Vec::new() };
    let width = if first.starts_with('0') { first.len() } else { 0 };
    (from.saturating_add(1)..to).map(|n| format!("{head}{n:0width$}")).collect()
}

/// The name before its last number or letter, and that.
fn split_last(place: &str) -> Option<(&str, &str)> {
    let cut = match place.rfind(['-', '.']) {
        Some(separator) => separator + 1,
        // A vector: a letter and a number.
        None => place.find(|c: char| c.is_ascii_digit())?,
    };
    place.split_at_checked(cut)
}

fn single_letter(text: &str) -> Option<char> {
    let mut letters = text.chars();
    let letter = letters.next().filter(char::is_ascii_lowercase)?;
    letters.next().is_none().then_some(letter)
}
