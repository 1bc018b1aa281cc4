//! The machines that run jobs.

use island_protocol::{
    api::{
        Data, Enroll, HostCredentials, HostView, RenewCredentials,
        key::Scope,
        network::{HostKarma, NetworkStats},
        recommendation::Recommendations,
    },
    problem::Code,
};

use serde_json::json;

use super::{Routes, uuid};
use crate::{
    api::{artifacts, hosts, island, network},
    openapi::operation::Operation,
};

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .get(
            "/hosts",
            hosts::list,
            Operation::keyed("Islands", "listHosts", "List the Islands", Scope::Read)
                .answers::<Data<Vec<HostView>>>(200, "The Islands"),
        )
        .get(
            "/hosts/{id}",
            hosts::get,
            Operation::keyed("Islands", "getHost", "One Island", Scope::Read)
                .segment("id", "The Island.", &uuid())
                .fails(&[Code::HostNotFound])
                .answers::<Data<HostView>>(200, "The Island"),
        )
        .get(
            "/hosts/{id}/karma",
            hosts::karma,
            Operation::keyed("Islands", "getKarma", "What an Island has earned in standing", Scope::Read)
                .segment("id", "The Island.", &uuid())
                .fails(&[Code::HostNotFound])
                .answers::<Data<HostKarma>>(200, "Hours of successful compute"),
        )
        .get(
            "/artifacts/{digest}",
            artifacts::get,
            Operation::open("Islands", "getArtifact", "A Cargo's file that lies at the coordinator")
                .about("Files from elsewhere are not here: the Cargo says where they come from.")
                .segment(
                    "digest",
                    "SHA-256 of the file.",
                    &json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
                )
                .fails(&[Code::NotFound])
                .sends_file("The file, whole"),
        )
        .get(
            "/network/stats",
            network::stats,
            Operation::open("Islands", "getNetworkStats", "How large the network is")
                .answers::<Data<NetworkStats>>(200, "Counts"),
        )
        .get(
            "/island/recommendations",
            island::recommendations::recommendations,
            Operation::open("Islands", "listRecommendations", "What an Island should have on disk")
                .query("host_id", true, "The Island.", &uuid())
                .fails(&[Code::ValidationError, Code::HostNotFound])
                .answers::<Recommendations>(200, "Most wanted first, only what its hardware can serve"),
        )
        .post(
            "/island/enroll",
            island::enroll::enroll,
            Operation::keyed("Islands", "enrollIsland", "Tie an Island to your account", Scope::Write)
                .takes::<Enroll>(None)
                .fails(&[Code::HostConflict])
                .answers::<Data<HostCredentials>>(200, "Its first credentials for the fabric"),
        )
        .post(
            "/island/credentials",
            island::credentials::credentials,
            Operation::open("Islands", "renewIslandCredentials", "Renew an Island's credentials")
                .about("Proven by the Island's own key alone.")
                .takes::<RenewCredentials>(None)
                .fails(&[Code::HostNotFound])
                .answers::<Data<HostCredentials>>(200, "Fresh credentials for the fabric"),
        )
}
