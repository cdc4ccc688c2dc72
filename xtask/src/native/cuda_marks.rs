//! The CUDA major that a library is built for, told from its content.

use std::collections::BTreeSet;

/// The majors of all marks in a file: `Build cuda_13.3` of the compiler, `+cuda13.3` of the
/// vendor's version strings. Compressed parts repeat the text in pieces, which are no marks.
pub(crate) fn majors(data: &[u8]) -> BTreeSet<u32> {
    let mut majors = BTreeSet::new();
    let mut rest = data;
    let mut at = 0;
    while let Some(found) = position(rest, b"cuda") {
        let before = data.get(..at + found).unwrap_or_default();
        at += found + 4;
        rest = data.get(at..).unwrap_or_default();
        let number = match rest.strip_prefix(b"_") {
            Some(number) if before.ends_with(b"Build ") => number,
            None if before.ends_with(b"+") => rest,
            _ => continue,
        };
        let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if let (1..=3, Some(b'.')) = (digits, number.get(digits)) {
            let text = std::str::from_utf8(number.get(..digits).unwrap_or_default());
            majors.extend(text.ok().and_then(|text| text.parse::<u32>().ok()));
        }
    }
    majors
}

/// A search whose first step the compiler vectorises: libraries have hundreds of MiB.
fn position(data: &[u8], needle: &[u8; 4]) -> Option<usize> {
    let mut from = 0;
    loop {
        let found = data.get(from..)?.iter().position(|byte| *byte == needle[0])?;
        from += found;
        if data.get(from..)?.starts_with(needle) {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_counts_and_pieces_of_compressed_text_do_not() {
        let data =
            b"cuda Build cuda_12.9.r12.9/compiler\0ccuda +cuda13.3\0Build cuda_r/er.3 -cuda_14.0";
        assert_eq!(majors(data), BTreeSet::from([12, 13]));
        assert!(majors(b"cuda+cuda1").is_empty());
    }
}
