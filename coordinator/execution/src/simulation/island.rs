//! An honest Island: it executes attempts, keeps their events until they are needed no longer, renews leases, and stops
//! when nobody confirms them.

use std::collections::BTreeMap;

use island_protocol::{
    FABRIC_VERSION,
    cargo::RuntimeType,
    event::{AttemptEvent, Numbered},
    fabric::{Assignment, Heartbeat, Lease, LeasedJob, OutputReply, RefusalReason},
    host::{CONTINUES_FORMS, Capabilities, Headroom, RunningJob, RuntimeReport, SystemLoad},
    ids::{AttemptKey, HostId, InstanceId, JobId},
    job::{Failure, FailureCode, FinishReason, Outcome, Usage},
    time::Timestamp,
};

use island_coordinator_domain::job::input::JobInput;

/// Time after which an Island stops an attempt whose lease nobody confirmed: 0.8 of the lease.
const FENCE_MS: u64 = 24_000;
/// Attempts at a time.
const SLOTS: usize = 2;

/// One attempt.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    first_event: u64,
    /// Words of the whole text, and how many are written.
    total: u64,
    written: u64,
    events: Vec<Numbered<AttemptEvent>>,
    /// Events up to this number were sent.
    sent: u64,
    is_frozen: bool,
    /// When the last renewal that was confirmed had been sent.
    confirmed: u64,
    /// Whether a renewal was confirmed.
    is_renewed: bool,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
pub(super) struct Island {
    pub host: HostId,
    pub life: u32,
    pub is_alive: bool,
    pub frozen_until: u64,
    pub attempts: BTreeMap<AttemptKey, Attempt>,
    /// The newest epoch of each job that is over here, as far as this run of its agent knows.
    pub ended: BTreeMap<JobId, u64>,
    pub last_renewal: u64,
    /// This run of its agent.
    pub instance: InstanceId,
}

/// The n-th word of every text, from 0.
pub(super) fn word(n: u64) -> String {
    format!("w{n} ")
}

/// The text of `total` words.
pub(super) fn text(total: u64) -> String {
    (0..total).map(word).collect()
}

/// What every Island can do.
pub(super) fn capabilities() -> Capabilities {
    let report = RuntimeReport {
        kind: RuntimeType::Llmcpp,
        available: true,
        reason: None,
        version: None,
        simulated: true,
        backend: None,
        devices: None,
        gpus: None,
        features: vec![CONTINUES_FORMS.to_owned()],
    };
    Capabilities { ram_mb: 1_000, runtimes: vec![report], ..Capabilities::default() }
}

impl Island {
    pub(super) fn new(host: HostId, instance: InstanceId) -> Self {
        let (attempts, ended) = (BTreeMap::new(), BTreeMap::new());
        Self { host, life: 0, is_alive: true, frozen_until: 0, attempts, ended, last_renewal: 0, instance }
    }

    /// What it reports of itself every few seconds.
    pub(super) fn heartbeat(&self) -> Heartbeat {
        let running = |key: &AttemptKey| RunningJob {
            key: *key,
            slug: "story".parse().expect("slug"),
            phase: "run".into(),
            duration_ms: 0,
            last_event: 0,
        };
        let job_slots = SLOTS.saturating_sub(self.attempts.len()) as u32;
        Heartbeat {
            v: FABRIC_VERSION,
            host_id: self.host,
            instance: self.instance,
            seq: 1,
            status: "online".into(),
            agent_version: "0".into(),
            system: SystemLoad::default(),
            gpus: Vec::new(),
            jobs: self.attempts.keys().map(running).collect(),
            models: Vec::new(),
            control: None,
            refusals: Vec::new(),
            headroom: Headroom { job_slots, ram_mb: 1_000, vram_mb: 0, gpus: None },
            timestamp: Timestamp::from_unix_ms(0),
        }
    }

    /// Whether it executes an attempt of a job before `number`, and may publish its output. An offer that was withdrawn may
    /// arrive late; the first renewal ends it.
    pub(super) fn executes_before(&self, job: JobId, number: u32, now: u64) -> bool {
        self.is_alive
            && self.frozen_until <= now
            && self.attempts.iter().any(|(key, attempt)| {
                let is_earlier = key.job_id == job && key.attempt < number;
                let is_fenced = now.saturating_sub(attempt.confirmed) >= FENCE_MS;
                is_earlier
                    && attempt.is_renewed
                    && !is_fenced
                    && !attempt.is_frozen
                    && attempt.outcome.is_none()
            })
    }

    /// Accepts an attempt, or returns the reason against it. Of one job it has the newest attempt only, and begins none
    /// again that is over.
    pub(super) fn offer(&mut self, assignment: &Assignment<JobInput>, now: u64) -> Result<(), RefusalReason> {
        let key = assignment.key;
        if self.attempts.contains_key(&key) {
            return Ok(());
        }
        let is_older = |other: &AttemptKey| other.job_id == key.job_id && other.epoch > key.epoch;
        let has_ended = self.ended.get(&key.job_id).is_some_and(|epoch| *epoch >= key.epoch);
        if has_ended || self.attempts.keys().any(is_older) {
            return Err(RefusalReason::Invalid);
        }
        self.retain(|other, _| other.job_id != key.job_id);
        if self.attempts.len() >= SLOTS {
            return Err(RefusalReason::NoSlot);
        }
        let written = assignment.continues.as_deref().map_or(0, |text| text.matches(' ').count() as u64);
        let total = assignment.input.get("words").and_then(|words| words.as_u64()).expect("words");
        let attempt = Attempt {
            first_event: assignment.first_event,
            total,
            written,
            events: Vec::new(),
            sent: assignment.first_event - 1,
            is_frozen: false,
            confirmed: now,
            is_renewed: false,
            outcome: None,
        };
        self.attempts.insert(key, attempt);
        Ok(())
    }

    pub(super) fn cancel(&mut self, key: AttemptKey) {
        self.retain(|other, _| *other != key);
    }

    /// Keeps these attempts; the others are over.
    fn retain(&mut self, is_kept: impl Fn(&AttemptKey, &Attempt) -> bool) {
        let ended = &mut self.ended;
        self.attempts.retain(|key, attempt| {
            let is_kept = is_kept(key, attempt);
            if !is_kept {
                let epoch = ended.entry(key.job_id).or_default();
                *epoch = key.epoch.max(*epoch);
            }
            is_kept
        });
    }

    /// Fails every attempt, as when the engine crashes.
    pub(super) fn fail(&mut self) {
        for attempt in self.attempts.values_mut() {
            attempt.fail(Failure::of_host(FailureCode::RuntimeCrashed, "crashed"));
        }
    }

    /// Stops all engines from making progress.
    pub(super) fn freeze_engines(&mut self) {
        for attempt in self.attempts.values_mut() {
            attempt.is_frozen = true;
        }
    }

    /// Writes a word of each attempt and returns what is to be sent: events, and whether the message ends the attempt.
    pub(super) fn work(&mut self, now: u64) -> Vec<(AttemptKey, Vec<Numbered<AttemptEvent>>, bool)> {
        self.retain(|_, attempt| now.saturating_sub(attempt.confirmed) < FENCE_MS);
        let mut messages = Vec::new();
        for (key, attempt) in &mut self.attempts {
            attempt.work();
            let unsent: Vec<_> =
                attempt.events.iter().filter(|event| event.n > attempt.sent).cloned().collect();
            attempt.sent = attempt.last_event();
            let has_ended = attempt.outcome.is_some();
            if has_ended {
                // Repeated until it is committed.
                messages.push((*key, attempt.events.iter().rev().take(1).cloned().collect(), true));
            }
            // An end alone is in the message above.
            let is_end_alone = has_ended && unsent.len() == 1;
            if !unsent.is_empty() && !is_end_alone {
                messages.insert(0, (*key, unsent, has_ended));
            }
        }
        messages
    }

    pub(super) fn replied(&mut self, key: AttemptKey, reply: &OutputReply) {
        if reply.committed {
            self.cancel(key);
        } else if let (Some(from), Some(attempt)) = (reply.replay_from, self.attempts.get_mut(&key)) {
            attempt.sent = attempt.sent.min(from.saturating_sub(1));
        }
    }

    /// The attempts whose leases are renewed.
    pub(super) fn renewals(&self) -> Vec<LeasedJob> {
        let leased = self.attempts.iter().map(|(key, attempt)| LeasedJob {
            key: *key,
            phase: if attempt.outcome.is_some() { "ended" } else { "run" }.to_owned(),
            work: attempt.written,
            last_event: attempt.last_event(),
        });
        leased.collect()
    }

    /// Applies a reply to a renewal that was sent at `sent`.
    pub(super) fn renewed(&mut self, lease: &Lease, sent: u64) {
        if !lease.held {
            self.cancel(lease.key);
        } else if let Some(attempt) = self.attempts.get_mut(&lease.key) {
            (attempt.confirmed, attempt.is_renewed) = (attempt.confirmed.max(sent), true);
            if let Some(from) = lease.replay_from {
                attempt.sent = attempt.sent.min(from.saturating_sub(1));
            }
        }
    }
}

impl Attempt {
    fn last_event(&self) -> u64 {
        self.first_event + self.events.len() as u64 - 1
    }

    fn push(&mut self, event: AttemptEvent) {
        self.events.push(Numbered { n: self.last_event() + 1, event });
    }

    fn fail(&mut self, failure: Failure) {
        if self.outcome.is_none() {
            let outcome = Outcome::failed(failure);
            self.outcome = Some(outcome.clone());
            self.push(AttemptEvent::Ended { outcome });
        }
    }

    fn work(&mut self) {
        if self.is_frozen || self.outcome.is_some() {
            return;
        }
        if self.written < self.total {
            self.push(AttemptEvent::token(word(self.written), 1));
            self.written += 1;
            return;
        }
        let usage = Usage::tokens(1, self.total);
        let outcome = Outcome::Completed {
            usage,
            output: None,
            finish_reason: Some(FinishReason::Stop),
            stop_text: None,
        };
        self.outcome = Some(outcome.clone());
        self.push(AttemptEvent::Ended { outcome });
    }
}
