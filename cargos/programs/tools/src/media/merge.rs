//! Several sounds as one, after each other or at once.

use island_cargo::{Blob, Error, Output};
use serde::Deserialize;

use super::{
    audio::Target,
    ffmpeg::{self, Media},
};
use crate::scratch::Scratch;

#[derive(Deserialize)]
pub(crate) struct Input {
    audios: Vec<Blob>,
    #[serde(default)]
    mode: Mode,
    #[serde(flatten)]
    target: Target,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Concat,
    Mix,
}

/// The graph of filters. Sounds of any kind are brought to one first, which both ways of merging need.
fn graph(mode: Mode, count: usize) -> String {
    let even = (0..count).map(|number| {
        format!("[{number}:a:0]aresample=48000,aformat=sample_fmts=fltp:channel_layouts=stereo[a{number}];")
    });
    let names = (0..count).map(|number| format!("[a{number}]"));
    let merge = match mode {
        Mode::Concat => format!("concat=n={count}:v=0:a=1[out]"),
        Mode::Mix => format!("amix=inputs={count}:duration=longest[out]"),
    };
    even.chain(names).chain([merge]).collect()
}

pub(crate) fn merge(input: Input, out: &mut Output<'_>) -> Result<Media, Error> {
    if input.audios.len() < 2 {
        return Err(Error::invalid("audios holds at least two"));
    }
    let scratch = Scratch::new()?;
    let mut command = ffmpeg::ffmpeg(&scratch);
    let mut lengths = Vec::new();
    for (number, audio) in input.audios.iter().enumerate() {
        let name = format!("in{number}");
        lengths.push(ffmpeg::audio(&scratch, &name, audio)?.duration_s);
        command.args(["-i", &name]);
    }
    let length = match input.mode {
        Mode::Concat => lengths.iter().sum(),
        Mode::Mix => lengths.iter().copied().fold(0.0, f64::max),
    };
    command.args(["-filter_complex", &graph(input.mode, input.audios.len()), "-map", "[out]"]);
    input.target.encode(&mut command);
    ffmpeg::run(command, &input.target.file(), length, out)?;
    ffmpeg::finished(&scratch, &input.target.file(), input.target.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_input_is_in_the_graph_once() {
        let graph = graph(Mode::Concat, 2);
        assert!(graph.starts_with("[0:a:0]aresample=48000"), "{graph}");
        assert!(graph.ends_with("[a0][a1]concat=n=2:v=0:a=1[out]"), "{graph}");
    }
}
