//! `POST /admin/jobs/:id/refund`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::{credits::MicroCredits, ids::JobId};
use island_protocol_api::{
    Data,
    admin::{AdminAction, RefundedJob},
    problem::Code,
};

use super::{check_open, reason};
use crate::{
    Api, ApiError,
    http::{auth::Operator, body, segment::Segment},
};
use island_coordinator_domain::ledger::{Kind, Posting};
use island_coordinator_storage::{
    audit::{self, Action, Subject},
    batch, commit, jobs, key,
    ledger::{self, Details},
    quota,
};

/// Returns what an ended job was charged, once. The owners who have earned it keep it.
pub(crate) async fn refund(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Segment(id): Segment,
    body: body::Json,
) -> Result<Json<Data<RefundedJob>>, ApiError> {
    let reason = reason(body)?;
    let unknown = || ApiError::new(Code::JobNotFound, "there is no such job");
    let id: JobId = id.parse().map_err(|_| unknown())?;
    let job = jobs::get(api.store.reader(), id).await?.ok_or_else(unknown)?;
    if !job.status.is_final() {
        return Err(ApiError::new(Code::JobNotFinal, "the job has not ended: cancel it first"));
    }
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([job.account]).await?;
    let (amount, is_refunded) = ledger::charged(&mut tx, job.account, id).await?;
    let refunds = !is_refunded && amount > MicroCredits::ZERO;
    if refunds {
        check_open(&mut tx, job.account).await?;
        let posting = Posting::refund(job.account, amount);
        ledger::post(&mut tx, &posting, &Details::of_job(id), now).await?;
        key::refund_job(&mut tx, id, amount).await?;
        if let Some(batch_id) = job.agreement.batch {
            batch::refund(&mut tx, batch_id, amount).await?;
        }
        quota::refund(&mut tx, job.account, id, amount, now).await?;
        let action = Action {
            subject: Subject::Job(id),
            amount: Some(amount),
            ..Action::on_account(operator.account, AdminAction::RefundJob, job.account, &reason)
        };
        audit::insert(&mut tx, &action, now).await?;
    }
    commit(tx).await?;
    if refunds {
        api.metrics.books.moved(Kind::Refund.as_str(), amount);
    }
    Ok(Json(Data { data: RefundedJob { id, account: job.account, amount } }))
}
