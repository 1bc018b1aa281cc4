//! `island market history`.

use anyhow::Result;
use island_protocol::ids::Slug;

use crate::{
    output::{Column, Output, text::price},
    settings::Settings,
};

const COLUMNS: [Column; 6] = [
    Column::of("hour"),
    Column::of("average"),
    Column::of("minimum").drop(3),
    Column::of("maximum").drop(4),
    Column::of("islands").drop(2),
    Column::of("jobs").drop(1),
];

pub(super) async fn history(slug: &Slug, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.market_history(slug.as_str()).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|rate| {
        vec![
            output.moment(rate.timestamp),
            price(rate.avg_price),
            price(rate.min_price),
            price(rate.max_price),
            rate.num_hosts.to_string(),
            rate.num_jobs.to_string(),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No jobs were settled yet.")
}
