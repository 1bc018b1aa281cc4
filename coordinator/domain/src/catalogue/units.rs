//! What a job costs whose price is for a unit: an image, or a minute of sound.

use std::io::Cursor;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    cargo::{CargoEntry, PriceUnit},
    credits::MicroCredits,
};
use serde_json::{Map, Value};
use symphonia::core::{
    formats::{FormatOptions, TrackType, probe::Hint},
    io::{MediaSourceStream, MediaSourceStreamOptions},
    meta::MetadataOptions,
};

/// The shortest sound that is charged, milliseconds.
const LEAST_MS: u64 = 10_000;
const MINUTE_MS: u64 = 60_000;
/// The longest sound that has a price, milliseconds: engines read less.
const MOST_MS: u64 = 24 * 3_600_000;

/// The sound of an input has no length that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sound cannot be read, so that it has no price")]
pub struct Unreadable;

/// The price of a job with this input, apart from its tokens.
pub fn price(entry: &CargoEntry, input: &Map<String, Value>) -> Result<MicroCredits, Unreadable> {
    let price = entry.price_per_job;
    let (units, of) = match entry.price_unit {
        PriceUnit::Job => return Ok(price),
        PriceUnit::Image => (input.get("num_images").and_then(Value::as_u64).unwrap_or(1).max(1), 1),
        PriceUnit::Minute => {
            let sound = input.get("audio").and_then(Value::as_str).unwrap_or_default();
            (length_ms(sound).ok_or(Unreadable)?.max(LEAST_MS), MINUTE_MS)
        }
    };
    let cost = i128::from(price.0) * i128::from(units);
    let rounded_up = (cost + i128::from(of) - 1) / i128::from(of);
    Ok(MicroCredits(i64::try_from(rounded_up).unwrap_or(i64::MAX)))
}

/// The length of a sound file in base64 or in a `data:` URL: that of its packets. Nothing is decoded.
fn length_ms(file: &str) -> Option<u64> {
    let text = match file.strip_prefix("data:") {
        Some(url) => url.split_once(";base64,")?.1,
        None => file,
    };
    let bytes = STANDARD.decode(text.trim()).ok()?;
    let source = MediaSourceStream::new(Box::new(Cursor::new(bytes)), MediaSourceStreamOptions::default());
    let probe = symphonia::default::get_probe();
    let mut format =
        probe.probe(&Hint::new(), source, FormatOptions::default(), MetadataOptions::default()).ok()?;
    let track = format.default_track(TrackType::Audio)?;
    let (id, tick) = (track.id, track.time_base?);
    let mut ticks = 0_u64;
    // As the engines do: a damaged file is read up to its damage.
    while let Ok(Some(packet)) = format.next_packet() {
        if packet.track_id == id {
            ticks = ticks.saturating_add(packet.dur.get());
        }
    }
    let ms = u128::from(ticks) * u128::from(tick.numer.get()) * 1000 / u128::from(tick.denom.get());
    u64::try_from(ms).ok().filter(|ms| (1..=MOST_MS).contains(ms))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn entry(unit: &str, price: f64) -> CargoEntry {
        serde_json::from_value(json!({
            "slug": "a", "name": "A", "description": "A.", "runtime_type": "onnx", "onnx_task_type": null,
            "price_per_job": price, "price_unit": unit, "required_vram_mb": 0, "required_ram_mb": 0,
        }))
        .expect("an entry")
    }

    fn of(unit: &str, price: f64, input: Value) -> Result<f64, Unreadable> {
        let Value::Object(input) = input else { panic!("an object") };
        super::price(&entry(unit, price), &input).map(|price| price.0 as f64 / 1e6)
    }

    fn wav(seconds: f64, stated: Option<u32>) -> String {
        let spec = hound::WavSpec {
            channels: 1,
            sample_rate: 8000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut file = Cursor::new(Vec::new());
        let mut writer = hound::WavWriter::new(&mut file, spec).expect("a writer");
        (0..(seconds * 8000.0) as usize).for_each(|_| writer.write_sample(0_i16).expect("written"));
        writer.finalize().expect("ended");
        let mut bytes = file.into_inner();
        if let Some(stated) = stated {
            bytes[40..44].copy_from_slice(&stated.to_le_bytes());
        }
        STANDARD.encode(bytes)
    }

    #[test]
    fn images_cost_their_number_and_sound_its_length() {
        assert_eq!(of("job", 0.5, json!({"num_images": 4})), Ok(0.5));
        assert_eq!(of("image", 0.01, json!({})), Ok(0.01));
        assert_eq!(of("image", 0.01, json!({"num_images": 4})), Ok(0.04));
        assert_eq!(of("minute", 0.06, json!({"audio": wav(30.0, None)})), Ok(0.03));
        assert_eq!(of("minute", 0.06, json!({"audio": wav(1.0, None)})), Ok(0.01), "ten seconds");
        let url = format!("data:audio/wav;base64,{}", wav(90.0, None));
        assert_eq!(of("minute", 0.06, json!({"audio": url})), Ok(0.09));
        // What follows the data that the header states is not read by engines either.
        assert_eq!(of("minute", 0.06, json!({"audio": wav(60.0, Some(480_000))})), Ok(0.03));
        for audio in [json!("aGk="), json!("?"), json!(7), json!(wav(0.0, None))] {
            assert_eq!(of("minute", 0.06, json!({"audio": audio})), Err(Unreadable), "{audio}");
        }
    }

    proptest! {
        #[test]
        fn no_input_costs_less_than_nothing_or_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000), images in any::<u64>()) {
            let sound = STANDARD.encode([&STANDARD.decode(wav(0.1, None)).expect("base64")[..44], &bytes].concat());
            for audio in [STANDARD.encode(&bytes), sound] {
                let cost = of("minute", 0.06, json!({"audio": audio}));
                prop_assert!(cost.is_err() || cost.is_ok_and(|cost| cost > 0.0));
            }
            let cost = of("image", 0.01, json!({"num_images": images}));
            prop_assert!(cost.is_ok_and(|cost| cost >= 0.01));
        }
    }
}
