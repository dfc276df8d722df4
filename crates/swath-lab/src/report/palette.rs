//! The colours and markers of figures, in the light and the dark scheme.

use plotters::style::RGBColor;

/// A colour in the light scheme, and the one in its place in the dark one.
#[derive(Clone, Copy)]
pub(crate) struct Ink {
    pub(crate) light: RGBColor,
    pub(crate) dark: &'static str,
}

impl Ink {
    /// The colour of the light scheme as the drawing library writes it.
    pub(crate) fn light_hex(self) -> String {
        hex(self.light)
    }
}

const fn ink(light: [u8; 3], dark: &'static str) -> Ink {
    Ink { light: RGBColor(light[0], light[1], light[2]), dark }
}

pub(crate) const SURFACE: Ink = ink([0xff, 0xff, 0xff], "#1a1d21");
pub(crate) const TEXT: Ink = ink([0x2b, 0x30, 0x36], "#d5dae0");
pub(crate) const AXIS: Ink = ink([0x8a, 0x93, 0x9d], "#7d8792");
pub(crate) const GRID: Ink = ink([0xe4, 0xe7, 0xeb], "#33383f");

/// The shapes of markers, told apart without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Triangle,
    TriangleDown,
    Diamond,
    Cross,
    Plus,
    Hexagon,
    Hourglass,
    Bowtie,
}

/// The look of a design's points.
pub(crate) struct Style {
    pub(crate) ink: Ink,
    pub(crate) marker: Marker,
    /// Filled markers stand out; hollow ones let coinciding points be seen.
    pub(crate) filled: bool,
}

const fn style(ink: Ink, marker: Marker, filled: bool) -> Style {
    Style { ink, marker, filled }
}

/// The designs of the paper look the same in every figure. The hues are told
/// apart in the common kinds of colour blindness (after Okabe and Ito),
/// darkened for white paper.
const KNOWN: [(&str, Style); 5] = [
    ("TRAD", style(ink([0x5b, 0x64, 0x70], "#aab4bf"), Marker::Circle, false)),
    ("PCAD", style(ink([0x00, 0x72, 0xb2], "#5db8ee"), Marker::Square, false)),
    ("AT", style(ink([0x00, 0x80, 0x5d], "#34c79d"), Marker::Triangle, false)),
    ("PBS", style(ink([0xcc, 0x51, 0x00], "#ff9a52"), Marker::Diamond, true)),
    ("BBS", style(ink([0x95, 0x48, 0x84], "#e39aca"), Marker::TriangleDown, false)),
];

/// Taken in turn by the other designs of a study, and after these the styles of
/// the paper's designs that are not in it.
const FURTHER: [Style; 6] = [
    style(ink([0x3d, 0x4b, 0xa3], "#a3acff"), Marker::Hexagon, false),
    style(ink([0x7d, 0x69, 0x00], "#dfcb47"), Marker::Cross, false),
    style(ink([0xa8, 0x1e, 0x3a], "#ff8499"), Marker::Hourglass, false),
    style(ink([0x00, 0x7a, 0x8c], "#4dd0e2"), Marker::Plus, false),
    style(ink([0x6e, 0x4b, 0x2a], "#d1a981"), Marker::Bowtie, false),
    style(ink([0x1f, 0x1f, 0x1f], "#f2f2f2"), Marker::Square, true),
];

/// The colour and marker of each design of a study. The paper's designs
/// always have their own; the others take the further ones in the order in
/// which they first appear. So a study's designs differ up to the eleventh.
#[derive(Clone, Debug, Default)]
pub struct Palette {
    others: Vec<String>,
    /// The paper's designs that are in the study.
    known: [bool; KNOWN.len()],
}

impl Palette {
    /// The palette for the designs with these names; repeats are fine.
    /// O(n × d) with n names and d different ones among them.
    pub fn new<'a>(designs: impl IntoIterator<Item = &'a str>) -> Self {
        let mut palette = Self::default();
        for design in designs {
            if let Some(nth) = KNOWN.iter().position(|(name, _)| *name == design) {
                palette.known[nth] = true;
            } else if !palette.others.iter().any(|name| name == design) {
                palette.others.push(design.to_owned());
            }
        }
        palette
    }

    pub(crate) fn style(&self, design: &str) -> &'static Style {
        if let Some((_, style)) = KNOWN.iter().find(|(name, _)| *name == design) {
            return style;
        }
        let unused = KNOWN.iter().zip(self.known).filter(|(_, in_use)| !in_use);
        let styles = FURTHER.iter().chain(unused.map(|((_, style), _)| style));
        let place = self.others.iter().position(|name| name == design);
        let last = &FURTHER[FURTHER.len() - 1];
        place.and_then(|place| styles.cycle().nth(place)).unwrap_or(last)
    }
}

/// The rules that replace the light scheme's colours in the dark one, for all
/// figures of a page.
pub fn stylesheet() -> String {
    let frame = [SURFACE, TEXT, AXIS, GRID];
    let known = KNOWN.iter().map(|(_, style)| style.ink);
    let further = FURTHER.iter().map(|style| style.ink);
    let mut css = String::from(
        ".swath-figure{display:block;width:100%;height:auto}\n\
         .swath-figure text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif}\n\
         .swath-figure :is(polyline,path){stroke-linejoin:round;stroke-linecap:round}\n\
         @media screen and (prefers-color-scheme:dark){\n",
    );
    for ink in frame.into_iter().chain(known).chain(further) {
        let (light, dark) = (hex(ink.light), ink.dark);
        css += &format!(
            ".swath-figure [fill=\"{light}\"]{{fill:{dark}}}\
             .swath-figure [stroke=\"{light}\"]{{stroke:{dark}}}\n"
        );
    }
    css + "}\n"
}

/// As the drawing library writes it.
fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}
