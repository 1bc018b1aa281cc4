//! Whisper's timestamps: when a timestamp may be generated, and the segments between them.

use std::ops::Range;

use crate::text::scores::softmax;

/// Seconds of one step of a timestamp.
pub const STEP_S: f32 = 0.02;

/// The timestamp tokens of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The token of time 0; those of later times follow.
    pub first: u32,
    /// The token for a text without timestamps.
    pub none: u32,
    /// The token that ends a text.
    pub end: u32,
    /// The maximum first timestamp, in steps.
    pub latest_start: Option<u32>,
}

/// A segment with its times in seconds from the start of its window.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Start.
    pub start: f32,
    /// End.
    pub end: f32,
    /// Its tokens without timestamps.
    pub tokens: Vec<u32>,
    /// Where it is in the text of its window, with timestamps.
    pub places: Range<usize>,
}

impl Segment {
    /// A text without times.
    pub fn whole(tokens: Vec<u32>) -> Self {
        Self { start: 0.0, end: 0.0, places: 0..tokens.len(), tokens }
    }
}

impl Times {
    /// Restricts the scores of the next token. `written` are the tokens after the prompt.
    pub fn restrict(&self, written: &[u32], scores: &mut [f32]) {
        let first = self.first as usize;
        let forbid = |scores: &mut [f32], range: std::ops::Range<usize>| {
            let end = range.end.min(scores.len());
            scores[range.start.min(end)..end].fill(f32::NEG_INFINITY);
        };
        let all = scores.len();
        forbid(scores, self.none as usize..self.none as usize + 1);
        let is_time = |token: &u32| *token >= self.first;
        let last_is = written.last().is_some_and(is_time);
        let before_is = written.len() < 2 || is_time(&written[written.len() - 2]);
        if last_is {
            // Timestamps come in pairs: an end and a start.
            if before_is { forbid(scores, first..all) } else { forbid(scores, 0..self.end as usize) }
        }
        if let Some(&latest) = written.iter().rev().find(|token| is_time(token)) {
            // Timestamps do not decrease, and a closed pair has a duration.
            let least = if last_is && !before_is { latest } else { latest + 1 };
            forbid(scores, first..least as usize);
        }
        if written.is_empty() {
            forbid(scores, 0..first);
            if let Some(latest) = self.latest_start {
                forbid(scores, first + latest as usize + 1..all);
            }
        }
        // If all timestamps together are more likely than the most likely word, the next token is a timestamp.
        let shares = softmax(scores);
        let times: f32 = shares[first.min(all)..].iter().sum();
        let word = shares[..first.min(all)].iter().copied().fold(0.0, f32::max);
        if times > word {
            forbid(scores, 0..first);
        }
    }

    /// The segments of the text of a window of `length` steps, and the number of steps that are done.
    pub fn segments(&self, written: &[u32], length: u32) -> (Vec<Segment>, u32) {
        let is_time = |token: u32| token >= self.first;
        let at = |token: u32| token.saturating_sub(self.first) as f32 * STEP_S;
        let text = |tokens: &[u32]| tokens.iter().copied().filter(|&token| token < self.end).collect();
        let pairs =
            (1..written.len()).filter(|&place| is_time(written[place - 1]) && is_time(written[place]));
        let mut cuts: Vec<usize> = pairs.collect();
        let ends_single = matches!(written, [.., before, last] if !is_time(*before) && is_time(*last));
        if cuts.is_empty() {
            let last =
                written.iter().rev().find(|&&token| is_time(token)).map_or(0, |token| token - self.first);
            let end = if last > 0 { last as f32 } else { length as f32 } * STEP_S;
            let places = 0..written.len();
            return (vec![Segment { start: 0.0, end, tokens: text(written), places }], length);
        }
        if ends_single {
            cuts.push(written.len());
        } else if let Some(last) = cuts.last_mut() {
            // The timestamp that starts an unfinished segment belongs to the last one.
            *last += 1;
        }
        let (mut segments, mut begin) = (Vec::new(), 0);
        for (place, &cut) in cuts.iter().enumerate() {
            let places = begin..cut.min(written.len());
            let piece = &written[places.clone()];
            let is_last = place + 1 == cuts.len();
            let back = if !is_last || ends_single { 1 } else { 2 };
            let end = piece.len().checked_sub(back).map_or(0.0, |end| at(piece[end]));
            segments.push(Segment {
                start: piece.first().map_or(0.0, |&first| at(first)),
                end,
                tokens: text(piece),
                places,
            });
            begin = cut;
        }
        let done = if ends_single { length } else { written[begin - 2].saturating_sub(self.first) };
        (segments, done)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: Times = Times { first: 20, none: 19, end: 10, latest_start: Some(5) };

    fn allowed(written: &[u32]) -> Vec<u32> {
        let mut scores = vec![0.0; 40];
        // Each timestamp alone is unlikely.
        scores[20..].fill(-9.0);
        TIMES.restrict(written, &mut scores);
        (0..40).filter(|&token| scores[token as usize].is_finite()).collect()
    }

    #[test]
    fn text_begins_with_an_early_timestamp() {
        assert_eq!(allowed(&[]), [20, 21, 22, 23, 24, 25]);
    }

    #[test]
    fn end_is_followed_by_a_start_or_the_end_of_text() {
        let next = allowed(&[20, 3, 27]);
        assert!(next.contains(&10) && next.contains(&27) && !next.contains(&26) && !next.contains(&3));
        assert!(allowed(&[20, 3, 27, 27]).iter().all(|&token| token < 20 && token != 19));
    }

    #[test]
    fn segments_are_split_between_their_timestamps() {
        let (segments, done) = TIMES.segments(&[20, 1, 2, 25, 25, 3, 30, 30], 250);
        let steps = |seconds: f32| (seconds / STEP_S).round() as u32;
        let times: Vec<(u32, u32)> = segments.iter().map(|one| (steps(one.start), steps(one.end))).collect();
        assert_eq!(times, [(0, 5), (5, 10)]);
        assert_eq!(segments[1].tokens, [3]);
        assert_eq!((segments[0].places.clone(), segments[1].places.clone()), (0..4, 4..8));
        assert_eq!(done, 10);
        let (segments, done) = TIMES.segments(&[20, 1, 25, 25, 3, 31], 250);
        assert_eq!((segments.len(), done), (2, 250));
    }

    proptest! {
        /// Any valid sequence is split into segments without losing a token, and the window advances or ends.
        #[test]
        fn segments_keep_all_tokens(choices in proptest::collection::vec(0_usize..40, 0..30)) {
            let mut written = Vec::new();
            for choice in choices {
                let next = allowed(&written);
                let token = next[choice % next.len()];
                if token == 10 { break; }
                written.push(token);
            }
            let (segments, done) = TIMES.segments(&written, 250);
            let words: Vec<u32> = written.iter().copied().filter(|&token| token < 10).collect();
            let kept: Vec<u32> = segments.iter().flat_map(|segment| segment.tokens.clone()).collect();
            prop_assert!(words.starts_with(&kept));
            for segment in &segments {
                let placed = segment.places.clone().map(|place| written[place]).filter(|&token| token < 10);
                prop_assert_eq!(placed.collect::<Vec<_>>(), segment.tokens.clone());
            }
            prop_assert!(done <= 250);
        }
    }
}
