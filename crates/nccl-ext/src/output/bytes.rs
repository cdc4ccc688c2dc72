//! Bytes for people.

/// In the largest unit that gives at least 1, with three or four digits.
pub(crate) fn text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, bits) in UNITS {
        if bytes >> bits > 0 {
            let value = bytes as f64 / (1_u64 << bits) as f64;
            let digits = if value < 10.0 { 2 } else { 1 };
            return format!("{value:.digits$} {unit}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn units() {
        for (bytes, expected) in [
            (0, "0 B"),
            (512, "512 B"),
            (1024, "1.00 KiB"),
            (33536, "32.8 KiB"),
            (32 << 20, "32.0 MiB"),
            (7_516_192_768, "7.00 GiB"),
            (u64::MAX, "17179869184.0 GiB"),
        ] {
            assert_eq!(text(bytes), expected);
        }
    }
}
