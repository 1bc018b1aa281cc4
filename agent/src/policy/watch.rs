//! Watches the machine and the owner's word, and has the supervisor act on what follows.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use island_daemon::{chain::Chain, files::write_atomic, latest::Latest};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Rules, Verdict, Wish, decide,
    gpus::{Resting, resting},
    schedule::Moment,
    senses::{Seats, Senses},
};
use crate::{inventory::meter::Sample, supervisor::Supervisor};

/// Between two looks where somebody may come back to the machine: they shall have it within a second.
const QUICK: Duration = Duration::from_millis(400);
/// Between two looks otherwise.
const SLOW: Duration = Duration::from_secs(5);
/// The owner's word, which a restart must not forget.
const FILE: &str = "owner.json";

/// The owner's rules and word, watched.
#[derive(Debug)]
pub struct Policy {
    rules: Rules,
    seats: Seats,
    load: watch::Receiver<Arc<Sample>>,
    file: PathBuf,
    wish: Mutex<Wish>,
    changed: Notify,
    verdict: watch::Sender<Verdict>,
    resting: watch::Sender<Resting>,
}

impl Policy {
    /// Rules, and the word kept in `state`.
    pub fn load(rules: Rules, state: &Path, load: watch::Receiver<Arc<Sample>>) -> Self {
        let file = state.join(FILE);
        let wish = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %file.display(), %error, "the owner's last word cannot be read");
                // Too little work is better than work that was forbidden.
                Wish::Pause { until: None }
            }),
            Err(_) => Wish::None,
        };
        let (verdict, _) = watch::channel(Verdict::Yes);
        let policy = Self {
            rules,
            seats: Seats::default(),
            load,
            file,
            wish: Mutex::new(wish),
            changed: Notify::new(),
            verdict,
            resting: watch::Sender::default(),
        };
        policy.look();
        policy
    }

    /// What the owner said last.
    pub fn wish(&self) -> Wish {
        *self.lock()
    }

    /// Takes the owner's word; it is on disk before it counts.
    pub fn say(&self, wish: Wish) -> io::Result<()> {
        write_atomic(&self.file, &serde_json::to_vec(&wish).map_err(io::Error::other)?, 0o600)?;
        *self.lock() = wish;
        self.look();
        self.changed.notify_one();
        Ok(())
    }

    /// Follows the verdict.
    pub fn verdict(&self) -> watch::Receiver<Verdict> {
        self.verdict.subscribe()
    }

    /// GPUs that rest, and why.
    pub fn resting(&self) -> Resting {
        self.resting.latest()
    }

    /// Looks until stopped, and has the supervisor act.
    pub async fn run(&self, supervisor: Arc<Supervisor>, stop: CancellationToken) {
        let mut load = self.load.clone();
        loop {
            self.look();
            let (verdict, resting) = (supervisor.heed(&self.verdict()), self.resting());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = supervisor.obey(&verdict, &resting) => {}
            }
            // A worker that was just being started when the machine was left is found at the next look.
            let leaves = matches!(verdict, Verdict::Leave { .. }) || !resting.is_empty();
            let every = if leaves || self.rules.idle_minutes > 0 { QUICK } else { SLOW };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                Ok(()) = load.changed() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    fn look(&self) {
        let idle = (self.rules.idle_minutes > 0).then(|| self.seats.idle(SystemTime::now())).flatten();
        let senses = Senses::of(&self.load.latest(), idle, &self.rules.gpu);
        self.rest();
        let moment = Moment::now();
        let wish = self.wish();
        let before = self.verdict.latest();
        let verdict = decide(&self.rules, wish, moment, &senses, &before);
        if verdict != before {
            tracing::info!(%verdict, "the owner's rules");
            self.verdict.send_replace(verdict);
        }
        if let Wish::Pause { until: Some(until) } = wish
            && moment.now >= until
        {
            // It is over: what is on disk should say so too.
            *self.lock() = Wish::None;
            if let Err(error) = fs::remove_file(&self.file) {
                tracing::warn!(path = %self.file.display(), error = %Chain(&error), "a pause that is over stays on disk");
            }
        }
    }

    /// Notes which GPUs rest.
    fn rest(&self) {
        let before = self.resting();
        let after = resting(&self.rules.gpu, &self.load.latest().gpus, &before);
        for (index, reason) in after.iter().filter(|(index, _)| !before.contains_key(index)) {
            tracing::info!(gpu = index, reason, "a GPU rests");
        }
        for index in before.keys().filter(|index| !after.contains_key(index)) {
            tracing::info!(gpu = index, "a GPU has rested");
        }
        self.resting.send_replace(after);
    }

    fn lock(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Cause;

    fn policy(state: &Path) -> Policy {
        Policy::load(Rules::default(), state, watch::channel(Arc::new(Sample::default())).1)
    }

    #[test]
    fn a_pause_outlives_the_agent() {
        let state = tempfile::tempdir().expect("a folder");
        let first = policy(state.path());
        assert_eq!(first.verdict().latest(), Verdict::Yes);
        first.say(Wish::Pause { until: None }).expect("said");
        assert_eq!(first.verdict().latest().cause(), Some(Cause::Paused), "at once");
        drop(first);
        let next = policy(state.path());
        assert_eq!(next.verdict().latest().cause(), Some(Cause::Paused));
        next.say(Wish::None).expect("said");
        assert_eq!(policy(state.path()).verdict().latest(), Verdict::Yes);
    }

    #[test]
    fn a_word_that_cannot_be_read_is_a_pause() {
        let state = tempfile::tempdir().expect("a folder");
        fs::write(state.path().join(FILE), "{").expect("write");
        assert_eq!(policy(state.path()).verdict().latest().cause(), Some(Cause::Paused));
    }

    #[test]
    fn a_pause_that_is_over_is_forgotten() {
        let state = tempfile::tempdir().expect("a folder");
        let until = Some(island_protocol::time::Timestamp::from_unix_ms(1));
        policy(state.path()).say(Wish::Pause { until }).expect("said");
        assert!(!state.path().join(FILE).exists());
    }
}
