//! Requests that one job answers: the Cargo that a model name means, and the result of its job.

use std::sync::Arc;

use island_protocol::{event::JobEvent, job::Usage};
use island_protocol_api::{preferences::Preferences, problem::Code};
use serde_json::{Map, Value};

use crate::{
    Api, ApiError,
    http::{auth::Caller, idempotency::IdempotencyKey},
    native::{
        availability::Allowed,
        jobs::{
            follow::{Follower, follow},
            submit::{Request, accept},
        },
    },
    openai::chat::reply::problem,
};
use island_coordinator_domain::{
    catalogue::{Cargo, Catalogue},
    job::Job,
};

/// What the Cargos of an endpoint do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ability {
    /// In an error, after "no Cargo" and "a Cargo that".
    pub does: &'static str,
    pub is_of: fn(&Cargo) -> bool,
}

impl Ability {
    /// The Cargo with this slug or alias, which must have the ability.
    pub(crate) fn named(self, catalogue: &Catalogue, name: &str) -> Result<Arc<Cargo>, ApiError> {
        let found = catalogue.named(name).filter(|cargo| (self.is_of)(cargo));
        found.cloned().ok_or_else(|| {
            let able = catalogue.iter().filter(|cargo| (self.is_of)(cargo));
            let able: Vec<&str> = able.map(|cargo| cargo.entry.slug.as_str()).collect();
            let message = format!("no Cargo {name:?} {}; available: {}", self.does, able.join(", "));
            ApiError::field(Code::WorkloadNotFound, "model", message)
        })
    }

    /// The error for a name of the network's choice if no Cargo has the ability.
    pub(crate) fn absent(self) -> ApiError {
        ApiError::new(Code::WorkloadNotFound, format!("the catalogue has no Cargo that {}", self.does))
    }
}

/// The result of a job.
#[derive(Debug)]
pub(crate) struct Answered {
    pub job: Job,
    pub output: Value,
    pub usage: Usage,
}

/// Runs a job of the Cargo, on an Island that suits the preferences, and waits for its end. If a client without an idempotency key
/// disconnects, the job is cancelled.
pub(crate) async fn run(
    api: &Api,
    caller: Caller,
    cargo: &Arc<Cargo>,
    input: Map<String, Value>,
    key: Option<IdempotencyKey>,
    preferences: Preferences,
) -> Result<Answered, ApiError> {
    let allowed = Allowed::by_preferences(api, caller.account, &preferences);
    let candidates = allowed.check(api, &caller, cargo, key.as_ref()).await?;
    let is_keyed = key.is_some();
    let request = Request { preferences, candidates, ..Request::waiting(input, key) };
    let accepted = accept(api, caller, cargo, request).await?;
    let (followed, job, _) = follow(api, accepted).await?;
    let mut follower = Follower::new(followed);
    follower.begin(api.rules.chat_wait, job.workload.as_str()).await?;
    if is_keyed {
        // A client with an idempotency key may return for the answer, so the job runs to its end.
        follower.outlive_client();
    }
    loop {
        match &follower.next().await?.event.event {
            JobEvent::Done { usage, output, .. } => {
                let (output, usage) = (output.clone().unwrap_or_default(), usage.clone());
                return Ok(Answered { job, output, usage });
            }
            JobEvent::Error { error, code } => return Err(problem(code, error)),
            _ => {}
        }
    }
}
