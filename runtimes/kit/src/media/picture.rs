//! Images in: within limits, upright, three channels of eight bits.
//!
//! The channels are those of Pillow's `convert("RGB")`: transparency is dropped, not blended, and grayscale is repeated.

use std::io::Cursor;

use image::{
    DynamicImage, ImageBuffer, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage,
    metadata::Orientation,
};

use super::base64;
use crate::error::{EngineError, invalid_input};

/// Maximum size of a file in bytes.
pub const MAX_BYTES: usize = 32 << 20;
/// Maximum number of pixels, checked in the header.
pub const MAX_PIXELS: u64 = 50_000_000;
/// Maximum length of a side in pixels.
pub const MAX_SIDE: u32 = 32_768;
/// Maximum memory of decoding in bytes.
const MAX_DECODING: u64 = 512 << 20;

/// The image of an input. `what` names it in errors.
pub fn read(text: &str, what: &str) -> Result<RgbImage, EngineError> {
    read_within(text, what, MAX_PIXELS)
}

/// The image of an input, of at most `most` pixels.
pub fn read_within(text: &str, what: &str, most: u64) -> Result<RgbImage, EngineError> {
    decode_within(&base64::decode(text, what, MAX_BYTES)?, what, most)
}

/// The image of a file.
pub fn decode(bytes: &[u8], what: &str) -> Result<RgbImage, EngineError> {
    decode_within(bytes, what, MAX_PIXELS)
}

/// How transparent each pixel of an input's image is, from 0 to 255 in all three channels. Returns an error for an image without
/// transparency, which would be opaque everywhere.
pub fn read_transparency(text: &str, what: &str) -> Result<RgbImage, EngineError> {
    let picture = open(&base64::decode(text, what, MAX_BYTES)?, what, MAX_PIXELS)?;
    if !picture.color().has_alpha() {
        return Err(invalid_input(format!("{what} has no transparency, which selects what is changed")));
    }
    let pixels = picture.to_rgba8();
    Ok(RgbImage::from_fn(pixels.width(), pixels.height(), |x, y| {
        let transparency = 255 - pixels.get_pixel(x, y)[3];
        image::Rgb([transparency; 3])
    }))
}

fn decode_within(bytes: &[u8], what: &str, most: u64) -> Result<RgbImage, EngineError> {
    open(bytes, what, most).map(rgb)
}

/// The image of a file within the limits, upright.
fn open(bytes: &[u8], what: &str, most: u64) -> Result<DynamicImage, EngineError> {
    let unreadable =
        |error: image::ImageError| invalid_input(format!("{what} cannot be read")).because(error);
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    let mut reader =
        reader.map_err(|error| invalid_input(format!("{what} cannot be read")).because(error))?;
    let Some(format) = reader.format() else {
        return Err(invalid_input(format!(
            "{what} is not in a known format: PNG, JPEG, WebP, GIF, BMP or TIFF"
        )));
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODING);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(unreadable)?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(invalid_input(format!("{what} has {width} × {height} pixels")));
    }
    if u64::from(width) * u64::from(height) > most || decoder.total_bytes() > MAX_DECODING {
        return Err(invalid_input(format!("{what} has {width} × {height} pixels, more than {most}")));
    }
    if format == ImageFormat::Jpeg && !jpeg_ends(bytes) {
        return Err(invalid_input(format!("{what} cannot be read: its file is truncated")));
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::from_decoder(decoder).map_err(unreadable)?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

/// Keeps the upper eight of sixteen bits. Pillow does so for color; it would clip grayscale at 255, which leaves nothing visible.
fn rgb(picture: DynamicImage) -> RgbImage {
    let high = |value: u16| (value >> 8) as u8;
    let (width, height) = (picture.width(), picture.height());
    let make = |pixels: Vec<u8>| ImageBuffer::from_raw(width, height, pixels);
    let made = match &picture {
        DynamicImage::ImageRgb16(wide) => make(wide.iter().map(|&value| high(value)).collect()),
        DynamicImage::ImageRgba16(wide) => {
            make(wide.pixels().flat_map(|pixel| [pixel[0], pixel[1], pixel[2]].map(high)).collect())
        }
        DynamicImage::ImageLuma16(wide) => make(wide.iter().flat_map(|&value| [high(value); 3]).collect()),
        DynamicImage::ImageLumaA16(wide) => {
            make(wide.pixels().flat_map(|pixel| [high(pixel[0]); 3]).collect())
        }
        _ => None,
    };
    made.unwrap_or_else(|| picture.into_rgb8())
}

/// Whether the image data has an end marker; the decoder would fill missing data with gray.
fn jpeg_ends(bytes: &[u8]) -> bool {
    let mut at = 2;
    // Each segment has its length in front, up to the one after which the image data begins.
    while let Some(&[0xff, marker, high, low]) =
        bytes.get(at..at + 4).and_then(|head| head.first_chunk::<4>())
    {
        if marker == 0xff {
            at += 1;
            continue;
        }
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
        if marker == 0xda {
            break;
        }
    }
    bytes.get(at..).is_some_and(|picture| picture.windows(2).any(|pair| pair == [0xff, 0xd9]))
}

#[cfg(test)]
mod tests {
    use image::{GrayAlphaImage, Luma, Rgba, RgbaImage};

    use super::*;

    fn png(picture: &DynamicImage) -> Vec<u8> {
        let mut bytes = Vec::new();
        picture.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).expect("written");
        bytes
    }

    #[test]
    fn transparency_is_dropped_and_grayscale_repeated() {
        let clear = RgbaImage::from_pixel(2, 1, Rgba([10, 20, 30, 0]));
        assert_eq!(
            decode(&png(&clear.into()), "the image").expect("read").as_raw(),
            &[10, 20, 30, 10, 20, 30]
        );
        let gray = GrayAlphaImage::from_pixel(1, 1, image::LumaA([7, 3]));
        assert_eq!(decode(&png(&gray.into()), "the image").expect("read").as_raw(), &[7, 7, 7]);
        let wide = ImageBuffer::from_pixel(1, 1, Luma([0x12ff_u16]));
        assert_eq!(
            decode(&png(&DynamicImage::ImageLuma16(wide)), "the image").expect("read").as_raw(),
            &[0x12; 3]
        );
    }

    #[test]
    fn transparency_is_read_apart_from_colors() {
        use ::base64::{Engine as _, engine::general_purpose::STANDARD};
        let of = |picture: DynamicImage| {
            let text = STANDARD.encode(png(&picture));
            read_transparency(&text, "mask_image").map(RgbImage::into_raw).map_err(|error| error.message())
        };
        let clear = RgbaImage::from_fn(2, 1, |x, _| Rgba([10, 20, 30, 100 * x as u8]));
        assert_eq!(of(clear.into()), Ok(vec![255, 255, 255, 155, 155, 155]));
        assert!(
            of(RgbImage::new(1, 1).into()).expect_err("opaque").contains("mask_image has no transparency")
        );
    }

    #[test]
    fn huge_image_is_rejected_by_its_header() {
        // A BMP whose header claims 30,000 × 30,000 pixels.
        let picture = DynamicImage::from(RgbImage::new(1, 1));
        let mut bytes = Vec::new();
        picture.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Bmp).expect("written");
        bytes[18..26].copy_from_slice(&[0x30, 0x75, 0, 0, 0x30, 0x75, 0, 0]);
        assert!(decode(&bytes, "the image").expect_err("refused").message().contains("more than"));
    }
}
