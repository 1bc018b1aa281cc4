//! Containers started before their job arrives.

use std::{collections::HashSet, sync::Arc, time::Duration};

use island_protocol::job::FailureCode;
use island_runtimes_api::Runtime;
use island_runtimes_container::Containers;
use serde_json::json;
use uuid::Uuid;

use crate::support::{World, play, script, with, within};

pub(crate) async fn the_next_job_gets_a_started_container(world: Arc<World>) {
    let island = Uuid::now_v7().to_string();
    let engine = world.engine_of(&island, 2).await;
    let mut before = HashSet::new();
    for round in 0..4 {
        let once = script(
            r#"read -r line; [ -e /tmp/used ] && exit 9; echo x >/tmp/used
               printf '{"type":"token","content":"%s"}\n' "$(printf %s "$line" | tr -cd 0-9)""#,
        );
        let played = play(&world, &engine, once, json!({"round": round})).await.completed();
        assert_eq!(
            played.text,
            round.to_string(),
            "each job gets its own input, and a container nobody used"
        );
        let now = two_waiting(&engine).await;
        let kept = before.intersection(&now).count();
        assert_eq!(kept, usize::from(round > 0), "one of the two that waited was taken");
        before = now;
    }
    engine.shutdown().await;
    world.settle(Some(&island), 0).await;
}

/// The two that wait, once both exist. The daemon's list does not distinguish them from a used one that is being removed.
async fn two_waiting(engine: &Containers) -> HashSet<String> {
    let both = async {
        loop {
            let waiting = engine.waiting_ahead();
            if waiting.len() == 2 {
                return waiting.into_iter().collect();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(both).await
}

pub(crate) async fn a_program_that_computes_without_input_is_not_started_in_advance(world: Arc<World>) {
    let island = Uuid::now_v7().to_string();
    let engine = world.engine_of(&island, 1).await;
    let busy = || {
        let command = ["/bin/sh", "-c", "while :; do :; done"];
        with(&json!({"engine": {"command": command}, "limits": {"timeout_s": 1}}))
    };
    for _ in 0..2 {
        let played = play(&world, &engine, busy(), json!({})).await;
        assert_eq!(played.failure().code, FailureCode::DeadlineExceeded);
        // It computes without input, and is found out; after that it is not started ahead again.
        world.settle(Some(&island), 0).await;
    }
    engine.shutdown().await;
}
