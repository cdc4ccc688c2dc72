//! The answer for people.

use std::fmt::Write as _;

use nccl_ep::Mode;
use nccl_ep::plan::{Buffer, Memory, Owner};

use super::report::{Asked, HtReceive, ModePlan, Outcome, Report};
use crate::output::columns::Columns;
use crate::output::{self, bytes};

/// What high throughput is planned for.
const TEAM: &str = "all ranks in one NVLink domain";

/// What a cell says of a buffer that a mode does not have.
const NONE: &str = "-";

impl Report {
    /// A column for each mode, with what it is about.
    #[must_use]
    pub fn table(&self) -> String {
        output::text(|text| self.write_table(text))
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
        if self.modes.iter().any(|plan| plan.memory().is_some()) {
            self.write_columns(text)?;
            writeln!(text)?;
        }
        for (line, modes) in self.lines() {
            let modes: Vec<_> = modes.iter().map(Mode::to_string).collect();
            writeln!(text, "{}: {line}", modes.join(", "))?;
        }
        Ok(())
    }

    /// What there is to say of modes, each with those of which it is said.
    fn lines(&self) -> Vec<(String, Vec<Mode>)> {
        let mut lines: Vec<(String, Vec<_>)> = Vec::new();
        for plan in &self.modes {
            for line in plan.lines() {
                match lines.iter_mut().find(|(known, _)| *known == line) {
                    Some((_, modes)) => modes.push(plan.mode),
                    None => lines.push((line, vec![plan.mode])),
                }
            }
        }
        lines
    }

    fn write_columns(&self, text: &mut String) -> std::fmt::Result {
        let plans: Vec<_> = self.modes.iter().map(ModePlan::memory).collect();
        let heading = self.modes.iter().map(|plan| plan.mode.to_string());
        let mut rows: Vec<Row> = vec![(String::new(), heading.collect())];
        for owner in Owner::ALL {
            rows.push((owner.to_string(), cells(&plans, |memory| Some(memory.of(owner)))));
            for name in self.names(owner) {
                let size = |memory: &Memory| memory.buffer(name).map(|buffer| buffer.bytes);
                rows.push((format!("  {name}"), cells(&plans, size)));
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
        let rows = rows.into_iter().map(|(name, cells)| std::iter::once(name).chain(cells));
        Columns::new(|column| column == 0).rows(rows).write(text)
    }

    /// Buffers of an owner in any mode. Each stands after those that come before it in its mode.
    fn names(&self, owner: Owner) -> Vec<&'static str> {
        let mut names = Vec::new();
        for memory in self.modes.iter().filter_map(ModePlan::memory) {
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

impl ModePlan {
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

fn cells(plans: &[Option<&Memory>], size: impl Fn(&Memory) -> Option<u64>) -> Vec<String> {
    let cell = |plan: &Option<&Memory>| plan.and_then(&size).map_or(NONE.into(), bytes::text);
    plans.iter().map(cell).collect()
}

/// Pieces of a buffer, where there is one column and so room for them.
fn details(buffer: &Buffer) -> Vec<Row> {
    let row = |prefix: &str, name: &str, size| (format!("{prefix}{name}"), vec![bytes::text(size)]);
    let pieces = buffer.pieces.iter().map(|piece| row("    ", piece.name, piece.bytes));
    let bank = buffer.bank.iter().map(|region| row("    each bank: ", region.name, region.bytes));
    pieces.chain(bank).collect()
}
