//! `/health`, `/network`, `/hosts` and `/market`.

use island_protocol::{host::Order, ids::HostId};
use island_protocol_api::{
    Health, HostControl, HostView,
    alert::HostAlert,
    market::MarketRate,
    network::{HostKarma, NetworkNotices, NetworkStats},
};
use serde_json::json;

use crate::{call::Call, client::Client, request::Request};

impl Client {
    /// `GET /health`; needs no key.
    pub fn health(&self) -> Request<Health> {
        Request::plain(self, Call::get("read the coordinator's health", &["health"]))
    }

    /// `GET /network/stats`; needs no key.
    pub fn network_stats(&self) -> Request<NetworkStats> {
        Request::data(self, Call::get("read the network's statistics", &["network", "stats"]))
    }

    /// `GET /network/notices`: whether new jobs are accepted, and what the operators announce; needs no key.
    pub fn network_notices(&self) -> Request<NetworkNotices> {
        Request::data(self, Call::get("read the network's notices", &["network", "notices"]))
    }

    /// `GET /hosts`.
    pub fn hosts(&self) -> Request<Vec<HostView>> {
        Request::data(self, Call::get("list the Islands", &["hosts"]))
    }

    /// `GET /hosts/:id`.
    pub fn host(&self, id: HostId) -> Request<HostView> {
        Request::data(self, Call::get("read the Island", &["hosts", &id.to_string()]))
    }

    /// `GET /hosts/:id/karma`: hours of successful computation.
    pub fn host_karma(&self, id: HostId) -> Request<HostKarma> {
        Request::data(self, Call::get("read the Island's karma", &["hosts", &id.to_string(), "karma"]))
    }

    /// `GET /hosts/alerts`: what is wrong with the Islands of the key's account; empty while all is well.
    pub fn host_alerts(&self) -> Request<Vec<HostAlert>> {
        Request::data(self, Call::get("read the alerts of your Islands", &["hosts", "alerts"]))
    }

    /// `POST /hosts/:id/pause`, `/drain` or `/resume`: an order to an Island of the key's account. Repeating it changes nothing.
    pub fn order_host(&self, id: HostId, order: Order) -> Request<HostControl> {
        let path = ["hosts", &id.to_string(), order.as_str()];
        Request::data(self, Call::post("give the Island an order", &path, &json!({})).harmless())
    }

    /// `GET /market/rates`: every Cargo's price over the last day.
    pub fn market_rates(&self) -> Request<Vec<MarketRate>> {
        Request::data(self, Call::get("read the market's rates", &["market", "rates"]))
    }

    /// `GET /market/rates/:slug`: a list of one entry.
    pub fn market_rate(&self, slug: &str) -> Request<Vec<MarketRate>> {
        Request::data(self, Call::get("read the Cargo's rate", &["market", "rates", slug]))
    }

    /// `GET /market/history/:slug`: one entry for each hour.
    pub fn market_history(&self, slug: &str) -> Request<Vec<MarketRate>> {
        Request::data(self, Call::get("read the Cargo's prices", &["market", "history", slug]))
    }
}
