//! `serve`.

use std::{process::ExitCode, time::Duration};

use island_daemon::{lifecycle::Lifecycle, notify};

use super::print;
use crate::app::{App, FAREWELL};
use island_coordinator_domain::{clock::Clock, config::Config};

/// Serves until a signal arrives. The address is printed when the server accepts connections, as the only line on
/// standard output.
pub(super) async fn serve(config: &Config) -> anyhow::Result<ExitCode> {
    // Time to leave a load balancer, to drain and to end what is left, and then to close the database and the fabric.
    let stop_s = config.http.unready_s.saturating_add(config.http.drain_s).saturating_add(5);
    let lifecycle = Lifecycle::new(Duration::from_secs(stop_s).saturating_add(FAREWELL));
    let app = App::build(config, Clock::System, lifecycle.soft(), lifecycle.hard()).await?;
    let address = app.address()?;
    lifecycle.spawn("coordinator", app.run());
    let scheme = if config.http.tls.is_some() { "https" } else { "http" };
    print(&format!("{scheme}://{address}\n"));
    tracing::info!(%address, "serving");
    notify::ready("serving");
    Ok(lifecycle.run().await)
}
