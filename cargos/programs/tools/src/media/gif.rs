//! Animations from videos.

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::ffmpeg;
use crate::{
    picture::{Format, Picture},
    scratch::Scratch,
};

#[derive(Deserialize)]
pub(crate) struct Input {
    video: Blob,
    #[serde(default)]
    start_s: f64,
    #[serde(default = "ten")]
    duration_s: f64,
    #[serde(default = "ten")]
    fps: f64,
    #[serde(default = "size")]
    max_width: u32,
}

fn ten() -> f64 {
    10.0
}

fn size() -> u32 {
    480
}

pub(crate) fn make(input: Input, out: &mut Output<'_>) -> Result<Picture, Error> {
    let scratch = Scratch::new()?;
    let seen = ffmpeg::video(&scratch, &input.video)?;
    let length = input.duration_s.min(seen.duration_s - input.start_s);
    if length <= 0.0 {
        return Err(Error::invalid(format!("the video ends at {} s, before start_s", seen.duration_s)));
    }
    let mut command = ffmpeg::ffmpeg(&scratch);
    command.args(["-ss", &input.start_s.to_string(), "-t", &length.to_string(), "-i", "in"]);
    // Two runs over the frames in one: the first computes the palette of 256 colors of this video.
    let filter = format!(
        "fps={},scale='min({},iw)':-1:flags=lanczos,split[a][b];[a]palettegen=stats_mode=diff[p];[b][p]paletteuse",
        input.fps, input.max_width
    );
    command.args(["-filter_complex", &filter, "-an", "-loop", "0"]);
    ffmpeg::run(command, "out.gif", length, out)?;
    let seen = ffmpeg::probe(&scratch, &scratch.at("out.gif"))?;
    let size = seen.width.zip(seen.height).map(|(width, height)| (width as u32, height as u32));
    Ok(Picture::finished(scratch.take("out.gif")?, Format::Gif, size, out))
}
