//! `island-agent config check`: what settings name outside of themselves must exist.

use std::{collections::BTreeSet, fs::File, path::Path};

use island_coordinator_client::{ClientError, catalogue::CargoFilter};
use island_daemon::chain::Chain;

use crate::{agent::coordinator_url, config::Config};

/// Result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// What prevents that the settings work as they are meant.
    pub problems: Vec<String>,
    /// What could not be checked.
    pub notes: Vec<String>,
}

/// Checks the values, the files they name, and the Cargos they name if the coordinator can be reached.
pub async fn check(config: &Config) -> Checked {
    let mut found = Checked { problems: config.problems(), notes: Vec::new() };
    if let Some(dir) = config.workers.bin_dir.as_ref().filter(|dir| !dir.is_dir()) {
        found.problems.push(format!("workers.bin_dir: {} is not a folder", dir.display()));
    }
    let files = [
        ("api_key_file", config.api_key_file.as_deref()),
        ("cache.hub_token_file", config.cache.hub_token_file.as_deref()),
    ];
    for (key, file) in files.into_iter().filter_map(|(key, file)| Some((key, file?))) {
        if let Some(problem) = unreadable(key, file) {
            found.problems.push(problem);
        }
    }
    let slugs: BTreeSet<String> = config
        .policy
        .refused_cargos
        .iter()
        .chain(config.policy.asking.cargos.keys())
        .map(ToString::to_string)
        .collect();
    if slugs.is_empty() {
        return found;
    }
    let url = coordinator_url(config);
    match catalogue(config, &url).await {
        Ok(known) => found.problems.extend(slugs.difference(&known).map(|slug| {
            format!("policy.refused_cargos or policy.asking: the coordinator at {url} has no Cargo `{slug}`")
        })),
        Err(error) => found.notes.push(format!(
            "whether the catalogue has the Cargos of policy.refused_cargos and policy.asking: {}",
            Chain(&error)
        )),
    }
    found
}

fn unreadable(key: &str, file: &Path) -> Option<String> {
    let error = File::open(file).err()?;
    Some(format!("{key}: read {}: {error}", file.display()))
}

/// Slugs of all Cargos.
async fn catalogue(config: &Config, url: &str) -> Result<BTreeSet<String>, ClientError> {
    let list = config.client_of(url)?.cargos(CargoFilter::default()).await?;
    Ok(list.cargos.into_iter().map(|cargo| cargo.slug.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, routing::get};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn every_problem_is_listed() {
        let config: Config = toml::from_str(
            "api_url = 'island.example.org'
             api_key_file = '/absent/key'
             [workers]
             bin_dir = '/absent/workers'
             max_jobs = 0
             [policy]
             runtimes = ['llmcpp', 'abacus']",
        )
        .expect("settings");
        let found = check(&config).await.problems;
        let expected = [
            "workers.max_jobs must be at least 1",
            "api_url must be an address such as https://example.org, not `island.example.org`",
            "policy.runtimes: there is no engine `abacus`; the engines are container, wasm, onnx, llmcpp, diffusers, coreml",
            "workers.bin_dir: /absent/workers is not a folder",
            "api_key_file: read /absent/key: No such file or directory (os error 2)",
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn refused_cargos_are_compared_with_the_catalogue() {
        let cargo = json!({
            "slug": "llm-chat", "name": "Chat", "description": "", "runtime_type": "llmcpp", "category": "llm",
            "onnx_task_type": null, "price_per_job": 1.0, "required_vram_mb": 0, "required_ram_mb": 0,
        });
        let list = json!({ "cargos": [cargo], "count": 1 });
        let router = Router::new().route("/api/v1/cargos", get(async move || Json(list)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let served = tokio::spawn(async move { axum::serve(listener, router).await });
        let config = |url: &str| {
            let text = format!("api_url = '{url}'\npolicy.refused_cargos = ['llm-chat', 'llm-chatt']");
            toml::from_str::<Config>(&text).expect("settings")
        };
        let found = check(&config(&url)).await;
        assert!(found.notes.is_empty(), "{found:?}");
        assert_eq!(found.problems.len(), 1, "{found:?}");
        assert!(found.problems[0].ends_with("has no Cargo `llm-chatt`"), "{found:?}");
        served.abort();
        let _ = served.await;
        let alone = check(&config(&url)).await;
        assert!(alone.problems.is_empty() && alone.notes.len() == 1, "{alone:?}");
    }
}
