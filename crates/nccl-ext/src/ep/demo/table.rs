//! The report for people.

use std::fmt::Write as _;

use super::report::{Input, ModeReport, NOTES, Note, Report};
use crate::output::columns::Columns;
use crate::output::{self, one_line};

impl Report {
    /// The table with what it is about.
    pub(super) fn table(&self) -> String {
        output::text(|text| self.write_table(text))
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
        let cells = self.modes.iter().map(ModeReport::cells);
        Columns::new(|column| matches!(column, 0 | 6)).row(heads).rows(cells).write(text)?;
        if self.modes.iter().any(|mode| mode.speed.is_some() || mode.cpu.is_some()) {
            writeln!(text)?;
            let cells = self.modes.iter().map(ModeReport::native_cells);
            let columns = Columns::new(|column| matches!(column, 0 | 5));
            columns.row(NATIVE_HEADS).rows(cells).write(text)?;
        }
        for mode in &self.modes {
            for problem in &mode.problems {
                writeln!(text, "{}: {problem}", mode.mode)?;
            }
            for seen in &mode.seen {
                writeln!(text, "{}: {seen}", mode.mode)?;
            }
            if let Some(reason) = mode.cpu.as_ref().and_then(|cpu| cpu.reason.as_ref()) {
                writeln!(text, "{}: not compared with the CPU backend: {reason}", mode.mode)?;
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

impl ModeReport {
    fn native_cells(&self) -> [String; 6] {
        let [update, dispatch, combine] = match &self.speed {
            Some(speed) => speed.calls().map(|t| format!("{:.1}, {:.1} us", t.gpu, t.host)),
            None => ["-"; 3].map(String::from),
        };
        let cpu = self.cpu.as_ref().map_or("-", |cpu| cpu.result);
        let off = format!("{:.1e}", self.largest_difference);
        [self.mode.clone(), update, dispatch, combine, off, cpu.into()]
    }

    fn cells(&self) -> [String; 7] {
        [
            self.mode.clone(),
            format!("{}..{}", self.rows_received_min, self.rows_received_max),
            format!("{:.1} MB", self.bytes_moved as f64 / 1e6),
            format!("{:.2} ms", self.dispatch_seconds * 1e3),
            format!("{:.2} ms", self.combine_seconds * 1e3),
            format!("{:.1e}", self.distance_to_f64),
            self.verdict.into(),
        ]
    }
}
