//! Idle conversations, kept outside the context: on a processor every cell of the context costs time in each step, used or not.

use llama_cpp_2::token::LlamaToken;

use super::sequences::{PrefixMatch, common, worth_keeping};

/// A conversation and its state of the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadedSequence<S> {
    /// Its tokens, from position 0.
    pub tokens: Vec<LlamaToken>,
    /// Scope that may use it.
    pub scope: String,
    /// State from which the context can continue it.
    pub state: S,
}

/// The conversations, the newest at the end.
#[derive(Debug, Clone)]
pub struct KvOffload<S> {
    all: Vec<OffloadedSequence<S>>,
    capacity: usize,
}

impl<S> KvOffload<S> {
    /// Creates one for `capacity` tokens.
    pub fn new(capacity: usize) -> Self {
        Self { all: Vec::new(), capacity }
    }

    /// Whether a conversation of this many tokens is worth keeping and fits.
    pub fn takes(&self, tokens: usize) -> bool {
        worth_keeping(tokens) && tokens <= self.capacity
    }

    /// Keeps a conversation. Removes those that it continues and, if space is needed, the oldest.
    pub fn put(&mut self, conversation: OffloadedSequence<S>) {
        if !self.takes(conversation.tokens.len()) {
            return;
        }
        self.all.retain(|older| {
            older.scope != conversation.scope || !conversation.tokens.starts_with(&older.tokens)
        });
        self.free_tokens(conversation.tokens.len());
        self.all.push(conversation);
    }

    /// Removes the oldest until this number of tokens fits.
    pub fn free_tokens(&mut self, tokens: usize) {
        let mut used: usize = self.all.iter().map(|kept| kept.tokens.len()).sum();
        let gone = self.all.iter().take_while(|oldest| {
            let short = used + tokens > self.capacity;
            used -= if short { oldest.tokens.len() } else { 0 };
            short
        });
        let gone = gone.count();
        self.all.drain(..gone);
    }

    /// Finds the conversation with the longest common beginning with the prompt.
    pub fn offers(&self, prompt: &[LlamaToken], scope: &str) -> PrefixMatch {
        let best = self.best(prompt, scope);
        best.map_or_else(PrefixMatch::default, |(index, keep)| PrefixMatch {
            keep,
            cells: self.all[index].tokens.len(),
        })
    }

    /// Removes and returns it.
    pub fn take(&mut self, prompt: &[LlamaToken], scope: &str) -> Option<OffloadedSequence<S>> {
        self.best(prompt, scope).map(|(index, _)| self.all.remove(index))
    }

    fn best(&self, prompt: &[LlamaToken], scope: &str) -> Option<(usize, usize)> {
        let candidates = self.all.iter().enumerate().filter(|(_, kept)| kept.scope == scope);
        let begun = candidates.map(|(index, kept)| (index, common(&kept.tokens, prompt)));
        // Of equals the shorter one, because all of it is copied.
        begun
            .filter(|&(_, keep)| worth_keeping(keep))
            .max_by_key(|&(index, keep)| (keep, std::cmp::Reverse(self.all[index].tokens.len()), index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn conversation(scope: u8, tokens: &[i32]) -> OffloadedSequence<Vec<i32>> {
        let state = tokens.to_vec();
        OffloadedSequence {
            tokens: tokens.iter().copied().map(LlamaToken).collect(),
            scope: scope.to_string(),
            state,
        }
    }

    proptest! {
        #[test]
        fn never_exceeds_its_capacity_and_returns_what_was_kept(
            acts in proptest::collection::vec(
                (any::<bool>(), 0..2_u8, proptest::collection::vec(0..2_i32, 0..14)), 1..60),
            capacity in 0_usize..40,
        ) {
            let mut kv_offload = KvOffload::new(capacity);
            for (put, scope, tokens) in acts {
                let one = conversation(scope, &tokens);
                if put {
                    kv_offload.put(one.clone());
                    prop_assert!(!kv_offload.takes(tokens.len()) || kv_offload.all.last() == Some(&one), "the newest is there");
                } else {
                    let PrefixMatch { keep, cells } = kv_offload.offers(&one.tokens, &one.scope);
                    let longest = kv_offload.all.iter().filter(|kept| kept.scope == one.scope)
                        .map(|kept| common(&kept.tokens, &one.tokens)).max().unwrap_or(0);
                    prop_assert_eq!(keep, if worth_keeping(longest) { longest } else { 0 });
                    let taken = kv_offload.take(&one.tokens, &one.scope);
                    prop_assert_eq!(taken.is_some(), keep > 0);
                    if let Some(taken) = taken {
                        prop_assert_eq!(&taken.scope, &one.scope, "taken from another scope");
                        prop_assert_eq!(taken.tokens.len(), cells);
                        prop_assert_eq!(&taken.tokens[..keep], &one.tokens[..keep]);
                        prop_assert!(taken.tokens.iter().map(|token| token.0).eq(taken.state.iter().copied()));
                    }
                }
                prop_assert!(kv_offload.all.iter().map(|kept| kept.tokens.len()).sum::<usize>() <= capacity);
            }
        }
    }

    #[test]
    fn a_conversation_replaces_its_beginning_then_the_oldest() {
        let mut kv_offload = KvOffload::new(20);
        kv_offload.put(conversation(1, &[1, 2, 3, 4, 5]));
        kv_offload.put(conversation(1, &[9, 8, 7, 6, 5]));
        kv_offload.put(conversation(1, &[1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(kv_offload.all.len(), 2, "the beginning of the third was removed");
        kv_offload.put(conversation(2, &[1, 2, 3, 4, 5, 6, 7, 8]));
        let tokens = |kept: &OffloadedSequence<Vec<i32>>| kept.tokens.len();
        assert_eq!(kv_offload.all.iter().map(tokens).collect::<Vec<_>>(), [8, 8], "the oldest was removed");
    }
}
