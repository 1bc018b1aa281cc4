//! Still pictures: by ImageMagick, librsvg, ExifTool and scour.

use std::process::Command;

use island_cargo::{Blob, Error, Image, OrInvalid, Output};
use serde::{Deserialize, Serialize};

use crate::{process, scratch::Scratch};

pub(crate) mod barcode;
pub(crate) mod convert;
pub(crate) mod metadata;
pub(crate) mod resize;
pub(crate) mod svg;
pub(crate) mod watermark;

/// The formats that are read and written.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Png,
    #[default]
    Jpeg,
    Gif,
    Webp,
    Tiff,
    Bmp,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpeg",
            Self::Gif => "gif",
            Self::Webp => "webp",
            Self::Tiff => "tiff",
            Self::Bmp => "bmp",
        }
    }

    /// The format of a file, from its first bytes. ImageMagick guesses too, but among many more formats.
    fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some(Self::Tiff),
            [b'B', b'M', ..] => Some(Self::Bmp),
            _ => None,
        }
    }

    /// Whether the format can hold several frames.
    fn moves(self) -> bool {
        matches!(self, Self::Gif | Self::Webp)
    }
}

/// A finished picture, as the result of a job.
#[derive(Serialize)]
pub(crate) struct Picture {
    image: Blob,
    format: Format,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
}

impl Picture {
    /// Also sends it as an event, which clients that show pictures wait for.
    pub(crate) fn finished(
        image: Blob,
        format: Format,
        size: Option<(u32, u32)>,
        out: &mut Output<'_>,
    ) -> Self {
        let (width, height) = size.unzip();
        out.image(Image { bytes: &image.0, format: format.name(), width, height });
        Self { bytes: image.0.len(), image, format, width, height }
    }
}

/// An image in the scratch folder as an argument of ImageMagick: with its format, so that nothing is guessed.
struct Source {
    name: String,
    format: Format,
}

impl Source {
    fn put(scratch: &Scratch, name: &str, image: &Blob) -> Result<Self, Error> {
        let known = "the image is not one of png, jpeg, gif, webp, tiff, bmp";
        let format = Format::of(&image.0).or_invalid(known)?;
        scratch.put(name, &image.0)?;
        Ok(Self { name: format!("{}:{name}", format.name()), format })
    }

    /// Reads the picture, upright: whole frames where both this and what is to be made can hold several, else the first.
    fn read(&self, target: Format, command: &mut Command) {
        if self.format.moves() && target.moves() {
            command.args([&self.name, "-coalesce"]);
        } else {
            command.arg(format!("{}[0]", self.name));
        }
        command.arg("-auto-orient");
    }
}

/// ImageMagick's converter, bounded by the image's `policy.xml`.
fn magick(scratch: &Scratch) -> Command {
    process::tool("convert-im6.q16", scratch)
}

/// Writes the picture that `command` makes, and reads it back.
fn finish(
    mut command: Command,
    scratch: &Scratch,
    format: Format,
    out: &mut Output<'_>,
) -> Result<Picture, Error> {
    // No times and no names: the same picture is the same file.
    command.args(["-define", "png:exclude-chunks=date,time", "+set", "date:create", "+set", "date:modify"]);
    command.arg(format!("{}:out", format.name()));
    process::output(command)?;
    let size = size(scratch, &format!("{}:out[0]", format.name()))?;
    Ok(Picture::finished(scratch.take("out")?, format, Some(size), out))
}

/// Width and height.
fn size(scratch: &Scratch, file: &str) -> Result<(u32, u32), Error> {
    let mut command = process::tool("identify-im6.q16", scratch);
    let text = String::from_utf8(process::output({
        command.args(["-format", "%w %h\n", file]);
        command
    })?)?;
    let parts: Vec<u32> = text.split_whitespace().take(2).filter_map(|part| part.parse().ok()).collect();
    match parts[..] {
        [width, height] => Ok((width, height)),
        _ => Err(Error::failed(format!("the size of the picture cannot be read from {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_first_bytes() {
        assert_eq!(Format::of(b"\x89PNG\r\n\x1a\n"), Some(Format::Png));
        assert_eq!(Format::of(b"RIFF\x01\x02\x03\x04WEBPVP8 "), Some(Format::Webp));
        // What ImageMagick would read as a program of its own.
        for bytes in [&b"push graphic-context"[..], b"<svg/>", b"%!PS", b"", b"RIFF\x01\x02\x03\x04WAVE"] {
            assert_eq!(Format::of(bytes), None, "{bytes:?}");
        }
    }
}
