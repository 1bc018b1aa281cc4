//! Runs one batch: validates its input, makes its requests, some at a time, and writes their results.
//!
//! Every result is committed before the next request begins, and every write compares the coordinator of the batch. So another
//! coordinator goes on at the first line without a result, and the idempotency keys of the requests make sure that none is paid twice.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use island_daemon::chain::Chain;
use island_protocol::{
    ids::{AccountId, BatchId, FileId},
    time::Timestamp,
};
use island_protocol_api::{
    batch::{BatchError, BatchStatus},
    problem::Code,
};
use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinSet},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

use super::request::{Made, Terms, failed, make, route};
use crate::{Api, ApiError, MAX_BODY, openai::files};
use island_coordinator_domain::{
    batch::{
        Facts,
        line::{self, Line, Lines, Validation},
        next,
    },
    job::Canceller,
    metrics::Outcome,
};
use island_coordinator_storage::{
    StoreError,
    batch::{self, LineResult, ResultKind, Step, StoredBatch},
    file,
    key::{self, KeyHolder},
};

/// Time between two reads of the batch's state and key, and after a failure of the database.
const POLL: Duration = Duration::from_secs(1);
/// Time between two reads of the jobs that are being cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(200);
/// Results of requests that are not run, written at one time.
const GROUP: usize = 200;

/// A batch that this coordinator runs.
#[derive(Debug)]
pub(super) struct Runner {
    pub api: Arc<Api>,
    pub id: BatchId,
    pub account: AccountId,
    /// Permits of the account's requests.
    pub requests: Arc<Semaphore>,
}

/// Whether this coordinator still runs the batch.
type IsOwned = Result<bool, StoreError>;

/// Why a batch ends before all its requests have results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Expired,
    Cancelled,
    KeyRefused,
}

impl Why {
    /// The state in which the batch ends.
    fn status(self) -> BatchStatus {
        match self {
            Self::Expired => BatchStatus::Expired,
            Self::Cancelled => BatchStatus::Cancelled,
            Self::KeyRefused => BatchStatus::Failed,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Expired => "batch_expired",
            Self::Cancelled => "batch_cancelled",
            Self::KeyRefused => "invalid_api_key",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Expired => "the window of the batch ended before this request",
            Self::Cancelled => "the batch was cancelled before this request ended",
            Self::KeyRefused => "the key of the batch was revoked, or has expired",
        }
    }
}

/// What a batch depends on besides its requests.
#[derive(Debug)]
struct Outside {
    /// Absent if the key of the batch is accepted no longer.
    holder: Option<KeyHolder>,
    is_cancelling: bool,
}

impl Runner {
    /// Runs the batch until it has ended, or another coordinator runs it. Returns its id.
    pub(super) async fn run(self) -> BatchId {
        loop {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => return self.id,
                Err(error) => {
                    tracing::warn!(batch = %self.id, error = %Chain(&error), "batch not run; will retry");
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }

    async fn step(&self) -> IsOwned {
        let owned = batch::owned(self.api.store.reader(), self.id, self.api.instance).await?;
        let Some(batch) = owned else { return Ok(false) };
        match batch.status {
            BatchStatus::Validating => self.validate(&batch).await,
            BatchStatus::InProgress => self.make_requests(&batch).await,
            BatchStatus::Cancelling => self.close(&batch, Why::Cancelled).await,
            BatchStatus::Finalizing => {
                self.advance(&batch, BatchStatus::Completed, None, None).await?;
                Ok(true)
            }
            BatchStatus::Failed | BatchStatus::Completed | BatchStatus::Expired | BatchStatus::Cancelled => {
                Ok(false)
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.api.clock.now()
    }

    /// Whether the window of the batch is over by each clock.
    fn has_expired(&self, batch: &StoredBatch) -> bool {
        batch.expires_at <= self.api.clock.earliest()
    }

    async fn advance(
        &self,
        batch: &StoredBatch,
        to: BatchStatus,
        total: Option<u64>,
        errors: Option<&[BatchError]>,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let files_until = self.api.rules.files_ms.map(|ms| now.plus_ms(ms));
        let step = Step { to, total, errors, files_until };
        // A step that is not taken is noticed when the batch is read again.
        if batch::advance(&self.api.store, batch, self.api.instance, &step, now).await? && to.is_final() {
            self.api.metrics.batches.ended(to.as_str());
        }
        Ok(())
    }

    /// Writes results. Returns `false` if another coordinator runs the batch.
    async fn record(&self, batch: &StoredBatch, results: &[LineResult]) -> IsOwned {
        if results.is_empty() {
            return Ok(true);
        }
        if !batch::record(&self.api.store, batch, self.api.instance, results).await? {
            return Ok(false);
        }
        for result in results {
            self.api.metrics.batches.recorded(match result.kind {
                ResultKind::Completed => Outcome::Completed,
                ResultKind::Failed => Outcome::Failed,
                ResultKind::NotRun => Outcome::NotRun,
            });
        }
        Ok(true)
    }

    /// Reads the whole input, before the first request is made.
    async fn validate(&self, batch: &StoredBatch) -> IsOwned {
        let holder = self.outside().await?.and_then(|outside| outside.holder);
        let mut validation = Validation::new(batch.endpoint, self.api.rules.batches.max_requests.into());
        let mut input = Input::new(&self.api, batch.input);
        while let Some((number, text)) = input.next().await? {
            if text.len() > MAX_BODY {
                validation.too_long(number, MAX_BODY);
                break;
            }
            if !validation.add(number, &text) {
                break;
            }
        }
        let checked = validation.finish();
        let facts = Facts {
            valid: Some(checked.is_ok()),
            key_refused: holder.is_none(),
            window_over: self.has_expired(batch),
            running: false,
            all_ended: false,
        };
        let Some(to) = next(batch.status, facts) else { return Ok(true) };
        let key_refused = [refused_key()];
        let (total, errors) = match &checked {
            Ok(total) => (Some(*total), (to == BatchStatus::Failed).then_some(&key_refused[..])),
            Err(errors) => (None, Some(errors.as_slice())),
        };
        self.advance(batch, to, total, errors).await?;
        Ok(true)
    }

    /// What the batch depends on now; `None` if another coordinator runs it, or it has ended.
    async fn outside(&self) -> Result<Option<Outside>, StoreError> {
        let reader = self.api.store.reader();
        let Some(batch) = batch::owned(reader, self.id, self.api.instance).await? else { return Ok(None) };
        let now = self.now();
        let holder = key::holder_of(reader, batch.key).await?;
        let holder = holder.filter(|holder| holder.expires_at.is_none_or(|end| end > now));
        Ok(Some(Outside { holder, is_cancelling: batch.status == BatchStatus::Cancelling }))
    }

    fn terms(&self, batch: &StoredBatch) -> Terms {
        Terms {
            api: self.api.clone(),
            batch: self.id,
            account: self.account,
            endpoint: batch.endpoint,
            requests: self.requests.clone(),
            closing: CancellationToken::new(),
        }
    }

    /// Makes the requests that have no result yet, until all have one or the batch is to end.
    async fn make_requests(&self, batch: &StoredBatch) -> IsOwned {
        let terms = self.terms(batch);
        let done = self.done(batch).await?;
        let mut input = Input::new(&self.api, batch.input);
        let at_once = self.api.rules.batches.concurrent_requests as usize;
        // Tasks of their own: a future that is not polled while results are written may hold the turn of that write.
        let mut running = JoinSet::new();
        // Requests that may cost more than the batch has left, unless others cost less than is held for them.
        let mut capped: Vec<Line> = Vec::new();
        let (mut is_read, mut is_exhausted, mut is_cut_off) = (false, false, false);
        let mut ticks = tokio::time::interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let Some(mut outside) = self.outside().await? else { return Ok(false) };
        loop {
            let why = self.why(batch, &outside);
            if why.is_some() {
                terms.closing.cancel();
                self.cancel_jobs().await?;
            }
            let is_suspended = outside.holder.is_some_and(|holder| holder.suspended);
            let mut refused = Vec::new();
            while why.is_none() && !is_suspended && !is_read && capped.is_empty() && running.len() < at_once {
                match (input.next().await?, outside.holder) {
                    (None, _) => is_read = true,
                    (Some((number, _)), _) if done.contains(&number) => {}
                    (Some((number, text)), Some(holder)) => {
                        match line::parse(number, &text, batch.endpoint) {
                            Ok(line) if is_exhausted => {
                                refused.push(exhausted(batch, &line));
                                if refused.len() >= GROUP
                                    && !self.record(batch, &std::mem::take(&mut refused)).await?
                                {
                                    return Ok(true);
                                }
                            }
                            Ok(line) => begin(&mut running, &terms, holder, [line]),
                            Err(error) => {
                                let text = line::not_run(self.id, number, "", &error.code, &error.message);
                                if !self
                                    .record(batch, &[LineResult { number, text, kind: ResultKind::Failed }])
                                    .await?
                                {
                                    return Ok(true);
                                }
                            }
                        }
                    }
                    (Some(_), None) => break,
                }
            }
            if !self.record(batch, &refused).await? {
                return Ok(true);
            }
            let facts = Facts {
                valid: Some(true),
                key_refused: outside.holder.is_none(),
                window_over: why == Some(Why::Expired),
                running: !running.is_empty(),
                all_ended: is_read && capped.is_empty() && !is_cut_off,
            };
            match (why, next(BatchStatus::InProgress, facts)) {
                (_, Some(to @ BatchStatus::Finalizing)) => {
                    self.advance(batch, to, None, None).await?;
                    return Ok(true);
                }
                (Some(Why::Cancelled), _) if running.is_empty() => return Ok(true),
                (Some(why), _) if running.is_empty() => return self.close(batch, why).await,
                _ => {}
            }
            let made = tokio::select! {
                biased;
                Some(made) = running.join_next() => made.unwrap_or_else(stopped),
                _ = ticks.tick() => {
                    let Some(now) = self.outside().await? else { return Ok(false) };
                    outside = now;
                    continue;
                }
            };
            match made {
                Made::Ended(result) => {
                    if !self.record(batch, &[result]).await? {
                        return Ok(true);
                    }
                    // What was held for it and not charged is left now.
                    if let Some(holder) = outside.holder {
                        begin(&mut running, &terms, holder, capped.drain(..));
                    }
                }
                Made::Capped(line) => capped.push(line),
                Made::Closed => is_cut_off = true,
            }
            if running.is_empty() && !capped.is_empty() && !terms.closing.is_cancelled() {
                is_exhausted = true;
                let results: Vec<LineResult> = capped.drain(..).map(|line| exhausted(batch, &line)).collect();
                if !self.record(batch, &results).await? {
                    return Ok(true);
                }
            }
        }
    }

    /// Why the batch is to end before its requests, if it is.
    fn why(&self, batch: &StoredBatch, outside: &Outside) -> Option<Why> {
        if outside.is_cancelling {
            return Some(Why::Cancelled);
        }
        if outside.holder.is_none() {
            return Some(Why::KeyRefused);
        }
        self.has_expired(batch).then_some(Why::Expired)
    }

    /// Numbers of the lines that have results.
    async fn done(&self, batch: &StoredBatch) -> Result<HashSet<u64>, StoreError> {
        let mut done = HashSet::new();
        for id in [batch.output, batch.failures].into_iter().flatten() {
            done.extend(file::numbers(self.api.store.reader(), id).await?);
        }
        Ok(done)
    }

    /// Requests the cancellation of the batch's open jobs. Returns whether there are any.
    async fn cancel_jobs(&self) -> Result<bool, StoreError> {
        let execution = &self.api.execution;
        let jobs = batch::open_jobs(self.api.store.reader(), self.id, self.account).await?;
        for job in &jobs {
            // One that moves between coordinators, or has ended, is read again or not.
            execution.cancel(*job, &Canceller::Consumer).await?;
        }
        Ok(!jobs.is_empty())
    }

    /// Ends a batch some of whose requests have no result: those that run are cancelled, the others are not made.
    async fn close(&self, batch: &StoredBatch, why: Why) -> IsOwned {
        if batch.in_progress_at.is_none() {
            // Its input was not validated: no request was made, and it may have any number of lines.
            self.advance(batch, why.status(), None, None).await?;
            return Ok(true);
        }
        while self.cancel_jobs().await? {
            tokio::time::sleep(CANCEL_POLL).await;
        }
        let prefix = line::key_prefix(self.id);
        // Jobs that ended under an earlier coordinator, whose results were not written.
        let begun =
            batch::keys_of_begun(self.api.store.reader(), self.account, route(batch.endpoint), &prefix)
                .await?;
        let done = self.done(batch).await?;
        let holder = self.outside().await?.and_then(|outside| outside.holder);
        let terms = self.terms(batch);
        let mut input = Input::new(&self.api, batch.input);
        let mut results = Vec::new();
        while let Some((number, text)) = input.next().await? {
            if done.contains(&number) {
                continue;
            }
            let Ok(line) = line::parse(number, &text, batch.endpoint) else { continue };
            let custom_id = line.custom_id.clone();
            let has_job = begun.contains(&line::idempotency_key(self.id, number));
            let made = match holder {
                Some(holder) if has_job => make(terms.clone(), holder, line).await,
                _ => Made::Closed,
            };
            results.push(match made {
                Made::Ended(result) => result,
                Made::Capped(_) | Made::Closed => {
                    let text = line::not_run(self.id, number, &custom_id, why.code(), why.message());
                    LineResult { number, text, kind: ResultKind::NotRun }
                }
            });
            if results.len() >= GROUP {
                if !self.record(batch, &results).await? {
                    return Ok(true);
                }
                results.clear();
            }
        }
        if !self.record(batch, &results).await? {
            return Ok(true);
        }
        let errors = [refused_key()];
        let errors = (why == Why::KeyRefused).then_some(&errors[..]);
        self.advance(batch, why.status(), None, errors).await?;
        Ok(true)
    }
}

fn refused_key() -> BatchError {
    BatchError {
        code: Why::KeyRefused.code().to_owned(),
        message: Why::KeyRefused.message().to_owned(),
        param: None,
        line: None,
    }
}

/// Begins to make these requests.
fn begin(
    running: &mut JoinSet<Made>,
    terms: &Terms,
    holder: KeyHolder,
    lines: impl IntoIterator<Item = Line>,
) {
    for line in lines {
        running.spawn(make(terms.clone(), holder, line));
    }
}

/// What became of a request whose task ended without a result: it panicked, or the runtime stops.
fn stopped(error: JoinError) -> Made {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Made::Closed,
    }
}

/// The result of a request for which the batch has no credits left.
fn exhausted(batch: &StoredBatch, line: &Line) -> LineResult {
    let most = batch.max_credits.unwrap_or_default();
    let message = format!("the request could cost more than is left of the batch's max_credits of {most}");
    failed(batch.id, line, &ApiError::new(Code::MaxCreditsExceeded, message).in_openai_form())
}

type Pieces = BoxStream<'static, Result<(u64, String), StoreError>>;

/// The lines of a file, read as they are needed.
struct Input {
    pieces: Pieces,
    lines: Lines,
    is_read: bool,
}

impl Input {
    fn new(api: &Api, id: FileId) -> Self {
        let pieces = Box::pin(files::pieces(api.store.reader().clone(), id));
        Self { pieces, lines: Lines::default(), is_read: false }
    }

    /// The next line with its number. One that is longer than [`MAX_BODY`] may be cut off, and is the last.
    async fn next(&mut self) -> Result<Option<(u64, String)>, StoreError> {
        loop {
            if let Some(line) = self.lines.next_ready() {
                return Ok(Some(line));
            }
            if self.is_read {
                return Ok(None);
            }
            match self.pieces.next().await.transpose()? {
                Some((_, piece)) => self.lines.push(&piece),
                None => self.is_read = true,
            }
            self.is_read |= self.lines.begun_bytes() > MAX_BODY;
            if self.is_read {
                self.lines.finish();
            }
        }
    }
}
