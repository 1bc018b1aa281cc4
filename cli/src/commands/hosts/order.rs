//! `island hosts pause`, `drain` and `resume`.

use anyhow::Result;
use island_protocol::host::Order;
use island_protocol_api::HostControl;

use crate::{commands::select, output::Output, settings::Settings};

pub(super) async fn order(host: &str, order: Order, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::host(&client, host).await?;
    let answer = client.order_host(id, order).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(applies(&answer.value))
}

fn applies(answer: &HostControl) -> &'static str {
    match (answer.control.order, answer.control.remote) {
        (None | Some(Order::Resume), _) => "The rules of the Island decide when it works.",
        (Some(Order::Pause), true) => "Paused until `island hosts resume`, or a command on the machine.",
        (Some(Order::Drain), true) => "It finishes its jobs and gets no new ones.",
        (Some(Order::Pause), false) => "Paused by a command on the machine, which alone ends that.",
        (Some(Order::Drain), false) => "Draining by a command on the machine, which alone ends that.",
    }
}
