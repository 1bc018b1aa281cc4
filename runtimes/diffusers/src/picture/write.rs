//! Pictures as files.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::job::{Failure, FailureCode};
use png::{BitDepth, ColorType, Encoder};

/// A PNG of `[height, width, 3]`, with what it was made from in a text chunk, as user interfaces look for it.
pub fn png(pixels: &[u8], height: usize, width: usize, parameters: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error: png::EncodingError| {
        Failure::of_host(FailureCode::InternalError, format!("write the picture: {error}"))
    };
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

/// A file as it stands in an event or output.
pub fn base64(file: &[u8]) -> String {
    STANDARD.encode(file)
}
