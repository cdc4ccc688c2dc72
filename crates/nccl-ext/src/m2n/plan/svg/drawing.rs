//! The page of a drawing, and everything on it but the bands.

use std::fmt::Write as _;

use nccl_m2n::Layout;

use super::panel::{HEADER, Panel};
use crate::failure::InputError;
use crate::m2n::plan::command::too_many;
use crate::m2n::plan::facts::{PlanFacts, RankFacts, Role};
use crate::m2n::plan::sketch::{cell, escaped};
use crate::m2n::plan::table;
use crate::output::bytes;

/// Most ranks of a side, and most links: more is no picture any more.
const MOST_RANKS: usize = 256;
const MOST_LINKS: usize = 16_384;

const MARGIN: f64 = 24.0;
const FOOTER: f64 = 72.0;
/// Between the ports of both sides.
pub(super) const BETWEEN: f64 = 320.0;
/// Names of ports, between a grid and its ports.
const NAMES: f64 = 116.0;
pub(super) const PORT: f64 = 7.0;

pub(super) struct Drawing<'a> {
    pub(super) facts: &'a PlanFacts,
    pub(super) source: Panel,
    pub(super) destination: Panel,
    /// Points a byte.
    pub(super) scale: f64,
    width: f64,
    tall: f64,
    pub(super) out: String,
}

/// # Errors
/// [`InputError`] when there is too much to draw.
pub(in crate::m2n::plan) fn draw(facts: &PlanFacts) -> Result<String, InputError> {
    let (source, destination) = (facts.plan.source(), facts.plan.destination());
    let ranks = source.mesh().size().max(destination.mesh().size());
    for (rule, most, found) in [
        ("a drawing has room for a side's ranks", MOST_RANKS, ranks),
        ("a drawing has room for the links", MOST_LINKS, facts.traffic.links.len()),
    ] {
        if found > most {
            return Err(too_many("--svg", rule, most, found));
        }
    }
    let lane = match ranks {
        0..=4 => 104.0,
        5..=8 => 80.0,
        9..=16 => 56.0,
        17..=32 => 34.0,
        _ => 18.0,
    };
    let tall = ranks as f64 * lane;
    let (mut from, mut to) = (Panel::new(source, tall), Panel::new(destination, tall));
    from.left = MARGIN;
    from.ports = from.left + from.width() + NAMES;
    to.ports = from.ports + PORT + BETWEEN;
    to.left = to.ports + PORT + NAMES;
    let busiest = |role| {
        let bytes = facts.of(role).map(|rank| rank.sent().max(rank.received()));
        bytes.max().unwrap_or(0).max(1) as f64
    };
    // The tallest port fills most of its lane.
    let scale =
        (0.72 * from.lane / busiest(Role::Source)).min(0.72 * to.lane / busiest(Role::Destination));
    let width = (to.left + to.width() + MARGIN).max(900.0);
    let mut drawing =
        Drawing { facts, source: from, destination: to, scale, width, tall, out: String::new() };
    // Writing to a string does not fail.
    let _ = drawing.page();
    Ok(drawing.out)
}

impl Drawing<'_> {
    fn page(&mut self) -> std::fmt::Result {
        let footer = self.footer();
        let height = HEADER + self.tall + FOOTER + 15.0 * footer.len() as f64;
        let width = self.width;
        writeln!(
            self.out,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" fill="#1d242b" role="img">"##
        )?;
        let plan = &self.facts.plan;
        let title = format!("{} to {}", plan.source(), plan.destination());
        writeln!(self.out, "<title>{}</title>", escaped(&title))?;
        writeln!(
            self.out,
            r##"<defs><marker id="on" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#39424c"/></marker></defs>"##
        )?;
        writeln!(self.out, r##"<rect width="100%" height="100%" fill="#fbfcfd"/>"##)?;
        self.heading()?;
        self.bands()?;
        for rank in &self.facts.ranks {
            let panel = self.panel(rank.role);
            let area = panel.area(rank.rank);
            cell(&mut self.out, &self.facts.plan, rank, area)?;
            self.port(rank)?;
        }
        let top = HEADER + self.tall + 22.0;
        self.measure(top)?;
        for (i, line) in footer.iter().enumerate() {
            self.text(MARGIN, top + 38.0 + 15.0 * i as f64, 11.0, "start", line)?;
        }
        writeln!(self.out, "</svg>")
    }

    fn panel(&self, role: Role) -> &Panel {
        if role == Role::Source { &self.source } else { &self.destination }
    }

    fn text(&mut self, x: f64, y: f64, size: f64, anchor: &str, text: &str) -> std::fmt::Result {
        let text = escaped(text);
        writeln!(
            self.out,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" text-anchor="{anchor}">{text}</text>"#
        )
    }

    fn heading(&mut self) -> std::fmt::Result {
        let plan = &self.facts.plan;
        let (source, destination) = (plan.source(), plan.destination());
        self.text(MARGIN, 34.0, 18.0, "start", &format!("Reshard of {}", table::tensor(source)))?;
        let verdict = if self.facts.refused.is_none() { "accepted" } else { "refused" };
        let busiest = bytes::text(self.facts.traffic.busiest() as u64);
        let bound = bytes::text(plan.lower_bound().busiest() as u64);
        let line = format!(
            "{} expected, {verdict} by the library; busiest rank {busiest}, lower bound {bound}",
            plan.transport()
        );
        self.text(MARGIN, 54.0, 12.0, "start", &line)?;
        let right = self.width - MARGIN;
        self.text(MARGIN, 84.0, 13.0, "start", &format!("source {}", short(source)))?;
        self.text(right, 84.0, 13.0, "end", &format!("destination {}", short(destination)))?;
        let tile = |layout: &Layout| {
            let bytes = bytes::text(layout.local_bytes() as u64);
            format!("tiles of {}, {bytes}", layout.local_shape())
        };
        self.text(MARGIN, 100.0, 11.0, "start", &tile(source))?;
        self.text(right, 100.0, 11.0, "end", &tile(destination))
    }

    /// A bar as tall as the bytes, with the rank's name.
    fn port(&mut self, rank: &RankFacts) -> std::fmt::Result {
        let panel = self.panel(rank.role);
        let (x, middle, lane) = (panel.ports, panel.port(rank.rank), panel.lane);
        let is_source = rank.role == Role::Source;
        let bytes = rank.sent().max(rank.received());
        let tall = (bytes as f64 * self.scale).max(1.0);
        let y = middle - tall / 2.0;
        writeln!(
            self.out,
            r##"<rect x="{x:.1}" y="{y:.1}" width="{PORT}" height="{tall:.1}" fill="#39424c"/>"##
        )?;
        let (at, anchor) = if is_source { (x - 6.0, "end") } else { (x + PORT + 6.0, "start") };
        let name = format!("rank {}", rank.rank);
        if lane < 30.0 {
            let size = (lane * 0.62).min(11.0);
            return self.text(at, middle + size * 0.36, size, anchor, &name);
        }
        self.text(at, middle - 2.0, 12.0, anchor, &name)?;
        let bytes = match (is_source, rank.sent()) {
            (true, sent) => format!("sends {}", bytes::text(sent as u64)),
            (false, 0) => format!("gets {}", bytes::text(rank.received() as u64)),
            (false, sent) => format!("passes on {}", bytes::text(sent as u64)),
        };
        self.text(at, middle + 12.0, 10.0, anchor, &bytes)
    }

    /// How wide a round number of bytes is.
    fn measure(&mut self, top: f64) -> std::fmt::Result {
        let most = 28.0 / self.scale;
        let bytes = 2_f64.powf(most.log2().floor()).max(1.0);
        let wide = bytes * self.scale;
        let x = self.source.ports + PORT + BETWEEN / 2.0 - 60.0;
        writeln!(
            self.out,
            r##"<rect x="{x:.1}" y="{:.1}" width="36" height="{wide:.2}" fill="#8b949e" fill-opacity="0.62"/>"##,
            top - wide / 2.0,
        )?;
        let text = format!("as wide as {}", bytes::text(bytes as u64));
        self.text(x + 44.0, top + 4.0, 11.0, "start", &text)
    }

    fn footer(&self) -> Vec<String> {
        let mut lines = vec![
            "Colours are those of the source's blocks, in bands and in tiles; grey is the rest of \
             the tensor."
                .to_owned(),
        ];
        if self.facts.traffic.links.iter().any(|link| !self.facts.plan.source().contains(link.from))
        {
            lines.push("Grey arcs: passed on from one destination rank to another.".into());
        }
        if !self.facts.idle.is_empty() {
            let idle: Vec<_> = self.facts.idle.iter().map(|rank| format!("rank {rank}")).collect();
            lines.push(format!("Hold nothing, and call all the same: {}.", idle.join(", ")));
        }
        let facts = [
            format!("Coverage {}.", self.facts.coverage()),
            format!("The library {}.", self.facts.verdict()),
        ];
        let room = ((self.width - 2.0 * MARGIN) / 5.9) as usize;
        lines.into_iter().chain(facts).flat_map(|line| wrapped(&line, room)).collect()
    }
}

fn short(layout: &Layout) -> String {
    let placements: Vec<_> = layout.placements().iter().map(ToString::to_string).collect();
    format!("{} [{}]", layout.mesh(), placements.join(","))
}

/// Lines of at most so many characters, as far as words allow.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}
