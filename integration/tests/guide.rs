//! `docs/api.md`, run as it is written.

use std::{fs, path::Path};

use island_integration::{
    Network, Options,
    guide::{differences, steps},
};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    fs::read_to_string(root.join(path)).expect("read")
}

#[test]
fn the_guide_tells_the_truth() {
    let network = Network::start_with(&Options { no_limits: false, ..Options::default() });
    let steps = steps(&read("docs/api.md"));
    assert!(steps.len() > 20, "only {} steps were found", steps.len());
    let url = format!("{}/api/v1", network.info("api_url"));
    let variables = [
        ("API_URL", url.as_str()),
        ("API_KEY", network.info("api_key")),
        ("HOST_ID", network.info("host_id")),
    ];
    let folder = tempfile::tempdir().expect("temporary folder");
    let told = differences(&steps, &variables, folder.path());
    assert!(told.is_empty(), "{told}");
}

#[test]
fn the_guide_has_every_route_that_consumers_use() {
    let (guide, source) = (read("docs/api.md"), read("coordinator/src/api.rs"));
    // Islands sign these; nobody calls them by hand.
    let by_islands = ["/island/enroll", "/island/credentials"];
    let routes: Vec<&str> =
        source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(routes.len() > 20, "{routes:?}");
    for route in routes.into_iter().filter(|route| !by_islands.contains(route)) {
        let shown = route.split('/').map(|part| if part.starts_with('{') { "…" } else { part });
        let shown: Vec<&str> = shown.collect();
        let called = guide.split("$API_URL").skip(1).any(|rest| {
            let path = rest.split(['"', ' ', '?', '\n']).next().unwrap_or_default();
            let parts: Vec<&str> = path.split('/').collect();
            parts.len() == shown.len()
                && parts.iter().zip(&shown).all(|(part, shown)| *shown == "…" || part == shown)
        });
        assert!(called, "docs/api.md never calls {route}");
    }
}
