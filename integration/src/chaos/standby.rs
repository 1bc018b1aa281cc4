//! A PostgreSQL server with a standby that has every commit, and that can take its place.

use std::{
    fs,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
};

use island_testing::postgres::{MISSING, Server, as_user, programs, run, user};

/// What both servers need to replicate, beyond the usual settings.
const SETTINGS: [&str; 2] = ["wal_level=replica", "max_wal_senders=4"];

/// Both servers, and the folder of the one that answers.
#[derive(Debug)]
pub(super) struct Pair {
    /// A link to the folder of the server that accepts writes.
    current: PathBuf,
    standby_folder: PathBuf,
    /// `None` after [`Self::fail_over`].
    primary: Option<Server>,
    _standby: Server,
}

impl Pair {
    /// Starts both. Their folders must be empty; `current` becomes a link to the first.
    pub(super) fn start(primary_folder: PathBuf, standby_folder: PathBuf, current: PathBuf) -> Self {
        let primary = Server::start_with(primary_folder.clone(), &SETTINGS);
        let (programs, user) = (programs().expect(MISSING), user());
        if let Some((uid, gid)) = user {
            chown(&standby_folder, Some(uid), Some(gid)).expect("folder of another user");
        }
        let mut copy = as_user(&programs.join("pg_basebackup"), user);
        copy.arg("-h").arg(&primary_folder).args([
            "-U",
            "island",
            "-D",
            "data",
            "--write-recovery-conf",
            "--no-sync",
        ]);
        run(copy.current_dir(&standby_folder));
        let standby = Server::run_data(programs, standby_folder.clone(), user, &SETTINGS);
        // From now on a commit is acknowledged once the standby has it.
        let set = |sql: &str| {
            run(primary.command("psql").args(["--no-psqlrc", "--quiet", "-d", "postgres", "-c", sql]));
        };
        set("ALTER SYSTEM SET synchronous_standby_names = '*'");
        set("SELECT pg_reload_conf()");
        symlink(&primary_folder, &current).expect("a link");
        Self { current, standby_folder, primary: Some(primary), _standby: standby }
    }

    /// The address of a new, empty database, at whichever server answers.
    pub(super) fn database(&self) -> String {
        let address = self.primary.as_ref().expect("the first server runs").database();
        let (address, _) = address.split_once("host=").expect("it listens on a socket");
        format!("{address}host={}", self.current.display())
    }

    /// Stops the first server at once, as a crash would, and lets the other one take its place.
    pub(super) fn fail_over(&mut self) {
        self.primary.take();
        let mut promote = as_user(&programs().expect(MISSING).join("pg_ctl"), user());
        run(promote.args(["promote", "--wait", "--silent", "-D", "data"]).current_dir(&self.standby_folder));
        replace_link(&self.current, &self.standby_folder);
    }
}

/// Lets a link lead elsewhere, in one step.
fn replace_link(link: &Path, target: &Path) {
    let new = link.with_extension("new");
    symlink(target, &new).expect("a link");
    fs::rename(&new, link).expect("replace the link");
}
