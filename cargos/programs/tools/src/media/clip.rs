//! A part of a video.

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::ffmpeg::{self, Media};
use crate::scratch::Scratch;

#[derive(Deserialize)]
pub(crate) struct Input {
    video: Blob,
    #[serde(default)]
    start_s: f64,
    end_s: f64,
}

pub(crate) fn clip(input: Input, out: &mut Output<'_>) -> Result<Media, Error> {
    if input.end_s <= input.start_s {
        return Err(Error::invalid("end_s is not after start_s"));
    }
    let scratch = Scratch::new()?;
    let seen = ffmpeg::video(&scratch, &input.video)?;
    if input.start_s >= seen.duration_s {
        return Err(Error::invalid(format!("the video ends at {} s, before start_s", seen.duration_s)));
    }
    let length = input.end_s.min(seen.duration_s) - input.start_s;
    let mut command = ffmpeg::ffmpeg(&scratch);
    // Encoded anew: a copy could begin at key frames only.
    command.args(["-ss", &input.start_s.to_string(), "-i", "in", "-t", &length.to_string()]);
    command.args(["-map", "0:v:0", "-map", "0:a:0?", "-vf", &ffmpeg::scale(None)]);
    command.args(["-c:v", "libx264", "-preset", "veryfast", "-crf", "21", "-pix_fmt", "yuv420p"]);
    command.args(["-c:a", "aac", "-b:a", "128k", "-ac", "2", "-movflags", "+faststart"]);
    ffmpeg::run(command, "out.mp4", length, out)?;
    ffmpeg::finished(&scratch, "out.mp4", "mp4")
}
