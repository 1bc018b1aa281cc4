//! ffmpeg and ffprobe, and what they make.

use std::{path::Path, process::Command};

use island_cargo::{Blob, Error, Output};
use serde::Serialize;
use serde_json::Value;

use crate::{process, scratch::Scratch};

/// What is known about a file.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) duration_s: f64,
    pub(super) width: Option<u64>,
    pub(super) height: Option<u64>,
    pub(super) has_video: bool,
    pub(super) has_audio: bool,
}

/// A finished file.
#[derive(Serialize)]
pub(crate) struct Media {
    data: Blob,
    format: String,
    bytes: usize,
    duration_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u64>,
}

/// Looks at a file. Playlists that name other files are not followed.
pub(super) fn probe(scratch: &Scratch, file: &Path) -> Result<Probe, Error> {
    let mut command = process::tool("ffprobe", scratch);
    command.args(["-v", "error", "-protocol_whitelist", "file", "-of", "json"]);
    command.args(["-show_entries", "format=duration:stream=codec_type,width,height,duration"]).arg(file);
    let found: Value = serde_json::from_slice(&process::output(command)?)?;
    let streams = found["streams"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_kind = |kind: &str| streams.iter().find(|stream| stream["codec_type"] == kind);
    let seconds = |value: &Value| value["duration"].as_str().and_then(|text| text.parse().ok());
    let video = of_kind("video");
    Ok(Probe {
        duration_s: seconds(&found["format"]).or_else(|| streams.iter().find_map(seconds)).unwrap_or(0.0),
        width: video.and_then(|video| video["width"].as_u64()),
        height: video.and_then(|video| video["height"].as_u64()),
        has_video: video.is_some(),
        has_audio: of_kind("audio").is_some(),
    })
}

/// An ffmpeg that asks nothing, reads local files only and writes what does not depend on the machine or the day.
pub(super) fn ffmpeg(scratch: &Scratch) -> Command {
    let mut command = process::tool("ffmpeg", scratch);
    command.args(["-hide_banner", "-nostdin", "-v", "error", "-y", "-protocol_whitelist", "file,pipe"]);
    command
}

/// Runs ffmpeg to its end and reports progress; `duration_s` is the duration of the output, 0 if unknown.
pub(super) fn run(
    mut command: Command,
    name: &str,
    duration_s: f64,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    command.args(["-map_metadata", "-1", "-fflags", "+bitexact", "-progress", "pipe:1", name]);
    let mut told = 0;
    process::lines(command, |line| {
        let done = line.strip_prefix("out_time_us=").and_then(|text| text.parse::<f64>().ok());
        let Some(done) = done.filter(|_| duration_s > 0.0) else { return };
        let percent = (done / 1e4 / duration_s).clamp(0.0, 100.0) as u64;
        if percent > told {
            told = percent;
            out.progress(percent, 100);
        }
    })
}

/// The finished file, looked at once more.
pub(super) fn finished(scratch: &Scratch, name: &str, format: &str) -> Result<Media, Error> {
    let seen = probe(scratch, &scratch.at(name))?;
    let data = scratch.take(name)?;
    Ok(Media {
        bytes: data.0.len(),
        data,
        format: format.to_owned(),
        duration_s: (seen.duration_s * 1000.0).round() / 1000.0,
        width: seen.width,
        height: seen.height,
    })
}

/// A filter that makes a picture at most `width` wide, with the even sides that most codecs want.
pub(super) fn scale(width: Option<u32>) -> String {
    match width {
        Some(width) => format!("scale='min({width},iw)':-2,scale=trunc(iw/2)*2:trunc(ih/2)*2"),
        None => "scale=trunc(iw/2)*2:trunc(ih/2)*2".to_owned(),
    }
}

/// Returns the input, or an error that names what is missing.
pub(super) fn video(scratch: &Scratch, data: &Blob) -> Result<Probe, Error> {
    let seen = probe(scratch, &scratch.put("in", &data.0)?)?;
    if seen.has_video { Ok(seen) } else { Err(Error::invalid("video holds no picture")) }
}

/// Like [`video`], for sound.
pub(super) fn audio(scratch: &Scratch, name: &str, data: &Blob) -> Result<Probe, Error> {
    let seen = probe(scratch, &scratch.put(name, &data.0)?)?;
    if seen.has_audio { Ok(seen) } else { Err(Error::invalid("audio holds no sound")) }
}
