//! All Islands, with what operators note about them.

use axum::{extract::Path, response::Response};
use island_protocol_api::{
    Data,
    admin::{AdminHost, AnnotateHost, Trust},
};
use serde::de::IgnoredAny;

use super::{OPERATOR, Operator, account_id, not_found, post_reason};
use crate::{
    backend::{add_parameter, encoded},
    pages::islands::{badge, states},
    posted::Posted,
    texts::t,
    view::{Block, Cell, Field, Form, Kind, Pager, Table, Tone},
    web::{blocks_page, done},
};

const PAGE: &str = "/console/admin/fleet";

/// `GET /console/admin/fleet`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    let [account, text, state] =
        ["account", "q", "status"].map(|name| member.visit.param(name).unwrap_or_default().to_owned());
    let id = match account_id(&member, &account).await {
        Ok(id) => id,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let mut path = format!("/admin/hosts?limit=25&offset={}", member.visit.offset());
    let mut address = format!("{PAGE}?");
    for (name, entered, value) in
        [("account", &account, &id), ("q", &text, &text), ("status", &state, &state)]
    {
        if !entered.is_empty() {
            add_parameter(&mut path, name, value);
            address = format!("{address}{name}={}&", encoded(entered));
        }
    }
    let page = match member.visit.api.page::<AdminHost>(&path).await {
        Ok(page) => page,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let row = |island: &AdminHost| {
        let state = if let Some(suspension) = &island.suspended {
            Cell::Badge(Tone::Bad, format!("{}: {}", t("island.suspended"), suspension.reason))
        } else if let Some(refusal) = &island.incompatible {
            Cell::Badge(Tone::Bad, refusal.clone())
        } else {
            let (tone, text) = badge(island.status.as_deref().unwrap_or("offline"));
            Cell::Badge(tone, text)
        };
        vec![
            Cell::link(format!("/console/islands/{}", island.id), island.name.clone()),
            state,
            Cell::link(
                format!("/console/admin/accounts/{}", island.account),
                island.account.to_string().chars().take(8).collect::<String>(),
            ),
            Cell::text(island.region.clone().unwrap_or_default()),
            Cell::text(island.agent_version.clone().unwrap_or_default()),
            Cell::time(island.last_seen_at),
            trust(island.trust),
            Cell::text(island.note.clone().unwrap_or_default()),
            Cell::Actions(vec![actions(island)]),
        ]
    };
    let columns = [
        "islands.name",
        "islands.status",
        "admin.account",
        "islands.region",
        "islands.agent",
        "islands.seen",
        "admin.trust",
        "admin.note",
        "keys.change",
    ];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("islands.no_others").to_owned(),
        pager: Pager::new(&address, page.meta),
        ..Table::default()
    };
    let filter = Form::filter(
        PAGE,
        vec![
            Field::line("q", t("islands.search")).value(text),
            Field::new("status", t("islands.status"), Kind::Choice(states())).value(state),
            Field::line("account", t("admin.account_filter")).value(account),
        ],
    );
    let mut frame = member.frame(t("fleet.title"));
    frame.is_wide = true;
    let mut blocks: Vec<Block> =
        member.dashboards(&[(OPERATOR, "admin.grafana_operator")]).into_iter().collect();
    blocks.extend([Block::Form(filter), Block::Table(table)]);
    if !page.data.is_empty() {
        blocks.push(Block::Panel(t("admin.annotate").to_owned(), vec![Block::Form(annotation(&page.data))]));
    }
    blocks_page(frame, t("fleet.lead").to_owned(), blocks)
}

fn trust(trust: Trust) -> Cell {
    match trust {
        Trust::Low => Cell::Badge(Tone::Warn, t("admin.trust_low").to_owned()),
        Trust::Normal => Cell::text(t("admin.trust_normal")),
        Trust::High => Cell::Badge(Tone::Good, t("admin.trust_high").to_owned()),
    }
}

/// What operators note about one of the Islands of the page. What is not chosen or entered stays as it is.
fn annotation(islands: &[AdminHost]) -> Form {
    let islands = islands.iter().map(|island| (island.id.to_string(), island.name.clone())).collect();
    let levels = [
        ("", "admin.unchanged"),
        ("low", "admin.trust_low"),
        ("normal", "admin.trust_normal"),
        ("high", "admin.trust_high"),
    ];
    let levels = levels.iter().map(|(value, key)| ((*value).to_owned(), t(key).to_owned())).collect();
    Form::post(
        format!("{PAGE}/_/annotate"),
        t("admin.annotate"),
        vec![
            Field::new("id", t("islands.name"), Kind::Choice(islands)).required(),
            Field::new("trust", t("admin.trust"), Kind::Choice(levels)),
            Field::line("note", t("admin.note")).help(t("admin.note_help")),
            Field::new("remove_note", t("admin.remove_note"), Kind::Check),
            Field::reason(),
        ],
    )
}

/// The changes that the form contains.
fn annotated(posted: &Posted) -> AnnotateHost {
    let is_removed = posted.get("remove_note") == "true";
    let note = posted.some("note").map(str::to_owned);
    AnnotateHost {
        trust: posted.get("trust").parse().ok(),
        note: if is_removed { Some(String::new()) } else { note },
        reason: posted.get("reason").to_owned(),
    }
}

fn actions(island: &AdminHost) -> Form {
    let (verb, text) =
        if island.suspended.is_some() { ("resume", "admin.resume") } else { ("suspend", "admin.suspend") };
    let form = Form::post(format!("{PAGE}/{}/{verb}", island.id), t(text), vec![Field::reason()]).inline();
    let form = Form { label: format!("{} {}", t(text), island.name), ..form };
    if verb == "suspend" { form.bad() } else { form }
}

/// `POST /console/admin/fleet/:id/suspend`, `/resume` and `/annotate`.
pub(super) async fn change(
    Operator(member): Operator,
    Path((id, verb)): Path<(String, String)>,
    posted: Posted,
) -> Response {
    let path = format!("/admin/hosts/{}/{verb}", encoded(&id));
    let changed = match verb.as_str() {
        "suspend" => post_reason(&member, &path, &posted, PAGE, "suspended").await,
        "resume" => post_reason(&member, &path, &posted, PAGE, "resumed").await,
        "annotate" => {
            let path = format!("/admin/hosts/{}/annotate", encoded(posted.get("id")));
            let changed = member.visit.api.post::<Data<IgnoredAny>>(&path, &annotated(&posted)).await;
            changed.map(|_| done(PAGE, "annotated"))
        }
        _ => return not_found(),
    };
    match changed {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, PAGE, |member| list(Operator(member))).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_entered_stays_as_it_is() {
        let of = |pairs: &[(&str, &str)]| {
            let annotation = annotated(&Posted::of(pairs));
            (annotation.trust, annotation.note)
        };
        assert_eq!(of(&[("trust", ""), ("note", "")]), (None, None));
        assert_eq!(of(&[("trust", "high"), ("note", "fast")]), (Some(Trust::High), Some("fast".to_owned())));
        assert_eq!(of(&[("remove_note", "true"), ("note", "x")]), (None, Some(String::new())));
    }
}
