//! Where one side lies on the page.

use nccl_m2n::Layout;

use crate::m2n::plan::sketch::Area;

/// Height of what stands above both sides.
pub(super) const HEADER: f64 = 112.0;

/// One side on the page.
pub(super) struct Panel {
    /// Left edge of the grid.
    pub(super) left: f64,
    /// Left edge of the ports.
    pub(super) ports: f64,
    cell_width: f64,
    /// Height of a rank's port with its surroundings; a row of the grid has one for each rank.
    pub(super) lane: f64,
    columns: usize,
    start_rank: usize,
}

impl Panel {
    pub(super) fn new(layout: &Layout, tall: f64) -> Self {
        let mesh = layout.mesh();
        let columns = mesh.dims().get(1).copied().unwrap_or(1);
        Self {
            left: 0.0,
            ports: 0.0,
            cell_width: (480.0 / columns as f64).clamp(26.0, 112.0),
            lane: tall / mesh.size() as f64,
            columns,
            start_rank: mesh.start_rank(),
        }
    }

    pub(super) fn width(&self) -> f64 {
        self.columns as f64 * self.cell_width
    }

    /// The middle of a rank's port.
    pub(super) fn port(&self, rank: usize) -> f64 {
        HEADER + (rank.saturating_sub(self.start_rank) as f64 + 0.5) * self.lane
    }

    pub(super) fn area(&self, rank: usize) -> Area {
        let place = rank.saturating_sub(self.start_rank);
        let (row, column) = (place / self.columns, place % self.columns);
        let room = self.lane * self.columns as f64;
        let height = (room - (room * 0.1).min(8.0)).min(112.0);
        let gap = (self.cell_width * 0.08).min(8.0);
        Area {
            x: self.left + column as f64 * self.cell_width,
            y: HEADER + row as f64 * room + (room - height) / 2.0,
            width: self.cell_width - gap,
            height,
        }
    }
}
