//! The machines that run jobs.

use island_protocol_api::{
    Data, Enroll, HostControl, HostCredentials, HostList, HostView, IslandCheck, Pair, Pairing,
    advice::Advice,
    alert::HostAlert,
    claim::IslandRequest,
    key::Scope,
    network::{HostKarma, NetworkNotices, NetworkStats},
    problem::Code,
    recommendation::Recommendations,
};

use serde_json::json;

use super::{Routes, uuid};
use crate::{
    native::{artifacts, hosts, island, network},
    openapi::operation::Operation,
};
use island_coordinator_domain::fleet::STATES;

/// Adds the filters that lists of Islands have.
pub(super) fn listed(operation: Operation) -> Operation {
    operation
        .query("q", false, "Part of the id, the name or the region.", &json!({"type": "string"}))
        .query("status", false, "Only those in this state.", &json!({"type": "string", "enum": STATES}))
        .fails(&[Code::InvalidRequest])
}

/// A remote order of an owner.
fn ordered(id: &'static str, summary: &'static str) -> Operation {
    Operation::keyed("Islands", id, summary, Scope::Write)
        .segment("id", "The Island.", &uuid())
        .fails(&[Code::HostNotFound, Code::RemoteControlDisabled, Code::HostUnreachable, Code::OrderRefused])
        .answers::<Data<HostControl>>(200, "What applies to the Island now")
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn add(routes: Routes) -> Routes {
    routes
        .get(
            "/hosts",
            hosts::list,
            listed(Operation::keyed("Islands", "listHosts", "List the Islands", Scope::Read))
                .about("All of them, or a page if the request has a `limit` or an `offset`.")
                .paged()
                .query("own", false, "`true`: those of your account; `false`: those of others.", &json!({"type": "boolean"}))
                .answers::<HostList>(200, "The Islands"),
        )
        .get(
            "/hosts/alerts",
            hosts::alerts::list,
            Operation::keyed("Islands", "listAlerts", "What you should know at once about your Islands", Scope::Read)
                .about("Whether an Island is offline or suspended, has a hot GPU or an almost full disk, as the coordinator of this answer sees it. An Island can have several alerts.")
                .answers::<Data<Vec<HostAlert>>>(200, "The alerts of all Islands of your account; none while all is well"),
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
            Operation::keyed("Islands", "getKarma", "An Island's karma", Scope::Read)
                .segment("id", "The Island.", &uuid())
                .fails(&[Code::HostNotFound])
                .answers::<Data<HostKarma>>(200, "Hours of successful computation"),
        )
        .get(
            "/hosts/{id}/advice",
            hosts::advice::advice,
            Operation::keyed("Islands", "getAdvice", "Which one change of your Island would have earned more yesterday", Scope::Read)
                .about("With the demand of yesterday, UTC: an equal share of the jobs that others ran, and all that no Island took. At most; nothing is promised.")
                .segment("id", "The Island.", &uuid())
                .fails(&[Code::HostNotFound])
                .answers::<Data<Advice>>(200, "Changes, the best first"),
        )
        .post(
            "/hosts/{id}/pause",
            hosts::control::pause,
            ordered("pauseOwnHost", "Pause an Island of your account")
                .about("Running jobs are handed back and continue on other Islands. The settings of the Island must allow remote orders; a command on the machine overrides them."),
        )
        .post(
            "/hosts/{id}/drain",
            hosts::control::drain,
            ordered("drainOwnHost", "Give an Island of your account no new jobs").about("Running jobs may finish."),
        )
        .post(
            "/hosts/{id}/resume",
            hosts::control::resume,
            ordered("resumeOwnHost", "End a remote pause or drain")
                .about("A pause that was ordered on the machine itself continues."),
        )
        .get(
            "/artifacts/{digest}",
            artifacts::get,
            Operation::open("Islands", "getArtifact", "A Cargo's file on the coordinator")
                .about("Files from other places are not served here: the Cargo has their addresses.")
                .segment(
                    "digest",
                    "SHA-256 of the file.",
                    &json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
                )
                .fails(&[Code::NotFound])
                .sends_file("The file"),
        )
        .get(
            "/network/stats",
            network::stats,
            Operation::open("Islands", "getNetworkStats", "Size of the network")
                .answers::<Data<NetworkStats>>(200, "Counts"),
        )
        .get(
            "/network/notices",
            network::notices,
            Operation::open("Islands", "getNetworkNotices", "Maintenance, and notices of the operators")
                .answers::<Data<NetworkNotices>>(200, "What everybody should know"),
        )
        .get(
            "/island/recommendations",
            island::recommendations::recommendations,
            Operation::open("Islands", "listRecommendations", "Models that an Island should download")
                .query("host_id", true, "The Island.", &uuid())
                .fails(&[Code::ValidationError, Code::HostNotFound])
                .answers::<Recommendations>(200, "Highest demand first, restricted to what its hardware can serve"),
        )
        .post(
            "/island/enroll",
            island::enroll::enroll,
            Operation::keyed("Islands", "enrollIsland", "Add an Island to your account", Scope::Write)
                .takes::<Enroll>(None)
                .fails(&[Code::HostConflict, Code::TooManyHosts])
                .answers::<Data<HostCredentials>>(200, "Its first credentials for the fabric"),
        )
        .post(
            "/island/pairings",
            island::pairings::pairings,
            Operation::open("Islands", "startPairing", "Create a code that adds an Island to an account")
                .about("The Island shows the code; its owner confirms it with `POST /hosts/pair`, and the Island may then request credentials.")
                .takes::<Enroll>(None)
                .fails(&[Code::ServiceUnavailable])
                .answers::<Data<Pairing>>(200, "The code"),
        )
        .post(
            "/hosts/pair",
            hosts::pair::pair,
            Operation::keyed("Islands", "pairHost", "Confirm the code that an Island shows", Scope::Write)
                .takes::<Pair>(None)
                .fails(&[Code::PairingNotFound, Code::HostConflict, Code::TooManyHosts])
                .answers::<Data<HostView>>(200, "The Island"),
        )
        .post(
            "/island/leave",
            island::leave::leave,
            Operation::open("Islands", "leaveNetwork", "Take an Island out of the network")
                .about("Authenticated by the Island's own key alone.")
                .takes::<IslandRequest>(None)
                .fails(&[Code::HostNotFound])
                .answers::<Data<()>>(200, "The Island has left"),
        )
        .post(
            "/island/check",
            island::check::check,
            Operation::open("Islands", "checkIsland", "Run a job on an Island to check that it works")
                .about("Authenticated by the Island's own key alone, once a minute. The job is the smallest that the Island can run, costs and earns nothing, and runs on this Island only.")
                .takes::<IslandRequest>(None)
                .fails(&[Code::HostNotFound, Code::RateLimited, Code::ServiceUnavailable])
                .answers::<Data<IslandCheck>>(200, "The steps that were reached"),
        )
        .post(
            "/island/credentials",
            island::credentials::credentials,
            Operation::open("Islands", "renewIslandCredentials", "Renew an Island's credentials")
                .about("Authenticated by the Island's own key alone.")
                .takes::<IslandRequest>(None)
                .fails(&[Code::HostNotFound])
                .answers::<Data<HostCredentials>>(200, "Fresh credentials for the fabric"),
        )
}
