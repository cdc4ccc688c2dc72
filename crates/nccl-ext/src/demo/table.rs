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
        let mut rows = vec![
            ["pair", heads[0], heads[1], "dispatch", "combine", heads[3], heads[4]]
                .map(String::from),
        ];
        rows.extend(self.pairs.iter().map(PairReport::cells));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        for row in &rows {
            let mut line = format!("{:<width$}", row[0], width = width(0));
            for (column, cell) in row.iter().enumerate().skip(1).take(5) {
                write!(line, "  {cell:>width$}", width = width(column))?;
            }
            writeln!(text, "{line}  {}", row[6])?;
        }
        for pair in &self.pairs {
            for problem in &pair.problems {
                writeln!(text, "{}: {problem}", pair.pair)?;
            }
        }
        writeln!(text)?;
        for Note { column, meaning } in self.notes {
            writeln!(text, "{column}: {meaning}")?;
        }
        Ok(())
    }
}

impl PairReport {
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
