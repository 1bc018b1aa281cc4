//! `island market history`.

use anyhow::Result;
use island_protocol::ids::Slug;

use crate::{
    output::{Output, text::price},
    settings::Settings,
};

pub(super) async fn history(slug: &Slug, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.market_history(slug.as_str()).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|rate| {
        vec![
            rate.timestamp.to_string(),
            price(rate.avg_price),
            price(rate.min_price),
            price(rate.max_price),
            rate.num_hosts.to_string(),
            rate.num_jobs.to_string(),
        ]
    });
    let header = ["hour", "average", "minimum", "maximum", "hosts", "jobs"];
    output.table(&header, rows.collect(), "No jobs were settled yet.")
}
