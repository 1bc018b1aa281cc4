//! Audio: wav, mp3, flac, ogg and m4a in, as one channel at the model's sample rate; wav out.
//!
//! Channels are mixed as ffmpeg mixes them (0153). A file is decoded packet by packet and rejected as soon as it is too long, so that a small
//! file that decodes to hours costs no more than the bound.

mod channels;

use std::io::Cursor;

use rubato::{Fft, FixedSync, Resampler as _, WindowFunction, audioadapter_buffers::direct::SequentialSlice};
use symphonia::core::{
    codecs::audio::AudioDecoderOptions,
    errors::Error,
    formats::{FormatOptions, TrackType, probe::Hint},
    io::{MediaSourceStream, MediaSourceStreamOptions},
    meta::MetadataOptions,
};

use super::base64;
use crate::error::{EngineError, guarded_input, invalid_input};

/// Maximum duration in seconds.
pub const MAX_SECONDS: u64 = 3600;
/// Maximum size of a file in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum sample rate of a file.
const MAX_RATE: u32 = 384_000;

/// Decodes an `audio` input to samples of one channel at `rate`.
pub fn decode(input: &str, rate: u32) -> Result<Vec<f32>, EngineError> {
    let bytes = base64::decode(input, "audio", MAX_BYTES)?;
    let (samples, own_rate) = guarded_input("audio cannot be read", || unpack(bytes))??;
    resample(samples, own_rate, rate)
}

/// The channels of a file as one, and their sample rate.
fn unpack(bytes: Vec<u8>) -> Result<(Vec<f32>, u32), EngineError> {
    let unreadable = |error: Error| invalid_input("audio cannot be read").because(error);
    let source = MediaSourceStream::new(Box::new(Cursor::new(bytes)), MediaSourceStreamOptions::default());
    let mut format = symphonia::default::get_probe()
        .probe(&Hint::new(), source, FormatOptions::default(), MetadataOptions::default())
        .map_err(unreadable)?;
    let track =
        format.default_track(TrackType::Audio).ok_or_else(|| invalid_input("audio has no sound track"))?;
    let id = track.id;
    let settings = track.codec_params.as_ref().and_then(|settings| settings.audio());
    let settings = settings.ok_or_else(|| invalid_input("audio has no sound track that can be decoded"))?;
    let mut decoder = symphonia::default::get_codecs()
        .make_audio_decoder(settings, &AudioDecoderOptions::default())
        .map_err(unreadable)?;
    let (mut samples, mut rate, mut packed) = (Vec::new(), 0, Vec::<f32>::new());
    loop {
        let packet = match format.next_packet() {
            Ok(Some(packet)) => packet,
            // A truncated file is read up to its last packet.
            Ok(None) | Err(Error::ResetRequired) => break,
            Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(unreadable(error)),
        };
        if packet.track_id != id {
            continue;
        }
        let decoded = match decoder.decode(&packet) {
            Ok(decoded) => decoded,
            // A damaged packet is a gap.
            Err(Error::DecodeError(_) | Error::IoError(_)) => continue,
            Err(error) => return Err(unreadable(error)),
        };
        let spec = decoded.spec();
        let now = spec.rate();
        if now == 0 || now > MAX_RATE || (rate != 0 && now != rate) {
            return Err(invalid_input(format!(
                "audio has a rate of {now} Hz where {rate} Hz or at most {MAX_RATE} Hz is read"
            )));
        }
        rate = now;
        let weights = channels::weights(spec.channels())?;
        decoded.copy_to_vec_interleaved(&mut packed);
        let mixed =
            |frame: &[f32]| frame.iter().zip(&weights).map(|(sample, weight)| sample * weight).sum::<f32>();
        samples.extend(packed.chunks_exact(weights.len()).map(mixed));
        if samples.len() as u64 > MAX_SECONDS * u64::from(rate) {
            return Err(invalid_input(format!("audio is longer than {MAX_SECONDS} seconds")));
        }
    }
    if samples.is_empty() {
        return Err(invalid_input("audio holds no sound"));
    }
    if samples.iter().any(|sample| !sample.is_finite()) {
        return Err(invalid_input("audio holds samples that are not numbers"));
    }
    Ok((samples, rate))
}

/// The cause of a failed conversion.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The same audio at another sample rate.
pub fn resample(samples: Vec<f32>, from: u32, to: u32) -> Result<Vec<f32>, EngineError> {
    if from == to {
        return Ok(samples);
    }
    let broke = |error: Cause| {
        invalid_input(format!("audio at {from} Hz cannot be brought to {to} Hz")).because(error)
    };
    // An even number of periods of both rates; otherwise the filter's delay is not a whole sample, and the output is shifted.
    let period = (from / greatest_common_divisor(from, to)) as usize * 2;
    let chunk = period * 2048_usize.div_ceil(period);
    let window = WindowFunction::BlackmanHarris2;
    let mut resampler =
        Fft::<f32>::new_custom(from as usize, to as usize, chunk, 1, 1, window, FixedSync::Input)
            .map_err(|error| broke(error.into()))?;
    let count = samples.len();
    let input = SequentialSlice::new(&samples, 1, count).map_err(|error| broke(error.into()))?;
    let output = resampler.process_all(&input, count, None).map_err(|error| broke(error.into()))?;
    Ok(output.take_data())
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// A wav file of 16-bit samples, as base64.
pub fn wav(samples: &[f32], rate: u32) -> String {
    let bytes = samples.len() as u32 * 2;
    let mut file = Vec::with_capacity(44 + bytes as usize);
    file.extend(b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    // PCM, one channel.
    file.extend([1, 0, 1, 0]);
    file.extend(rate.to_le_bytes());
    file.extend((rate * 2).to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    for sample in samples {
        let level = (sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)).round() as i16;
        file.extend(level.to_le_bytes());
    }
    base64::encode(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, seconds: f32) -> Vec<f32> {
        let count = (rate as f32 * seconds) as usize;
        (0..count).map(|n| (n as f32 / rate as f32 * 440.0 * std::f32::consts::TAU).sin() * 0.5).collect()
    }

    #[test]
    fn written_wav_is_read_back() {
        let samples = tone(16_000, 0.5);
        let read = decode(&wav(&samples, 16_000), 16_000).expect("a wav file");
        assert_eq!(read.len(), samples.len());
        assert!(read.iter().zip(&samples).all(|(a, b)| (a - b).abs() < 1e-4));
    }

    /// A wav file without a mask of places, with a constant level in each channel.
    fn levels(levels: &[f32]) -> String {
        let silence = wav(&vec![0.0; levels.len() * 400], 16_000);
        let mut file = base64::decode(&silence, "audio", MAX_BYTES).expect("base64");
        let count = u16::try_from(levels.len()).expect("a few channels");
        file[22..24].copy_from_slice(&count.to_le_bytes());
        file[28..32].copy_from_slice(&(32_000 * u32::from(count)).to_le_bytes());
        file[32..34].copy_from_slice(&(2 * count).to_le_bytes());
        for (at, sample) in file[44..].chunks_exact_mut(2).enumerate() {
            let level = (levels[at % levels.len()] * 32_768.0) as i16;
            sample.copy_from_slice(&level.to_le_bytes());
        }
        base64::encode(&file)
    }

    #[test]
    fn channels_are_mixed_as_by_ffmpeg() {
        let root = std::f32::consts::FRAC_1_SQRT_2;
        for (given, expected) in [
            (vec![0.25], 0.25),
            (vec![0.25, 0.5], 0.75 * root),
            (vec![0.0, 0.0, 0.25, 0.5, 0.0, 0.0], 0.25),
            (vec![0.25, 0.0, 0.0, 0.0, 0.25, 0.5], 0.25 * root + 0.375),
        ] {
            let read = decode(&levels(&given), 16_000).expect("a wav file");
            assert_eq!(read.len(), 400, "{given:?}");
            assert!(read.iter().all(|sample| (sample - expected).abs() < 1e-4), "{given:?}: {}", read[0]);
        }
        let refused = decode(&levels(&[0.25; 4]), 16_000).expect_err("no places");
        assert_eq!(refused.kind(), crate::error::ErrorKind::InvalidInput);
        assert!(refused.message().contains("4 channels"), "{}", refused.message());
    }

    #[test]
    fn more_channels_than_a_block_can_have_are_an_input_error() {
        let silence = wav(&[0.0; 400], 16_000);
        let mut file = base64::decode(&silence, "audio", MAX_BYTES).expect("base64");
        file[22..24].copy_from_slice(&u16::MAX.to_le_bytes());
        let refused = decode(&base64::encode(&file), 16_000).expect_err("their samples exceed a block");
        assert_eq!(refused.kind(), crate::error::ErrorKind::InvalidInput, "{}", refused.message());
    }

    #[test]
    fn resampling_preserves_a_tone() {
        let read = decode(&wav(&tone(44_100, 1.0), 44_100), 16_000).expect("a wav file");
        let wanted = tone(16_000, 1.0);
        assert!(read.len().abs_diff(wanted.len()) <= 1, "{} samples", read.len());
        // Away from the ends, where the filter lacks samples on one side.
        let middle = 2000..14_000;
        let apart = middle.map(|n| (read[n] - wanted[n]).abs()).fold(0.0, f32::max);
        assert!(apart < 0.002, "{apart}");
    }

    #[test]
    fn invalid_audio_is_an_input_error() {
        for bad in ["", "!!", "bm8gc291bmQ=", &wav(&[], 16_000), "data:audio/wav;base64,UklGRg=="] {
            let failure = decode(bad, 16_000).expect_err("invalid audio");
            assert_eq!(failure.kind(), crate::error::ErrorKind::InvalidInput, "{bad}: {}", failure.message());
        }
    }
}
