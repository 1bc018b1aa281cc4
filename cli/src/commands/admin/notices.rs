//! `island admin notices`.

use anyhow::Result;
use island_protocol_api::admin::CreateNotice;

use crate::{
    args::Notices,
    commands::select,
    output::{Column, Output, text},
    settings::Settings,
};

const COLUMNS: [Column; 4] = [
    Column::of("id").id(),
    Column::of("text").cut(),
    Column::of("created").drop(2),
    Column::of("until").drop(1),
];

pub(super) async fn run(command: Notices, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let (answer, what) = match command {
        Notices::List => return list(settings, output).await,
        Notices::Create { text, until } => {
            let until = until.map(|until| until.moment(text::now()));
            (client.create_notice(&CreateNotice { text, until }).answer().await?, "is shown")
        }
        Notices::Remove { notice } => {
            let notice = select::notice(&client, &notice).await?;
            (client.remove_notice(notice).answer().await?, "is no longer shown")
        }
    };
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("notice {} {what}", answer.value.id))
}

async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.notices().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|notice| {
        vec![
            notice.id.to_string(),
            notice.text.clone(),
            output.moment(notice.created_at),
            text::or_dash(notice.until.map(|until| output.moment(until))),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No notices.")
}
