//! `island admin cargos`.

use anyhow::Result;
use island_protocol_api::{
    admin::Reason,
    publication::{Publication, PublicationState},
};

use crate::{
    args::{Cargos, OnCargo, OnPublication, Paging, Review},
    commands::{publications, select},
    output::{Column, Output, text::or_dash},
    settings::Settings,
};

const COLUMNS: [Column; 4] = [
    Column::of("cargo"),
    Column::of("state"),
    Column::of("disabled").drop(1),
    Column::of("reason").cut().drop(2),
];

pub(super) async fn run(command: Cargos, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Cargos::List => list(settings, output).await,
        Cargos::Disable(wanted) => change(wanted, false, settings, output).await,
        Cargos::Enable(wanted) => change(wanted, true, settings, output).await,
        Cargos::Published { state, page } => published(state, &page, settings, output).await,
        Cargos::Show(wanted) => show(&wanted, settings, output).await,
        Cargos::Approve(wanted) => review(wanted, true, settings, output).await,
        Cargos::Reject(wanted) => review(wanted, false, settings, output).await,
    }
}

async fn published(
    state: Option<PublicationState>,
    page: &Paging,
    settings: &Settings,
    output: &Output,
) -> Result<()> {
    let answer = settings.client()?.all_publications(state, page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|publication| {
        let mut row = publications::row(publication, output);
        row.insert(2, publication.publisher.to_string());
        row
    });
    let [id, cargo, others @ ..] = publications::COLUMNS;
    let columns: Vec<_> =
        [id, cargo, Column::of("publisher").id().drop(4)].into_iter().chain(others).collect();
    output.table(&columns, rows.collect(), "No Cargos were submitted.")
}

async fn show(wanted: &OnPublication, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::any_publication(&client, &wanted.publication).await?;
    publications::print(&client.any_publication(id).answer().await?, output)
}

async fn review(wanted: Review, approve: bool, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::any_publication(&client, &wanted.publication.publication).await?;
    let reason = Reason { reason: wanted.reason };
    let request = if approve {
        client.approve_publication(id, &reason)
    } else {
        client.reject_publication(id, &reason)
    };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let Publication { id, workload_slug, state, .. } = &answer.value;
    output.line(&format!("{id} of {workload_slug} is {}", state.as_str()))
}

async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.cargo_states().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|cargo| {
        let disabled = cargo.disabled.as_ref();
        vec![
            cargo.workload_slug.to_string(),
            if cargo.is_enabled { "enabled" } else { "disabled" }.into(),
            or_dash(disabled.map(|disabled| output.moment(disabled.at))),
            or_dash(disabled.map(|disabled| &disabled.reason)),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No Cargos.")
}

async fn change(wanted: OnCargo, enable: bool, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let (slug, reason) = (wanted.slug.as_str(), wanted.why.into());
    let request =
        if enable { client.enable_cargo(slug, &reason) } else { client.disable_cargo(slug, &reason) };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let state = if answer.value.is_enabled { "accepted" } else { "refused" };
    output.line(&format!("new jobs of {} are {state}", answer.value.workload_slug))
}
