//! Pictures in another format, and smaller ones.

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::{Format, Picture, Source};
use crate::scratch::Scratch;

#[derive(Deserialize)]
pub(crate) struct Conversion {
    image: Blob,
    format: Format,
    quality: Option<u32>,
    /// What transparent parts become where the format has none.
    #[serde(default = "white")]
    background: String,
}

#[derive(Deserialize)]
pub(crate) struct Compression {
    image: Blob,
    #[serde(default = "seventy_five")]
    quality: u32,
    /// The picture's own where it is missing.
    format: Option<Format>,
    max_width: Option<u32>,
}

fn white() -> String {
    "white".to_owned()
}

fn seventy_five() -> u32 {
    75
}

pub(crate) fn convert(input: Conversion, out: &mut Output<'_>) -> Result<Picture, Error> {
    let scratch = Scratch::new()?;
    let source = Source::put(&scratch, "in", &input.image)?;
    let mut command = super::magick(&scratch);
    source.read(input.format, &mut command);
    if matches!(input.format, Format::Jpeg | Format::Bmp) {
        // A value that begins with @ would be read as a file's name.
        let named = input.background.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '#');
        if !named {
            return Err(Error::invalid("background must be the name of a color or #rrggbb"));
        }
        command.args(["-background", &input.background, "-flatten"]);
    }
    if let Some(quality) = input.quality {
        command.args(["-quality", &quality.to_string()]);
    }
    super::finish(command, &scratch, input.format, out)
}

pub(crate) fn compress(input: Compression, out: &mut Output<'_>) -> Result<Picture, Error> {
    let scratch = Scratch::new()?;
    let source = Source::put(&scratch, "in", &input.image)?;
    let format = input.format.unwrap_or(source.format);
    let mut command = super::magick(&scratch);
    source.read(format, &mut command);
    command.arg("-strip");
    if let Some(width) = input.max_width {
        command.args(["-resize", &format!("{width}x>")]);
    }
    let quality = input.quality.clamp(1, 100);
    match format {
        Format::Jpeg => {
            command.args([
                "-sampling-factor",
                "4:2:0",
                "-interlace",
                "JPEG",
                "-quality",
                &quality.to_string(),
            ]);
        }
        Format::Webp => {
            command.args(["-quality", &quality.to_string(), "-define", "webp:method=6"]);
        }
        // Lossless formats reduce the number of colors instead, for a quality below the maximum.
        Format::Png | Format::Gif if quality < 100 => {
            let colours = (256 * quality / 100).clamp(8, 256).to_string();
            command.args(["-colors", &colours, "-define", "png:compression-level=9"]);
        }
        Format::Tiff => {
            command.args(["-compress", "zip"]);
        }
        _ => {}
    }
    if matches!(format, Format::Gif) {
        command.args(["-layers", "optimize"]);
    }
    super::finish(command, &scratch, format, out)
}
