//! `island account ledger`.

use anyhow::Result;

use crate::{
    args::Paging,
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

pub(super) async fn ledger(page: &Paging, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.ledger(page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|entry| {
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
