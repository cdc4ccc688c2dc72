//! The answer for people.

use std::fmt::Write as _;
use std::ops::Range;

use nccl_m2n::Layout;
use nccl_m2n::plan::LoadBalance;

use super::facts::{PlanFacts, RankFacts, Role};
use crate::output::columns::Columns;
use crate::output::{self, bytes};

/// Most lines of a list; the rest is counted. `--json` has all.
const MOST_LINES: usize = 64;

impl PlanFacts {
    /// What the plan is, then its ranks, then its links.
    #[must_use]
    pub fn table(&self) -> String {
        output::text(|text| self.write_table(text))
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "nccl-ext m2n plan: what each rank sends and receives")?;
        for (name, words) in self.summary() {
            writeln!(text, "{name:<14}{words}")?;
        }
        writeln!(text)?;
        let heads = ["rank", "side", "block", "copy", "tile", "sends", "to", "receives", "from"];
        let rows = self.ranks.iter().take(MOST_LINES).map(row);
        Columns::new(|_| true).row(heads).rows(rows).write(text)?;
        write_rest(text, self.ranks.len(), "ranks")?;
        writeln!(text)?;
        let links = self.links();
        let rows = links.iter().take(MOST_LINES).cloned();
        Columns::new(|_| true).row(["link", "bytes", "way"]).rows(rows).write(text)?;
        write_rest(text, links.len(), "lines of links")
    }

    /// Names and words of what is true of the whole plan.
    pub(super) fn summary(&self) -> Vec<(&'static str, String)> {
        let plan = &self.plan;
        let bound = plan.lower_bound();
        let mut lines = vec![
            ("tensor", tensor(plan.source())),
            ("source", side(plan.source())),
            ("destination", side(plan.destination())),
            ("communicator", self.communicator()),
            ("transport", self.transport()),
            ("library", self.verdict()),
            ("load balance", format!("{}; {}", balance(plan.load_balance()), self.source_words())),
            (
                "busiest rank",
                format!(
                    "{}; no plan has less than {} (a source puts out {}, a destination takes in {})",
                    bytes::text(self.traffic.busiest() as u64),
                    bytes::text(bound.busiest() as u64),
                    bytes::text(bound.sent as u64),
                    bytes::text(bound.received as u64),
                ),
            ),
            ("coverage", self.coverage()),
            ("digest", plan.digest().to_string()),
        ];
        if self.from_environment {
            lines.insert(4, ("settings", "those that NCCL_RESHARD_* variables name here".into()));
        }
        lines
    }

    fn source_words(&self) -> String {
        let (most, least, mean) = self.source_load();
        let [least_text, most_text] = [least, most].map(|bytes| bytes::text(bytes as u64));
        if most == least {
            return format!("every source rank sends {most_text}");
        }
        let share = most as f64 / mean;
        format!(
            "source ranks send {least_text} to {most_text}, the busiest {share:.2} times the mean"
        )
    }

    fn communicator(&self) -> String {
        let conditions = self.plan.conditions();
        let (ranks, domain) = (conditions.ranks, conditions.fabric.domain_size);
        let domains = if domain >= ranks {
            "one NVLink domain".into()
        } else {
            format!("NVLink domains of {domain}")
        };
        let network = if conditions.fabric.gin { "a network with GIN" } else { "no network" };
        let idle = match &self.idle[..] {
            [] => String::new(),
            idle => format!("; hold nothing, and call all the same: {}", list(idle)),
        };
        format!("{}, {domains}, {network}{idle}", count(ranks, "rank", "ranks"))
    }

    fn transport(&self) -> String {
        let obstacle = self.plan.obstacle();
        let why = obstacle.map(|it| format!("; for the single-domain path: {}", it.advice()));
        format!("{} expected{}", self.plan.transport(), why.unwrap_or_default())
    }

    /// Whether the library takes the call.
    pub(super) fn verdict(&self) -> String {
        match &self.refused {
            None => "accepts".into(),
            Some(refusal) => format!("refuses, by {}: {refusal}", refusal.name),
        }
    }

    /// What was proved.
    pub(super) fn coverage(&self) -> String {
        match &self.proof {
            Ok(proof) => format!(
                "proved: {} fill {} of destination tiles, each once and from its place",
                count(proof.transfers, "transfer", "transfers"),
                count(proof.bytes, "byte", "bytes"),
            ),
            Err(problem) => format!("disproved: {problem}"),
        }
    }

    /// Links by sender; receivers of equally many bytes on one line.
    fn links(&self) -> Vec<[String; 3]> {
        let mut groups: Vec<(usize, usize, bool, Vec<usize>)> = Vec::new();
        for link in &self.traffic.links {
            let key = (link.from, link.bytes, link.local);
            match groups
                .iter_mut()
                .rev()
                .take_while(|group| group.0 == link.from)
                .find(|group| (group.0, group.1, group.2) == key)
            {
                Some(group) => group.3.push(link.to),
                None => groups.push((key.0, key.1, key.2, vec![link.to])),
            }
        }
        let line = |(from, bytes, local, to): (usize, usize, bool, Vec<usize>)| {
            let each = if to.len() > 1 { " each" } else { "" };
            let way = if local { "NVLink" } else { "network" };
            let size = bytes::text(bytes as u64);
            [format!("{from} -> {}", list(&to)), format!("{size}{each}"), way.into()]
        };
        groups.into_iter().map(line).collect()
    }
}

/// How destination replicas are shared out, in words.
pub(super) fn balance(mode: LoadBalance) -> &'static str {
    match mode {
        LoadBalance::Uniform => "uniform",
        LoadBalance::NodeAware => "node-aware",
    }
}

/// A tensor in words.
pub(super) fn tensor(layout: &Layout) -> String {
    let size = bytes::text(layout.global_bytes() as u64);
    format!("{} {}, {size}", layout.global_shape(), layout.data_type())
}

/// A side in words.
pub(super) fn side(layout: &Layout) -> String {
    let placements: Vec<_> = layout.placements().iter().map(ToString::to_string).collect();
    let (sharding, size) = (layout.sharding(), bytes::text(layout.local_bytes() as u64));
    let (mesh, placements) = (layout.mesh(), placements.join(","));
    format!(
        "{mesh} [{placements}]: {}, {} of each; a tile is {}, {size}",
        count(sharding.shards, "block", "blocks"),
        count(sharding.replicas, "copy", "copies"),
        layout.local_shape(),
    )
}

/// So many of something.
fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// Ascending numbers, runs of three or more as an interval.
pub(super) fn list(numbers: &[usize]) -> String {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number => run.end += 1,
            _ => runs.push(*number..number + 1),
        }
    }
    let texts = runs.into_iter().flat_map(|run| match run.len() {
        0..=2 => run.map(|number| number.to_string()).collect::<Vec<_>>(),
        _ => vec![format!("{}-{}", run.start, run.end - 1)],
    });
    texts.collect::<Vec<_>>().join(",")
}

/// `[0:256, 0:4096]`, as slices of an array.
fn slices(rank: &RankFacts) -> String {
    let text = |range: &Range<usize>| format!("{}:{}", range.start, range.end);
    format!("[{}]", rank.tile.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn row(rank: &RankFacts) -> [String; 9] {
    let peers = |peers: &[(usize, usize)]| match peers {
        [] => "-".into(),
        peers => list(&peers.iter().map(|(peer, _)| *peer).collect::<Vec<_>>()),
    };
    let side = if rank.role == Role::Source { "source" } else { "destination" };
    [
        rank.rank.to_string(),
        side.into(),
        rank.shard.to_string(),
        rank.replica.to_string(),
        slices(rank),
        bytes::text(rank.sent() as u64),
        peers(&rank.sends),
        bytes::text(rank.received() as u64),
        peers(&rank.receives),
    ]
}

fn write_rest(text: &mut String, all: usize, what: &str) -> std::fmt::Result {
    if all > MOST_LINES {
        writeln!(text, "and {} more {what}; --json has them", all - MOST_LINES)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_shorten_runs() {
        assert_eq!(super::list(&[4, 5, 6, 7]), "4-7");
        assert_eq!(super::list(&[0, 1, 3, 8, 9, 10]), "0,1,3,8-10");
        assert_eq!(super::list(&[]), "");
    }
}
