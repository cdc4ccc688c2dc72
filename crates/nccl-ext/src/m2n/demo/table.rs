//! The report for people.

use std::fmt::Write as _;

use super::report::{CaseReport, Report};
use crate::output::columns::Columns;
use crate::output::{self, one_line};

const HEADS: [&str; 8] =
    ["case", "issued", "sharded", "replicated", "skipped", "moved", "time", "verdict"];

const NOTES: [(&str, &str); 5] = [
    ("sharded", "tensors that both sides cut"),
    ("replicated", "tensors that one side cannot cut: each of its ranks has all of them"),
    ("moved", "bytes that generators receive in a round"),
    ("time", "wall time of the slowest rank in the second round, from when all are there"),
    (
        "verdict",
        "pass: in both rounds every byte of every generator is the one that slicing the file's \
         tensor gives; before, memory held the opposite of each",
    ),
];

impl Report {
    /// The table with what it is about.
    #[must_use]
    pub fn table(&self) -> String {
        output::text(|text| self.write_table(text))
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "nccl-ext m2n demo: weights resharded, every byte compared with the file")?;
        let libraries = self.libraries.iter().map(|it| format!("{} {}", it.name, it.version));
        let libraries =
            libraries.filter(|it| !it.contains("_ep")).collect::<Vec<_>>().join(" and ");
        writeln!(
            text,
            "backend  cpu (ranks are threads, memory is the host's), standing in for {libraries}"
        )?;
        writeln!(
            text,
            "input    {}: {} tensors, {:.1} MB",
            one_line(&self.input.file),
            self.input.tensors,
            self.input.bytes as f64 / 1e6
        )?;
        writeln!(text, "ranks    {}: trainers 0-3, generators 4-7", self.ranks)?;
        if self.fault_injected {
            writeln!(text, "fault    a received byte is inverted in each round (--corrupt)")?;
        }
        writeln!(text)?;
        let cells = self.cases.iter().map(CaseReport::cells);
        Columns::new(|column| matches!(column, 0 | 1 | 7)).row(HEADS).rows(cells).write(text)?;
        writeln!(text)?;
        for case in &self.cases {
            for problem in &case.problems {
                writeln!(text, "{}, {}: {}", case.case, case.issued, one_line(problem))?;
            }
        }
        // The same however they are issued.
        for case in self.cases.iter().filter(|case| case.issued == "calls") {
            writeln!(text, "{}: {}", case.case, case.what)?;
            for (side, names) in [
                ("trainers", &case.replicated_at_source),
                ("generators", &case.replicated_at_destination),
            ] {
                if let [first, ..] = &names[..] {
                    let (count, first) = (names.len(), one_line(first));
                    writeln!(
                        text,
                        "  replicated on {side}, as the dimension is missing or does not divide: \
                         {count}, such as {first}"
                    )?;
                }
            }
            for skipped in &case.skipped {
                writeln!(text, "  skipped {}: {}", one_line(&skipped.name), skipped.reason)?;
            }
        }
        writeln!(text)?;
        for (column, meaning) in NOTES {
            writeln!(text, "{column}: {meaning}")?;
        }
        Ok(())
    }
}

impl CaseReport {
    fn cells(&self) -> [String; 8] {
        let issued = match self.issued {
            "calls" => "call by call".into(),
            _ => "one group".into(),
        };
        [
            self.case.into(),
            issued,
            self.sharded.to_string(),
            (self.tensors - self.sharded).to_string(),
            self.skipped.len().to_string(),
            format!("{:.1} MB", self.bytes_moved as f64 / 1e6),
            format!("{:.2} ms", self.seconds * 1e3),
            self.verdict.into(),
        ]
    }
}
