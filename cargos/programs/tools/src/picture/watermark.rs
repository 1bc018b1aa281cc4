//! Pictures with a mark: a text or another picture.

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::{Picture, Source};
use crate::scratch::Scratch;

/// The font that is in the image.
const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";

#[derive(Deserialize)]
pub(crate) struct Input {
    image: Blob,
    text: Option<String>,
    watermark: Option<Blob>,
    #[serde(default)]
    position: Position,
    #[serde(default = "half")]
    opacity: f64,
    /// Width of the mark, as a share of the picture's.
    #[serde(default = "quarter")]
    scale: f64,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Position {
    TopLeft,
    Top,
    TopRight,
    Left,
    Center,
    Right,
    BottomLeft,
    Bottom,
    #[default]
    BottomRight,
}

impl Position {
    fn gravity(self) -> &'static str {
        match self {
            Self::TopLeft => "NorthWest",
            Self::Top => "North",
            Self::TopRight => "NorthEast",
            Self::Left => "West",
            Self::Center => "Center",
            Self::Right => "East",
            Self::BottomLeft => "SouthWest",
            Self::Bottom => "South",
            Self::BottomRight => "SouthEast",
        }
    }
}

fn half() -> f64 {
    0.5
}

fn quarter() -> f64 {
    0.25
}

pub(crate) fn watermark(input: Input, out: &mut Output<'_>) -> Result<Picture, Error> {
    let scratch = Scratch::new()?;
    let source = Source::put(&scratch, "in", &input.image)?;
    let format = source.format;
    let (width, _) = super::size(&scratch, &format!("{}[0]", source.name))?;
    let side = ((f64::from(width) * input.scale.clamp(0.01, 1.0)) as u32).max(1);
    let mut command = super::magick(&scratch);
    command.arg(format!("{}[0]", source.name)).arg("-auto-orient").arg("(");
    match (&input.text, &input.watermark) {
        (Some(text), None) => {
            // From a file, because ImageMagick reads more into a text on the command line than is written there.
            scratch.put("text", text.replace('%', "%%").replace('\\', "\\\\").as_bytes())?;
            command.args(["-background", "none", "-fill", "white", "-stroke", "black", "-strokewidth", "1"]);
            command.args(["-font", FONT, "-size", &format!("{side}x"), "label:@text"]);
        }
        (None, Some(mark)) => {
            let mark = Source::put(&scratch, "mark", mark)?;
            command.arg(format!("{}[0]", mark.name)).args(["-resize", &format!("{side}x")]);
        }
        _ => return Err(Error::invalid("give either text or watermark")),
    }
    let opacity = input.opacity.clamp(0.0, 1.0).to_string();
    command.args(["-alpha", "set", "-channel", "A", "-evaluate", "multiply", &opacity, "+channel", ")"]);
    let margin = width / 50;
    command.args([
        "-gravity",
        input.position.gravity(),
        "-geometry",
        &format!("+{margin}+{margin}"),
        "-composite",
    ]);
    super::finish(command, &scratch, format, out)
}
