//! Draws counterexamples as sequence charts. Clients and lines of memory are lifelines, and steps are arrows between
//! them.

use core::fmt::Write as _;

use dm_verbs::trace::What;

use crate::trace::{Access, Touch};
use crate::verdict::{Counterexample, Lasso};

/// Columns of one lifeline in a terminal chart.
const LANE: usize = 14;
/// Sizes in the SVG, in pixels.
const SVG_LANE: usize = 130;
const SVG_ROW: usize = 24;
const SVG_TOP: usize = 76;
const SVG_LEFT: usize = 50;

/// The state of a client's lifeline in one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Life {
    /// Whether the client has started. This stays true after its end.
    lives: bool,
    /// The number of chains in flight.
    flying: u32,
    /// The number of sections that the client is in.
    sections: u32,
}

/// A row of a chart: a step, or one of its consequences.
struct Row<'a> {
    /// The step's number, from 1, if this is the step's first row.
    number: Option<usize>,
    client: usize,
    mark: char,
    text: &'a str,
    touch: Option<&'a Touch>,
    /// The states of the clients' lifelines after the row.
    lives: Vec<Life>,
}

/// The layout of a chart: its lifelines and its rows. The lifelines of the clients come first, and those of lines of
/// memory follow.
struct Layout<'a> {
    heads: Vec<&'a str>,
    clients: usize,
    lines: Vec<u32>,
    rows: Vec<Row<'a>>,
    /// The first and the last row of the cycle.
    cycle: Option<(usize, usize)>,
}

impl<'a> Layout<'a> {
    fn new(found: &'a Counterexample) -> Self {
        let clients = found.clients.iter().map(String::as_str);
        let mut layout = Self {
            heads: clients
                .chain(found.lines.iter().map(|(_, name)| name.as_str()))
                .collect(),
            clients: found.clients.len(),
            lines: found.lines.iter().map(|(line, _)| *line).collect(),
            rows: Vec::new(),
            cycle: None,
        };
        let mut lives = vec![Life::default(); layout.clients];
        let mut cycle_from = None;
        for (i, step) in found.steps.iter().enumerate() {
            if found.lasso.is_some_and(|l: Lasso| l.begins == i) {
                cycle_from = Some(layout.rows.len());
            }
            lives[step.client].lives = true;
            layout.rows.push(Row {
                number: Some(i + 1),
                client: step.client,
                mark: '●',
                text: &step.what,
                touch: step.touch.as_ref(),
                lives: lives.clone(),
            });
            for event in &step.then {
                let client = usize::from(event.client.saturating_sub(1)).min(layout.clients - 1);
                let mark = live_on(&mut lives[client], &event.what);
                layout.rows.push(Row {
                    number: None,
                    client,
                    mark,
                    text: &event.text,
                    touch: None,
                    lives: lives.clone(),
                });
            }
        }
        layout.cycle = cycle_from.zip(layout.rows.len().checked_sub(1));
        layout
    }

    /// Returns the lane of the memory that a row touches.
    fn memory(&self, row: &Row<'_>) -> Option<usize> {
        let line = row.touch?.line;
        Some(self.clients + self.lines.iter().position(|&l| l == line)?)
    }

    /// Returns the character of the cycle's bracket in row `i`.
    fn bracket(&self, i: usize) -> char {
        match self.cycle {
            Some((from, to)) if from == to && i == from => '↻',
            Some((from, _)) if i == from => '┌',
            Some((_, to)) if i == to => '└',
            Some((from, to)) if from < i && i < to => '│',
            _ => ' ',
        }
    }
}

/// Applies an event to its client's lifeline, and returns the character that marks the event.
fn live_on(life: &mut Life, what: &What) -> char {
    match what {
        What::Posts { .. } => {
            life.flying += 1;
            '○'
        }
        What::Completes { .. } => {
            life.flying = life.flying.saturating_sub(1);
            '◉'
        }
        What::Enters { .. } => {
            life.sections += 1;
            '▼'
        }
        What::Leaves { .. } => {
            life.sections = life.sections.saturating_sub(1);
            '▲'
        }
        What::Begins { .. } => '┬',
        What::Returns { .. } => '┴',
        _ => '·',
    }
}

impl Life {
    /// Returns the character of the lifeline.
    fn line(self) -> char {
        match self {
            Self { lives: false, .. } => '┊',
            Self { flying: 0, .. } => '│',
            _ => '┃',
        }
    }
}

/// Returns whether a step serves only one part of a request, so that other steps may happen between the parts.
fn is_part(touch: &Touch) -> bool {
    touch.part.is_some()
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

impl Counterexample {
    /// Draws the run as a sequence chart for a terminal. A numbered row is a step `●`; the rows below it are the
    /// consequences of the step.
    ///
    /// An arrow goes to memory (`──▶`) for a WRITE, from memory for a READ, and both ways for an atomic. It is dotted
    /// (`┄`) if the step serves only one of several units of a request. A client's lifeline is thick (`┃`) while one of
    /// its chains is in flight: from the row in which the client posts it (`○`) to the row in which the client can see
    /// the completion (`◉`). It has a `▌` at its side while the client is in a section that the model checks (entered
    /// `▼`, left `▲`). It is dotted before the client starts. A bracket at the left encloses the steps that repeat for
    /// ever.
    #[must_use]
    pub fn chart(&self) -> String {
        let layout = Layout::new(self);
        let mut out = String::new();
        out.push_str("      ");
        for head in &layout.heads {
            let _ = write!(out, "{:^LANE$}", cut(head, LANE - 2));
        }
        out.push('\n');
        for (i, row) in layout.rows.iter().enumerate() {
            let number = row.number.map_or_else(String::new, |n| n.to_string());
            let lanes = self.lanes(&layout, row);
            let _ = writeln!(out, "{number:>4}{} {lanes} {}", layout.bracket(i), row.text);
        }
        let _ = writeln!(out, "  ==> {}", self.verdict_line());
        out
    }

    /// Draws the lifelines and arrows of one row.
    fn lanes(&self, layout: &Layout<'_>, row: &Row<'_>) -> String {
        let mut cells = vec![' '; LANE * layout.heads.len()];
        for lane in 0..layout.heads.len() {
            let x = lane * LANE + LANE / 2;
            let life = row.lives.get(lane);
            cells[x] = life.map_or('│', |life| life.line());
            if life.is_some_and(|life| life.sections > 0) {
                cells[x - 1] = '▌';
            }
        }
        let from = row.client * LANE + LANE / 2;
        cells[from] = row.mark;
        if let (Some(lane), Some(touch)) = (layout.memory(row), row.touch) {
            let to = lane * LANE + LANE / 2;
            let shaft = if is_part(touch) { '┄' } else { '─' };
            cells[from + 1..to].fill(shaft);
            if touch.access != Access::Read {
                cells[to - 1] = '▶';
            }
            if touch.access != Access::Write {
                cells[from + 1] = '◀';
            }
        }
        cells.into_iter().collect()
    }

    fn verdict_line(&self) -> String {
        self.reason().lines().next().unwrap_or_default().to_owned()
    }

    /// Draws the same chart as an SVG document with generic fonts. The document loads nothing.
    #[must_use]
    pub fn svg(&self) -> String {
        let layout = Layout::new(self);
        let x = |lane: usize| SVG_LEFT + lane * SVG_LANE + SVG_LANE / 2;
        let y = |row: usize| SVG_TOP + row * SVG_ROW;
        let rows = layout.rows.len();
        let longest = layout.rows.iter().map(|r| r.text.chars().count()).max();
        let text_x = SVG_LEFT + layout.heads.len() * SVG_LANE;
        let (width, height) = (text_x + longest.unwrap_or(0) * 8 + 40, y(rows + 2));
        let mut out = String::new();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"monospace\" font-size=\"12\">\n\
             <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             orient=\"auto-start-reverse\"><path d=\"M0 0 L8 4 L0 8 z\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"16\" font-weight=\"bold\">{}</text>\n\
             <text x=\"10\" y=\"34\" fill=\"#777\">thick: a chain is in flight; grey band: in a watched section</text>\n",
            escape(&self.report.model)
        );
        for (lane, head) in layout.heads.iter().enumerate() {
            svg_lifeline(&mut out, &layout, lane, head, x(lane), y);
        }
        for (i, row) in layout.rows.iter().enumerate() {
            svg_row(
                &mut out,
                row,
                (x(row.client), y(i)),
                text_x,
                layout.memory(row).map(x),
            );
        }
        if let Some((from, to)) = layout.cycle {
            // Draw a line from the last step of the cycle back to its first.
            let (top, bottom) = (y(from), y(to));
            let _ = writeln!(
                out,
                "<path d=\"M46 {bottom} H38 V{top} H46\" fill=\"none\" stroke=\"#b00\" marker-end=\"url(#a)\"/>"
            );
        }
        let _ = write!(
            out,
            "<text x=\"10\" y=\"{}\" fill=\"#b00\">{}</text>\n</svg>\n",
            y(rows + 1),
            escape(&self.verdict_line())
        );
        out
    }
}

/// Draws a lifeline with its head. The line is thick while chains are in flight. A grey band behind the line shows
/// that the client is in a section.
fn svg_lifeline(
    out: &mut String,
    layout: &Layout<'_>,
    lane: usize,
    head: &str,
    x: usize,
    y: impl Fn(usize) -> usize,
) {
    let client = lane < layout.clients;
    let (weight, dashes) = if client {
        ("bold", "none")
    } else {
        ("normal", "4 3")
    };
    let (first, last) = (y(0) - SVG_ROW / 2, y(layout.rows.len()));
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"54\" text-anchor=\"middle\" font-weight=\"{weight}\">{}</text>\n\
         <line x1=\"{x}\" y1=\"{first}\" x2=\"{x}\" y2=\"{last}\" stroke=\"#999\" stroke-dasharray=\"{dashes}\"/>",
        escape(&cut(head, 17)),
    );
    let lives = |i: usize| layout.rows[i].lives.get(lane).copied().unwrap_or_default();
    for i in 0..layout.rows.len() {
        let (top, life) = (y(i), lives(i));
        if life.sections > 0 {
            let left = x - 9;
            let _ = writeln!(
                out,
                "<rect x=\"{left}\" y=\"{top}\" width=\"18\" height=\"{SVG_ROW}\" fill=\"#999\" opacity=\"0.35\"/>"
            );
        }
        if life.flying > 0 {
            let bottom = top + SVG_ROW;
            let _ = writeln!(
                out,
                "<line x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#333\" stroke-width=\"4\"/>"
            );
        }
    }
}

/// Draws a row's mark, its arrow to the lane of memory at `memory`, and its text.
fn svg_row(out: &mut String, row: &Row<'_>, (from, y): (usize, usize), text_x: usize, memory: Option<usize>) {
    let (number, below) = (row.number.map_or_else(String::new, |n| n.to_string()), y + 4);
    let (fill, colour) = if row.number.is_some() {
        ("black", "black")
    } else {
        ("white", "#555")
    };
    let _ = writeln!(
        out,
        "<text x=\"10\" y=\"{below}\" fill=\"#777\">{number}</text>\
         <circle cx=\"{from}\" cy=\"{y}\" r=\"3\" fill=\"{fill}\" stroke=\"black\"/>\
         <text x=\"{text_x}\" y=\"{below}\" fill=\"{colour}\">{}</text>",
        escape(row.text)
    );
    let (Some(to), Some(touch)) = (memory, row.touch) else {
        return;
    };
    let (start, end) = match touch.access {
        Access::Read => (" marker-start=\"url(#a)\"", ""),
        Access::Write => ("", " marker-end=\"url(#a)\""),
        Access::Atomic => (" marker-start=\"url(#a)\"", " marker-end=\"url(#a)\""),
    };
    let (dash, colour) = if is_part(touch) {
        ("5 3", "#b00")
    } else {
        ("none", "black")
    };
    let left = from + 4;
    let _ = writeln!(
        out,
        "<line x1=\"{left}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\"{start}{end}/>"
    );
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
