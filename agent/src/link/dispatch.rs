//! Handles the messages of coordinators to this Island.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, Message, SubscribeError, Subscriber};
use fail::fail_point;
use futures::{StreamExt, stream::SelectAll};
use island_daemon::{
    chain::Chain,
    traces::{self, Kind},
};
use island_protocol::{
    FABRIC_VERSION,
    fabric::{
        Assignment, AssignmentReply, Cancel, Control, ControlReply, Pong, Preload, Refusal, RefusalReason,
        SIGNATURE_HEADER, SIGNATURE_WINDOW_MS,
    },
    ids::{HostId, InstanceId},
    job::Failure,
    subjects::{HostTopic, parse_host},
    time::Timestamp,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::credentials::Credentials;
use crate::{
    clock,
    fabric::{Fabric, FabricError},
    governor::{Governor, RemoteRefusal},
    identity,
    supervisor::Supervisor,
};

/// Time in which the connection must accept an answer. The coordinator does not wait longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages on this Island's subjects.
#[derive(Debug)]
pub struct Messages(SelectAll<Subscriber>);

impl Messages {
    /// Returns the next message; `None` once the connection is closed.
    pub async fn recv(&mut self) -> Option<Message> {
        self.0.next().await
    }
}

/// Subscribes to all subjects of `host`.
pub async fn subscribe(client: &Client, host: HostId) -> Result<Messages, SubscribeError> {
    let mut all = SelectAll::new();
    for topic in HostTopic::TO_HOST {
        all.push(client.subscribe(topic.of(host)).await?);
    }
    Ok(Messages(all))
}

/// Dispatches messages.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch<'a> {
    /// Sends the answers.
    pub fabric: &'a Fabric,
    /// Stores orders of the owner's account.
    pub governor: &'a Governor,
    /// Accepts and cancels attempts.
    pub supervisor: &'a Arc<Supervisor>,
    /// Contains the coordinators' public key.
    pub credentials: &'a Credentials,
    /// This run of the agent.
    pub instance: InstanceId,
}

impl Dispatch<'_> {
    /// Handles one message. Never waits for a job.
    pub async fn take(&self, message: Message) {
        let Some((_, topic)) = parse_host(&message.subject) else { return };
        match topic {
            HostTopic::Jobs => self.assign(message).await,
            HostTopic::Cancel => self.cancel(&message),
            HostTopic::Preload => self.preload(&message),
            HostTopic::Ping => self.pong(message).await,
            HostTopic::Control => self.control(message).await,
            HostTopic::Heartbeat | HostTopic::Status | HostTopic::Output => {}
        }
    }

    async fn assign(&self, message: Message) {
        // The header is not signed, and has no effect but records. What is not a place in a trace is ignored.
        let header = message.headers.as_ref().and_then(|headers| headers.get(traces::HEADER));
        let parent = header.and_then(|header| header.as_str().parse().ok());
        let mut trace = self.supervisor.traces().follow("admit", Kind::Server, parent);
        let answer = match self.verified(&message) {
            // It is meant for another agent, on a machine with a copy of this identity.
            Ok(assignment) if assignment.instance.is_some_and(|meant| meant != self.instance) => return,
            Ok(assignment) => {
                fail_point!("assign.verified", island_daemon::failpoint::crash);
                self.supervisor.assign(assignment, trace.context())
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = &answer {
            tracing::info!(reason = ?refusal.reason, message = refusal.message, "refused an assignment");
            trace.fail(format!("{:?}", refusal.reason));
        }
        fail_point!("assign.decided", island_daemon::failpoint::crash);
        let reply = AssignmentReply { v: FABRIC_VERSION, accepted: answer.is_ok(), refusal: answer.err() };
        drop(trace);
        self.answer(message, &reply).await;
        fail_point!("assign.answered", island_daemon::failpoint::crash);
    }

    /// Returns the assignment in a message; an error if no coordinator has just signed it for this Island.
    fn verified(&self, message: &Message) -> Result<Assignment, Refusal> {
        let invalid = |why: &str| Refusal { reason: RefusalReason::Invalid, message: why.to_owned() };
        is_signed(&self.credentials.current().coordinator_key, message).map_err(invalid)?;
        let assignment: Assignment = parse(message).ok_or_else(|| invalid("malformed"))?;
        match age_refusal(clock::age_ms(assignment.sent_at)) {
            Some(refusal) => Err(refusal),
            None => Ok(assignment),
        }
    }

    fn cancel(&self, message: &Message) {
        if let Err(reason) = is_signed(&self.credentials.current().coordinator_key, message) {
            return tracing::warn!(reason, "a cancellation is not followed");
        }
        if let Some(cancel) = parse::<Cancel>(message) {
            let failure = Failure::interrupted(cancel.code, "the job was stopped");
            self.supervisor.cancel(cancel.key, failure);
        }
    }

    fn preload(&self, message: &Message) {
        match read_hint(&self.credentials.current().coordinator_key, message, clock::age_ms) {
            Ok(hint) => self.supervisor.preload(hint),
            Err(reason) => tracing::warn!(reason, "a hint to preload is not followed"),
        }
    }

    async fn control(&self, message: Message) {
        let refusal = self.order(&message).err();
        if let Some(refusal) = &refusal {
            tracing::warn!(error = %Chain(refusal), "a remote order was refused");
        }
        let reply = ControlReply {
            v: FABRIC_VERSION,
            accepted: refusal.is_none(),
            control: self.governor.control(),
            message: refusal.map(|refusal| refusal.to_string()),
        };
        self.answer(message, &reply).await;
    }

    /// Stores the order in a message.
    fn order(&self, message: &Message) -> Result<(), RemoteRefusal> {
        let control = read_order(&self.credentials.current().coordinator_key, message, clock::age_ms)?;
        self.governor.set_remote(control.order, control.sent_at)
    }

    async fn pong(&self, message: Message) {
        let (host_id, instance) = (self.fabric.host_id(), self.fabric.instance());
        self.answer(message, &Pong { v: FABRIC_VERSION, host_id, instance }).await;
    }

    async fn answer(&self, message: Message, answer: &impl serde::Serialize) {
        let Some(reply) = message.reply else { return };
        let sent = timeout(ANSWER_TIMEOUT, self.fabric.answer(reply, answer)).await;
        if let Err(error) = sent.unwrap_or(Err(FabricError::TimedOut)) {
            tracing::warn!(error = %Chain(&error), subject = %message.subject, "the answer was not sent");
        }
    }
}

/// Whether a coordinator has signed a message for its subject, which names this Island.
fn is_signed(key: &str, message: &Message) -> Result<(), &'static str> {
    let headers = message.headers.as_ref();
    let signature = headers.and_then(|headers| headers.get(SIGNATURE_HEADER)).ok_or("unsigned")?;
    if identity::verifies(key, &message.subject, &message.payload, signature.as_str()) {
        Ok(())
    } else {
        Err("not signed by the coordinator")
    }
}

/// Why a message outside the time of its signature is refused.
const WRONG_CLOCK: &str = "signed too long ago, or in the future: one of the two clocks is wrong";

/// Why an assignment of this age is refused. A clock that is wrong is set right sooner or later, so the Island may be asked again soon.
fn age_refusal(age_ms: i64) -> Option<Refusal> {
    let is_outside = age_ms.abs() > SIGNATURE_WINDOW_MS;
    is_outside.then(|| Refusal { reason: RefusalReason::Other, message: WRONG_CLOCK.to_owned() })
}

/// Reads an order that a coordinator has just signed for this Island; `age_ms` returns the age of a time. The signature covers the subject,
/// which names the Island.
fn read_order(
    key: &str,
    message: &Message,
    age_ms: impl Fn(Timestamp) -> i64,
) -> Result<Control, RemoteRefusal> {
    is_signed(key, message).map_err(RemoteRefusal::Invalid)?;
    let control: Control = parse(message).ok_or(RemoteRefusal::Invalid("malformed"))?;
    if age_ms(control.sent_at).abs() > SIGNATURE_WINDOW_MS {
        return Err(RemoteRefusal::Invalid(WRONG_CLOCK));
    }
    Ok(control)
}

/// Reads a hint to preload that a coordinator has just signed for this Island.
fn read_hint(
    key: &str,
    message: &Message,
    age_ms: impl Fn(Timestamp) -> i64,
) -> Result<Preload, &'static str> {
    is_signed(key, message)?;
    let hint: Preload = parse(message).ok_or("malformed")?;
    match hint.sent_at.map(age_ms) {
        Some(age_ms) if age_ms.abs() <= SIGNATURE_WINDOW_MS => Ok(hint),
        Some(_) => Err(WRONG_CLOCK),
        None => Err("it does not contain the time of its signature"),
    }
}

fn parse<T: DeserializeOwned>(message: &Message) -> Option<T> {
    let parsed = serde_json::from_slice(&message.payload);
    parsed.inspect_err(|error| tracing::warn!(%error, subject = %message.subject, "malformed message")).ok()
}

#[cfg(test)]
mod tests {
    use async_nats::HeaderMap;
    use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
    use island_protocol::{fabric::signed_bytes, host::Order};
    use nkeys::KeyPair;

    use super::*;

    /// An order that `key` signed for `signed_for`, as it arrives on `subject`.
    fn order(key: &KeyPair, signed_for: HostId, subject: HostId, sent_at: Timestamp) -> Message {
        let order = Control { v: FABRIC_VERSION, order: Order::Pause, sent_at };
        signed(key, &HostTopic::Control.of(signed_for), HostTopic::Control.of(subject), &order)
    }

    /// A message that `key` signed for the subject `signed_for`, as it arrives on `subject`.
    fn signed(key: &KeyPair, signed_for: &str, subject: String, content: &impl serde::Serialize) -> Message {
        let payload = serde_json::to_vec(content).expect("JSON");
        let bytes = signed_bytes(signed_for, &payload);
        let mut headers = HeaderMap::new();
        headers.insert(SIGNATURE_HEADER, BASE64.encode(key.sign(&bytes).expect("a signature")));
        let length = payload.len();
        Message {
            subject: subject.into(),
            reply: None,
            payload: payload.into(),
            headers: Some(headers),
            status: None,
            description: None,
            length,
        }
    }

    #[test]
    fn an_order_must_be_signed_for_this_island_by_a_coordinator_just_now() {
        let (coordinator, forger) = (KeyPair::new_user(), KeyPair::new_user());
        let [this, other] = [1, 2].map(|id| HostId(uuid::Uuid::from_u128(id)));
        let now = Timestamp::from_unix_ms(1_000_000_000);
        let age_ms = |at: Timestamp| now.unix_ms() - at.unix_ms();
        let read = |message: Message| read_order(&coordinator.public_key(), &message, age_ms);
        let good = read(order(&coordinator, this, this, now)).expect("an order");
        assert_eq!((good.order, good.sent_at), (Order::Pause, now));
        let mut unsigned = order(&coordinator, this, this, now);
        unsigned.headers = None;
        let bad = [
            unsigned,
            order(&forger, this, this, now),
            order(&coordinator, other, this, now),
            order(&coordinator, this, this, now.plus_ms(-SIGNATURE_WINDOW_MS - 1)),
            order(&coordinator, this, this, now.plus_ms(SIGNATURE_WINDOW_MS + 1)),
        ];
        for (number, message) in bad.into_iter().enumerate() {
            let read = read(message);
            assert!(matches!(read, Err(RemoteRefusal::Invalid(_))), "{number}: {read:?}");
        }
    }

    #[test]
    fn a_hint_must_be_signed_for_this_island_by_a_coordinator_just_now() {
        let (coordinator, forger) = (KeyPair::new_user(), KeyPair::new_user());
        let now = Timestamp::from_unix_ms(1_000_000_000);
        let age_ms = |at: Timestamp| now.unix_ms() - at.unix_ms();
        let subject = || HostTopic::Preload.of(HostId(uuid::Uuid::from_u128(1)));
        let read = |key: &KeyPair, sent_at: Option<Timestamp>| {
            let workload_slug = "a".parse().expect("a slug");
            let hint = Preload { v: FABRIC_VERSION, workload_slug, artifacts: Vec::new(), sent_at };
            let message = signed(key, &subject(), subject(), &hint);
            read_hint(&coordinator.public_key(), &message, age_ms)
        };
        assert!(read(&coordinator, Some(now)).is_ok());
        assert!(read(&coordinator, Some(now.plus_ms(-SIGNATURE_WINDOW_MS))).is_ok());
        assert!(read(&forger, Some(now)).is_err());
        assert_eq!(read(&coordinator, Some(now.plus_ms(-SIGNATURE_WINDOW_MS - 1))), Err(WRONG_CLOCK));
        assert!(read(&coordinator, None).is_err(), "it may be of any age");
    }

    #[test]
    fn a_wrong_clock_refuses_for_a_short_time_only() {
        for age_ms in [-3_600_000, -SIGNATURE_WINDOW_MS - 1, SIGNATURE_WINDOW_MS + 1, 3_600_000] {
            // Coordinators wait ten minutes after `Invalid`.
            assert!(age_refusal(age_ms).is_some_and(|refusal| refusal.reason == RefusalReason::Other));
        }
        assert!(age_refusal(-SIGNATURE_WINDOW_MS).is_none() && age_refusal(SIGNATURE_WINDOW_MS).is_none());
    }
}
