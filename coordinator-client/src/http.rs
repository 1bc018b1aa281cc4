//! One method per endpoint.

use std::time::Duration;

use island_protocol::{
    api::{
        AccountView, CancelledJob, CargoList, Data, Enroll, Health, HostCredentials, HostView, JobSummary,
        JobView, PREFIX, Page, RenewCredentials, SubmittedJob, WatchCredentials, WorkloadView,
    },
    ids::{HostId, JobId},
    problem::{ErrorBody, Problem},
};
use reqwest::{Method, RequestBuilder, Response};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{error::ClientError, stream::EventStream};

/// A client of one coordinator. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
}

impl Client {
    /// A client of the coordinator at `url`, with or without the version prefix.
    pub fn new(url: &str, key: Option<String>) -> Result<Self, ClientError> {
        let base = url.trim_end_matches('/').trim_end_matches(PREFIX).trim_end_matches('/').to_owned();
        let is_http = reqwest::Url::parse(&base).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_http {
            return Err(ClientError::BadUrl(url.to_owned()));
        }
        let http = reqwest::Client::builder()
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(10))
            // Streams carry a comment every 15 s: three missed ones mean that the other side is gone.
            .read_timeout(Duration::from_secs(50))
            .user_agent(concat!("island/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| ClientError::Transport { url: base.clone(), source })?;
        Ok(Self { http, base, key })
    }

    /// The coordinator's address, without the version prefix.
    pub fn base_url(&self) -> &str {
        &self.base
    }

    /// `GET /health`.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get("health", "/health").await
    }

    /// `GET /cargos`, filtered by `key=value` pairs.
    pub async fn cargos(&self, filter: &[(&str, &str)]) -> Result<CargoList, ClientError> {
        let request = self.request(Method::GET, "/cargos").query(filter);
        self.decode("cargos", request).await
    }

    /// `POST /jobs`.
    pub async fn submit_job(
        &self,
        workload: &str,
        input: Value,
        priority: u8,
    ) -> Result<SubmittedJob, ClientError> {
        let body = json!({ "workload": workload, "input": input, "priority": priority });
        self.post("submit", "/jobs", &body).await
    }

    /// `GET /jobs`.
    pub async fn jobs(&self, limit: u64, offset: u64) -> Result<Page<JobSummary>, ClientError> {
        let request = self.request(Method::GET, "/jobs").query(&[("limit", limit), ("offset", offset)]);
        self.decode("jobs", request).await
    }

    /// `GET /jobs/:id`.
    pub async fn job(&self, id: JobId) -> Result<JobView, ClientError> {
        self.get_data("job", &format!("/jobs/{id}")).await
    }

    /// `DELETE /jobs/:id`.
    pub async fn cancel_job(&self, id: JobId) -> Result<CancelledJob, ClientError> {
        let request = self.request(Method::DELETE, &format!("/jobs/{id}"));
        self.decode::<Data<_>>("cancel", request).await.map(|body| body.data)
    }

    /// `GET /jobs/:id/stream`, taken up again by itself whenever the connection breaks. Starts after event `after`.
    pub fn job_events(&self, id: JobId, after: Option<u64>) -> EventStream {
        EventStream::new(self.clone(), id, after.unwrap_or(0))
    }

    /// `GET /account`.
    pub async fn account(&self) -> Result<AccountView, ClientError> {
        self.get_data("account", "/account").await
    }

    /// `GET /workloads`.
    pub async fn workloads(&self) -> Result<Vec<WorkloadView>, ClientError> {
        self.get_data("workloads", "/workloads").await
    }

    /// `GET /workloads/:slug`.
    pub async fn workload(&self, slug: &str) -> Result<WorkloadView, ClientError> {
        self.get_data("workload", &format!("/workloads/{slug}")).await
    }

    /// `GET /hosts`.
    pub async fn hosts(&self) -> Result<Vec<HostView>, ClientError> {
        self.get_data("hosts", "/hosts").await
    }

    /// `GET /hosts/:id`.
    pub async fn host(&self, id: HostId) -> Result<HostView, ClientError> {
        self.get_data("host", &format!("/hosts/{id}")).await
    }

    /// `POST /island/enroll`.
    pub async fn enroll(&self, body: &Enroll) -> Result<HostCredentials, ClientError> {
        self.post("enroll", "/island/enroll", body).await
    }

    /// `POST /island/credentials`.
    pub async fn renew_credentials(&self, body: &RenewCredentials) -> Result<HostCredentials, ClientError> {
        self.post("credentials", "/island/credentials", body).await
    }

    /// `POST /fabric/credentials`.
    pub async fn watch_credentials(&self) -> Result<WatchCredentials, ClientError> {
        self.post("fabric credentials", "/fabric/credentials", &json!({})).await
    }

    /// A request with the key on it; `path` begins with a slash and lies under the version prefix.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{PREFIX}{path}", self.base));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request; an answer that is not a success becomes an error.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|source| self.transport(source))?;
        if response.status().is_success() { Ok(response) } else { Err(self.problem(response).await) }
    }

    pub(crate) fn transport(&self, source: reqwest::Error) -> ClientError {
        ClientError::Transport { url: self.base.clone(), source }
    }

    async fn problem(&self, response: Response) -> ClientError {
        let status = response.status().as_u16();
        let header = response.headers().get(reqwest::header::RETRY_AFTER);
        let retry_after = header.and_then(|value| value.to_str().ok()?.parse().ok());
        let text = match response.text().await {
            Ok(text) => text,
            Err(source) => return self.transport(source),
        };
        let mut problem = serde_json::from_str::<ErrorBody>(&text).map_or_else(
            // Not ours: a proxy's page, say. Its first line is more help than nothing.
            |_| Problem {
                message: text.lines().next().unwrap_or("no message").chars().take(200).collect(),
                code: "unknown".into(),
                ..Problem::default()
            },
            |body| body.error,
        );
        problem.retry_after = problem.retry_after.or(retry_after);
        ClientError::Api { status, problem: Box::new(problem) }
    }

    async fn decode<T: DeserializeOwned>(
        &self,
        what: &'static str,
        request: RequestBuilder,
    ) -> Result<T, ClientError> {
        let response = self.send(request).await?;
        let bytes = response.bytes().await.map_err(|source| self.transport(source))?;
        serde_json::from_slice(&bytes).map_err(|source| ClientError::Decode { what, source })
    }

    async fn get<T: DeserializeOwned>(&self, what: &'static str, path: &str) -> Result<T, ClientError> {
        self.decode(what, self.request(Method::GET, path)).await
    }

    async fn get_data<T: DeserializeOwned>(&self, what: &'static str, path: &str) -> Result<T, ClientError> {
        self.get::<Data<T>>(what, path).await.map(|body| body.data)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: &str,
        body: &(impl Serialize + ?Sized),
    ) -> Result<T, ClientError> {
        let request = self.request(Method::POST, path).json(body);
        self.decode::<Data<T>>(what, request).await.map(|body| body.data)
    }
}
