//! Jobs.

use island_protocol::job::JobStatus;
use island_protocol_api::{
    CancelledJob, Data, DeletedJobData, JobOutput, JobSummary, JobView, Page, SubmitJob, SubmittedJob,
    key::Scope, problem::Code,
};
use serde_json::{Value, json};

use super::{Routes, slug, time, uuid};
use crate::{
    native::jobs::{cancel, delete_data, get, list, stream, submit},
    openapi::operation::Operation,
};

const EVENTS: &str = "id: 1\nevent: status\ndata: {\"type\":\"status\",\"state\":\"submitted\"}\n\n\
     id: 2\nevent: token\ndata: {\"type\":\"token\",\"content\":\"Hello\"}\n\n\
     id: 3\nevent: done\ndata: {\"type\":\"done\",\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"total_tokens\":3}}\n\n";

const STREAM: &str = "Each event has an `id`, counted from 1 without gaps, the event's name, and JSON data. The last one \
     is `done` or `error`. After a lost connection, send `Last-Event-ID` to get the events after it; an ended job is replayed from there to its end.";

fn states() -> Value {
    let names: Vec<&str> = JobStatus::ALL.iter().map(|status| status.as_str()).collect();
    json!({"type": "string", "enum": names})
}

pub(super) fn add(routes: Routes) -> Routes {
    let one = |id, summary, scope| {
        let operation = Operation::keyed("Jobs", id, summary, scope);
        operation.segment("id", "The job.", &uuid()).fails(&[Code::JobNotFound])
    };
    let after = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    routes
        .get(
            "/jobs",
            list::list,
            Operation::keyed("Jobs", "listJobs", "List your jobs, newest first", Scope::Read)
                .paged()
                .about("`total` of a list with a filter counts 10,000 jobs at most. With `status`, states are those that are stored, which follow within a second.")
                .query("after", false, "Last job of the page before: entries newer than it are left out.", &uuid())
                .query("status", false, "Only jobs in this state.", &states())
                .query("workload", false, "Only jobs of this Cargo.", &slug())
                .query("key", false, "Only jobs that were submitted with this key.", &uuid())
                .query("from", false, "Only jobs that were created at this time or later.", &time())
                .query("until", false, "Only jobs that were created before this time.", &time())
                .answers::<Page<JobSummary>>(200, "A page of jobs"),
        )
        .post(
            "/jobs",
            submit::submit,
            Operation::keyed("Jobs", "submitJob", "Submit a job", Scope::Write)
                .about("The price is held until the job ends: charged if it completes, released otherwise.")
                .idempotent()
                .preferring()
                .takes::<SubmitJob>(None)
                .of_catalogue()
                .fails(&[
                    Code::WorkloadNotFound,
                    Code::InvalidInput,
                    Code::InsufficientCredits,
                    Code::ConcurrentJobsExceeded,
Code::QuotaExceeded,
Code::Maintenance,
Code::WorkloadDisabled,
                ])
                .answers::<Data<SubmittedJob>>(201, "The job, stored, with its price held"),
        )
        .get(
            "/jobs/{id}",
            get::get,
            one("getJob", "One job", Scope::Read).answers::<Data<JobView>>(200, "The job"),
        )
        .delete(
            "/jobs/{id}",
            cancel::cancel,
            one("cancelJob", "Cancel a job", Scope::Write)
                .about(
                    "The delivered share of the requested tokens is charged. Repeating it is not an error.",
                )
                .fails(&[Code::JobAlreadyFinal])
                .answers::<Data<CancelledJob>>(200, "The job is cancelled"),
        )
        .get(
            "/jobs/{id}/stream",
            stream::stream,
            one("streamJob", "Follow a job", Scope::Read)
                .about(STREAM)
                .header("Last-Event-ID", "Number of the last event received.", &after)
                .query("last_event_id", false, "The same, for clients that cannot set headers.", &after)
                .fails(&[Code::ConcurrentStreamsExceeded, Code::NotFound])
                .streams("Server-Sent Events", EVENTS),
        )
        .get(
            "/jobs/{id}/output",
            get::output,
            one("getJobOutput", "The output of a completed job alone", Scope::Read)
                .fails(&[Code::NotFound])
                .answers::<Data<JobOutput>>(200, "The output"),
        )
        .delete(
            "/jobs/{id}/data",
            delete_data::delete_data,
            one("deleteJobData", "Delete the data of an ended job", Scope::Write)
                .about("Deletes its input, output and events. The job stays in your list, and its entries in the ledger. Repeating it is not an error.")
                .fails(&[Code::JobNotFinal])
                .answers::<Data<DeletedJobData>>(200, "The data is deleted"),
        )
}
