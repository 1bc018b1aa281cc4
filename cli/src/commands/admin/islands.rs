//! `island admin islands`.

use anyhow::Result;
use island_protocol_api::admin::{AnnotateHost, Reason};

use crate::{
    args::{AnnotateIsland, Islands, ListIslands, OnIsland},
    commands::select,
    output::{Column, Output, text::or_dash},
    settings::Settings,
};

const COLUMNS: [Column; 8] = [
    Column::of("id").id(),
    Column::of("name").cut(),
    Column::of("account").id(),
    Column::of("version").drop(4),
    Column::of("seen").drop(5),
    Column::of("trust").drop(2),
    Column::of("suspended").cut().drop(1),
    Column::of("note").cut().drop(3),
];

pub(super) async fn run(command: Islands, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Islands::List(options) => list(&options, settings, output).await,
        Islands::Suspend(wanted) => change(wanted, true, settings, output).await,
        Islands::Resume(wanted) => change(wanted, false, settings, output).await,
        Islands::Annotate(wanted) => annotate(wanted, settings, output).await,
    }
}

async fn list(options: &ListIslands, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let account = match &options.account {
        Some(account) => Some(select::account(&client, account).await?),
        None => None,
    };
    let page = &options.page;
    let answer = client.hosts_of_accounts(account, page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|island| {
        vec![
            island.id.to_string(),
            island.name.clone(),
            island.account.to_string(),
            or_dash(island.agent_version.as_ref()),
            island.last_seen_at.map_or_else(|| "never".into(), |seen| output.moment(seen)),
            island.trust.as_str().to_owned(),
            island.suspended.as_ref().map_or_else(|| "-".into(), |suspended| suspended.reason.clone()),
            or_dash(island.note.as_ref()),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No Islands.")
}

async fn change(wanted: OnIsland, is_suspension: bool, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let island = select::host(&client, &wanted.island).await?;
    let reason = Reason { reason: wanted.reason };
    let request = if is_suspension {
        client.suspend_host(island, &reason)
    } else {
        client.resume_host(island, &reason)
    };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let state = if is_suspension { "gets no new jobs" } else { "gets jobs again" };
    output.line(&format!("{} {state}", answer.value.name))
}

async fn annotate(wanted: AnnotateIsland, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let island = select::host(&client, &wanted.island).await?;
    let Reason { reason } = wanted.why.into();
    let body = AnnotateHost { trust: wanted.trust, note: wanted.note, reason };
    let answer = client.annotate_host(island, &body).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.fields(&[
        ("Name", answer.value.name),
        ("Trust", answer.value.trust.as_str().to_owned()),
        ("Note", or_dash(answer.value.note)),
    ])
}
