//! Colours of shards.

/// Told apart by most eyes, and on paper.
const FEW: [&str; 8] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#777777"];

/// The colour of a shard, of so many.
pub(super) fn colour(shard: usize, shards: usize) -> String {
    if shards <= FEW.len() {
        return FEW.get(shard).copied().unwrap_or("#777777").into();
    }
    // Neighbours differ by the golden angle, and every third one in lightness.
    let hue = (shard as f64 * 137.508) % 360.0;
    let light = [0.42, 0.55, 0.66][shard % 3];
    let channel = |shift: f64| {
        let along = ((shift + hue / 30.0) % 12.0 - 3.0).min(9.0 - (shift + hue / 30.0) % 12.0);
        let value = light - 0.6 * f64::min(light, 1.0 - light) * along.clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn shards_have_colours_of_their_own() {
        for shards in [1, 8, 9, 64] {
            let colours: HashSet<_> = (0..shards).map(|i| super::colour(i, shards)).collect();
            assert_eq!(colours.len(), shards);
            assert!(colours.iter().all(|colour| colour.len() == 7 && colour.starts_with('#')));
        }
    }
}
