//! `/jobs`.

use island_protocol::{
    ids::{ApiKeyId, JobId, Slug},
    job::JobStatus,
    time::Timestamp,
};
use island_protocol_api::{CancelledJob, DeletedJobData, JobOutput, JobSummary, JobView, Page, SubmittedJob};
use serde::Serialize;
use serde_json::Value;

use crate::{call::Call, client::Client, request::Request, stream::EventStream};

/// Any JSON is accepted as input; the coordinator validates it.
#[derive(Serialize)]
struct Submit<'a> {
    workload: &'a str,
    input: Value,
    priority: u8,
}

/// Restricts the jobs of [`Client::jobs`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only jobs in this state.
    pub status: Option<JobStatus>,
    /// Only jobs of this Cargo.
    pub cargo: Option<Slug>,
    /// Only jobs that were submitted with this key.
    pub key: Option<ApiKeyId>,
    /// Only jobs that were created at this time or later.
    pub from: Option<Timestamp>,
    /// Only jobs that were created before this time.
    pub until: Option<Timestamp>,
}

impl Client {
    /// `POST /jobs`. Acts once even if it is sent again.
    pub fn submit_job(&self, workload: &str, input: Value, priority: u8) -> Request<SubmittedJob> {
        let body = Submit { workload, input, priority };
        Request::data(self, Call::post_once("submit the job", &["jobs"], &body))
    }

    /// `GET /jobs`: newest first.
    pub fn jobs(&self, filter: &JobFilter, limit: u64, offset: u64) -> Request<Page<JobSummary>> {
        let call = Call::get("list the jobs", &["jobs"])
            .query("status", filter.status)
            .query("workload", filter.cargo.as_ref())
            .query("key", filter.key)
            .query("from", filter.from)
            .query("until", filter.until);
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

    /// `GET /jobs/:id`.
    pub fn job(&self, id: JobId) -> Request<JobView> {
        Request::data(self, Call::get("read the job", &["jobs", &id.to_string()]))
    }

    /// `GET /jobs/:id/output`: only the output of a completed job.
    pub fn job_output(&self, id: JobId) -> Request<JobOutput> {
        Request::data(self, Call::get("read the job's output", &["jobs", &id.to_string(), "output"]))
    }

    /// `DELETE /jobs/:id`.
    pub fn cancel_job(&self, id: JobId) -> Request<CancelledJob> {
        Request::data(self, Call::delete("cancel the job", &["jobs", &id.to_string()]))
    }

    /// `DELETE /jobs/:id/data`: input, output and events of an ended job.
    pub fn delete_job_data(&self, id: JobId) -> Request<DeletedJobData> {
        Request::data(self, Call::delete("delete the job's data", &["jobs", &id.to_string(), "data"]))
    }

    /// `GET /jobs/:id/stream`, resumed automatically after an interruption. Starts with the event after `after`.
    pub fn job_events(&self, id: JobId, after: Option<u64>) -> EventStream {
        EventStream::new(self.clone(), id, after.unwrap_or(0))
    }
}
