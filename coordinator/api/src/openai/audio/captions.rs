//! Captions in the formats SubRip and WebVTT.

use std::fmt::Write as _;

use island_protocol::transcript::Span;

/// Captions in the format SubRip.
pub(super) fn srt(spans: &[Span]) -> String {
    let mut captions = String::new();
    for (number, span) in (1..).zip(spans) {
        let (start, end) = (Moment::of(span.start), Moment::of(span.end));
        let (start, end) = (start.with_separator(','), end.with_separator(','));
        let _ = write!(captions, "{number}\n{start} --> {end}\n{}\n\n", one_line(&span.text));
    }
    captions
}

/// Captions in the format WebVTT.
pub(super) fn vtt(spans: &[Span]) -> String {
    let mut captions = "WEBVTT\n\n".to_owned();
    for span in spans {
        let (start, end) = (Moment::of(span.start), Moment::of(span.end));
        let (start, end) = (start.with_separator('.'), end.with_separator('.'));
        // Other characters have no meaning in a cue.
        let text = one_line(&span.text).replace('&', "&amp;").replace('<', "&lt;");
        let _ = write!(captions, "{start} --> {end}\n{text}\n\n");
    }
    captions
}

/// A text without what would end its caption: an empty line, or the arrow between two times.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("-->", "->")
}

/// A moment of the sound in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Moment(u64);

impl Moment {
    fn of(seconds: f64) -> Self {
        Self((seconds * 1000.0).round() as u64)
    }

    /// `00:01:02`, the separator, and three digits of milliseconds.
    fn with_separator(self, separator: char) -> String {
        let Self(ms) = self;
        let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        format!("{hours:02}:{minutes:02}:{seconds:02}{separator}{:03}", ms % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans() -> Vec<Span> {
        let span = |start, end, text: &str| Span { start, end, text: text.to_owned() };
        vec![span(0.0, 1.5, " Salt & pepper "), span(3_661.25, 3_662.0, "a <b>\n\n--> c")]
    }

    #[test]
    fn captions_have_one_line_and_their_times() {
        assert_eq!(
            srt(&spans()),
            "1\n00:00:00,000 --> 00:00:01,500\nSalt & pepper\n\n\
             2\n01:01:01,250 --> 01:01:02,000\na <b> -> c\n\n"
        );
        assert_eq!(
            vtt(&spans()),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nSalt &amp; pepper\n\n\
             01:01:01.250 --> 01:01:02.000\na &lt;b> -> c\n\n"
        );
        assert_eq!((srt(&[]), vtt(&[])), (String::new(), "WEBVTT\n\n".to_owned()));
    }
}
