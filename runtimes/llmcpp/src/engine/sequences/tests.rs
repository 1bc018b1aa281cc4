//! Against a context that is only a table: what is kept is truly there, what runs is never touched, cells never run out.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Place { scope: u8, prompt: Vec<i32>, reply: usize },
    Write { which: usize, token: i32 },
    End { which: usize },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let prompt = prop_oneof![
        proptest::collection::vec(0..2_i32, 1..20),
        (1_usize..20).prop_map(|length| (0..length as i32).collect()),
    ];
    let act = prop_oneof![
        (0..2_u8, prompt, 1_usize..8).prop_map(|(scope, prompt, reply)| Act::Place { scope, prompt, reply }),
        (0_usize..4, 0..2_i32).prop_map(|(which, token)| Act::Write { which, token }),
        (0_usize..4).prop_map(|which| Act::End { which }),
    ];
    proptest::collection::vec(act, 1..60)
}

#[derive(Debug)]
struct Running {
    sequence: usize,
    left: usize,
}

const COUNT: usize = 4;
const CAPACITY: usize = 40;

proptest! {
    #[test]
    fn a_context_that_follows_orders_always_has_what_is_kept(acts in acts()) {
        let mut sequences = Sequences::new(COUNT, CAPACITY, true);
        let mut context: Vec<(Vec<LlamaToken>, String)> = vec![Default::default(); COUNT];
        let mut running: Vec<Running> = Vec::new();
        for act in acts {
            match act {
                Act::Place { scope, prompt, reply } => {
                    let prompt: Vec<LlamaToken> = prompt.into_iter().map(LlamaToken).collect();
                    let scope = scope.to_string();
                    let Some(placed) = sequences.place(&prompt, prompt.len() + reply, &scope) else {
                        prop_assert!(!running.is_empty(), "an idle engine refused a job that fits");
                        continue;
                    };
                    let busy = |index: usize| running.iter().any(|job| job.sequence == index);
                    prop_assert!(!busy(placed.sequence) && !placed.evict.iter().any(|&index| busy(index)));
                    for index in placed.evict {
                        context[index].0.clear();
                    }
                    if let Some(from) = placed.copy_from {
                        context[placed.sequence] = context[from].clone();
                    }
                    prop_assert!(placed.keep == 0 || context[placed.sequence].1 == scope, "kept from another scope");
                    context[placed.sequence].0.truncate(placed.keep);
                    prop_assert_eq!(&context[placed.sequence].0[..], &prompt[..placed.keep]);
                    prop_assert!(placed.keep < prompt.len());
                    for &token in &prompt[placed.keep..] {
                        sequences.push(placed.sequence, token);
                    }
                    context[placed.sequence] = (prompt, scope);
                    running.push(Running { sequence: placed.sequence, left: reply });
                }
                Act::Write { which, token } => {
                    if let Some(job) = running.get_mut(which).filter(|job| job.left > 0) {
                        job.left -= 1;
                        context[job.sequence].0.push(LlamaToken(token));
                        sequences.push(job.sequence, LlamaToken(token));
                    }
                }
                Act::End { which } => {
                    if which < running.len() {
                        sequences.release(running.remove(which).sequence);
                    }
                }
            }
            let cells: usize = context.iter().map(|(tokens, _)| tokens.len()).sum();
            prop_assert!(cells <= CAPACITY, "{cells} cells in use");
        }
    }
}

#[test]
fn a_conversation_goes_on_in_its_own_sequence() {
    let mut sequences = Sequences::new(2, 100, true);
    let tokens = |range: std::ops::Range<i32>| range.map(LlamaToken).collect::<Vec<_>>();
    let first = sequences.place(&tokens(0..10), 20, "a").expect("room");
    assert_eq!((first.keep, first.copy_from), (0, None));
    for token in tokens(0..15) {
        sequences.push(first.sequence, token);
    }
    sequences.release(first.sequence);
    let second = sequences.place(&tokens(0..18), 30, "a").expect("room");
    assert_eq!((second.sequence, second.keep, second.copy_from), (first.sequence, 15, None));
    let stranger = sequences.place(&tokens(0..18), 30, "b").expect("room");
    assert_eq!((stranger.keep, stranger.copy_from), (0, None));
}

#[test]
fn a_running_jobs_beginning_is_copied() {
    let mut sequences = Sequences::new(2, 100, true);
    let prompt: Vec<LlamaToken> = (0..10).map(LlamaToken).collect();
    let first = sequences.place(&prompt, 20, "a").expect("room");
    for &token in &prompt {
        sequences.push(first.sequence, token);
    }
    let second = sequences.place(&prompt, 20, "a").expect("room");
    assert_eq!((second.keep, second.copy_from), (9, Some(first.sequence)));
}
