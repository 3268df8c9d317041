//! A line chart as SVG, drawn with classes: a page's style sheet colours it for light, dark and
//! print; a file brings its own.
//!
//! No script draws it, so that it is there wherever SVG is, and prints.

mod ruler;

use ruler::Ruler;
use std::fmt::Write;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 50.0;
/// Height of a line of the legend, below the plot, and the room above the first.
const LINE: f64 = 22.0;
const GAP: f64 = 10.0;

/// Colours by number of the class: distinguishable without red and green (Okabe and Ito), each for
/// light and for dark ground.
pub const COLOURS: [(&str, &str); 8] = [
    ("#0060a8", "#56b4e9"),
    ("#7a3b9c", "#c79be0"),
    ("#c25400", "#ff9a4d"),
    ("#8a6d00", "#f0e442"),
    ("#00795a", "#3ddbab"),
    ("#b0417f", "#f0a3cd"),
    ("#555555", "#bbbbbb"),
    ("#111111", "#f2f2f2"),
];

/// Dashes by number of the run.
const DASHES: [&str; 4] = ["", "6 4", "2 3", "9 3 2 3"];

/// How values are laid along an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// By their logarithm.
    Log,
    /// From 0.
    Linear,
}

/// One axis.
pub struct Axis {
    /// What it shows, with the unit.
    pub label: &'static str,
    /// How.
    pub scale: Scale,
    /// Writes a value of it.
    pub write: fn(f64) -> String,
    /// Marks; none: chosen from the values.
    pub marks: Vec<f64>,
}

/// One point with its spread.
#[derive(Clone, Copy)]
pub struct Point {
    /// Where along the x axis.
    pub x: f64,
    /// Its value.
    pub y: f64,
    /// The least value.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

/// One line.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Number of its colour.
    pub colour: usize,
    /// Number of its run: the dashes.
    pub run: usize,
    /// Whether its points are rings and not discs: the same thing in another place.
    pub hollow: bool,
    /// From left to right.
    pub points: Vec<Point>,
}

/// A chart.
pub struct Chart {
    /// What it shows, for those who hear it read.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart {
    /// The chart for the page: its classes are coloured there.
    pub fn to_svg(&self) -> String {
        self.draw("")
    }

    /// The chart as a file of its own, for light ground.
    pub fn to_file(&self) -> String {
        self.draw(&format!("<style>{}</style>", style(false)))
    }

    fn draw(&self, style: &str) -> String {
        let all = || self.series.iter().flat_map(|series| &series.points);
        // Long names have a line each.
        let columns =
            if self.series.iter().any(|series| series.name.chars().count() > 28) { 1 } else { 2 };
        let bottom = HEIGHT + GAP + self.series.len().div_ceil(columns) as f64 * LINE;
        let x = Ruler::new(self.x.scale, all().map(|p| p.x), LEFT, WIDTH - RIGHT);
        let y = Ruler::new(
            self.y.scale,
            all().flat_map(|p| [p.low, p.y, p.high]),
            HEIGHT - BOTTOM,
            TOP,
        )
        .round();
        let mut svg = format!(
            "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {bottom}\" role=\"img\" font-family=\"system-ui, sans-serif\" \
             font-size=\"15\"><title>{}</title>{style}<rect class=\"ground\" width=\"{WIDTH}\" height=\"{bottom}\"/>",
            escape(&self.title)
        );
        self.grid(&mut svg, &x, &y);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - BOTTOM + 37.0,
            escape(self.x.label)
        );
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let _ = write!(
            svg,
            "<text x=\"15\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 15 {middle})\">{}</text>",
            escape(self.y.label)
        );
        for (i, series) in self.series.iter().enumerate() {
            self.curve(&mut svg, series, &x, &y);
            let at = (
                LEFT + (i % columns) as f64 * (WIDTH - LEFT - RIGHT) / columns as f64,
                HEIGHT + GAP + (i / columns) as f64 * LINE,
            );
            legend(&mut svg, series, at);
        }
        svg + "</svg>"
    }

    /// Lines at round values, and their words.
    fn grid(&self, svg: &mut String, x: &Ruler, y: &Ruler) {
        for mark in y.marks() {
            let at = y.place(mark);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                WIDTH - RIGHT
            );
            let _ = write!(
                svg,
                "<text class=\"mark\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 7.0,
                at + 4.0,
                escape(&round(&(self.y.write)(mark)))
            );
        }
        let marks = if self.x.marks.is_empty() { x.marks() } else { self.x.marks.clone() };
        let mut last = f64::MIN;
        for mark in marks {
            let at = x.place(mark);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>",
                HEIGHT - BOTTOM
            );
            // Where marks stand close, not each has its words.
            if at - last >= 62.0 {
                last = at;
                let _ = write!(
                    svg,
                    "<text class=\"mark\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    HEIGHT - BOTTOM + 17.0,
                    escape(&round(&(self.x.write)(mark)))
                );
            }
        }
    }

    /// One series, up to where its group ends: [`legend`] is in it, too.
    fn curve(&self, svg: &mut String, series: &Series, x: &Ruler, y: &Ruler) {
        let dashes = DASHES[series.run % DASHES.len()];
        let line = |what: fn(&Point) -> f64| series.points.iter().map(move |p| (p.x, what(p)));
        let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            points
                .map(|(px, py)| format!("{:.1},{:.1}", x.place(px), y.place(py)))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let point = point_of(series);
        let band = path(&mut line(|p| p.high).chain(line(|p| p.low).rev()));
        let _ = write!(
            svg,
            "<g class=\"c{}\"><polygon class=\"band\" points=\"{band}\"/>",
            series.colour % COLOURS.len()
        );
        let _ = write!(
            svg,
            "<polyline class=\"line\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>",
            path(&mut line(|p| p.y))
        );
        for p in &series.points {
            let words = format!(
                "{}, {}: {} ({} to {})",
                series.name,
                (self.x.write)(p.x),
                (self.y.write)(p.y),
                (self.y.write)(p.low),
                (self.y.write)(p.high)
            );
            let _ = write!(
                svg,
                "<circle class=\"{point}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
                x.place(p.x),
                y.place(p.y),
                escape(&words)
            );
        }
    }
}

/// What a series looks like and is called, at a place below the chart; ends its group.
fn legend(svg: &mut String, series: &Series, (at, down): (f64, f64)) {
    let dashes = DASHES[series.run % DASHES.len()];
    let point = point_of(series);
    let _ = write!(
        svg,
        "<line class=\"line\" stroke-dasharray=\"{dashes}\" x1=\"{at:.1}\" x2=\"{:.1}\" y1=\"{down}\" y2=\"{down}\"/>\
                 <ellipse class=\"{point}\" cx=\"{:.1}\" cy=\"{down}\" rx=\"3.5\" ry=\"3.5\"/>",
        at + 26.0,
        at + 13.0
    );
    let _ = write!(
        svg,
        "</g><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        at + 32.0,
        down + 4.5,
        escape(&series.name)
    );
}

/// The class of a series' points.
fn point_of(series: &Series) -> &'static str {
    if series.hollow { "hollow" } else { "point" }
}

/// A mark without digits that say nothing: marks are round.
fn round(written: &str) -> String {
    written.replace(".00 ", " ").replace(".0 ", " ")
}

/// The rules for the classes of a chart.
pub fn style(dark: bool) -> String {
    let (ground, ink, faint) =
        if dark { ("#16181c", "#e8e8e8", "#3a3d44") } else { ("#ffffff", "#1c1c1c", "#dcdcdc") };
    let mut css = format!(
        ".chart text{{fill:{ink}}}.chart .ground{{fill:{ground}}}.chart .grid{{stroke:{faint}}}.chart .line{{fill:none;stroke-width:2.2}}\
         .chart .band{{opacity:.16;stroke:none}}"
    );
    for (i, (light, shining)) in COLOURS.iter().enumerate() {
        let colour = if dark { shining } else { light };
        let _ = write!(
            css,
            ".chart .c{i} .line{{stroke:{colour}}}.chart .c{i} .point,.chart .c{i} .band{{fill:{colour}}}.chart .c{i} .hollow{{fill:{ground};stroke:{colour};stroke-width:1.8}}"
        );
    }
    css
}

/// Text for HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: &[(f64, f64)]) -> Chart {
        let axis =
            |label, scale| Axis { label, scale, write: |v| v.to_string(), marks: Vec::new() };
        let points =
            points.iter().map(|&(x, y)| Point { x, y, low: y * 0.9, high: y * 1.1 }).collect();
        let series = vec![Series { name: "a<b".into(), colour: 0, run: 0, hollow: false, points }];
        Chart { title: "t&t".into(), x: axis("x", Scale::Log), y: axis("y", scale), series }
    }

    #[test]
    fn places_follow_the_scale() {
        let ruler = Ruler::new(Scale::Log, [1.0, 100.0].into_iter(), 0.0, 100.0);
        assert!((ruler.place(10.0) - 50.0).abs() < 1e-9);
        let ruler = Ruler::new(Scale::Linear, [50.0, 100.0].into_iter(), 0.0, 105.0);
        assert!((ruler.place(50.0) - 50.0).abs() < 1e-9, "linear axes begin at 0");
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(
            ["1.00 ms", "50.0 k/s", "2.50 µs", "99.9 %", "100 ns"].map(round),
            ["1 ms", "50 k/s", "2.50 µs", "99.9 %", "100 ns"]
        );
    }

    #[test]
    fn odd_values_are_drawn_within_the_picture() {
        for scale in [Scale::Log, Scale::Linear] {
            for points in [
                &[][..],
                &[(1.0, 5.0)],
                &[(1.0, 0.0), (2.0, 0.0)],
                &[(1.0, f64::NAN)],
                &[(1.0, 1e-9), (1e9, 1e12)],
            ] {
                let svg = chart(scale, points).to_svg();
                assert!(
                    !svg.contains("inf") && svg.contains("a&lt;b") && svg.contains("t&amp;t"),
                    "{svg}"
                );
                assert_eq!(svg.matches("<circle").count(), points.len());
            }
        }
    }
}
