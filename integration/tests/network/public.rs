//! A network that `init` sets up for other machines: TLS of its own or of a reverse proxy, addresses of clients, a NATS cluster.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use island_integration::{expect::eventually, namespace::Namespace, program};
use island_protocol::subjects::JOB_EVENTS_STREAM;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

const NAME: &str = "island.example.org";
const URL: &str = "https://island.example.org";
const ADDRESS: &str = "10.9.9.9";

/// A machine with a network that is set up step by step.
struct Machine {
    namespace: Namespace,
    folder: TempDir,
    programs: Vec<Child>,
    key: String,
}

impl Machine {
    fn new(names: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
        let names: Vec<(&str, IpAddr)> =
            names.iter().map(|(name, address)| (*name, address.parse().expect("an address"))).collect();
        let namespace = Namespace::new(folder.path(), &names);
        let machine = Self { namespace, folder, programs: Vec::new(), key: String::new() };
        machine.certify("ca.pem");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a certificate of all names with its key, and the certificate of its issuer to `ca`.
    fn certify(&self, ca: &str) {
        let names = [NAME, "n1.example.org", "n2.example.org", "n3.example.org"];
        self.certify_names(ca, &names, ["cert.pem", "key.pem"]);
    }

    /// Writes a certificate of these names with its key, and the certificate of its issuer to `ca`.
    fn certify_names(&self, ca: &str, names: &[&str], [certificate, key_file]: [&str; 2]) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Another name than that of the leaf, which would count as its own issuer.
        params.distinguished_name.push(DnType::CommonName, "An authority of this test");
        let key = KeyPair::generate().expect("a key");
        let issuer = params.self_signed(&key).expect("a certificate");
        fs::write(self.path(ca), issuer.pem()).expect("write");
        let issuer = Issuer::from_params(&params, &key);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let leaf =
            CertificateParams::new(names).expect("names").signed_by(&key, &issuer).expect("a certificate");
        fs::write(self.path(certificate), leaf.pem()).expect("write");
        fs::write(self.path(key_file), key.serialize_pem()).expect("write");
    }

    /// Writes a file with the certificates of all these issuers.
    fn trust(&self, file: &str, issuers: &[&str]) {
        let all: Vec<String> =
            issuers.iter().map(|ca| fs::read_to_string(self.path(ca)).expect("a certificate")).collect();
        fs::write(self.path(file), all.join("\n")).expect("write");
    }

    /// Whether a new connection to NATS that trusts the issuers in this file gets a heartbeat.
    fn gets_heartbeats(&self, trusted: &str) -> bool {
        let output = self
            .namespace
            .command(program("island"))
            .args(["sail", "subscribe", "host.*.heartbeat", "--max", "1"])
            .env("SERVICE_API_URL", URL)
            .env("SERVICE_API_KEY", &self.key)
            .env("SSL_CERT_FILE", self.path(trusted))
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .output();
        output.expect("run island").status.success()
    }

    /// Runs `island-coordinator` to its end with the machine's settings.
    fn coordinator(&self, arguments: &[&str]) -> String {
        let config = self.text("coordinator.toml");
        let all: Vec<&str> = ["--config", &config].iter().chain(arguments).copied().collect();
        let output = self.namespace.run(program("island-coordinator"), &all);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn init(&self, arguments: &[&str]) {
        let catalogue = island_integration::examples::catalogue().display().to_string();
        let all: Vec<&str> =
            ["init", "--catalogue", &catalogue, "--fixtures"].iter().chain(arguments).copied().collect();
        self.coordinator(&all);
    }

    /// Starts a program that trusts `ca.pem`. Its output goes to a log.
    fn start(&mut self, name: &str, program: impl AsRef<Path>, arguments: &[&str]) {
        let log = fs::File::create(self.path(&format!("{name}.log"))).expect("a log");
        let child = self
            .namespace
            .command(program)
            .args(arguments)
            .env("SSL_CERT_FILE", self.path("ca.pem"))
            .env("ISLAND_AGENT_MEASURE", "false")
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn();
        self.programs.push(child.expect("start a program"));
    }

    fn start_nats(&mut self, conf: &str, arguments: &[&str]) {
        let own = island_testing::workspace().join(".tools/bin/nats-server");
        let server = if own.is_file() { own } else { "nats-server".into() };
        let path = self.text(&format!("fabric/{conf}"));
        let all: Vec<&str> = ["-c", &path].iter().chain(arguments).copied().collect();
        self.start(conf, server, &all);
    }

    /// Starts a coordinator and an Island of an account that is made for it.
    async fn start_network(&mut self) {
        let config = self.text("coordinator.toml");
        let account =
            self.coordinator(&["admin", "account", "create", "--email", "a@example.org", "--credits", "100"]);
        let key =
            self.coordinator(&["admin", "key", "create", "--account", account.trim(), "--name", "test"]);
        key.trim().clone_into(&mut self.key);
        self.start("coordinator", program("island-coordinator"), &["--config", &config, "serve"]);
        self.wait("the coordinator is ready", &["/api/v1/ready"], "\"ok\"").await;
        let settings = serde_json::json!({
            "state_dir": self.path("agent"),
            "api_url": URL,
            "api_key": self.key,
            "name": "attic",
            "simulated": true,
            "cache": { "dir": self.path("cache") },
        });
        fs::write(self.path("agent.toml"), toml::to_string(&settings).expect("TOML")).expect("write");
        let agent = self.text("agent.toml");
        self.start("agent", program("island-agent"), &["--config", &agent, "run"]);
        self.wait("the Island is online", &["/api/v1/hosts"], "\"online\"").await;
    }

    /// Status and body of a request with the machine's key.
    fn request(&self, ca: &str, arguments: &[&str]) -> (String, String) {
        self.request_with(&self.key, ca, arguments)
    }

    fn request_with(&self, key: &str, ca: &str, arguments: &[&str]) -> (String, String) {
        let ca = self.text(ca);
        let header = format!("Authorization: Bearer {key}");
        let mut all = vec!["-sS", "--cacert", &ca, "-H", &header, "-w", "\n%{http_code}"];
        let path = format!("{URL}{}", arguments[0]);
        all.push(&path);
        all.extend(&arguments[1..]);
        let output = self.namespace.run("curl", &all);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let (body, status) = text.rsplit_once('\n').unwrap_or(("", &text));
        (status.to_owned(), body.to_owned())
    }

    async fn wait(&self, what: &str, arguments: &[&str], part: &str) {
        eventually(what, || async { self.request("ca.pem", arguments).1.contains(part).then_some(()) }).await;
    }

    /// Runs a job with the command line; returns its output.
    fn chat(&self) -> String {
        let output = self
            .namespace
            .command(program("island"))
            .args(["chat", "--workload", "sim-chat", "--max-tokens", "6", "one two three"])
            .env("SERVICE_API_URL", URL)
            .env("SERVICE_API_KEY", &self.key)
            .env("SSL_CERT_FILE", self.path("ca.pem"))
            .env("HOME", self.folder.path())
            .output()
            .expect("run island");
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.logs());
        String::from_utf8(output.stdout).expect("text")
    }

    /// Submits a job that writes for some seconds, follows it with the command line, and returns its output. Meanwhile it is in a file.
    fn streamed(&self, name: &str) -> impl Future<Output = String> + use<> {
        let (out, log) = (self.path(&format!("{name}.out")), self.path(&format!("{name}.log")));
        let input = r#"{"prompt": "one two three", "max_tokens": 250, "delay_ms": 20}"#;
        let child = self
            .namespace
            .command(program("island"))
            .args(["jobs", "submit", "--workload", "sim-chat", "--input", input, "--stream"])
            .env("SERVICE_API_URL", URL)
            .env("SERVICE_API_KEY", &self.key)
            .env("SSL_CERT_FILE", self.path("ca.pem"))
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(fs::File::create(&out).expect("a file"))
            .stderr(fs::File::create(&log).expect("a log"))
            .spawn();
        let mut child = child.expect("run island");
        async move {
            let status =
                tokio::task::spawn_blocking(move || child.wait()).await.expect("ended").expect("waited");
            let error = fs::read_to_string(log).unwrap_or_default();
            assert!(status.success(), "{error}");
            fs::read_to_string(out).expect("text")
        }
    }

    fn has_begun(&self, name: &str) -> bool {
        fs::metadata(self.path(&format!("{name}.out"))).is_ok_and(|file| file.len() > 0)
    }

    fn logs(&self) -> String {
        let mut all = String::new();
        for path in fs::read_dir(self.folder.path()).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|end| end == "log") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let _ = writeln!(all, "--- {}\n{text}", path.display());
            }
        }
        all
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failing test shows the output of its network")]
            {
                eprintln!("{}", self.logs());
            }
        }
        for child in &mut self.programs {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The Caddyfile of the operator's guide, with the test's certificate instead of one from an authority.
fn caddyfile(machine: &Machine) -> String {
    let guide = include_str!("../../../docs/operators.md");
    let (_, block) = guide.split_once("```Caddyfile\n").expect("a Caddyfile");
    let (block, _) = block.split_once("```").expect("its end");
    let tls = format!("tls {} {}", machine.text("cert.pem"), machine.text("key.pem"));
    let site = format!("{NAME} {{\n");
    assert!(block.contains(&site), "{block}");
    format!(
        "{{\n\tadmin off\n\tskip_install_trust\n}}\n{}",
        block.replace(&site, &format!("{site}\t{tls}\n"))
    )
}

#[tokio::test]
async fn a_reverse_proxy_ends_tls_and_islands_connect_through_it() {
    let caddy = island_testing::workspace().join(".tools/caddy/usr/bin/caddy");
    if !caddy.is_file() {
        island_testing::skip("a reverse proxy", "Caddy was not fetched; `scripts/setup.sh test` does");
        return;
    }
    let mut machine = Machine::new(&[(NAME, ADDRESS)]);
    machine.init(&["--public-url", URL]);
    machine.start_nats("nats.conf", &[]);
    fs::write(machine.path("Caddyfile"), caddyfile(&machine)).expect("write");
    let file = machine.text("Caddyfile");
    machine.start("caddy", caddy, &["run", "--config", &file, "--adapter", "caddyfile"]);
    machine.start_network().await;
    assert!(machine.chat().contains("one"), "{}", machine.logs());
    let (status, credentials) = machine.request("ca.pem", &["/api/v1/fabric/credentials", "-X", "POST"]);
    assert!(status == "200" && credentials.contains("\"wss://island.example.org/nats\""), "{credentials}");

    // The file of a batch is larger than the body of any other request.
    fs::write(machine.path("requests.jsonl"), "{}\n".repeat(4 << 20)).expect("write");
    let upload = format!("file=@{}", machine.text("requests.jsonl"));
    let arguments = ["/api/v1/files", "-F", "purpose=batch", "-F", &upload];
    let (status, stored) = machine.request("ca.pem", &arguments);
    assert_eq!(status, "200", "{stored}");

    // A client is known by the address that the proxy adds, whatever it claims itself.
    let attempt = |from: &str| {
        let arguments = ["/api/v1/account", "--interface", from, "-H", "X-Forwarded-For: 10.1.2.3"];
        machine.request_with("ak_wrong", "ca.pem", &arguments).0
    };
    for _ in 0..60 {
        assert_eq!(attempt(ADDRESS), "401");
    }
    assert_eq!(attempt(ADDRESS), "429");
    assert_eq!(attempt("127.0.0.1"), "401");
}

#[tokio::test]
async fn nats_has_its_own_certificate_and_reads_a_new_one_on_reload() {
    const NATS: &str = "nats.example.org";
    let caddy = island_testing::workspace().join(".tools/caddy/usr/bin/caddy");
    if !caddy.is_file() {
        island_testing::skip("a reverse proxy", "Caddy was not fetched; `scripts/setup.sh test` does");
        return;
    }
    let mut machine = Machine::new(&[(NAME, ADDRESS), (NATS, "10.9.9.8")]);
    let files = ["nats.pem", "nats-key.pem"];
    machine.certify_names("nats-ca.pem", &[NATS], files);
    fs::copy(machine.path("ca.pem"), machine.path("api-ca.pem")).expect("copy");
    machine.trust("ca.pem", &["api-ca.pem", "nats-ca.pem"]);
    let [certificate, key] = files.map(|file| machine.text(file));
    let address = format!("tls://{NATS}:4222");
    machine.init(&[
        "--public-url",
        URL,
        "--nats-tls-certificate",
        &certificate,
        "--nats-tls-key",
        &key,
        "--nats-public-url",
        &address,
    ]);
    let settings = fs::read_to_string(machine.path("coordinator.toml")).expect("settings");
    assert!(!settings.contains("[http.tls]") && !settings.contains("websocket"), "{settings}");
    machine.start_nats("nats.conf", &[]);
    fs::write(machine.path("Caddyfile"), caddyfile(&machine)).expect("write");
    let file = machine.text("Caddyfile");
    machine.start("caddy", caddy, &["run", "--config", &file, "--adapter", "caddyfile"]);
    machine.start_network().await;
    assert!(machine.chat().contains("one"), "{}", machine.logs());
    let (_, credentials) = machine.request("api-ca.pem", &["/api/v1/fabric/credentials", "-X", "POST"]);
    assert!(credentials.contains(&format!("\"{address}\"")), "{credentials}");
    let trusted = ["ca.pem", "api-ca.pem"].map(|authority| machine.gets_heartbeats(authority));
    assert_eq!(trusted, [true, false], "two authorities\n{}", machine.logs());

    machine.certify_names("new-ca.pem", &[NATS], files);
    machine.trust("new.pem", &["api-ca.pem", "new-ca.pem"]);
    assert!(!machine.gets_heartbeats("new.pem"), "the server has read the former certificate");
    // As `systemctl reload` does.
    let reloaded = machine.namespace.run("pkill", &["-HUP", "-f", "nats.conf"]);
    assert!(reloaded.status.success(), "nats-server runs");
    let renewed = || async { machine.gets_heartbeats("new.pem").then_some(()) };
    eventually("the new certificate is used", renewed).await;
    assert!(!machine.gets_heartbeats("ca.pem"), "the former authority is not that of the new certificate");
    machine.wait("the Island is still online", &["/api/v1/hosts"], "\"online\"").await;
    assert!(machine.chat().contains("one"), "{}", machine.logs());
}

#[tokio::test]
async fn the_coordinator_serves_tls_and_follows_its_certificate() {
    let mut machine = Machine::new(&[(NAME, ADDRESS)]);
    let (certificate, key) = (machine.text("cert.pem"), machine.text("key.pem"));
    machine.init(&["--public-url", URL, "--tls-certificate", &certificate, "--tls-key", &key]);
    machine.start_nats("nats.conf", &[]);
    machine.start_network().await;
    assert!(machine.chat().contains("one"), "{}", machine.logs());
    let (_, credentials) = machine.request("ca.pem", &["/api/v1/fabric/credentials", "-X", "POST"]);
    assert!(credentials.contains("\"tls://island.example.org:4222\""), "{credentials}");

    machine.certify("new-ca.pem");
    let (status, _) = machine.request("new-ca.pem", &["/api/v1/ready"]);
    assert_ne!(status, "200", "the certificate is another one");
    eventually("the new certificate is used", || async {
        (machine.request("new-ca.pem", &["/api/v1/ready"]).0 == "200").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cluster_of_three_loses_no_job_with_any_one_of_its_nodes() {
    let nodes =
        [("n1.example.org", "10.9.9.1"), ("n2.example.org", "10.9.9.2"), ("n3.example.org", "10.9.9.3")];
    let mut names = vec![(NAME, ADDRESS)];
    names.extend(nodes);
    names.extend(nodes.map(|(_, address)| ("nats.example.org", address)));
    let mut machine = Machine::new(&names);
    let (certificate, key) = (machine.text("cert.pem"), machine.text("key.pem"));
    let servers = nodes.map(|(name, _)| format!("tls://{name}:4222")).join(",");
    let routes: Vec<String> = nodes
        .iter()
        .enumerate()
        .map(|(index, (name, _))| format!("n{}={name}:{}", index + 1, 6221 + index))
        .collect();
    let mut arguments =
        vec!["--public-url", URL, "--tls-certificate", &certificate, "--tls-key", &key, "--replicas", "3"];
    for route in &routes {
        arguments.extend(["--nats-node", route]);
    }
    arguments.extend(["--nats-url", &servers, "--nats-public-url", &servers]);
    machine.init(&arguments);
    for (index, (_, address)) in nodes.iter().enumerate() {
        machine.start_nats(&format!("nats-n{}.conf", index + 1), &["-a", address]);
    }
    machine.start_network().await;
    assert!(machine.chat().contains("one"), "{}", machine.logs());
    let keeps_events = |node: usize| {
        let store = machine.path(&format!("fabric/jetstream-n{node}/jetstream"));
        files(&store).keys().any(|path| path.iter().any(|part| part == JOB_EVENTS_STREAM))
    };
    eventually("the events are on every node", || async { (1..=3).all(keeps_events).then_some(()) }).await;
    let expected = machine.streamed("undisturbed").await;
    for (index, (_, address)) in nodes.iter().enumerate() {
        let conf = format!("nats-n{}.conf", index + 1);
        let streams: Vec<_> = (0..5).map(|number| machine.streamed(&format!("{conf}-{number}"))).collect();
        let killing = async {
            let begun = || async {
                (0..3).all(|number| machine.has_begun(&format!("{conf}-{number}"))).then_some(())
            };
            eventually("jobs are streaming", begun).await;
            let killed = machine.namespace.run("pkill", &["-KILL", "-f", &conf]);
            assert!(killed.status.success(), "{conf} was running");
        };
        let (texts, ()) = tokio::join!(futures::future::join_all(streams), killing);
        assert!(texts.iter().all(|text| *text == expected), "{conf}: {texts:?}\n{}", machine.logs());
        machine.start_nats(&conf, &["-a", address]);
        machine.wait("the coordinator has a node", &["/api/v1/ready"], "\"ok\"").await;
        machine.wait("the Island has a node", &["/api/v1/hosts"], "\"online\"").await;
    }
    assert!(machine.chat().contains("one"), "{}", machine.logs());
}

/// Every file in a folder, with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path(), fs::read(entry.path()).unwrap_or_default());
        }
    }
    found
}

#[test]
fn init_run_again_changes_only_what_it_is_given() {
    let machine = Machine::new(&[(NAME, ADDRESS)]);
    machine.init(&["--public-url", URL]);
    let settings = machine.path("coordinator.toml");
    let text = fs::read_to_string(&settings).expect("settings").replace("[fabric]", "# Ours.\n[fabric]");
    fs::write(&settings, format!("{text}\n[limits]\nconcurrent_jobs = 99 # for the fair\n")).expect("write");
    let before = files(machine.folder.path());
    machine.init(&[]);
    assert_eq!(files(machine.folder.path()), before);

    machine.init(&["--public-url", "https://other.example.org:8443"]);
    let mut after = files(machine.folder.path());
    let changed = after.remove(&settings).expect("settings");
    let changed = String::from_utf8(changed).expect("text");
    let old = String::from_utf8(before[&settings].clone()).expect("text");
    assert_eq!(changed, old.replace(URL, "https://other.example.org:8443"));
    assert!(
        after.iter().all(|(path, text)| before.get(path) == Some(text)),
        "keys and nats.conf are the same"
    );

    let output = machine.namespace.run(
        program("island-coordinator"),
        &["--config", &machine.text("coordinator.toml"), "init", "--replicas", "3"],
    );
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("nats.replicas"), "{error}");
    assert_eq!(fs::read_to_string(&settings).expect("settings"), changed, "nothing invalid is written");
}
