//! Jobs: the list, one job live, and its result.

mod timeline;

use askama::Template;
use axum::{
    Json,
    body::{Body, Bytes},
    extract::Path,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use island_protocol::{job::JobStatus, time::Timestamp};
use island_protocol_api::{CancelledJob, Data, DeletedJobData, JobOutput, JobSummary, JobView, key::KeyView};
use serde_json::{Value, json};

use self::timeline::{Step, steps};
use super::{cargos::slugs, duration, keys::now, status};
use crate::{
    backend::{ApiFailure, add_parameter, encoded},
    output,
    texts::{PHASES, find, t},
    view::{Block, Cell, Field, Form, Frame, Kind, Pager, Shown, Table, Tone},
    web::{Member, Visit, done, html},
};

const PAGE: &str = "/console/jobs";

/// What the form above the list has, as it was entered.
#[derive(Debug, Clone, Default)]
struct Entered {
    status: String,
    cargo: String,
    key: String,
    from: String,
    until: String,
}

impl Entered {
    fn of(visit: &Visit) -> Self {
        let [status, cargo, key, from, until] = ["status", "cargo", "key", "from", "until"]
            .map(|name| visit.param(name).unwrap_or_default().to_owned());
        Self { status, cargo, key, from, until }
    }

    /// The query of the API, and that of this page, both without the position.
    fn queries(&self) -> (String, String) {
        let until = day(&self.until).map_or_else(|| self.until.clone(), |day| day.next_day().to_string());
        let from = day(&self.from).map_or_else(|| self.from.clone(), |day| day.to_string());
        let (mut api, mut page) = (String::new(), String::new());
        for (name, parameter, entered, value) in [
            ("status", "status", &self.status, &self.status),
            ("cargo", "workload", &self.cargo, &self.cargo),
            ("key", "key", &self.key, &self.key),
            ("from", "from", &self.from, &from),
            ("until", "until", &self.until, &until),
        ] {
            if !entered.is_empty() {
                add_parameter(&mut api, parameter, value);
                page = format!("{page}{name}={}&", encoded(entered));
            }
        }
        (api, page)
    }

    /// The form, which suggests Cargos. `keys` is `None` for a session that may not list them.
    fn form(self, keys: Option<Vec<KeyView>>, cargos: Vec<String>) -> Form {
        let unset = |text| std::iter::once((String::new(), t(text).to_owned()));
        let states = JobStatus::ALL.iter().map(|state| (state.to_string(), status(*state).1));
        let states = Kind::Choice(unset("jobs.any").chain(states).collect());
        let keys = keys.map_or(Kind::Line, |keys| {
            let keys = keys.into_iter().map(|key| (key.id.to_string(), key.name));
            // What was chosen stays in the form after the key was revoked.
            let mut keys: Vec<_> = unset("usage.all_keys").chain(keys).collect();
            if !keys.iter().any(|(id, _)| *id == self.key) {
                keys.push((self.key.clone(), self.key.clone()));
            }
            Kind::Choice(keys)
        });
        Form::filter(
            PAGE,
            vec![
                Field::new("status", t("jobs.status"), states).value(self.status),
                Field::new("cargo", t("jobs.cargo"), Kind::Suggested(cargos)).value(self.cargo),
                Field::new("key", t("usage.key"), keys).value(self.key),
                Field::new("from", t("jobs.from"), Kind::Date).value(self.from),
                Field::new("until", t("jobs.until"), Kind::Date).value(self.until),
            ],
        )
    }
}

/// The begin of a day, UTC, as a browser sends it; `None` leaves anything else to the API to refuse.
fn day(text: &str) -> Option<Timestamp> {
    serde_json::from_value(format!("{text}T00:00:00Z").into()).ok()
}

/// `GET /console/jobs`.
pub(super) async fn list(member: Member) -> Response {
    let offset = member.visit.offset();
    let entered = Entered::of(&member.visit);
    let (query, own) = entered.queries();
    let path = format!("/jobs?limit=25&offset={offset}{query}");
    let (page, keys, cargos) = futures::join!(
        member.visit.api.page::<JobSummary>(&path),
        member.visit.api.get::<Vec<KeyView>>("/api-keys"),
        slugs(&member.visit),
    );
    let page = match page {
        Ok(page) => page,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let row = |job: &JobSummary| {
        let (tone, text) = status(job.status);
        vec![
            Cell::link(format!("/console/jobs/{}", job.id), job.workload_slug.to_string()),
            Cell::Badge(tone, text),
            Cell::Time(job.created_at),
            Cell::time(job.completed_at),
            job.duration_ms.map_or(Cell::Nothing, |ms| Cell::number(duration(ms))),
        ]
    };
    let columns = ["jobs.cargo", "jobs.status", "jobs.created", "jobs.ended", "jobs.duration"];
    let none = if own.is_empty() { "jobs.none" } else { "jobs.none_such" };
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t(none).to_owned(),
        pager: Pager::new(&format!("{PAGE}?{own}"), page.meta),
        refresh: Some(format!("{PAGE}?{own}offset={offset}")),
        id: "jobs",
        ..Table::default()
    };
    let new = Block::Links(vec![("/console/cargos".to_owned(), t("jobs.new").to_owned())]);
    let blocks = vec![new, Block::Form(entered.form(keys.ok(), cargos)), Block::Table(table)];
    member.page(t("jobs.title"), t("jobs.lead"), blocks)
}

/// `POST /console/jobs`: a script of the console submits a job, as JSON in the form of the API.
pub(super) async fn create(member: Member, headers: HeaderMap, body: Body) -> Response {
    let mut passed = HeaderMap::new();
    for name in ["content-type", "content-length", "idempotency-key"] {
        if let Some(value) = headers.get(name) {
            passed.insert(name, value.clone());
        }
    }
    answer(member.visit.api.send(Method::POST, "/jobs", body, &passed).await)
}

/// The API's own answer, for a script.
fn answer(answer: Result<Response, ApiFailure>) -> Response {
    answer.unwrap_or_else(|failure| {
        tracing::error!(error = &failure as &dyn std::error::Error, "a request of the console failed");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
}

#[derive(Debug, Template)]
#[template(path = "job.html")]
struct Job {
    frame: Frame,
    id: String,
    is_open: bool,
    is_prose: bool,
    badge: (Tone, String),
    steps: Vec<Step>,
    /// When the page was made: its script shows times by this clock.
    now: Timestamp,
    waiting: String,
    /// For the script: of each state the class of its badge and its text, as JSON.
    states: String,
    before: Vec<Block>,
    result: Vec<Block>,
    after: Vec<Block>,
}

/// `GET /console/jobs/:id`.
pub(super) async fn get(member: Member, Path(id): Path<String>) -> Response {
    let job: JobView = match member.visit.api.get(&format!("/jobs/{}", encoded(&id))).await {
        Ok(job) => job,
        Err(failure) => return member.failed(failure, "/console/jobs"),
    };
    let is_open = !job.status.is_final();
    let result = result(&job);
    let has_prose = result.iter().any(|block| matches!(block, Block::Prose(..)));
    let mut frame = member.frame(job.workload_slug.to_string());
    frame.scripts.extend(is_open.then_some("job.js"));
    frame.scripts.extend(has_prose.then_some("prose.js"));
    html(&Job {
        frame,
        id: job.id.to_string(),
        is_open,
        is_prose: is_prose(&job),
        badge: status(job.status),
        steps: steps(&job),
        now: now(),
        waiting: job.waiting_reason.clone().unwrap_or_default(),
        states: states(),
        before: before(&job),
        result,
        after: after(&job, is_open),
    })
}

/// The text of a phase.
pub(super) fn phase(name: &str) -> &str {
    find(&format!("phase.{name}")).unwrap_or(name)
}

/// Of each state the class of its badge and its text, and the texts of the phases, which have no badge.
pub(super) fn states() -> String {
    let states = JobStatus::ALL.iter().map(|state| {
        let (tone, text) = status(*state);
        (state.to_string(), json!([tone.class(), text]))
    });
    let phases = PHASES.iter().map(|name| ((*name).to_owned(), json!([null, phase(name)])));
    Value::Object(states.chain(phases).collect()).to_string()
}

fn before(job: &JobView) -> Vec<Block> {
    let mut facts = vec![(t("jobs.id").to_owned(), Cell::Code(job.id.to_string()))];
    if let Some(ms) = job.duration_ms {
        facts.push((t("jobs.duration").to_owned(), Cell::number(duration(ms))));
    }
    if let Some(usage) = &job.usage {
        if let Some(credits) = usage.credits_used {
            facts.push((t("jobs.cost").to_owned(), Cell::Credits(credits)));
        }
        if usage.total_tokens > 0 {
            let tokens = format!("{} + {}", usage.prompt_tokens, usage.completion_tokens);
            facts.push((t("jobs.tokens").to_owned(), Cell::number(tokens)));
        }
        if let Some(device) = &usage.device {
            facts.push((t("jobs.device").to_owned(), Cell::text(device.clone())));
        }
        if let Some(fuel) = usage.fuel {
            facts.push((t("jobs.fuel").to_owned(), Cell::number(fuel)));
        }
    }
    vec![Block::Facts(facts)]
}

/// Whether the text of a job is written by a language model, which marks lists and code in it.
fn is_prose(job: &JobView) -> bool {
    ["messages", "prompt"].iter().any(|name| job.input.contains_key(*name))
}

fn result(job: &JobView) -> Vec<Block> {
    if let Some(error) = &job.error {
        return vec![Block::Notice(Tone::Bad, format!("{} ({})", error.message, error.code))];
    }
    if let Some(at) = job.data_deleted_at {
        return vec![Block::Facts(vec![(t("jobs.deleted").to_owned(), Cell::Time(at))])];
    }
    let Some(output) = &job.output else { return Vec::new() };
    let mut blocks = match output {
        Value::String(text) if is_prose(job) && output::recognize(text).is_none() => {
            vec![output::prose(text)]
        }
        output => output::blocks(job.id, output),
    };
    let download = format!("/console/jobs/{}/output", job.id);
    blocks.push(Block::Links(vec![(download, t("output.download_all").to_owned())]));
    blocks
}

fn after(job: &JobView, is_open: bool) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(Value::Array(messages)) = job.input.get("messages") {
        let last = messages.last().and_then(|message| message["content"].as_str());
        blocks.extend(last.map(|text| output::text_block(t("jobs.prompt"), text)));
    } else if let Some(text) =
        job.input.get("prompt").or_else(|| job.input.get("text")).and_then(Value::as_str)
    {
        blocks.push(output::text_block(t("jobs.prompt"), text));
    }
    let input = output::blocks(job.id, &json!(job.input));
    // Files of an input cannot be addressed: only outputs can.
    let input = input.into_iter().filter(|block| !matches!(block, Block::Media(_)));
    blocks.push(Block::Fold(t("jobs.input").to_owned(), input.collect()));
    let path = format!("/console/jobs/{}", job.id);
    let again = format!("/console/cargos/{}?job={}", encoded(&job.workload_slug.to_string()), job.id);
    blocks.push(Block::Links(vec![(again, t("jobs.again").to_owned())]));
    if !is_open && job.data_deleted_at.is_none() {
        let delete = Form::button(format!("{path}/delete"), t("jobs.delete"), t("jobs.delete"));
        let delete = delete.bad().confirm(t("jobs.delete_confirm"));
        blocks.push(Block::Form(delete));
    }
    blocks
}

/// `GET /console/jobs/:id/stream`: the events of a job, as the API streams them.
pub(super) async fn stream(member: Member, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let mut passed = HeaderMap::new();
    if let Some(last) = headers.get("last-event-id") {
        passed.insert("last-event-id", last.clone());
    }
    let mut path = format!("/jobs/{}/stream", encoded(&id));
    if let Some(after) = member.visit.param("after") {
        path = format!("{path}?last_event_id={}", encoded(after));
    }
    answer(member.visit.api.send(Method::GET, &path, Body::empty(), &passed).await)
}

async fn read_output(member: &Member, id: &str) -> Result<JobOutput, ApiFailure> {
    member.visit.api.get(&format!("/jobs/{}/output", encoded(id))).await
}

/// `GET /console/jobs/:id/part?at=…`: a file within an output.
pub(super) async fn part(member: Member, Path(id): Path<String>) -> Response {
    let output = match read_output(&member, &id).await {
        Ok(output) => output.output,
        Err(failure) => return failure.status().into_response(),
    };
    let pointer = member.visit.query.get("at").map(String::as_str).unwrap_or_default();
    let found = output.pointer(pointer).and_then(Value::as_str);
    let file = found.and_then(|text| {
        let kind = output::recognize(text)?;
        Some((kind, BASE64_STANDARD.decode(text.trim_end()).ok()?))
    });
    let Some((kind, bytes)) = file else { return StatusCode::NOT_FOUND.into_response() };
    // The link of a page names the file; this name is for what has no player in a page.
    let name = (kind.shown == Shown::File).then(|| format!("{}.{}", encoded(&id), kind.extension));
    (sandboxed(kind.media_type, name), Bytes::from(bytes)).into_response()
}

/// `GET /console/jobs/:id/output`: the whole output as a file.
pub(super) async fn output(member: Member, Path(id): Path<String>) -> Response {
    let JobOutput { id, output } = match read_output(&member, &id).await {
        Ok(output) => output,
        Err(failure) => return member.failed(failure, "/console/jobs"),
    };
    match output {
        Value::String(text) => {
            (sandboxed("text/plain; charset=utf-8", Some(format!("{id}.txt"))), text).into_response()
        }
        output => {
            let text = serde_json::to_string_pretty(&output).unwrap_or_default();
            (sandboxed("application/json", Some(format!("{id}.json"))), text).into_response()
        }
    }
}

/// Headers of a file that a model made: shown as what it is, and never run.
fn sandboxed(kind: &'static str, name: Option<String>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    let disposition = name.map(|name| HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")));
    if let Some(Ok(disposition)) = disposition {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    headers
}

/// `POST /console/jobs/:id/cancel`.
pub(super) async fn cancel(member: Member, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let cancelled = member.visit.api.delete::<Data<CancelledJob>>(&format!("/jobs/{}", encoded(&id))).await;
    // A script needs no page.
    let is_script = headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/json");
    let page = format!("/console/jobs/{}", encoded(&id));
    match cancelled {
        Ok(cancelled) if is_script => Json(cancelled).into_response(),
        Ok(_) => Redirect::to(&page).into_response(),
        Err(failure) if is_script => failure.status().into_response(),
        Err(failure) => member.failed(failure, &page),
    }
}

/// `POST /console/jobs/:id/delete`: deletes input, output and events.
pub(super) async fn delete(member: Member, Path(id): Path<String>) -> Response {
    let page = format!("/console/jobs/{}", encoded(&id));
    match member.visit.api.delete::<Data<DeletedJobData>>(&format!("/jobs/{}/data", encoded(&id))).await {
        Ok(_) => done(&page, "deleted"),
        Err(failure) => member.failed(failure, &page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_knows_every_state() {
        let states: Value = serde_json::from_str(&states()).expect("JSON");
        for state in JobStatus::ALL {
            assert!(states[state.to_string()][0].is_string() && states[state.to_string()][1].is_string());
        }
        assert_eq!(states["loading"], json!([null, t("phase.loading")]));
    }

    #[test]
    fn the_text_of_a_language_model_is_formatted() {
        let is_formatted = |input: Value, output: Value| {
            let job = json!({
                "id": "0192f1a0-0000-7000-8000-000000000000",
                "workload_slug": "some-cargo",
                "status": JobStatus::Completed,
                "input": input,
                "output": output,
                "created_at": "2026-11-26T10:00:00.000Z",
            });
            let job: JobView = serde_json::from_value(job).expect("a job");
            result(&job).iter().any(|block| matches!(block, Block::Prose(..)))
        };
        assert!(is_formatted(json!({"messages": []}), json!("**x**")));
        assert!(is_formatted(json!({"prompt": "x"}), json!("x")));
        assert!(!is_formatted(json!({"audio": "x"}), json!("x")), "a transcript has no marks");
        assert!(!is_formatted(json!({"prompt": "x"}), json!({"images": []})));
    }

    #[test]
    fn what_is_entered_becomes_a_query() {
        let none = Entered::default().queries();
        assert_eq!(none, (String::new(), String::new()));
        let entered = Entered {
            status: "failed".to_owned(),
            cargo: "a&b".to_owned(),
            from: "2026-11-01".to_owned(),
            until: "2026-11-30".to_owned(),
            ..Entered::default()
        };
        let (api, page) = entered.queries();
        assert_eq!(
            api,
            "&status=failed&workload=a%26b&from=2026-11-01T00%3A00%3A00.000Z&until=2026-12-01T00%3A00%3A00.000Z"
        );
        assert_eq!(page, "status=failed&cargo=a%26b&from=2026-11-01&until=2026-11-30&");
        let wrong = Entered { from: "soon".to_owned(), ..Entered::default() }.queries();
        assert_eq!(wrong.0, "&from=soon", "the API refuses it");
    }
}
