//! The service itself.

use island_protocol_api::Health;
use serde_json::Value;

use super::Routes;
use super::document;
use crate::{native::health, openapi::operation::Operation};

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .get(
            "/health",
            health::health,
            Operation::open("Service", "health", "State of the service")
                .answers::<Health>(200, "`ok`, or `fabric unreachable`: jobs are accepted and wait")
                .answers::<Health>(503, "The database is unreachable; everything that is, is named"),
        )
        .get(
            "/ready",
            health::ready,
            Operation::open("Service", "ready", "Whether requests should be sent to this coordinator")
                .answers::<Health>(200, "`ok`")
                .answers::<Health>(
                    503,
                    "It stops, or cannot reach the database or the fabric; all of these are named",
                ),
        )
        .get(
            "/openapi.json",
            document::json,
            Operation::open("Service", "openapi", "This document")
                .answers::<Value>(200, "OpenAPI 3.1; `/docs` renders it"),
        )
}
