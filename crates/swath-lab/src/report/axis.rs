//! The axes of a figure: where they begin and end, and which ticks they carry.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::report::figure::FONT;
use crate::study::results::{Figure, FigureKind};

/// One axis: the interval shown, and the ticks on it with their labels. The
/// drawing library takes it as a coordinate.
#[derive(Clone)]
pub(crate) struct Axis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis with round ticks around `low..=high`. Ends that were asked for
    /// stay; others move out to a tick.
    fn linear(low: f64, high: f64, keep_ends: bool) -> Self {
        let magnitude = low.abs().max(high.abs());
        let (low, high) = if high - low > magnitude * 1e-9 {
            (low, high)
        } else if magnitude > 0.0 {
            (low - magnitude * 0.05, high + magnitude * 0.05)
        } else {
            (0.0, 1.0)
        };
        let magnitude = low.abs().max(high.abs());
        let rough = (high - low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
        let step = factors.map(|f| f * power);
        let step = step.into_iter().find(|s| *s >= rough * 0.999);
        let step = step.unwrap_or(rough);
        // A hair of slack, so that 0.6000000000000001 still counts as a tick.
        let first = (low / step - 1e-6).ceil();
        let last = (high / step + 1e-6).floor();
        let (first, last) = if keep_ends {
            (first, last)
        } else {
            ((low / step + 1e-6).floor(), (high / step - 1e-6).ceil())
        };
        let count = (last - first) as usize;
        let values: Vec<f64> = (0..=count).map(|i| (first + i as f64) * step).collect();
        let label = labels(step, magnitude);
        let ends = (
            if keep_ends { low } else { first * step },
            if keep_ends { high } else { last * step },
        );
        Self { low: ends.0, high: ends.1, ticks: values.iter().map(|&v| (v, label(v))).collect() }
    }

    /// The y axis of a figure.
    pub(crate) fn y(figure: &Figure, values: &[f64]) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        if let Some((least, most)) = figure.y_range {
            return Self::linear(least.min(low), most.max(high), true);
        }
        // Zero belongs on the axis where the data come near it, and always
        // where a bar's length stands for its value.
        let near = |end: f64, other: f64| figure.kind == FigureKind::Bars || end < other / 2.0;
        let low = if low > 0.0 && near(low, high) { 0.0 } else { low };
        let high = if high < 0.0 && near(-high, -low) { 0.0 } else { high };
        Self::linear(low, high, false)
    }

    /// The x axis of a figure with numbers on it, `width` units long.
    pub(crate) fn x(figure: &Figure, values: &[f64], width: f64) -> Self {
        // Markers at the ends keep clear of the edges.
        let pad = 0.03;
        let axis = match figure.kind {
            FigureKind::LinesLog2 => Self::log2(values),
            FigureKind::Lines
            | FigureKind::Scatter
            | FigureKind::Bars
            | FigureKind::Map
            | FigureKind::Table => {
                let (low, high) = extent(values).unwrap_or((0.0, 1.0));
                Self::linear(low, high, false)
            }
        };
        axis.spaced(width / (1.0 + 2.0 * pad)).padded(pad)
    }

    /// The x axis of a row of cells, each from its x to the next whole number,
    /// `width` units long.
    pub(crate) fn cells(values: &[f64], width: f64) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 0.0));
        Self::linear(low, high + 1.0, true).spaced(width)
    }

    /// The x axis of a figure with this many categories.
    pub(crate) fn categories(count: usize) -> Self {
        Self { low: 0.0, high: count.max(1) as f64, ticks: Vec::new() }
    }

    /// Whole powers of two.
    fn log2(values: &[f64]) -> Self {
        let (low, high) = extent(values).unwrap_or((1.0, 256.0));
        let (first, last) = (low.log2().floor() as i32, high.log2().ceil() as i32);
        let (first, last) = if first == last { (first - 1, last + 1) } else { (first, last) };
        let ticks = (first..=last).map(|k| (f64::from(k), power_of_two(k))).collect();
        Self { low: f64::from(first), high: f64::from(last), ticks }
    }

    /// Every nth tick, with the least n for which no label comes close to the
    /// next one on an axis of `width` units.
    fn spaced(self, width: f64) -> Self {
        let every = |n: usize| self.ticks.iter().step_by(n);
        let fits = |n: &usize| {
            let ticks: Vec<_> = every(*n).collect();
            ticks.windows(2).all(|pair| {
                let room = (pair[1].0 - pair[0].0) / (self.high - self.low) * width;
                (text_width(&pair[0].1) + text_width(&pair[1].1)) / 2.0 + 3.0 <= room
            })
        };
        // A single tick always fits, so there is such an n.
        let n = (1..=self.ticks.len()).find(fits).unwrap_or(1);
        Self { ticks: every(n).cloned().collect(), ..self }
    }

    /// The same axis with `share` of its length free at both ends.
    fn padded(self, share: f64) -> Self {
        let pad = (self.high - self.low) * share;
        Self { low: self.low - pad, high: self.high + pad, ..self }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // The ticks are the bold lines; there are no light ones between them.
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(at, _)| at == value);
        tick.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

/// Least and greatest value.
pub(crate) fn extent(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

/// Writes the ticks of an axis: as many decimals as the step needs, in
/// thousands, millions … where the numbers are long.
fn labels(step: f64, magnitude: f64) -> impl Fn(f64) -> String {
    let scientific = !(1e-4..1e13).contains(&magnitude);
    let (unit, suffix) = match magnitude {
        m if m >= 1e9 => (1e9, " G"),
        m if m >= 1e6 => (1e6, " M"),
        m if m >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let mut decimals = 0;
    let mut rest = step / unit;
    while !scientific && decimals < 9 && (rest - rest.round()).abs() > rest.abs() * 1e-6 {
        rest *= 10.0;
        decimals += 1;
    }
    move |value| {
        let text = if scientific {
            format!("{value:.1e}")
        } else if value == 0.0 {
            "0".to_owned()
        } else {
            format!("{:.decimals$}{suffix}", value / unit)
        };
        text.replace('-', "−")
    }
}

/// 2^k as a tick label: in digits while these are few.
fn power_of_two(k: i32) -> String {
    if (0..=13).contains(&k) {
        return (1u32 << k).to_string();
    }
    let raised = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32('⁰' as u32 + (digit as u32 - '0' as u32)).unwrap_or(digit),
    };
    format!("2{}", k.to_string().chars().map(raised).collect::<String>())
}

/// Width of `text` in units, assumed on the wide side of the usual system fonts,
/// since nothing here can measure them.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().map(char_width).sum()
}

/// Width of a character, as [`text_width`].
pub(crate) fn char_width(c: char) -> f64 {
    let em = match c {
        ' ' | 'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | '.' | ',' | ':' | ';' | '\'' | '('
        | ')' => 0.41,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.0,
        'A'..='Z' => 0.77,
        c if c.is_ascii() => 0.64,
        // Any script: ideographs fill the square.
        _ => 1.0,
    };
    FONT * em
}
