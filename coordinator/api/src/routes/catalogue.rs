//! Cargos.

use island_protocol_api::{CargoList, Data, WorkloadView, key::Scope, market::MarketRate, problem::Code};
use serde_json::json;

use super::{Routes, slug};
use crate::{
    native::{cargos, market, workloads},
    openapi::operation::Operation,
};

pub(super) fn add(routes: Routes) -> Routes {
    let runtimes =
        json!({"type": "string", "enum": ["container", "wasm", "onnx", "llmcpp", "diffusers", "coreml"]});
    let categories =
        json!({"type": "string", "enum": ["llm", "image", "audio", "vision", "text", "utility"]});
    routes
        .get(
            "/cargos",
            cargos::list,
            Operation::open("Catalogue", "listCargos", "List the Cargos")
                .query("runtime_type", false, "Only those of this runtime.", &runtimes)
                .query("category", false, "Only those of this category.", &categories)
                .fails(&[Code::ValidationError])
                .answers::<CargoList>(200, "The Cargos, not wrapped in `data`"),
        )
        .get(
            "/workloads",
            workloads::list,
            Operation::keyed("Catalogue", "listWorkloads", "List Cargos with their schemas", Scope::Read)
                .answers::<Data<Vec<WorkloadView>>>(200, "The Cargos"),
        )
        .get(
            "/workloads/{slug}",
            workloads::get,
            Operation::keyed("Catalogue", "getWorkload", "One Cargo with its schemas", Scope::Read)
                .segment("slug", "The Cargo.", &slug())
                .fails(&[Code::WorkloadNotFound])
                .answers::<Data<WorkloadView>>(200, "The Cargo"),
        )
        .get(
            "/market/rates",
            market::rates,
            Operation::keyed("Catalogue", "listRates", "What Cargos cost in the last 24 hours", Scope::Read)
                .answers::<Data<Vec<MarketRate>>>(200, "A rate for each Cargo"),
        )
        .get(
            "/market/rates/{slug}",
            market::rate,
            Operation::keyed("Catalogue", "getRate", "What a Cargo cost in the last 24 hours", Scope::Read)
                .segment("slug", "The Cargo.", &slug())
                .fails(&[Code::WorkloadNotFound])
                .answers::<Data<Vec<MarketRate>>>(200, "A list of one rate"),
        )
        .get(
            "/market/history/{slug}",
            market::history,
            Operation::keyed(
                "Catalogue",
                "getHistory",
                "What a Cargo cost in each hour of 7 days",
                Scope::Read,
            )
            .segment("slug", "The Cargo.", &slug())
            .fails(&[Code::WorkloadNotFound])
            .answers::<Data<Vec<MarketRate>>>(200, "The hours in which a job settled, oldest first"),
        )
}
