//! Which prompt is read next.

/// Number of prompt tokens that one step of waiting is worth.
const PER_STEP: usize = 32;

/// A prompt that is not completely read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prompt {
    /// Tokens still to be read.
    pub(super) unread: usize,
    /// Steps since its arrival.
    pub(super) waited: usize,
}

/// Sorts so that the first is read first: the one with the fewest tokens left, because it starts writing soonest. Every step of waiting
/// counts as tokens read, so that each is read eventually. Reading several in turn would delay the first token of each to that of the last.
pub(super) fn sort(prompts: &mut [(usize, Prompt)]) {
    prompts.sort_by_key(|(_, prompt)| {
        let rank = prompt.unread as i64 - (PER_STEP * prompt.waited) as i64;
        (rank, std::cmp::Reverse(prompt.waited))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first(prompts: &[Prompt]) -> usize {
        let mut order: Vec<_> = prompts.iter().copied().enumerate().collect();
        sort(&mut order);
        order[0].0
    }

    #[test]
    fn equals_are_read_one_after_another() {
        let mut prompts = [Prompt { unread: 100, waited: 1 }; 4];
        let mut ends = Vec::new();
        while ends.len() < prompts.len() {
            let (next, _) = {
                let mut order: Vec<_> =
                    prompts.iter().copied().enumerate().filter(|(_, p)| p.unread > 0).collect();
                sort(&mut order);
                order[0]
            };
            prompts[next].unread -= 25;
            for prompt in &mut prompts {
                prompt.waited += 1;
            }
            if prompts[next].unread == 0 {
                ends.push(prompts[next].waited);
            }
        }
        assert_eq!(ends, [5, 9, 13, 17], "each ends four steps after the one before");
    }

    #[test]
    fn a_short_prompt_precedes_a_long_new_one() {
        let long = Prompt { unread: 4000, waited: 3 };
        assert_eq!(first(&[long, Prompt { unread: 20, waited: 0 }]), 1);
    }

    proptest! {
        #[test]
        fn every_prompt_is_read_eventually(long in 1_usize..100_000, short in 1_usize..200) {
            // New short prompts arrive in every step; the long one is read once it has waited long enough.
            let waited = long / PER_STEP + 1;
            prop_assert_eq!(first(&[Prompt { unread: long, waited }, Prompt { unread: short, waited: 0 }]), 0);
        }
    }
}
