//! The answer for people.

use std::fmt::Write as _;

use nccl_ep::plan::{Buffer, Memory, Owner};

use super::report::{Asked, HtReceive, Outcome, PairPlan, Refusal, Report};
use super::size;

/// What high throughput is planned for.
const TEAM: &str = "all ranks in one NVLink domain";

/// What a cell says of a buffer that a pair does not have.
const NONE: &str = "-";

impl Report {
    /// A column for each pair, with what it is about.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let Asked { model, hidden, experts, topk, ranks, local_experts, .. } = self.asked;
        let Asked { tokens_per_rank, data_type, sms, .. } = self.asked;
        writeln!(text, "nccl-ext ep plan: device memory of one rank")?;
        let model = model.map_or_else(String::new, |model| format!("{model}: "));
        writeln!(
            text,
            "model   {model}hidden {hidden} {data_type}, {experts} experts, top-{topk}"
        )?;
        writeln!(
            text,
            "ranks   {ranks}; on each: experts {local_experts}, tokens a step up to \
             {tokens_per_rank}, SMs {sms}"
        )?;
        match self.asked.ht_receive {
            _ if !self.has_ht() => {}
            HtReceive::Eager { because } => writeln!(text, "HT      {TEAM}; eager, {because}")?,
            HtReceive::Budget { rows } => {
                writeln!(text, "HT      {TEAM}; a budget of {rows} rows a rank")?
            }
        }
        writeln!(text)?;
        if self.pairs.iter().any(|plan| plan.memory().is_some()) {
            self.write_columns(text)?;
            writeln!(text)?;
        }
        for (line, pairs) in self.lines() {
            writeln!(text, "{}: {line}", pairs.join(", "))?;
        }
        Ok(())
    }

    /// What there is to say of pairs, each with those of which it is said.
    fn lines(&self) -> Vec<(String, Vec<&'static str>)> {
        let mut lines: Vec<(String, Vec<_>)> = Vec::new();
        for plan in &self.pairs {
            for line in plan.lines() {
                match lines.iter_mut().find(|(known, _)| *known == line) {
                    Some((_, pairs)) => pairs.push(plan.pair.name),
                    None => lines.push((line, vec![plan.pair.name])),
                }
            }
        }
        lines
    }

    fn write_columns(&self, text: &mut String) -> std::fmt::Result {
        let plans: Vec<_> = self.pairs.iter().map(PairPlan::memory).collect();
        let heading = self.pairs.iter().map(|plan| plan.pair.name.to_owned());
        let mut rows = vec![(String::new(), heading.collect())];
        for owner in Owner::ALL {
            rows.push((owner.to_string(), cells(&plans, |memory| Some(memory.of(owner)))));
            for name in self.names(owner) {
                let bytes = |memory: &Memory| memory.buffer(name).map(|buffer| buffer.bytes);
                rows.push((format!("  {name}"), cells(&plans, bytes)));
                if let [Some(memory)] = plans[..] {
                    rows.extend(memory.buffer(name).into_iter().flat_map(details));
                }
            }
        }
        let mut total: Vec<_> = cells(&plans, |memory| Some(memory.total()));
        for (cell, plan) in total.iter_mut().zip(&plans) {
            if plan.is_none() {
                "refused".clone_into(cell);
            }
        }
        rows.push(("total".into(), total));
        write_aligned(text, &rows)
    }

    /// Buffers of an owner in any pair. Each stands after those that come before it in its pair.
    fn names(&self, owner: Owner) -> Vec<&'static str> {
        let mut names = Vec::new();
        for memory in self.pairs.iter().filter_map(PairPlan::memory) {
            let mut next = 0;
            for buffer in memory.buffers.iter().filter(|buffer| buffer.owner == owner) {
                let known = names.iter().position(|name| *name == buffer.name);
                let at = known.unwrap_or_else(|| {
                    names.insert(next, buffer.name);
                    next
                });
                next = next.max(at + 1);
            }
        }
        names
    }
}

impl PairPlan {
    fn lines(&self) -> Vec<String> {
        match &self.outcome {
            Outcome::Memory(memory) => {
                let notes =
                    memory.notes.iter().map(|note| format!("{} ({})", note.text, note.source));
                self.choice.map(str::to_owned).into_iter().chain(notes).collect()
            }
            Outcome::Refused(refusal) => vec![format!("refused: {refusal}")],
        }
    }
}

type Row = (String, Vec<String>);

fn cells(plans: &[Option<&Memory>], bytes: impl Fn(&Memory) -> Option<u64>) -> Vec<String> {
    let cell = |plan: &Option<&Memory>| plan.and_then(&bytes).map_or(NONE.into(), size::text);
    plans.iter().map(cell).collect()
}

/// Pieces of a buffer, where there is one column and so room for them.
fn details(buffer: &Buffer) -> Vec<Row> {
    let row =
        |prefix: &str, name: &str, bytes| (format!("{prefix}{name}"), vec![size::text(bytes)]);
    let pieces = buffer.pieces.iter().map(|piece| row("    ", piece.name, piece.bytes));
    let bank = buffer.bank.iter().map(|region| row("    each bank: ", region.name, region.bytes));
    pieces.chain(bank).collect()
}

fn write_aligned(text: &mut String, rows: &[Row]) -> std::fmt::Result {
    let first = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|(_, cells)| cells.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    for (name, cells) in rows {
        write!(text, "{name:<first$}")?;
        for (column, cell) in cells.iter().enumerate() {
            write!(text, "  {cell:>width$}", width = width(column))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { argument, rule, expected, found, source, .. } = self;
        write!(f, "`{argument}`: {rule}; expected {expected}, found {found} ({source})")
    }
}
