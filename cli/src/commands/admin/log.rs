//! `island admin log`.

use anyhow::Result;

use crate::{
    args::AuditLog,
    commands::select,
    output::{Column, Output, text},
    settings::Settings,
};

const COLUMNS: [Column; 7] = [
    Column::of("when"),
    Column::of("action"),
    Column::of("account").id(),
    Column::of("subject").id().drop(3),
    Column::of("credits").drop(2),
    Column::of("by").id().drop(1),
    Column::of("reason").cut(),
];

pub(super) async fn log(options: &AuditLog, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let account = match &options.account {
        Some(account) => Some(select::account(&client, account).await?),
        None => None,
    };
    let answer = client.audit_log(account, options.page.limit, options.page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|entry| {
        let key = entry.api_key.map(|id| id.to_string());
        let host = entry.host.map(|id| id.to_string());
        let job = entry.job.map(|id| id.to_string());
        let subject = key.or(host).or(job).or_else(|| entry.subject.clone());
        vec![
            output.moment(entry.created_at),
            entry.action.replace('_', " "),
            entry.account.to_string(),
            text::or_dash(subject),
            entry.amount.map_or_else(|| "-".into(), text::credits),
            entry.actor.map_or_else(|| "coordinator".into(), |actor| actor.to_string()),
            if entry.reason.is_empty() { "-".into() } else { entry.reason.clone() },
        ]
    });
    output.table(&COLUMNS, rows.collect(), "Nothing yet.")
}
