//! A coordinator with its fabric, its database and two accounts.

use std::{fs, path::PathBuf};

use async_nats::{ConnectOptions, jetstream};
use island_coordinator::app::App;
use island_coordinator_domain::{clock::Clock, config::Config};
use island_coordinator_storage::{setup::{create_account, create_key}, Store};
use island_protocol::{credits::MicroCredits, ids::AccountId};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{STOPPING, database, nats::Nats, process::Process, soon, within};

/// An account and its key.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) id: AccountId,
    pub(crate) key: String,
}

/// The parts of one test.
pub(crate) struct Network {
    pub(crate) nats: Nats,
    pub(crate) config: Config,
    pub(crate) url: String,
    pub(crate) consumer: Account,
    pub(crate) owner: Account,
    pub(crate) http: Client,
    soft: CancellationToken,
    hard: CancellationToken,
    pub(crate) running: Option<JoinHandle<std::io::Result<()>>>,
    /// The coordinator, if it runs as a separate process.
    process: Option<Process>,
    folder: tempfile::TempDir,
}

/// A chat Cargo that scripted Islands can run: no files, price 1 credit.
pub(crate) const ECHO: &str = r#"
slug = "echo"
name = "Echo"
description = "Repeats the script."
category = "llm"
runtime_type = "llmcpp"
price_per_job = 1
required_vram_mb = 0
required_ram_mb = 100
aliases = ["parrot"]
[limits]
timeout_s = 60
max_tokens = 100
[input_schema]
type = "object"
additionalProperties = false
[input_schema.properties]
prompt = { type = "string", maxLength = 1000 }
messages = { type = "array" }
max_tokens = { type = "integer", minimum = 1 }
temperature = { type = "number" }
[output_schema]
type = ["string", "object"]
[example]
input = { prompt = "hello" }
"#;

/// The chat Cargo with one more input, a line of its schema.
pub(crate) fn add_input(config: &Config, input: &str) {
    let text = ECHO.replace("[input_schema.properties]", &format!("[input_schema.properties]\n{input}"));
    fs::write(config.catalogue.dir.join("echo.toml"), text).expect("cargo file");
}

/// A Cargo whose output is an object.
pub(crate) const COUNT: &str = r#"
slug = "count"
name = "Count"
description = "Counts."
category = "text"
runtime_type = "llmcpp"
price_per_job = 0.25
required_vram_mb = 0
required_ram_mb = 100
[input_schema]
type = "object"
required = ["text"]
properties = { text = { type = "string" } }
[output_schema]
type = "object"
required = ["count"]
properties = { count = { type = "integer" } }
[example]
input = { text = "a b" }
output = { count = 2 }
"#;

impl Network {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// The fabric's streams, with the coordinator's permissions.
    pub(crate) async fn jetstream(&self) -> jetstream::Context {
        let options = ConnectOptions::with_credentials_file(self.path("fabric/coordinator.creds")).await;
        let client = options.expect("credentials").connect(self.nats.url()).await.expect("fabric");
        jetstream::new(client)
    }

    /// Starts everything with changed settings.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut network = Self::prepare(change).await;
        network.up().await;
        network
    }

    /// Starts everything with changed settings and the coordinator as a separate process, for [`Self::kill`].
    pub(crate) async fn start_process(change: impl FnOnce(&mut Config)) -> Self {
        let mut network = Self::prepare(change).await;
        let process = Process::start(&network.config, network.folder.path()).await;
        network.url.clone_from(&process.url);
        network.process = Some(process);
        network
    }

    /// Starts the coordinator as a process with these failures. Returns `false` if it ends before it serves.
    pub(crate) async fn start_failing(&mut self, failures: &str) -> bool {
        self.process = Process::start_failing(&self.config, self.folder.path(), failures).await;
        if let Some(process) = &self.process {
            self.url.clone_from(&process.url);
        }
        self.process.is_some()
    }

    /// Whether the process of the coordinator has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::is_running)
    }

    async fn prepare(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = |name: &str| folder.path().join(name);
        let nats = Nats::start(&path("fabric"));
        fs::create_dir(path("cargos")).expect("folder");
        fs::write(path("cargos/echo.toml"), ECHO).expect("cargo file");
        fs::write(path("cargos/count.toml"), COUNT).expect("cargo file");

        let mut config = Config::default();
        config.http.listen = "127.0.0.1:0".parse().expect("address");
        config.http.drain_s = 1;
        // Tests poll; those about limits set their own.
        config.limits.requests_per_minute = 0;
        config.database = database::fresh(folder.path());
        config.fabric.url = nats.url();
        config.fabric.dir = path("fabric");
        config.catalogue.dir = path("cargos");
        config.jobs.takeover_ms = 1_000;
        change(&mut config);

        let store = Store::open(&config.database).await.expect("database");
        let consumer = account(&store, "consumer@example.org", 10).await;
        let owner = account(&store, "owner@example.org", 0).await;
        store.close().await;
        Self {
            nats,
            config,
            url: String::new(),
            consumer,
            owner,
            http: Client::new(),
            soft: CancellationToken::new(),
            hard: CancellationToken::new(),
            running: None,
            process: None,
            folder,
        }
    }

    /// Starts the coordinator inside this process, also after [`Self::down`] or [`Self::kill`].
    pub(crate) async fn up(&mut self) {
        self.up_at(Clock::System).await;
    }

    /// Starts the coordinator with this clock.
    pub(crate) async fn up_at(&mut self, clock: Clock) {
        (self.soft, self.hard) = (CancellationToken::new(), CancellationToken::new());
        let built = App::build(&self.config, clock, self.soft.clone(), self.hard.clone()).await;
        let app = built.unwrap_or_else(|error| panic!("{}", island_daemon::chain::Chain(&error)));
        self.url = format!("http://{}/api/v1", app.address().expect("address"));
        self.running = Some(tokio::spawn(app.run()));
    }

    /// Asks the coordinator to stop, and does not wait.
    pub(crate) fn ask_to_stop(&self) {
        self.soft.cancel();
    }

    /// Requests the process of the coordinator to stop, and does not wait.
    pub(crate) fn terminate(&self) {
        self.process.as_ref().expect("the coordinator is a process").terminate();
    }

    /// Stops the coordinator in order.
    pub(crate) async fn down(&mut self) {
        self.soft.cancel();
        self.ended().await;
    }

    /// Kills the process of the coordinator with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("the coordinator is a process").kill();
    }

    async fn ended(&mut self) {
        if let Some(running) = self.running.take() {
            let ended = within(STOPPING, "the coordinator's end", running).await;
            ended.expect("no panic").expect("served");
        }
    }

    /// Another connection to the database.
    pub(crate) async fn sql(&self) -> sqlx::AnyPool {
        database::connect(&self.config.database).await
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A request with the consumer's key.
    pub(crate) fn call(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.consumer.key)
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self.call(Method::GET, path).send().await.expect("answer");
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.json().await.expect("json")
    }

    /// Submits a job of `echo` and returns its id.
    pub(crate) async fn submit(&self) -> String {
        let body = json!({"workload": "echo", "input": {"prompt": "hi", "max_tokens": 10}});
        let response = self.call(Method::POST, "/jobs").json(&body).send().await.expect("answer");
        assert_eq!(response.status(), StatusCode::CREATED);
        let body: Value = response.json().await.expect("json");
        assert_eq!(body["data"]["status"], "submitted");
        body["data"]["id"].as_str().expect("id").to_owned()
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.get(&format!("/jobs/{id}")).await["data"].clone()
    }

    /// Waits until the coordinator knows an Island that can serve a Cargo: its first heartbeat has arrived.
    pub(crate) async fn served(&self, slug: &str) {
        let seen = async {
            while self.get(&format!("/market/rates/{slug}")).await["data"][0]["num_hosts"] == 0 {
                tokio::task::yield_now().await;
            }
        };
        soon("a heartbeat", seen).await;
    }

    /// Opens the stream of a job after event `after`.
    pub(crate) async fn stream(&self, id: &str, after: u64) -> Events {
        let request = self.call(Method::GET, &format!("/jobs/{id}/stream"));
        let request = if after > 0 { request.header("Last-Event-ID", after.to_string()) } else { request };
        let response = request.send().await.expect("answer");
        assert_eq!(response.status(), StatusCode::OK);
        Events { response, buffer: String::new() }
    }

    pub(crate) async fn credits(&self, account: &Account) -> f64 {
        let request = self.http.get(format!("{}/account", self.url)).bearer_auth(&account.key);
        let body: Value = request.send().await.expect("answer").json().await.expect("json");
        body["data"]["credits"].as_f64().expect("credits")
    }

    /// Gives both accounts more credits than tests spend.
    pub(crate) async fn grant_1000_credits(&self) {
        let pool = self.sql().await;
        for statement in [
            "UPDATE balances SET amount = amount + 1000000000 WHERE ledger LIKE 'account:%'",
            "UPDATE balances SET amount = amount - 2000000000 WHERE ledger = 'platform:issue'",
            "INSERT INTO ledger_entries (id, ledger, kind, amount, created_at) \
             SELECT 'more:' || ledger, ledger, 'grant', \
             CASE WHEN ledger = 'platform:issue' THEN -2000000000 ELSE 1000000000 END, 0 FROM balances \
             WHERE ledger = 'platform:issue' OR ledger LIKE 'account:%'",
        ] {
            sqlx::query(statement).execute(&pool).await.expect("credits");
        }
        pool.close().await;
    }

    /// Checks that the ledger is balanced.
    pub(crate) async fn audit(&self) {
        let pool = self.sql().await;
        let sum: i64 =
            sqlx::query_scalar("SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM ledger_entries")
                .fetch_one(&pool)
                .await
                .expect("sum");
        let wrong: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM balances b WHERE amount \
             + (SELECT COALESCE(SUM(amount), 0) FROM uncounted_entries u WHERE u.ledger = b.ledger) <> \
             (SELECT COALESCE(SUM(amount), 0) FROM ledger_entries e WHERE e.ledger = b.ledger)",
        )
        .fetch_one(&pool)
        .await
        .expect("balances");
        let held: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM accounts a WHERE \
             (SELECT COALESCE(SUM(amount), 0) FROM balances WHERE ledger = 'holds:' || a.id) <> \
             (SELECT COALESCE(SUM(price), 0) FROM jobs WHERE account_id = a.id \
              AND status IN ('submitted', 'pending', 'queued', 'running'))",
        )
        .fetch_one(&pool)
        .await
        .expect("holds");
        assert_eq!((sum, wrong, held), (0, 0, 0), "sum, wrong balances, wrong holds");
        pool.close().await;
    }
}

/// Adds an account with this number of granted credits.
pub(crate) async fn account(store: &Store, email: &str, credits: i64) -> Account {
    let now = Clock::System.now();
    let credits = MicroCredits::from_credits(credits);
    let id = create_account(store, email, false, credits, now).await.expect("account");
    Account { id, key: create_key(store, id, "test", now).await.expect("key") }
}

/// Server-Sent Events of one response.
pub(crate) struct Events {
    response: Response,
    buffer: String,
}

/// One event: id, name, data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<u64>,
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).expect("json data")
    }
}

impl Events {
    pub(crate) fn of(response: Response) -> Self {
        Self { response, buffer: String::new() }
    }

    /// The next event; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let event = parse(frame);
                self.buffer = String::from(rest);
                if let Some(event) = event {
                    return Some(event);
                }
                continue;
            }
            let chunk = soon("an event", self.response.chunk()).await.expect("stream")?;
            self.buffer.push_str(std::str::from_utf8(&chunk).expect("whole characters"));
        }
    }

    /// All events until the end of the stream.
    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

fn parse(frame: &str) -> Option<Event> {
    let mut event = Event { id: None, name: "message".to_owned(), data: String::new() };
    for line in frame.lines() {
        match line.split_once(": ")? {
            ("id", id) => event.id = Some(id.parse().expect("number")),
            ("event", name) => event.name = String::from(name),
            ("data", data) => event.data = String::from(data),
            _ => return None,
        }
    }
    Some(event)
}
