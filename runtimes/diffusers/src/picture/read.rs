//! Pictures of an input: within limits, the right way up, as numbers that the autoencoder reads.

use std::{borrow::Cow, io::Cursor};

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use image::{DynamicImage, ImageDecoder, ImageReader, Limits, RgbImage, metadata::Orientation};
use island_protocol::job::Failure;

use super::resize::resize;
use crate::run::invalid_input;

/// Most bytes of a file.
const MAX_BYTES: usize = 32 << 20;
/// Most pixels; what the header says is enough to refuse.
const MAX_PIXELS: u64 = 50_000_000;
/// Longest side, pixels.
const MAX_SIDE: u32 = 32_768;
/// Most memory that decoding may take, bytes.
const MAX_DECODING: u64 = 512 << 20;

/// Senders leave the padding out or not.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A picture that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source(RgbImage);

/// The picture in base64, or in a `data:` URL of it.
pub fn read(text: &str, what: &str) -> Result<Source, Failure> {
    let text = match text.strip_prefix("data:") {
        Some(url) => match url.split_once(";base64,") {
            Some((_, data)) => data,
            None => return Err(invalid_input(format!("{what} is a data: URL that is not base64"))),
        },
        None if text.starts_with("http://") || text.starts_with("https://") => {
            return Err(invalid_input(format!(
                "{what} is an address; this Cargo takes the file itself, as base64"
            )));
        }
        None => text,
    };
    if text.len() / 4 * 3 > MAX_BYTES {
        return Err(invalid_input(format!("{what} has more than {MAX_BYTES} bytes")));
    }
    let text = if text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        Cow::Owned(text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect::<String>())
    } else {
        Cow::Borrowed(text)
    };
    let bytes = LENIENT.decode(text.as_bytes());
    decode(&bytes.map_err(|error| invalid_input(format!("{what} is not base64: {error}")))?, what)
}

fn decode(bytes: &[u8], what: &str) -> Result<Source, Failure> {
    let unreadable = |error: image::ImageError| invalid_input(format!("{what} cannot be read: {error}"));
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    let mut reader = reader.map_err(|error| invalid_input(format!("{what} cannot be read: {error}")))?;
    if reader.format().is_none() {
        return Err(invalid_input(format!(
            "{what} is no picture that is known: PNG, JPEG, WebP, GIF, BMP or TIFF"
        )));
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODING);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(unreadable)?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > MAX_PIXELS || decoder.total_bytes() > MAX_DECODING {
        return Err(invalid_input(format!(
            "{what} has {width} × {height} pixels; 1 to {MAX_PIXELS} can be read"
        )));
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::from_decoder(decoder).map_err(unreadable)?;
    picture.apply_orientation(orientation);
    Ok(Source(picture.into_rgb8()))
}

impl Source {
    /// Height and width, pixels.
    pub fn size(&self) -> (usize, usize) {
        (self.0.height() as usize, self.0.width() as usize)
    }

    /// The picture in a size, `[height, width, 3]` in -1..1.
    pub fn pixels(&self, height: usize, width: usize) -> Vec<f32> {
        self.resized(height, width).into_iter().map(|byte| 2.0 * (f32::from(byte) / 255.0) - 1.0).collect()
    }

    /// Where a mask of this picture is bright, in a size: `[height, width]` of 0 and 1.
    pub fn mask(&self, height: usize, width: usize) -> Vec<f32> {
        let pixels = self.resized(height, width);
        let grays = pixels.as_chunks::<3>().0.iter().map(|[red, green, blue]| {
            (u32::from(*red) * 19_595 + u32::from(*green) * 38_470 + u32::from(*blue) * 7_471 + 0x8000) >> 16
        });
        grays.map(|gray| f32::from(u8::from(gray > 127))).collect()
    }

    fn resized(&self, height: usize, width: usize) -> Vec<u8> {
        resize(self.0.as_raw(), self.size(), (height, width))
    }
}
