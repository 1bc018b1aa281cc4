//! Smaller videos.

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::ffmpeg::{self, Media};
use crate::scratch::Scratch;

#[derive(Deserialize)]
pub(crate) struct Input {
    video: Blob,
    /// From 1 to 100.
    #[serde(default = "fifty")]
    quality: u32,
    max_width: Option<u32>,
}

fn fifty() -> u32 {
    50
}

/// The encoder's own scale: 18 is as good as the original to most eyes, 40 is poor.
fn rate_factor(quality: u32) -> u32 {
    40 - (quality.clamp(1, 100) * 22 / 100)
}

pub(crate) fn compress(input: Input, out: &mut Output<'_>) -> Result<Media, Error> {
    let scratch = Scratch::new()?;
    let seen = ffmpeg::video(&scratch, &input.video)?;
    let mut command = ffmpeg::ffmpeg(&scratch);
    command.args(["-i", "in", "-map", "0:v:0", "-map", "0:a:0?", "-vf", &ffmpeg::scale(input.max_width)]);
    command.args(["-c:v", "libx264", "-preset", "fast", "-pix_fmt", "yuv420p"]);
    command.args(["-crf", &rate_factor(input.quality).to_string()]);
    command.args(["-c:a", "aac", "-b:a", "96k", "-ac", "2", "-movflags", "+faststart"]);
    ffmpeg::run(command, "out.mp4", seen.duration_s, out)?;
    ffmpeg::finished(&scratch, "out.mp4", "mp4")
}

#[cfg(test)]
mod tests {
    use super::rate_factor;

    #[test]
    fn better_quality_is_a_lower_factor() {
        assert_eq!((rate_factor(1), rate_factor(50), rate_factor(100)), (40, 29, 18));
    }
}
