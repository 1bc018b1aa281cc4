//! `island cargos`, and what `island admin cargos` has in common with it.

use std::io::Read as _;

use anyhow::{Context as _, Result};
use island_coordinator_client::Answer;
use island_protocol_api::publication::{Publication, PublicationDetails};

use crate::{
    args::{OnPublication, Paging, Publications},
    commands::select,
    output::{Column, Output, text::or_dash},
    settings::Settings,
};

pub(super) const COLUMNS: [Column; 6] = [
    Column::of("id").id(),
    Column::of("cargo"),
    Column::of("state"),
    Column::of("submitted").drop(3),
    Column::of("changed").drop(2),
    Column::of("reason").cut().drop(1),
];

pub(super) async fn run(command: Publications, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Publications::Publish { file } => publish(&file, settings, output).await,
        Publications::Published(page) => list(&page, settings, output).await,
        Publications::Show(wanted) => show(&wanted, settings, output).await,
        Publications::Withdraw(wanted) => withdraw(&wanted, settings, output).await,
    }
}

async fn publish(file: &str, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.publish(read(file)?).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} is submitted as {}", answer.value.workload_slug, answer.value.id))?;
    output.note("it is served once an operator has approved it: `island cargos published` shows its state");
    Ok(())
}

fn read(file: &str) -> Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file).with_context(|| format!("read {file}"));
    }
    let mut manifest = String::new();
    std::io::stdin().read_to_string(&mut manifest).context("read the manifest from standard input")?;
    Ok(manifest)
}

async fn list(page: &Paging, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.publications(page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|publication| row(publication, output));
    output.table(&COLUMNS, rows.collect(), "No Cargos were submitted.")
}

/// The cells of a publication.
pub(super) fn row(publication: &Publication, output: &Output) -> Vec<String> {
    vec![
        publication.id.to_string(),
        publication.workload_slug.to_string(),
        publication.state.as_str().to_owned(),
        output.moment(publication.created_at),
        or_dash(publication.changed_at.map(|changed| output.moment(changed))),
        or_dash(publication.reason.as_ref()),
    ]
}

async fn show(wanted: &OnPublication, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::publication(&client, &wanted.publication).await?;
    print(&client.publication(id).answer().await?, output)
}

/// Prints a publication with its manifest.
pub(super) fn print(answer: &Answer<PublicationDetails>, output: &Output) -> Result<()> {
    if output.is_json() {
        return output.json(&answer.body);
    }
    let PublicationDetails { publication, manifest } = &answer.value;
    let mut fields = vec![
        ("Id", publication.id.to_string()),
        ("Cargo", publication.workload_slug.to_string()),
        ("Name", publication.name.clone()),
        ("Publisher", publication.publisher.to_string()),
        ("State", publication.state.as_str().to_owned()),
        ("Submitted", publication.created_at.to_string()),
    ];
    fields.extend(publication.changed_at.map(|changed| ("Changed", changed.to_string())));
    fields.extend(publication.reason.clone().map(|reason| ("Reason", reason)));
    output.fields(&fields)?;
    output.line(&format!("\n{manifest}"))
}

async fn withdraw(wanted: &OnPublication, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::publication(&client, &wanted.publication).await?;
    let answer = client.withdraw_publication(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} of {} is withdrawn", answer.value.id, answer.value.workload_slug))
}
