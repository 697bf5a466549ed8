//! A picture of a sweep: throughput over the block size, one line for each combination of the rest.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::transfer::sweep::{Line, operation_name};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 540.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 250.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;
/// Colours that people with colour-blind eyes can tell apart.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];
/// Horizontal grid lines.
const STEPS: u32 = 5;

/// One curve.
#[derive(Clone, Debug, Default, PartialEq)]
struct Curve {
    /// Block size and rate, by size.
    points: Vec<(u64, f64)>,
}

fn curves(lines: &[Line]) -> BTreeMap<String, Curve> {
    let mut curves: BTreeMap<String, Curve> = BTreeMap::new();
    for line in lines {
        let (case, operation) = (&line.case, operation_name(line.case.operation));
        let name = format!("{} {operation}, {} x {} thr", case.route.name(), case.batch, case.threads);
        curves.entry(name).or_default().points.push((case.block_bytes, line.report.gb_per_second));
    }
    for curve in curves.values_mut() {
        curve.points.sort_by_key(|(block, _)| *block);
    }
    curves
}

/// The next of 1, 2, 5, 10, … that is not below the value.
fn round_up(value: f64) -> f64 {
    let mut unit = 10_f64.powf(value.max(1e-9).log10().floor());
    while ![1.0, 2.0, 5.0, 10.0].iter().any(|factor| factor * unit >= value) {
        unit *= 10.0;
    }
    [1.0, 2.0, 5.0, 10.0].iter().map(|factor| factor * unit).find(|top| *top >= value).unwrap_or(unit * 10.0)
}

fn size_name(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Where values lie in the picture.
struct Axes {
    /// Logarithms of the smallest and the largest block.
    blocks: (f64, f64),
    top: f64,
}

impl Axes {
    fn of(curves: &BTreeMap<String, Curve>) -> Self {
        let points = || curves.values().flat_map(|curve| &curve.points);
        let least = points().map(|(block, _)| *block).min().unwrap_or(1).max(1);
        let most = points().map(|(block, _)| *block).max().unwrap_or(1).max(1);
        let top = points().map(|(_, rate)| *rate).fold(0.0, f64::max);
        Axes { blocks: ((least as f64).log2(), (most as f64).log2()), top: round_up(top) }
    }

    fn x(&self, block: u64) -> f64 {
        let (least, most) = self.blocks;
        let share = if most > least { ((block.max(1) as f64).log2() - least) / (most - least) } else { 0.5 };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - rate / self.top * (HEIGHT - TOP - BOTTOM)
    }
}

/// The picture as SVG.
pub fn svg(lines: &[Line]) -> String {
    let curves = curves(lines);
    let axes = Axes::of(&curves);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    grid(&mut out, &curves, &axes);
    for ((name, curve), (index, colour)) in curves.iter().zip(COLOURS.iter().cycle().enumerate()) {
        draw(&mut out, curve, colour, &axes);
        let (x, y) = (WIDTH - RIGHT + 20.0, TOP + 20.0 * index as f64);
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>", y - 10.0);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{y}\">{name}</text>", x + 18.0);
    }
    out.push_str("</svg>\n");
    out
}

fn grid(out: &mut String, curves: &BTreeMap<String, Curve>, axes: &Axes) {
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">GB/s</text>", TOP - 16.0);
    let right = WIDTH - RIGHT;
    for step in 0..=STEPS {
        let rate = axes.top * f64::from(step) / f64::from(STEPS);
        let y = axes.y(rate);
        let _ = writeln!(out, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>");
        let _ = writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{rate:.3}</text>", LEFT - 8.0, y + 4.0);
    }
    let mut blocks: Vec<u64> = curves.values().flat_map(|curve| curve.points.iter().map(|(block, _)| *block)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        let (x, y) = (axes.x(block), HEIGHT - BOTTOM + 20.0);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", size_name(block));
    }
}

fn draw(out: &mut String, curve: &Curve, colour: &str, axes: &Axes) {
    let points: Vec<(f64, f64)> = curve.points.iter().map(|(block, rate)| (axes.x(*block), axes.y(*rate))).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ =
        writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join(" "));
    for (x, y) in points {
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, top) in [(0.3, 0.5), (0.5, 0.5), (1.1, 2.0), (9.0, 10.0), (11.0, 20.0), (0.0, 1e-9)] {
            assert!((round_up(value) - top).abs() < top * 1e-6, "{value}: {}", round_up(value));
        }
    }

    #[test]
    fn sizes_are_named_in_the_largest_whole_unit() {
        assert_eq!([size_name(64), size_name(4096), size_name(3 << 20)], ["64 B", "4 KiB", "3 MiB"]);
    }

    #[test]
    fn every_point_lies_inside_the_picture() {
        let curve = Curve { points: vec![(64, 0.0), (4096, 1.5), (1 << 20, 3.0)] };
        let curves = BTreeMap::from([("a".to_owned(), curve.clone())]);
        let axes = Axes::of(&curves);
        for (block, rate) in curve.points {
            let (x, y) = (axes.x(block), axes.y(rate));
            assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y), "{x} {y}");
        }
        let alone = BTreeMap::from([("b".to_owned(), Curve { points: vec![(64, 0.0)] })]);
        assert!(Axes::of(&alone).x(64).is_finite() && Axes::of(&alone).y(0.0).is_finite());
    }
}
