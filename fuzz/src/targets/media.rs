//! Pictures and sounds of inputs.

use island_runtimes_kit::media::{base64, picture, sound};

/// Samples per second that models of speech read.
const RATE: u32 = 16_000;

/// A picture in any format.
pub(super) fn picture(input: &[u8]) -> bool {
    picture::decode(input, "image").is_ok()
}

/// A sound in any format, as it is in an input. All samples are numbers.
pub(super) fn sound(input: &[u8]) -> bool {
    let Ok(samples) = sound::decode(&base64::encode(input), RATE) else { return false };
    assert!(samples.iter().all(|sample| sample.is_finite()), "a sample is not a number");
    true
}
