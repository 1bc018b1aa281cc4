//! What open pages of the console cost a coordinator at rest: a hundred pages of a job that waits, each with its stream of events, and a
//! hundred open lists, which are read again once a minute while nothing changes. The floor is the same coordinator without a page.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use reqwest::{
    Client, RequestBuilder,
    header::{CONTENT_TYPE, COOKIE, ORIGIN, SET_COOKIE},
    redirect::Policy,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    footprint::{child_of, ticks},
    report::{Better, Report},
    systems::Network,
};

/// After pages were opened or closed.
const SETTLE: Duration = Duration::from_secs(5);
/// Longest pause of a list that does not change, as `console/blocks/static/page.js` has it.
const LIST_EVERY: Duration = Duration::from_mins(1);
/// Hundredths of a second, in which the kernel counts processor time.
const TICKS: f64 = 100.0;

/// What is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Jobs,
    Lists,
}

/// A browser that is signed in.
#[derive(Debug, Clone)]
struct Browser {
    http: Client,
    url: String,
    cookie: String,
}

impl Browser {
    /// Signs in by the form, as a person does.
    async fn sign_in(url: &str, key: &str) -> Result<Self> {
        let http = Client::builder().redirect(Policy::none()).build()?;
        // A key has no character that a form would write otherwise.
        let request = http.post(format!("{url}/console/sign-in")).header(ORIGIN, url);
        let request = request
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(format!("key={key}&next="));
        let answer = request.send().await?.error_for_status()?;
        let cookie = answer.headers().get(SET_COOKIE).context("the sign-in sets a cookie")?.to_str()?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { http, url: url.to_owned(), cookie })
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.url)).header(COOKIE, &self.cookie)
    }

    /// Opens the page of a job and follows its events, which never ends while the job waits.
    async fn follow(self, job: String, opened: tokio::sync::mpsc::Sender<()>) -> Result<()> {
        self.get(&format!("/console/jobs/{job}")).send().await?.error_for_status()?.bytes().await?;
        let stream = self.get(&format!("/console/jobs/{job}/stream")).send().await?.error_for_status()?;
        let mut events = stream.bytes_stream();
        let first = events.next().await.context("a stream begins with the state of the job")??;
        ensure!(!first.is_empty(), "an empty event");
        opened.send(()).await?;
        while let Some(piece) = events.next().await {
            piece?;
        }
        bail!("the stream of a job that waits ended")
    }

    /// Opens the list of jobs, and reads it again as its script does. `share` of the pause passes before the first time.
    async fn list(self, share: f64, opened: tokio::sync::mpsc::Sender<()>) -> Result<()> {
        let read = async || self.get("/console/jobs").send().await?.error_for_status()?.bytes().await;
        read().await?;
        opened.send(()).await?;
        tokio::time::sleep(LIST_EVERY.mul_f64(share)).await;
        loop {
            read().await?;
            tokio::time::sleep(LIST_EVERY).await;
        }
    }
}

/// The pages of one kind. Dropping them closes them.
struct Pages(JoinSet<Result<()>>);

impl Pages {
    async fn open(what: Open, browsers: &[Browser], job: &str) -> Result<Self> {
        let mut tasks = JoinSet::new();
        let (opened, mut count) = tokio::sync::mpsc::channel(browsers.len());
        if what != Open::Nothing {
            for (number, browser) in browsers.iter().enumerate() {
                let (browser, opened) = (browser.clone(), opened.clone());
                let (job, share) = (job.to_owned(), number as f64 / browsers.len() as f64);
                tasks.spawn(async move {
                    if what == Open::Jobs {
                        browser.follow(job, opened).await
                    } else {
                        browser.list(share, opened).await
                    }
                });
            }
            for _ in browsers {
                tokio::select! {
                    opened = count.recv() => opened.context("a page is open")?,
                    Some(ended) = tasks.join_next() => ended??,
                }
            }
        }
        Ok(Self(tasks))
    }

    /// All of them are still open.
    fn check(&mut self) -> Result<()> {
        while let Some(ended) = self.0.try_join_next() {
            ended??;
        }
        Ok(())
    }
}

/// Measures for `seconds` in each round.
pub(crate) async fn run(rounds: usize, pages: usize, seconds: u64) -> Result<Report> {
    ensure!(
        rounds > 1 && pages > 0 && seconds > 0,
        "rounds must be more than one, pages and seconds at least one"
    );
    let network = Network::start_without_islands().await?;
    let (url, key) = (network.api_url(), network.api_key());
    let coordinator =
        child_of(network.process(), "island-coordinator").context("the network has no coordinator")?;
    // No Island is there, so the job waits.
    let body = json!({"workload": "sim-chat", "input": {"prompt": "x"}});
    let submitted =
        Client::new().post(format!("{url}/api/v1/jobs")).bearer_auth(key).json(&body).send().await?;
    let submitted: serde_json::Value = submitted.error_for_status()?.json().await?;
    let job = submitted["data"]["id"].as_str().context("an id")?;
    let mut browsers = Vec::with_capacity(pages);
    for _ in 0..pages {
        browsers.push(Browser::sign_in(url, key).await?);
    }
    let kinds = [Open::Nothing, Open::Jobs, Open::Lists];
    let mut shares = kinds.map(|_| Vec::new());
    for round in 0..rounds {
        for (what, shares) in kinds.into_iter().zip(&mut shares) {
            let mut open = Pages::open(what, &browsers, job).await?;
            tokio::time::sleep(SETTLE).await;
            let before = ticks(coordinator)?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let used = ticks(coordinator)? - before;
            open.check()?;
            // The first round warms up.
            if round > 0 {
                shares.push(used as f64 / TICKS / seconds as f64 * 100.0);
            }
        }
    }
    let memory =
        fs::read_to_string(format!("/proc/{coordinator}/statm")).context("read the coordinator's memory")?;
    let [floor, jobs, lists] = shares;
    let mut report = Report::new(
        "Open pages of the console",
        format!("{pages} pages, {seconds} s, {} rounds", rounds - 1),
    );
    report.figure("no page", ("% of a core", Better::Lower), &floor);
    report.figure(format!("{pages} pages of a waiting job"), ("% of a core", Better::Lower), &jobs);
    report.figure(format!("{pages} lists of jobs"), ("% of a core", Better::Lower), &lists);
    let pages_of_memory =
        memory.split_whitespace().nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    report.note(format!("the coordinator has {} MiB resident at the end", pages_of_memory * 4 / 1024));
    Ok(report)
}
