//! `island hosts list`.

use anyhow::Result;

use crate::{
    output::{Output, text::or_dash},
    settings::Settings,
};

pub(super) async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.hosts().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|host| {
        vec![
            host.id.to_string(),
            host.name.clone(),
            host.status.clone(),
            or_dash(host.region.as_ref()),
            format!("{:.2}", host.karma),
        ]
    });
    output.table(&["id", "name", "status", "region", "karma"], rows.collect(), "No Islands yet.")
}
