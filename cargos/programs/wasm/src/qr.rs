//! Draws QR codes.

use std::process::ExitCode;

use island_cargo::{Blob, Error, Image, OrInvalid, Output, run};
use png::{BitDepth, ColorType, Encoder};
use qrcode::{Color, EcLevel, QrCode, render::svg};
use serde::{Deserialize, Serialize};

/// Light modules around a code, which readers need.
const QUIET: usize = 4;

#[derive(Deserialize)]
struct Input {
    text: String,
    #[serde(default)]
    format: Format,
    #[serde(default)]
    error_correction: Correction,
    #[serde(default = "eight")]
    scale: usize,
}

#[derive(Deserialize, Serialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Png,
    Svg,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Correction {
    Low,
    #[default]
    Medium,
    Quartile,
    High,
}

#[derive(Serialize)]
struct Answer {
    format: Format,
    image: Blob,
    #[serde(skip_serializing_if = "Option::is_none")]
    svg: Option<String>,
    width: usize,
    height: usize,
}

fn eight() -> usize {
    8
}

/// A picture of one bit a pixel, `scale` pixels a module.
fn draw(code: &QrCode, scale: usize) -> Result<Vec<u8>, Error> {
    let modules = code.width() + 2 * QUIET;
    let side = modules * scale;
    let colors = code.to_colors();
    let is_light = |x: usize, y: usize| {
        let inside = |at: usize| at.checked_sub(QUIET).filter(|at| *at < code.width());
        let (Some(x), Some(y)) = (inside(x), inside(y)) else { return true };
        colors[y * code.width() + x] == Color::Light
    };
    let mut pixels = Vec::with_capacity(side.div_ceil(8) * side);
    for y in 0..modules {
        let mut row = vec![0_u8; side.div_ceil(8)];
        for x in (0..side).filter(|x| is_light(x / scale, y)) {
            row[x / 8] |= 0x80 >> (x % 8);
        }
        (0..scale).for_each(|_| pixels.extend_from_slice(&row));
    }
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, side as u32, side as u32);
    encoder.set_color(ColorType::Grayscale);
    encoder.set_depth(BitDepth::One);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}

fn make(input: Input, out: &mut Output<'_>) -> Result<Answer, Error> {
    let level = match input.error_correction {
        Correction::Low => EcLevel::L,
        Correction::Medium => EcLevel::M,
        Correction::Quartile => EcLevel::Q,
        Correction::High => EcLevel::H,
    };
    let code = QrCode::with_error_correction_level(&input.text, level).or_invalid("text")?;
    let side = (code.width() + 2 * QUIET) * input.scale;
    let (image, svg) = match input.format {
        Format::Png => (draw(&code, input.scale)?, None),
        Format::Svg => {
            let scale = input.scale as u32;
            let svg = code.render::<svg::Color<'_>>().module_dimensions(scale, scale).build();
            (svg.clone().into_bytes(), Some(svg))
        }
    };
    let format = if input.format == Format::Png { "png" } else { "svg" };
    out.image(Image { bytes: &image, format, width: Some(side as u32), height: Some(side as u32) });
    Ok(Answer { format: input.format, image: Blob(image), svg, width: side, height: side })
}

fn main() -> ExitCode {
    run(make)
}
