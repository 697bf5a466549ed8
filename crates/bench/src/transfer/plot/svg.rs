//! The picture as SVG.

use std::fmt::Write as _;

use super::{Anchor, HEIGHT, Shape, WIDTH, shapes};
use crate::transfer::sweep::Line;

/// The picture as SVG text.
pub fn svg(lines: &[Line]) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for shape in shapes(lines) {
        write(&mut out, &shape);
    }
    out.push_str("</svg>\n");
    out
}

/// Writing to a string cannot fail.
fn write(out: &mut String, shape: &Shape) {
    let _ = match shape {
        Shape::Line { from, to, width, colour } => writeln!(
            out,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#{:06x}\" stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1, colour.0
        ),
        Shape::Dot { at, radius, colour } => {
            writeln!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"#{:06x}\"/>", at.0, at.1, colour.0)
        }
        Shape::Text { at, anchor, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>", at.0, at.1)
        }
    };
}
