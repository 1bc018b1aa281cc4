//! Metrics, alerts and dashboards fit together: what a running network serves, what the guides list, and what a Prometheus server
//! makes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use island_integration::{Network, Options, expect::final_job};
use island_testing::port::free_port;
use serde_json::{Value, json};
use tempfile::TempDir;

const DASHBOARDS: [&str; 3] = ["operator", "owner", "jobs"];
/// The current form of a dashboard.
const SCHEMA: u64 = 39;
/// Labels that Prometheus adds.
const ADDED: [&str; 3] = ["instance", "job", "le"];
/// Metrics that have no value on a machine without TLS, without a GPU and without refusals; the scripted engine reports no device.
const ABSENT: [&str; 6] = [
    "assignments_refused",
    "certificate_expires",
    "island_device_jobs",
    "island_engine_device",
    "island_gpu_",
    "island_refusals_total",
];

fn root() -> PathBuf {
    island_testing::workspace()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("read")
}

/// A program of the package that `scripts/setup.sh test` unpacks.
fn installed(program: &str) -> PathBuf {
    let path = root().join(".tools/prometheus/usr/bin").join(program);
    assert!(path.is_file(), "{} is missing: run `scripts/setup.sh test` first", path.display());
    path
}

/// The labels of each metric of a guide's table.
fn documented(guide: &str) -> BTreeMap<String, BTreeSet<String>> {
    let guide = read(guide);
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = guide.lines().skip_while(|line| !line.starts_with("| metric |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let metric = |row: &str| {
        let cells: Vec<_> = row.split('|').collect();
        (names(cells[1]).pop_first().expect("a name"), names(cells[3]))
    };
    rows.map(metric).collect()
}

/// An expression of Prometheus and where it is.
#[derive(Debug, Clone)]
struct Query {
    place: String,
    expression: String,
}

impl Query {
    /// The expression without a dashboard's variables.
    fn plain(&self) -> String {
        let fixed = [("$__rate_interval", "30s"), ("$__range", "1h")];
        let any = ["$instance", "$cargo", "$engine", "$island"].map(|variable| (variable, ".*"));
        fixed.iter().chain(&any).fold(self.expression.clone(), |text, (from, to)| text.replace(from, to))
    }

    /// Names of our metrics.
    fn metrics(&self) -> BTreeSet<String> {
        let words = self.expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("island_")).map(str::to_owned).collect()
    }

    /// Names of labels: in selectors, and behind `by`.
    fn labels(&self) -> BTreeSet<String> {
        let between = |open: &str, close: char| -> Vec<String> {
            let parts = self.expression.split(open).skip(1);
            parts.filter_map(|part| Some(part.split_once(close)?.0.to_owned())).collect()
        };
        let names = |part: String| -> Vec<String> {
            let name =
                |item: &str| item.trim().split(['=', '!', '~']).next().unwrap_or_default().trim().to_owned();
            part.split(',').map(name).collect()
        };
        between("{", '}').into_iter().chain(between("by (", ')')).flat_map(names).collect()
    }
}

/// The queries of all dashboards, which are checked for what every panel must have.
fn panels() -> Vec<Query> {
    let mut queries = Vec::new();
    for name in DASHBOARDS {
        let dashboard: Value =
            serde_json::from_str(&read(&format!("packaging/dashboards/{name}.json"))).expect("JSON");
        assert_eq!(dashboard["schemaVersion"], SCHEMA, "{name}");
        assert_eq!(dashboard["uid"], format!("island-{name}"));
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().expect("a title");
            let place = format!("{name}: {title}");
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{place} has the id of another panel");
            let [x, y, w, h] =
                ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
            assert!(x + w <= 24, "{place} is too wide");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{place} covers another panel");
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(
                panel["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{place} has no description"
            );
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{place} has no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{place}");
            for target in panel["targets"].as_array().expect("targets") {
                assert!(target["legendFormat"].as_str().is_some_and(|legend| !legend.is_empty()), "{place}");
                let expression = target["expr"].as_str().expect("an expression").to_owned();
                queries.push(Query { place: place.clone(), expression });
            }
        }
        for variable in dashboard["templating"]["list"].as_array().expect("variables") {
            let Some(definition) = variable["definition"].as_str() else { continue };
            let inside = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (metric, label) =
                inside.and_then(|inside| inside.split_once(", ")).expect("values of a label");
            let expression = format!("count by ({label}) ({metric})");
            queries.push(Query { place: format!("{name}: {}", variable["name"]), expression });
        }
    }
    queries
}

/// The queries of all alerts, of the file as `promtool` reads it.
async fn alerts(prometheus: &Prometheus) -> Vec<Query> {
    let rules = prometheus.get("/api/v1/rules").await;
    let mut queries = Vec::new();
    for rule in rules["data"]["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .filter_map(|group| group["rules"].as_array())
        .flatten()
    {
        let place = format!("alert {}", rule["name"]);
        assert!(
            rule["annotations"]["summary"].is_string() && rule["annotations"]["runbook"].is_string(),
            "{place}"
        );
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("critical" | "warning")), "{place}");
        queries.push(Query { place, expression: rule["query"].as_str().expect("a query").to_owned() });
    }
    queries
}

/// A Prometheus server with the alerts, which scrapes a network every second.
struct Prometheus {
    child: Child,
    url: String,
    http: reqwest::Client,
    _folder: TempDir,
}

impl Prometheus {
    fn start(coordinator: &str, agent: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [root().join("packaging/alerts/island.yml")],
            "scrape_configs": [
                {"job_name": "island-coordinator", "static_configs": [{"targets": [coordinator]}]},
                {"job_name": "island-agent", "static_configs": [{"targets": [agent]}]},
            ],
        });
        // YAML contains JSON.
        fs::write(folder.path().join("prometheus.yml"), settings.to_string()).expect("write");
        let mut child = Command::new(installed("prometheus"))
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start prometheus");
        let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines();
        let listens = |line: &String| line.contains("\"Listening on\"");
        let line = lines.by_ref().map(|line| line.expect("text")).find(listens).expect("it listens");
        let address = line.rsplit_once("address=").expect("an address").1.to_owned();
        // It must not wait for a reader of its log.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: format!("http://{address}"), http: reqwest::Client::new(), _folder: folder }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await.expect("an answer");
        answer.json().await.expect("JSON")
    }

    /// The number of series of a result.
    async fn series(&self, query: &Query) -> usize {
        let request = self.http.get(format!("{}/api/v1/query", self.url)).query(&[("query", query.plain())]);
        let answer: Value = request.send().await.expect("an answer").json().await.expect("JSON");
        assert_eq!(answer["status"], "success", "{query:?}: {answer}");
        answer["data"]["result"].as_array().expect("a result").len()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn every_panel_and_alert_uses_metrics_that_a_running_network_serves() {
    let (coordinator, agent) = (format!("127.0.0.1:{}", free_port()), free_port());
    let network = Network::start_with(&Options {
        coordinator: vec![("HTTP__METRICS", coordinator.clone())],
        agent: vec![("PAGE__PORT", agent.to_string())],
        ..Options::default()
    });
    let agent = format!("127.0.0.1:{agent}");
    let prometheus = Prometheus::start(&coordinator, &agent);
    let client = network.client();
    let run = async |words: u32| {
        let input = json!({ "prompt": "once upon a time", "max_tokens": words, "delay_ms": 5 });
        client.submit_job("sim-chat", input, 0).await.expect("submit").id
    };
    final_job(&client, run(20).await).await;
    let cancelled = run(100_000).await;
    client.cancel_job(cancelled).await.expect("cancel");
    // Still open while the queries are evaluated.
    let open = run(100_000).await;

    let page =
        reqwest::get(format!("http://{agent}/metrics")).await.expect("an answer").text().await.expect("text");
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let served: BTreeSet<_> = types
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    let islands = documented("docs/owners.md");
    assert_eq!(served, islands.keys().cloned().collect(), "docs/owners.md lists the metrics of an Island");

    let mut known = documented("docs/operators.md");
    known.extend(islands);
    let mut queries = panels();
    queries.extend(alerts(&prometheus).await);
    assert!(queries.len() > 80, "{queries:?}");
    for query in &queries {
        let mut labels: BTreeSet<String> = ADDED.map(str::to_owned).into();
        for name in query.metrics() {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let found = known.get(&name).or_else(|| known.get(base?));
            let found = found.unwrap_or_else(|| panic!("{} uses {name}, which nothing serves", query.place));
            labels.extend(found.iter().cloned());
        }
        let used = query.labels();
        assert!(used.is_subset(&labels), "{}: {used:?} of {labels:?}", query.place);
    }

    // Alerts are evaluated as well, but most of them show nothing.
    let shows_nothing = |query: &Query| {
        let is_absent = |name: &String| ABSENT.iter().any(|part| name.contains(part));
        query.place.starts_with("alert") || query.metrics().iter().all(is_absent)
    };
    let (silent, mut rest): (Vec<_>, Vec<_>) = queries.into_iter().partition(shows_nothing);
    for query in &silent {
        prometheus.series(query).await;
    }
    // A rate needs two scrapes.
    let shown = async {
        while !rest.is_empty() {
            let mut missing = Vec::new();
            for query in rest.drain(..) {
                if prometheus.series(&query).await == 0 {
                    missing.push(query);
                }
            }
            rest = missing;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let shown = tokio::time::timeout(Duration::from_mins(1), shown).await;
    assert!(shown.is_ok(), "these show nothing: {rest:#?}");
    let firing = prometheus.get("/api/v1/alerts").await;
    let critical = firing["data"]["alerts"].as_array().expect("alerts").iter();
    let critical: Vec<_> = critical
        .filter(|alert| alert["labels"]["severity"] == "critical" && alert["state"] == "firing")
        .collect();
    assert!(critical.is_empty(), "{critical:?}");
    client.cancel_job(open).await.expect("cancel");
}

/// The packaged settings of Prometheus scrape under the names that the alerts expect.
#[test]
fn the_packaged_settings_of_prometheus_are_valid() {
    let settings = root().join("packaging/alerts/prometheus.yml");
    // The rules are where the package has them.
    let ran = Command::new(installed("promtool"))
        .args(["check", "config", "--syntax-only"])
        .arg(&settings)
        .output()
        .expect("run promtool");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let (settings, rules) = (read("packaging/alerts/prometheus.yml"), read("packaging/alerts/island.yml"));
    let jobs: Vec<_> = rules.split("job=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(!jobs.is_empty(), "alerts name jobs");
    for job in jobs {
        assert!(settings.contains(&format!("job_name: {job}\n")), "{job} is not scraped");
    }
}

/// Each alert fires when it should, and none while all is well.
#[test]
fn alerts_fire_when_they_should() {
    let rules = root().join("packaging/alerts");
    let ran = Command::new(installed("promtool"))
        .args(["test", "rules", "island.test.yml"])
        .current_dir(&rules)
        .output()
        .expect("run promtool");
    assert!(
        ran.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
    let tests = fs::read_to_string(rules.join("island.test.yml")).expect("read");
    let text = fs::read_to_string(rules.join("island.yml")).expect("read");
    for alert in text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert} has no test");
    }
}
