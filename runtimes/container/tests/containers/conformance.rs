//! The suite that every engine passes.

use std::{collections::BTreeMap, sync::Arc};

use island_runtimes_api::conformance::{Fixture, run_all};
use serde_json::json;

use crate::support::{World, cargo};

pub(crate) async fn the_suite_passes(world: Arc<World>) {
    // With and without containers created in advance: results must not differ.
    for ahead in [0, 1] {
        let engine = world.engine(ahead).await;
        let fixture = Fixture {
            cargo: cargo(&["/bin/cargo"]),
            artifacts: BTreeMap::from([("model".to_owned(), world.image.clone())]),
            good: vec![json!({"text": "one two three"}), json!({"text": "fünf sechs"})],
            long: json!({"mode": "long"}),
            bad: vec![json!({"bad": true})],
            reads_tokens: false,
        };
        Box::pin(run_all(&engine, &fixture)).await;
    }
    world.settle(None, 0).await;
}
