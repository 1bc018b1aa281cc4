//! Sound in another format.

use std::process::Command;

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::ffmpeg::{self, Media};
use crate::scratch::Scratch;

#[derive(Deserialize)]
pub(crate) struct Input {
    audio: Blob,
    #[serde(flatten)]
    target: Target,
}

/// What is to be made.
#[derive(Deserialize)]
pub(super) struct Target {
    #[serde(default)]
    format: Format,
    bitrate_kbps: Option<u32>,
    sample_rate: Option<u32>,
    channels: Option<u32>,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Mp3,
    Ogg,
    Opus,
    M4a,
    Flac,
    Wav,
}

impl Target {
    pub(super) fn name(&self) -> &'static str {
        match self.format {
            Format::Mp3 => "mp3",
            Format::Ogg => "ogg",
            Format::Opus => "opus",
            Format::M4a => "m4a",
            Format::Flac => "flac",
            Format::Wav => "wav",
        }
    }

    pub(super) fn file(&self) -> String {
        format!("out.{}", self.name())
    }

    pub(super) fn encode(&self, command: &mut Command) {
        command.arg("-vn");
        match self.format {
            Format::Mp3 => command.args(["-c:a", "libmp3lame"]),
            Format::Ogg => command.args(["-c:a", "libvorbis"]),
            Format::Opus => command.args(["-c:a", "libopus"]),
            Format::M4a => command.args(["-c:a", "aac"]),
            Format::Flac => command.args(["-c:a", "flac"]),
            Format::Wav => command.args(["-c:a", "pcm_s16le"]),
        };
        let lossy = !matches!(self.format, Format::Flac | Format::Wav);
        if let Some(rate) = self.bitrate_kbps.filter(|_| lossy) {
            command.args(["-b:a", &format!("{rate}k")]);
        }
        if let Some(rate) = self.sample_rate {
            command.args(["-ar", &rate.to_string()]);
        }
        if let Some(channels) = self.channels {
            command.args(["-ac", &channels.to_string()]);
        }
    }
}

pub(crate) fn convert(input: Input, out: &mut Output<'_>) -> Result<Media, Error> {
    let scratch = Scratch::new()?;
    let seen = ffmpeg::audio(&scratch, "in", &input.audio)?;
    let mut command = ffmpeg::ffmpeg(&scratch);
    command.args(["-i", "in"]);
    input.target.encode(&mut command);
    ffmpeg::run(command, &input.target.file(), seen.duration_s, out)?;
    ffmpeg::finished(&scratch, &input.target.file(), input.target.name())
}
