//! `island admin cargos`.

use anyhow::Result;

use crate::{
    args::{Cargos, OnCargo},
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
    }
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
