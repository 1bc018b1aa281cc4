//! Ends a reply at a stop text, which may be spread over several tokens and is never sent.

/// Searches a growing text for the first of several stop texts.
#[derive(Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Text that could be the beginning of a stop text.
    held: String,
    /// The stop text that was found.
    found: Option<String>,
}

/// What may be sent after more text arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The text.
    pub text: String,
    /// Whether a stop text was found: nothing may follow.
    pub stopped: bool,
}

impl StopMatcher {
    /// Creates a matcher for these texts; empty ones are ignored.
    pub fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { stops, held: String::new(), found: None }
    }

    /// Adds text and returns what can no longer become a stop text.
    pub fn push(&mut self, text: &str) -> Shown {
        let mut all = std::mem::take(&mut self.held);
        all.push_str(text);
        if let Some((at, stop)) = first_stop(&self.stops, &all) {
            self.found = Some(stop.to_owned());
            all.truncate(at);
            return Shown { text: all, stopped: true };
        }
        self.held = all.split_off(self.safe_length(&all));
        Shown { text: all, stopped: false }
    }

    /// Returns the stop text that was found.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Returns the text that was held back, at the end of the reply.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Start of the longest suffix that is the beginning of a stop text.
    fn safe_length(&self, all: &str) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = all.ceil_char_boundary(all.len().saturating_sub(longest));
        let begins_stop =
            |&(at, _): &(usize, char)| self.stops.iter().any(|stop| stop.starts_with(&all[from + at..]));
        all[from..].char_indices().find(begins_stop).map_or(all.len(), |(at, _)| from + at)
    }
}

/// The stop text that ends first, however the text is split, and its start.
fn first_stop<'s>(stops: &'s [String], text: &str) -> Option<(usize, &'s str)> {
    let found = stops.iter().filter_map(|stop| {
        let at = text.find(stop.as_str())?;
        Some((at + stop.len(), at, stop.as_str()))
    });
    found.min().map(|(_, at, stop)| (at, stop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_as_searching_the_whole_text(
            text in "[abé]{0,30}",
            stops in proptest::collection::vec("[abé]{1,4}", 0..4),
            cuts in proptest::collection::vec(1_usize..4, 0..30),
        ) {
            let expected = first_stop(&stops, &text).map(|(at, stop)| (at, stop.to_owned()));
            let mut matcher = StopMatcher::new(stops);
            let (mut shown, mut stopped) = (String::new(), false);
            let mut characters = text.chars();
            for cut in cuts.into_iter().chain(std::iter::repeat_n(1, 30)) {
                let part: String = characters.by_ref().take(cut).collect();
                let step = matcher.push(&part);
                shown.push_str(&step.text);
                stopped = step.stopped;
                if stopped { break }
            }
            if !stopped {
                shown.push_str(&matcher.finish());
            }
            prop_assert_eq!(stopped, expected.is_some());
            let (at, stop) = expected.map_or((text.len(), None), |(at, stop)| (at, Some(stop)));
            prop_assert_eq!(shown, &text[..at]);
            prop_assert_eq!(matcher.found(), stop.as_deref());
        }
    }

    #[test]
    fn of_two_stops_the_one_that_ends_first_counts() {
        let mut matcher = StopMatcher::new(vec!["b".into(), "abc".into()]);
        assert_eq!(matcher.push("xabc"), Shown { text: "xa".into(), stopped: true });
        assert_eq!(matcher.found(), Some("b"));
    }

    #[test]
    fn without_stop_texts_nothing_is_held_back() {
        assert_eq!(
            StopMatcher::new(vec![String::new()]).push("ab"),
            Shown { text: "ab".into(), stopped: false }
        );
    }
}
