//! Converts the output of a job to an answer.

use axum::{
    Json,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use island_protocol::transcript::{Span, segments_of};
use island_protocol_api::{
    audio::{AudioUsage, Transcription, TranscriptionSegment, TranscriptionWord, VerboseTranscription},
    problem::Code,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    captions,
    request::{Form, Format, Task},
};
use crate::ApiError;

/// Output of a Cargo that transcribes. It was checked against the Cargo's schema when the job ended.
#[derive(Debug, Deserialize)]
pub(super) struct Transcript {
    text: String,
    language: Option<String>,
    duration: Option<f64>,
    segments: Option<Vec<Span>>,
}

/// An answer in one of the JSON forms.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AudioAnswer {
    /// `verbose_json`.
    Verbose(VerboseTranscription),
    /// `json`.
    Brief(Transcription),
}

impl Transcript {
    /// Reads an output.
    pub(super) fn of(output: &Value) -> Result<Self, ApiError> {
        Self::deserialize(output).map_err(|_| ApiError::new(Code::JobFailed, "the output has no transcript"))
    }

    /// The answer in this form.
    pub(super) fn answer(self, form: Form) -> Result<Response, ApiError> {
        Ok(match form.format {
            Format::Json => Json(AudioAnswer::Brief(self.brief())).into_response(),
            Format::Text => plain(self.text + "\n"),
            Format::Srt => plain(captions::srt(self.spans()?)),
            Format::Vtt => plain(captions::vtt(self.spans()?)),
            Format::Verbose { segments, words } => {
                Json(AudioAnswer::Verbose(self.verbose(form, segments, words)?)).into_response()
            }
        })
    }

    fn brief(self) -> Transcription {
        Transcription { usage: self.duration.map(usage), text: self.text }
    }

    fn verbose(self, form: Form, segments: bool, words: bool) -> Result<VerboseTranscription, ApiError> {
        let spans = self.spans()?;
        let last = spans.iter().map(|span| span.end).fold(0.0, f64::max);
        let segment = |(id, span): (u32, &Span)| TranscriptionSegment {
            id,
            start: span.start,
            end: span.end,
            text: span.text.clone(),
            ..TranscriptionSegment::default()
        };
        let word =
            |span: &Span| TranscriptionWord { word: span.text.clone(), start: span.start, end: span.end };
        // Where words were requested, the times are those of words.
        let joined = (segments && words).then(|| segments_of(spans, &self.text));
        let (segments, words) = (
            segments.then(|| (0..).zip(joined.as_deref().unwrap_or(spans)).map(segment).collect()),
            words.then(|| spans.iter().map(word).collect()),
        );
        let duration = self.duration.unwrap_or(last);
        let (task, language) = match form.task {
            Task::Transcribe => ("transcribe", self.language.or(form.language)),
            Task::Translate => ("translate", Some("en".to_owned())),
        };
        Ok(VerboseTranscription {
            task: task.to_owned(),
            language: language.unwrap_or_else(|| "und".to_owned()),
            duration,
            text: self.text,
            segments,
            words,
            usage: usage(duration),
        })
    }

    fn spans(&self) -> Result<&[Span], ApiError> {
        let missing = || ApiError::new(Code::JobFailed, "the output has no times");
        self.segments.as_deref().ok_or_else(missing)
    }
}

fn usage(seconds: f64) -> AudioUsage {
    AudioUsage { kind: "duration".to_owned(), seconds }
}

fn plain(text: String) -> Response {
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, media_type)], text).into_response()
}
