//! Images of an input as the numbers that the autoencoder reads.

use image::RgbImage;
use island_runtimes_kit::{
    error::EngineError,
    media::{
        picture,
        resize::{Filter, resize},
    },
};

/// An image of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source(RgbImage);

/// Reads an image in base64 or in a `data:` URL.
pub fn read(text: &str, what: &str) -> Result<Source, EngineError> {
    picture::read(text, what).map(Source)
}

/// Reads a mask whose transparent pixels select; [`Source::mask`] finds them bright.
pub fn read_transparency(text: &str, what: &str) -> Result<Source, EngineError> {
    picture::read_transparency(text, what).map(Source)
}

impl Source {
    /// Height and width in pixels.
    pub fn size(&self) -> (usize, usize) {
        (self.0.height() as usize, self.0.width() as usize)
    }

    /// The image at this size, `[height, width, 3]` in -1..1.
    pub fn pixels(&self, height: usize, width: usize) -> Vec<f32> {
        self.resized(height, width).iter().map(|&byte| 2.0 * (f32::from(byte) / 255.0) - 1.0).collect()
    }

    /// The bright pixels of a mask at this size, `[height, width]` of 0 and 1.
    pub fn mask(&self, height: usize, width: usize) -> Vec<f32> {
        let pixels = self.resized(height, width);
        let grays = pixels.as_chunks::<3>().0.iter().map(|[red, green, blue]| {
            (u32::from(*red) * 19_595 + u32::from(*green) * 38_470 + u32::from(*blue) * 7_471 + 0x8000) >> 16
        });
        grays.map(|gray| f32::from(u8::from(gray > 127))).collect()
    }

    fn resized(&self, height: usize, width: usize) -> Vec<u8> {
        resize(&self.0, width as u32, height as u32, Filter::Lanczos).into_raw()
    }
}
