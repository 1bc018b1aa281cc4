//! What several unit tests need.

use island_protocol::{
    cargo::{CargoSpec, Limits, RuntimeType},
    fabric::Assignment,
    ids::{AttemptKey, JobId},
    time::Timestamp,
};
use serde_json::json;

/// An assignment of job number `job` with the given epoch.
pub(crate) fn assignment(job: u128, epoch: u64) -> Assignment {
    Assignment {
        v: 1,
        key: AttemptKey { job_id: JobId(uuid::Uuid::from_u128(job)), attempt: 1, epoch },
        first_event: 1,
        cargo: CargoSpec {
            price_per_job: island_protocol::credits::MicroCredits::ZERO,
            slug: "sim-chat".parse().expect("a slug"),
            runtime_type: RuntimeType::Llmcpp,
            onnx_task_type: None,
            artifacts: Vec::new(),
            required_vram_mb: 0,
            required_ram_mb: 16,
            limits: Limits::default(),
            sandbox_tier: None,
            engine: json!({"simulated": true}),
        },
        input: json!({"prompt": "hello", "max_tokens": 3}),
        continues: None,
        scope: "a".into(),
        isolated: false,
        deadline: Timestamp::from_unix_ms(i64::MAX),
        sent_at: Timestamp::from_unix_ms(0),
    }
}
