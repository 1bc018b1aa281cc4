//! Recovers attempts after a restart from the journal, the spools and the workers that still run.

use std::{collections::BTreeMap, io, sync::Arc};

use island_protocol::{
    ids::AttemptKey,
    job::{Failure, FailureCode},
};

use super::Supervisor;
use crate::{
    attempt::handle::AttemptHandle,
    clock,
    job::RecoveredAttempt,
    journal::{Record, boot_id},
    spool::Spool,
    worker::{Command, WorkerHandle},
};

impl Supervisor {
    /// Recovers the attempts of an earlier agent. Called once, before any assignment.
    pub async fn recover(self: &Arc<Self>) -> io::Result<()> {
        let mut held: BTreeMap<AttemptKey, Arc<WorkerHandle>> = BTreeMap::new();
        for (worker, jobs) in self.parts.pool.recover().await? {
            held.extend(jobs.iter().map(|job| (job.key, Arc::clone(&worker))));
        }
        let boot = boot_id();
        for record in self.parts.journal.read_all()? {
            let key = record.assignment.key;
            // A worker whose attempt is lost is sent its end below.
            match self.adopt(record, held.get(&key).cloned(), &boot) {
                Ok(()) => drop(held.remove(&key)),
                Err(error) => {
                    tracing::warn!(error, "an attempt of the last run is lost");
                    self.parts.journal.remove(key);
                }
            }
        }
        for (key, worker) in held {
            tracing::info!(%key, instance = %worker.instance, "a worker holds an unknown attempt");
            let failure =
                Failure::interrupted(FailureCode::IslandLost, "the attempt is unknown to the agent");
            worker.send(Command::Cancel(key, failure));
            worker.send(Command::Spooled(key, u64::MAX));
        }
        self.parts.egress_mounts.sweep(&self.holding())?;
        self.sweep_spools()
    }

    fn adopt(
        self: &Arc<Self>,
        record: Record,
        worker: Option<Arc<WorkerHandle>>,
        boot: &str,
    ) -> Result<(), String> {
        let key = record.assignment.key;
        if record.boot_id != boot {
            return Err(format!("{key} ran before the machine was started"));
        }
        let spool = Spool::open(&self.parts.spool_dir, key, record.assignment.first_event)
            .map_err(|error| error.to_string())?;
        let age_ms = (clock::now().unix_ms() - record.accepted_at.unix_ms()).max(0) as u64;
        let now = clock::boot_ms();
        // Publishes nothing until the coordinator has confirmed that this Island still holds the attempt.
        let attempt = AttemptHandle::new(record.assignment, spool, now.saturating_sub(age_ms), 0);
        tracing::info!(%key, in_worker = worker.is_some(), "continuing an attempt");
        self.lock().insert(&attempt);
        self.spawn(attempt, Some(worker.map_or(RecoveredAttempt::JournalOnly, RecoveredAttempt::InWorker)));
        Ok(())
    }

    /// Removes spools without a record.
    fn sweep_spools(&self) -> io::Result<()> {
        let known: Vec<String> = self.holding().into_iter().map(crate::spool::file_name).collect();
        for entry in std::fs::read_dir(&self.parts.spool_dir)? {
            let entry = entry?;
            if !known.iter().any(|name| entry.file_name() == name.as_str()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}
