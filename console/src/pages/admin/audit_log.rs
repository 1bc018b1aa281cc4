//! What operators did.

use axum::response::Response;
use island_protocol_api::admin::AuditEntry;

use super::{Operator, account_id};
use crate::{
    backend::{add_parameter, encoded},
    texts::{find, t},
    view::{Block, Cell, Field, Form, Pager, Table},
    web::blocks_page,
};

const PAGE: &str = "/console/admin/audit-log";

/// `GET /console/admin/audit-log`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    let account = member.visit.param("account").unwrap_or_default().to_owned();
    let id = match account_id(&member, &account).await {
        Ok(id) => id,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let mut path = format!("/admin/audit-log?limit=50&offset={}", member.visit.offset());
    if !account.is_empty() {
        add_parameter(&mut path, "account", &id);
    }
    let page = match member.visit.api.page::<AuditEntry>(&path).await {
        Ok(page) => page,
        Err(failure) => return member.failed(failure, "/console/admin"),
    };
    let short = |id: String| id.chars().take(8).collect::<String>();
    let row = |entry: &AuditEntry| {
        let action = entry.action.as_str();
        let about = match (&entry.subject, entry.host, entry.job) {
            (Some(subject), _, _) => Cell::Code(subject.clone()),
            (None, Some(host), _) => Cell::link(format!("/console/islands/{host}"), short(host.to_string())),
            (None, None, Some(job)) => Cell::Code(job.to_string()),
            _ => Cell::link(
                format!("/console/admin/accounts/{}", entry.account),
                short(entry.account.to_string()),
            ),
        };
        vec![
            Cell::Time(entry.created_at),
            Cell::text(find(&format!("action.{action}")).unwrap_or(action)),
            about,
            entry.amount.map_or(Cell::Nothing, Cell::Credits),
            Cell::text(entry.reason.clone()),
            Cell::text(
                entry.actor.map_or_else(|| t("audit.command").to_owned(), |actor| short(actor.to_string())),
            ),
        ]
    };
    let columns =
        ["ledger.time", "audit.action", "ledger.about", "ledger.amount", "form.reason", "audit.actor"];
    let query = if account.is_empty() { String::new() } else { format!("account={}&", encoded(&account)) };
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("audit.none").to_owned(),
        pager: Pager::new(&format!("{PAGE}?{query}"), page.meta),
        ..Table::default()
    };
    let filter = Form::filter(PAGE, vec![Field::line("account", t("admin.account_filter")).value(account)]);
    let mut frame = member.frame(t("audit.title"));
    frame.is_wide = true;
    blocks_page(frame, t("audit.lead").to_owned(), vec![Block::Form(filter), Block::Table(table)])
}
