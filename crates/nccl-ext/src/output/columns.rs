//! Tables in columns that are as wide as their longest cell.

use std::fmt::{Result, Write as _};

/// Rows of cells.
pub(crate) struct Columns {
    is_left: fn(usize) -> bool,
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// No rows yet. The columns for which `is_left` holds stand to the left, the others to the
    /// right.
    pub(crate) fn new(is_left: fn(usize) -> bool) -> Self {
        Self { is_left, rows: Vec::new() }
    }

    /// With one more row, such as the heads.
    pub(crate) fn row<S: Into<String>>(mut self, cells: impl IntoIterator<Item = S>) -> Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// With more rows.
    pub(crate) fn rows<S: Into<String>>(
        self,
        rows: impl IntoIterator<Item = impl IntoIterator<Item = S>>,
    ) -> Self {
        rows.into_iter().fold(self, Self::row)
    }

    /// Writes a line a row, with two blanks between columns and none at the end.
    pub(crate) fn write(&self, text: &mut String) -> Result {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if (self.is_left)(column) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let mut text = String::new();
        let columns = Columns::new(|column| column != 1).row(["name", "bytes", "note"]);
        let columns = columns.rows([vec!["a", "12", ""], vec!["longer", "123456"]]);
        columns.write(&mut text).unwrap();
        assert_eq!(text, "name     bytes  note\na           12\nlonger  123456\n");
    }
}
