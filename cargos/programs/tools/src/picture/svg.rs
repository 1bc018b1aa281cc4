//! Vector graphics: drawn, and made smaller.

use island_cargo::{Error, Output};
use serde::{Deserialize, Serialize};

use super::{Format, Picture};
use crate::{process, scratch::Scratch};

#[derive(Deserialize)]
pub(crate) struct Drawing {
    svg: String,
    width: Option<u32>,
    height: Option<u32>,
    background: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Optimization {
    svg: String,
    /// Decimal digits of coordinates.
    #[serde(default = "five")]
    precision: u32,
}

#[derive(Serialize)]
pub(crate) struct Optimized {
    svg: String,
    bytes_before: usize,
    bytes_after: usize,
}

fn five() -> u32 {
    5
}

/// The size of a PNG, from its header.
fn size(png: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(png.get(at..at + 4)?.try_into().ok()?));
    number(16).zip(number(20))
}

pub(crate) fn to_png(input: Drawing, out: &mut Output<'_>) -> Result<Picture, Error> {
    let scratch = Scratch::new()?;
    let mut command = process::tool("rsvg-convert", &scratch);
    for (option, side) in [("--width", input.width), ("--height", input.height)] {
        if let Some(side) = side {
            command.args([option, &side.to_string()]);
        }
    }
    if let Some(background) = &input.background {
        command.arg(format!("--background-color={background}"));
    }
    command.args(["--keep-aspect-ratio", "--output", "out"]);
    process::filter(command, input.svg.into_bytes())?;
    let image = scratch.take("out")?;
    let size = size(&image.0);
    Ok(Picture::finished(image, Format::Png, size, out))
}

pub(crate) fn optimize(input: Optimization, _: &mut Output<'_>) -> Result<Optimized, Error> {
    let scratch = Scratch::new()?;
    let bytes_before = input.svg.len();
    let mut command = process::tool("python3", &scratch);
    command.args(["-IBm", "scour.scour", "--quiet", "--enable-viewboxing", "--enable-id-stripping"]);
    command.args([
        "--enable-comment-stripping",
        "--shorten-ids",
        "--indent=none",
        "--remove-descriptive-elements",
    ]);
    command.args(["--strip-xml-prolog", "--no-line-breaks", &format!("--set-precision={}", input.precision)]);
    let svg = String::from_utf8(process::filter(command, input.svg.into_bytes())?)?.trim_end().to_owned();
    Ok(Optimized { bytes_before, bytes_after: svg.len(), svg })
}
