//! `docs/api.md`, run as it is written.

use std::fs;

use island_integration::{
    Network, Options,
    guide::{differences, steps},
};
use serde_json::Value;

fn read(path: &str) -> String {
    fs::read_to_string(island_testing::workspace().join(path)).expect("read")
}

#[test]
fn the_guide_tells_the_truth() {
    // The guide has more requests than one key may make in a minute, and nobody types them that fast.
    let coordinator = vec![("LIMITS__REQUESTS_PER_MINUTE", "1000".to_owned())];
    let network = Network::start_with(&Options { no_limits: false, coordinator, ..Options::default() });
    let steps = steps(&read("docs/api.md"));
    assert!(steps.len() > 20, "only {} steps were found", steps.len());
    let url = format!("{}/api/v1", network.info("api_url"));
    let variables = [
        ("API_URL", url.as_str()),
        ("API_KEY", network.info("api_key")),
        ("HOST_ID", network.info("host_id")),
    ];
    let folder = tempfile::tempdir().expect("temporary folder");
    let found = differences(&steps, &variables, folder.path());
    assert!(found.is_empty(), "{found}");
}

#[test]
fn the_guide_has_every_route_that_consumers_use() {
    let guide = read("docs/api.md");
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 20, "{}", paths.len());
    // Islands sign these and know the hash for the last; they are not called by hand.
    let by_islands = [
        "/island/enroll",
        "/island/check",
        "/island/pairings",
        "/island/credentials",
        "/island/leave",
        "/artifacts/{digest}",
    ];
    // Opened in a browser, where a network has sign-in.
    let in_browsers = ["/login", "/login/callback"];
    // `docs/operators.md` has the commands for these.
    let by_operators = |path: &str| path.starts_with("/admin/") || path == "/ready";
    let is_for_consumers =
        |path: &str| !by_islands.contains(&path) && !in_browsers.contains(&path) && !by_operators(path);
    for path in paths.keys().filter(|path| is_for_consumers(path)) {
        let calls = guide.split("$API_URL").skip(1);
        let called = calls
            .map(|rest| rest.split(['"', ' ', '?', '\n']).next().unwrap_or_default())
            .any(|call| is_call_of(path, call));
        assert!(called, "docs/api.md never calls {path}");
    }
}

/// Whether a call goes to a path in which `{…}` stands for one segment.
fn is_call_of(path: &str, call: &str) -> bool {
    let (path, call): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), call.split('/').collect());
    path.len() == call.len()
        && path.iter().zip(&call).all(|(path, call)| path.starts_with('{') || path == call)
}
