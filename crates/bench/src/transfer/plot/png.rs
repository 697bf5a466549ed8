//! The picture as PNG: painted without anti-aliasing, with a font of fixed width.

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_7X13;
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::prelude::{Dimensions, DrawTarget, Drawable, OriginDimensions, Pixel, Point, Primitive, Size};
use embedded_graphics::primitives::{Circle, Line as Stroke, PrimitiveStyle};
use embedded_graphics::text::{Alignment, Text};

use super::{Anchor, BLACK, Colour, HEIGHT, Shape, WIDTH, shapes};
use crate::transfer::sweep::Line;

/// Bytes of a pixel.
const DEPTH: usize = 3;

/// The picture could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum PaintError {
    /// The encoder's answer.
    #[error("encoding the picture: {0}")]
    Encoding(#[from] png::EncodingError),
}

/// The picture as the bytes of a PNG file.
///
/// # Errors
/// The encoder's.
pub fn png(lines: &[Line]) -> Result<Vec<u8>, PaintError> {
    let mut canvas = Canvas::white(WIDTH as u32, HEIGHT as u32);
    for shape in shapes(lines) {
        let Ok(()) = paint(&mut canvas, &shape);
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, canvas.size.width, canvas.size.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&canvas.pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// Rows of red, green and blue.
struct Canvas {
    size: Size,
    pixels: Vec<u8>,
}

impl Canvas {
    fn white(width: u32, height: u32) -> Self {
        Canvas { size: Size::new(width, height), pixels: vec![0xff; width as usize * height as usize * DEPTH] }
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        self.size
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        let (bounds, width) = (self.bounding_box(), self.size.width as usize);
        for Pixel(point, colour) in pixels {
            // What lies outside is not seen.
            if bounds.contains(point) {
                let first = (point.y as usize * width + point.x as usize) * DEPTH;
                if let Some(place) = self.pixels.get_mut(first..first + DEPTH) {
                    place.copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
                }
            }
        }
        Ok(())
    }
}

fn point((x, y): (f64, f64)) -> Point {
    Point::new(x.round() as i32, y.round() as i32)
}

fn rgb(colour: Colour) -> Rgb888 {
    let [_, red, green, blue] = colour.0.to_be_bytes();
    Rgb888::new(red, green, blue)
}

fn paint(canvas: &mut Canvas, shape: &Shape) -> Result<(), Infallible> {
    match shape {
        Shape::Line { from, to, width, colour } => {
            let style = PrimitiveStyle::with_stroke(rgb(*colour), *width);
            Stroke::new(point(*from), point(*to)).into_styled(style).draw(canvas)
        }
        Shape::Dot { at, radius, colour } => {
            let diameter = (radius * 2.0).round() as u32 + 1;
            Circle::with_center(point(*at), diameter).into_styled(PrimitiveStyle::with_fill(rgb(*colour))).draw(canvas)
        }
        Shape::Text { at, anchor, text } => {
            let alignment = match anchor {
                Anchor::Start => Alignment::Left,
                Anchor::Middle => Alignment::Center,
                Anchor::End => Alignment::Right,
            };
            let style = MonoTextStyle::new(&FONT_7X13, rgb(BLACK));
            Text::with_alignment(text, point(*at), style, alignment).draw(canvas).map(drop)
        }
    }
}
