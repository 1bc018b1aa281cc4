//! What must hold when all faults are over, whatever happened before.

use std::{collections::BTreeMap, fs, time::Duration};

use island_protocol::event::{END_GAP, JobEvent, Numbered};
use serde_json::Value;

use super::{
    load::{Habit, Log, Replies, Seen, expected},
    network::Network,
};
use crate::processes;

/// How long jobs may take to end when nothing disturbs them any longer.
const PATIENCE: Duration = Duration::from_mins(3);
/// Texts of SQL.
const OPEN: &str = "status NOT IN ('completed', 'failed', 'cancelled', 'timeout')";

/// Counts of a run, for its report.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Jobs by their status.
    pub jobs: BTreeMap<String, u64>,
    /// Failed jobs by their reason.
    pub failures: BTreeMap<String, u64>,
}

/// Waits until every job has ended, and checks streams, database, money and what is left on the Islands. Returns violations.
pub async fn check(network: &Network, seen: Seen) -> (Vec<String>, Counts) {
    let mut violations = seen.violations;
    if !becomes_empty(network, &format!("SELECT id FROM jobs WHERE {OPEN}")).await {
        let sql = format!(
            "SELECT id, status, coordinator_id, attempt, epoch, host_id FROM jobs WHERE {OPEN} LIMIT 10"
        );
        violations.extend(rows(network, "a job has no end", &sql));
    }
    violations.extend(seen.logs.iter().filter_map(of_stream));
    violations.extend(of_rows(network, &seen.logs, &seen.replies));
    violations.extend(of_money(network));
    violations.extend(of_islands(network).await);
    let count = |sql: &str| {
        let rows = network.query(sql).into_iter();
        rows.map(|row| (row[0].clone(), row[1].parse().expect("a count"))).collect()
    };
    let counts = Counts {
        jobs: count("SELECT status, count(*) FROM jobs GROUP BY status"),
        failures: count(
            "SELECT coalesce(error_code, '-'), count(*) FROM jobs WHERE status IN ('failed', 'timeout') GROUP BY 1",
        ),
    };
    (violations, counts)
}

async fn becomes_empty(network: &Network, sql: &str) -> bool {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !network.query(sql).is_empty() {
        if tokio::time::Instant::now() > end {
            return false;
        }
        network.revive();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    true
}

fn rows(network: &Network, what: &str, sql: &str) -> Vec<String> {
    network.query(sql).into_iter().map(|row| format!("{what}: {}", row.join(", "))).collect()
}

/// A stream has every event once and in order, its text is that of the script, and it has one end.
fn of_stream(log: &Log) -> Option<String> {
    // An error that follows lost events has a number behind a gap, so that every client gets it.
    let is_behind_gap = |last: &&u64| **last > END_GAP && matches!(log.last, Some(JobEvent::Error { .. }));
    let numbered = log.numbers.len() - log.numbers.last().filter(is_behind_gap).iter().len();
    if !log.numbers[..numbered].iter().copied().eq(1..=numbered as u64) {
        return Some(format!("job {}: the events are {:?}", log.job, log.numbers));
    }
    let whole = &log.whole;
    let is_done = matches!(log.last, Some(JobEvent::Done { .. }));
    let fits = if is_done { log.text == *whole } else { whole.starts_with(&log.text) };
    if !fits {
        return Some(format!(
            "job {}: the text is {:?} and not {whole:?}; {:?}",
            log.job, log.text, log.last
        ));
    }
    let has_end = log.last.as_ref().is_some_and(JobEvent::is_last);
    (log.habit != Habit::Leaves && !has_end)
        .then(|| format!("job {}: the stream has no end: {:?}", log.job, log.last))
}

/// What is stored of each job is what its stream showed, and what its script yields.
fn of_rows(network: &Network, logs: &[Log], replies: &Replies) -> Vec<String> {
    let mut violations = Vec::new();
    let logs: BTreeMap<String, &Log> = logs.iter().map(|log| (log.job.to_string(), log)).collect();
    let mut stored = BTreeMap::new();
    for row in network.query("SELECT id, status, input, coalesce(output, 'null') FROM jobs") {
        let [id, status, input, output] = row.as_slice() else { panic!("four columns: {row:?}") };
        let input: Value = serde_json::from_str(input).expect("an input is JSON");
        let output: Value = serde_json::from_str(output).unwrap_or_else(|_| Value::String(output.clone()));
        let whole = expected_of(&input, replies);
        match (status.as_str(), &output) {
            ("completed", output) if *output != whole => {
                violations.push(format!("job {id}: completed with {output} and not {whole:?}"));
            }
            (_, Value::String(text)) if !whole.starts_with(text.as_str()) => {
                violations
                    .push(format!("job {id}: {status} with {text:?}, which {whole:?} does not begin with"));
            }
            _ => {}
        }
        stored.insert(id.clone(), status.clone());
    }
    for (id, log) in logs {
        let status = stored.get(&id).map(String::as_str);
        let agrees = match &log.last {
            Some(JobEvent::Done { .. }) => status == Some("completed"),
            Some(event) if event.is_last() => matches!(status, Some("failed" | "cancelled" | "timeout")),
            // A consumer that left saw no end.
            _ => status.is_some(),
        };
        if !agrees {
            violations
                .push(format!("job {id}: the stream ended with {:?}, the row has {status:?}", log.last));
        }
    }
    let twice =
        "SELECT input, count(*) FROM jobs WHERE input LIKE '%\"reader %' GROUP BY input HAVING count(*) > 1";
    violations.extend(rows(network, "one request made several jobs", twice));
    violations
}

/// The reply to a stored input.
fn expected_of(input: &Value, replies: &Replies) -> String {
    let last = input["messages"].as_array().and_then(|messages| messages.last());
    let prompt =
        input["prompt"].as_str().or_else(|| last?["content"].as_str()).expect("an input has a prompt");
    let tokens = input["max_tokens"].as_u64().expect("every input has its number of tokens");
    replies.get(prompt).cloned().unwrap_or_else(|| expected(prompt, tokens))
}

/// No money is made or lost, no hold outlives its job, and who got nothing pays nothing.
fn of_money(network: &Network) -> Vec<String> {
    let checks = [
        (
            "the sum of all entries is not zero",
            "SELECT sum(amount) FROM ledger_entries HAVING sum(amount) <> 0",
        ),
        (
            "a hold outlives its job",
            "SELECT ledger, amount FROM balances WHERE ledger LIKE 'holds:%' AND amount <> 0",
        ),
        (
            "a balance is not the sum of its entries",
            "SELECT b.ledger, b.amount, coalesce(sum(e.amount), 0) FROM balances b LEFT JOIN ledger_entries e USING (ledger) \
             GROUP BY b.ledger, b.amount HAVING b.amount + coalesce((SELECT sum(u.amount) FROM uncounted_entries u \
             WHERE u.ledger = b.ledger), 0) <> coalesce(sum(e.amount), 0)",
        ),
        (
            "a job that failed was charged",
            "SELECT j.id, j.status, sum(e.amount) FROM jobs j JOIN ledger_entries e ON e.job_id = j.id \
             AND e.ledger = 'account:' || j.account_id WHERE j.status = 'failed' \
             GROUP BY j.id, j.status HAVING sum(e.amount) <> 0",
        ),
        (
            "a completed job was not charged its price once",
            "SELECT j.id, j.price, sum(e.amount) FROM jobs j JOIN ledger_entries e ON e.job_id = j.id \
             AND e.ledger = 'account:' || j.account_id WHERE j.status = 'completed' \
             GROUP BY j.id, j.price HAVING -sum(e.amount) <> j.price",
        ),
        (
            "an ended job lacks what its end brings",
            "SELECT id, status FROM jobs WHERE status = 'completed' AND (output IS NULL OR usage IS NULL OR completed_at IS NULL) \
             OR status IN ('failed', 'timeout') AND (error_code IS NULL OR completed_at IS NULL)",
        ),
    ];
    let mut violations: Vec<String> =
        checks.iter().flat_map(|(what, sql)| rows(network, what, sql)).collect();
    violations.extend(of_timeouts(network));
    violations
}

/// A job whose time was over costs what was delivered of it, so it costs something only if something was delivered.
fn of_timeouts(network: &Network) -> Vec<String> {
    let charged = "SELECT j.id, v.events FROM jobs j JOIN job_events v ON v.job_id = j.id \
                   JOIN ledger_entries e ON e.job_id = j.id AND e.ledger = 'account:' || j.account_id \
                   WHERE j.status = 'timeout' GROUP BY j.id, v.events HAVING sum(e.amount) <> 0";
    let rows = network.query(charged).into_iter();
    let empty = rows.filter(|row| !has_output(&row[1]));
    empty.map(|row| format!("a job without output was charged when its time was over: {}", row[0])).collect()
}

/// Whether stored events contain text.
fn has_output(events: &str) -> bool {
    let events: Vec<Numbered<JobEvent>> = serde_json::from_str(events).expect("stored events are JSON");
    events.iter().any(|event| matches!(event.event, JobEvent::Token { .. }))
}

/// No Island keeps the events of a job that has ended, and none leaves a process behind when it stops.
async fn of_islands(network: &Network) -> Vec<String> {
    let mut violations = Vec::new();
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let spools = (0..network.size().islands).map(|island| network.state(island).join("spool"));
        let left: Vec<String> = spools
            .flat_map(|spool| fs::read_dir(spool).into_iter().flatten().flatten())
            .map(|entry| entry.path().display().to_string())
            .collect();
        if left.is_empty() {
            break;
        }
        if tokio::time::Instant::now() > end {
            violations.push(format!("spools are left: {left:?}"));
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    network.stop_islands().await;
    violations.extend((0..network.size().islands).flat_map(|island| {
        processes::of(&network.state(island))
            .into_iter()
            .map(|process| format!("a process is left: {}", process.command))
    }));
    violations
}

#[cfg(test)]
mod tests {
    use island_protocol::{ids::JobId, job::Usage};

    use super::*;

    /// The log of a stream whose script has four tokens.
    fn log(numbers: &[u64], text: &str, last: Option<JobEvent>) -> Log {
        Log {
            job: JobId(uuid::Uuid::nil()),
            habit: Habit::Reads,
            whole: expected("one two", 4),
            numbers: numbers.to_vec(),
            text: text.to_owned(),
            last,
            pause: Duration::ZERO,
        }
    }

    fn done() -> JobEvent {
        JobEvent::Done { usage: Usage::tokens(2, 4), output: None, finish_reason: None, stop_text: None }
    }

    fn error() -> JobEvent {
        JobEvent::Error { error: "lost".to_owned(), code: "island_lost".to_owned() }
    }

    #[test]
    fn a_job_whose_time_was_over_has_output_if_it_has_a_token() {
        let stored = |events: Vec<JobEvent>| {
            let numbered = events.into_iter().zip(1..).map(|(event, n)| Numbered { n, event });
            serde_json::to_string(&numbered.collect::<Vec<_>>()).expect("JSON")
        };
        let token = JobEvent::token("one0".to_owned());
        assert!(has_output(&stored(vec![JobEvent::status("queued"), token, error()])));
        assert!(!has_output(&stored(vec![JobEvent::status("queued"), error()])));
    }

    #[test]
    fn a_stream_that_breaks_a_promise_is_reported() {
        let whole = "one0 two1 one2 two3";
        assert_eq!(of_stream(&log(&[1, 2, 3], whole, Some(done()))), None);
        assert_eq!(of_stream(&log(&[1, 2], "one0 two1", Some(error()))), None);
        assert_eq!(of_stream(&log(&[1, END_GAP + 2], "one0", Some(error()))), None);
        let broken = [
            ("a gap", log(&[1, 3], whole, Some(done()))),
            ("a gap before a result", log(&[1, END_GAP + 2], whole, Some(done()))),
            ("a repeat", log(&[1, 2, 2], whole, Some(done()))),
            ("a part as the whole", log(&[1, 2], "one0 two1", Some(done()))),
            ("another text", log(&[1, 2], "one0 one0", Some(error()))),
            ("a repeated text", log(&[1, 2], "one0 two1 one0", Some(error()))),
            ("no end", log(&[1, 2], "one0", None)),
        ];
        for (what, log) in broken {
            assert!(of_stream(&log).is_some(), "{what}");
        }
    }
}
