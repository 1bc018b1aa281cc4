//! Recovers attempts after a restart from the journal, the spools and the workers that still run.

use std::{io, sync::Arc};

use island_protocol::{
    ids::AttemptKey,
    job::{Failure, FailureCode},
};

use super::Supervisor;
use crate::{
    attempt::handle::AttemptHandle,
    disk::{
        journal::{Record, boot_id},
        spool::Spool,
    },
    job::RecoveredAttempt,
    pool::ModelKey,
    worker::{Command, WorkerHandle},
};

impl Supervisor {
    /// Recovers the attempts of an earlier agent. Called once, before any assignment.
    pub async fn recover(self: &Arc<Self>) -> io::Result<()> {
        let mut held: Vec<(AttemptKey, Arc<WorkerHandle>)> = Vec::new();
        for (worker, jobs) in self.parts.pool.recover().await? {
            held.extend(jobs.iter().map(|job| (job.key, Arc::clone(&worker))));
        }
        let boot = boot_id();
        let mut records = self.parts.journal.read_all()?;
        // An agent that was killed while an attempt replaced another of the same job has recorded both.
        records.sort_by_key(|record| std::cmp::Reverse(record.assignment.key.epoch));
        for record in records {
            let key = record.assignment.key;
            // Only a worker of the attempt's model: another one claims an attempt whose request it never got.
            let model = ModelKey::of_attempt(&record.assignment);
            let holder =
                held.iter().position(|(other, worker)| *other == key && self.parts.pool.runs(worker, &model));
            let worker = holder.map(|at| Arc::clone(&held[at].1));
            // A worker whose attempt is lost is sent its end below.
            match self.adopt(record, worker, &boot) {
                Ok(()) => drop(holder.map(|at| held.swap_remove(at))),
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
        self.lock().known(key).map_err(|reason| format!("{key} is {reason}"))?;
        let spool = Spool::open(&self.parts.spool_dir, key, record.assignment.first_event)
            .map_err(|error| error.to_string())?;
        // Publishes nothing until the coordinator has confirmed that this Island still holds the attempt.
        let attempt = AttemptHandle::new(record.assignment, spool, record.accepted_ms, 0);
        tracing::info!(%key, in_worker = worker.is_some(), "continuing an attempt");
        self.lock().insert(&attempt);
        let found = worker.map_or(RecoveredAttempt::JournalOnly, RecoveredAttempt::InWorker);
        // Its trace ended with the agent that began it.
        self.spawn(attempt, Some(found), None);
        Ok(())
    }

    /// Removes spools without a record.
    fn sweep_spools(&self) -> io::Result<()> {
        let known: Vec<String> = self.holding().into_iter().map(crate::disk::spool::file_name).collect();
        for entry in std::fs::read_dir(&self.parts.spool_dir)? {
            let entry = entry?;
            if !known.iter().any(|name| entry.file_name() == name.as_str()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;

    use super::*;
    use crate::{
        clock,
        disk::{journal::Journal, spool},
        inventory::meter::Sample,
        testing,
    };

    #[tokio::test]
    async fn of_two_attempts_of_one_job_only_the_newer_one_is_continued() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (spools, records) = (folder.path().join("spool"), folder.path().join("journal"));
        for made in [&spools, &records, &folder.path().join("egress"), &folder.path().join("w")] {
            std::fs::create_dir_all(made).expect("a folder");
        }
        for epoch in [3, 5, 4] {
            let assignment = testing::assignment(1, epoch);
            Spool::open(&spools, assignment.key, 1).expect("a spool");
            let record = Record { assignment, accepted_ms: clock::boot_ms(), boot_id: boot_id() };
            Journal::new(records.clone()).write(&record).expect("a record");
        }
        std::fs::write(folder.path().join("w/gone.key"), "[]").expect("the key of a worker without a folder");
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_, supervisor) = testing::supervisor(folder.path(), load).await;
        supervisor.recover().await.expect("recovered");
        let newest = testing::assignment(1, 5).key;
        assert_eq!(supervisor.holding(), [newest]);
        let left = |folder: &std::path::Path| -> Vec<_> {
            let entries = std::fs::read_dir(folder).expect("a folder").flatten();
            entries.map(|entry| entry.file_name().into_string().expect("text")).collect()
        };
        assert_eq!(left(&spools), [spool::file_name(newest)]);
        assert_eq!(left(&records).len(), 1, "the records of the others are removed");
        assert!(left(&folder.path().join("w")).is_empty(), "a key without its worker is removed");
        supervisor.forget(newest, "the test is over");
        let stop = tokio_util::sync::CancellationToken::new();
        supervisor.stop(Duration::from_secs(5), &stop).await;
        assert!(left(&spools).is_empty() && left(&records).is_empty());
    }
}
