//! Curves as SVG. Knows numbers and labels, nothing of what they mean.

use std::fmt::Write as _;

/// Size of the drawing in its own units, which the page scales.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
/// Room around the plane for labels.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// Half the size of a marker.
const MARK: f64 = 4.5;
/// How many forms of markers and colours there are; further series repeat them.
pub(super) const STYLES: usize = 7;
/// Labels that fit under the plane.
const X_LABELS_MAX: usize = 8;

/// How values are laid out along the vertical axis.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten.
    Log,
}

/// One curve.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Which colour and marker.
    pub(super) style: usize,
    pub(super) is_dashed: bool,
    /// What a pointer over a marker shows, before the value.
    pub(super) label: String,
    /// Ascending in the first number.
    pub(super) points: Vec<(f64, f64)>,
}

/// A drawing.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// For those who cannot see it.
    pub(super) description: String,
    pub(super) x_title: String,
    /// Values along the horizontal axis, ascending, and what they are called. Laid out by powers
    /// of two.
    pub(super) x_values: Vec<(f64, String)>,
    pub(super) scale: Scale,
    pub(super) series: Vec<Series>,
}

/// The two ends of an axis, and how a value lies between them.
#[derive(Clone, Copy, Debug)]
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    /// Where a value lies, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.ln() } else { value };
        let width = of(self.high) - of(self.low);
        if width > 0.0 {
            (of(value) - of(self.low)) / width
        } else {
            0.5
        }
    }
}

impl Plot {
    /// The drawing as an SVG element; `None` when there is nothing to draw.
    pub(super) fn render(&self) -> Option<String> {
        let values = || {
            self.series
                .iter()
                .flat_map(|s| s.points.iter().map(|p| p.1))
        };
        let top = values()
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max);
        if top <= 0.0 {
            return None;
        }
        let (first, last) = (self.x_values.first()?.0, self.x_values.last()?.0);
        let x_axis = Axis {
            low: first,
            high: last,
            is_log: true,
        };
        let least = values().filter(|&value| value > 0.0).fold(top, f64::min);
        let ticks = match self.scale {
            Scale::Linear => linear_ticks(top),
            Scale::Log => log_ticks(least, top),
        };
        let y_axis = Axis {
            low: *ticks.first()?,
            high: *ticks.last()?,
            is_log: self.scale == Scale::Log,
        };
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escaped(&self.description)
        );
        self.draw_grid(&mut svg, x_axis, y_axis, &ticks);
        for series in &self.series {
            draw_series(&mut svg, series, x_axis, y_axis);
        }
        svg.push_str("</svg>");
        Some(svg)
    }

    fn draw_grid(&self, svg: &mut String, x_axis: Axis, y_axis: Axis, ticks: &[f64]) {
        let right = WIDTH - RIGHT;
        for &tick in ticks {
            let y = y_of(y_axis, tick);
            let _infallible = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short_number(tick)
            );
        }
        let every = self.x_values.len().div_ceil(X_LABELS_MAX).max(1);
        for (value, label) in self.x_values.iter().step_by(every) {
            let x = x_of(x_axis, *value);
            let _infallible = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM + 16.0,
                escaped(label)
            );
        }
        let _infallible = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 6.0,
            escaped(&self.x_title)
        );
    }
}

fn draw_series(svg: &mut String, series: &Series, x_axis: Axis, y_axis: Axis) {
    let style = series.style % STYLES;
    let dashed = if series.is_dashed { " dashed" } else { "" };
    let places = series
        .points
        .iter()
        .filter(|(_, value)| value.is_finite() && *value >= y_axis.low)
        .map(|&(x, value)| (x_of(x_axis, x), y_of(y_axis, value), value));
    let mut path = String::new();
    for (n, (x, y, _)) in places.clone().enumerate() {
        let command = if n == 0 { 'M' } else { 'L' };
        let _infallible = write!(path, "{command}{x:.1} {y:.1}");
    }
    let _infallible = write!(svg, "<path class=\"line s{style}{dashed}\" d=\"{path}\"/>");
    for (x, y, value) in places {
        let _infallible = write!(
            svg,
            "<path class=\"mark s{style}\" d=\"{}\"><title>{}: {}</title></path>",
            marker(style, x, y),
            escaped(&series.label),
            short_number(value)
        );
    }
}

fn x_of(axis: Axis, value: f64) -> f64 {
    // A little room, so that markers at the ends are whole.
    const MARGIN: f64 = 10.0;
    let width = WIDTH - LEFT - RIGHT - 2.0 * MARGIN;
    LEFT + MARGIN + axis.place(value) * width
}

fn y_of(axis: Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)
}

/// The outline of a marker around a place: forms differ as colours do, for readers who cannot distinguish colours.
pub(super) fn marker(style: usize, x: f64, y: f64) -> String {
    /// Corners in units of [`MARK`]; none for the circle.
    const FORMS: [&[(f64, f64)]; STYLES] = [
        &[],
        &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        &[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
        &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        &[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
        &[(-1.2, -0.6), (1.2, -0.6), (1.2, 0.6), (-1.2, 0.6)],
        &[(-0.6, -1.2), (0.6, -1.2), (0.6, 1.2), (-0.6, 1.2)],
    ];
    let corners = FORMS.get(style % STYLES).copied().unwrap_or_default();
    if corners.is_empty() {
        let (left, twice) = (x - MARK, 2.0 * MARK);
        return format!(
            "M{left:.1} {y:.1}a{MARK} {MARK} 0 1 0 {twice} 0a{MARK} {MARK} 0 1 0 -{twice} 0z"
        );
    }
    let mut path = String::new();
    for (n, (dx, dy)) in corners.iter().enumerate() {
        let command = if n == 0 { 'M' } else { 'L' };
        let (x, y) = (x + dx * MARK, y + dy * MARK);
        let _infallible = write!(path, "{command}{x:.1} {y:.1}");
    }
    path.push('z');
    path
}

/// Round numbers from zero to at least `top`, four to seven of them.
fn linear_ticks(top: f64) -> Vec<f64> {
    let decade = 10_f64.powf(top.log10().floor());
    let steps = [0.2, 0.25, 0.5, 1.0, 2.0];
    let step = steps
        .into_iter()
        .map(|step| step * decade)
        .find(|step| top / step <= 5.0)
        .unwrap_or(2.0 * decade);
    let mut ticks = vec![0.0];
    let mut tick = 0.0;
    while tick < top {
        tick += step;
        ticks.push(tick);
    }
    ticks
}

/// Numbers 1, 2 and 5 of each decade, from at most `least` to at least `top`; powers of ten alone
/// when there are many.
fn log_ticks(least: f64, top: f64) -> Vec<f64> {
    const DECADES_MAX_FINE: f64 = 2.5;
    let is_fine = (top / least).log10() < DECADES_MAX_FINE;
    let steps: &[f64] = if is_fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut decade = 10_f64.powf(least.log10().floor());
    let mut ticks = Vec::new();
    while ticks.last().is_none_or(|&last| last < top) {
        for step in steps {
            let tick = step * decade;
            if ticks.last().is_none_or(|&last| last < top) {
                ticks.push(tick);
            }
        }
        decade *= 10.0;
    }
    // Of those below the least value one is enough.
    let below = ticks.iter().filter(|&&tick| tick <= least).count();
    ticks.drain(..below.saturating_sub(1));
    ticks
}

/// A number with a letter for thousands, millions and so on.
pub(super) fn short_number(value: f64) -> String {
    const LETTERS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let found = LETTERS.into_iter().find(|(unit, _)| value >= *unit);
    let (scaled, letter) = found.map_or((value, ""), |(unit, letter)| (value / unit, letter));
    let text = if scaled >= 100.0 {
        format!("{scaled:.0}")
    } else {
        let text = format!("{scaled:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    text + letter
}

/// Text with the characters replaced that mean something in HTML, and control characters left out.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other if other.is_control() => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(
            linear_ticks(1.0),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        for top in [0.013, 1.0, 3.3, 9.9, 123_456.0] {
            let ticks = linear_ticks(top);
            assert!((4..=7).contains(&ticks.len()), "{ticks:?}");
            assert!(*ticks.last().unwrap() >= top);
        }
        assert_eq!(
            log_ticks(30.0, 700.0),
            [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
        );
        assert_eq!(log_ticks(1.0, 1.0), [1.0]);
        assert_eq!(log_ticks(2.0, 5000.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (12.0, "12"),
            (999.4, "999"),
            (1500.0, "1.5k"),
            (570_000.0, "570k"),
            (2e9, "2G"),
        ] {
            assert_eq!(short_number(value), text);
        }
    }

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        Plot {
            description: "a<b".to_owned(),
            x_title: "x".to_owned(),
            x_values: vec![(1.0, "1".to_owned()), (4.0, "4".to_owned())],
            scale: Scale::Log,
            series: vec![Series {
                style: 9,
                is_dashed: true,
                label: "l&".to_owned(),
                points,
            }],
        }
    }

    #[test]
    fn a_curve_has_a_line_and_a_marker_for_each_point_inside_the_plane() {
        let svg = plot(vec![(1.0, 10.0), (4.0, 1000.0)]).render().unwrap();
        assert_eq!(svg.matches("class=\"mark s2\"").count(), 2);
        assert!(
            svg.contains("class=\"line s2 dashed\" d=\"M68.0 260.0L456.0 12.0\""),
            "{svg}"
        );
        assert!(svg.contains("a&lt;b") && svg.contains("l&amp;"));
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        assert_eq!(plot(vec![]).render(), None);
        assert_eq!(plot(vec![(1.0, 0.0)]).render(), None);
    }
}
