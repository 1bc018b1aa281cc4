//! Orders to an Island of one's own: what applies, and what can be ordered from here.

use axum::{extract::Path, response::Response};
use island_protocol::host::{ControlState, Order};
use island_protocol_api::{Data, HostControl, HostView};

use crate::{
    backend::encoded,
    texts::t,
    view::{Block, Cell, Form},
    web::{Member, done},
};

/// Buttons for the orders that the Island accepts remotely, and the commands on the machine.
pub(super) fn control(island: &HostView, state: Option<ControlState>) -> Block {
    let commands = vec![
        Block::Copy(t("islands.pause").to_owned(), "island-agent pause".to_owned()),
        Block::Copy(t("islands.resume").to_owned(), "island-agent resume".to_owned()),
        Block::Copy(t("islands.drain").to_owned(), "island-agent drain".to_owned()),
    ];
    let mut blocks = Vec::new();
    let Some(state) = state.filter(|state| state.allowed) else {
        let key = if island.status == "offline" { "control.offline" } else { "control.closed" };
        blocks.push(Block::Text(t(key).to_owned()));
        blocks.push(Block::Copy(t("control.allow").to_owned(), "[control]\nallow_remote = true".to_owned()));
        blocks.extend(commands);
        return Block::Panel(t("islands.control").to_owned(), blocks);
    };
    let key = match (state.order, state.remote) {
        (None | Some(Order::Resume), _) => "control.rules",
        (Some(Order::Pause), true) => "control.paused",
        (Some(Order::Drain), true) => "control.draining",
        (Some(_), false) => "control.local",
    };
    blocks.push(Block::Text(t(key).to_owned()));
    let button = |order: Order, key: &str| {
        let label = format!("{} {}", t(key), island.name);
        Form::button(format!("/console/islands/{}/{}", island.id, order.as_str()), t(key), label)
    };
    let mut forms = Vec::new();
    if state.order.is_some() {
        forms.push(button(Order::Resume, "islands.resume"));
    }
    if state.order != Some(Order::Pause) {
        forms.push(button(Order::Pause, "islands.pause").bad().confirm(t("islands.pause_confirm")));
    }
    if state.order.is_none() {
        forms.push(button(Order::Drain, "islands.drain"));
    }
    blocks.push(Block::Facts(vec![(t("keys.change").to_owned(), Cell::Actions(forms))]));
    blocks.push(Block::Fold(t("control.here").to_owned(), commands));
    Block::Panel(t("islands.control").to_owned(), blocks)
}

/// `POST /console/islands/:id/pause`, `/drain` and `/resume`.
pub(in crate::pages) async fn order(member: Member, Path((id, verb)): Path<(String, String)>) -> Response {
    let Ok(order) = verb.parse::<Order>() else {
        return crate::web::not_found(&member.visit, Some(&member.who));
    };
    let page = format!("/console/islands/{}", encoded(&id));
    let path = format!("/hosts/{}/{}", encoded(&id), order.as_str());
    match member.visit.api.post::<Data<HostControl>>(&path, &()).await {
        Ok(_) => done(&page, &format!("ordered_{}", order.as_str())),
        Err(failure) => member.failed(failure, &page),
    }
}

#[cfg(test)]
mod tests {
    use askama::Template as _;

    use super::*;
    use crate::pages::islands::tests::island;

    fn html(status: &str, state: Option<ControlState>) -> String {
        control(&island(status), state).render().expect("rendered")
    }

    #[test]
    fn every_state_is_named_and_has_the_orders_that_change_it() {
        let state = |order, remote| Some(ControlState { allowed: true, order, remote });
        let offered = |html: &str| {
            let buttons = ["resume", "pause", "drain"];
            buttons.map(|verb| html.contains(&format!("0000/{verb}\""))).to_vec()
        };
        for (state, key, buttons) in [
            (state(None, false), "control.rules", [false, true, true]),
            (state(Some(Order::Pause), true), "control.paused", [true, false, false]),
            (state(Some(Order::Drain), true), "control.draining", [true, true, false]),
            (state(Some(Order::Pause), false), "control.local", [true, false, false]),
        ] {
            let html = html("online", state);
            assert!(html.contains(t(key)), "{key}: {html}");
            assert_eq!(offered(&html), buttons, "{key}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_explained_and_not_offered() {
        let refused = ControlState { allowed: false, ..ControlState::default() };
        for (status, state, key) in [
            ("online", Some(refused), "control.closed"),
            ("online", None, "control.closed"),
            ("offline", None, "control.offline"),
        ] {
            let html = html(status, state);
            assert!(html.contains(t(key)) && html.contains("allow_remote = true"), "{key}: {html}");
            assert!(!html.contains("<form"), "{html}");
            assert!(html.contains("island-agent drain"), "the commands on the machine remain: {html}");
        }
    }
}
