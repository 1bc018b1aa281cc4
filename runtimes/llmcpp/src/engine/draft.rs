//! Guesses the next tokens of a reply, so that one step can check several: those that followed the same three tokens earlier, in the
//! prompt or in the reply (0129). Pure: what a guess is worth is learned by comparing it with what was written, also while no step checks it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use llama_cpp_2::token::LlamaToken;

/// Number of tokens that must be equal before a guess.
const CONTEXT: usize = 3;
/// Maximum length of a guess. With the token before it, a step has twice as many rows as processor kernels multiply at once.
const MOST: usize = 7;
/// Minimum length of a guess that is worth a step: below it, rows are paid for that cannot be used.
const LEAST: usize = 4;
/// Weight of the newest guess, and of the newest duration of a step.
const NEWEST: f64 = 0.3;
/// Factor by which the gain must exceed the cost.
const MARGIN: f64 = 1.05;
/// Number of right tokens from which on a guess is checked before the cost of such a step is known.
const UNKNOWN: f64 = 2.0;
/// Factor by which the duration of steps with a guess decays with every step without one: they may have become cheaper.
const FADES: f64 = 0.998;

/// The guesses for one reply.
#[derive(Debug)]
pub struct Drafts {
    /// The prompt and the reply.
    tokens: Vec<LlamaToken>,
    /// The current guess; empty without one.
    guess: Vec<LlamaToken>,
    /// Number of its tokens that were written.
    right: usize,
    /// Number of right tokens to expect of a guess.
    expected: f64,
}

impl Drafts {
    /// Creates the guesses for a reply to `prompt`.
    pub fn new(prompt: &[LlamaToken]) -> Self {
        Self { tokens: prompt.to_vec(), guess: Vec::new(), right: 0, expected: 0.0 }
    }

    /// Adds a token of the reply, and compares the guess with it.
    pub fn push(&mut self, token: LlamaToken) {
        if let Some(guessed) = self.guess.get(self.right) {
            let is_right = *guessed == token;
            self.right += usize::from(is_right);
            if !is_right || self.right == self.guess.len() {
                self.expected += NEWEST * (self.right as f64 - self.expected);
                self.guess.clear();
            }
        }
        self.tokens.push(token);
        if self.guess.is_empty() {
            self.guess = self.find();
            self.right = 0;
        }
    }

    /// Returns the tokens to check in the next step, at most `most`; none if that does not pay.
    pub fn offer(&self, most: usize, cost: &DraftCost) -> &[LlamaToken] {
        let rest = &self.guess[self.right..];
        let rest = &rest[..rest.len().min(most)];
        let pays = rest.len() >= LEAST && cost.pays(self.expected.min(rest.len() as f64));
        if pays { rest } else { &[] }
    }

    /// What followed the last occurrence of the newest tokens. A text that repeats itself goes on so.
    fn find(&self) -> Vec<LlamaToken> {
        let Some(newest) = self.tokens.last_chunk::<CONTEXT>() else { return Vec::new() };
        let earlier = &self.tokens[..self.tokens.len() - 1];
        let Some(found) = earlier.windows(CONTEXT).rposition(|window| window == newest) else {
            return Vec::new();
        };
        let followed = &self.tokens[found + CONTEXT..];
        // The placeholders of pictures are not tokens.
        followed.iter().cycle().copied().take_while(|token| token.0 >= 0).take(MOST).collect()
    }
}

/// When guesses are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DraftMode {
    /// Never.
    Never,
    /// If that pays.
    #[default]
    Measured,
    /// Always, also where it does not pay.
    Always,
}

/// Measures what checking a guess costs, in steps of a reply that runs alone.
#[derive(Debug, Default)]
pub struct DraftCost {
    /// Whether the cost does not matter.
    is_ignored: bool,
    /// Number of steps with a guess.
    steps: u64,
    /// Duration of a step without a guess, seconds.
    plain: Option<f64>,
    /// Duration of a step with one.
    drafted: Option<f64>,
}

impl DraftCost {
    /// Creates it for a model; `None` if nothing is to be guessed.
    pub fn new(mode: DraftMode) -> Option<Self> {
        (mode != DraftMode::Never).then(|| Self { is_ignored: mode == DraftMode::Always, ..Self::default() })
    }

    /// Measures a step.
    pub fn learn(&mut self, is_drafted: bool, took: Duration) {
        let took = took.as_secs_f64();
        let blend = |old: Option<f64>| Some(old.map_or(took, |old| old + NEWEST * (took - old)));
        if is_drafted {
            self.steps += 1;
            // The first one prepares a graph of this shape.
            if self.steps > 1 {
                self.drafted = blend(self.drafted);
            }
        } else {
            self.plain = blend(self.plain);
            self.drafted = self.drafted.map(|drafted| FADES * drafted);
        }
    }

    /// Whether a step with this number of right tokens writes more in its time than steps without a guess.
    fn pays(&self, right: f64) -> bool {
        match (self.plain, self.drafted) {
            _ if self.is_ignored => true,
            (Some(plain), Some(drafted)) => (1.0 + right) * plain > MARGIN * drafted,
            _ => right >= UNKNOWN,
        }
    }
}

/// Numbers of guessed tokens since the model was loaded.
#[derive(Debug, Default)]
pub struct DraftCounts {
    checked: AtomicU64,
    right: AtomicU64,
}

impl DraftCounts {
    /// Counts the tokens of one step.
    pub fn add(&self, checked: usize, right: usize) {
        self.checked.fetch_add(checked as u64, Ordering::Relaxed);
        self.right.fetch_add(right as u64, Ordering::Relaxed);
    }

    /// Returns how many were checked, and how many of them were right.
    pub fn get(&self) -> (u64, u64) {
        (self.checked.load(Ordering::Relaxed), self.right.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(ids: impl IntoIterator<Item = i32>) -> Vec<LlamaToken> {
        ids.into_iter().map(LlamaToken).collect()
    }

    /// Guesses after a reply, and how much of each was right.
    fn after(prompt: &[i32], reply: &[i32]) -> Drafts {
        let mut drafts = Drafts::new(&tokens(prompt.iter().copied()));
        tokens(reply.iter().copied()).into_iter().for_each(|token| drafts.push(token));
        drafts
    }

    #[test]
    fn a_guess_is_what_followed_the_same_tokens() {
        let drafts = after(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], &[2, 3, 4]);
        assert_eq!(drafts.guess, tokens(5..12));
        assert_eq!(after(&[1, 2, 3, 4], &[2, 3]).guess, [], "two tokens are too few");
        assert_eq!(after(&[1, 2, 3, 7, 1, 2, 3, 8], &[1, 2, 3]).guess[0], LlamaToken(8), "the latest counts");
        assert_eq!(after(&[], &[1, 2, 1, 2, 1]).guess, tokens([2, 1, 2, 1, 2, 1, 2]), "it repeats itself");
        assert_eq!(after(&[1, 2, 3, 4, -5, 6], &[1, 2, 3]).guess, tokens([4]), "a picture ends a guess");
    }

    #[test]
    fn guesses_are_offered_once_they_were_right() {
        let (cost, text): (_, Vec<i32>) = (DraftCost::default(), (0..60).collect());
        let mut drafts = Drafts::new(&tokens(text.iter().copied()));
        let mut offered = Vec::new();
        for &id in &text {
            offered.push(drafts.offer(usize::MAX, &cost).len());
            drafts.push(LlamaToken(id));
        }
        assert!(
            offered[..10].iter().all(|count| *count == 0),
            "the first guess is compared only: {offered:?}"
        );
        assert!(offered.contains(&MOST), "{offered:?}");
        // Another text follows.
        (0..9).for_each(|_| [1, 2, 3, 99].into_iter().for_each(|id| drafts.push(LlamaToken(id))));
        assert_eq!(drafts.offer(2, &cost), [], "a reply that ends soon checks none");
    }

    #[test]
    fn a_guess_must_earn_its_cost() {
        let mut cost = DraftCost::default();
        assert!(cost.pays(3.0) && !cost.pays(1.0), "without a measurement, many must be right");
        cost.learn(false, Duration::from_millis(10));
        cost.learn(true, Duration::from_millis(90));
        assert!(cost.pays(3.0), "the first step with a guess is not measured");
        cost.learn(true, Duration::from_millis(21));
        assert!(cost.pays(1.3) && !cost.pays(1.1));
        cost.learn(true, Duration::from_secs(1));
        assert!(!cost.pays(7.0));
        (0..2_000).for_each(|_| cost.learn(false, Duration::from_millis(10)));
        assert!(cost.pays(7.0), "an old measurement does not count for ever");
    }

    proptest! {
        #[test]
        fn guesses_never_leave_the_text(prompt in proptest::collection::vec(-1_i32..4, 0..40), reply in proptest::collection::vec(0_i32..4, 0..200)) {
            let mut drafts = Drafts::new(&tokens(prompt.iter().copied()));
            for id in reply {
                drafts.push(LlamaToken(id));
                let offered = drafts.offer(5, &DraftCost { is_ignored: true, ..DraftCost::default() });
                prop_assert!(offered.len() <= 5);
                prop_assert!(offered.iter().all(|token| (0..4).contains(&token.0)));
                prop_assert!((0.0..=MOST as f64).contains(&drafts.expected));
            }
        }
    }
}
