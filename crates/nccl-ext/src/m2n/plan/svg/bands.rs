//! The traffic: bands as wide as the bytes.

use std::fmt::Write as _;

use nccl_m2n::plan::Link;

use super::drawing::{BETWEEN, Drawing, PORT};
use crate::m2n::plan::palette::colour;

/// Most links between destination ranks that have arrows.
const MOST_ARROWS: usize = 32;

impl Drawing<'_> {
    /// Every link, from port to port. A port's links lie in the order of the other ends.
    pub(super) fn bands(&mut self) -> std::fmt::Result {
        let ranks = self.facts.plan.conditions().ranks;
        let total = |bytes: &[usize]| bytes.iter().map(|b| *b as f64 * self.scale).collect();
        let (sent, received): (Vec<f64>, Vec<f64>) =
            (total(&self.facts.traffic.sent), total(&self.facts.traffic.received));
        let (mut out_at, mut in_at) = (vec![0.0; ranks], vec![0.0; ranks]);
        let (mut puts, mut passed_on) = (Vec::new(), Vec::new());
        for link in &self.facts.traffic.links {
            let (Some(from), Some(to)) = (out_at.get_mut(link.from), in_at.get_mut(link.to)) else {
                continue;
            };
            let wide = link.bytes as f64 * self.scale;
            let is_put = self.facts.plan.source().contains(link.from);
            let panel = if is_put { &self.source } else { &self.destination };
            let start = panel.port(link.from) - sent.get(link.from).unwrap_or(&0.0) / 2.0 + *from;
            let end =
                self.destination.port(link.to) - received.get(link.to).unwrap_or(&0.0) / 2.0 + *to;
            (*from, *to) = (*from + wide, *to + wide);
            let list = if is_put { &mut puts } else { &mut passed_on };
            list.push((link, start, end, wide));
        }
        let arrows = passed_on.len() <= MOST_ARROWS;
        for (number, (link, start, end, wide)) in passed_on.into_iter().enumerate() {
            self.arc(link, number, [start + wide / 2.0, end + wide / 2.0], wide)?;
            if arrows {
                self.arrow(number, [start + wide / 2.0, end + wide / 2.0])?;
            }
        }
        puts.into_iter().try_for_each(|(link, start, end, wide)| self.band(link, start, end, wide))
    }

    fn band(&mut self, link: &Link, start: f64, end: f64, wide: f64) -> std::fmt::Result {
        let from = self.facts.plan.source().sharding();
        let shard = from.held_by(link.from).map_or(0, |(shard, _)| shard);
        let (left, right) = (self.source.ports + PORT, self.destination.ports);
        let bend = left + BETWEEN / 2.0;
        let (low, high) = (start + wide.max(0.6), end + wide.max(0.6));
        writeln!(
            self.out,
            r#"<path d="M{left:.1},{start:.2} C{bend:.1},{start:.2} {bend:.1},{end:.2} {right:.1},{end:.2} L{right:.1},{high:.2} C{bend:.1},{high:.2} {bend:.1},{low:.2} {left:.1},{low:.2} z" fill="{}" fill-opacity="0.62"><title>{}</title></path>"#,
            colour(shard, from.shards),
            hint(link),
        )
    }

    /// Between two destination ranks.
    fn arc(&mut self, link: &Link, number: usize, ends: [f64; 2], wide: f64) -> std::fmt::Result {
        let (x, half, bend) = (self.destination.ports, wide.max(0.6) / 2.0, self.bend(number));
        let (high, low) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        // The inner edge turns less far out.
        let inner = (bend + 2.6 * half).min(x);
        writeln!(
            self.out,
            r##"<path d="M{x:.1},{:.2} C{bend:.1},{:.2} {bend:.1},{:.2} {x:.1},{:.2} L{x:.1},{:.2} C{inner:.1},{:.2} {inner:.1},{:.2} {x:.1},{:.2} z" fill="#39424c" fill-opacity="0.16"><title>{}</title></path>"##,
            high - half,
            high - half,
            low + half,
            low + half,
            low - half,
            low - half,
            high + half,
            high + half,
            hint(link),
        )
    }

    /// The way along an arc.
    fn arrow(&mut self, number: usize, ends: [f64; 2]) -> std::fmt::Result {
        let ([start, end], x, bend) = (ends, self.destination.ports, self.bend(number));
        writeln!(
            self.out,
            r##"<path d="M{x:.1},{start:.2} C{bend:.1},{start:.2} {bend:.1},{end:.2} {x:.1},{end:.2}" fill="none" stroke="#39424c" stroke-dasharray="5 3" marker-end="url(#on)"/>"##
        )
    }

    /// How far out an arc turns. Neighbours keep some distance.
    fn bend(&self, number: usize) -> f64 {
        self.destination.ports - 50.0 - 34.0 * (number % 5) as f64
    }
}

fn hint(link: &Link) -> String {
    format!("rank {} to rank {}: {} bytes", link.from, link.to, link.bytes)
}
