//! The documents' commands: each exists with its flags, and those of the guides for operators and authors are run.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use island_coordinator_client::Client;
use island_integration::{Network, Options, expect::final_job, program};
use island_protocol::job::JobStatus;
use island_protocol_api::publication::PublicationState;
use island_testing::port::free_port;
use serde_json::json;

const OURS: [&str; 6] =
    ["island", "island-agent", "island-coordinator", "island-update", "island-bench", "island-worker-onnx"];
/// Programs of the system, which are not checked.
const SYSTEM: &[&str] = &[
    ".",
    "apt",
    "bash",
    "cat",
    "cd",
    "chmod",
    "cp",
    "curl",
    "docker",
    "echo",
    "export",
    "git",
    "install",
    "jq",
    "kubectl",
    "ln",
    "mkdir",
    "nats-server",
    "node",
    "printf",
    "python",
    "python3",
    "runuser",
    "rustup",
    "sha256sum",
    "sqlite3",
    "systemctl",
    "tar",
    "watch",
];

fn root() -> PathBuf {
    island_testing::workspace()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("read")
}

/// The content of every block in this language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(of) = line.trim_start().strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
        if of == language {
            found.push(block.join("\n"));
        }
    }
    found
}

/// The commands that are shown with a prompt.
fn typed(document: &str) -> Vec<String> {
    let shown = blocks(document, "console");
    shown
        .iter()
        .flat_map(|block| block.lines())
        .filter_map(|line| line.strip_prefix("$ "))
        .map(str::to_owned)
        .collect()
}

/// The commands of these shell blocks, and those in a document's inline code that begin with one of our programs, `make` or `cargo`.
fn commands(document: &str, shell: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for block in shell {
        let mut end_of_text: Option<String> = None;
        for line in block.replace("\\\n", " ").lines() {
            if let Some(end) = &end_of_text {
                if line == end {
                    end_of_text = None;
                }
                continue;
            }
            end_of_text = line.split_once("<<").map(|(_, end)| end.trim_matches('\'').to_owned());
            found.extend(line.split("&& ").map(str::to_owned));
        }
    }
    let named = |code: &&str| {
        code.split_once(' ')
            .is_some_and(|(name, _)| OURS.contains(&name) || ["make", "cargo", "sudo"].contains(&name))
    };
    found.extend(
        document.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(named).map(str::to_owned),
    );
    found
}

/// Returns why a command cannot be right.
fn fault(command: &str, targets: &BTreeSet<String>, packages: &str) -> Option<String> {
    // The rest of a line is for a shell: another command, a file, or a comment.
    let Some(words) = shlex::split(command) else { return Some("its quotes are not closed".to_owned()) };
    let words = words.iter().take_while(|word| {
        !["|", ">", "<", "||", ";", "&", "..."].contains(&word.as_str()) && !word.starts_with("<<")
    });
    let mut words =
        words.map(String::as_str).skip_while(|word| *word == "sudo" || word.contains('=') || *word == "$");
    let name = words.next()?;
    let arguments: Vec<_> = words.collect();
    let unknown = |what: &str, name: &str| Some(format!("there is no {what} {name}"));
    match name {
        name if OURS.contains(&name) => {
            // Flags before `--help` are parsed and checked; nothing is run.
            let ran = Command::new(program(name))
                .args(arguments)
                .arg("--help")
                .stdin(Stdio::null())
                .output()
                .expect("run");
            (!ran.status.success()).then(|| String::from_utf8_lossy(&ran.stderr).into_owned())
        }
        "make" => {
            let missing = arguments.iter().find(|word| !word.contains('=') && !targets.contains(**word))?;
            unknown("target", missing)
        }
        "cargo" => {
            let mut named =
                arguments.windows(2).filter(|pair| ["-p", "--package", "--test"].contains(&pair[0]));
            let missing = named.find(|pair| !packages.contains(&format!("\"{}\"", pair[1])))?;
            unknown("package or test", missing[1])
        }
        name if SYSTEM.contains(&name) => None,
        name => {
            let path = name.trim_start_matches("./");
            (!root().join(path).exists() && !name.starts_with("/tmp/"))
                .then(|| format!("unknown program {name}"))
        }
    }
}

#[test]
fn every_command_of_every_document_exists() {
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(root()).output().expect("git");
    let listed = String::from_utf8(listed.stdout).expect("paths");
    let targets =
        read("Makefile").lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect();
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    let packages = String::from_utf8(metadata.stdout).expect("JSON");
    let (mut wrong, mut checked) = (String::new(), 0);
    for document in listed.lines().filter(|path| !path.starts_with("docs/decisions/")) {
        let text = read(document);
        // `guide.rs` runs the blocks of this one as they are written.
        let mut shell = if document == "docs/api.md" { Vec::new() } else { blocks(&text, "sh") };
        // The person who types them puts an id there.
        shell.extend(typed(&text).iter().map(|line| line.replace(" ID", &format!(" {JOB}"))));
        for command in commands(&text, &shell) {
            checked += 1;
            if let Some(fault) = fault(&command, &targets, &packages) {
                let _ = writeln!(wrong, "{document}: {command}\n    {fault}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(checked > 100, "only {checked} commands were found");
}

/// Ends a program when a test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A command of a guide with our programs by their path, in `folder`.
fn prepared(command: &str, folder: &Path) -> Command {
    let words = shlex::split(command).expect("a command");
    let (name, arguments) = words.split_first().expect("a program");
    let path = if OURS.contains(&name.as_str()) { program(name) } else { nats_server() };
    let mut prepared = Command::new(path);
    prepared.args(arguments).current_dir(folder).stdin(Stdio::null());
    prepared
}

fn nats_server() -> PathBuf {
    root().join(".tools/bin/nats-server")
}

fn output(mut command: Command) -> String {
    let ran = command.output().expect("run it");
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

#[tokio::test]
async fn the_operators_guide_starts_a_network() {
    let guide = read("docs/operators.md");
    let blocks = blocks(&guide, "sh");
    let [keys, nats, coordinator] = blocks[0].lines().collect::<Vec<_>>()[..] else {
        panic!("three commands")
    };
    let folder = tempfile::tempdir().expect("a folder");
    // Another port than the guide's, which may be in use on this machine.
    let port = free_port();
    let catalogue = root().join("cargos").display().to_string();
    let keys = keys.replace("/usr/share/island/cargos", &catalogue);
    let mut keys = prepared(&keys, folder.path());
    keys.args(["--nats-listen", &format!("127.0.0.1:{port}")]);
    output(keys);
    let mut nats = prepared(nats, folder.path());
    let _nats = Running(nats.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nats-server"));
    let until = Instant::now() + Duration::from_mins(1);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "NATS does not listen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut coordinator = prepared(coordinator, folder.path());
    coordinator.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut coordinator = Running(coordinator.stderr(Stdio::null()).spawn().expect("the coordinator"));
    let mut address = String::new();
    let lines = coordinator.0.stdout.take().expect("its output");
    BufReader::new(lines).read_line(&mut address).expect("its address");

    let [operator, user, key, list, audit] = blocks[1].lines().collect::<Vec<_>>()[..] else {
        panic!("five commands")
    };
    output(prepared(operator, folder.path()));
    output(prepared(user, folder.path()));
    let key = output(prepared(key, folder.path()));
    assert!(output(prepared(list, folder.path())).contains("user@example.org"));
    output(prepared(audit, folder.path()));
    let client = Client::new(address.trim(), Some(key.trim().to_owned())).expect("a client");
    let account = client.account().await.expect("the account");
    assert_eq!((account.email.as_str(), account.credits.0), ("user@example.org", 100_000_000));
}

/// Each way in which the guide sets a network up is accepted, in a folder of its own.
#[test]
fn every_init_of_the_operators_guide_writes_its_settings() {
    let guide = read("docs/operators.md");
    let joined: Vec<String> = blocks(&guide, "sh").iter().map(|block| block.replace("\\\n", " ")).collect();
    let lines = joined.iter().flat_map(|block| block.lines()).filter(|line| line.contains(" init "));
    let catalogue = root().join("cargos").display().to_string();
    let (mut ran, mut clusters) = (0, 0);
    for line in lines {
        let folder = tempfile::tempdir().expect("a folder");
        let line = line.trim_start_matches("sudo ").replace("/usr/share/island/cargos", &catalogue);
        output(prepared(&line.replace("/etc/island/coordinator.toml", "coordinator.toml"), folder.path()));
        ran += 1;
        let fabric = fs::read_dir(folder.path().join("fabric")).expect("the fabric's folder");
        for path in fabric.map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with("nats-n") {
                clusters += 1;
                let conf = fs::read_to_string(&path).expect("settings of a node");
                assert!(
                    !conf.contains("listen: \"127.0.0.1"),
                    "no coordinator elsewhere reaches {name}: {conf}"
                );
            }
        }
    }
    assert!(ran >= 5 && clusters >= 3, "{ran} commands, {clusters} nodes");
}

/// The files that the guide installs on a node of a cluster are those that its `init` writes, and complete.
#[test]
fn the_operators_guide_installs_a_node_of_a_cluster() {
    let guide = read("docs/operators.md");
    let blocks = blocks(&guide, "sh");
    let cluster = blocks.iter().position(|block| block.contains("--nats-node")).expect("a cluster");
    let coordinator = tempfile::tempdir().expect("a folder");
    let node = tempfile::tempdir().expect("a folder");
    output(prepared(&blocks[cluster].replace("\\\n", " "), coordinator.path()));
    let fabric = coordinator.path().join("fabric");
    let (mut installed, package) = (0, "/var/lib/island-nats");
    for line in blocks[cluster + 1].lines().filter(|line| line.starts_with("sudo install ")) {
        let line = line.trim_start_matches("sudo ").replace("-o island-nats -g island-nats ", "");
        let line = line.replace(package, &node.path().display().to_string());
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-euc", &line]).current_dir(&fabric);
        output(bash);
        installed += 1;
    }
    assert_eq!(installed, 2);
    let text = |path: PathBuf| fs::read_to_string(path).expect("settings of the node");
    let conf = text(node.path().join("nats.conf"));
    assert_eq!(conf, text(fabric.join("nats-n2.conf")));
    // The guide names them for operators whose settings are not the package's.
    for key in ["store_dir", "dir"] {
        let named = format!("  {key}: \"{}/", fabric.display());
        assert!(conf.contains(&named), "{named} in {conf}");
    }
    let (_, included) = conf.rsplit_once("include \"").expect("a file that it includes");
    assert!(node.path().join(included.trim().trim_end_matches('"')).is_file(), "{included}");
}

/// What stands for something else in the operators' commands of the guide.
const MOMENT: &str = "2026-12-01T00:00:00Z";
const JOB: &str = "0190f3f0-0000-7000-8000-000000000001";
/// One that has not ended.
const OPEN_JOB: &str = "0190f3f0-0000-7000-8000-000000000002";

/// A Cargo that an account publishes.
const PUBLISHED: &str = r#"slug = "SLUG"
name = "Shout"
description = "Repeats it louder."
category = "utility"
runtime_type = "wasm"
price_per_job = 0.001
required_vram_mb = 0
required_ram_mb = 64
model_url = "https://example.org/shout.wasm"
model_hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
model_size_bytes = 120000
[input_schema]
type = "object"
required = ["text"]
properties = { text = { type = "string", maxLength = 10000 } }
[output_schema]
type = "object"
[example]
input = { text = "land ahoy" }
"#;

#[tokio::test]
async fn the_operators_guide_administers_a_network() {
    let guide = read("docs/operators.md");
    let block = blocks(&guide, "sh").into_iter().find(|block| block.contains("island admin accounts create"));
    let block = block.expect("the commands of operators");
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "once", "max_tokens": 5 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit").id;
    assert_eq!(final_job(&client, job).await.status, JobStatus::Completed);
    let input = json!({ "prompt": "on and on", "max_tokens": 100_000 });
    let open_job = client.submit_job("sim-chat", input, 0).await.expect("submit").id;
    let island = |arguments: &[&str]| {
        let mut island = Command::new(program("island"));
        island.args(arguments).env("HOME", network.folder()).stdin(Stdio::null());
        island.env("SERVICE_API_URL", network.info("api_url"));
        island.env("SERVICE_API_KEY", network.info("api_key"));
        output(island)
    };
    let mut ran = 0;
    for line in block.lines() {
        let mut line = line.replace(MOMENT, "2100-01-01T00:00:00Z").replace(JOB, &job.to_string());
        line = line.replace(OPEN_JOB, &open_job.to_string());
        line = line.replace(" attic ", &format!(" {} ", network.info("host_id")));
        if line.contains("KEY_ID") {
            let keys = island(&["admin", "keys", "list", "user@example.org", "--format", "json"]);
            let keys: serde_json::Value = serde_json::from_str(&keys).expect("JSON");
            line = line.replace("KEY_ID", keys["data"][0]["id"].as_str().expect("a key"));
        }
        if line.contains("accounts close") {
            // It may have no credits: 100 at its creation, and a grant.
            island(&["admin", "accounts", "deduct", "user@example.org", "125", "--reason", "a test"]);
        }
        let words = shlex::split(&line).expect("a command");
        island(&words.iter().skip(1).map(String::as_str).collect::<Vec<_>>());
        ran += 1;
    }
    assert!(ran >= 18, "only {ran} commands");

    // Those about what accounts publish: one Cargo is approved, another one rejected.
    let mut ids = Vec::new();
    for slug in ["shout-one", "shout-two"] {
        let published = client.publish(PUBLISHED.replace("SLUG", slug)).await.expect("publish");
        ids.push(published.id.to_string());
    }
    let review = typed(&guide);
    assert_eq!(review.len(), 4, "{review:?}");
    for line in review {
        let id = if line.contains(" reject ") { &ids[1] } else { &ids[0] };
        let words = shlex::split(&line.replace(" ID", &format!(" {id}"))).expect("a command");
        island(&words.iter().skip(1).map(String::as_str).collect::<Vec<_>>());
    }
    let published = client.publications(10, 0).await.expect("the publications").data;
    let state = |id: &str| published.iter().find(|one| one.id.to_string() == id).map(|one| one.state);
    assert_eq!(state(&ids[0]), Some(PublicationState::Approved));
    assert_eq!(state(&ids[1]), Some(PublicationState::Rejected));
    assert_eq!(final_job(&client, open_job).await.status, JobStatus::Cancelled);
}

#[tokio::test]
async fn the_authors_guide_makes_a_cargo_that_runs() {
    let guide = read("docs/cargo-authors.md");
    let (shell, folder) = (blocks(&guide, "sh"), tempfile::tempdir().expect("a folder"));
    std::os::unix::fs::symlink(root(), folder.path().join("island")).expect("a clone called island");
    let run = |script: &str, at: &Path| {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-euc", script]).current_dir(at);
        // The crates are on this machine; what is built stays in the folder.
        bash.env("CARGO_NET_OFFLINE", "true").env("CARGO_TARGET_DIR", folder.path().join("shout/target"));
        output(bash)
    };
    let make = shell.iter().find(|block| block.contains("cargo new")).expect("how to make it");
    let make: Vec<_> = make.lines().filter(|line| !line.starts_with("rustup")).collect();
    run(&make.join("\n"), folder.path());
    let shout = folder.path().join("shout");
    fs::write(shout.join("src/main.rs"), &blocks(&guide, "rust")[0]).expect("the program");
    let build = shell.iter().find(|block| block.contains("cargo run")).expect("how to build it");
    let shown = blocks(&guide, "json").into_iter().find(|block| block.contains("LAND ")).expect("its output");
    assert_eq!(run(build, &shout).trim(), shown);
    let image = shell.iter().find(|block| block.contains("count.tar")).expect("how to make an image");
    run(image, folder.path());
    assert!(folder.path().join("count.tar").is_file());

    // Its entry, offered by a network.
    let entry = blocks(&guide, "toml")
        .into_iter()
        .find(|block| block.contains("slug = \"shout\""))
        .expect("an entry");
    let module = shout.join("target/wasm32-wasip1/release/shout.wasm");
    let hash = run(&format!("sha256sum {}", module.display()), folder.path());
    let entry = entry
        .replace("/home/you/shout/target/wasm32-wasip1/release/shout.wasm", &module.display().to_string())
        .replace('…', hash.split_whitespace().next().expect("a hash"));
    let catalogue = folder.path().join("cargos");
    fs::create_dir(&catalogue).expect("a catalogue");
    fs::write(catalogue.join("shout.toml"), entry).expect("the entry");
    let mut check = Command::new(program("island-coordinator"));
    output({
        check.args(["config", "check", "--catalogue"]).arg(&catalogue);
        check
    });
    let network = Network::start_with(&Options { cargos: Some(catalogue), ..Options::default() });
    let client = network.client();
    let job = client.submit_job("shout", json!({ "text": "land ahoy" }), 0).await.expect("submit");
    let job = final_job(&client, job.id).await;
    assert_eq!((job.status, job.output), (JobStatus::Completed, Some(json!({ "text": "LAND AHOY" }))));
}
