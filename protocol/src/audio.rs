//! Bodies of OpenAI's audio API: `/audio/transcriptions` and `/audio/translations`.

use serde::{Deserialize, Serialize};

use crate::{chat::null_as_default, preferences::Preferences};

/// A request for the text of a sound file. It is sent as `multipart/form-data`; unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AudioRequest {
    /// A wav, mp3, flac, ogg or m4a file. The server reads it into base64, as Cargos take it.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1, "contentMediaType" = "application/octet-stream")))]
    pub file: String,
    /// Slug or alias of a Cargo that recognizes speech; if one of OpenAI's names, the best one that an Island can run now.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1)))]
    pub model: String,
    /// Code of the spoken language, such as `de`, for models of several languages. If absent, the model detects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxLength" = 16)))]
    pub language: Option<String>,
    /// Text before the sound. No model uses it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Format of the answer: `json` if absent. Captions and `verbose_json` need a model that gives times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["json", "text", "srt", "verbose_json", "vtt", null])))]
    pub response_format: Option<String>,
    /// 0 to 1. No model samples, so it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub temperature: Option<f64>,
    /// The times in a `verbose_json` answer: of segments if absent.
    #[serde(rename = "timestamp_granularities[]", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schemars(extend("items" = {"type": "string", "enum": ["word", "segment"]}, "maxItems" = 2))
    )]
    pub timestamp_granularities: Option<Vec<String>>,
    /// Whether to stream the answer; only false is supported.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>", extend("enum" = [false, null])))]
    pub stream: bool,
    /// Which Islands may serve the request, as JSON. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// Answer in the format `json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Transcription {
    /// The text.
    pub text: String,
    /// Length of the sound, if the model reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<AudioUsage>,
}

/// Answer in the format `verbose_json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct VerboseTranscription {
    /// `transcribe` or `translate`.
    pub task: String,
    /// Code of the language of the text: the detected one, else the requested one, else `und`.
    pub language: String,
    /// Length of the sound in seconds; of models that do not report it, the end of the last segment.
    pub duration: f64,
    /// The text.
    pub text: String,
    /// Segments with their times, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<TranscriptionSegment>>,
    /// Words with their times, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<TranscriptionWord>>,
    /// Length of the sound.
    pub usage: AudioUsage,
}

/// A segment of a transcript. No model reports the numbers that describe the decoder: they are 0, and clients expect
/// the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TranscriptionSegment {
    /// Index of the segment.
    pub id: u32,
    /// Always 0.
    pub seek: u64,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
    /// The text.
    pub text: String,
    /// Always empty.
    pub tokens: Vec<u32>,
    /// Always 0.
    pub temperature: f64,
    /// Always 0.
    pub avg_logprob: f64,
    /// Always 0.
    pub compression_ratio: f64,
    /// Always 0.
    pub no_speech_prob: f64,
}

/// A word of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TranscriptionWord {
    /// The word.
    pub word: String,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
}

/// Length of a sound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AudioUsage {
    /// `duration`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Seconds.
    pub seconds: f64,
}

/// A part of a transcript with its times in seconds: a word, or a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// The text.
    pub text: String,
}

/// A pause that ends a segment, seconds.
const PAUSE_S: f64 = 0.5;
/// Maximum duration of a segment of several words, seconds.
const LONGEST_S: f64 = 10.0;

/// The segments that the words of a transcript form, for models that give times of words alone: a segment ends at a pause, and before it becomes too
/// long for a caption. Its words have spaces between them where `text`, the whole transcript, has: languages without spaces have none.
pub fn segments_of(words: &[Span], text: &str) -> Vec<Span> {
    let mut segments: Vec<Span> = Vec::new();
    let mut rest = text;
    for word in words {
        let here = rest.trim_start();
        let is_spaced = here.len() < rest.len();
        let after = here.strip_prefix(word.text.as_str());
        rest = after.unwrap_or(rest);
        let joins = |last: &&mut Span| word.start - last.end < PAUSE_S && word.end - last.start <= LONGEST_S;
        match segments.last_mut().filter(joins) {
            Some(last) => {
                last.end = word.end;
                if is_spaced || after.is_none() {
                    last.text.push(' ');
                }
                last.text.push_str(&word.text);
            }
            None => segments.push(word.clone()),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(words: &[(f64, f64, &str)]) -> Vec<(f64, f64, String)> {
        let span = |&(start, end, text): &(f64, f64, &str)| Span { start, end, text: text.to_owned() };
        let words: Vec<Span> = words.iter().map(span).collect();
        let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        segments_of(&words, &text).into_iter().map(|span| (span.start, span.end, span.text)).collect()
    }

    #[test]
    fn words_form_segments_up_to_a_pause() {
        let found = segments(&[(0.0, 0.5, "Hi"), (0.6, 1.0, "there"), (1.5, 2.0, "friend")]);
        assert_eq!(found, [(0.0, 1.0, "Hi there".to_owned()), (1.5, 2.0, "friend".to_owned())]);
        assert!(segments(&[]).is_empty());
    }

    #[test]
    fn words_are_joined_as_in_the_text() {
        let joined = |words: &[&str], text: &str| {
            let span = |text: &&str| Span { start: 0.0, end: 0.1, text: (*text).to_owned() };
            let words: Vec<Span> = words.iter().map(span).collect();
            segments_of(&words, text).into_iter().map(|span| span.text).collect::<Vec<_>>()
        };
        assert_eq!(joined(&["猫が", "好き", "です。"], "猫が好きです。"), ["猫が好きです。"]);
        assert_eq!(joined(&["a", "well", "-known", "cat"], "a well-known  cat"), ["a well-known cat"]);
        assert_eq!(joined(&["a", "b"], "A B"), ["a b"], "words of another text");
    }

    #[test]
    fn a_segment_of_several_words_has_a_limit() {
        let word = |at: u8| (f64::from(at), f64::from(at) + 0.9, "a");
        let words: Vec<(f64, f64, &str)> = (0..25).map(word).collect();
        let found = segments(&words);
        assert_eq!(found.iter().map(|(start, ..)| *start).collect::<Vec<_>>(), [0.0, 10.0, 20.0]);
        assert_eq!(segments(&[(0.0, 61.0, "long"), (61.1, 62.0, "end")]).len(), 2);
    }
}
