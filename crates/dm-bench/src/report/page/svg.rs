//! A minimal SVG writer: axes, texts, markers and lines. Colours are classes, so that a page can have two themes.

use std::fmt::Write;

use super::escaped;

/// The width of a chart, in units that are about one pixel on a phone.
pub(super) const WIDTH: f64 = 380.0;

/// The way in which an axis places its values.
#[derive(Debug, Clone, PartialEq)]
pub enum Scale {
    /// From 0, in proportion.
    Linear,
    /// By the logarithm.
    Log,
    /// These values at equal distances, because the values of a parameter often double.
    Even(Vec<f64>),
}

/// An axis in a drawing: the values at its ends, and their places.
#[derive(Debug, Clone)]
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Ruler {
    /// Makes an axis from `from` to `to` on which all `values` have a place.
    pub(super) fn new(scale: &Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        let (scale, low, high) = match scale {
            Scale::Log if least.is_finite() => (Scale::Log, least / 1.35, most * 1.35),
            Scale::Even(at) => (Scale::Even(at.clone()), -0.3, at.len() as f64 - 0.7),
            _ => (Scale::Linear, 0.0, if most > 0.0 { most * 1.1 } else { 1.0 }),
        };
        Self {
            scale,
            low,
            high,
            from,
            to,
        }
    }

    /// Returns the place of a value. A value beyond an end is placed at the end. A value that is not on an even axis is
    /// placed at the axis's first value.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = match &self.scale {
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            Scale::Linear => value / self.high,
            Scale::Even(at) => {
                let place = at.iter().position(|known| *known == value).unwrap_or(0);
                (place as f64 - self.low) / (self.high - self.low)
            }
        };
        self.from + (self.to - self.from) * part.clamp(0.0, 1.0)
    }

    /// Returns the values with a grid line.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match &self.scale {
            Scale::Even(at) => at.clone(),
            Scale::Log => self.log_ticks(),
            Scale::Linear => {
                let step = round_step(self.high / 4.5);
                // The ticks are counted and not added up, because 0.1 + 0.2 is not 0.3.
                let all = (0..).map(|n| f64::from(n) * step);
                all.take_while(|tick| *tick <= self.high).collect()
            }
        }
    }

    /// Returns the ticks of a logarithmic axis: 1, 2 and 5 times the powers of ten. If these are 8 or more, returns
    /// only the powers of ten. If they are fewer than 3, returns more multiples.
    fn log_ticks(&self) -> Vec<f64> {
        let ticks = |steps: &[f64]| -> Vec<f64> {
            let mut found = Vec::new();
            let mut decade = 10_f64.powf(self.low.log10().floor());
            while decade <= self.high {
                found.extend(steps.iter().map(|step| step * decade));
                decade *= 10.0;
            }
            found.retain(|tick| (self.low..=self.high).contains(tick));
            found
        };
        let all = ticks(&[1.0, 2.0, 5.0]);
        let powers = ticks(&[1.0]);
        match all.len() {
            0..3 => ticks(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]),
            8.. if powers.len() > 1 => powers,
            _ => all,
        }
    }
}

/// Returns the smallest 1, 2 or 5 times a power of ten that is at least `rough`.
fn round_step(rough: f64) -> f64 {
    let decade = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    steps.into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

/// The place of a text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle that other texts must not cover.
#[derive(Debug, Clone, Copy)]
pub(super) struct Box2 {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Box2 {
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

/// Returns a width that the text does not exceed in the usual fonts, at a size of `size`.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.64
}

/// A drawing in progress.
#[derive(Debug, Default)]
pub(super) struct Pen {
    text: String,
}

impl Pen {
    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let text = escaped(text);
        let _ = write!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\"{anchor}>{text}</text>"
        );
    }

    pub(super) fn path(&mut self, class: &str, d: &str, more: &str) {
        let _ = write!(self.text, "<path class=\"{class}\" d=\"{d}\"{more}/>");
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let d = format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1);
        self.path(class, &d, "");
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Returns the outline of a series' marker. Series differ in the shape too, for prints without colour.
pub(super) fn marker(shape: usize, (x, y): (f64, f64)) -> String {
    let at = |dx: f64, dy: f64| format!("{:.1} {:.1}", x + dx, y + dy);
    match shape % 5 {
        0 => format!("M{}a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z", at(-4.2, 0.0)),
        1 => format!("M{}l5 8.6h-10z", at(0.0, -5.4)),
        2 => format!("M{}h7.4v7.4h-7.4z", at(-3.7, -3.7)),
        3 => format!("M{}l5 -8.6h-10z", at(0.0, 5.4)),
        _ => format!("M{}l5.2 5.2l-5.2 5.2l-5.2 -5.2z", at(0.0, -5.2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_place_their_ends() {
        let linear = Ruler::new(&Scale::Linear, [10.0].into_iter(), 100.0, 0.0);
        assert_eq!(
            [0.0, 5.5, 11.0, 20.0].map(|v| linear.place(v)),
            [100.0, 50.0, 0.0, 0.0]
        );
        assert_eq!(linear.ticks(), [0.0, 5.0, 10.0]);
        let log = Ruler::new(&Scale::Log, [2.0, 40.0].into_iter(), 100.0, 0.0);
        assert_eq!(log.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0]);
        let near = Ruler::new(&Scale::Log, [4.0, 8.0].into_iter(), 100.0, 0.0);
        assert_eq!(near.ticks(), [3.0, 4.0, 5.0, 6.0, 8.0, 10.0]);
        let long = Ruler::new(&Scale::Log, [0.5, 20_000.0].into_iter(), 100.0, 0.0);
        assert_eq!(long.ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        let even = Ruler::new(&Scale::Even(vec![8.0, 64.0, 1024.0]), [].into_iter(), 0.0, 26.0);
        assert_eq!(
            [8.0, 64.0, 1024.0].map(|v| even.place(v).round()),
            [3.0, 13.0, 23.0]
        );
    }

    #[test]
    fn an_axis_without_values_still_has_places() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = Ruler::new(&scale, [f64::NAN].into_iter(), 0.0, 10.0);
            assert!(axis.place(0.5).is_finite() && !axis.ticks().is_empty());
        }
    }
}
