//! A minimal SVG writer, for bars and lines with one numeric axis.

use std::fmt::Write;

use super::metric::figure;

/// Colours that people with any colour vision can distinguish (Okabe and Ito 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

pub(crate) fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// The anchors of a text.
pub(crate) mod anchor {
    pub(crate) const START: &str = "start";
    pub(crate) const MIDDLE: &str = "middle";
    pub(crate) const END: &str = "end";
}

/// The vertical axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    bottom: f64,
    top: f64,
}

impl Axis {
    /// Makes an axis for these figures. It begins at 0, or at the power of ten below the smallest figure, and ends at a
    /// round number above the largest.
    pub(crate) fn of(figures: &[f64], log: bool, bottom: f64, top: f64) -> Self {
        let most = figures.iter().copied().fold(0.0, f64::max);
        let least = figures
            .iter()
            .copied()
            .filter(|f| *f > 0.0)
            .fold(f64::INFINITY, f64::min);
        if log && least.is_finite() {
            return Self {
                low: 10_f64.powf((least * 0.8).log10().floor()),
                high: 10_f64.powf((most * 1.2).log10().ceil()),
                log,
                bottom,
                top,
            };
        }
        Self::linear(if most > 0.0 { most * 1.12 } else { 1.0 }, bottom, top)
    }

    pub(crate) fn linear(high: f64, bottom: f64, top: f64) -> Self {
        Self {
            low: 0.0,
            high,
            log: false,
            bottom,
            top,
        }
    }

    pub(crate) fn place(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        self.bottom - (self.bottom - self.top) * part.clamp(0.0, 1.0)
    }

    /// Returns the positions of grid lines: powers of ten, or three to seven round numbers.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.log {
            let mut at = self.low;
            while at <= self.high * 1.001 {
                ticks.push(at);
                at *= 10.0;
            }
            return ticks;
        }
        let rough = self.high / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|n| n * decade)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        // The ticks are counted and not added up, because 0.1 + 0.2 is not 0.3.
        let mut n = 0.0;
        while n * step <= self.high {
            ticks.push(n * step);
            n += 1.0;
        }
        ticks
    }
}

/// A picture that is being drawn.
#[derive(Debug)]
pub(crate) struct Svg {
    text: String,
}

const STYLE: &str = "text{font-family:sans-serif;fill:#222}.title{font-size:13px;font-weight:600}\
.tick{font-size:11px;fill:#555}.value{font-size:11px}";

impl Svg {
    /// Makes an empty picture. Screen readers read `title`.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self { text: String::new() };
        svg.push(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\"><title>{}</title>\
             <style>{STYLE}</style><rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>",
            escaped(title)
        ));
        svg
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Draws the lines and numbers of an axis.
    pub(crate) fn grid(&mut self, axis: &Axis, left: f64, right: f64) {
        for tick in axis.ticks() {
            let y = axis.place(tick);
            self.line((left, y), (right, y), "#e3e6ea", 1.0, "");
            self.text(left - 7.0, y + 4.0, "tick", anchor::END, &short(tick));
        }
        self.line((left, axis.bottom), (right, axis.bottom), "#8a8f98", 1.0, "");
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escaped(text);
        self.push(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// Draws a name below an axis. The name is tilted if names are too long to be side by side.
    pub(crate) fn label(&mut self, x: f64, y: f64, text: &str, tilt: bool) {
        if !tilt {
            return self.text(x, y, "tick", anchor::MIDDLE, text);
        }
        let text = escaped(text);
        self.push(&format!(
            "<text transform=\"translate({:.1} {y:.1}) rotate(-22)\" class=\"tick\" text-anchor=\"end\">{text}</text>",
            x + 8.0
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dash: &str) {
        let dash = if dash.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dash}\"")
        };
        self.push(&format!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"{dash}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let height = height.max(0.0);
        self.push(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" rx=\"1.5\"/>"
        ));
    }

    pub(crate) fn dot(&mut self, x: f64, y: f64, colour: &str) {
        self.push(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\" fill=\"{colour}\"/>"
        ));
    }

    /// Draws a number of the paper, as a diamond.
    pub(crate) fn diamond(&mut self, x: f64, y: f64) {
        self.push(&format!(
            "<path class=\"paper\" d=\"M{:.1} {y:.1}l6 -6l6 6l-6 6z\" fill=\"#fff\" fill-opacity=\"0.75\" stroke=\"#000\" stroke-width=\"1.4\"/>",
            x - 6.0
        ));
    }

    pub(crate) fn path(&mut self, path: &str, colour: &str) {
        self.push(&format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.push("</svg>");
        self.text
    }
}

/// Formats a tick without unnecessary digits.
fn short(tick: f64) -> String {
    let text = figure(tick);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Escapes text for HTML and XML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter => {
                let _ = out.write_char(letter);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_place_their_ends() {
        let axis = Axis::linear(10.0, 100.0, 0.0);
        assert_eq!(
            [0.0, 5.0, 10.0, 20.0].map(|v| axis.place(v)),
            [100.0, 50.0, 0.0, 0.0]
        );
        assert_eq!(axis.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let log = Axis::of(&[0.5, 20.0], true, 100.0, 0.0);
        assert_eq!(log.ticks().len(), 4, "0.1 to 100");
        assert!((log.place(1.0) - 66.7).abs() < 0.1);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
    }
}
