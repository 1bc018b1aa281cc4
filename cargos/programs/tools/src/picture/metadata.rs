//! Metadata of images.

use island_cargo::{Blob, Error, OrInvalid, Output};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Format;
use crate::{process, scratch::Scratch};

#[derive(Deserialize)]
pub(crate) struct Input {
    image: Blob,
    /// Also gives the picture without them.
    #[serde(default)]
    strip: bool,
}

#[derive(Serialize)]
pub(crate) struct Answer {
    format: Format,
    bytes: usize,
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<Blob>,
}

pub(crate) fn read(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let format =
        Format::of(&input.image.0).or_invalid("the image is not one of png, jpeg, gif, webp, tiff, bmp")?;
    let scratch = Scratch::new()?;
    scratch.put("in", &input.image.0)?;
    let mut command = process::tool("exiftool", &scratch);
    // Groups by family 1 (IFD0, ExifIFD, GPS, XMP-dc, ...); numbers as numbers; nothing about the file on disk.
    command.args([
        "-json",
        "-G1",
        "-n",
        "-struct",
        "-x",
        "System:all",
        "-x",
        "ExifTool:all",
        "-x",
        "SourceFile",
        "in",
    ]);
    let text = process::output(command)?;
    let mut found: Vec<Map<String, Value>> = serde_json::from_slice(&text)?;
    let mut metadata = found.pop().unwrap_or_default();
    metadata.retain(|key, _| key != "SourceFile");
    let image = if input.strip {
        let mut command = process::tool("exiftool", &scratch);
        command.args(["-all=", "-o", "out", "in"]);
        process::output(command)?;
        Some(scratch.take("out")?)
    } else {
        None
    };
    Ok(Answer { format, bytes: input.image.0.len(), metadata, image })
}
