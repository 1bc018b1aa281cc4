//! `island market rates`.

use anyhow::Result;
use island_protocol::ids::Slug;

use crate::{
    commands::network,
    output::{Column, Output, text::price},
    settings::Settings,
};

const COLUMNS: [Column; 5] = [
    Column::of("cargo"),
    Column::of("average"),
    Column::of("minimum").drop(2),
    Column::of("maximum").drop(3),
    Column::of("islands").drop(1),
];

pub(super) async fn rates(slug: Option<Slug>, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let request = match slug {
        Some(slug) => client.market_rate(slug.as_str()),
        None => client.market_rates(),
    };
    let (answer, announced) = tokio::join!(request.answer(), network::announcements(&client, output));
    let answer = answer?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|rate| {
        vec![
            rate.workload_slug.to_string(),
            price(rate.avg_price),
            price(rate.min_price),
            price(rate.max_price),
            rate.num_hosts.to_string(),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No Cargos.")?;
    network::announce(&announced, output);
    Ok(())
}
