//! A panel of throughput over the size of a compute node's cache.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;

use super::{Drawn, INK, Pen, colour, mix_title, of_series};
use crate::report::Row;

impl Pen<'_> {
    /// Draws the throughput of each series over the size of the caches, which has a logarithmic axis.
    pub(super) fn draw_caches<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        title: &str,
        points: &[&Row],
    ) -> Drawn<DB> {
        let megabytes = |row: &Row| (row.cache_limit_bytes.max(1)) as f64 / 1e6;
        let interval = |row: &Row| {
            let half = row.mops_ci95.unwrap_or(0.0);
            [(row.mops - half).max(0.0), row.mops + half]
        };
        let top = points.iter().map(|row| interval(row)[1]).fold(0.0, f64::max) * 1.06;
        let lowest = points
            .iter()
            .map(|row| megabytes(row))
            .fold(f64::INFINITY, f64::min);
        let highest = points.iter().map(|row| megabytes(row)).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .margin(12 * self.zoom)
            .margin_right(20 * self.zoom)
            .caption(mix_title(title), self.text(18, &INK, FontStyle::Bold))
            .x_label_area_size(46 * self.zoom)
            .y_label_area_size(62 * self.zoom)
            .build_cartesian_2d((lowest / 1.3..highest * 1.3).log_scale(), 0.0..top)?;
        self.draw_axes(&mut chart, ["cache of a compute node (MB)", "throughput (Mops)"])?;
        for (place, name) in self.curves.series.iter().enumerate() {
            let rows = of_series(points, name);
            let line = self.line(colour(place));
            let at = || rows.iter().map(|row| (megabytes(row), row.mops));
            chart.draw_series(LineSeries::new(at(), line))?;
            chart.draw_series(at().map(|at| self.marker(at, place)))?;
            let thin = colour(place).stroke_width(self.zoom.unsigned_abs());
            let bars = rows.iter().filter(|row| row.mops_ci95.is_some());
            let bars = bars.map(|row| interval(row).map(|end| (megabytes(row), end)));
            chart.draw_series(bars.map(|bar| PathElement::new(bar, thin)))?;
        }
        Ok(())
    }
}
