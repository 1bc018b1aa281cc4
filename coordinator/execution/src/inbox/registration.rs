//! Registrations of Islands.

use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    fabric::{Introduction, Register, Registered},
    ids::{AttemptKey, HostId},
    time::Timestamp,
    version::{Mismatch, VERSIONS, Versions, negotiate},
};
use tokio::time::Instant;

use super::{Unadmitted, parsed, report, unread::brief};
use crate::{Execution, machine::Input};
use island_coordinator_domain::fleet::RegistrationKind;
use island_coordinator_storage as storage;
use island_coordinator_storage::StoreError;

/// Why a registration of an Island has no effect, for its owner.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the clock of this machine differs by {0} s from that of the coordinator")]
    Clock(i64),
    #[error("the coordinator cannot read the registration: {0}")]
    Unreadable(String),
    #[error("the coordinator does not accept the registration: {0}")]
    Invalid(#[from] report::Invalid),
}

impl Execution {
    pub(super) async fn on_register(&self, message: &async_nats::Message) {
        let Some(introduction) = parsed::<Introduction>(&message.subject, &message.payload) else { return };
        let host = introduction.host_id;
        let versions = introduction.versions.unwrap_or(Versions::only(introduction.v));
        let version = match negotiate(versions, VERSIONS) {
            Ok(version) => version,
            Err(mismatch) => return self.refuse_versions(&introduction, mismatch, message).await,
        };
        let answer = match self.read_registration(&introduction, message).await {
            Ok(register) => self.apply_registration(&register, version).await,
            Err(Some(refused)) if introduction.reads_refusals => {
                Registered { refused: Some(refused.to_string()), ..self.registered(version) }
            }
            Err(_) => return,
        };
        let Some(reply) = &message.reply else { return };
        self.context.link.reply_to_island(host, reply, &answer).await;
    }

    /// Reads a registration that the Island has signed just now. The error is why it has no effect, if the Island is to know that.
    async fn read_registration(
        &self,
        introduction: &Introduction,
        message: &async_nats::Message,
    ) -> Result<Register, Option<Refused>> {
        let host = introduction.host_id;
        self.admit(host, introduction.sent_at, message).await.map_err(|unadmitted| match unadmitted {
            Unadmitted::Untimely => {
                let apart_ms = self.context.clock.now().unix_ms() - introduction.sent_at.unix_ms();
                Some(Refused::Clock(apart_ms.abs() / 1000))
            }
            Unadmitted::Other => None,
        })?;
        let register = serde_json::from_slice::<Register>(&message.payload);
        let register = register.map_err(|error| Refused::Unreadable(brief(&error)));
        let register = register.and_then(|register| {
            report::check(&register)?;
            Ok(register)
        });
        register.map_err(|refused| {
            tracing::warn!(%host, reason = %refused, "a registration has no effect");
            Some(refused)
        })
    }

    /// Registers an Island; returns the answer.
    async fn apply_registration(&self, register: &Register, version: u32) -> Registered {
        let host = register.host_id;
        let now = self.context.clock.now();
        let kind = self.context.fleet.register(register, Instant::now(), now);
        if kind == RegistrationKind::Duplicate {
            tracing::warn!(%host, name = register.name, "two agents have this Island's identity; one of them is ignored");
            return Registered { duplicate: true, ..self.registered(version) };
        }
        let begun = Instant::now();
        if self.context.fleet.is_to_be_stored(register, begun) {
            match self.store_registration(register, now).await {
                Ok(()) => self.context.fleet.stored(register, begun),
                Err(error) => tracing::error!(%host, error = %Chain(&error), "registration not stored"),
            }
        }
        if kind != RegistrationKind::Repeated {
            self.unread.remove(host);
            tracing::info!(%host, name = register.name, holding = register.holding.len(), "Island registered");
        }
        if kind == RegistrationKind::Restarted {
            self.drop_missing_attempts(register);
        }
        let drop = self.obsolete(host, &register.holding).await;
        Registered { drop, unread_heartbeat: self.unread.of(host), ..self.registered(version) }
    }

    /// The answer to an Island that speaks this version.
    fn registered(&self, version: u32) -> Registered {
        Registered {
            v: version,
            versions: Some(VERSIONS),
            heartbeat_ms: self.context.heartbeat.as_millis() as u64,
            lease_ms: self.context.timeouts.lease.as_millis() as u64,
            drop: Vec::new(),
            duplicate: false,
            refused: None,
            unread_heartbeat: None,
        }
    }

    /// Gives an Island no jobs that has no version in common with this coordinator, and answers with the versions of this one. An agent from
    /// before versions were negotiated would take any answer as a registration, and gets none.
    async fn refuse_versions(
        &self,
        introduction: &Introduction,
        mismatch: Mismatch,
        message: &async_nats::Message,
    ) {
        let host = introduction.host_id;
        if !self.is_admitted(host, introduction.sent_at, message).await {
            return;
        }
        if self.context.fleet.refuse(host, mismatch) {
            tracing::warn!(%host, island = %mismatch.island, coordinator = %mismatch.coordinator, "an Island with other versions of the fabric protocol is refused; upgrade {}", mismatch.outdated());
        }
        let Some(reply) = message.reply.as_ref().filter(|_| introduction.versions.is_some()) else { return };
        self.context.link.reply_to_island(host, reply, &self.registered(FABRIC_VERSION)).await;
    }

    async fn store_registration(&self, register: &Register, now: Timestamp) -> Result<(), StoreError> {
        let mut tx = self.context.store.begin().await?;
        storage::host::registered(
            &mut tx,
            register.host_id,
            &register.name,
            register.region.as_deref(),
            &register.agent_version,
            &register.capabilities,
            now,
        )
        .await?;
        storage::commit(tx).await
    }

    /// A restarted agent lists the attempts that it still has; the others are lost.
    fn drop_missing_attempts(&self, register: &Register) {
        for handle in self.all() {
            let attempt = handle.attempt().filter(|(host, _)| *host == register.host_id);
            if let Some((_, key)) = attempt.filter(|(_, key)| !register.holding.contains(key)) {
                handle.send(Input::Lost { key });
            }
        }
    }

    /// Returns the attempts that an Island should drop, without those that the database would have to decide about if it
    /// cannot be read.
    async fn obsolete(&self, host: HostId, holding: &[AttemptKey]) -> Vec<AttemptKey> {
        let (mut obsolete, mut unknown) = (Vec::new(), Vec::new());
        for key in holding {
            match self.find(key.job_id) {
                Some(handle) if handle.attempt() == Some((host, *key)) => {}
                Some(_) => obsolete.push(*key),
                None => unknown.push(*key),
            }
        }
        obsolete.extend(self.ended_among(&unknown).await.unwrap_or_default());
        obsolete
    }
}
