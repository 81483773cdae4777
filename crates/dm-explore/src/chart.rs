//! Counterexamples as sequence charts: clients and memory lines as lifelines, steps as arrows between them.

use core::fmt::Write as _;

use crate::trace::{Access, TraceStep};
use crate::verdict::Counterexample;

/// Columns of a terminal chart that one lifeline takes.
const LANE: usize = 14;
/// Sizes of the SVG, in pixels.
const SVG_LANE: usize = 130;
const SVG_ROW: usize = 26;
const SVG_TOP: usize = 60;

/// Lifelines of a chart: clients, then lines of memory.
struct Lanes<'a> {
    heads: Vec<&'a str>,
    clients: usize,
    lines: Vec<u32>,
}

impl<'a> Lanes<'a> {
    fn new(found: &'a Counterexample) -> Self {
        let clients = found.clients.iter().map(String::as_str);
        Self {
            heads: clients
                .chain(found.lines.iter().map(|(_, name)| name.as_str()))
                .collect(),
            clients: found.clients.len(),
            lines: found.lines.iter().map(|(line, _)| *line).collect(),
        }
    }

    /// The memory lane that a step touches.
    fn memory(&self, step: &TraceStep) -> Option<usize> {
        let touch = step.touch.as_ref()?;
        Some(self.clients + self.lines.iter().position(|l| *l == touch.line)?)
    }
}

/// Whether a step is one part of a request that others come between.
fn is_part(step: &TraceStep) -> bool {
    step.touch.as_ref().is_some_and(|t| t.part.is_some())
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

impl Counterexample {
    /// The run as a sequence chart for a terminal: one row per step; an arrow `──▶` to memory for a WRITE, from
    /// memory for a READ, both ways for an atomic; `┄` instead of `─` where only a part of a torn request is served.
    #[must_use]
    pub fn chart(&self) -> String {
        let lanes = Lanes::new(self);
        let mut out = String::new();
        out.push_str("     ");
        for head in &lanes.heads {
            let _ = write!(out, "{:^LANE$}", cut(head, LANE - 2));
        }
        out.push('\n');
        for (i, step) in self.steps.iter().enumerate() {
            let mut row = vec![' '; LANE * lanes.heads.len()];
            for lane in 0..lanes.heads.len() {
                row[lane * LANE + LANE / 2] = '│';
            }
            let from = step.client * LANE + LANE / 2;
            row[from] = '●';
            if let (Some(lane), Some(touch)) = (lanes.memory(step), &step.touch) {
                let to = lane * LANE + LANE / 2;
                let shaft = if is_part(step) { '┄' } else { '─' };
                row[from + 1..to].fill(shaft);
                if touch.access != Access::Read {
                    row[to - 1] = '▶';
                }
                if touch.access != Access::Write {
                    row[from + 1] = '◀';
                }
            }
            let row: String = row.into_iter().collect();
            let _ = writeln!(out, "{:>4} {row} {}", i + 1, step.what);
        }
        let _ = writeln!(
            out,
            "  ==> {}",
            self.failure
                .tell(&self.clients)
                .lines()
                .next()
                .unwrap_or_default()
        );
        out
    }

    /// The same as an SVG document, with generic fonts and nothing to load.
    #[must_use]
    pub fn svg(&self) -> String {
        let lanes = Lanes::new(self);
        let x = |lane: usize| 50 + lane * SVG_LANE + SVG_LANE / 2;
        let y = |row: usize| SVG_TOP + row * SVG_ROW;
        let rows = self.steps.len();
        let longest = self
            .steps
            .iter()
            .map(|s| s.what.chars().count())
            .max()
            .unwrap_or(0);
        let text_x = 50 + lanes.heads.len() * SVG_LANE;
        let (width, height) = (text_x + longest * 8 + 40, y(rows + 2));
        let mut out = String::new();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"monospace\" font-size=\"12\">\n\
             <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             orient=\"auto-start-reverse\"><path d=\"M0 0 L8 4 L0 8 z\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"16\" font-weight=\"bold\">{}</text>\n",
            escape(&self.report.model)
        );
        for (lane, head) in lanes.heads.iter().enumerate() {
            let weight = if lane < lanes.clients { "bold" } else { "normal" };
            let _ = writeln!(
                out,
                "<text x=\"{0}\" y=\"38\" text-anchor=\"middle\" font-weight=\"{weight}\">{1}</text>\n\
                 <line x1=\"{0}\" y1=\"44\" x2=\"{0}\" y2=\"{2}\" stroke=\"#999\" stroke-dasharray=\"{3}\"/>",
                x(lane),
                escape(&cut(head, 17)),
                y(rows),
                if lane < lanes.clients { "none" } else { "4 3" },
            );
        }
        for (i, step) in self.steps.iter().enumerate() {
            self.svg_step(&mut out, &lanes, i, step, (x(step.client), y(i)), text_x, x);
        }
        let verdict = self.failure.tell(&self.clients);
        let _ = write!(
            out,
            "<text x=\"10\" y=\"{}\" fill=\"#b00\">{}</text>\n</svg>\n",
            y(rows + 1),
            escape(verdict.lines().next().unwrap_or_default())
        );
        out
    }

    #[expect(clippy::too_many_arguments, reason = "coordinates of one row, used once")]
    fn svg_step(
        &self,
        out: &mut String,
        lanes: &Lanes<'_>,
        number: usize,
        step: &TraceStep,
        (from, y): (usize, usize),
        text_x: usize,
        x: impl Fn(usize) -> usize,
    ) {
        let _ = writeln!(
            out,
            "<text x=\"10\" y=\"{0}\" fill=\"#777\">{1}</text><circle cx=\"{from}\" cy=\"{y}\" r=\"3\"/>\
             <text x=\"{text_x}\" y=\"{0}\">{2}</text>",
            y + 4,
            number + 1,
            escape(&step.what)
        );
        let (Some(lane), Some(touch)) = (lanes.memory(step), &step.touch) else {
            return;
        };
        let (start, end) = match touch.access {
            Access::Read => (" marker-start=\"url(#a)\"", ""),
            Access::Write => ("", " marker-end=\"url(#a)\""),
            Access::Atomic => (" marker-start=\"url(#a)\"", " marker-end=\"url(#a)\""),
        };
        let (dash, colour) = if is_part(step) {
            ("5 3", "#b00")
        } else {
            ("none", "black")
        };
        let _ = writeln!(
            out,
            "<line x1=\"{}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\"{start}{end}/>",
            from + 3,
            x(lane)
        );
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
