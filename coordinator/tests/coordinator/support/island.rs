//! A scripted Island: it uses the real protocol and acts as the test directs.

use std::{collections::HashSet, sync::Arc, time::Duration};

use async_nats::{Client, ConnectOptions, HeaderMap, Message, Request, Subscriber};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::StreamExt as _;
use island_coordinator_domain::clock::Clock;
use island_protocol::{FABRIC_VERSION, cargo::RuntimeType, event::{AttemptEvent, Numbered}, fabric::{Assignment, AssignmentReply, Cancel, Control, ControlReply, Heartbeat, LeaseRenewal, LeaseReply, LeasedJob, Output, OutputReply, Refusal, RefusalReason, Register, Registered, SIGNATURE_HEADER, signed_bytes}, host::{Capabilities, Headroom, RuntimeReport, SandboxReport, SystemLoad}, ids::{AttemptKey, HostId, InstanceId, Nonce}, job::{FinishReason, Outcome, Usage}, subjects::{self, HostTopic}, version::Versions};
use island_protocol_api::{HostCredentials, claim::{Claim, ClaimVerb}};
use nkeys::KeyPair;
use reqwest::StatusCode;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    network::{Account, Network},
    soon,
};

pub(crate) struct Island {
    pub(crate) id: HostId,
    pub(crate) key: Arc<KeyPair>,
    pub(crate) client: Client,
    pub(crate) credentials: HostCredentials,
    pub(crate) instance: InstanceId,
    jobs: Subscriber,
    cancels: Subscriber,
    pub(crate) slots: u32,
    engine: RuntimeType,
    /// What its engine reports that earlier versions could not; older agents report nothing.
    pub(crate) features: Vec<String>,
    /// Attempts that it has accepted.
    taken: HashSet<AttemptKey>,
}

/// An assignment and its reply subject.
pub(crate) struct Offer {
    pub(crate) assignment: Assignment,
    message: Message,
}

/// Enrolls an Island with this key and returns the answer.
pub(crate) async fn enroll(
    network: &Network,
    account: &Account,
    id: HostId,
    key: &KeyPair,
) -> (StatusCode, Value) {
    let mut body = signed(id, key, ClaimVerb::Enroll);
    body["public_key"] = key.public_key().into();
    body["name"] = "scripted".into();
    let request = network.http.post(format!("{}/island/enroll", network.url)).bearer_auth(&account.key);
    let response = request.json(&body).send().await.expect("answer");
    (response.status(), response.json().await.expect("json"))
}

/// The body of a request that this Island signs for `verb`, without an account.
pub(crate) fn signed(host_id: HostId, key: &KeyPair, verb: ClaimVerb) -> Value {
    let (nonce, sent_at) = (Nonce(Uuid::new_v4()), Clock::System.now());
    signed_claim(&Claim { verb, host_id, account_id: None, nonce, sent_at }, key)
}

/// The body of a request with this claim.
pub(crate) fn signed_claim(claim: &Claim, key: &KeyPair) -> Value {
    let signature = STANDARD.encode(key.sign(claim.to_string().as_bytes()).expect("sign"));
    let mut body = json!({
        "host_id": claim.host_id, "nonce": claim.nonce, "sent_at": claim.sent_at, "signature": signature,
    });
    if let Some(account) = claim.account_id {
        body["account_id"] = json!(account);
    }
    body
}

/// Connects as an Island does.
pub(crate) async fn connect(credentials: &HostCredentials, id: HostId, key: &Arc<KeyPair>) -> Client {
    let key = key.clone();
    let sign = move |nonce: Vec<u8>| {
        let key = key.clone();
        async move { key.sign(&nonce).map_err(async_nats::AuthError::new) }
    };
    ConnectOptions::with_jwt(credentials.user_jwt.clone(), sign)
        .custom_inbox_prefix(subjects::inbox_prefix(id))
        .reconnect_delay_callback(|_| Duration::from_millis(50))
        .connect(&credentials.nats_url)
        .await
        .expect("fabric")
}

impl Island {
    /// Enrolls, connects, registers and sends a heartbeat: ready for jobs.
    pub(crate) async fn start(network: &Network) -> Self {
        Self::start_with(network, RuntimeType::Llmcpp).await
    }

    /// The same with this engine.
    pub(crate) async fn start_with(network: &Network, engine: RuntimeType) -> Self {
        let island = Self::registered(network, engine).await;
        island.beat(&[]).await;
        island
    }

    /// Enrolls, connects and registers. It has not sent a heartbeat.
    pub(crate) async fn registered(network: &Network, engine: RuntimeType) -> Self {
        let (id, key) = (HostId(Uuid::new_v4()), Arc::new(KeyPair::new_user()));
        let (status, body) = enroll(network, &network.owner, id, &key).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let credentials: HostCredentials = serde_json::from_value(body["data"].clone()).expect("credentials");
        let client = connect(&credentials, id, &key).await;
        let jobs = client.subscribe(HostTopic::Jobs.of(id)).await.expect("subscribe");
        let cancels = client.subscribe(HostTopic::Cancel.of(id)).await.expect("subscribe");
        let instance = InstanceId(Uuid::new_v4());
        let (features, taken) = (Vec::new(), HashSet::new());
        let island = Self { id, key, client, credentials, instance, jobs, cancels, slots: 4, engine, features, taken };
        island.client.flush().await.expect("flush");
        island.register(&[]).await;
        island
    }

    /// A second agent with the same identity, as on a copied virtual machine. It has not registered.
    pub(crate) async fn copied(&self) -> Self {
        let client = connect(&self.credentials, self.id, &self.key).await;
        let jobs = client.subscribe(HostTopic::Jobs.of(self.id)).await.expect("subscribe");
        let cancels = client.subscribe(HostTopic::Cancel.of(self.id)).await.expect("subscribe");
        client.flush().await.expect("flush");
        let (id, key, credentials) = (self.id, self.key.clone(), self.credentials.clone());
        let (instance, engine) = (InstanceId(Uuid::new_v4()), self.engine.clone());
        let (features, taken) = (Vec::new(), HashSet::new());
        Self { id, key, client, credentials, instance, jobs, cancels, slots: 4, engine, features, taken }
    }

    /// Its run of the agent.
    pub(crate) fn instance(&self) -> InstanceId {
        self.instance
    }

    fn signed(&self, subject: &str, payload: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let signature = self.key.sign(&signed_bytes(subject, payload)).expect("sign");
        headers.insert(SIGNATURE_HEADER, STANDARD.encode(signature));
        headers
    }

    async fn request<A: DeserializeOwned>(&self, subject: &str, message: &impl Serialize) -> A {
        let payload = serde_json::to_vec(message).expect("json");
        let request = Request::new().headers(self.signed(subject, &payload)).payload(payload.into());
        let answer =
            soon("an answer", self.client.send_request(subject.to_owned(), request)).await.expect("answer");
        serde_json::from_slice(&answer.payload).expect("json")
    }

    pub(crate) async fn register(&self, holding: &[AttemptKey]) -> Registered {
        self.request(subjects::REGISTER, &self.registration("scripted", holding)).await
    }

    /// Registers with this name and does not wait for a reply.
    pub(crate) async fn register_as(&self, name: &str) {
        let payload = serde_json::to_vec(&self.registration(name, &[])).expect("json");
        let headers = self.signed(subjects::REGISTER, &payload);
        self.client.publish_with_headers(subjects::REGISTER, headers, payload.into()).await.expect("publish");
    }

    /// Registers with changed capabilities, then as it is and with these attempts. Returns the first reply.
    pub(crate) async fn register_changed(
        &self,
        change: fn(&mut Capabilities),
        holding: &[AttemptKey],
    ) -> Registered {
        let inbox = self.client.new_inbox();
        let mut replies = self.client.subscribe(inbox.clone()).await.expect("subscribe");
        let mut changed = self.registration("scripted", &[]);
        change(&mut changed.capabilities);
        for message in [changed, self.registration("scripted", holding)] {
            let payload = serde_json::to_vec(&message).expect("json");
            let (subject, reply) = (subjects::REGISTER, inbox.clone());
            let headers = self.signed(subject, &payload);
            let sent = self.client.publish_with_reply_and_headers(subject, reply, headers, payload.into());
            sent.await.expect("publish");
        }
        let first = soon("a reply", replies.next()).await.expect("subscription");
        serde_json::from_slice(&first.payload).expect("json")
    }

    /// Registers with messages of version `v`, and states these versions.
    pub(crate) async fn register_with(&self, v: u32, versions: Versions) -> Registered {
        let registration = Register { v, versions: Some(versions), ..self.registration("scripted", &[]) };
        self.request(subjects::REGISTER, &registration).await
    }

    /// Registers with a change as an agent that reads why it is refused.
    pub(crate) async fn register_or_refused(&self, change: impl FnOnce(&mut serde_json::Value)) -> Registered {
        let registration = Register { reads_refusals: true, ..self.registration("scripted", &[]) };
        let mut message = serde_json::to_value(&registration).expect("json");
        change(&mut message);
        self.request(subjects::REGISTER, &message).await
    }

    /// Sends a registration in the form of a later version, of which only the introduction is understood.
    pub(crate) async fn introduce(&self, versions: Versions) -> Registered {
        let message = serde_json::json!({
            "v": 9, "host_id": self.id, "instance": self.instance, "versions": versions,
            "sent_at": Clock::System.now(), "capabilities": "in another form",
        });
        self.request(subjects::REGISTER, &message).await
    }

    fn registration(&self, name: &str, holding: &[AttemptKey]) -> Register {
        let report = RuntimeReport {
            kind: self.engine.clone(),
            available: true,
            reason: None,
            version: None,
            simulated: false,
            backend: None,
            devices: None,
            gpus: None,
            features: self.features.clone(),
        };
        let capabilities = Capabilities {
            platform: "linux-x86_64".into(),
            cpu_model: "scripted".into(),
            cpu_cores: 4,
            ram_mb: 16_000,
            gpus: vec![],
            no_gpu_reason: Some("scripted".into()),
            runtimes: vec![report],
            sandbox: SandboxReport::default(),
            hub_reachable: Some(false),
            ..Capabilities::default()
        };
        Register {
            v: FABRIC_VERSION,
            host_id: self.id,
            instance: self.instance,
            name: name.into(),
            region: Some("test".into()),
            agent_version: "0".into(),
            capabilities,
            holding: holding.to_vec(),
            versions: None,
            reads_refusals: false,
            sent_at: Clock::System.now(),
        }
    }

    pub(crate) async fn beat(&self, jobs: &[AttemptKey]) {
        self.beat_in(FABRIC_VERSION, jobs).await;
    }

    /// Sends a heartbeat of version `v`.
    pub(crate) async fn beat_in(&self, v: u32, _jobs: &[AttemptKey]) {
        let message = Heartbeat {
            v,
            host_id: self.id,
            instance: self.instance,
            seq: 1,
            status: "online".into(),
            agent_version: "0".into(),
            system: SystemLoad::default(),
            gpus: vec![],
            jobs: vec![],
            models: vec![],
            control: None,
            refusals: Vec::new(),
            headroom: Headroom { job_slots: self.slots, ram_mb: 8_000, vram_mb: 0, gpus: None },
            timestamp: Clock::System.now(),
        };
        self.publish(HostTopic::Heartbeat, &message).await;
    }

    pub(crate) async fn publish(&self, topic: HostTopic, message: &impl Serialize) {
        let payload = serde_json::to_vec(message).expect("json");
        self.client.publish(topic.of(self.id), payload.into()).await.expect("publish");
        self.client.flush().await.expect("flush");
    }

    /// The next assignment.
    pub(crate) async fn offer(&mut self) -> Offer {
        let message = soon("an assignment", self.jobs.next()).await.expect("subscription");
        let assignment: Assignment = serde_json::from_slice(&message.payload).expect("assignment");
        self.verify(&message);
        Offer { assignment, message }
    }

    pub(crate) async fn accept(&self, offer: &Offer) {
        self.reply(offer, &AssignmentReply { v: FABRIC_VERSION, accepted: true, refusal: None }).await;
    }

    pub(crate) async fn refuse(&self, offer: &Offer) {
        self.refuse_for(offer, RefusalReason::NoSlot).await;
    }

    pub(crate) async fn refuse_for(&self, offer: &Offer, reason: RefusalReason) {
        let refusal = Refusal { reason, message: "scripted".into() };
        self.reply(offer, &AssignmentReply { v: FABRIC_VERSION, accepted: false, refusal: Some(refusal) })
            .await;
    }

    async fn reply(&self, offer: &Offer, reply: &AssignmentReply) {
        let to = offer.message.reply.clone().expect("a request");
        self.client.publish(to, serde_json::to_vec(reply).expect("json").into()).await.expect("publish");
        self.client.flush().await.expect("flush");
    }

    /// The next assignment, accepted.
    pub(crate) async fn take(&mut self) -> Assignment {
        loop {
            let offer = self.offer().await;
            self.accept(&offer).await;
            // A coordinator that does not know whether an attempt was offered offers it again.
            if self.taken.insert(offer.assignment.key) {
                return offer.assignment;
            }
        }
    }

    /// Receives remote orders from now on.
    pub(crate) async fn orders(&self) -> Subscriber {
        let orders = self.client.subscribe(HostTopic::Control.of(self.id)).await.expect("subscribe");
        // The server knows the subscription once it has passed on a later message of this connection; a flush only sends it.
        self.register(&[]).await;
        orders
    }

    /// The next remote order, answered with this.
    pub(crate) async fn take_order(&self, orders: &mut Subscriber, reply: &ControlReply) -> Control {
        let message = soon("an order", orders.next()).await.expect("subscription");
        self.verify(&message);
        let order = serde_json::from_slice(&message.payload).expect("an order");
        let to = message.reply.expect("a request");
        self.client.publish(to, serde_json::to_vec(reply).expect("json").into()).await.expect("publish");
        self.client.flush().await.expect("flush");
        order
    }

    /// Asserts that the coordinator has signed a message.
    fn verify(&self, message: &Message) {
        let header = message.headers.as_ref().and_then(|h| h.get(SIGNATURE_HEADER)).expect("signature");
        let signature = STANDARD.decode(header.as_str()).expect("base64");
        KeyPair::from_public_key(&self.credentials.coordinator_key)
            .expect("key")
            .verify(&signed_bytes(&message.subject, &message.payload), &signature)
            .expect("signed by the coordinator");
    }

    pub(crate) async fn cancelled(&mut self) -> Cancel {
        let message = soon("a cancellation", self.cancels.next()).await.expect("subscription");
        serde_json::from_slice(&message.payload).expect("cancel")
    }

    /// Sends events numbered from `first`.
    pub(crate) async fn send(&self, key: AttemptKey, first: u64, events: Vec<AttemptEvent>) {
        self.publish(HostTopic::Output, &output(key, first, events)).await;
    }

    /// Sends the end as a request.
    pub(crate) async fn end(&self, key: AttemptKey, n: u64, outcome: Outcome) -> OutputReply {
        self.request(&HostTopic::Output.of(self.id), &output(key, n, vec![AttemptEvent::Ended { outcome }]))
            .await
    }

    /// Sends the end as a request. Returns `None` if no reply arrives soon.
    pub(crate) async fn try_end(&self, key: AttemptKey, n: u64, outcome: Outcome) -> Option<OutputReply> {
        let subject = HostTopic::Output.of(self.id);
        let message = output(key, n, vec![AttemptEvent::Ended { outcome }]);
        let request = Request::new().payload(serde_json::to_vec(&message).expect("json").into());
        let request = request.timeout(Some(Duration::from_millis(500)));
        let answer = self.client.send_request(subject, request).await.ok()?;
        serde_json::from_slice(&answer.payload).ok()
    }

    /// Sends the end until a reply arrives, as a coordinator that starts may not execute the job yet.
    pub(crate) async fn end_until_answered(&self, key: AttemptKey, n: u64, outcome: Outcome) -> OutputReply {
        let answered = async {
            loop {
                if let Some(reply) = self.try_end(key, n, outcome.clone()).await {
                    return reply;
                }
            }
        };
        soon("an answer to the end", answered).await
    }

    /// Registers and renews the lease of this attempt, and does not insist on replies.
    pub(crate) async fn try_stay(&self, key: Option<AttemptKey>, last_event: u64) {
        let payload =
            serde_json::to_vec(&self.registration("scripted", &key.into_iter().collect::<Vec<_>>()));
        let payload = payload.expect("json");
        let headers = self.signed(subjects::REGISTER, &payload);
        let sent = self.client.publish_with_headers(subjects::REGISTER, headers, payload.into()).await;
        sent.expect("publish");
        self.beat(&[]).await;
        if let Some(key) = key {
            let renewed = self.try_renew(key, "run", last_event, last_event);
            let _ = tokio::time::timeout(Duration::from_millis(200), renewed).await;
        }
    }

    /// Renews until a reply arrives: the fabric or the coordinator's subscription may still be reconnecting.
    pub(crate) async fn renew_until_answered(
        &self,
        key: AttemptKey,
        phase: &str,
        work: u64,
        last_event: u64,
    ) -> LeaseReply {
        let renewed = async {
            loop {
                let attempt = self.try_renew(key, phase, work, last_event);
                if let Ok(Some(reply)) = tokio::time::timeout(Duration::from_millis(500), attempt).await {
                    return reply;
                }
            }
        };
        soon("an answer to a renewal", renewed).await
    }

    async fn try_renew(
        &self,
        key: AttemptKey,
        phase: &str,
        work: u64,
        last_event: u64,
    ) -> Option<LeaseReply> {
        let payload = serde_json::to_vec(&self.renewal(key, phase, work, last_event)).expect("json");
        let headers = self.signed(subjects::LEASE, &payload);
        let request = Request::new().headers(headers).payload(payload.into());
        let answer = self.client.send_request(subjects::LEASE, request).await.ok()?;
        serde_json::from_slice(&answer.payload).ok()
    }

    pub(crate) async fn renew(&self, key: AttemptKey, phase: &str, work: u64, last_event: u64) -> LeaseReply {
        self.request(subjects::LEASE, &self.renewal(key, phase, work, last_event)).await
    }

    /// Renews these leases and returns the replies as they arrive.
    pub(crate) async fn renew_all(&self, jobs: Vec<LeasedJob>) -> LeaseReplies {
        let inbox = self.client.new_inbox();
        let replies = self.client.subscribe(inbox.clone()).await.expect("subscribe");
        let payload = serde_json::to_vec(&self.renewal_of(jobs)).expect("json");
        let headers = self.signed(subjects::LEASE, &payload);
        let sent =
            self.client.publish_with_reply_and_headers(subjects::LEASE, inbox, headers, payload.into());
        sent.await.expect("publish");
        LeaseReplies(replies)
    }

    fn renewal(&self, key: AttemptKey, phase: &str, work: u64, last_event: u64) -> LeaseRenewal {
        self.renewal_of(vec![LeasedJob { key, phase: phase.into(), work, last_event }])
    }

    fn renewal_of(&self, jobs: Vec<LeasedJob>) -> LeaseRenewal {
        LeaseRenewal {
            v: FABRIC_VERSION,
            host_id: self.id,
            instance: self.instance,
            jobs,
            sent_at: Clock::System.now(),
        }
    }
}

/// Replies of coordinators to one renewal.
pub(crate) struct LeaseReplies(Subscriber);

impl LeaseReplies {
    pub(crate) async fn next(&mut self) -> LeaseReply {
        let message = self.0.next().await.expect("subscription");
        serde_json::from_slice(&message.payload).expect("json")
    }
}

pub(crate) fn output(key: AttemptKey, first: u64, events: Vec<AttemptEvent>) -> Output {
    let numbered = events.into_iter().zip(first..).map(|(event, n)| Numbered { n, event });
    Output { v: FABRIC_VERSION, key, events: numbered.collect() }
}

pub(crate) fn token(content: &str) -> AttemptEvent {
    AttemptEvent::token(content.to_owned(), 1)
}

/// A completed attempt with a result of its own.
pub(crate) fn finished(output: Value) -> Outcome {
    Outcome::Completed {
        usage: Usage::tokens(1, 1),
        output: Some(output),
        finish_reason: Some(FinishReason::Stop),
        stop_text: None,
    }
}

pub(crate) fn completed(prompt: u64, completion: u64) -> Outcome {
    Outcome::Completed {
        usage: Usage::tokens(prompt, completion),
        output: None,
        finish_reason: Some(FinishReason::Stop),
        stop_text: None,
    }
}
