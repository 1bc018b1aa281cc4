//! A scripted coordinator.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

const ID: &str = "0190f3f0-0000-7000-8000-00000000000";
/// Beginning of an id that no other shares.
const OTHER_ID: &str = "0291aaaa-0000-7000-8000-00000000000";

/// The coordinator, and what it was asked.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) last_event: Option<String>,
    pub(crate) body: String,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        let router =
            Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let kept = Arc::clone(&kept);
                async move {
                    let answer = answer(&kept, &method, &uri, &headers, &body);
                    if method == Method::DELETE && uri.path().ends_with(&format!("{ID}a")) {
                        std::future::pending::<()>().await;
                    }
                    answer
                }
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

fn answer(
    kept: &Mutex<Vec<ReceivedRequest>>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    let path = uri.path().trim_start_matches("/api/v1");
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let line =
        format!("{method} {}", uri.path_and_query().expect("a path").as_str().trim_start_matches("/api/v1"));
    let body = String::from_utf8(body.to_vec()).expect("text");
    let mut asked = kept.lock().expect("not poisoned");
    asked.push(ReceivedRequest { line, last_event: text("last-event-id"), body: body.clone() });
    let times = asked.iter().filter(|asked| asked.line.ends_with("/stream")).count();
    if let Some(answer) = without_key(method, path, text("authorization").is_some(), &body) {
        return answer;
    }
    let email = match text("authorization").as_deref() {
        None => return problem(401, r#""message":"this needs an API key","code":"missing_api_key""#),
        Some("Bearer ak_one") => "one@example.org",
        Some("Bearer ak_two") => "two@example.org",
        Some("Bearer ak_three") => "three@example.org",
        Some(_) => return problem(401, r#""message":"this key is not known","code":"invalid_api_key""#),
    };
    if uri.query().is_some_and(|query| query.contains("format=csv")) {
        return ([(header::CONTENT_TYPE, "text/csv")], CSV).into_response();
    }
    match (method, path) {
        (&Method::GET, "/account") => json(200, ACCOUNT.replace("EMAIL", email)),
        (&Method::POST, "/jobs") => submitted(&body),
        (_, path) if path.starts_with("/jobs/") => job(method, &path["/jobs/".len()..], times),
        _ => others(method, path, &body),
    }
}

/// What is answered without a key; `None` if one is needed.
fn without_key(method: &Method, path: &str, has_key: bool, body: &str) -> Option<Response> {
    Some(match (method, path) {
        (&Method::POST, "/signup") if has_key => {
            problem(400, r#""message":"this needs no API key","code":"invalid_request""#)
        }
        (&Method::POST, "/signup") if body.contains("USED-UP") => {
            problem(403, r#""message":"this invitation is not valid","code":"invalid_invitation""#)
        }
        (&Method::POST, "/login") if !body.contains("\"code\":\"aB3\"") => {
            problem(403, r#""message":"this code is unknown","code":"login_failed""#)
        }
        (&Method::POST, "/signup" | "/login") => {
            let account = ACCOUNT.replace("EMAIL", "one@example.org");
            json(201, format!(r#"{},"key":"ak_one"}}"#, account.strip_suffix('}').expect("an object")))
        }
        (&Method::GET, "/network/stats") => {
            json(200, r#"{"data":{"online_islands":2,"regions":1,"jobs_completed":40}}"#)
        }
        (&Method::GET, "/network/notices") => {
            json(200, format!(r#"{{"data":{}}}"#, NOTICES.replace("NOTICE", NOTICE)))
        }
        _ => return None,
    })
}

fn submitted(body: &str) -> Response {
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    match body["workload"].as_str() {
        Some("no-such-cargo") => {
            problem(404, r#""message":"there is no such Cargo","code":"workload_not_found""#)
        }
        Some("expensive") => {
            problem(402, r#""message":"this needs 5 credits and 1.5 are left","code":"insufficient_credits""#)
        }
        Some("picky") => problem(
            422,
            r#""message":"the value is not of type \"string\"","code":"invalid_input","param":"input.prompt""#,
        ),
        Some("whisper-tiny") => problem(
            422,
            r#""message":"Additional properties are not allowed","code":"invalid_input","param":"input""#,
        ),
        Some("popular") => problem(
            429,
            r#""message":"10 jobs are running already","code":"concurrent_jobs_exceeded","retry_after":60"#,
        ),
        Some("frequent") => problem(
            429,
            r#""message":"the account has used its 1000 requests of the day","code":"quota_exceeded","retry_after":40000"#,
        ),
        Some("closed") => problem(
            503,
            r#""message":"maintenance: new disks","code":"maintenance","retry_after":60,"request_id":"r-18""#,
        ),
        Some("disabled") => {
            problem(403, r#""message":"operators have disabled this Cargo","code":"workload_disabled""#)
        }
        Some("broken") => problem(
            500,
            r#""message":"something went wrong on our side","code":"internal_error","request_id":"r-17""#,
        ),
        // The last digit of a job's id selects how it ends.
        Some("painter") => json(201, JOB.replace("JOB", &format!("{ID}3"))),
        Some("clumsy") => json(201, JOB.replace("JOB", &format!("{ID}2"))),
        Some("shaky") => json(201, JOB.replace("JOB", &format!("{ID}4"))),
        Some("endless") => json(201, JOB.replace("JOB", &format!("{ID}5"))),
        Some("unreachable") => json(201, JOB.replace("JOB", &format!("{ID}6"))),
        Some("crowded") => json(201, JOB.replace("JOB", &format!("{ID}7"))),
        // Its cancellation is never answered.
        Some("unanswered") => json(201, JOB.replace("JOB", &format!("{ID}a"))),
        _ => json(201, JOB.replace("JOB", &format!("{ID}1"))),
    }
}

fn job(method: &Method, rest: &str, times: usize) -> Response {
    let (id, what) = rest.split_once('/').unwrap_or((rest, ""));
    match (method, what, id.strip_prefix(ID).or_else(|| id.strip_prefix(OTHER_ID))) {
        (&Method::DELETE, "", Some("2")) => {
            problem(422, r#""message":"this job is failed already","code":"job_already_final""#)
        }
        (&Method::DELETE, "", Some(_)) => {
            json(200, format!(r#"{{"data":{{"id":"{id}","status":"cancelled"}}}}"#))
        }
        (_, "", Some("2" | "9")) => json(200, FAILED_JOB.replace("JOB", id)),
        (_, "", Some("6")) => json(200, WAITING_JOB.replace("JOB", id)),
        (_, "", Some("3")) => json(200, PAINTED_JOB.replace("JOB", id)),
        (_, "", Some(_)) => json(200, WHOLE_JOB.replace("JOB", id)),
        (_, "output", Some("1")) => {
            json(200, format!(r#"{{"data":{{"id":"{id}","output":"Hello, world."}}}}"#))
        }
        (_, "output", Some("3")) => {
            json(200, format!(r#"{{"data":{{"id":"{id}","output":{{"label":"cat"}}}}}}"#))
        }
        (_, "stream", Some("2")) => events(STORY_OF_FAILURE),
        (_, "stream", Some("3")) => events(STORY_OF_AN_IMAGE),
        // The first connection breaks in the middle of the second token.
        (_, "stream", Some("4")) if times == 1 => events(&STORY[..STORY.find("world").expect("it is there")]),
        (_, "stream", Some("5" | "a")) => endless(&STORY[..STORY.find("id: 5").expect("it is there")]),
        (_, "stream", Some("6")) => endless(": keep-alive\n\n"),
        (_, "stream", Some("7")) => problem(
            429,
            r#""message":"5 streams are open already","code":"concurrent_streams_exceeded","retry_after":1"#,
        ),
        // They have ended, and their reader knows all their events.
        (_, "stream", Some("8" | "9")) => events(""),
        (_, "stream", Some(_)) => events(STORY),
        _ => problem(404, r#""message":"there is no such job","code":"job_not_found""#),
    }
}

fn others(method: &Method, path: &str, body: &str) -> Response {
    match (method, path) {
        (&Method::GET, "/jobs") => json(200, JOBS.replace("OTHER", OTHER_ID).replace("ID", ID)),
        (&Method::GET, "/account/quotas") => {
            json(200, format!(r#"{{"data":{{"account":{QUOTAS},"key":[]}}}}"#))
        }
        (&Method::GET, "/account/usage") => json(200, USAGE),
        (&Method::GET, "/account/statement") => json(200, format!(r#"{{"data":{STATEMENT}}}"#)),
        (_, path) if path.starts_with("/api-keys/") && path.ends_with("/quotas") => {
            json(200, format!(r#"{{"data":{QUOTAS}}}"#))
        }
        (&Method::GET, "/account/ledger") => json(200, LEDGER.replace("ID", ID)),
        (_, path) if path.starts_with("/files") || path.starts_with("/batches") => {
            batches(method, path, body)
        }
        (_, path) if path.starts_with("/publications") => publications(method, path, body),
        (_, path) if path.starts_with("/admin/publications") => {
            publications(method, &path["/admin".len()..], body)
        }
        (_, path) if path.starts_with("/admin/") => admin(method, &path["/admin".len()..]),
        (&Method::GET, "/api-keys") => json(200, format!(r#"{{"data":[{KEY},{EXPIRED_KEY}]}}"#)),
        (&Method::POST, "/api-keys") => json(201, format!(r#"{{"data":{KEY},"key":"ak_the-only-time"}}"#)),
        (&Method::DELETE, path) if path.starts_with("/api-keys/0190f3f0-0000-7000-8000-0000000000a") => {
            let id = &path["/api-keys/".len()..];
            json(200, format!(r#"{{"data":{{"id":"{id}","revoked_at":"2026-11-20T12:00:00.000Z"}}}}"#))
        }
        (&Method::GET, "/workloads") => json(200, format!(r#"{{"data":[{WORKLOAD},{WHISPER}]}}"#)),
        (&Method::GET, "/workloads/whisper-tiny") => json(200, format!(r#"{{"data":{WHISPER}}}"#)),
        (&Method::GET, "/workloads/llm-chat") => json(200, format!(r#"{{"data":{WORKLOAD}}}"#)),
        (&Method::GET, "/hosts") => json(200, format!(r#"{{"data":[{HOST}]}}"#)),
        (&Method::GET, "/hosts/alerts") => json(200, format!(r#"{{"data":{ALERTS}}}"#)),
        (&Method::GET, "/hosts/0190f3f0-0000-7000-8000-0000000000bb") => {
            json(200, format!(r#"{{"data":{HOST}}}"#))
        }
        (&Method::GET, "/market/rates" | "/market/rates/llm-chat" | "/market/history/llm-chat") => {
            json(200, format!(r#"{{"data":[{RATE}]}}"#))
        }
        (_, path) if path.starts_with("/workloads/") => {
            problem(404, r#""message":"there is no such Cargo","code":"workload_not_found""#)
        }
        (&Method::POST, path) if path.starts_with("/hosts/0190f3f0-0000-7000-8000-0000000000bb/") => {
            let applies = match path.rsplit('/').next() {
                Some("pause") => r#","order":"pause","remote":true"#,
                Some("drain") => r#","order":"pause""#,
                _ => "",
            };
            let host = "0190f3f0-0000-7000-8000-0000000000bb";
            json(200, format!(r#"{{"data":{{"host_id":"{host}","allowed":true{applies}}}}}"#))
        }
        (_, path) if path.starts_with("/hosts/") => {
            problem(404, r#""message":"there is no such Island","code":"host_not_found""#)
        }
        (_, path) if path.starts_with("/api-keys/") => {
            problem(404, r#""message":"there is no such key","code":"api_key_not_found""#)
        }
        _ => problem(404, r#""message":"there is no such route","code":"not_found""#),
    }
}

fn json(status: u16, body: impl Into<String>) -> Response {
    (StatusCode::from_u16(status).expect("a status"), body.into()).into_response()
}

fn problem(status: u16, error: &str) -> Response {
    json(status, format!(r#"{{"error":{{{error}}}}}"#))
}

fn events(frames: &str) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], frames.to_owned()).into_response()
}

/// These frames, and then nothing more comes.
fn endless(frames: &'static str) -> Response {
    use futures::StreamExt;
    let begun = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(frames))]);
    let body = axum::body::Body::from_stream(begun.chain(futures::stream::pending()));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

const USAGE: &str = r#"{"data":{"from":"2026-11-19T00:00:00.000Z","until":"2026-11-21T00:00:00.000Z","rows":[
    {"day":"2026-11-19T00:00:00.000Z","workload_slug":"llm-chat","key_id":"0190f3f0-0000-7000-8000-0000000000aa",
    "key_name":"ci","jobs":3,"prompt_tokens":120,"completion_tokens":60,"amount":1.5},
    {"day":"2026-11-20T00:00:00.000Z","workload_slug":"painter","jobs":1,"prompt_tokens":0,"completion_tokens":0,
    "amount":0}]}}"#;
const QUEUE: &str = r#"{"data":[{"id":"0190f3f0-0000-7000-8000-000000000001",
    "account":"0190f3f0-0000-7000-8000-0000000000cc","workload_slug":"llm-chat","priority":9,
    "created_at":"2026-11-20T12:00:00.000Z","waiting":{"no_slot":2},"waiting_reason":"2 Islands are busy"},
    {"id":"0190f3f0-0000-7000-8000-000000000002","account":"0190f3f0-0000-7000-8000-0000000000cc",
    "workload_slug":"painter","priority":0,"created_at":"2026-11-20T12:00:01.000Z"}],
    "meta":{"total":2,"limit":20,"offset":0},"reasons":{"no_slot":1},"cargos":{"llm-chat":1,"painter":1}}"#;
const ACCOUNT: &str = r#"{"data":{"id":"0190f3f0-0000-7000-8000-0000000000cc","email":"EMAIL","credits":12.5,
    "created_at":"2026-11-20T00:00:00.000Z","newer_than_this_client":true}}"#;
const JOB: &str = r#"{"data":{"id":"JOB","workload_id":7,"workload_slug":"llm-chat","status":"submitted",
    "input":{"prompt":"Hello"},"created_at":"2026-11-20T12:00:00.000Z"}}"#;
const WHOLE_JOB: &str = r#"{"data":{"id":"JOB","workload_slug":"llm-chat","status":"completed",
    "input":{"prompt":"Hello"},"output":"Hello, world.","usage":{"prompt_tokens":3,"completion_tokens":4,
    "total_tokens":7,"credits_used":0.5},"created_at":"2026-11-20T12:00:00.000Z",
    "placed_at":"2026-11-20T12:00:00.500Z","started_at":"2026-11-20T12:00:01.000Z",
    "first_output_at":"2026-11-20T12:00:01.250Z","completed_at":"2026-11-20T12:00:02.500Z","duration_ms":1500}}"#;
const FAILED_JOB: &str = r#"{"data":{"id":"JOB","workload_slug":"llm-chat","status":"failed",
    "input":{"prompt":"Hello"},"error":{"code":"island_lost","message":"the Island vanished"},
    "created_at":"2026-11-20T12:00:00.000Z","completed_at":"2026-11-20T12:01:00.000Z","duration_ms":61000}}"#;
/// What `/files` and `/batches` answer. The last digit of a batch's id selects how it ends.
fn batches(method: &Method, path: &str, body: &str) -> Response {
    let batch = |id: &str, status: &str, failed: u64| {
        let counts = format!(r#"{{"total":3,"completed":{},"failed":{failed}}}"#, 3 - failed);
        let errors = if failed > 0 { r#""file-errors""# } else { "null" };
        let body = BATCH.replace("ID", id).replace("STATUS", status).replace("COUNTS", &counts);
        body.replace("ERRORS", errors)
    };
    let own = |digit: &str| format!("batch_{ID}{digit}");
    match (method, path) {
        (&Method::POST, "/files") => json(200, FILE),
        (_, "/files/file-results/content") => json(200, RESULTS),
        (_, "/files/file-errors/content") => json(200, FAILED_RESULT),
        (&Method::POST, "/batches") if body.contains("2y") => problem(
            422,
            r#""message":"completion_window must be from 1h to 7d","code":"validation_error","param":"completion_window""#,
        ),
        (&Method::POST, "/batches") => {
            let digit = if body.contains("/v1/messages") {
                "3"
            } else if body.contains("/v1/embeddings") {
                "2"
            } else {
                "1"
            };
            json(200, batch(&own(digit), "validating", 0))
        }
        (&Method::GET, "/batches") => {
            let data = [batch(&own("5"), "in_progress", 0), batch(&own("2"), "completed", 1)].join(",");
            json(
                200,
                format!(r#"{{"object":"list","data":[{data}],"last_id":"{}","has_more":true}}"#, own("2")),
            )
        }
        (_, path) => match path["/batches/".len()..].split_once('/') {
            Some((id, _)) if id.ends_with('5') => json(200, batch(id, "cancelling", 0)),
            Some(_) => {
                problem(422, r#""message":"this batch is completed already","code":"batch_already_final""#)
            }
            None if path.ends_with('5') => json(200, batch(&own("5"), "in_progress", 0)),
            None if path.ends_with('3') => json(200, INVALID_BATCH.replace("ID", &own("3"))),
            None if path.ends_with('2') => json(200, batch(&own("2"), "completed", 1)),
            None => json(200, batch(&own("1"), "completed", 0)),
        },
    }
}

const FILE: &str = r#"{"id":"file-requests","object":"file","bytes":3,"created_at":1795176000,"expires_at":null,
    "filename":"requests.jsonl","purpose":"batch","status":"processed"}"#;
const BATCH: &str = r#"{"id":"ID","object":"batch","endpoint":"/v1/chat/completions","input_file_id":"file-requests",
    "completion_window":"24h","status":"STATUS","output_file_id":"file-results","error_file_id":ERRORS,
    "created_at":1795176000,"expires_at":1795262400,"request_counts":COUNTS,"max_credits":2,"credits":0.75}"#;
const INVALID_BATCH: &str = r#"{"id":"ID","object":"batch","endpoint":"/v1/messages","input_file_id":"file-requests",
    "errors":{"object":"list","data":[{"code":"invalid_json","message":"this is not a JSON object","line":2}]},
    "completion_window":"24h","status":"failed","created_at":1795176000,
    "request_counts":{"total":0,"completed":0,"failed":0}}"#;
const RESULTS: &str = "{\"custom_id\":\"one\",\"response\":{\"status_code\":200},\"error\":null}\n\
    {\"custom_id\":\"two\u{7}\",\"response\":{\"status_code\":200},\"error\":null}\n";
const FAILED_RESULT: &str =
    "{\"custom_id\":\"three\",\"response\":null,\"error\":{\"code\":\"max_credits_exceeded\"}}\n";
/// What publishers are answered, and operators who review.
fn publications(method: &Method, path: &str, body: &str) -> Response {
    let publication = |state: &str| PUBLICATION.replace("STATE", state);
    let reviewed = |state: &str| {
        let more = r#","changed_at":"2026-11-21T12:00:00.000Z","reason":"its licence allows it"}"#;
        publication(state).replace('}', more)
    };
    match (method, path) {
        (&Method::POST, "/publications") if body.contains("price_per_job = -1") => problem(
            422,
            r#""message":"the manifest is invalid: line 2: price_per_job is below zero; line 3: name is empty",
            "code":"invalid_manifest","param":"manifest","details":[
            {"line":2,"message":"price_per_job is below zero"},{"line":3,"message":"name is empty"}]"#,
        ),
        (&Method::POST, "/publications") if body.contains("llm-chat") => problem(
            422,
            r#""message":"llm-chat is a slug of the network's own catalogue","code":"slug_taken""#,
        ),
        (&Method::POST, "/publications") => json(201, format!(r#"{{"data":{}}}"#, publication("submitted"))),
        (&Method::GET, "/publications") => json(
            200,
            format!(
                r#"{{"data":[{},{}],"meta":{{"total":2,"limit":20,"offset":0}}}}"#,
                publication("submitted"),
                reviewed("approved").replace("00e0", "00e1")
            ),
        ),
        (&Method::GET, _) => {
            let manifest = r#","manifest":"slug = \"my-model\"\nprice_per_job = 2\n"}"#;
            json(200, format!(r#"{{"data":{}}}"#, reviewed("approved").replace('}', manifest)))
        }
        (&Method::DELETE, _) => json(200, format!(r#"{{"data":{}}}"#, publication("withdrawn"))),
        (_, path) if path.ends_with("/reject") => {
            json(200, format!(r#"{{"data":{}}}"#, reviewed("rejected")))
        }
        _ => json(200, format!(r#"{{"data":{}}}"#, reviewed("approved"))),
    }
}

/// What operators are answered.
fn admin(method: &Method, path: &str) -> Response {
    let page = |entries: &str| {
        json(200, format!(r#"{{"data":[{entries}],"meta":{{"total":1,"limit":20,"offset":0}}}}"#))
    };
    let account = |state: &str| ADMIN_ACCOUNT.replace("STATE", state);
    match (method, path) {
        (&Method::GET, "/accounts") => page(&account(SUSPENDED)),
        (&Method::POST, "/accounts") => {
            json(201, format!(r#"{{"data":{},"key":"ak_the-first"}}"#, account("")))
        }
        (&Method::GET, "/audit-log") => page(AUDIT_ENTRY),
        (&Method::GET, path) if path.ends_with("/api-keys") => json(200, format!(r#"{{"data":[{KEY}]}}"#)),
        (_, path) if path.starts_with("/accounts/") && path.ends_with("/quotas") => {
            json(200, format!(r#"{{"data":{QUOTAS}}}"#))
        }
        (_, path) if path.ends_with("/statement") => json(200, format!(r#"{{"data":{STATEMENT}}}"#)),
        (_, path) if path.ends_with("/annotate") => {
            let island = ADMIN_ISLAND.replace("STATE", r#""trust":"low","note":"slow disks","#);
            json(200, format!(r#"{{"data":{island}}}"#))
        }
        (_, "/cargos") => json(200, format!(r#"{{"data":[{ENABLED},{DISABLED}]}}"#)),
        (_, "/cargos/llm-chat/enable") => json(200, format!(r#"{{"data":{ENABLED}}}"#)),
        (_, "/cargos/painter/disable") => json(200, format!(r#"{{"data":{DISABLED}}}"#)),
        (_, "/maintenance/start") => {
            json(200, format!(r#"{{"data":{}}}"#, NOTICES.replace("NOTICE", NOTICE)))
        }
        (_, "/maintenance/end") => json(200, r#"{"data":{"notices":[]}}"#),
        (&Method::GET, "/notices") => json(200, format!(r#"{{"data":[{NOTICE}]}}"#)),
        (_, path) if path.starts_with("/notices") => json(200, format!(r#"{{"data":{NOTICE}}}"#)),
        (&Method::GET, "/invitations") => page(INVITATION),
        (_, "/invitations") => json(201, format!(r#"{{"data":{INVITATION},"code":"K3YT-7QXM"}}"#)),
        (_, path) if path.starts_with("/invitations/") => json(200, format!(r#"{{"data":{INVITATION}}}"#)),
        (&Method::GET, "/payouts") => page(&PAYOUT.replace("STATE", "exported")),
        (_, "/payouts/0190f3f0-0000-7000-8000-0000000000ac/confirm") => {
            problem(422, r#""message":"the payout is cancelled already","code":"payout_already_final""#)
        }
        (_, path) if path.ends_with("/confirm") => {
            json(200, format!(r#"{{"data":{}}}"#, PAYOUT.replace("STATE", "confirmed")))
        }
        (_, path) if path.starts_with("/jobs/") && path.ends_with("/cancel") => {
            let id = path.split('/').nth(2).expect("an id");
            json(200, format!(r#"{{"data":{{"id":"{id}","status":"cancelled"}}}}"#))
        }
        (_, path) if path.ends_with("/cancel") => {
            json(200, format!(r#"{{"data":{}}}"#, PAYOUT.replace("STATE", "cancelled")))
        }
        (_, path) if path.starts_with("/payouts") => {
            let payout = PAYOUT.replace("STATE", "exported");
            json(200, format!(r#"{{"data":{{"payout":{payout},"payments":[{PAYMENTS}]}}}}"#))
        }
        (_, "/accounts/0190f3f0-0000-7000-8000-0000000000ce/close") => {
            problem(422, r#""message":"the account has 12.5 credits","code":"account_in_use""#)
        }
        (_, path) if path.ends_with("/close") => {
            json(200, format!(r#"{{"data":{}}}"#, account(r#""closed_at":"2026-11-21T12:00:00.000Z","#)))
        }
        (&Method::POST, path) if path.ends_with("/revoke") => {
            let id = path.split('/').nth(2).expect("an id");
            json(200, format!(r#"{{"data":{{"id":"{id}","revoked_at":"2026-11-20T12:00:00.000Z"}}}}"#))
        }
        (&Method::POST, path) if path.starts_with("/accounts/") && path.ends_with("/suspend") => {
            json(200, format!(r#"{{"data":{}}}"#, account(SUSPENDED)))
        }
        (&Method::GET, "/queue") => json(200, QUEUE),
        (&Method::GET, "/hosts") => page(&ADMIN_ISLAND.replace("STATE", SUSPENDED)),
        (_, "/hosts/0190f3f0-0000-7000-8000-0000000000bb/suspend") => {
            json(200, format!(r#"{{"data":{}}}"#, ADMIN_ISLAND.replace("STATE", SUSPENDED)))
        }
        (_, path) if path.starts_with("/hosts/") => {
            json(200, format!(r#"{{"data":{}}}"#, ADMIN_ISLAND.replace("STATE", "")))
        }
        (_, path) if path.starts_with("/jobs/") => json(200, format!(r#"{{"data":{REFUNDED}}}"#)),
        _ => json(200, format!(r#"{{"data":{}}}"#, account(""))),
    }
}

const PUBLICATION: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000e0","workload_slug":"my-model","name":"My model",
    "publisher":"0190f3f0-0000-7000-8000-0000000000cc","state":"STATE","created_at":"2026-11-20T12:00:00.000Z"}"#;
const CSV: &str = "time,kind,amount\r\n2026-11-20T12:00:00.000Z,earned,0.25\r\n";
const QUOTAS: &str = r#"[{"period":"day","resets_at":"2026-11-21T00:00:00.000Z","requests":{"used":12,"max":1000}},
    {"period":"month","resets_at":"2026-12-01T00:00:00.000Z","tokens":{"used":5000,"max":1000000},
    "credits":{"used":0.25,"max":2.5}}]"#;
const STATEMENT: &str = r#"{"account":"0190f3f0-0000-7000-8000-0000000000cc","from":"2026-11-01T00:00:00.000Z",
    "until":"2026-12-01T00:00:00.000Z","opening":10,"closing":11.75,
    "totals":[{"kind":"spent","amount":-0.5,"entries":2},{"kind":"earned","amount":5.25,"entries":7},
    {"kind":"payout_return","amount":-3,"entries":1}],
    "earned":[{"host_id":"0190f3f0-0000-7000-8000-0000000000bb","name":"attic","device":"vulkan: A GPU","jobs":5,
    "amount":5},{"jobs":2,"amount":0.25}],
    "spent":[{"workload_slug":"llm-chat","jobs":2,"amount":0.5}]}"#;
const NOTICES: &str =
    r#"{"maintenance":{"since":"2026-11-20T12:00:00.000Z","reason":"new disks"},"notices":[NOTICE]}"#;
const NOTICE: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000d0","text":"Prices change in December.",
    "created_at":"2026-11-20T12:00:00.000Z","until":"2026-12-01T00:00:00.000Z"}"#;
const ENABLED: &str = r#"{"workload_slug":"llm-chat","is_enabled":true}"#;
const DISABLED: &str = r#"{"workload_slug":"painter","is_enabled":false,
    "disabled":{"at":"2026-11-20T12:00:00.000Z","reason":"a wrong license"}}"#;
const INVITATION: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000d1","credits":5,"uses":10,"used":3,
    "reason":"the workshop","created_at":"2026-11-20T12:00:00.000Z","expires_at":"2999-01-01T00:00:00.000Z"}"#;
const PAYOUT: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000d2","state":"STATE","until":"2026-11-01T00:00:00.000Z",
    "accounts":1,"amount":7.000001,"reason":"October","created_at":"2026-11-20T12:00:00.000Z"}"#;
const PAYMENTS: &str =
    r#"{"account":"0190f3f0-0000-7000-8000-0000000000cc","email":"user@example.org","amount":7.000001}"#;
const ADMIN_ISLAND: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000bb","account":"0190f3f0-0000-7000-8000-0000000000cc",
    "name":"attic","agent_version":"0.1.0",STATE"created_at":"2026-11-20T12:00:00.000Z",
    "last_seen_at":"2026-11-20T12:00:00.000Z"}"#;
const REFUNDED: &str = r#"{"id":"0190f3f0-0000-7000-8000-000000000001",
    "account":"0190f3f0-0000-7000-8000-0000000000cc","amount":1.5}"#;
const ADMIN_ACCOUNT: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000cc","email":"user@example.org","operator":false,
    "credits":12.5,"held":1,STATE"created_at":"2026-11-20T12:00:00.000Z"}"#;
const SUSPENDED: &str = r#""suspended":{"at":"2026-11-21T12:00:00.000Z","reason":"unpaid invoice 7"},"#;
const AUDIT_ENTRY: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000dd","created_at":"2026-11-20T12:00:00.000Z",
    "actor":"0190f3f0-0000-7000-8000-0000000000ee","action":"grant","account":"0190f3f0-0000-7000-8000-0000000000cc",
    "amount":25,"reason":"invoice 7"}"#;
const WAITING_JOB: &str = r#"{"data":{"id":"JOB","workload_slug":"qwen","status":"pending",
    "input":{"prompt":"Hello"},"waiting":{"model_unreachable":1,"no_slot":2},
    "waiting_reason":"1 Island cannot reach the model's hub, 2 Islands are busy",
    "created_at":"2026-11-20T12:00:00.000Z"}}"#;
const PAINTED_JOB: &str = r#"{"data":{"id":"JOB","workload_slug":"painter","status":"completed",
    "input":{"prompt":"a lighthouse"},"output":{"images":[{"data":"UE5H","format":"png"}]},
    "created_at":"2026-11-20T12:00:00.000Z"}}"#;
const JOBS: &str = r#"{"data":[
    {"id":"ID1","workload_slug":"llm-chat","status":"completed","created_at":"2026-11-20T12:00:00.000Z",
     "completed_at":"2026-11-20T12:00:02.500Z","duration_ms":1500},
    {"id":"ID2","workload_slug":"llm-chat","status":"failed","created_at":"2026-11-20T11:00:00.000Z",
     "completed_at":"2026-11-20T11:01:01.000Z","duration_ms":61000},
    {"id":"OTHER5","workload_slug":"painter","status":"running","created_at":"2026-11-20T10:00:00.000Z",
     "completed_at":null}],"meta":{"total":5,"limit":20,"offset":0}}"#;
const LEDGER: &str = r#"{"data":[
    {"id":"3","kind":"settle","book":"balance","amount":-0.5,"job_id":"ID1","created_at":"2026-11-20T12:00:02.500Z"},
    {"id":"2","kind":"hold","book":"holds","amount":1,"job_id":"ID1","created_at":"2026-11-20T12:00:00.000Z"},
    {"id":"1","kind":"grant","book":"balance","amount":13,"created_at":"2026-11-20T00:00:00.000Z"}],
    "meta":{"total":3,"limit":20,"offset":0}}"#;
const KEY: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000aa","name":"ci","prefix":"ak_the","scopes":["read","write"],
    "created_at":"2026-11-20T12:00:00.000Z","last_used_at":null,"expires_at":"2999-01-01T00:00:00.000Z",
    "spend_cap":5,"spent":0.25}"#;
// Used in the minute of its creation, which is recorded as the beginning of that minute.
const EXPIRED_KEY: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000ab","name":"old","prefix":"ak_old",
    "scopes":["read"],"created_at":"2020-01-01T12:00:30.000Z","last_used_at":"2020-01-01T12:00:00.000Z",
    "expires_at":"2020-02-01T00:00:00.000Z","spend_cap":null,"spent":0}"#;
// The name tries to command the terminal.
const WORKLOAD: &str = r#"{"id":7,"slug":"llm-chat","name":"\u001b[2JTiny\nchat","description":"A small model.",
    "runtime_type":"llmcpp","onnx_task_type":null,"price_per_job":1.25,"required_vram_mb":0,"required_ram_mb":400,
    "category":"llm","is_enabled":true,"input_schema":{"type":"object"},"output_schema":{"type":"string"},
    "example":{"prompt":"Hello"}}"#;
const WHISPER: &str = r#"{"id":8,"slug":"whisper-tiny","name":"Whisper tiny","description":"Speech to text.",
    "runtime_type":"onnx","onnx_task_type":null,"price_per_job":2,"required_vram_mb":0,"required_ram_mb":900,
    "category":"audio","is_enabled":true,"input_schema":{"type":"object"},"output_schema":{"type":"string"}}"#;
const HOST: &str = r#"{"id":"0190f3f0-0000-7000-8000-0000000000bb","name":"attic\u202e","status":"online",
    "region":"eu","karma":3.25,"karma_score":3.25,"capabilities":{"platform":"linux-x86_64","cpu_model":"A CPU",
    "cpu_cores":8,"ram_mb":16000,"gpus":[{"index":0,"name":"A GPU","vram_mb":8000}],
    "runtimes":[{"kind":"llmcpp","available":true,"version":"b1"},
    {"kind":"container","available":false,"reason":"no Docker socket"},
    {"kind":"coreml","available":true,"version":"Core ML of macOS 15.5.0","backend":"native"}],
    "sandbox":{"level":"full","layers":["seccomp"],"missing":[]}},"last_heartbeat_at":"2026-11-20T12:00:00.000Z"}"#;
const ALERTS: &str = r#"[
    {"host_id":"0190f3f0-0000-7000-8000-0000000000bb","name":"attic\u202e","alert":"hot","degrees":91},
    {"host_id":"0190f3f0-0000-7000-8000-0000000000bb","name":"attic\u202e","alert":"disk_full","free_gb":12.4},
    {"host_id":"0190f3f0-0000-7000-8000-0000000000bd","name":"cellar","alert":"suspended"},
    {"host_id":"0190f3f0-0000-7000-8000-0000000000be","name":"shed","alert":"offline"}]"#;
const RATE: &str = r#"{"workload_slug":"llm-chat","avg_price":1.1,"min_price":1,"max_price":1.25,"num_hosts":2,
    "num_jobs":40,"timestamp":"2026-11-20T12:00:00.000Z"}"#;
const STORY: &str = "id: 1\nevent: status\ndata: {\"type\":\"status\",\"state\":\"queued\"}\n\n\
    id: 2\nevent: progress\ndata: {\"type\":\"progress\",\"step\":1,\"total\":2,\"phase\":\"load\"}\n\n\
    id: 3\nevent: token\ndata: {\"type\":\"token\",\"content\":\"Hel\\u001b[31mlo, \"}\n\n\
    id: 4\nevent: token\ndata: {\"type\":\"token\",\"content\":\"the \"}\n\n\
    id: 5\nevent: token\ndata: {\"type\":\"token\",\"content\":\"world.\"}\n\n\
    id: 6\nevent: done\ndata: {\"type\":\"done\",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\
    \"total_tokens\":7,\"credits_used\":0.5},\"finish_reason\":\"stop\"}\n\n";
const STORY_OF_FAILURE: &str = "id: 1\nevent: token\ndata: {\"type\":\"token\",\"content\":\"Hel\"}\n\n\
    id: 2\nevent: error\ndata: {\"type\":\"error\",\"error\":\"the Island vanished\",\"code\":\"island_lost\"}\n\n";
const STORY_OF_AN_IMAGE: &str = "id: 1\nevent: progress\ndata: {\"type\":\"progress\",\"step\":1,\"total\":2}\n\n\
    id: 2\nevent: image\ndata: {\"type\":\"image\",\"data\":\"UE5H\",\"format\":\"png\"}\n\n\
    id: 3\nevent: done\ndata: {\"type\":\"done\",\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0,\
    \"total_tokens\":0,\"credits_used\":1},\"output\":{\"images\":[{\"data\":\"UE5H\",\"format\":\"png\"}]}}\n\n";
