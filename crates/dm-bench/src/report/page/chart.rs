//! A chart of a page: an SVG with the table that it shows.

use std::fmt::Write;

use super::svg::{Anchor, Box2, Pen, Ruler, Scale, WIDTH, marker, text_width};
use super::{escaped, permalink};

/// The number of colours in `chart.css`.
const COLOURS: usize = 8;
const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 236.0;
const LEGEND_LINE: f64 = 19.0;
const STYLE: &str = include_str!("chart.css");

/// An axis: its name with the unit, and the placement of its values.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The name.
    pub name: String,
    /// The placement.
    pub scale: Scale,
}

impl Axis {
    /// Makes an axis.
    pub fn new(name: &str, scale: Scale) -> Self {
        let name = name.to_owned();
        Self { name, scale }
    }
}

/// The form in which the data are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Points that are joined in order.
    Lines,
    /// A horizontal bar from 0 for each series, whose length is the `y` of its only point.
    Bars,
    /// Steps: the value of a point holds until the next point.
    Steps,
    /// Joined points without markers, because there are many.
    Trace,
}

/// The origin of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A run of this program.
    Ours,
    /// A run that has no counterpart in the paper. Its lines are dashed.
    Extra,
    /// Numbers of the paper. They are hollow, in the colour of our series before them, which they describe.
    Paper,
}

/// A series of points.
#[derive(Debug, Clone)]
pub struct Series {
    /// The name.
    pub name: String,
    /// The origin.
    pub source: Source,
    /// The points.
    pub data: Vec<Datum>,
}

/// A point.
#[derive(Debug, Clone, Default)]
pub struct Datum {
    /// The place along the horizontal axis. Bars have none.
    pub x: f64,
    /// The value. If the paper gives only `x`, this is not a number.
    pub y: f64,
    /// The smallest and the largest value over the seeds, or the interval of confidence.
    pub range: Option<(f64, f64)>,
    /// The label beside the point, for example the number of clients.
    pub label: String,
    /// The cells of the chart's additional columns.
    pub more: Vec<String>,
}

/// A chart.
#[derive(Debug, Clone)]
pub struct Chart {
    /// The name that links and files use.
    pub id: String,
    /// The caption.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis, or the length of bars.
    pub y: Axis,
    /// The form.
    pub form: Form,
    /// The series in the order of the legend.
    pub series: Vec<Series>,
    /// The header of the points' labels, or nothing if the labels repeat `x`.
    pub label: String,
    /// The headers of additional columns of the table.
    pub more: Vec<String>,
    /// A moment to be marked, with its name.
    pub moment: Option<(f64, String)>,
}

impl Chart {
    /// Returns the chart with its caption, its table, and a link to it.
    pub fn figure(&self) -> String {
        let (id, title) = (escaped(&self.id), escaped(&self.title));
        let mut html = format!(
            "<figure id=\"{id}\" data-title=\"{title}\"><figcaption>{title}{}</figcaption>",
            permalink(&self.id, "this chart")
        );
        html += &self.svg("");
        html += "<div class=\"tools\"></div><details><summary>Table</summary>";
        self.table(&mut html);
        html + "</details></figure>\n"
    }

    /// Returns the chart as a file of its own.
    pub fn file(&self) -> String {
        self.svg(&format!(
            "<title>{}</title><style>{STYLE}</style>",
            escaped(&self.title)
        ))
    }

    /// Returns a series' colour. The paper's numbers have the colour of the series that they describe.
    fn colour(&self, place: usize) -> usize {
        let ours = self.series[..=place].iter();
        ours.filter(|series| series.source != Source::Paper)
            .count()
            .max(1)
            - 1
    }

    /// Returns the CSS class of a series' colour. A bar has its name above it, so all bars have the same colour, except
    /// those of runs without a counterpart in the paper.
    fn class(&self, place: usize) -> String {
        match (self.form, self.series[place].source) {
            (Form::Bars, Source::Extra) => "none".to_owned(),
            (Form::Bars, _) => "s0".to_owned(),
            _ => format!("s{}", self.colour(place) % COLOURS),
        }
    }

    fn svg(&self, style: &str) -> String {
        let mut pen = Pen::default();
        let height = match self.form {
            Form::Bars => self.bars(&mut pen),
            _ => self.plot(&mut pen),
        };
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"group\" aria-label=\"{}\"{}>{style}\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>{}</svg>",
            escaped(&self.title),
            if style.is_empty() {
                ""
            } else {
                " xmlns=\"http://www.w3.org/2000/svg\""
            },
            pen.finish()
        )
    }

    /// Returns every point with the place of its series and the number of its row in the table.
    fn points(&self) -> impl Iterator<Item = (usize, usize, &Datum)> {
        let all = self.series.iter().enumerate();
        all.flat_map(|(place, series)| series.data.iter().map(move |datum| (place, datum)))
            .enumerate()
            .map(|(row, (place, datum))| (place, row, datum))
    }

    fn plot(&self, pen: &mut Pen) -> f64 {
        let data = || self.points().map(|(_, _, datum)| datum);
        let across = Ruler::new(&self.x.scale, data().map(|datum| datum.x), LEFT, RIGHT);
        let ends = |datum: &Datum| {
            let (low, high) = datum.range.unwrap_or((datum.y, datum.y));
            [datum.y, low, high]
        };
        let up = Ruler::new(&self.y.scale, data().flat_map(ends), BOTTOM, TOP);
        self.axes(pen, &across, &up);
        if let Some((at, name)) = &self.moment {
            let x = across.place(*at);
            pen.line("guide none", (x, TOP), (x, BOTTOM));
            pen.text((x + 5.0, TOP + 10.0), "label", Anchor::Start, name);
        }
        for (place, series) in self.series.iter().enumerate() {
            self.line(pen, place, series, &across, &up);
        }
        let spots: Vec<(usize, usize, &Datum, (f64, f64))> = self
            .points()
            .map(|(place, row, datum)| {
                let y = if datum.y.is_finite() {
                    up.place(datum.y)
                } else {
                    BOTTOM
                };
                (place, row, datum, (across.place(datum.x), y))
            })
            .collect();
        if self.form != Form::Trace {
            for (place, row, datum, at) in &spots {
                self.point(pen, *place, *row, datum, *at);
            }
        }
        if self.form == Form::Lines {
            let places: Vec<_> = spots
                .iter()
                .map(|(.., datum, at)| (datum.label.as_str(), *at))
                .collect();
            labels(pen, &places);
        }
        self.legend(pen)
    }

    fn axes(&self, pen: &mut Pen, across: &Ruler, up: &Ruler) {
        for tick in up.ticks() {
            let y = up.place(tick);
            pen.line("grid", (LEFT, y), (RIGHT, y));
            pen.text((LEFT - 6.0, y + 4.0), "tick", Anchor::End, &tick_text(tick));
        }
        let mut free = f64::NEG_INFINITY;
        for tick in across.ticks() {
            let (x, text) = (across.place(tick), tick_text(tick));
            let half = text_width(&text, 12.0) / 2.0;
            // The last tick may be too near to the edge for its text.
            let middle = x.min(WIDTH - half - 2.0);
            if middle - half < free {
                continue;
            }
            free = middle + half + 6.0;
            pen.line("grid", (x, TOP), (x, BOTTOM));
            pen.text((middle, BOTTOM + 17.0), "tick", Anchor::Middle, &text);
        }
        pen.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        pen.text((6.0, 15.0), "axis-name", Anchor::Start, &self.y.name);
        pen.text((RIGHT, BOTTOM + 35.0), "axis-name", Anchor::End, &self.x.name);
    }

    /// Draws a series without its markers.
    fn line(&self, pen: &mut Pen, place: usize, series: &Series, across: &Ruler, up: &Ruler) {
        let class = self.class(place);
        if series.source == Source::Paper {
            // If the paper gives only `x`, the number is a vertical line across the plot.
            for datum in series.data.iter().filter(|datum| !datum.y.is_finite()) {
                let x = across.place(datum.x);
                pen.line(&format!("guide {class}"), (x, TOP), (x, BOTTOM));
            }
            return;
        }
        let mut d = String::new();
        for (at, datum) in series.data.iter().enumerate() {
            let (x, y) = (across.place(datum.x), up.place(datum.y));
            let _ = match (at, self.form) {
                (0, _) => write!(d, "M{x:.1} {y:.1}"),
                (_, Form::Steps) => write!(d, "H{x:.1}V{y:.1}"),
                _ => write!(d, "L{x:.1} {y:.1}"),
            };
            if let Some((low, high)) = datum.range {
                let (low, high) = (up.place(low), up.place(high));
                if low - high > 1.0 {
                    pen.line(&format!("whisker {class}"), (x, low), (x, high));
                }
            }
        }
        pen.path(&format!("line {class}{}", dashed(series)), &d, "");
    }

    fn point(&self, pen: &mut Pen, place: usize, row: usize, datum: &Datum, at: (f64, f64)) {
        let fill = match (self.series[place].source, self.form) {
            (Source::Paper, _) => "hollow",
            // The many points of steps are only seen under the pointer.
            (_, Form::Steps) => "ghost",
            _ => "full",
        };
        let d = marker(self.shape(place, datum), at);
        let class = format!("pt {fill} {}", self.class(place));
        pen.path(&class, &d, &format!(" data-r=\"{row}\""));
    }

    /// Returns the shape of a point's marker. Numbers of the paper without a `y` are always diamonds.
    fn shape(&self, place: usize, datum: &Datum) -> usize {
        if datum.y.is_finite() {
            self.colour(place)
        } else {
            4
        }
    }

    /// Draws the legend below the plot, and returns the height of the drawing.
    fn legend(&self, pen: &mut Pen) -> f64 {
        let (mut x, mut y) = (6.0, BOTTOM + 58.0);
        for (place, series) in self.series.iter().enumerate() {
            let wide = 36.0 + text_width(&series.name, 12.0);
            if x + wide > WIDTH && x > 6.0 {
                (x, y) = (6.0, y + LEGEND_LINE);
            }
            let class = self.class(place);
            let middle = (x + 12.0, y - 4.0);
            if series.source == Source::Paper {
                pen.path(
                    &format!("hollow {class}"),
                    &marker(self.colour(place), middle),
                    "",
                );
            } else {
                let line = format!("line {class}{}", dashed(series));
                pen.line(&line, (x, y - 4.0), (x + 24.0, y - 4.0));
                if self.form == Form::Lines {
                    pen.path(&format!("full {class}"), &marker(self.colour(place), middle), "");
                }
            }
            pen.text((x + 30.0, y), "", Anchor::Start, &series.name);
            x += wide + 10.0;
        }
        y + 10.0
    }

    /// Draws horizontal bars, and returns the height of the drawing. Each of our bars is below the name of its series.
    /// A bar of the paper has no name, because it is below the bar that it describes.
    fn bars(&self, pen: &mut Pen) -> f64 {
        let data = || self.points().map(|(_, _, datum)| datum);
        let longest = data().flat_map(|datum| [datum.y, datum.range.map_or(0.0, |(_, high)| high)]);
        // A value stands to the right of its bar.
        let across = Ruler::new(&Scale::Linear, longest, 6.0, WIDTH - 70.0);
        pen.text((6.0, 15.0), "axis-name", Anchor::Start, &self.y.name);
        let mut y = 18.0;
        for (place, row, datum) in self.points() {
            let series = &self.series[place];
            let class = self.class(place);
            let paper = series.source == Source::Paper;
            let (tall, fill) = if paper { (9.0, "hollow") } else { (14.0, "full") };
            if !paper {
                y += 18.0;
                pen.text((6.0, y), "", Anchor::Start, &series.name);
                y += 6.0;
            }
            let end = across.place(datum.y);
            let d = format!("M6 {y:.1}H{end:.1}v{tall}H6z");
            let class_of = format!("pt {fill} {class}");
            pen.path(&class_of, &d, &format!(" data-r=\"{row}\""));
            let mut right = end;
            if let Some((low, high)) = datum.range {
                let (low, high) = (across.place(low), across.place(high));
                if high - low > 1.0 {
                    let middle = y + tall / 2.0;
                    pen.line("whisker over", (low, middle), (high, middle));
                    right = right.max(high);
                }
            }
            let (class, text) = match paper {
                true => ("tick", format!("{} paper", short(datum.y))),
                false => ("value", short(datum.y)),
            };
            pen.text(
                (right + 6.0, y + tall - 1.0 - (tall - 9.0) / 3.0),
                class,
                Anchor::Start,
                &text,
            );
            y += tall + 3.0;
        }
        y + 8.0
    }

    fn table(&self, html: &mut String) {
        let bars = self.form == Form::Bars;
        let ranges = self.points().any(|(_, _, datum)| datum.range.is_some());
        let mut heads = vec!["series"];
        if !self.label.is_empty() {
            heads.push(&self.label);
        }
        if !bars {
            heads.push(&self.x.name);
        }
        heads.push(&self.y.name);
        if ranges {
            heads.push("range");
        }
        heads.extend(self.more.iter().map(String::as_str));
        let title = escaped(&self.title);
        let _ = write!(
            html,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {title}\"><table><caption>{title}\
             </caption><thead><tr>"
        );
        for (at, head) in heads.iter().enumerate() {
            let class = if at == 0 { "" } else { " class=\"n\"" };
            let _ = write!(html, "<th scope=\"col\"{class}>{}</th>", escaped(head));
        }
        *html += "</tr></thead><tbody>";
        for (place, _, datum) in self.points() {
            let mut cells = Vec::new();
            if !self.label.is_empty() {
                cells.push(datum.label.clone());
            }
            if !bars {
                cells.push(exact(datum.x));
            }
            cells.push(exact(datum.y));
            if ranges {
                let range = datum.range.filter(|(low, high)| low != high);
                cells.push(range.map_or(String::new(), |(low, high)| {
                    format!("{}–{}", exact(low), exact(high))
                }));
            }
            cells.extend(datum.more.iter().cloned());
            let _ = write!(
                html,
                "<tr><th scope=\"row\">{}</th>",
                escaped(&self.series[place].name)
            );
            for cell in cells {
                let _ = write!(html, "<td class=\"n\">{}</td>", escaped(&cell));
            }
            *html += "</tr>";
        }
        *html += "</tbody></table></div>";
    }
}

fn dashed(series: &Series) -> &'static str {
    match series.source {
        Source::Extra => " dashed",
        _ => "",
    }
}

/// Writes the labels beside their points. A label that would cover a point or another label is left out; the table and
/// the hint at the point still show it.
fn labels(pen: &mut Pen, points: &[(&str, (f64, f64))]) {
    let around = |(x, y): (f64, f64), half: f64| Box2 {
        left: x - half,
        top: y - half,
        right: x + half,
        bottom: y + half,
    };
    let markers: Vec<Box2> = points.iter().map(|(_, at)| around(*at, 4.5)).collect();
    let mut taken = Vec::new();
    for (own, (label, (x, y))) in points
        .iter()
        .enumerate()
        .filter(|(_, (label, _))| !label.is_empty())
    {
        let wide = text_width(label, 12.0);
        // Above, right, below, left.
        let places = [
            (x - wide / 2.0, y - 7.0),
            (x + 8.0, y + 4.0),
            (x - wide / 2.0, y + 16.0),
            (x - 8.0 - wide, y + 4.0),
        ];
        let free = places.into_iter().find_map(|(left, base)| {
            let body = Box2 {
                left,
                top: base - 10.0,
                right: left + wide,
                bottom: base + 2.0,
            };
            let inside = body.left > LEFT + 1.0
                && body.right < WIDTH - 2.0
                && body.top > TOP - 12.0
                && body.bottom < BOTTOM;
            let others = markers.iter().enumerate().filter(|(at, _)| *at != own);
            let mut others = others.map(|(_, marker)| marker).chain(&taken);
            (inside && !others.any(|other| other.meets(&body))).then_some((body, base))
        });
        if let Some((body, base)) = free {
            let middle = f64::midpoint(body.left, body.right);
            pen.text((middle, base), "label", Anchor::Middle, label);
            taken.push(body);
        }
    }
}

/// Formats a number of an axis. Numbers from 10,000 on are shown in thousands, because there is no room for five
/// digits.
fn tick_text(tick: f64) -> String {
    match tick >= 10_000.0 {
        true => format!("{}k", short(tick / 1000.0)),
        false => short(tick),
    }
}

/// Formats a number of a bar or of an axis as in a table, but without unnecessary zeros.
fn short(number: f64) -> String {
    let text = exact(number);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a number of a table. Returns nothing for a number that is missing.
fn exact(number: f64) -> String {
    if number.is_finite() {
        crate::report::table::figure(number)
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datum(x: f64, y: f64, label: &str) -> Datum {
        Datum {
            x,
            y,
            label: label.to_owned(),
            more: vec!["NIC".to_owned()],
            ..Datum::default()
        }
    }

    fn chart(form: Form) -> Chart {
        let series = |name: &str, source, data| Series {
            name: name.to_owned(),
            source,
            data,
        };
        Chart {
            id: "ycsb-c".to_owned(),
            title: "YCSB C & more".to_owned(),
            x: Axis::new("throughput (Mops)", Scale::Linear),
            y: Axis::new("p99 latency (µs)", Scale::Log),
            form,
            series: vec![
                series(
                    "CHIME",
                    Source::Ours,
                    vec![datum(1.0, 4.0, "16"), datum(9.0, 60.0, "640")],
                ),
                series("CHIME, paper", Source::Paper, vec![datum(12.0, f64::NAN, "")]),
                series("own", Source::Extra, vec![datum(2.0, 5.0, "32")]),
            ],
            label: "clients".to_owned(),
            more: vec!["limited by".to_owned()],
            moment: None,
        }
    }

    #[test]
    fn every_point_is_drawn_and_has_a_row_and_the_papers_are_hollow() {
        let html = chart(Form::Lines).figure();
        assert_eq!(html.matches("data-r=").count(), 4);
        assert_eq!(html.matches("<th scope=\"row\">").count(), 4);
        for part in [
            "<figure id=\"ycsb-c\"",
            "YCSB C &amp; more",
            ">640</text>",
            ">limited by</th>",
            "<td class=\"n\">NIC</td>",
            "class=\"guide s0\"",
            "class=\"pt hollow s0\" d=\"",
            "class=\"line s1 dashed\"",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    #[test]
    fn bars_begin_at_0_and_are_in_proportion() {
        let mut chart = chart(Form::Bars);
        chart.series.truncate(1);
        chart.series[0].data = vec![datum(0.0, 10.0, "")];
        let mut half = chart.series[0].clone();
        half.data[0].y = 5.0;
        half.source = Source::Paper;
        chart.series.push(half);
        let svg = chart.file();
        let ends: Vec<f64> = svg
            .split(" d=\"M6 ")
            .skip(1)
            .filter_map(|path| path.split_once('H')?.1.split_once('v')?.0.parse().ok())
            .collect();
        assert_eq!(ends.len(), 2, "{svg}");
        assert!((ends[0] - 6.0 - 2.0 * (ends[1] - 6.0)).abs() < 0.3, "{ends:?}");
        assert!(svg.contains("xmlns=") && svg.contains("<style>") && svg.contains("5 paper"));
    }

    #[test]
    fn labels_that_would_cover_each_other_are_left_out() {
        let mut pen = Pen::default();
        let crowd = [("16", (200.0, 100.0)); 9];
        labels(&mut pen, &crowd);
        let apart = [("16", (100.0, 100.0)), ("64", (200.0, 100.0))];
        assert!(pen.finish().matches("<text").count() < 5);
        let mut pen = Pen::default();
        labels(&mut pen, &apart);
        assert_eq!(pen.finish().matches("<text").count(), 2);
    }
}
