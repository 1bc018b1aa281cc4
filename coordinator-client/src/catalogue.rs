//! `/cargos`, `/workloads` and `/models`.

use island_protocol::cargo::{Category, RuntimeType};
use island_protocol_api::{CargoList, WorkloadView, model::ModelList};

use crate::{call::Call, client::Client, request::Request};

/// A filter of Cargos; all by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CargoFilter {
    /// Only those of one engine.
    pub runtime_type: Option<RuntimeType>,
    /// Only those of one category.
    pub category: Option<Category>,
}

impl Client {
    /// `GET /cargos`; needs no key.
    pub fn cargos(&self, filter: CargoFilter) -> Request<CargoList> {
        let call = Call::get("list the Cargos", &["cargos"])
            .query("runtime_type", filter.runtime_type)
            .query("category", filter.category.map(Category::as_str));
        Request::plain(self, call)
    }

    /// `GET /workloads`: Cargos with their schemas.
    pub fn workloads(&self) -> Request<Vec<WorkloadView>> {
        Request::data(self, Call::get("list the Cargos", &["workloads"]))
    }

    /// `GET /workloads/:slug`.
    pub fn workload(&self, slug: &str) -> Request<WorkloadView> {
        Request::data(self, Call::get("read the Cargo", &["workloads", slug]))
    }

    /// `GET /models`: the models that write texts.
    pub fn models(&self) -> Request<ModelList> {
        Request::plain(self, Call::get("list the models", &["models"]))
    }
}
