//! Draws barcodes.

use barcoders::{
    error::Error as Refusal,
    generators::svg::SVG,
    sym::{
        codabar::Codabar, code39::Code39, code93::Code93, code128::Code128, ean8::EAN8, ean13::EAN13, tf::TF,
    },
};
use island_cargo::{Blob, Error, Image, Output};
use png::{BitDepth, ColorType, Encoder};
use serde::{Deserialize, Serialize};

/// Light modules on both sides, which readers need.
const QUIET: usize = 10;

#[derive(Deserialize)]
pub(crate) struct Input {
    text: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    format: Format,
    #[serde(default = "two")]
    scale: u32,
    #[serde(default = "eighty")]
    height: u32,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Code128,
    Code39,
    Code93,
    Codabar,
    Ean13,
    Ean8,
    Itf,
}

#[derive(Deserialize, Serialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Png,
    Svg,
}

#[derive(Serialize)]
pub(crate) struct Answer {
    image: Blob,
    format: Format,
    width: u32,
    height: u32,
}

fn two() -> u32 {
    2
}

fn eighty() -> u32 {
    80
}

/// One number a module, 1 for dark.
fn modules(kind: Kind, text: &str) -> Result<Vec<u8>, Refusal> {
    Ok(match kind {
        // The mark selects the character set that holds all of ASCII's letters and digits.
        Kind::Code128 => Code128::new(format!("\u{0181}{text}"))?.encode(),
        Kind::Code39 => Code39::new(text)?.encode(),
        Kind::Code93 => Code93::new(text)?.encode(),
        Kind::Codabar => Codabar::new(text)?.encode(),
        Kind::Ean13 => EAN13::new(text)?.encode(),
        Kind::Ean8 => EAN8::new(text)?.encode(),
        Kind::Itf => TF::interleaved(text)?.encode(),
    })
}

/// A picture of one bit a pixel.
fn paint(modules: &[u8], scale: usize, height: u32) -> Result<Vec<u8>, Error> {
    let width = modules.len() * scale;
    let mut row = vec![0_u8; width.div_ceil(8)];
    for x in (0..width).filter(|x| modules[x / scale] == 0) {
        row[x / 8] |= 0x80 >> (x % 8);
    }
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width as u32, height);
    encoder.set_color(ColorType::Grayscale);
    encoder.set_depth(BitDepth::One);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&row.repeat(height as usize))?;
    writer.finish()?;
    Ok(file)
}

pub(crate) fn draw(input: Input, out: &mut Output<'_>) -> Result<Answer, Error> {
    let code = modules(input.kind, &input.text).map_err(|why| Error::invalid(format!("text: {why}")))?;
    let quiet = vec![0; QUIET];
    let modules = [&quiet[..], &code, &quiet].concat();
    let width = modules.len() as u32 * input.scale;
    let (bytes, name) = match input.format {
        Format::Png => (paint(&modules, input.scale as usize, input.height)?, "png"),
        Format::Svg => {
            let svg = SVG::new(input.height).xdim(input.scale).generate(&modules);
            (svg.map_err(|why| Error::failed(format!("drawing: {why}")))?.into_bytes(), "svg")
        }
    };
    out.image(Image { bytes: &bytes, format: name, width: Some(width), height: Some(input.height) });
    Ok(Answer { image: Blob(bytes), format: input.format, width, height: input.height })
}
