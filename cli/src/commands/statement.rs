//! Statements of accounts.

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol::{ids::AccountId, time::Timestamp};
use island_protocol_api::statement::Statement;

use crate::{
    args::StatementOptions,
    output::{Column, Output, text::or_dash},
};

const TOTALS: [Column; 3] = [Column::of("kind"), Column::of("amount"), Column::of("entries").drop(1)];
const EARNED: [Column; 4] = [
    Column::of("island").cut(),
    Column::of("device").cut().drop(2),
    Column::of("jobs").drop(1),
    Column::of("earned"),
];
const SPENT: [Column; 3] = [Column::of("cargo"), Column::of("jobs").drop(1), Column::of("spent")];

/// Prints the statement of this account, or of the key's own. Amounts are exact, as people are paid by them.
pub(super) async fn show(
    client: &Client,
    account: Option<AccountId>,
    options: &StatementOptions,
    output: &Output,
) -> Result<()> {
    let (from, until) = (options.month, options.month.map(Timestamp::next_month));
    if options.csv {
        let request = match account {
            Some(account) => client.statement_csv_of_account(account, from, until),
            None => client.statement_csv(from, until),
        };
        return output.piece(&request.await?);
    }
    let request = match account {
        Some(account) => client.statement_of_account(account, from, until),
        None => client.statement(from, until),
    };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    print(&answer.value, output)
}

fn print(statement: &Statement, output: &Output) -> Result<()> {
    output.fields(&[
        ("Account", statement.account.to_string()),
        ("From", statement.from.to_string()),
        ("Until", statement.until.to_string()),
        ("Opening", statement.opening.to_string()),
        ("Closing", statement.closing.to_string()),
    ])?;
    let totals = statement
        .totals
        .iter()
        .map(|total| vec![total.kind.replace('_', " "), total.amount.to_string(), total.entries.to_string()]);
    section(&TOTALS, totals.collect(), output)?;
    let earned = statement.earned.iter().map(|island| {
        let name = island.name.clone().or_else(|| island.host_id.map(|id| id.to_string()));
        vec![
            or_dash(name),
            or_dash(island.device.as_ref()),
            island.jobs.to_string(),
            island.amount.to_string(),
        ]
    });
    section(&EARNED, earned.collect(), output)?;
    let spent = statement
        .spent
        .iter()
        .map(|cargo| vec![cargo.workload_slug.to_string(), cargo.jobs.to_string(), cargo.amount.to_string()]);
    section(&SPENT, spent.collect(), output)
}

/// A table after an empty line; nothing if it has no rows.
fn section(columns: &[Column], rows: Vec<Vec<String>>, output: &Output) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    output.line("")?;
    output.table(columns, rows, "")
}
