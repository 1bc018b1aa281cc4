//! Lines of a batch: read from the pieces of a file, validated, and written as results.

use std::collections::{HashMap, VecDeque};

use island_protocol::ids::BatchId;
use island_protocol_api::batch::{BatchEndpoint, BatchError};
use serde_json::{Map, Value, json};

/// Maximum characters of a `custom_id`.
const MAX_CUSTOM_ID: usize = 512;
/// Maximum commas, colons and opening brackets of a line: a value takes more memory than its text.
const MAX_MARKS: usize = 500_000;
/// Maximum problems of a file that are reported.
const MAX_ERRORS: usize = 100;
/// What the idempotency keys of the requests of all batches begin with; the id of the batch follows.
pub const KEY_BEGIN: &str = "batch-";

/// Splits the pieces of a file into lines. Lines without text are left out, and counted.
#[derive(Debug, Default)]
pub struct Lines {
    /// The begin of a line whose end is in a later piece.
    begun: String,
    /// Number of the last line.
    number: u64,
    ready: VecDeque<(u64, String)>,
}

impl Lines {
    /// Adds the next piece.
    pub fn push(&mut self, piece: &str) {
        let mut rest = piece;
        while let Some((line, after)) = rest.split_once('\n') {
            let mut whole = std::mem::take(&mut self.begun);
            whole.push_str(line);
            self.end(whole);
            rest = after;
        }
        self.begun.push_str(rest);
    }

    /// Adds the end of the file.
    pub fn finish(&mut self) {
        let last = std::mem::take(&mut self.begun);
        if !last.is_empty() {
            self.end(last);
        }
    }

    fn end(&mut self, line: String) {
        self.number += 1;
        // A byte order mark is not a part of the text.
        let line = if self.number == 1 { line.trim_start_matches('\u{feff}').to_owned() } else { line };
        if !line.trim().is_empty() {
            self.ready.push_back((self.number, line));
        }
    }

    /// The next line with its number, from 1; `None` until another piece is added.
    pub fn next_ready(&mut self) -> Option<(u64, String)> {
        self.ready.pop_front()
    }

    /// Bytes of the line that has not ended.
    pub fn begun_bytes(&self) -> usize {
        self.begun.len()
    }
}

/// A request of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub number: u64,
    pub custom_id: String,
    pub body: Map<String, Value>,
}

fn error(number: u64, code: &str, param: Option<&str>, message: impl Into<String>) -> BatchError {
    BatchError {
        code: code.to_owned(),
        message: message.into(),
        param: param.map(str::to_owned),
        line: Some(number),
    }
}

/// Reads one line.
pub fn parse(number: u64, text: &str, endpoint: BatchEndpoint) -> Result<Line, BatchError> {
    let invalid = |param: &str, message: String| error(number, "invalid_request", Some(param), message);
    if text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count() > MAX_MARKS {
        return Err(error(number, "invalid_json_line", None, "the line has too many values"));
    }
    let value: Value = serde_json::from_str(text).map_err(|cause| {
        error(number, "invalid_json_line", None, format!("the line is not JSON: {cause}"))
    })?;
    let Value::Object(mut fields) = value else {
        return Err(error(number, "invalid_json_line", None, "the line must be a JSON object"));
    };
    let custom_id = match fields.get("custom_id") {
        Some(Value::String(id)) if !id.is_empty() && id.chars().count() <= MAX_CUSTOM_ID => id.clone(),
        _ => {
            return Err(invalid(
                "custom_id",
                format!("custom_id must be a text of 1 to {MAX_CUSTOM_ID} characters"),
            ));
        }
    };
    if fields.get("method").and_then(Value::as_str) != Some("POST") {
        return Err(invalid("method", "method must be POST".to_owned()));
    }
    if fields.get("url").and_then(Value::as_str) != Some(endpoint.as_str()) {
        return Err(invalid("url", format!("url must be {}, the endpoint of the batch", endpoint.as_str())));
    }
    let Some(Value::Object(body)) = fields.remove("body") else {
        return Err(invalid("body", "body must be a JSON object".to_owned()));
    };
    for field in ["stream", "background"] {
        if body.get(field) == Some(&Value::Bool(true)) {
            let message = format!("a request of a batch cannot have {field}: its answer is a line of a file");
            return Err(invalid(&format!("body.{field}"), message));
        }
    }
    Ok(Line { number, custom_id, body })
}

/// Collects what is wrong with an input file.
#[derive(Debug)]
pub struct Validation {
    endpoint: BatchEndpoint,
    max_lines: u64,
    /// Where each `custom_id` is.
    ids: HashMap<String, u64>,
    errors: Vec<BatchError>,
    total: u64,
}

impl Validation {
    pub fn new(endpoint: BatchEndpoint, max_lines: u64) -> Self {
        Self { endpoint, max_lines, ids: HashMap::new(), errors: Vec::new(), total: 0 }
    }

    /// Adds a line. Returns `false` if the rest need not be read.
    pub fn add(&mut self, number: u64, text: &str) -> bool {
        self.total += 1;
        if self.total > self.max_lines {
            let message = format!("a batch may have {} requests", self.max_lines);
            self.errors.push(error(number, "too_many_requests", None, message));
            return false;
        }
        match parse(number, text, self.endpoint) {
            Ok(line) => {
                if let Some(first) = self.ids.insert(line.custom_id, number) {
                    let message = format!("custom_id is the one of line {first} as well");
                    self.errors.push(error(number, "duplicate_custom_id", Some("custom_id"), message));
                }
            }
            Err(error) => self.errors.push(error),
        }
        self.errors.len() < MAX_ERRORS
    }

    /// Adds that a line is too long to be read.
    pub fn too_long(&mut self, number: u64, max: usize) {
        self.errors.push(error(number, "line_too_long", None, format!("a line may have {max} bytes")));
    }

    /// The number of requests, or the problems.
    pub fn finish(mut self) -> Result<u64, Vec<BatchError>> {
        if self.total == 0 {
            let message = "the file has no requests".to_owned();
            self.errors.push(BatchError { code: "empty_file".to_owned(), message, param: None, line: None });
        }
        if self.errors.is_empty() { Ok(self.total) } else { Err(self.errors) }
    }
}

/// The id of a request in the files of results.
fn request_id(batch: BatchId, number: u64) -> String {
    format!("batch_req_{batch}_{number}")
}

/// Begins the idempotency keys of the requests of a batch; the number of a line follows.
pub fn key_prefix(batch: BatchId) -> String {
    format!("{KEY_BEGIN}{batch}-")
}

/// The idempotency key of a request: the same on every coordinator.
pub fn idempotency_key(batch: BatchId, number: u64) -> String {
    format!("{}{number}", key_prefix(batch))
}

fn written(value: &Value) -> String {
    // PostgreSQL stores no NUL; in JSON it is an escape, so the text has none.
    format!("{value}\n")
}

/// The line of a request that was answered.
pub fn answered(batch: BatchId, number: u64, custom_id: &str, status: u16, body: &Value) -> String {
    let id = request_id(batch, number);
    written(&json!({
        "id": id,
        "custom_id": custom_id,
        "response": {"status_code": status, "request_id": id, "body": body},
        "error": null,
    }))
}

/// The line of a request that was not run.
pub fn not_run(batch: BatchId, number: u64, custom_id: &str, code: &str, message: &str) -> String {
    written(&json!({
        "id": request_id(batch, number),
        "custom_id": custom_id,
        "response": null,
        "error": {"code": code, "message": message},
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const CHAT: BatchEndpoint = BatchEndpoint::Chat;

    fn all(lines: &mut Lines) -> Vec<(u64, String)> {
        lines.finish();
        std::iter::from_fn(|| lines.next_ready()).collect()
    }

    fn request(change: impl FnOnce(&mut Value)) -> String {
        let mut line = json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}});
        change(&mut line);
        line.to_string()
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_pieces(text in "[ab\n]{0,60}", at in 0_usize..60) {
            let expected: Vec<(u64, String)> = (1..).zip(text.split('\n').map(str::to_owned))
                .filter(|(_, line)| !line.is_empty()).collect();
            let at = at.min(text.len());
            let mut lines = Lines::default();
            lines.push(&text[..at]);
            lines.push(&text[at..]);
            prop_assert_eq!(all(&mut lines), expected);
        }

        #[test]
        fn any_text_is_parsed_or_refused_with_its_number(text in ".{0,80}", number in 1_u64..9) {
            if let Err(error) = parse(number, &text, CHAT) {
                prop_assert_eq!(error.line, Some(number));
            }
        }
    }

    type Change = fn(&mut Value);

    #[test]
    fn requests_are_checked() {
        let line = parse(3, &request(|_| ()), CHAT).expect("a request");
        assert_eq!((line.number, line.custom_id.as_str()), (3, "a"));
        let cases: [(Change, &str); 6] = [
            (|line| line["custom_id"] = json!(1), "custom_id"),
            (|line| line["custom_id"] = json!(""), "custom_id"),
            (|line| line["method"] = json!("GET"), "method"),
            (|line| line["url"] = json!("/v1/embeddings"), "url"),
            (|line| line["body"] = json!([]), "body"),
            (|line| line["body"] = json!({"stream": true}), "body.stream"),
        ];
        for (change, param) in cases {
            let error = parse(1, &request(change), CHAT).expect_err(param);
            assert_eq!(error.param.as_deref(), Some(param));
        }
        assert_eq!(parse(1, "[]", CHAT).expect_err("a list").code, "invalid_json_line");
    }

    #[test]
    fn a_file_is_validated_as_a_whole() {
        let of = |texts: &[&str], max| {
            let mut validation = Validation::new(CHAT, max);
            for (number, text) in (1..).zip(texts) {
                if !validation.add(number, text) {
                    break;
                }
            }
            validation.finish()
        };
        let (a, b) = (request(|_| ()), request(|line| line["custom_id"] = json!("b")));
        assert_eq!(of(&[&a, &b], 2), Ok(2));
        let codes = |errors: Vec<BatchError>| -> Vec<(String, Option<u64>)> {
            errors.into_iter().map(|error| (error.code, error.line)).collect()
        };
        assert_eq!(
            codes(of(&[&a, "x", &a], 5).expect_err("two faults")),
            [("invalid_json_line".to_owned(), Some(2)), ("duplicate_custom_id".to_owned(), Some(3)),]
        );
        assert_eq!(
            codes(of(&[&a, &b], 1).expect_err("too many")),
            [("too_many_requests".to_owned(), Some(2))]
        );
        assert_eq!(codes(of(&[], 1).expect_err("nothing")), [("empty_file".to_owned(), None)]);
        let many = vec!["x"; MAX_ERRORS + 5];
        assert_eq!(of(&many, 1000).expect_err("faults").len(), MAX_ERRORS);
    }

    #[test]
    fn results_are_single_lines() {
        let id = BatchId(Uuid::nil());
        let body = json!({"text": "a\nb\u{0}"});
        for line in [answered(id, 7, "x\ny", 200, &body), not_run(id, 7, "x", "batch_expired", "late")] {
            assert_eq!(line.matches('\n').count(), 1);
            assert!(!line.contains('\0'));
            let read: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(read["id"], format!("batch_req_{id}_7"));
        }
    }
}
