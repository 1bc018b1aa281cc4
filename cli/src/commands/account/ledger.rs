//! `island account ledger`.

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol_api::ledger::LedgerEntry;

use crate::{
    args::{Ledger, Paging},
    output::{Column, Output, text::or_dash},
    settings::Settings,
};

const COLUMNS: [Column; 5] = [
    Column::of("when"),
    Column::of("kind"),
    Column::of("book"),
    Column::of("amount"),
    Column::of("job").id().drop(1),
];

/// Entries per request, the maximum of the API.
const MOST: u64 = 100;

pub(super) async fn ledger(options: &Ledger, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let page = &options.page;
    if output.is_json() {
        return output.json(&client.ledger(page.limit, page.offset).answer().await?.body);
    }
    let entries = if options.all {
        client.ledger(page.limit, page.offset).await?.data
    } else {
        of_the_balance(&client, page).await?
    };
    let rows = entries.iter().map(|entry| {
        vec![
            output.moment(entry.created_at),
            entry.kind.clone(),
            entry.book.clone(),
            format!("{:+.4}", entry.amount.0 as f64 / 1e6),
            or_dash(entry.job_id),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No entries yet.")
}

/// A page of the entries that changed the balance. The API counts those of held credits too.
async fn of_the_balance(client: &Client, page: &Paging) -> Result<Vec<LedgerEntry>> {
    let wanted = usize::try_from(page.offset.saturating_add(page.limit))?;
    let (mut entries, mut read) = (Vec::new(), 0);
    while entries.len() < wanted {
        let answer = client.ledger(MOST, read).await?;
        read += answer.data.len() as u64;
        let is_last = answer.data.is_empty() || read >= answer.meta.total;
        entries.extend(answer.data.into_iter().filter(|entry| entry.book == "balance"));
        if is_last {
            break;
        }
    }
    let skipped = usize::try_from(page.offset)?;
    Ok(entries.into_iter().skip(skipped).take(wanted - skipped).collect())
}
