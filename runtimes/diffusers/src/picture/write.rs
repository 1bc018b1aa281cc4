//! Images as files.

use island_runtimes_kit::error::EngineError;
use png::{BitDepth, ColorType, Encoder};

/// A PNG of `[height, width, 3]` with the generation parameters in a text chunk, which user interfaces read.
pub fn png(pixels: &[u8], height: usize, width: usize, parameters: &str) -> Result<Vec<u8>, EngineError> {
    let failed = |error: png::EncodingError| EngineError::host("write the image").because(error);
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    if !parameters.is_empty() {
        encoder.add_itxt_chunk("parameters".to_owned(), parameters.to_owned()).map_err(failed)?;
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}
