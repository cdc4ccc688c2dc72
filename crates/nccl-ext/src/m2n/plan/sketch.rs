//! One rank of the drawing: a cell with a small picture of the tensor, and in it the rank's tile.

use std::fmt::Write as _;
use std::ops::Range;

use nccl_m2n::plan::Plan;

use super::facts::{RankFacts, Role};
use super::palette::colour;

/// A rectangle of the drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Lowest cell that has room for a picture below its name.
const PICTURE: f64 = 44.0;

/// Narrowest cell that has room for one beside it, or for words.
const BESIDE: f64 = 64.0;

/// What a rank holds, where there is room with words.
pub(super) fn cell(
    out: &mut String,
    plan: &Plan,
    rank: &RankFacts,
    area: Area,
) -> std::fmt::Result {
    let Area { x, y, width, height } = area;
    writeln!(
        out,
        r##"<g><title>{}</title><rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="5" fill="#ffffff" stroke="#9aa3ad"/>"##,
        escaped(&hint(rank)),
    )?;
    let (name, size) = match width {
        wide if wide >= 60.0 => (format!("rank {}", rank.rank), (height * 0.5).clamp(5.0, 12.0)),
        _ => (rank.rank.to_string(), (width * 0.3).min(height * 0.6).clamp(5.0, 12.0)),
    };
    let above = height >= PICTURE;
    let beside = !above && width >= BESIDE;
    let middle = if beside { x + width * 0.29 } else { x + width / 2.0 };
    let baseline = if above { y + 15.0 } else { y + height / 2.0 + size * 0.36 };
    writeln!(
        out,
        r#"<text x="{middle:.1}" y="{baseline:.1}" font-size="{size:.1}" font-weight="bold" text-anchor="middle">{name}</text>"#,
    )?;
    let side = (width * 0.1).min(10.0);
    let words = above && height >= PICTURE + 14.0 && width >= BESIDE;
    if above {
        let below = if words { 18.0 } else { 6.0 };
        let (width, height) = (width - 2.0 * side, height - 20.0 - below);
        tile(out, plan, rank, Area { x: x + side, y: y + 20.0, width, height })?;
    } else if beside {
        let (x, width) = (x + width * 0.6, width * 0.34);
        tile(out, plan, rank, Area { x, y: y + 3.0, width, height: height - 6.0 })?;
    }
    if words {
        let (bottom, held) = (y + height - 6.0, held(plan, rank));
        let size = (1.6 * width / held.len() as f64).min(10.0);
        writeln!(
            out,
            r##"<text x="{middle:.1}" y="{bottom:.1}" font-size="{size:.1}" text-anchor="middle" fill="#55606b">{held}</text>"##
        )?;
    }
    writeln!(out, "</g>")
}

/// The whole tensor in grey, the rank's part of it in the colours of the source shards.
fn tile(out: &mut String, plan: &Plan, rank: &RankFacts, area: Area) -> std::fmt::Result {
    let (from, shape) = (plan.source().sharding(), plan.source().global_shape());
    let [down, across] = shown(plan);
    let rect = |out: &mut String, part: &[Range<usize>], fill: &str| {
        // A dimension that is not there, or has no elements, is shown whole.
        let span = |dim: Option<usize>| {
            let ends = dim.and_then(|dim| Some((part.get(dim)?, *shape.get(dim)? as f64)));
            let (range, extent) =
                ends.filter(|(_, extent)| *extent > 0.0).unwrap_or((&(0..1), 1.0));
            (range.start as f64 / extent, range.len() as f64 / extent)
        };
        let ((top, high), (left, wide)) = (span(down), span(across));
        writeln!(
            out,
            r#"<rect x="{:.2}" y="{:.2}" width="{:.2}" height="{:.2}" fill="{fill}"/>"#,
            area.x + left * area.width,
            area.y + top * area.height,
            (wide * area.width).max(0.5),
            (high * area.height).max(0.5),
        )
    };
    let whole: Vec<_> = shape.iter().map(|extent| 0..*extent).collect();
    rect(out, &whole, "#e6e9ec")?;
    let block = shape.get(from.dim).copied().unwrap_or(0) / from.shards.max(1);
    for shard in 0..from.shards {
        let mut part = rank.tile.clone();
        if let Some(range) = part.get_mut(from.dim) {
            *range = range.start.max(shard * block)..range.end.min((shard + 1) * block);
            if range.start >= range.end {
                continue;
            }
        }
        rect(out, &part, &colour(shard, from.shards))?;
    }
    Ok(())
}

/// The dimensions that a picture has, down and across: those that are cut, and others as far as
/// there is room.
fn shown(plan: &Plan) -> [Option<usize>; 2] {
    let ndims = plan.source().global_shape().len();
    let mut dims = vec![plan.source().sharding().dim, plan.destination().sharding().dim];
    dims.dedup();
    dims.extend((0..ndims).filter(|dim| !dims.contains(dim)).collect::<Vec<_>>());
    dims.truncate(2);
    dims.sort_unstable();
    match dims[..] {
        [down, across] => [Some(down), Some(across)],
        _ => [None, dims.first().copied()],
    }
}

/// `dim 0: 256 to 512`.
fn held(plan: &Plan, rank: &RankFacts) -> String {
    let layout = if rank.role == Role::Source { plan.source() } else { plan.destination() };
    let sharding = layout.sharding();
    match rank.tile.get(sharding.dim) {
        Some(range) if sharding.shards > 1 => {
            format!("dim {}: {}\u{2013}{}", sharding.dim, range.start, range.end)
        }
        _ => "all of it".into(),
    }
}

fn hint(rank: &RankFacts) -> String {
    format!(
        "rank {}: block {}, copy {}, tile {:?}; sends {} bytes, receives {}",
        rank.rank,
        rank.shard,
        rank.replica,
        rank.tile,
        rank.sent(),
        rank.received(),
    )
}

/// Text for XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
