//! `POST /hosts/:id/pause`, `/hosts/:id/drain` and `/hosts/:id/resume`: orders of an Island's owner (0123).

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    fabric::{Control, ControlReply},
    host::Order,
    ids::HostId,
    subjects::HostTopic,
};
use island_protocol_api::{Data, HostControl, admin::AdminAction, problem::Code};
use tokio::time::{Instant, timeout};

use crate::{
    Api, ApiError,
    http::{auth::Caller, segment::Segment},
};
use island_coordinator_storage::{
    audit::{self, Action, Subject},
    commit,
};

/// Time in which the Island must answer. It stores the order and waits for no job.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The same, and the time in which the connection must accept the request.
const SEND_TIMEOUT: Duration = Duration::from_secs(8);

/// Characters of an Island's message that are passed on.
const MAX_MESSAGE: usize = 300;

type Answer = Result<Json<Data<HostControl>>, ApiError>;

/// Hands the Island's jobs back and gives it none.
pub(crate) async fn pause(api: State<Arc<Api>>, caller: Caller, id: Segment) -> Answer {
    order(&api, caller, &id.0, Order::Pause).await
}

/// Gives the Island no new jobs.
pub(crate) async fn drain(api: State<Arc<Api>>, caller: Caller, id: Segment) -> Answer {
    order(&api, caller, &id.0, Order::Drain).await
}

/// Ends a remote order.
pub(crate) async fn resume(api: State<Arc<Api>>, caller: Caller, id: Segment) -> Answer {
    order(&api, caller, &id.0, Order::Resume).await
}

/// Sends an order to an Island of the caller's account, which stores it and answers what applies now. Only the audit log is written
/// here: an order that the Island did not store has no effect later, and giving one again is harmless.
async fn order(api: &Api, caller: Caller, id: &str, order: Order) -> Answer {
    let host_id = own(api, caller, id).await?;
    let sent_at = api.clock.for_receiver(api.fleet.time_of(host_id, Instant::now()));
    let message = Control { v: FABRIC_VERSION, order, sent_at };
    let request = api.link.request(HostTopic::Control.of(host_id), &message, ANSWER_TIMEOUT, None);
    let reply: ControlReply = match timeout(SEND_TIMEOUT, request).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => {
            tracing::info!(%host_id, error = %Chain(&error), "an Island did not answer an order");
            return Err(unreachable());
        }
        Err(_) => return Err(unreachable()),
    };
    if reply.accepted {
        record(api, caller, host_id, order).await?;
        tracing::info!(%host_id, account = %caller.account, order = order.as_str(), "an Island accepted an order");
        return Ok(Json(Data { data: HostControl { host_id, control: reply.control } }));
    }
    let message = reply.message.unwrap_or_else(|| "the Island refused the order".to_owned());
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let code = if reply.control.allowed { Code::OrderRefused } else { Code::RemoteControlDisabled };
    Err(ApiError::new(code, message))
}

/// Records an order that an Island accepted.
async fn record(api: &Api, caller: Caller, host_id: HostId, order: Order) -> Result<(), ApiError> {
    let kind = match order {
        Order::Pause => AdminAction::OrderPause,
        Order::Drain => AdminAction::OrderDrain,
        Order::Resume => AdminAction::OrderResume,
    };
    let subject = Subject::Host(host_id);
    let action = Action { subject, ..Action::on_account(caller.account, kind, caller.account, "") };
    let mut tx = api.store.begin().await?;
    audit::insert(&mut tx, &action, api.clock.now()).await?;
    commit(tx).await?;
    Ok(())
}

/// An Island of the caller's account. Those of others are answered as those that do not exist.
pub(super) async fn own(api: &Api, caller: Caller, id: &str) -> Result<HostId, ApiError> {
    let unknown = || ApiError::new(Code::HostNotFound, "there is no such Island of this account");
    let id: HostId = id.parse().map_err(|_| unknown())?;
    let found = api.execution.account_and_key(id).await?;
    found.filter(|(account, _)| *account == caller.account).map(|_| id).ok_or_else(unknown)
}

fn unreachable() -> ApiError {
    ApiError::new(
        Code::HostUnreachable,
        "the Island does not answer: it is offline, or its agent is too old for remote orders",
    )
}
