//! Bounds for all loads, and the result on a machine with known costs.

use proptest::prelude::*;

use super::*;

fn load() -> impl Strategy<Value = Load> {
    (0_usize..=32, 0_usize..10_000, 0_usize..10_000, 0_usize..10_000).prop_map(
        |(writing, cells, unread, depth)| Load {
            writing,
            cells: if writing == 0 { 0 } else { cells },
            unread,
            depth,
        },
    )
}

fn taught(on_processor: bool, steps: &[(usize, usize, u64)]) -> Budget {
    let mut budget = Budget::new(on_processor);
    for &(writing, reading, micros) in steps {
        budget.learn(writing, reading, Duration::from_micros(micros));
    }
    budget
}

proptest! {
    #[test]
    fn stays_within_bounds(
        steps in proptest::collection::vec((0_usize..=32, 0_usize..512, 0_u64..10_000_000), 0..50),
        load in load(),
        on_processor: bool,
    ) {
        let taken = taught(on_processor, &steps).prompt_tokens(load);
        prop_assert!(taken <= load.unread);
        prop_assert!(load.unread == 0 || taken > 0, "a prompt is read to its end");
        prop_assert!(load.writing + taken <= MOST, "one physical batch");
        prop_assert!(taken == load.unread || taken > LEAST - ROWS);
        prop_assert!(taken == load.unread || (load.writing + taken).is_multiple_of(ROWS), "rows are left over");
    }

    #[test]
    fn on_a_processor_a_step_is_below_a_tile_or_of_whole_tiles(
        steps in proptest::collection::vec((0_usize..=32, 0_usize..512, 0_u64..10_000_000), 0..50),
        load in load(),
    ) {
        let taken = taught(true, &steps).prompt_tokens(load);
        let rows = load.writing + taken;
        prop_assert!(taken == load.unread || rows < TILE || rows.is_multiple_of(TILE), "{rows} rows");
        let dear = PAYS * load.depth < load.cells;
        prop_assert!(!dear || rows < TILE, "{rows} rows against {} cells of others", load.cells);
    }
}

/// Converges with four replies, where a step costs 10 ms and each further prompt token `each`.
fn settled(on_processor: bool, load: Load, each: impl Fn(usize) -> u64) -> usize {
    let mut budget = Budget::new(on_processor);
    let mut reading = 0;
    for _ in 0..50 {
        budget.learn(load.writing, 0, Duration::from_millis(10));
        reading = budget.prompt_tokens(load);
        budget.learn(load.writing, reading, Duration::from_micros(10_000 + reading as u64 * each(reading)));
    }
    reading
}

#[test]
fn converges_to_the_target() {
    let load = Load { writing: 4, cells: 400, unread: usize::MAX, depth: 4000 };
    let reading = settled(false, load, |_| 500);
    assert!((125..=155).contains(&reading), "70 ms are left for tokens of 0.5 ms each, got {reading}");
    assert_eq!(settled(true, load, |_| 500), 2 * TILE - 4, "the same in whole tiles");
}

#[test]
fn a_long_prompt_is_read_in_tiles_that_exceed_the_maximum_duration() {
    let load = Load { writing: 4, cells: 400, unread: usize::MAX, depth: 4000 };
    // Twice as expensive below a tile: shorter steps would cost even more.
    let reading = settled(true, load, |reading| if reading + 4 < TILE { 4000 } else { 2000 });
    assert_eq!(reading, TILE - 4);
    let slow = settled(true, load, |_| 60_000);
    assert!(slow < TILE / 2, "but not where one takes seconds, got {slow}");
}
