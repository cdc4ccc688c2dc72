//! The report for people.

use std::fmt::Write as _;

use super::report::{Input, NOTES, Note, PairReport, Report};
use crate::output::one_line;

impl Report {
    /// The table with what it is about.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let Input { ranks, tokens_per_rank, hidden, data_type, top_k, experts, .. } = self.input;
        let origin = if self.input.embedded { ", recorded from text" } else { "" };
        writeln!(
            text,
            "nccl-ext demo: tokens dispatched to experts and combined, compared bit for bit with \
             an oracle"
        )?;
        writeln!(text, "backend  {}", self.header)?;
        writeln!(
            text,
            "input    {}: {ranks} ranks x {tokens_per_rank} tokens, hidden {hidden} {data_type}, \
             top-{top_k} of {experts} experts{origin}",
            one_line(&self.input.name),
        )?;
        if self.fault_injected {
            writeln!(text, "fault    a received byte is inverted before combine (--corrupt)")?;
        }
        writeln!(text)?;
        let heads = NOTES.map(|note| note.column);
        let heads = ["pair", heads[0], heads[1], "dispatch", "combine", heads[3], heads[4]];
        write_columns(text, &heads, self.pairs.iter().map(PairReport::cells).collect())?;
        if self.pairs.iter().any(|pair| pair.speed.is_some() || pair.cpu.is_some()) {
            writeln!(text)?;
            let pairs = self.pairs.iter().map(PairReport::native_cells);
            write_columns(text, &NATIVE_HEADS, pairs.collect())?;
        }
        for pair in &self.pairs {
            for problem in &pair.problems {
                writeln!(text, "{}: {problem}", pair.pair)?;
            }
            for seen in &pair.seen {
                writeln!(text, "{}: {seen}", pair.pair)?;
            }
            if let Some(reason) = pair.cpu.as_ref().and_then(|cpu| cpu.reason.as_ref()) {
                writeln!(text, "{}: not compared with the CPU backend: {reason}", pair.pair)?;
            }
        }
        writeln!(text)?;
        for Note { column, meaning } in &self.notes {
            writeln!(text, "{column}: {meaning}")?;
        }
        Ok(())
    }
}

const NATIVE_HEADS: [&str; 6] =
    ["pair", "GPU, host: update", "dispatch", "combine", "off", "CPU backend"];

/// Writes aligned columns: the first and the last to the left, the others to the right.
fn write_columns<const N: usize>(
    text: &mut String,
    heads: &[&str; N],
    cells: Vec<[String; N]>,
) -> std::fmt::Result {
    let mut rows = vec![heads.map(String::from)];
    rows.extend(cells);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            match column {
                0 => write!(line, "{cell:<width$}", width = width(0))?,
                _ if column == N - 1 => write!(line, "  {cell}")?,
                _ => write!(line, "  {cell:>width$}", width = width(column))?,
            }
        }
        writeln!(text, "{line}")?;
    }
    Ok(())
}

impl PairReport {
    fn native_cells(&self) -> [String; 6] {
        let [update, dispatch, combine] = match &self.speed {
            Some(speed) => speed.calls().map(|t| format!("{:.1}, {:.1} us", t.gpu, t.host)),
            None => ["-"; 3].map(String::from),
        };
        let cpu = self.cpu.as_ref().map_or("-", |cpu| cpu.result);
        let off = format!("{:.1e}", self.largest_difference);
        [self.pair.into(), update, dispatch, combine, off, cpu.into()]
    }

    fn cells(&self) -> [String; 7] {
        [
            self.pair.into(),
            format!("{}..{}", self.rows_received_min, self.rows_received_max),
            format!("{:.1} MB", self.bytes_moved as f64 / 1e6),
            format!("{:.2} ms", self.dispatch_seconds * 1e3),
            format!("{:.2} ms", self.combine_seconds * 1e3),
            format!("{:.1e}", self.distance_to_f64),
            self.verdict.into(),
        ]
    }
}
