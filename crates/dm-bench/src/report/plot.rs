//! Curves of latency over throughput: one chart for each panel, and one colour for each series. p50 is solid and p99 is
//! dashed, on one logarithmic axis. Panels along the cache sizes or over time show only the throughput.
//!
//! The program contains the font for bitmaps (DejaVu Sans, a free font, from the `dejavu` crate), so that it draws the
//! same picture on a machine without fonts or fontconfig. The SVG names the generic family `sans-serif`.

mod caches;
mod timeline;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Once; // std's `Once`, because plotters' font table is a plain static, and no model runs it

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

pub(super) use timeline::{death, slices};

use super::mixed::{MixedRows, check_curves, curve};
use super::row::Row;

/// Colours that people with any colour vision can distinguish (Okabe and Ito 2008). The palest one is left out.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(222, 222, 222);

const FAINT: RGBColor = RGBColor(243, 243, 243);

/// The size of a panel in units. A unit is one pixel of an SVG, and [`PNG_ZOOM`] pixels of a bitmap.
const PANEL: (i32, i32) = (520, 420);
const COLUMNS_MAX: usize = 3;
const TITLE_HEIGHT: i32 = 66;
const LEGEND_LINE: i32 = 26;
/// The width of a legend entry's line, and below of a letter, in units.
const LEGEND_KEY: i32 = 36;
const LETTER: i32 = 9;
/// Pixels per unit of a bitmap, for high-resolution screens and for print.
const PNG_ZOOM: i32 = 2;
const FONT: &str = "sans-serif";

/// The curves to draw.
#[derive(Debug)]
pub struct Curves<'a> {
    title: String,
    panels: Vec<(&'a str, Vec<&'a Row>)>,
    series: Vec<String>,
    rows: &'a [Row],
}

/// The reason why no picture was made.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlotError {
    /// No row has a throughput and latencies above zero.
    Nothing,
    /// Rows of one curve do not belong together.
    Mixed(MixedRows),
    /// The file could not be drawn or written.
    Draw {
        /// The file.
        path: PathBuf,
        /// The error of the backend.
        why: String,
    },
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing to plot: no row has a throughput and a latency"),
            Self::Mixed(why) => why.fmt(f),
            Self::Draw { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for PlotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Mixed(why) => Some(why),
            _ => None,
        }
    }
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

impl<'a> Curves<'a> {
    /// Makes the curves of `rows`: panels and series in order of appearance, points by clients or caches.
    ///
    /// # Errors
    /// Returns [`PlotError::Nothing`] if no row can be drawn, and [`PlotError::Mixed`] if rows of one curve do not
    /// belong together.
    pub fn new(title: &str, rows: &'a [Row]) -> Result<Self, PlotError> {
        check_curves(rows).map_err(PlotError::Mixed)?;
        let mut panels: Vec<(&str, Vec<&Row>)> = Vec::new();
        let mut series = Vec::new();
        let positive = |figure: f64| figure.is_finite() && figure > 0.0;
        for row in rows
            .iter()
            .filter(|row| [row.mops, row.p50_us, row.p99_us].into_iter().all(positive))
        {
            // Over time, each index has its own panel, because the lines of several indexes could not be distinguished.
            let title = match row.timeline.as_str() {
                "" => row.panel_title(),
                _ => &row.index,
            };
            let at = panels.iter().position(|(panel, _)| *panel == title);
            let at = at.unwrap_or_else(|| {
                panels.push((title, Vec::new()));
                panels.len() - 1
            });
            panels[at].1.push(row);
            if !series.contains(&row.series()) {
                series.push(row.series());
            }
        }
        for (_, points) in &mut panels {
            points.sort_by_key(|row| row.place());
        }
        let title = title.to_owned();
        if panels.is_empty() {
            Err(PlotError::Nothing)
        } else {
            Ok(Self {
                title,
                panels,
                series,
                rows,
            })
        }
    }

    /// Draws to an SVG file.
    ///
    /// # Errors
    /// Returns [`PlotError::Draw`] if the file can't be drawn or written.
    pub fn write_svg(&self, path: &Path) -> Result<(), PlotError> {
        embed_font();
        let area = SVGBackend::new(path, self.size(1)).into_drawing_area();
        Pen {
            curves: self,
            zoom: 1,
        }
        .draw(&area)
        .map_err(|why| failed(path, &why))
    }

    /// Draws to a PNG file.
    ///
    /// # Errors
    /// Returns [`PlotError::Draw`] if the file can't be drawn or written.
    pub fn write_png(&self, path: &Path) -> Result<(), PlotError> {
        embed_font();
        let area = BitMapBackend::new(path, self.size(PNG_ZOOM)).into_drawing_area();
        Pen {
            curves: self,
            zoom: PNG_ZOOM,
        }
        .draw(&area)
        .map_err(|why| failed(path, &why))
    }

    fn columns(&self) -> usize {
        self.panels.len().min(COLUMNS_MAX)
    }

    fn lines(&self) -> usize {
        self.panels.len().div_ceil(self.columns())
    }

    fn size(&self, zoom: i32) -> (u32, u32) {
        let (_, legend_lines) = self.legend_grid();
        let width = PANEL.0 * count(self.columns());
        let height = TITLE_HEIGHT + PANEL.1 * count(self.lines()) + legend_height(legend_lines);
        ((width * zoom).unsigned_abs(), (height * zoom).unsigned_abs())
    }

    /// Returns the number of legend entries that fit side by side, and the number of lines.
    fn legend_grid(&self) -> (usize, usize) {
        let width = PANEL.0 * count(self.columns());
        let fit = usize::try_from(width / self.legend_entry())
            .unwrap_or(1)
            .clamp(1, self.series.len());
        (fit, self.series.len().div_ceil(fit))
    }

    /// Returns the width of a legend entry.
    fn legend_entry(&self) -> i32 {
        let longest = self
            .series
            .iter()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0);
        LEGEND_KEY + 24 + LETTER * count(longest)
    }

    /// Returns one latency axis for all panels, so that the panels can be compared.
    fn latencies(&self) -> std::ops::Range<f64> {
        let curves = || {
            self.panels
                .iter()
                .filter(|(_, points)| !along_caches(points) && !along_time(points))
        };
        let rows = || curves().flat_map(|(_, points)| points);
        let lowest = rows()
            .map(|row| row.p50_us.min(row.p99_us))
            .fold(f64::INFINITY, f64::min);
        let upper = |row: &&Row| {
            let ends = [(row.p50_us, row.p50_us_ci95), (row.p99_us, row.p99_us_ci95)];
            ends.map(|(at, half)| at + half.unwrap_or(0.0))
                .into_iter()
                .fold(0.0, f64::max)
        };
        let highest = rows().map(upper).fold(0.0, f64::max);
        lowest / 1.3..highest * 1.3
    }
}

/// Describes the rows: whether they are measured or modelled, their worlds, the distributions and numbers of their
/// keys, and the range of their numbers of clients.
pub(super) fn facts(rows: &[Row]) -> String {
    let nature = match rows.iter().filter(|row| row.simulated).count() {
        0 => "measured",
        all if all == rows.len() => "model of the NICs, not a measurement",
        _ => "in part a model of the NICs, not a measurement",
    };
    let each = |of: fn(&Row) -> String| {
        let mut all: Vec<String> = rows.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all.join(", ")
    };
    let clients = || rows.iter().map(|row| row.clients);
    format!(
        "{nature}: {}; {}; {} keys; {} to {} clients",
        each(|row| row.fabric.clone()),
        each(|row| match row.ranks > row.keys {
            true => format!("{} of {}", row.distribution, millions(row.ranks)),
            false => row.distribution.clone(),
        }),
        each(|row| millions(row.keys)),
        clients().min().unwrap_or(0),
        clients().max().unwrap_or(0),
    )
}

fn legend_height(series_lines: usize) -> i32 {
    // One more line of the legend explains the kinds of lines.
    (count(series_lines) + 1) * LEGEND_LINE + 14
}

/// A surface on which curves are drawn.
struct Pen<'a> {
    curves: &'a Curves<'a>,
    /// Pixels per unit.
    zoom: i32,
}

impl Pen<'_> {
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Drawn<DB> {
        area.fill(&WHITE)?;
        let curves = self.curves;
        let (head, rest) = area.split_vertically(TITLE_HEIGHT * self.zoom);
        let (body, legend) = rest.split_vertically(PANEL.1 * count(curves.lines()) * self.zoom);
        self.draw_title(&head)?;
        let parts = body.split_evenly((curves.lines(), curves.columns()));
        for (part, (workload, points)) in parts.iter().zip(&curves.panels) {
            match () {
                () if along_time(points) => self.draw_timeline(part, workload, points)?,
                () if along_caches(points) => self.draw_caches(part, workload, points)?,
                () => self.draw_panel(part, workload, points)?,
            }
        }
        self.draw_legend(&legend)?;
        area.present()
    }

    fn draw_title<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Drawn<DB> {
        let middle = PANEL.0 * count(self.curves.columns()) / 2;
        let centre = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Center, VPos::Center));
        let title = centre(self.text(22, &INK, FontStyle::Bold));
        area.draw(&Text::new(self.curves.title.clone(), self.at(middle, 24), title))?;
        let style = centre(self.text(15, &PALE, FontStyle::Normal));
        area.draw(&Text::new(facts(self.curves.rows), self.at(middle, 52), style))
    }

    fn draw_panel<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        workload: &str,
        points: &[&Row],
    ) -> Drawn<DB> {
        let series: Vec<Vec<&Row>> = self
            .curves
            .series
            .iter()
            .map(|name| of_series(points, name))
            .collect();
        let upper = |row: &&Row| row.mops + row.mops_ci95.unwrap_or(0.0);
        let fastest = points.iter().map(upper).fold(0.0, f64::max);
        // A bound far above the curves would compress them, so it is not drawn.
        let bounds: Vec<Option<f64>> = series
            .iter()
            .map(|rows| bound(rows).filter(|at| *at < fastest * 1.3))
            .collect();
        let right = bounds.iter().flatten().copied().fold(fastest, f64::max);
        let latencies = self.curves.latencies();
        let mut chart = ChartBuilder::on(area)
            .margin(12 * self.zoom)
            .margin_right(20 * self.zoom)
            .caption(mix_title(workload), self.text(18, &INK, FontStyle::Bold))
            .x_label_area_size(46 * self.zoom)
            .y_label_area_size(62 * self.zoom)
            .build_cartesian_2d(0.0..right * 1.06, latencies.clone().log_scale())?;
        self.draw_axes(&mut chart, ["throughput (Mops)", "latency (µs)"])?;
        for (place, bound) in bounds.into_iter().enumerate() {
            if let Some(at) = bound {
                let thin = colour(place).mix(0.6).stroke_width(self.zoom.unsigned_abs());
                let line = [(at, latencies.start), (at, latencies.end)];
                chart.draw_series(DashedLineSeries::new(line, 2 * self.zoom, 4 * self.zoom, thin))?;
            }
        }
        for (place, rows) in series.iter().enumerate() {
            let line = self.line(colour(place));
            let p50 = || rows.iter().map(|row| (row.mops, row.p50_us));
            let p99 = || rows.iter().map(|row| (row.mops, row.p99_us));
            // The line is drawn in pieces. If throughput falls when clients are added, a wide line turns back on
            // itself, and a joint of one path would look like a spike.
            let pieces = p50().zip(p50().skip(1));
            chart.draw_series(pieces.map(|(from, to)| PathElement::new([from, to], line)))?;
            chart.draw_series(DashedLineSeries::new(p99(), 6 * self.zoom, 4 * self.zoom, line))?;
            chart.draw_series(p50().chain(p99()).map(|at| self.marker(at, place)))?;
            let thin = colour(place).stroke_width(self.zoom.unsigned_abs());
            let bars = rows.iter().flat_map(|row| intervals(row, latencies.start));
            chart.draw_series(bars.map(|bar| PathElement::new(bar, thin)))?;
        }
        Ok(())
    }

    /// Draws the axes and the grid of a panel.
    fn draw_axes<'a, DB: DrawingBackend + 'a, X, Y>(
        &self,
        chart: &mut ChartContext<'a, DB, Cartesian2d<X, Y>>,
        [x, y]: [&str; 2],
    ) -> Drawn<DB>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .axis_desc_style(self.text(15, &INK, FontStyle::Normal))
            .label_style(self.text(13, &INK, FontStyle::Normal))
            .x_labels(8)
            .y_labels(8)
            .x_label_formatter(&|x| plain(*x))
            .y_label_formatter(&|y| plain(*y))
            .bold_line_style(GRID.stroke_width(self.zoom.unsigned_abs()))
            .light_line_style(FAINT.stroke_width(self.zoom.unsigned_abs()))
            .axis_style(PALE.stroke_width(self.zoom.unsigned_abs()))
            .set_all_tick_mark_size(4 * self.zoom)
            .draw()
    }

    fn draw_legend<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Drawn<DB> {
        let (fit, lines) = self.curves.legend_grid();
        let (entry, width) = (self.curves.legend_entry(), PANEL.0 * count(self.curves.columns()));
        let left = (width - entry * count(fit)) / 2;
        for (place, name) in self.curves.series.iter().enumerate() {
            let (x, y) = (
                left + entry * count(place % fit),
                10 + LEGEND_LINE * count(place / fit),
            );
            let key = [self.at(x, y), self.at(x + LEGEND_KEY, y)];
            area.draw(&PathElement::new(key, self.line(colour(place))))?;
            area.draw(&self.marker(self.at(x + LEGEND_KEY / 2, y), place))?;
            self.draw_words(area, name, (x + LEGEND_KEY + 8, y))?;
        }
        if self.curves.panels.iter().all(|(_, points)| along_time(points)) {
            return Ok(());
        }
        // The kinds of lines are shown in a colour that no series has.
        let kinds = [
            ("median (p50)", LEGEND_KEY, 0),
            ("99th percentile (p99)", 6, 4),
            ("the busiest resource's bound", 2, 4),
        ];
        let mut x = (width - 590) / 2;
        let y = 10 + LEGEND_LINE * count(lines);
        for (words, dash, gap) in kinds {
            let mut from = x;
            while from < x + LEGEND_KEY {
                let stroke = PALE.stroke_width(self.zoom.unsigned_abs() * if dash == 2 { 1 } else { 2 });
                let to = (from + dash).min(x + LEGEND_KEY);
                area.draw(&PathElement::new([self.at(from, y), self.at(to, y)], stroke))?;
                from += dash + gap;
            }
            self.draw_words(area, words, (x + LEGEND_KEY + 8, y))?;
            x += LEGEND_KEY + 40 + 8 * count(words.len());
        }
        Ok(())
    }

    fn draw_words<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        words: &str,
        (x, y): (i32, i32),
    ) -> Drawn<DB> {
        let style = self
            .text(15, &INK, FontStyle::Normal)
            .pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(words.to_owned(), self.at(x, y), style))
    }

    fn at(&self, x: i32, y: i32) -> (i32, i32) {
        (x * self.zoom, y * self.zoom)
    }

    fn line(&self, colour: RGBColor) -> ShapeStyle {
        colour.stroke_width(2 * self.zoom.unsigned_abs())
    }

    fn text(&self, size: i32, colour: &'static RGBColor, style: FontStyle) -> TextStyle<'static> {
        TextStyle::from((FONT, f64::from(size * self.zoom), style).into_font()).color(colour)
    }

    /// Draws the marker of a series. Series differ in the shape of their markers too, for prints without colour.
    fn marker<C: Clone + 'static, DB: DrawingBackend>(
        &self,
        at: C,
        place: usize,
    ) -> DynElement<'static, DB, C> {
        let colour = colour(place);
        match place % 3 {
            0 => Circle::new(at, 4 * self.zoom, colour.filled()).into_dyn(),
            1 => TriangleMarker::new(at, 5 * self.zoom, colour.filled()).into_dyn(),
            _ => Cross::new(at, 4 * self.zoom, self.line(colour)).into_dyn(),
        }
    }
}

/// Returns whether the curves of a panel show throughput over time.
pub(super) fn along_time(points: &[&Row]) -> bool {
    points.iter().any(|row| !row.timeline.is_empty())
}

/// Returns whether the curves of a panel vary the size of the caches, and not the number of clients.
pub(super) fn along_caches(points: &[&Row]) -> bool {
    let mut rest = points.iter().enumerate();
    rest.any(|(at, row)| {
        points[..at]
            .iter()
            .any(|other| curve(other) == curve(row) && other.cache_limit_bytes != row.cache_limit_bytes)
    })
}

fn of_series<'a>(points: &[&'a Row], name: &str) -> Vec<&'a Row> {
    points
        .iter()
        .copied()
        .filter(|row| row.series() == name)
        .collect()
}

/// Returns the error bars of a row's 95 % intervals: at each marker, one for the throughput and one for the latency. A
/// latency bar does not go below `lowest`, because a logarithmic axis has no 0.
fn intervals(row: &Row, lowest: f64) -> Vec<[(f64, f64); 2]> {
    let mut bars = Vec::new();
    for (latency, half) in [(row.p50_us, row.p50_us_ci95), (row.p99_us, row.p99_us_ci95)] {
        if let Some(half) = row.mops_ci95 {
            let from = (row.mops - half).max(0.0);
            bars.push([(from, latency), (row.mops + half, latency)]);
        }
        if let Some(half) = half {
            let from = (latency - half).max(lowest);
            bars.push([(row.mops, from), (row.mops, latency + half)]);
        }
    }
    bars
}

/// Returns the bound at a curve's fastest point.
fn bound(rows: &[&Row]) -> Option<f64> {
    rows.iter()
        .max_by(|left, right| left.mops.total_cmp(&right.mops))?
        .bound_mops
}

/// Converts a count of panels, series or letters, which is always small.
fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Formats a count. A multiple of a million is shown in millions, for example as 60 M.
fn millions(count: u64) -> String {
    if count > 0 && count.is_multiple_of(1_000_000) {
        format!("{} M", count / 1_000_000)
    } else {
        count.to_string()
    }
}

fn failed(path: &Path, why: &dyn fmt::Display) -> PlotError {
    PlotError::Draw {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// Registers the font that the program contains with plotters.
fn embed_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let fonts = [
            (FontStyle::Normal, dejavu::sans::regular()),
            (FontStyle::Bold, dejavu::sans::bold()),
        ];
        for (style, bytes) in fonts {
            // If a font cannot be parsed, drawing returns an error that names it.
            let _ = register_font(FONT, style, bytes);
        }
    });
}

fn colour(place: usize) -> RGBColor {
    COLOURS[place % COLOURS.len()]
}

/// Returns the full name of a YCSB workload, and any other name as it is.
pub(super) fn mix_title(workload: &str) -> String {
    match workload {
        "a" | "b" | "c" | "d" | "e" | "f" => format!("YCSB {}", workload.to_ascii_uppercase()),
        "load" => "YCSB LOAD".to_owned(),
        other => other.to_owned(),
    }
}

/// Formats a number without unnecessary digits.
fn plain(number: f64) -> String {
    let digits = if number >= 10.0 {
        0
    } else if number >= 1.0 {
        1
    } else {
        2
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    /// Calls `write` with a temporary file, and returns the bytes of that file.
    fn written(name: &str, write: impl FnOnce(&Path) -> Result<(), PlotError>) -> Vec<u8> {
        let path = std::env::temp_dir().join(format!("dmkit-plot-{}-{name}", std::process::id()));
        write(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        bytes
    }

    fn svg(name: &str, rows: &[Row]) -> String {
        let curves = Curves::new("Range indexes under YCSB", rows).unwrap();
        String::from_utf8(written(name, |path| curves.write_svg(path))).unwrap()
    }

    #[test]
    fn the_svg_names_everything() {
        let text = svg("named.svg", &samples());
        for words in [
            "Range indexes under YCSB",
            "model of the NICs, not a measurement: sim:cx6-100g",
            "; 1 M keys; 16 to 512 clients",
            "YCSB C",
            "YCSB LOAD",
            "throughput (Mops)",
            "latency (µs)",
            "sherman (published)",
            "median (p50)",
            "99th percentile (p99)",
        ] {
            assert!(text.contains(words), "the picture does not say {words:?}");
        }
        let fonts = text.matches("font-family=").count();
        assert!(fonts > 30, "{fonts} texts");
        assert_eq!(
            fonts,
            text.matches("font-family=\"sans-serif\"").count(),
            "only generic families"
        );
    }

    #[test]
    fn intervals_are_bars_and_single_seeds_have_none() {
        let mut rows = samples();
        let without = svg("no-bars.svg", &rows).matches("<polyline").count();
        assert!(rows.iter().all(|row| intervals(row, 0.1).is_empty()));
        rows[4].mops_ci95 = Some(0.001);
        rows[4].p50_us_ci95 = Some(0.002);
        let (mops, p50) = (rows[4].mops, rows[4].p50_us);
        let bars = intervals(&rows[4], 0.1);
        assert_eq!(bars.len(), 3);
        assert_eq!(bars[0], [(mops - 0.001, p50), (mops + 0.001, p50)]);
        assert_eq!(bars[1], [(mops, p50 - 0.002), (mops, p50 + 0.002)]);
        assert_eq!(intervals(&rows[4], p50)[1][0], (mops, p50), "an axis begins here");
        assert_eq!(svg("bars.svg", &rows).matches("<polyline").count(), without + 3);
    }

    #[test]
    fn a_panel_along_caches_has_their_sizes_and_intervals() {
        let mut rows = samples();
        rows.truncate(6);
        for (cache, row) in (1..).zip(&mut rows) {
            (row.clients, row.cache_limit_bytes) = (160, cache * 1_000_000);
        }
        let text = svg("caches.svg", &rows);
        assert!(text.contains("cache of a compute node (MB)") && text.contains("throughput (Mops)"));
        let without = text.matches("<polyline").count();
        rows[2].mops_ci95 = Some(0.001);
        assert_eq!(
            svg("cache-bars.svg", &rows).matches("<polyline").count(),
            without + 1
        );
    }

    #[test]
    fn rows_of_two_settings_are_no_curve() {
        let mut rows = samples();
        rows[1].memory_nodes = 2;
        let told = Curves::new("t", &rows).unwrap_err().to_string();
        assert!(
            told.contains("`memory_nodes` is 0 in the first and 2 in the second"),
            "{told}"
        );
    }

    #[test]
    fn measured_rows_are_called_measured() {
        let mut rows = samples();
        rows.iter_mut().for_each(|row| row.simulated = false);
        let text = svg("measured.svg", &rows);
        assert!(text.contains("measured: sim:cx6-100g") && !text.contains("model"));
    }

    /// The bitmap contains text and curves even on a machine without fonts.
    #[test]
    fn the_png_has_text_and_every_colour() {
        let rows = samples();
        let curves = Curves::new("Range indexes under YCSB", &rows).unwrap();
        let png = written("curves.png", |path| curves.write_png(path));
        assert!(png.starts_with(b"\x89PNG"));
        let (width, height) = curves.size(1);
        let mut pixels = vec![0; (width * height * 3) as usize];
        {
            let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
            Pen {
                curves: &curves,
                zoom: 1,
            }
            .draw(&area)
            .unwrap();
        }
        let count = |colour: RGBColor| {
            pixels
                .chunks(3)
                .filter(|pixel| *pixel == [colour.0, colour.1, colour.2])
                .count()
        };
        for place in 0..3 {
            assert!(
                count(colour(place)) > 500,
                "colour {place} has {} pixels",
                count(colour(place))
            );
        }
        let title = &pixels[..(width * 40 * 3) as usize];
        assert!(
            title.chunks(3).filter(|pixel| pixel[0] < 100).count() > 500,
            "no title"
        );
    }

    #[test]
    fn rows_that_cannot_be_drawn_are_left_out() {
        let mut rows = samples();
        rows[0].p99_us = 0.0;
        assert_eq!(Curves::new("t", &rows).unwrap().panels[0].1.len(), 17);
        rows.iter_mut().for_each(|row| row.mops = 0.0);
        assert!(matches!(Curves::new("t", &rows), Err(PlotError::Nothing)));
        assert!(matches!(Curves::new("t", &[]), Err(PlotError::Nothing)));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let rows = samples();
        let curves = Curves::new("t", &rows).unwrap();
        let path = std::env::temp_dir().join("no such folder").join("x.png");
        let wrong = curves.write_png(&path).unwrap_err();
        assert!(wrong.to_string().contains("no such folder"), "{wrong}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.05, 0.5, 2.5, 10.0, 1000.0].map(plain),
            ["0", "0.05", "0.5", "2.5", "10", "1000"]
        );
    }
}
