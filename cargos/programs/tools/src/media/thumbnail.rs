//! One picture of a video.

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
    /// A tenth into the video where it is missing.
    at_s: Option<f64>,
    #[serde(default = "size")]
    max_width: u32,
    #[serde(default)]
    format: Format,
}

fn size() -> u32 {
    640
}

pub(crate) fn thumbnail(input: Input, out: &mut Output<'_>) -> Result<Picture, Error> {
    let scratch = Scratch::new()?;
    let seen = ffmpeg::video(&scratch, &input.video)?;
    let at = input.at_s.unwrap_or(seen.duration_s / 10.0);
    if at > seen.duration_s {
        return Err(Error::invalid(format!("the video ends at {} s, before at_s", seen.duration_s)));
    }
    let name = format!("out.{}", input.format.name());
    let mut command = ffmpeg::ffmpeg(&scratch);
    command.args(["-ss", &at.to_string(), "-i", "in", "-frames:v", "1", "-update", "1", "-an"]);
    command.args(["-vf", &format!("scale='min({},iw)':-1", input.max_width), "-q:v", "3"]);
    ffmpeg::run(command, &name, 0.0, out)?;
    let seen = ffmpeg::probe(&scratch, &scratch.at(&name))?;
    let size = seen.width.zip(seen.height).map(|(width, height)| (width as u32, height as u32));
    Ok(Picture::finished(scratch.take(&name)?, input.format, size, out))
}
