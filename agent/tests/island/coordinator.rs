//! A minimal coordinator: it enrolls, confirms leases and records what Islands send.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    mem::replace,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::{Client, HeaderMap, Message};
use axum::{
    Json, Router,
    body::Body,
    extract::{Query, State},
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use futures::StreamExt;
use island_protocol::{
    FABRIC_VERSION,
    event::{AttemptEvent, Numbered},
    fabric::{
        Assignment, AssignmentReply, Cancel, Heartbeat, Lease, LeaseRenewal, LeaseReply, Output, OutputReply,
        Preload, Register, Registered, SIGNATURE_HEADER, Status, signed_bytes,
    },
    ids::{AttemptKey, HostId, NoticeId},
    job::FailureCode,
    subjects::{self, HostTopic},
    time::Timestamp,
    version::Versions,
};
use island_protocol_api::{
    Data, HostCredentials,
    network::{NetworkNotices, Notice},
    recommendation::{Recommendation, Recommendations},
};
use nkeys::KeyPair;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::watch, task::JoinSet};
use uuid::Uuid;

/// Maximum time to wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// What Islands sent, and how to answer.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) registers: Vec<Register>,
    pub(crate) heartbeats: Vec<Heartbeat>,
    pub(crate) statuses: Vec<Status>,
    pub(crate) renewals: usize,
    /// Events per attempt, in order, each once.
    pub(crate) events: BTreeMap<AttemptKey, Vec<Numbered<AttemptEvent>>>,
    /// Number of output messages, including repeated ones.
    pub(crate) outputs: usize,
    /// Number of output messages with the end of an attempt, including repeated ones.
    pub(crate) ends: usize,
    /// Attempts whose lease is denied.
    pub(crate) denied: BTreeSet<AttemptKey>,
    /// Whether lease renewals stay unanswered.
    pub(crate) is_silent: bool,
    /// Whether each lease renewal is answered only when the next one has arrived.
    pub(crate) is_late: bool,
    /// Whether requests for credentials stay unanswered.
    pub(crate) is_mute: bool,
    /// Versions that the coordinator states; with `None` its answer has its message version alone.
    pub(crate) versions: Option<Versions>,
    /// Why registrations are refused, if so.
    pub(crate) refused: Option<String>,
    /// Why heartbeats cannot be read, if so.
    pub(crate) unread_heartbeat: Option<String>,
    /// The number of further output messages that are lost.
    pub(crate) lose_outputs: usize,
    /// What is recommended.
    pub(crate) recommended: Vec<Recommendation>,
    /// Number of requests for recommendations.
    pub(crate) asked: usize,
    /// Files that are served, and how often each was downloaded.
    pub(crate) files: BTreeMap<String, (Vec<u8>, usize)>,
    /// Whether files are served a byte at a time, and so in effect without end.
    pub(crate) is_slow: bool,
    /// Number of files that are being served slowly.
    pub(crate) sending: usize,
    /// Address of the fabric in further credentials, if it is not this coordinator's own.
    pub(crate) nats_url: Option<String>,
}

impl Received {
    fn take(&mut self, output: Output) -> Option<OutputReply> {
        if self.lose_outputs > 0 {
            self.lose_outputs -= 1;
            return None;
        }
        self.outputs += 1;
        let events = self.events.entry(output.key).or_default();
        let mut ended = false;
        for event in output.events {
            let next = events.last().map_or(1, |last| last.n + 1);
            if event.n > next {
                let replay_from = Some(next);
                return Some(OutputReply { v: FABRIC_VERSION, committed: false, replay_from, earned: None });
            }
            ended |= matches!(event.event, AttemptEvent::Ended { .. });
            if event.n == next {
                events.push(event);
            }
        }
        self.ends += usize::from(ended);
        ended.then_some(OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None })
    }

    fn lease(&self, renewal: &LeaseRenewal) -> Vec<Lease> {
        let lease = |job: &island_protocol::fabric::LeasedJob| {
            let next =
                self.events.get(&job.key).and_then(|events| events.last()).map_or(1, |last| last.n + 1);
            let missing = next <= job.last_event;
            Lease {
                key: job.key,
                held: !self.denied.contains(&job.key),
                replay_from: missing.then_some(next),
            }
        };
        renewal.jobs.iter().map(lease).collect()
    }
}

/// The coordinator.
pub(crate) struct Coordinator {
    pub(crate) url: String,
    key: Arc<KeyPair>,
    fabric: Client,
    seen: Arc<Mutex<Received>>,
    changed: watch::Sender<u64>,
    given: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Coordinator {
    /// A coordinator on the fabric at `nats_url`, with leases of `lease_ms` and credentials of
    /// `credentials_ms`.
    pub(crate) async fn start(nats_url: &str, lease_ms: u64, credentials_ms: i64) -> Self {
        let key = Arc::new(KeyPair::new_account());
        let fabric = async_nats::ConnectOptions::new().connect(nats_url).await.expect("connect");
        let seen: Arc<Mutex<Received>> = Arc::default();
        let changed = watch::Sender::new(0);
        let mut tasks = JoinSet::new();

        let all = ["coordinator.hosts.*", "host.*.heartbeat", "host.*.status", "host.*.output"];
        for subject in all {
            let mut messages = fabric.subscribe(subject).await.expect("subscribe");
            let (fabric, seen, changed) = (fabric.clone(), Arc::clone(&seen), changed.clone());
            tasks.spawn(async move {
                let mut late = None;
                while let Some(message) = messages.next().await {
                    let answer = answer(&seen, &message, lease_ms);
                    changed.send_modify(|number| *number += 1);
                    let is_late = seen.lock().expect("no panic under this lock").is_late;
                    let due = message.reply.zip(answer);
                    let due = if is_late && message.subject.as_str() == subjects::LEASE {
                        replace(&mut late, due)
                    } else {
                        due
                    };
                    if let Some((reply, answer)) = due {
                        fabric.publish(reply, answer.into()).await.expect("answer");
                    }
                }
            });
        }
        fabric.flush().await.expect("flush");

        let credentials = HostCredentials {
            nats_url: nats_url.to_owned(),
            user_jwt: "not.checked.here".into(),
            expires_at: now(),
            coordinator_key: key.public_key(),
            account_id: None,
        };
        let given = Arc::new(AtomicUsize::new(0));
        let (counter, state) = (Arc::clone(&given), Arc::clone(&seen));
        let give = move || async move {
            let is_mute = state.lock().expect("no panic under this lock").is_mute;
            if is_mute {
                std::future::pending::<()>().await;
            }
            counter.fetch_add(1, Ordering::Relaxed);
            let expires_at = now().plus_ms(credentials_ms);
            let elsewhere = state.lock().expect("no panic under this lock").nats_url.clone();
            let nats_url = elsewhere.unwrap_or_else(|| credentials.nats_url.clone());
            Json(Data { data: HostCredentials { expires_at, nats_url, ..credentials } })
        };
        let router = Router::new()
            .route("/api/v1/island/enroll", post(give.clone()))
            .route("/api/v1/island/credentials", post(give))
            .route("/api/v1/island/recommendations", get(recommendations))
            .route("/api/v1/network/notices", get(async || Json(Data { data: notices() })))
            .route("/api/v1/island/leave", post(async || Json(Data { data: () })))
            .route("/files/{name}", get(file))
            .with_state((Arc::clone(&seen), changed.clone()));
        let listener =
            tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("bind");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        tasks.spawn(async move { axum::serve(listener, router).await.expect("serve") });
        Self { url, key, fabric, seen, changed, given, _tasks: tasks }
    }

    /// How often credentials were issued.
    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }

    /// What was received so far.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Received> {
        self.seen.lock().expect("no panic under this lock")
    }

    /// Waits until `look` returns a value.
    pub(crate) async fn wait<T>(&self, what: &str, look: impl Fn(&Received) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                changed.mark_unchanged();
                if let Some(found) = look(&self.seen()) {
                    return found;
                }
                changed.changed().await.expect("the coordinator lives");
            }
        });
        found.await.unwrap_or_else(|_| panic!("waited in vain for {what}: {:#?}", self.seen()))
    }

    /// Waits for the end of an attempt and returns all its events.
    pub(crate) async fn end(&self, key: AttemptKey) -> Vec<Numbered<AttemptEvent>> {
        self.wait(&format!("the end of {key}"), |seen| {
            let events = seen.events.get(&key)?;
            matches!(events.last()?.event, AttemptEvent::Ended { .. }).then(|| events.clone())
        })
        .await
    }

    /// Waits until an attempt has delivered `count` tokens.
    pub(crate) async fn tokens(&self, key: AttemptKey, count: usize) {
        let is_token = |event: &&Numbered<AttemptEvent>| matches!(event.event, AttemptEvent::Token { .. });
        self.wait("tokens", |seen| {
            (seen.events.get(&key)?.iter().filter(is_token).count() >= count).then_some(())
        })
        .await;
    }

    /// Sends a signed assignment.
    pub(crate) async fn assign(&self, host: HostId, assignment: &Assignment) -> AssignmentReply {
        self.assign_signed(host, assignment, &self.key).await
    }

    /// Sends an assignment signed by the given key, again until there is an answer: an agent may not have subscribed yet, and a repeated
    /// one is the same assignment.
    pub(crate) async fn assign_signed(
        &self,
        host: HostId,
        assignment: &Assignment,
        key: &KeyPair,
    ) -> AssignmentReply {
        let reply = async {
            loop {
                if let Some(reply) = self.request(host, assignment, key).await {
                    return reply;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reply).await.expect("an answer")
    }

    /// Sends a signed assignment to an Island that may not answer.
    pub(crate) async fn try_assign(&self, host: HostId, assignment: &Assignment) -> Option<AssignmentReply> {
        self.request(host, assignment, &self.key).await
    }

    async fn request(&self, host: HostId, assignment: &Assignment, key: &KeyPair) -> Option<AssignmentReply> {
        let subject = HostTopic::Jobs.of(host);
        let payload = serde_json::to_vec(assignment).expect("encode");
        let signature = key.sign(&signed_bytes(&subject, &payload)).expect("sign");
        let mut headers = HeaderMap::new();
        headers.insert(SIGNATURE_HEADER, BASE64.encode(signature).as_str());
        let answer = self.fabric.request_with_headers(subject, headers, payload.into()).await;
        answer.ok().map(|answer| parse(&answer))
    }

    /// Its key.
    pub(crate) fn key(&self) -> Arc<KeyPair> {
        Arc::clone(&self.key)
    }

    /// Sends a hint to preload, signed by the given key.
    pub(crate) async fn preload(&self, host: HostId, hint: &Preload, key: Option<&KeyPair>) {
        self.publish(HostTopic::Preload.of(host), hint, key).await;
    }

    /// Publishes a message, signed by the given key.
    async fn publish(&self, subject: String, message: &impl Serialize, key: Option<&KeyPair>) {
        let payload = serde_json::to_vec(message).expect("encode");
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let signature = key.sign(&signed_bytes(&subject, &payload)).expect("sign");
            headers.insert(SIGNATURE_HEADER, BASE64.encode(signature).as_str());
        }
        self.fabric.publish_with_headers(subject, headers, payload.into()).await.expect("publish");
        self.fabric.flush().await.expect("flush");
    }

    /// Cancels an attempt.
    pub(crate) async fn cancel(&self, host: HostId, key: AttemptKey) {
        self.cancel_signed(host, key, FailureCode::CancelledByUser, Some(&self.key)).await;
    }

    /// Cancels an attempt for this reason, signed by the given key.
    pub(crate) async fn cancel_signed(
        &self,
        host: HostId,
        key: AttemptKey,
        code: FailureCode,
        signer: Option<&KeyPair>,
    ) {
        let cancel = Cancel { v: FABRIC_VERSION, key, code };
        self.publish(HostTopic::Cancel.of(host), &cancel, signer).await;
    }
}

type Shared = (Arc<Mutex<Received>>, watch::Sender<u64>);

async fn recommendations(
    State((seen, changed)): State<Shared>,
    Query(query): Query<BTreeMap<String, HostId>>,
) -> Json<Recommendations> {
    let mut seen = seen.lock().expect("no panic under this lock");
    seen.asked += 1;
    changed.send_modify(|number| *number += 1);
    Json(Recommendations { host_id: query["host_id"], recommendations: seen.recommended.clone() })
}

/// What its operators announce.
fn notices() -> NetworkNotices {
    let text = "update on\u{1b}[2J Sunday".to_owned();
    let notice = Notice { id: NoticeId(Uuid::nil()), text, created_at: now(), until: None };
    NetworkNotices { maintenance: None, notices: vec![notice] }
}

async fn file(
    State((all, changed)): State<Shared>,
    axum::extract::Path(name): axum::extract::Path<String>,
) -> Body {
    let mut seen = all.lock().expect("no panic under this lock");
    let (bytes, times) = seen.files.get_mut(&name).expect("a file that is here");
    *times += 1;
    let body = Body::from(bytes.clone());
    let is_slow = seen.is_slow;
    drop(seen);
    changed.send_modify(|number| *number += 1);
    if is_slow { slow(Sending::new((all, changed))) } else { body }
}

/// Bytes, until the other side closes the connection.
fn slow(sending: Sending) -> Body {
    let next = |sending| async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Some((Ok::<_, Infallible>("x"), sending))
    };
    Body::from_stream(futures::stream::unfold(sending, next))
}

/// A file that is being served, counted while this exists.
struct Sending(Shared);

impl Sending {
    fn new(shared: Shared) -> Self {
        let sending = Self(shared);
        sending.count(|number| number + 1);
        sending
    }

    fn count(&self, next: impl Fn(usize) -> usize) {
        let (seen, changed) = &self.0;
        let mut seen = seen.lock().expect("no panic under this lock");
        seen.sending = next(seen.sending);
        drop(seen);
        changed.send_modify(|number| *number += 1);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.count(|number| number - 1);
    }
}

fn answer(seen: &Mutex<Received>, message: &Message, lease_ms: u64) -> Option<Vec<u8>> {
    let mut seen = seen.lock().expect("no panic under this lock");
    match message.subject.as_str() {
        subjects::REGISTER => {
            seen.registers.push(parse(message));
            let answer = Registered {
                v: FABRIC_VERSION,
                versions: seen.versions,
                heartbeat_ms: 500,
                lease_ms,
                drop: Vec::new(),
                duplicate: false,
                refused: seen.refused.clone(),
                unread_heartbeat: seen.unread_heartbeat.clone(),
            };
            Some(encode(&answer))
        }
        subjects::LEASE => {
            let renewal: LeaseRenewal = parse(message);
            seen.renewals += 1;
            let reply = LeaseReply { v: FABRIC_VERSION, leases: seen.lease(&renewal) };
            (!seen.is_silent).then(|| encode(&reply))
        }
        subject => {
            match subjects::parse_host(subject)?.1 {
                HostTopic::Heartbeat => seen.heartbeats.push(parse(message)),
                HostTopic::Status => seen.statuses.push(parse(message)),
                HostTopic::Output => return seen.take(parse(message)).map(|reply| encode(&reply)),
                _ => {}
            }
            None
        }
    }
}

fn parse<T: DeserializeOwned>(message: &Message) -> T {
    serde_json::from_slice(&message.payload).expect("a message of this version")
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("encode")
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_unix_ms(since.as_millis() as i64)
}
