//! Sound at the loudness that broadcasters agreed on (EBU R 128).

use island_cargo::{Blob, Error, Output};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    audio::Target,
    ffmpeg::{self, Media},
};
use crate::{process, scratch::Scratch};

#[derive(Deserialize)]
pub(crate) struct Input {
    audio: Blob,
    #[serde(default = "sixteen_below")]
    target_lufs: f64,
    #[serde(flatten)]
    target: Target,
}

#[derive(Serialize)]
pub(crate) struct Answer {
    #[serde(flatten)]
    media: Media,
    /// How loud it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_lufs: Option<f64>,
}

fn sixteen_below() -> f64 {
    -16.0
}

/// What the first run measured, as the filter writes it at the end of standard error.
fn measured(scratch: &Scratch, target: f64) -> Result<Value, Error> {
    let mut command = ffmpeg::ffmpeg(scratch);
    let filter = format!("loudnorm=I={target}:TP=-1.5:LRA=11:print_format=json");
    command.args(["-v", "info", "-i", "in", "-vn", "-af", &filter, "-f", "null", "-"]);
    let text = String::from_utf8_lossy(&process::both(command)?.stderr).into_owned();
    let report = text.rfind('{').and_then(|start| serde_json::from_str(text[start..].trim()).ok());
    report.ok_or_else(|| Error::failed("the loudness could not be measured"))
}

pub(crate) fn normalize(input: Input, out: &mut Output<'_>) -> Result<Answer, Error> {
    let scratch = Scratch::new()?;
    let seen = ffmpeg::audio(&scratch, "in", &input.audio)?;
    out.status("measuring");
    let report = measured(&scratch, input.target_lufs)?;
    let number = |key: &str| report[key].as_str().and_then(|text| text.parse::<f64>().ok());
    let mut filter = vec![format!("loudnorm=I={}:TP=-1.5:LRA=11", input.target_lufs)];
    // Silence has no loudness ("-inf"), which the second run would not take.
    let keys = [
        ("measured_I", "input_i"),
        ("measured_TP", "input_tp"),
        ("measured_LRA", "input_lra"),
        ("measured_thresh", "input_thresh"),
        ("offset", "target_offset"),
    ];
    let values: Vec<f64> = keys.iter().filter_map(|(_, key)| number(key).filter(|n| n.is_finite())).collect();
    if values.len() == keys.len() {
        filter.extend(keys.iter().zip(&values).map(|((name, _), value)| format!("{name}={value}")));
        filter.push("linear=true".to_owned());
    }
    out.status("normalizing");
    let mut command = ffmpeg::ffmpeg(&scratch);
    // The filter works at 192 kHz; the output gets a common rate unless one is given.
    command.args(["-i", "in", "-af", &filter.join(":"), "-ar", "48000"]);
    input.target.encode(&mut command);
    ffmpeg::run(command, &input.target.file(), seen.duration_s, out)?;
    let media = ffmpeg::finished(&scratch, &input.target.file(), input.target.name())?;
    Ok(Answer { media, measured_lufs: number("input_i").filter(|loudness| loudness.is_finite()) })
}
