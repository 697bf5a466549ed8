//! A picture of a sweep: throughput over the block size, one line for each combination of the rest.
//!
//! The picture is a list of shapes; one module writes them as SVG, another paints them as PNG.

mod png;
mod svg;

use std::collections::BTreeMap;

pub use png::{PaintError, png};
pub use svg::svg;

use crate::transfer::sweep::{Line, operation_name};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 540.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 250.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;
/// Colours that people with colour-blind eyes can tell apart.
const COLOURS: [Colour; 8] = [
    Colour(0x0072b2),
    Colour(0xd55e00),
    Colour(0x009e73),
    Colour(0xcc79a7),
    Colour(0xe69f00),
    Colour(0x56b4e9),
    BLACK,
    Colour(0x999933),
];
const BLACK: Colour = Colour(0);
const GREY: Colour = Colour(0xdddddd);
/// Horizontal grid lines.
const STEPS: u32 = 5;

/// Red, green and blue, 8 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Colour(u32);

/// Where a text stands relative to its point, on the base line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A part of the picture.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Line { from: (f64, f64), to: (f64, f64), width: u32, colour: Colour },
    Dot { at: (f64, f64), radius: f64, colour: Colour },
    Text { at: (f64, f64), anchor: Anchor, text: String },
}

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
        let threads = if case.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", case.threads) };
        let name = format!("{} {operation}, batch {}, {threads}", case.route.name(), case.batch);
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

/// The whole picture on a white ground of [`WIDTH`] times [`HEIGHT`].
fn shapes(lines: &[Line]) -> Vec<Shape> {
    let curves = curves(lines);
    let axes = Axes::of(&curves);
    let mut shapes = Vec::new();
    grid(&mut shapes, &curves, &axes);
    for ((name, curve), (index, colour)) in curves.iter().zip(COLOURS.into_iter().cycle().enumerate()) {
        draw(&mut shapes, curve, colour, &axes);
        let (x, y) = (WIDTH - RIGHT + 26.0, TOP + 20.0 * index as f64);
        shapes.push(Shape::Dot { at: (x, y - 4.0), radius: 6.0, colour });
        shapes.push(Shape::Text { at: (x + 12.0, y), anchor: Anchor::Start, text: name.clone() });
    }
    shapes
}

fn grid(shapes: &mut Vec<Shape>, curves: &BTreeMap<String, Curve>, axes: &Axes) {
    let text = |at, anchor, text: String| Shape::Text { at, anchor, text };
    shapes.push(text((LEFT, TOP - 16.0), Anchor::Start, "GB/s".to_owned()));
    for step in 0..=STEPS {
        let rate = axes.top * f64::from(step) / f64::from(STEPS);
        let y = axes.y(rate);
        shapes.push(Shape::Line { from: (LEFT, y), to: (WIDTH - RIGHT, y), width: 1, colour: GREY });
        shapes.push(text((LEFT - 8.0, y + 4.0), Anchor::End, format!("{rate:.3}")));
    }
    let mut blocks: Vec<u64> = curves.values().flat_map(|curve| curve.points.iter().map(|(block, _)| *block)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        shapes.push(text((axes.x(block), HEIGHT - BOTTOM + 20.0), Anchor::Middle, size_name(block)));
    }
}

fn draw(shapes: &mut Vec<Shape>, curve: &Curve, colour: Colour, axes: &Axes) {
    let points: Vec<(f64, f64)> = curve.points.iter().map(|(block, rate)| (axes.x(*block), axes.y(*rate))).collect();
    for pair in points.windows(2) {
        if let [from, to] = pair {
            shapes.push(Shape::Line { from: *from, to: *to, width: 2, colour });
        }
    }
    shapes.extend(points.into_iter().map(|at| Shape::Dot { at, radius: 3.0, colour }));
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

    fn lines() -> Vec<Line> {
        let case = |block_bytes| crate::transfer::sweep::Case {
            route: crate::transfer::sweep::Route::Tcp,
            operation: yb_transfer::Opcode::Write,
            block_bytes,
            batch: 16,
            threads: 1,
        };
        let report = |gb_per_second| crate::transfer::load::TransferReport {
            operation: "write",
            block_bytes: 0,
            batch: 16,
            threads: 1,
            seconds: 1.0,
            batches: 1,
            failures: 0,
            error: None,
            gb_per_second,
            cpu_seconds_per_gb: 0.1,
            latency: yb_replay::Latencies::default().summary(),
        };
        let line =
            |block, rate| Line { case: case(block), report: report(rate), limit: None, limit_gb_per_second: None };
        vec![line(4096, 0.5), line(1 << 20, 2.0)]
    }

    #[test]
    fn both_forms_show_the_curve_and_its_name() {
        let text = svg(&lines());
        assert!(
            text.starts_with("<svg") && text.ends_with("</svg>\n") && text.contains(">tcp write, batch 16, 1 thread<")
        );
        assert_eq!(text.matches("<circle").count(), 3, "two points and the legend");
        let bytes = png(&lines()).unwrap();
        assert_eq!(bytes[..8], [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n']);
        assert!(png(&lines()).unwrap() != png(&lines()[..1]).unwrap(), "what is measured is what is painted");
    }
}
