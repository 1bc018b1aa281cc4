//! Cargos.

use island_protocol::{
    api::{CargoList, Data, WorkloadView, key::Scope},
    problem::Code,
};
use serde_json::json;

use super::{Routes, slug};
use crate::{
    api::{cargos, workloads},
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
            Operation::open("Catalogue", "listCargos", "List the Cargos that can be used")
                .query("runtime_type", false, "Only those of this runtime.", &runtimes)
                .query("category", false, "Only those of this use.", &categories)
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
}
