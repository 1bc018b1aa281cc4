//! Which settings and which enrollment a running agent uses, and what its owner is shown about them.

#[cfg(target_os = "linux")]
use std::{collections::BTreeSet, os::unix::fs::symlink, process::Output, process::Stdio};
use std::{fs, process::Command};

use crate::{
    coordinator::Coordinator,
    fixture::{AGENT, Island, Nats, Running, wait_for, workers_dir},
};

/// The agent with a file of settings in a folder of its own.
fn with_file(text: &str) -> (Command, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("agent.toml");
    fs::write(&file, text).expect("write");
    let mut agent = Command::new(AGENT);
    agent.arg("--config").arg(file);
    (agent, folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_uses_the_settings_of_the_running_agent() {
    let (agent, _folder) = with_file("[workers]\nmax_jobs = 3");
    let island = Island::by(agent).await;
    let doctor = String::from_utf8(island.try_agent(&["doctor"]).stdout).expect("text");
    let line = |name: &str| doctor.lines().find(|line| line.contains(name)).expect("a finding").to_owned();
    assert!(line("engine simulated").starts_with("ok"), "only the agent offers it: {doctor}");
    assert!(!doctor.contains("127.0.0.1:8080"), "{doctor}");
    assert!(!doctor.contains("no engine works on this machine"), "{doctor}");
    assert!(island.agent(&["config", "show"]).contains("max_jobs = 3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_are_named_until_a_restart() {
    let (agent, folder) = with_file("[policy]\nyield_gpu = false");
    let island = Island::by(agent).await;
    assert!(!island.agent(&["status"]).contains("settings"));
    let file = folder.path().join("agent.toml");
    fs::write(&file, "[policy]\nidle_minutes = 7").expect("write");
    let pending = "changed settings are not in force until the agent is restarted: policy.idle_minutes";
    assert!(island.agent(&["status"]).contains(pending));
    fs::write(&file, "[policy]\nidle_minuets = 7").expect("write");
    let status = island.agent(&["status"]);
    assert!(status.contains("policy.idle_minuets: unknown field"), "{status}");
    let doctor = String::from_utf8(island.try_agent(&["doctor"]).stdout).expect("text");
    let line = doctor.lines().find(|line| line.contains("idle_minuets")).expect("a finding");
    assert!(line.starts_with("PROBLEM"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_agent_takes_over_a_new_enrollment() {
    let nats = Nats::start().await;
    let [first, second] = [
        Coordinator::start(&nats.url(), 30_000, 3_600_000).await,
        Coordinator::start(&nats.url(), 30_000, 3_600_000).await,
    ];
    let state = tempfile::tempdir().expect("temporary folder");
    let command = |arguments: &[&str]| {
        let mut agent = Command::new(AGENT);
        agent.args(arguments).arg("--state-dir").arg(state.path());
        agent.env("ISLAND_AGENT_WORKERS__BIN_DIR", workers_dir()).env("ISLAND_AGENT_MEASURE", "false");
        agent
    };
    let enroll = |coordinator: &Coordinator| {
        let mut enroll = command(&["enroll", "--coordinator", &coordinator.url]);
        let ran = enroll.env("ISLAND_AGENT_API_KEY", "ak_test").output().expect("run island-agent");
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).expect("text")
    };
    assert!(enroll(&first).contains("No agent runs on this machine"));
    let agent = Running::of(command(&["run"]));
    first.wait("registration", |seen| seen.registers.last().map(|_| ())).await;
    assert!(enroll(&second).contains("The running agent starts there"));
    second.wait("registration", |seen| seen.registers.last().map(|_| ())).await;
    let status = || command(&["status"]).output().expect("run island-agent");
    wait_for("the status of the second", || {
        let text = String::from_utf8(status().stdout).expect("text");
        text.contains(&format!("{}, connected", second.url)).then_some(())
    })
    .await;
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_name_another_coordinator_are_noted() {
    let island = Island::start().await;
    let other = Coordinator::start(&island.nats.url(), 30_000, 3_600_000).await;
    let mut enroll = Command::new(AGENT);
    enroll.args(["enroll", "--coordinator", &other.url, "--state-dir"]).arg(island.path(""));
    let ran = enroll.env("ISLAND_AGENT_API_KEY", "ak_test").output().expect("run island-agent");
    assert!(ran.status.success(), "{ran:?}");
    let status = island.agent(&["status"]);
    let note = format!("this Island enrolled with {}, but the agent's settings name", other.url);
    assert!(status.contains(&note), "{status}");
}

/// The agent as the package installs it, in folders that only its processes see at their usual places.
#[cfg(target_os = "linux")]
struct Installed(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl Installed {
    const MOUNT: &str = r#"mount --bind "$0/etc" /etc && mount --bind "$0/lib" /var/lib && exec "$@""#;

    /// `None`, with a notice, on systems that do not allow mounting.
    fn new(settings: &str) -> Option<Self> {
        let installed = Self(tempfile::tempdir().expect("temporary folder"));
        let at = |path: &str| installed.0.path().join(path);
        for folder in ["etc/island", "lib/island-agent", "usr/bin", "usr/lib/island"] {
            fs::create_dir_all(at(folder)).expect("folders");
        }
        let own = ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl"];
        let copied = Command::new("cp").arg("-a").args(own).arg(at("etc")).status();
        assert!(copied.expect("start cp").success());
        fs::write(at("etc/island/agent.toml"), settings).expect("write");
        fs::hard_link(AGENT, at("usr/bin/island-agent"))
            .or_else(|_| fs::copy(AGENT, at("usr/bin/island-agent")).map(drop))
            .expect("installed");
        symlink(workers_dir().join("island-worker-simulated"), at("usr/lib/island/island-worker-simulated"))
            .expect("a link");
        let mounts = installed.run("true").stderr(Stdio::null()).status().is_ok_and(|ended| ended.success());
        if !mounts {
            island_testing::skip("commands of an installed agent", "nothing may be mounted here");
        }
        mounts.then_some(installed)
    }

    /// A command line, run where the package is installed.
    fn run(&self, line: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", Self::MOUNT]).arg(self.0.path());
        command.args(["sh", "-c", line]).stdin(Stdio::null());
        command.env("PATH", format!("{}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin", self.0.path().display()));
        command
    }

    fn output(&self, line: &str) -> Output {
        self.run(line).output().expect("run a command")
    }
}

/// The commands of the agent in the guides for owners, without `sudo`.
#[cfg(target_os = "linux")]
fn documented() -> BTreeSet<String> {
    let text = ["docs/owners.md", "docs/gpu.md"]
        .map(|path| fs::read_to_string(island_testing::workspace().join(path)).expect("a guide"));
    let code = text.iter().flat_map(|text| text.split('`').flat_map(str::lines));
    let commands = code.map(|line| line.trim_start_matches("sudo ").trim());
    commands.filter(|line| line.starts_with("island-agent ")).map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_owners_guides_works() {
    let Some(installed) = Installed::new("simulated = true\nmeasure = false\nallow_weak_sandbox = true")
    else {
        return;
    };
    let nats = Nats::start().await;
    let coordinator = Coordinator::start(&nats.url(), 30_000, 3_600_000).await;
    let mut commands = documented();
    let mut take = |part: &str| {
        let taken: BTreeSet<String> = commands.extract_if(.., |line| line.contains(part)).collect();
        assert!(!taken.is_empty(), "the guides have no command with {part}");
        taken
    };
    let works = |line: &str| {
        let ran = installed.output(line);
        let text = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(ran.status.success(), "{line}: {text}");
        text
    };
    let enrolls = take(" enroll");
    for line in enrolls {
        let line =
            line.replace("https://island.example.org", &coordinator.url).replace("URL", &coordinator.url);
        works(&format!("ISLAND_AGENT_API_KEY=ak_test {line}"));
    }
    assert!(!take("island-agent run").is_empty());
    let agent = Running::of(installed.run("exec island-agent"));
    coordinator.wait("registration", |seen| seen.registers.last().map(|_| ())).await;
    wait_for("the socket", || installed.output("island-agent status").status.success().then_some(())).await;
    for line in take("--watch") {
        assert_eq!(installed.output(&line).status.code(), Some(2), "it needs a terminal");
    }
    for line in take(" doctor") {
        let found = String::from_utf8(installed.output(&line).stdout).expect("text");
        assert!(
            found.lines().any(|line| line.starts_with("ok") && line.contains("engine simulated")),
            "{found}"
        );
        assert!(!found.contains("no engine works on this machine"), "{found}");
    }
    let leaves = take(" leave");
    for line in &commands {
        works(line);
    }
    leaves.iter().for_each(|line| drop(works(line)));
    drop(agent);
}
