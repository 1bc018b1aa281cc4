//! Reading job streams in tests.

use std::time::Duration;

use island_coordinator_client::{Client, stream::EventStream};
use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
};
use island_protocol_api::JobView;

/// Long enough for a debug build on a busy machine; a test that meets it has failed.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Everything a consumer read of one job.
#[derive(Debug, Default)]
pub struct Story {
    /// Numbers of the events, in the order of arrival.
    pub numbers: Vec<u64>,
    /// The joined tokens.
    pub text: String,
    /// The last event.
    pub last: Option<JobEvent>,
}

impl Story {
    /// Adds an event.
    pub fn push(&mut self, event: Numbered<JobEvent>) {
        self.numbers.push(event.n);
        if let JobEvent::Token { content, .. } = &event.event {
            self.text.push_str(content);
        }
        self.last = Some(event.event);
    }

    /// Reads on until the job has ended.
    pub async fn read_to_end(mut self, events: &mut EventStream) -> Self {
        let read = async {
            while let Some(event) = events.next().await {
                self.push(event.expect("the stream goes on"));
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("the job ends in time");
        self
    }

    /// Reads on until `count` tokens events have come in all.
    pub async fn read_tokens(mut self, events: &mut EventStream, count: usize) -> Self {
        let mut tokens = 0;
        let read = async {
            while tokens < count {
                let event = events.next().await.expect("the job still runs").expect("the stream goes on");
                assert!(!event.event.is_last(), "ended early: {:?}", event.event);
                tokens += usize::from(event.event.is_output());
                self.push(event);
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("tokens come in time");
        self
    }

    /// Event numbers run from 1 without a gap or a repeat.
    pub fn assert_whole(&self) {
        let expected: Vec<u64> = (1..=self.numbers.len() as u64).collect();
        assert_eq!(self.numbers, expected, "no gap and no repeat");
    }

    /// The code of the final `error` event.
    pub fn error_code(&self) -> Option<&str> {
        match &self.last {
            Some(JobEvent::Error { code, .. }) => Some(code),
            _ => None,
        }
    }

    /// Whether the job completed.
    pub fn is_done(&self) -> bool {
        matches!(self.last, Some(JobEvent::Done { .. }))
    }
}

/// Waits until `what` holds.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let wait = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// The job once its status is final.
pub async fn final_job(client: &Client, id: JobId) -> JobView {
    eventually("the job is final", || async move {
        let job = client.job(id).await.expect("read the job");
        job.status.is_final().then_some(job)
    })
    .await
}
