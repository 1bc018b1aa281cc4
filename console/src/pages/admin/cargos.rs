//! Which Cargos of the catalogue accept jobs.

use axum::{extract::Path, response::Response};
use island_protocol_api::admin::CargoState;

use super::{Operator, not_found, post_reason};
use crate::{
    backend::encoded,
    posted::Posted,
    texts::t,
    view::{Block, Cell, Field, Form, Pager, Table, Tone},
};

const PAGE: &str = "/console/admin/cargos";
/// Cargos in one page.
const LIMIT: u64 = 40;

/// `GET /console/admin/cargos`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    let cargos: Vec<CargoState> = match member.visit.api.get("/admin/cargos").await {
        Ok(cargos) => cargos,
        Err(failure) => return member.failed(failure, "/console/admin"),
    };
    let search = member.visit.param("q").unwrap_or_default().to_lowercase();
    let offset = member.visit.offset();
    let mut shown: Vec<&CargoState> =
        cargos.iter().filter(|cargo| cargo.workload_slug.to_string().contains(&search)).collect();
    // Those that accept no jobs need attention.
    shown.sort_by_key(|cargo| (cargo.is_enabled, cargo.workload_slug.clone()));
    let row = |cargo: &&CargoState| {
        let slug = cargo.workload_slug.to_string();
        let state = match &cargo.disabled {
            Some(disabled) => Cell::Badge(Tone::Bad, format!("{}: {}", t("switches.off"), disabled.reason)),
            None => Cell::Badge(Tone::Good, t("switches.on").to_owned()),
        };
        let (verb, text) =
            if cargo.is_enabled { ("disable", "switches.disable") } else { ("enable", "switches.enable") };
        let action = format!("{PAGE}/{}/{verb}", encoded(&slug));
        let form = Form::post(action, t(text), vec![Field::reason()]).inline();
        let form = Form { label: format!("{} {slug}", t(text)), ..form };
        let form = if cargo.is_enabled { form.bad() } else { form };
        vec![
            Cell::link(format!("/console/cargos/{}", encoded(&slug)), slug),
            state,
            Cell::Actions(vec![form]),
        ]
    };
    let meta = island_protocol_api::PageMeta { total: shown.len() as u64, limit: LIMIT, offset };
    let columns = ["jobs.cargo", "jobs.status", "keys.change"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: shown.iter().skip(offset as usize).take(LIMIT as usize).map(row).collect(),
        empty: t("cargos.none").to_owned(),
        pager: Pager::new(&format!("{PAGE}?q={}&", encoded(&search)), meta),
        ..Table::default()
    };
    let filter = Form::filter(PAGE, vec![Field::line("q", t("cargos.search")).value(search)]);
    member.page(t("switches.title"), t("switches.lead"), vec![Block::Form(filter), Block::Table(table)])
}

/// `POST /console/admin/cargos/:slug/disable` and `/enable`.
pub(super) async fn switch(
    Operator(member): Operator,
    Path((slug, verb)): Path<(String, String)>,
    posted: Posted,
) -> Response {
    let what = match verb.as_str() {
        "disable" => "disabled",
        "enable" => "enabled",
        _ => return not_found(),
    };
    let path = format!("/admin/cargos/{}/{verb}", encoded(&slug));
    match post_reason(&member, &path, &posted, PAGE, what).await {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, PAGE, |member| list(Operator(member))).await,
    }
}
