//! Pictures of another size.

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::{Format, Picture, Source};
use crate::scratch::Scratch;

#[derive(Deserialize)]
pub(crate) struct Input {
    image: Blob,
    width: Option<u32>,
    height: Option<u32>,
    #[serde(default)]
    fit: Fit,
    /// The picture's own where it is missing.
    format: Option<Format>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Fit {
    /// All of the picture within the size.
    #[default]
    Contain,
    /// All of the size filled; what is over is cut off.
    Cover,
    /// Stretched to the size.
    Fill,
}

pub(crate) fn resize(input: Input, out: &mut Output<'_>) -> Result<Picture, Error> {
    let side = |side: Option<u32>| side.map(|side| side.to_string()).unwrap_or_default();
    let (width, height) = (side(input.width), side(input.height));
    let both = input.width.is_some() && input.height.is_some();
    if width.is_empty() && height.is_empty() {
        return Err(Error::invalid("give width, height or both"));
    }
    let scratch = Scratch::new()?;
    let source = Source::put(&scratch, "in", &input.image)?;
    let format = input.format.unwrap_or(source.format);
    let mut command = super::magick(&scratch);
    source.read(format, &mut command);
    match input.fit {
        Fit::Fill if both => command.args(["-resize", &format!("{width}x{height}!")]),
        Fit::Cover if both => {
            command.args(["-resize", &format!("{width}x{height}^"), "-gravity", "center"]);
            command.args(["-extent", &format!("{width}x{height}"), "+repage"])
        }
        _ => command.args(["-resize", &format!("{width}x{height}")]),
    };
    super::finish(command, &scratch, format, out)
}
