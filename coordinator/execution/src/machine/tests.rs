use island_protocol::{
    cargo::TokenPrices,
    event::{AttemptEvent, Image, Numbered},
    ids::{AccountId, JobId},
    time::Timestamp,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::simulation::{self, TERMS};

const WALL_MS: i64 = 1_700_000_000_000;
const TIME_LIMIT_MS: i64 = 120_000;

/// A machine with its time.
struct Driven {
    machine: Machine,
    start: Instant,
    ms: u64,
    skew_ms: i64,
}

fn host(n: u128) -> HostId {
    HostId(Uuid::from_u128(n))
}

fn encoded(input: Value) -> JobInput {
    JobInput::new(input.as_object().expect("an object"))
}

fn job() -> Job {
    let created_at = Timestamp::from_unix_ms(WALL_MS);
    let workload = (1, "story".parse().expect("slug"));
    let new = Job::new(
        JobId(Uuid::from_u128(1)),
        AccountId(Uuid::from_u128(2)),
        workload,
        MicroCredits(1_000_000),
        created_at,
    );
    Job {
        input: encoded(json!({"words": 4})),
        max_tokens: Some(100),
        deadline: Timestamp::from_unix_ms(WALL_MS + 60_000 + TIME_LIMIT_MS),
        ..new
    }
}

impl Driven {
    fn new() -> Self {
        Self::of(job())
    }

    fn of(job: Job) -> Self {
        let start = Instant::now();
        let now = Now { instant: start, wall: Timestamp::from_unix_ms(WALL_MS) };
        let log = Arc::new(Log::new(job.head.clone()));
        let machine = Machine::new(job, log, simulation::cargo("story"), TERMS, now);
        Self { machine, start, ms: 0, skew_ms: 0 }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let instant = self.start + Duration::from_millis(self.ms);
        let wall = Timestamp::from_unix_ms(WALL_MS + self.ms as i64 + self.skew_ms);
        self.machine.step(input, Now { instant, wall })
    }

    fn committed(&mut self) -> Vec<Effect> {
        self.step(Input::Written(Written::Committed { earned: Vec::new() }))
    }

    /// Places the job on an Island that accepts it.
    fn run_on(&mut self, host: HostId) -> AttemptKey {
        let key = self.machine.next_key();
        assert!(matches!(
            self.step(Input::Placed { hosts: Hosts::one(host), key })[..],
            [Effect::Write(Write::Attempt(_))]
        ));
        assert!(matches!(self.committed()[..], [Effect::Offer { .. }]));
        let accepted = self.step(Input::Answered { key, answer: OfferAnswer::Accepted });
        assert!(matches!(accepted[..], [Effect::Accepted]));
        key
    }

    fn write_words(&mut self, host: HostId, key: AttemptKey, words: usize) {
        let first = self.machine.transcript.log().next();
        let token = |n| Numbered { n, event: AttemptEvent::token("word ".into(), 1) };
        let events = (first..).take(words).map(token).collect();
        let output = Output { v: FABRIC_VERSION, key, events };
        let effects = self.step(Input::Output { host, output, reply: None });
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Write(_))), "{effects:?}");
    }

    fn tick(&mut self) -> Vec<Effect> {
        let now = self.start + Duration::from_millis(self.ms);
        self.tick_with(true, now)
    }

    fn tick_with(&mut self, has_readers: bool, applied_until: Instant) -> Vec<Effect> {
        let connectivity = Connectivity { connected: true, since: self.start };
        self.step(Input::Tick { connectivity, applied_until, has_readers })
    }
}

fn end(effects: &[Effect]) -> &EndWrite {
    match effects.last() {
        Some(Effect::Write(Write::End(end))) => end,
        other => panic!("an end, not {other:?}"),
    }
}

#[test]
fn an_island_is_stopped_only_after_the_end_is_committed() {
    for is_ours in [true, false] {
        let mut driven = Driven::new();
        driven.step(Input::Begin);
        driven.run_on(host(1));
        let effects = driven.step(Input::Cancel(Canceller::Consumer));
        assert!(matches!(effects[..], [Effect::Write(Write::End(_))]), "{effects:?}");
        let written = if is_ours { Written::Committed { earned: Vec::new() } } else { Written::Superseded };
        let effects = driven.step(Input::Written(written));
        let stops = effects.iter().any(|effect| matches!(effect, Effect::SendCancel { .. }));
        assert_eq!(stops, is_ours, "a successor may continue the attempt: {effects:?}");
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Release { .. })));
    }
}

#[test]
fn the_time_limit_is_that_of_the_computation_and_not_of_downloads() {
    for phase in ["fetch", "load"] {
        let mut driven = Driven::new();
        driven.step(Input::Begin);
        let key = driven.run_on(host(1));
        let renew = |driven: &mut Driven, phase: &str, work| {
            let now = driven.start + Duration::from_millis(driven.ms);
            let job = LeasedJob { key, phase: phase.to_owned(), work, last_event: 0 };
            assert!(driven.machine.renew(host(1), &job, now, driven.start).held);
        };
        // Three times as long as the job may take.
        for work in 0..(3 * TIME_LIMIT_MS as u64 / 5_000) {
            renew(&mut driven, phase, work);
            driven.ms += 5_000;
            if driven.tick().iter().any(|effect| matches!(effect, Effect::Write(Write::End(_)))) {
                break;
            }
        }
        let has_ended = driven.ms < 3 * TIME_LIMIT_MS as u64;
        assert_eq!(has_ended, phase == "load", "{phase}: {} ms", driven.ms);
        if phase == "fetch" {
            // From then on its time counts.
            let mut work = 0;
            let effects = loop {
                work += 1;
                renew(&mut driven, "prompt", work);
                driven.ms += 5_000;
                let effects = driven.tick();
                if !effects.is_empty() {
                    break effects;
                }
            };
            assert_eq!(end(&effects).status, JobStatus::Timeout);
            assert!(driven.ms < 5 * TIME_LIMIT_MS as u64, "{} ms", driven.ms);
        }
    }
}

#[test]
fn a_job_is_accepted_when_an_island_accepts_it_and_not_before() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.machine.next_key();
    driven.step(Input::Placed { hosts: Hosts::one(host(1)), key });
    driven.committed();
    assert!(!driven.machine.is_accepted());
    let message = String::new();
    let answer = OfferAnswer::Refused { reason: Some(RefusalReason::WeakSandbox), message };
    let effects = driven.step(Input::Answered { key, answer });
    let asks = |effect: &Effect| matches!(effect, Effect::Place { history, .. } if history.refused.contains_key(&host(1)));
    assert!(effects.iter().any(asks), "another Island, without the one that refused: {effects:?}");
    assert!(!driven.machine.is_accepted());
}

#[test]
fn a_job_that_no_island_accepts_ends_after_the_wait() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    driven.ms = 59_999;
    assert!(driven.tick().is_empty());
    driven.ms = 60_000;
    let effects = driven.tick();
    assert_eq!(end(&effects).status, JobStatus::Timeout);
    assert_eq!(end(&effects).end.usage.credits_used, Some(MicroCredits::ZERO));
}

#[test]
fn a_reply_that_no_island_continues_in_time_costs_nothing() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    driven.write_words(host(1), key, 30);
    driven.step(Input::Lost { key });
    driven.committed();
    driven.ms = 60_000 + TIME_LIMIT_MS as u64 - 1;
    assert!(driven.tick().is_empty());
    driven.ms += 1;
    let effects = driven.tick();
    let ended = end(&effects);
    assert_eq!(ended.status, JobStatus::Failed, "the consumer has reached no limit");
    let code = ended.end.error.as_ref().map(|error| error.code.as_str());
    assert_eq!(code, Some(FailureCode::IslandLost.as_str()));
    assert_eq!(ended.end.usage.credits_used, Some(MicroCredits::ZERO));
    assert!(ended.shares.is_empty(), "{:?}", ended.shares);
}

#[test]
fn what_owners_hand_back_does_not_count_as_a_failure() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    for _ in 0..=TERMS.retries {
        let key = driven.run_on(host(1));
        let failure = Failure::interrupted(FailureCode::HandedBack, "the owner is back");
        let n = driven.machine.transcript.log().next();
        let events = vec![Numbered { n, event: AttemptEvent::Ended { outcome: Outcome::failed(failure) } }];
        let output = Output { v: FABRIC_VERSION, key, events };
        let effects = driven.step(Input::Output { host: host(1), output, reply: None });
        assert!(matches!(effects.last(), Some(Effect::Write(Write::Attempt(_)))), "{effects:?}");
        driven.committed();
    }
    for _ in 0..TERMS.retries {
        let key = driven.run_on(host(2));
        let effects = driven.step(Input::Lost { key });
        assert!(matches!(effects.last(), Some(Effect::Write(Write::Attempt(_)))), "{effects:?}");
        driven.committed();
    }
    let key = driven.run_on(host(2));
    let effects = driven.step(Input::Lost { key });
    assert_eq!(end(&effects).status, JobStatus::Failed, "the failures are limited all the same");
}

#[test]
fn steps_of_the_system_clock_end_nothing() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    driven.run_on(host(1));
    for skew in [-3_600_000, 0, 3_600_000, 86_400_000] {
        driven.skew_ms = skew;
        driven.ms += 500;
        assert!(driven.tick().is_empty(), "{skew} ms");
    }
    driven.ms += 500;
    driven.skew_ms = 0;
    driven.ms = TIME_LIMIT_MS as u64;
    let effects = driven.tick();
    assert_eq!(end(&effects).status, JobStatus::Timeout, "the time limit of the attempt holds");
}

#[test]
fn each_island_of_a_reply_is_paid_for_its_part() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let first = driven.run_on(host(1));
    driven.write_words(host(1), first, 30);
    let effects = driven.step(Input::Lost { key: first });
    assert!(matches!(effects.last(), Some(Effect::Write(Write::Attempt(_)))), "{effects:?}");
    driven.committed();
    let second = driven.run_on(host(2));
    driven.write_words(host(2), second, 10);
    let usage = Usage::tokens(1, 40);
    let outcome = Outcome::Completed { usage, output: None, finish_reason: None, stop_text: None };
    let n = driven.machine.transcript.log().next();
    let events = vec![Numbered { n, event: AttemptEvent::Ended { outcome } }];
    let output = Output { v: FABRIC_VERSION, key: second, events };
    let effects = driven.step(Input::Output { host: host(2), output, reply: None });
    let shares = &end(&effects).shares;
    assert_eq!(shares[..], [(host(1), MicroCredits(750_000)), (host(2), MicroCredits(250_000))]);
}

/// A job whose reply a grammar enforces, and of which an Island wrote a part before it was lost.
fn lost_with_a_form() -> (Driven, Vec<Effect>) {
    let mut job = job();
    job.input = encoded(json!({"words": 4, "response_format": {"type": "json_object"}}));
    let mut driven = Driven::of(job);
    let effects = driven.step(Input::Begin);
    let is_free = |effect: &Effect| matches!(effect, Effect::Place { history, .. } if !history.selection.continues_form);
    assert!(effects.iter().any(is_free), "any engine can begin it: {effects:?}");
    let first = driven.run_on(host(1));
    driven.write_words(host(1), first, 3);
    let effects = driven.step(Input::Lost { key: first });
    assert!(matches!(effects.last(), Some(Effect::Write(Write::Attempt(_)))), "{effects:?}");
    let effects = driven.committed();
    (driven, effects)
}

#[test]
fn a_reply_with_an_enforced_form_continues_where_the_engine_can() {
    let (mut driven, effects) = lost_with_a_form();
    let is_restricted =
        |effect: &Effect| matches!(effect, Effect::Place { history, .. } if history.selection.continues_form);
    assert!(effects.iter().any(is_restricted), "{effects:?}");
    // One that could is busy: the job waits for it.
    let reasons = BTreeMap::from([("no_runtime".to_owned(), 1), ("no_slot".to_owned(), 1)]);
    let effects = driven.step(Input::NoIsland { reasons });
    assert!(effects.is_empty(), "{effects:?}");
    let key = driven.machine.next_key();
    driven.step(Input::Placed { hosts: Hosts::one(host(2)), key });
    let effects = driven.committed();
    let continues = |effect: &Effect| matches!(effect, Effect::Offer { assignment, .. } if assignment.continues.as_deref() == Some("word word word "));
    assert!(effects.iter().any(continues), "{effects:?}");
}

#[test]
fn a_reply_with_an_enforced_form_that_no_island_can_continue_is_refunded_at_once() {
    // One that could may be excluded by the request.
    for others in [None, Some("preferences")] {
        let (mut driven, _) = lost_with_a_form();
        let reasons = ["no_runtime"].into_iter().chain(others).map(|name| (name.to_owned(), 2)).collect();
        let effects = driven.step(Input::NoIsland { reasons });
        let written = end(&effects);
        assert_eq!(written.status, JobStatus::Failed);
        assert_eq!(written.end.usage.credits_used, Some(MicroCredits::ZERO));
        assert_eq!(written.end.error.as_ref().map(|error| error.code.as_str()), Some("island_lost"));
    }
}

#[test]
fn a_job_has_the_times_at_which_it_first_got_so_far() {
    let mut driven = Driven::new();
    let at = |ms| Some(Timestamp::from_unix_ms(WALL_MS + ms));
    driven.step(Input::Begin);
    driven.ms = 1_000;
    let first = driven.run_on(host(1));
    let times = driven.machine.job().times;
    assert_eq!((times.placed_at, times.first_output_at), (at(1_000), None));
    driven.ms = 2_000;
    driven.write_words(host(1), first, 3);
    driven.ms = 3_000;
    driven.write_words(host(1), first, 3);
    let expected = island_coordinator_domain::job::Times {
        placed_at: at(1_000),
        started_at: at(2_000),
        first_output_at: at(2_000),
    };
    assert_eq!(driven.machine.job().times, expected);
    // Another Island continues the reply.
    let effects = driven.step(Input::Lost { key: first });
    let has_times = |effect: &Effect| match effect {
        Effect::Write(Write::Attempt(write)) => write.times == expected,
        _ => false,
    };
    assert!(effects.last().is_some_and(has_times), "{effects:?}");
    driven.committed();
    driven.ms = 4_000;
    let second = driven.run_on(host(2));
    driven.write_words(host(2), second, 1);
    let effects = driven.step(Input::Cancel(Canceller::Consumer));
    assert_eq!(end(&effects).job.times, expected);
}

#[test]
fn output_from_before_a_restart_is_not_the_first_one_after_it() {
    let mut driven = taken_over(JobStatus::Running, vec![JobEvent::token("word ".into())]);
    let key = driven.machine.job().key();
    driven.step(Input::Begin);
    driven.write_words(host(1), key, 1);
    assert_eq!(driven.machine.job().times.first_output_at, None);
}

#[test]
fn a_row_that_the_database_rejects_is_replaced_by_a_smaller_one() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    driven.write_words(host(1), key, 5);
    driven.step(Input::Cancel(Canceller::Consumer));
    let effects = driven.step(Input::Written(Written::Rejected));
    let small = end(&effects);
    assert_eq!((small.status, small.events.len()), (JobStatus::Failed, 1));
    assert_eq!((&small.end.output, small.end.usage.credits_used), (&None, Some(MicroCredits::ZERO)));
    let effects = driven.committed();
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SendCancel { .. })), "{effects:?}");
    assert!(driven.machine.is_over());
}

#[test]
fn an_unread_job_is_cancelled_after_a_restart() {
    let mut driven = Driven::new();
    let now = Now { instant: driven.start, wall: Timestamp::from_unix_ms(WALL_MS) };
    let stored = Job { cancel_unread: true, ..job() };
    let log = Arc::new(Log::new(stored.head.clone()));
    driven.machine = Machine::resumed(stored, log, simulation::cargo("story"), TERMS, now);
    driven.step(Input::Begin);
    driven.ms = 20_000;
    assert!(driven.tick().is_empty(), "somebody reads it");
    driven.ms = 55_000;
    let now = driven.start + Duration::from_millis(driven.ms);
    let effects = driven.tick_with(false, now);
    assert_eq!(end(&effects).status, JobStatus::Cancelled);
}

/// An attempt over several Islands: its leader is offered the job and sends the output, and what takes the attempt away
/// reaches every member.
#[test]
fn members_of_an_attempt_are_stopped_and_released_with_their_leader() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.machine.next_key();
    let hosts = Hosts { leader: host(1), members: vec![host(2), host(3)] };
    driven.step(Input::Placed { hosts, key });
    let effects = driven.committed();
    assert!(
        matches!(effects[..], [Effect::Offer { host: offered, .. }] if offered == host(1)),
        "{effects:?}"
    );
    driven.step(Input::Answered { key, answer: OfferAnswer::Accepted });
    let events = vec![Numbered { n: 3, event: AttemptEvent::token("forged ".into(), 1) }];
    let output = Output { v: FABRIC_VERSION, key, events };
    driven.step(Input::Output { host: host(2), output, reply: None });
    assert!(!driven.machine.transcript.log().has_output(), "only the leader sends output");
    driven.write_words(host(1), key, 3);
    driven.step(Input::Cancel(Canceller::Consumer));
    let effects = driven.committed();
    let count = |is: fn(&Effect) -> bool| effects.iter().filter(|effect| is(effect)).count();
    assert_eq!(count(|effect| matches!(effect, Effect::SendCancel { .. })), 3, "{effects:?}");
    assert_eq!(count(|effect| matches!(effect, Effect::Release { .. })), 3, "{effects:?}");
}

#[test]
fn a_coordinator_whose_clock_is_wrong_ends_no_job_that_it_takes_over() {
    for (skew_ms, host) in [(3_600_000, Some(host(1))), (3_600_000, None), (-3_600_000, None)] {
        let mut driven = Driven::new();
        driven.skew_ms = skew_ms;
        let wall = Timestamp::from_unix_ms(WALL_MS + skew_ms);
        let attempt = u32::from(host.is_some());
        let stored = Job { attempt, epoch: attempt.into(), host, status: JobStatus::Queued, ..job() };
        let log = Arc::new(Log::new(stored.head.clone()));
        let now = Now { instant: driven.start, wall };
        driven.machine = Machine::resumed(stored, log, simulation::cargo("story"), TERMS, now);
        driven.step(Input::Begin);
        driven.ms = 20_000;
        assert!(driven.tick().is_empty(), "{skew_ms} {host:?}");
        // Not more than a new job, either.
        driven.ms = 60_000 + TIME_LIMIT_MS as u64;
        assert_eq!(end(&driven.tick()).status, JobStatus::Timeout, "{skew_ms} {host:?}");
    }
}

/// A machine of another coordinator for a job whose first attempt is committed, with further events in its log.
fn taken_over(status: JobStatus, further: Vec<JobEvent>) -> Driven {
    let mut driven = Driven::new();
    let now = Now { instant: driven.start, wall: Timestamp::from_unix_ms(WALL_MS) };
    let stored = Job { attempt: 1, epoch: 1, host: Some(host(1)), status, ..job() };
    let log = Arc::new(Log::new(stored.head.clone()));
    log.append(further);
    driven.machine = Machine::resumed(stored, log, simulation::cargo("story"), TERMS, now);
    driven
}

/// A coordinator may stop between the commit of an attempt and its offer. Until the Island answers, nothing is taken for
/// granted.
#[test]
fn an_attempt_that_may_never_have_been_offered_is_offered_again_under_its_key() {
    let mut driven = taken_over(JobStatus::Queued, Vec::new());
    let key = driven.machine.job().key();
    let offers =
        |effects: &[Effect]| matches!(effects, [Effect::Offer { assignment, .. }] if assignment.key == key);
    let effects = driven.step(Input::Begin);
    assert!(offers(&effects), "{effects:?}");
    assert!(!driven.machine.is_accepted());
    // It registers before the offer reaches it.
    assert!(driven.step(Input::Lost { key }).is_empty());
    let effects = driven.step(Input::Answered { key, answer: OfferAnswer::Accepted });
    assert!(matches!(effects[..], [Effect::Accepted]), "{effects:?}");
    driven.write_words(host(1), key, 4);
    assert!(driven.machine.transcript.log().has_output());
}

#[test]
fn an_island_that_refuses_the_second_offer_has_not_failed() {
    let mut driven = taken_over(JobStatus::Queued, Vec::new());
    let key = driven.machine.job().key();
    driven.step(Input::Begin);
    let answer = OfferAnswer::Refused { reason: Some(RefusalReason::NoSlot), message: "full".into() };
    let effects = driven.step(Input::Answered { key, answer });
    assert!(matches!(effects.last(), Some(Effect::Place { key, .. }) if key.attempt == 1), "{effects:?}");
    // The next Island fails before it delivers anything: another follows.
    driven.run_on(host(2));
    let effects = driven.step(Input::Lost { key: driven.machine.job().key() });
    assert!(matches!(effects.last(), Some(Effect::Write(Write::Attempt(_)))), "{effects:?}");
}

#[test]
fn an_island_that_does_not_answer_the_second_offer_keeps_its_lease() {
    let mut driven = taken_over(JobStatus::Queued, Vec::new());
    let key = driven.machine.job().key();
    driven.step(Input::Begin);
    driven.ms = 2_000;
    let effects = driven.step(Input::Answered { key, answer: OfferAnswer::Silent });
    assert!(matches!(effects[..], [Effect::Accepted]), "{effects:?}");
    for ms in (3_000..30_000).step_by(1_000) {
        driven.ms = ms;
        assert!(driven.tick().is_empty(), "{ms} ms");
    }
    driven.ms = 30_000;
    assert!(matches!(driven.tick().first(), Some(Effect::CountLoss(Loss::LeaseExpired))));
}

/// A consumer may have seen output that only a coordinator that is gone had.
#[test]
fn an_attempt_that_ended_at_its_island_is_not_begun_again() {
    let mut driven = taken_over(JobStatus::Queued, Vec::new());
    let key = driven.machine.job().key();
    driven.step(Input::Begin);
    let answer = OfferAnswer::Refused { reason: Some(RefusalReason::Invalid), message: "ended".into() };
    let effects = driven.step(Input::Answered { key, answer });
    assert_eq!(end(&effects).status, JobStatus::Failed);
    for (status, further) in
        [(JobStatus::Running, Vec::new()), (JobStatus::Queued, vec![JobEvent::token("word ".into())])]
    {
        let mut driven = taken_over(status, further);
        assert!(driven.step(Input::Begin).is_empty(), "{status}");
        assert!(driven.machine.is_accepted());
    }
}

#[test]
fn an_end_is_shown_when_its_island_is_free_and_before_a_reply_that_may_wait() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    let outcome =
        Outcome::Completed { usage: Usage::tokens(1, 0), output: None, finish_reason: None, stop_text: None };
    let events = vec![Numbered { n: 3, event: AttemptEvent::Ended { outcome } }];
    let output = Output { v: FABRIC_VERSION, key, events };
    driven.step(Input::Output { host: host(1), output, reply: Some("reply".into()) });
    let effects = driven.committed();
    let place = |is: fn(&Effect) -> bool| effects.iter().position(is).expect("the effect");
    let shown = place(|effect| matches!(effect, Effect::ShowEnd(end) if end.event.is_last()));
    assert!(place(|effect| matches!(effect, Effect::Release { .. })) < shown, "{effects:?}");
    assert!(shown < place(|effect| matches!(effect, Effect::Reply { .. })), "{effects:?}");
    assert_eq!(driven.machine.transcript.log().next(), 3, "not before its effect");
}

#[test]
fn a_backlog_of_renewals_expires_no_lease() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    driven.run_on(host(1));
    for ms in (1_000..60_000).step_by(1_000) {
        driven.ms = ms;
        // Nothing that arrived since the beginning is applied yet.
        let begun = driven.start;
        assert!(driven.tick_with(true, begun).is_empty(), "{ms} ms");
    }
    let effects = driven.tick();
    assert!(
        matches!(
            effects[..],
            [Effect::CountLoss(Loss::LeaseExpired), Effect::Observe { .. }, Effect::Write(Write::Attempt(_))]
        ),
        "{effects:?}"
    );
}

#[test]
fn a_cancelled_job_without_output_costs_its_share_of_the_time_limit() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    driven.ms = 10_000;
    driven.step(Input::Started { host: host(1), key });
    driven.ms += TIME_LIMIT_MS as u64 / 10;
    let effects = driven.step(Input::Cancel(Canceller::Consumer));
    assert_eq!(end(&effects).end.usage.credits_used, Some(MicroCredits(100_000)));
}

#[test]
fn a_preview_without_requested_tokens_costs_half() {
    let mut driven = Driven::of(Job { max_tokens: None, ..job() });
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    let events = vec![Numbered {
        n: 3,
        event: AttemptEvent::Image(Image { format: "png".into(), ..Image::default() }),
    }];
    driven.step(Input::Output {
        host: host(1),
        output: Output { v: FABRIC_VERSION, key, events },
        reply: None,
    });
    let effects = driven.step(Input::Cancel(Canceller::Consumer));
    assert_eq!(end(&effects).end.usage.credits_used, Some(MicroCredits(500_000)));
}

#[test]
fn a_step_of_the_system_clock_is_not_karma() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    driven.step(Input::Started { host: host(1), key });
    (driven.ms, driven.skew_ms) = (2_000, 3_600_000);
    let outcome =
        Outcome::Completed { usage: Usage::default(), output: None, finish_reason: None, stop_text: None };
    let events = vec![Numbered { n: 3, event: AttemptEvent::Ended { outcome } }];
    let output = Output { v: FABRIC_VERSION, key, events };
    let effects = driven.step(Input::Output { host: host(1), output, reply: None });
    assert_eq!(end(&effects).karma, Some((host(1), 2_000)));
}

#[test]
fn readers_see_what_was_charged_where_the_owner_of_an_island_is_unknown() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    driven.write_words(host(1), key, 5);
    let outcome =
        Outcome::Completed { usage: Usage::default(), output: None, finish_reason: None, stop_text: None };
    let n = driven.machine.transcript.log().next();
    let events = vec![Numbered { n, event: AttemptEvent::Ended { outcome } }];
    driven.step(Input::Output {
        host: host(1),
        output: Output { v: FABRIC_VERSION, key, events },
        reply: None,
    });
    // Nobody earned anything.
    let effects = driven.committed();
    let shown = effects.iter().find_map(|effect| match effect {
        Effect::ShowEnd(Numbered { event: JobEvent::Done { usage, .. }, .. }) => usage.credits_used,
        _ => None,
    });
    assert_eq!(shown, Some(MicroCredits::ZERO));
}

fn operator() -> Canceller {
    Canceller::Operator { account: AccountId(Uuid::from_u128(7)), reason: "abuse".into() }
}

#[test]
fn an_operator_who_cancels_stops_the_island_and_is_named_in_the_end() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    driven.run_on(host(1));
    let effects = driven.step(Input::Cancel(operator()));
    let written = end(&effects);
    assert_eq!((written.status, &written.canceller), (JobStatus::Cancelled, &Some(operator())));
    let error = written.end.error.clone().expect("an error");
    assert_eq!(error, operator().error());
    let effects = driven.committed();
    let shown = effects.iter().find_map(|effect| match effect {
        Effect::ShowEnd(Numbered { event: JobEvent::Error { code, error }, .. }) => Some((code, error)),
        _ => None,
    });
    assert_eq!(shown, Some((&error.code, &error.message)));
    let stops =
        |effect: &Effect| matches!(effect, Effect::SendCancel { code: FailureCode::CancelledByUser, .. });
    assert!(effects.iter().any(stops), "an Island of any version knows this code: {effects:?}");
}

#[test]
fn an_operator_is_not_recorded_where_the_job_ends_otherwise() {
    let mut driven = Driven::new();
    driven.step(Input::Begin);
    driven.run_on(host(1));
    driven.step(Input::Cancel(operator()));
    let effects = driven.step(Input::Written(Written::Rejected));
    assert_eq!((end(&effects).status, &end(&effects).canceller), (JobStatus::Failed, &None));
    driven.committed();
    assert!(driven.step(Input::Cancel(operator())).is_empty(), "it has ended");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Who cancels decides nothing but the error of the end and the audit log.
    #[test]
    fn what_a_cancelled_job_is_charged_does_not_depend_on_who_cancels_it(
        is_running in any::<bool>(), words in 0_usize..60, ms in 0..TIME_LIMIT_MS as u64,
    ) {
        let cancelled = |canceller: Canceller| {
            let mut driven = Driven::new();
            driven.step(Input::Begin);
            if is_running {
                let key = driven.run_on(host(1));
                driven.step(Input::Started { host: host(1), key });
                if words > 0 {
                    driven.write_words(host(1), key, words);
                }
                driven.ms = ms;
            }
            let effects = driven.step(Input::Cancel(canceller));
            end(&effects).clone()
        };
        let (by_consumer, by_operator) = (cancelled(Canceller::Consumer), cancelled(operator()));
        prop_assert_eq!(by_consumer.status, by_operator.status);
        prop_assert_eq!(&by_consumer.shares, &by_operator.shares);
        prop_assert_eq!(&by_consumer.end.usage, &by_operator.end.usage);
        prop_assert_eq!(by_consumer.karma, by_operator.karma);
        prop_assert_eq!(by_consumer.events.len(), by_operator.events.len());
        let charged: MicroCredits = by_operator.shares.iter().map(|(_, share)| *share).sum();
        prop_assert!(charged <= by_operator.job.price);
        prop_assert!(is_running || charged == MicroCredits::ZERO);
        prop_assert_ne!(by_consumer.end.error, by_operator.end.error);
    }
}

/// A chat whose tokens have prices, with this stop text.
fn priced_chat(stop: &str) -> Job {
    let input = json!({"messages": [{"role": "user", "content": "hi"}], "stop": stop});
    let tokens =
        TokenPrices { price_per_1k_input: MicroCredits(1_000), price_per_1k_output: MicroCredits(1_000) };
    let agreement = island_coordinator_domain::job::Agreement {
        token_prices: tokens,
        ..island_coordinator_domain::job::Agreement::default()
    };
    Job { input: encoded(input), agreement, ..job() }
}

/// The end of a job that delivered `events` and completed without an answer.
fn completed_empty(job: Job, events: Vec<AttemptEvent>, usage: Usage, stop_text: Option<&str>) -> EndWrite {
    let mut driven = Driven::of(job);
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    let stop_text = stop_text.map(str::to_owned);
    let output = Some(json!(""));
    let finish_reason = Some(FinishReason::Stop);
    let ended =
        AttemptEvent::Ended { outcome: Outcome::Completed { usage, output, finish_reason, stop_text } };
    let first = driven.machine.transcript.log().next();
    let events =
        (first..).zip(events.into_iter().chain([ended])).map(|(n, event)| Numbered { n, event }).collect();
    let output = Output { v: FABRIC_VERSION, key, events };
    end(&driven.step(Input::Output { host: host(1), output, reply: None })).clone()
}

#[test]
fn reasoning_without_an_answer_costs_its_tokens() {
    let thought = AttemptEvent::Token {
        content: "hm, ".into(),
        count: 1,
        reasoning: true,
        logprobs: Vec::new(),
        call: None,
    };
    for (job, price) in [(priced_chat("no"), 13), (job(), 1_000_000)] {
        let end = completed_empty(job, vec![thought.clone(); 3], Usage::tokens(10, 3), None);
        assert_eq!(end.end.usage.credits_used, Some(MicroCredits(price)));
    }
}

#[test]
fn a_verdict_by_a_stop_text_costs_prompt_and_text() {
    for (job, price) in [(priced_chat("yes"), 11), (Job { price: MicroCredits(7), ..priced_chat("yes") }, 7)]
    {
        let end = completed_empty(job, Vec::new(), Usage::tokens(10, 0), Some("yes"));
        assert_eq!(end.end.usage.credits_used, Some(MicroCredits(price)));
        assert_eq!(end.end.usage.completion_tokens, 1);
    }
}

#[test]
fn a_prompt_is_charged_though_no_reply_follows() {
    let end = completed_empty(priced_chat("yes"), Vec::new(), Usage::tokens(10, 0), None);
    assert_eq!(end.end.usage.credits_used, Some(MicroCredits(10)));
}

#[test]
fn every_attempt_is_sent_the_text_that_was_accepted() {
    let mut driven = Driven::new();
    let accepted = driven.machine.job().input.clone();
    driven.step(Input::Begin);
    let key = driven.machine.next_key();
    driven.step(Input::Placed { hosts: Hosts::one(host(1)), key });
    let effects = driven.committed();
    let offered = effects.iter().find_map(|effect| match effect {
        Effect::Offer { assignment, .. } => Some(&assignment.input),
        _ => None,
    });
    let offered = offered.expect("an offer");
    assert!(std::ptr::eq(offered.as_str(), accepted.as_str()), "nothing is encoded again");
}

#[test]
fn counting_the_tokens_of_a_prompt_is_free() {
    let mut job = priced_chat("yes");
    let mut fields = job.input.fields();
    fields.insert("count_tokens".into(), json!(true));
    job.input = JobInput::new(&fields);
    let end = completed_empty(job, Vec::new(), Usage::tokens(10, 0), None);
    assert_eq!(end.end.usage.credits_used, Some(MicroCredits::ZERO));
}

#[test]
fn claimed_prompt_tokens_are_clamped_in_every_figure() {
    let end = completed_empty(priced_chat("yes"), Vec::new(), Usage::tokens(1_000_000_000, 0), None);
    let usage = &end.end.usage;
    assert!(usage.prompt_tokens < 2_000 && usage.total_tokens == usage.prompt_tokens, "{usage:?}");
    assert_eq!(usage.credits_used, Some(MicroCredits(usage.prompt_tokens as i64)));
    let Some(JobEvent::Done { usage: shown, .. }) = end.events.last().map(|last| &last.event) else {
        panic!("the end is shown");
    };
    assert_eq!(shown, usage);
}

/// A catalogue with the same Cargo on two engines: the output of one is its program's, that of the other the engine's.
fn with_outputs(runtime: &str) -> Arc<Cargo> {
    let folder = tempfile::tempdir().expect("a folder");
    let own = if runtime == "wasm" {
        "sandbox_tier = \"restricted\"\nmodel_url = \"https://example.org/a.wasm\""
    } else {
        ""
    };
    let text = format!(
        "slug = \"count\"\nname = \"Count\"\ndescription = \"Counts.\"\ncategory = \"utility\"\nruntime_type = \"{runtime}\"\n\
         price_per_job = 1\nrequired_vram_mb = 0\nrequired_ram_mb = 64\n{own}\n[limits]\ntimeout_s = 60\n\
         [input_schema]\ntype = \"object\"\n[output_schema]\ntype = \"object\"\nrequired = [\"count\"]\n\
         [example]\ninput = {{}}\noutput = {{ count = 1 }}\n"
    );
    std::fs::write(folder.path().join("count.toml"), text).expect("write a Cargo");
    let catalogue = island_coordinator_domain::catalogue::Catalogue::load(folder.path(), false)
        .expect("a valid catalogue");
    catalogue.get("count").expect("the Cargo").clone()
}

/// Ends the attempt of an Island with this output.
fn end_with(driven: &mut Driven, island: HostId, key: AttemptKey, output: Value) -> Vec<Effect> {
    let outcome = Outcome::Completed {
        usage: Usage::default(),
        output: Some(output),
        finish_reason: None,
        stop_text: None,
    };
    let n = driven.machine.transcript.log().next();
    let events = vec![Numbered { n, event: AttemptEvent::Ended { outcome } }];
    driven.step(Input::Output {
        host: island,
        output: Output { v: FABRIC_VERSION, key, events },
        reply: None,
    })
}

fn marked(effects: &[Effect]) -> Vec<HostId> {
    let failed = |effect: &Effect| match effect {
        Effect::Observe { host, conduct: Conduct::Failed } => Some(*host),
        _ => None,
    };
    effects.iter().filter_map(failed).collect()
}

#[test]
fn an_invalid_output_of_a_program_is_the_jobs_fault() {
    let mut driven = Driven::new();
    driven.machine.cargo = Some(with_outputs("wasm"));
    driven.step(Input::Begin);
    let key = driven.run_on(host(1));
    let effects = end_with(&mut driven, host(1), key, json!({}));
    assert_eq!(end(&effects).end.error.as_ref().map(|error| error.code.as_str()), Some("invalid_output"));
    assert_eq!(marked(&effects), [], "one run, and no mark");
}

#[test]
fn only_a_valid_output_contradicts_an_invalid_one() {
    for (second, is_contradicted) in [(json!({}), false), (json!({"count": 1}), true)] {
        let mut driven = Driven::new();
        driven.machine.cargo = Some(with_outputs("llmcpp"));
        driven.step(Input::Begin);
        let key = driven.run_on(host(1));
        let effects = end_with(&mut driven, host(1), key, json!({}));
        assert!(
            matches!(effects[..], [Effect::Write(Write::Attempt(_))]),
            "another Island is tried: {effects:?}"
        );
        driven.committed();
        let key = driven.run_on(host(2));
        let effects = end_with(&mut driven, host(2), key, second);
        assert_eq!(end(&effects).status == JobStatus::Completed, is_contradicted);
        let expected = if is_contradicted { vec![host(1)] } else { Vec::new() };
        assert_eq!(marked(&effects), expected);
    }
}

#[test]
fn a_waiting_job_ends_if_its_cargo_was_replaced() {
    let waiting = Job { status: JobStatus::Pending, ..job() };
    let start = Instant::now();
    let now = Now { instant: start, wall: Timestamp::from_unix_ms(WALL_MS) };
    let log = Arc::new(Log::new(waiting.head.clone()));
    let mut machine = Machine::resumed(waiting, log, None, TERMS, now);
    machine.forbid_other_versions();
    let effects = machine.step(Input::Begin, now);
    let end = end(&effects);
    assert_eq!(end.end.error.as_ref().map(|error| error.code.as_str()), Some("cargo_changed"));
    assert_eq!((end.end.usage.credits_used, end.shares.len()), (Some(MicroCredits::ZERO), 0));
}
