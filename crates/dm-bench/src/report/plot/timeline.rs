//! A panel of throughput over time.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;

use super::{Drawn, INK, PALE, Pen, colour, of_series};
use crate::report::Row;

/// Returns the slices of a row: the time of the middle of each in milliseconds, and its throughput in Mops, without the
/// operations that failed.
pub(in crate::report) fn slices(row: &Row) -> Vec<(f64, f64)> {
    let ops = row.timeline.split(' ').map(|slice| {
        let (ops, _failed) = slice.split_once('+').unwrap_or((slice, ""));
        ops.parse::<f64>().unwrap_or(0.0)
    });
    ops.enumerate()
        .map(|(at, ops)| ((at as f64 + 0.5) * row.slice_us / 1e3, ops / row.slice_us))
        .collect()
}

/// Returns the time of the first death in milliseconds, if compute nodes die.
pub(in crate::report) fn death(row: &Row) -> Option<f64> {
    let rest = row
        .kills
        .strip_prefix("at ")
        .or(row.kills.strip_prefix("every "))?;
    rest.split(' ').next()?.parse().ok()
}

impl Pen<'_> {
    /// Draws the throughput of each series over time, and a dashed line at the first death of a compute node.
    pub(super) fn draw_timeline<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        title: &str,
        points: &[&Row],
    ) -> Drawn<DB> {
        let all = || points.iter().flat_map(|row| slices(row));
        let top = all().map(|(_, mops)| mops).fold(0.0, f64::max) * 1.06;
        let end = all().map(|(at, _)| at).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .margin(12 * self.zoom)
            .margin_right(20 * self.zoom)
            .caption(title, self.text(18, &INK, FontStyle::Bold))
            .x_label_area_size(46 * self.zoom)
            .y_label_area_size(62 * self.zoom)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        self.draw_axes(&mut chart, ["time (ms)", "throughput (Mops)"])?;
        if let Some(at) = points.iter().find_map(|row| death(row)) {
            let thin = PALE.stroke_width(self.zoom.unsigned_abs());
            let line = [(at, 0.0), (at, top)];
            chart.draw_series(DashedLineSeries::new(line, 4 * self.zoom, 4 * self.zoom, thin))?;
        }
        for (place, name) in self.curves.series.iter().enumerate() {
            for row in of_series(points, name) {
                chart.draw_series(LineSeries::new(slices(row), self.line(colour(place))))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_a_time_and_a_throughput() {
        let row = Row {
            timeline: "1000 500+3".to_owned(),
            slice_us: 500.0,
            kills: "every 1.5 ms".to_owned(),
            ..Row::default()
        };
        assert_eq!(slices(&row), [(0.25, 2.0), (0.75, 1.0)]);
        assert_eq!((death(&row), death(&Row::default())), (Some(1.5), None));
    }
}
