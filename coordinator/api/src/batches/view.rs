//! Batches as clients see them.

use island_protocol::time::Timestamp;
use island_protocol_api::batch::{Batch, BatchErrors, BatchStatus};

use crate::openai::files;
use island_coordinator_domain::batch::format_id;
use island_coordinator_storage::batch::StoredBatch;

/// A batch as clients see it. Files of results are named once the batch has ended, as they are complete then.
pub(super) fn view(batch: StoredBatch) -> Batch {
    let seconds = |time: Timestamp| time.unix_ms().div_euclid(1000);
    let ended_as = |status| batch.ended_at.filter(|_| batch.status == status).map(seconds);
    let is_final = batch.status.is_final();
    Batch {
        id: format_id(batch.id),
        object: "batch".to_owned(),
        endpoint: batch.endpoint,
        input_file_id: files::id_of(batch.input),
        output_file_id: batch.output.filter(|_| is_final).map(files::id_of),
        error_file_id: batch.failures.filter(|_| is_final).map(files::id_of),
        created_at: seconds(batch.created_at),
        in_progress_at: batch.in_progress_at.map(seconds),
        expires_at: Some(seconds(batch.expires_at)),
        finalizing_at: batch.finalizing_at.map(seconds),
        completed_at: ended_as(BatchStatus::Completed),
        failed_at: ended_as(BatchStatus::Failed),
        expired_at: ended_as(BatchStatus::Expired),
        cancelling_at: batch.cancelling_at.map(seconds),
        cancelled_at: ended_as(BatchStatus::Cancelled),
        errors: batch.errors.map(|data| BatchErrors { object: "list".to_owned(), data }),
        completion_window: batch.window,
        status: batch.status,
        request_counts: batch.counts,
        metadata: batch.metadata,
        max_credits: batch.max_credits,
        credits: batch.spent,
    }
}
