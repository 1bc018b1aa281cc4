//! A scripted engine: tokens computed from the prompt, delays, hangs, crashes and wrong counts. The script is the Cargo's `[engine]` table,
//! overridden by the job's input.

mod script;

use std::time::Duration;

use island_protocol::{
    cargo::RuntimeType,
    host::{CONTINUES_FORMS, Device},
    job::{Failure, FailureCode, Fault, FinishReason, Outcome, Usage},
};
use tokio::sync::Semaphore;

pub use script::{Lie, Script, ScriptError};

use crate::{
    job::{Phase, RunContext, RunRequest},
    runtime::{Probe, Runtime, Unavailable},
};

/// Maximum sleep without progress, so that a slow script does not look like a stalled one.
const SLICE: Duration = Duration::from_millis(200);

/// What a scripted crash does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Crash {
    /// Ends the job with the code of a crash, for processes that contain more than the engine.
    #[default]
    Pretend,
    /// Panics.
    Panic,
    /// Aborts the process, as a fault in native code would.
    Abort,
}

/// The scripted engine.
#[derive(Debug)]
pub struct Simulated {
    crash: Crash,
    slots: u32,
    free: Semaphore,
}

impl Simulated {
    /// Creates an engine that runs `slots` jobs at once.
    pub fn new(slots: u32, crash: Crash) -> Self {
        let slots = slots.max(1);
        Self { crash, slots, free: Semaphore::new(slots as usize) }
    }
}

/// Returns token `index` of the reply to `prompt`: its words in turn, numbered.
pub fn token(prompt: &str, index: u64) -> String {
    let words = prompt.split_whitespace().count().max(1) as u64;
    let word = prompt.split_whitespace().nth((index % words) as usize).unwrap_or("word");
    let space = if index == 0 { "" } else { " " };
    format!("{space}{word}{index}")
}

/// Returns the whole reply to `prompt`.
pub fn reply(prompt: &str, tokens: u64) -> String {
    (0..tokens).map(|index| token(prompt, index)).collect()
}

/// Number of tokens of the reply to `prompt` that a text consists of.
fn tokens_of(prompt: &str, text: &str) -> u64 {
    let (mut length, mut count) = (0, 0);
    while length < text.len() {
        length += token(prompt, count).len();
        count += 1;
    }
    count
}

impl Runtime for Simulated {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Llmcpp
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        Ok(Probe {
            version: concat!("simulated ", env!("CARGO_PKG_VERSION")).to_owned(),
            devices: vec![Device::cpu()],
            slots: self.slots,
            features: vec![CONTINUES_FORMS.to_owned()],
            ..Probe::default()
        })
    }

    fn admit(&self, request: &RunRequest) -> Result<(), Failure> {
        Script::of(request).map(drop).map_err(Failure::from)
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        let script = match Script::of(&request) {
            Ok(script) => script,
            Err(error) => return Outcome::failed(error.into()),
        };
        context.work.enter(Phase::Wait);
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => Outcome::failed(cancelled()),
            slot = self.free.acquire() => {
                let _slot = slot.expect("the semaphore is never closed");
                let before = request.continues.as_deref().map_or(0, |text| tokens_of(&script.prompt, text));
                Performance { script, context, crash: self.crash, before }.run().await
            }
        }
    }
}

fn cancelled() -> Failure {
    Failure::interrupted(FailureCode::CancelledByUser, "the run was cancelled")
}

/// One running job.
struct Performance {
    script: Script,
    context: RunContext,
    crash: Crash,
    /// Tokens of an earlier attempt.
    before: u64,
}

/// Why a job stops before its last token.
enum Stop {
    Failure(Failure),
    Cancelled,
}

impl Performance {
    async fn run(self) -> Outcome {
        let prompt_tokens = self.script.prompt_tokens();
        self.context.work.enter(Phase::Prompt);
        if self.script.read_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.script.read_ms)).await;
        }
        self.context.work.advance(prompt_tokens);
        self.context.work.enter(Phase::Run);
        let mut written = self.before;
        let stopped = self.play(&mut written).await;
        let usage = Usage::tokens(prompt_tokens, written);
        match stopped {
            Ok(()) => Outcome::Completed {
                usage: self.script.claimed(usage),
                output: None,
                finish_reason: Some(FinishReason::Length),
                stop_text: None,
            },
            Err(Stop::Failure(failure)) => Outcome::Failed { failure, usage },
            Err(Stop::Cancelled) => Outcome::Failed { failure: cancelled(), usage },
        }
    }

    async fn play(&self, written: &mut u64) -> Result<(), Stop> {
        let script = &self.script;
        while *written < script.max_tokens || script.lie == Some(Lie::Flood) {
            self.act(*written).await?;
            self.pause().await?;
            let mut content = token(&script.prompt, *written);
            if script.lie == Some(Lie::Giant) {
                content = content.repeat((32 << 20) / content.len());
            }
            self.context.events.token(content, script.claimed_count());
            self.context.work.advance(1);
            *written += 1;
        }
        self.act(*written).await
    }

    /// What the script does after `written` tokens.
    async fn act(&self, written: u64) -> Result<(), Stop> {
        let script = &self.script;
        if script.hang_after == Some(written) {
            // A stalled engine does not react to cancellation either: only killing it helps.
            std::future::pending::<()>().await;
        }
        if script.crash_after == Some(written) {
            return Err(Stop::Failure(self.crash()));
        }
        if script.fail_after == Some(written) {
            let message = "scripted failure".to_owned();
            return Err(Stop::Failure(Failure { fault: script.fail_fault, code: script.fail_code, message }));
        }
        Ok(())
    }

    fn crash(&self) -> Failure {
        match self.crash {
            Crash::Abort => std::process::abort(),
            Crash::Panic => panic!("scripted crash"),
            Crash::Pretend => Failure {
                fault: Fault::Host,
                code: FailureCode::RuntimeCrashed,
                message: "a scripted crash".to_owned(),
            },
        }
    }

    async fn pause(&self) -> Result<(), Stop> {
        let mut left = Duration::from_millis(self.script.delay_ms);
        loop {
            let slice = left.min(SLICE);
            tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => return Err(Stop::Cancelled),
                () = sleep_or_yield(slice) => {}
            }
            left -= slice;
            if left.is_zero() {
                return Ok(());
            }
            self.context.work.advance(1);
        }
    }
}

async fn sleep_or_yield(slice: Duration) {
    if slice.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(slice).await;
    }
}
