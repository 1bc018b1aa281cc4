//! Servers of embeddings on this machine, each asked over HTTP by the same clients.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use axum::{Json, Router, extract::State, http::StatusCode, routing::post, serve::ListenerExt as _};
use island_runtimes_graph::library;
use island_runtimes_onnx::runtime::Onnx;
use serde_json::{Value, json};

use super::{Cost, embed, processor};
use crate::{systems::free_port, tree};

/// How long a server may take to load its model.
const START: Duration = Duration::from_mins(2);

/// A server that answers `POST /embed`.
#[derive(Debug)]
pub(super) struct Server {
    /// What it is, and how it was set up.
    pub(super) name: String,
    url: String,
    process: Option<Child>,
}

/// How a Python server shares its work out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) workers: usize,
    pub(super) threads: usize,
    pub(super) batch: usize,
}

impl Server {
    /// Our engine behind as little of a server as can be.
    pub(super) async fn ours(engine: &Arc<Onnx>) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let listener =
            listener.tap_io(|stream| stream.set_nodelay(true).expect("a fresh socket takes options"));
        let router = Router::new().route("/embed", post(answer)).with_state(Arc::clone(engine));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self::at("Island".to_owned(), port, None).await
    }

    /// One of the servers in `benches/onnx`.
    pub(super) async fn python(python: &Path, kind: &str, model: &Path, shape: Shape) -> Result<Self> {
        let Shape { workers, threads, batch } = shape;
        let script = tree::source(&format!("benches/onnx/serve_{kind}.py"))?;
        let port = free_port()?;
        let mut command = Command::new(python);
        command.arg(script).arg(model);
        command.args([usize::from(port), workers, threads, batch].map(|number| number.to_string()));
        command.env(library::SILENT, "1").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends its whole group, and is paused as one.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let process = command.spawn().with_context(|| format!("start {kind}"))?;
        let name = format!("{kind}, {workers} x {threads} threads, batches of {batch}");
        Self::at(name, port, Some(process)).await
    }

    async fn at(name: String, port: u16, process: Option<Child>) -> Result<Self> {
        let mut server = Self { name, url: format!("http://127.0.0.1:{port}/embed"), process };
        let http = client()?;
        let end = Instant::now() + START;
        while let Err(error) = server.ask(&http, "w5 w6").await {
            if let Some(process) = &mut server.process {
                let ended = process.try_wait()?;
                ensure!(ended.is_none(), "{} ended: see benches/peers.sh", server.name);
            }
            if Instant::now() > end {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        server.signal("STOP");
        Ok(server)
    }

    async fn ask(&self, http: &reqwest::Client, text: &str) -> Result<Vec<f64>> {
        let response = http.post(&self.url).json(&json!({ "input": text })).send().await?;
        let response = response.error_for_status()?;
        let answer: Value = response.json().await?;
        super::numbers(&answer["embedding"]).with_context(|| format!("{} gave {answer}", self.name))
    }

    /// Has all clients ask; the first text's vector.
    pub(super) async fn ask_all(&self, texts: &[String]) -> Result<(Cost, Vec<f64>)> {
        // Some poll without work, so they are suspended while others are measured. They close connections that were
        // idle meanwhile.
        self.signal("CONT");
        let http = client()?;
        self.ask(&http, "w5 w6").await?;
        let (begin, used) = (Instant::now(), self.processor_s()?);
        let vectors = super::all_of(texts.iter().map(|text| self.ask(&http, text))).await?;
        let cost = Cost { seconds: begin.elapsed().as_secs_f64(), processor_s: self.processor_s()? - used };
        self.signal("STOP");
        Ok((cost, vectors.into_iter().next().context("texts")?))
    }

    /// Processor time of all its processes so far; of ours, that of the clients too.
    fn processor_s(&self) -> Result<f64> {
        match &self.process {
            Some(process) => processor::group_s(process.id()),
            None => processor::own_s(),
        }
    }

    fn signal(&self, name: &str) {
        if let Some(process) = &self.process {
            let group = format!("-{}", process.id());
            // A server that is gone shows at the next request.
            let _ = Command::new("kill").args(["-s", name, "--", &group]).status();
        }
    }
}

fn client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().tcp_nodelay(true).build()?)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal("CONT");
        self.signal("TERM");
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
    }
}

async fn answer(
    State(engine): State<Arc<Onnx>>,
    Json(asked): Json<Value>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let wrong = || (StatusCode::BAD_REQUEST, "input must be a text".to_owned());
    let text = asked["input"].as_str().ok_or_else(wrong)?;
    let vector = embed(&engine, text).await;
    let vector = vector.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(Json(json!({ "embedding": vector })))
}
