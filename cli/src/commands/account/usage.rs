//! `island account usage`.

use anyhow::Result;
use island_protocol::time::Timestamp;
use island_protocol_api::usage::UsageRow;

use crate::{
    args::UsageOptions,
    output::{Column, Output, text::or_dash},
    settings::Settings,
};

const COLUMNS: [Column; 7] = [
    Column::of("day"),
    Column::of("cargo").cut(),
    Column::of("key").cut().drop(2),
    Column::of("jobs"),
    Column::of("prompt").drop(1),
    Column::of("completion").drop(1),
    Column::of("credits"),
];

/// Prints what the account used. Amounts are exact, as in statements.
pub(super) async fn usage(options: &UsageOptions, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let (from, until) = (options.month, options.month.map(Timestamp::next_month));
    if options.csv {
        return output.piece(&client.usage_csv(from, until).await?);
    }
    let answer = client.usage(from, until).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.table(&COLUMNS, answer.value.rows.iter().map(row).collect(), "no job ended in these days")
}

fn row(row: &UsageRow) -> Vec<String> {
    vec![
        row.day.to_string().chars().take(10).collect(),
        row.workload_slug.to_string(),
        or_dash(row.key_name.as_ref()),
        row.jobs.to_string(),
        row.prompt_tokens.to_string(),
        row.completion_tokens.to_string(),
        row.amount.to_string(),
    ]
}
