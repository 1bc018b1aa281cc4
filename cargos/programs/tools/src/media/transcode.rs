//! Videos in another format or codec.

use std::process::Command;

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::ffmpeg::{self, Media};
use crate::scratch::Scratch;

#[derive(Deserialize)]
pub(crate) struct Input {
    video: Blob,
    format: Format,
    codec: Option<Codec>,
    #[serde(default)]
    mute: bool,
    max_width: Option<u32>,
    fps: Option<f64>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    Mp4,
    Webm,
    Mkv,
    Mov,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Codec {
    H264,
    H265,
    Vp8,
    Vp9,
    Av1,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Mp4 => "mp4",
            Self::Webm => "webm",
            Self::Mkv => "mkv",
            Self::Mov => "mov",
        }
    }

    /// The codec that every player of the format knows.
    fn usual(self) -> Codec {
        if self == Self::Webm { Codec::Vp9 } else { Codec::H264 }
    }

    fn holds(self, codec: Codec) -> bool {
        let open = matches!(codec, Codec::Vp8 | Codec::Vp9 | Codec::Av1);
        match self {
            Self::Mkv => true,
            Self::Webm => open,
            Self::Mp4 | Self::Mov => !matches!(codec, Codec::Vp8),
        }
    }
}

/// One thread each: the tiers give one or two processors, and frames in flight cost memory.
fn encoder(command: &mut Command, codec: Codec) {
    command.args(match codec {
        Codec::H264 => &["-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-pix_fmt", "yuv420p"][..],
        Codec::H265 => &[
            "-c:v",
            "libx265",
            "-preset",
            "veryfast",
            "-crf",
            "26",
            "-pix_fmt",
            "yuv420p",
            "-x265-params",
            "log-level=error:pools=1",
            "-tag:v",
            "hvc1",
        ][..],
        Codec::Vp8 => &["-c:v", "libvpx", "-crf", "20", "-b:v", "1M", "-cpu-used", "5"][..],
        Codec::Vp9 => {
            &["-c:v", "libvpx-vp9", "-crf", "34", "-b:v", "0", "-deadline", "realtime", "-cpu-used", "6"][..]
        }
        Codec::Av1 => {
            &["-c:v", "libaom-av1", "-crf", "36", "-b:v", "0", "-usage", "realtime", "-cpu-used", "8"][..]
        }
    });
}

pub(crate) fn transcode(input: Input, out: &mut Output<'_>) -> Result<Media, Error> {
    let codec = input.codec.unwrap_or(input.format.usual());
    if !input.format.holds(codec) {
        return Err(Error::invalid(format!("{} cannot hold this codec", input.format.name())));
    }
    let scratch = Scratch::new()?;
    let seen = ffmpeg::video(&scratch, &input.video)?;
    let name = format!("out.{}", input.format.name());
    let mut command = ffmpeg::ffmpeg(&scratch);
    command.args(["-i", "in", "-map", "0:v:0", "-map", "0:a:0?"]);
    let rate = input.fps.map(|fps| format!(",fps={fps}")).unwrap_or_default();
    let filter = ffmpeg::scale(input.max_width) + &rate;
    command.args(["-vf", &filter]);
    encoder(&mut command, codec);
    if input.mute {
        command.arg("-an");
    } else {
        let open = matches!(input.format, Format::Webm);
        command.args(["-c:a", if open { "libopus" } else { "aac" }, "-b:a", "128k", "-ac", "2"]);
    }
    if matches!(input.format, Format::Mp4 | Format::Mov) {
        command.args(["-movflags", "+faststart"]);
    }
    ffmpeg::run(command, &name, seen.duration_s, out)?;
    ffmpeg::finished(&scratch, &name, input.format.name())
}
