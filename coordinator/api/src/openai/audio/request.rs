//! Reads a request for the text of a sound, and makes the input of its job.

use island_protocol_api::{audio::AudioRequest, preferences::Preferences, problem::Code};
use serde_json::{Map, Value};

use crate::ApiError;
use island_coordinator_domain::catalogue::Cargo;

/// In which language the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// The spoken one.
    Transcribe,
    /// English.
    Translate,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Text,
    Srt,
    Vtt,
    /// With the times of segments, of words or of both.
    Verbose {
        segments: bool,
        words: bool,
    },
}

/// What the answer is made with, beside the output of the job.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub task: Task,
    pub format: Format,
    /// The requested language.
    pub language: Option<String>,
}

/// A request that was read.
#[derive(Debug)]
pub(super) struct Sound {
    pub model: String,
    /// The file in base64.
    file: String,
    pub form: Form,
    pub preferences: Preferences,
}

impl Sound {
    /// Reads a request.
    pub(super) fn new(request: AudioRequest, task: Task) -> Result<Self, ApiError> {
        let format = format(request.response_format.as_deref(), request.timestamp_granularities.as_deref())?;
        // Clients send an empty field for an option that is not set.
        let language = request.language.filter(|language| !language.is_empty());
        let preferences = request.preferences.unwrap_or_default();
        let form = Form { task, format, language };
        Ok(Self { model: request.model, file: request.file, form, preferences })
    }

    /// The input of a job of this Cargo, and what the answer is made with.
    pub(super) fn input_for(self, cargo: &Cargo) -> Result<(Map<String, Value>, Form), ApiError> {
        let Self { file, form, .. } = self;
        let mut input = Map::from_iter([("audio".to_owned(), file.into())]);
        let options = [
            ("language", form.language.clone(), "language"),
            ("task", (form.task == Task::Translate).then(|| "translate".to_owned()), "model"),
            ("timestamps", form.format.times().map(str::to_owned), "response_format"),
        ];
        for (name, value, param) in options {
            let Some(value) = value else { continue };
            if !cargo.takes(name) {
                let message = format!("the Cargo {} takes no {name}", cargo.entry.slug);
                return Err(ApiError::field(Code::InvalidInput, param, message));
            }
            input.insert(name.to_owned(), value.into());
        }
        if cargo.takes("duration") {
            input.insert("duration".to_owned(), true.into());
        }
        Ok((input, form))
    }
}

impl Format {
    /// The times that the job must give.
    fn times(self) -> Option<&'static str> {
        match self {
            Self::Json | Self::Text => None,
            Self::Verbose { words: true, .. } => Some("word"),
            Self::Srt | Self::Vtt | Self::Verbose { words: false, .. } => Some("segment"),
        }
    }
}

/// The form of the answer. Only `verbose_json` has a choice of times.
fn format(name: Option<&str>, granularities: Option<&[String]>) -> Result<Format, ApiError> {
    let wanted = |granularity: &str| granularities.unwrap_or_default().iter().any(|one| one == granularity);
    let format = match name.unwrap_or("json") {
        "text" => Format::Text,
        "srt" => Format::Srt,
        "vtt" => Format::Vtt,
        "verbose_json" => {
            let words = wanted("word");
            return Ok(Format::Verbose { segments: wanted("segment") || !words, words });
        }
        _ => Format::Json,
    };
    if granularities.is_some_and(|granularities| !granularities.is_empty()) {
        let message = "times are only in answers of the response_format verbose_json";
        return Err(ApiError::field(Code::ValidationError, "timestamp_granularities[]", message));
    }
    Ok(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_times_that_were_requested() {
        let of = |name: Option<&str>, granularities: Option<&[&str]>| {
            let granularities: Option<Vec<String>> =
                granularities.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
            let format = format(name, granularities.as_deref());
            format.map(|format| (format, format.times())).map_err(|error| error.body().error.param)
        };
        let verbose = |segments, words| Format::Verbose { segments, words };
        assert_eq!(of(None, None), Ok((Format::Json, None)));
        assert_eq!(of(Some("text"), Some(&[])), Ok((Format::Text, None)));
        assert_eq!(of(Some("srt"), None), Ok((Format::Srt, Some("segment"))));
        assert_eq!(of(Some("vtt"), None), Ok((Format::Vtt, Some("segment"))));
        assert_eq!(of(Some("verbose_json"), None), Ok((verbose(true, false), Some("segment"))));
        assert_eq!(of(Some("verbose_json"), Some(&["word"])), Ok((verbose(false, true), Some("word"))));
        let both: &[&str] = &["segment", "word"];
        assert_eq!(of(Some("verbose_json"), Some(both)), Ok((verbose(true, true), Some("word"))));
        assert_eq!(of(Some("json"), Some(both)), Err(Some("timestamp_granularities[]".to_owned())));
    }
}
