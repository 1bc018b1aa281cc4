//! The events of ended jobs, in pieces: a reader holds one at a time, however much a job wrote.

use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
};
use sqlx::Row as _;

use crate::{Connection, Pool, QueryContext as _, StoreError, json, to_json};

/// Size of a piece in bytes; a larger event is a piece of its own.
const PIECE_BYTES: usize = 256 << 10;

type Events = Vec<Numbered<JobEvent>>;

/// JSON of the pieces, each with the number of its first event. There is at least one.
fn pieces(events: &[Numbered<JobEvent>]) -> Vec<(u64, String)> {
    let mut pieces: Vec<(u64, String)> = Vec::new();
    for event in events {
        let text = to_json(event);
        match pieces.last_mut() {
            Some((_, piece)) if piece.len() + text.len() < PIECE_BYTES => {
                piece.push(',');
                piece.push_str(&text);
            }
            _ => pieces.push((event.n, format!("[{text}"))),
        }
    }
    if pieces.is_empty() {
        pieces.push((1, "[".to_owned()));
    }
    for (_, piece) in &mut pieces {
        piece.push(']');
    }
    pieces
}

/// Stores all events of a job that ends. The first piece has a table of its own, which older coordinators read too.
pub(super) async fn store(
    conn: &mut Connection,
    job: JobId,
    events: &[Numbered<JobEvent>],
) -> Result<(), StoreError> {
    for (index, (first, text)) in pieces(events).into_iter().enumerate() {
        let query = if index == 0 {
            sqlx::query("INSERT INTO job_events (job_id, events) VALUES ($1, $2)")
        } else {
            sqlx::query("INSERT INTO job_event_pieces (job_id, events, first_n) VALUES ($1, $2, $3)")
        };
        let query = query.bind(job.to_string()).bind(text);
        let query = if index == 0 { query } else { query.bind(first as i64) };
        query.execute(&mut *conn).await.context("store the events of a job")?;
    }
    Ok(())
}

/// The piece with the first event after `after`, without earlier ones. Returns `None` if the events are not stored, and
/// nothing if there are no more.
pub async fn piece(pool: &Pool, id: JobId, after: u64) -> Result<Option<Events>, StoreError> {
    let row = sqlx::query(
        "SELECT events FROM job_event_pieces WHERE job_id = $1 AND first_n <= $2 ORDER BY first_n DESC LIMIT 1",
    )
    .bind(id.to_string())
    .bind(i64::try_from(after.saturating_add(1)).unwrap_or(i64::MAX))
    .fetch_optional(pool)
    .await
    .context("read events of a job")?;
    let events: Option<Events> = match row {
        Some(row) => json(&row, "events")?,
        None => first(pool, id).await?,
    };
    let later = |events: Events| events.into_iter().filter(|event| event.n > after).collect::<Events>();
    match events.map(later) {
        Some(events) if events.is_empty() => Ok(Some(next_piece(pool, id, after).await?.unwrap_or_default())),
        events => Ok(events),
    }
}

/// The first piece that begins after `after`: the number of the end may follow a gap.
async fn next_piece(pool: &Pool, id: JobId, after: u64) -> Result<Option<Events>, StoreError> {
    let row = sqlx::query(
        "SELECT events FROM job_event_pieces WHERE job_id = $1 AND first_n > $2 ORDER BY first_n LIMIT 1",
    )
    .bind(id.to_string())
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .fetch_optional(pool)
    .await
    .context("read events of a job")?;
    row.map(|row| json(&row, "events")).transpose().map(Option::flatten)
}

async fn first(pool: &Pool, id: JobId) -> Result<Option<Events>, StoreError> {
    let row = sqlx::query("SELECT events FROM job_events WHERE job_id = $1")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read the events of a job")?;
    Ok(row.map(|row| json(&row, "events")).transpose()?.flatten())
}

/// Whether a job belongs to an account and has ended; `None` for another account's or an unknown one.
pub async fn has_ended(
    pool: &Pool,
    id: JobId,
    account: island_protocol::ids::AccountId,
) -> Result<Option<bool>, StoreError> {
    let row = sqlx::query("SELECT completed_at FROM jobs WHERE id = $1 AND account_id = $2")
        .bind(id.to_string())
        .bind(account.to_string())
        .fetch_optional(pool)
        .await
        .context("read the end of a job")?;
    let ended = |row: crate::Row| row.try_get::<Option<i64>, _>("completed_at").map(|at| at.is_some());
    row.map(ended).transpose().context("read a column")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbered(sizes: &[usize]) -> Events {
        let event = |(n, size): (u64, &usize)| Numbered { n, event: JobEvent::token("x".repeat(*size)) };
        (1..).zip(sizes).map(event).collect()
    }

    proptest! {
        #[test]
        fn pieces_are_small_and_contain_all_events_in_order(
            sizes in proptest::collection::vec(0..PIECE_BYTES / 2, 0..12),
        ) {
            let events = numbered(&sizes);
            let pieces = pieces(&events);
            let mut joined = Events::new();
            for (first, text) in &pieces {
                let part: Events = serde_json::from_str(text).expect("json");
                prop_assert!(text.len() <= PIECE_BYTES + 1 || part.len() == 1);
                prop_assert_eq!(part.first().map_or(1, |event| event.n), *first);
                joined.extend(part);
            }
            prop_assert!(!pieces.is_empty());
            prop_assert_eq!(joined, events);
        }
    }
}
