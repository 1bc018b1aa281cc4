//! `island account ledger`.

use anyhow::Result;

use crate::{
    args::Paging,
    output::{Output, text::or_dash},
    settings::Settings,
};

pub(super) async fn ledger(page: &Paging, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.ledger(page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|entry| {
        vec![
            entry.created_at.to_string(),
            entry.kind.clone(),
            entry.book.clone(),
            format!("{:+.4}", entry.amount.0 as f64 / 1e6),
            or_dash(entry.job_id),
        ]
    });
    output.table(&["when", "kind", "book", "amount", "job"], rows.collect(), "No entries yet.")
}
