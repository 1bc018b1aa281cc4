//! Every route with its parameters, bodies and errors: both the router and the OpenAPI document are built from this
//! table.

mod account;
mod admin;
mod batches;
mod catalogue;
mod chat;
pub(crate) mod document;
mod islands;
mod jobs;
mod publications;
mod service;
mod webhooks;

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    routing::{MethodFilter, on},
};
use island_protocol::ids::Slug;
use schemars::{JsonSchema as _, SchemaGenerator};
use serde_json::{Value, json};

use crate::Api;
use crate::openapi::{Entry, operation::Operation};

/// Routes and their descriptions.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub router: Router<Arc<Api>>,
    pub entries: Vec<Entry>,
}

impl Routes {
    /// All routes.
    pub(crate) fn all() -> Self {
        let tables = [
            service::add,
            catalogue::add,
            publications::add,
            jobs::add,
            chat::add,
            batches::add,
            webhooks::add,
            account::add,
            islands::add,
            admin::add,
        ];
        tables.into_iter().fold(Self::default(), |routes, add| add(routes))
    }

    fn add<H, T>(mut self, method: Method, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        let (filter, method) = match method {
            Method::Get => (MethodFilter::GET, "get"),
            Method::Post => (MethodFilter::POST, "post"),
            Method::Delete => (MethodFilter::DELETE, "delete"),
        };
        self.router = self.router.route(path, on(filter, handler));
        self.entries.push(Entry { method, path, operation });
        self
    }

    fn get<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        self.add(Method::Get, path, handler, operation)
    }

    fn post<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        self.add(Method::Post, path, handler, operation)
    }

    fn delete<H, T>(self, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        self.add(Method::Delete, path, handler, operation)
    }
}

#[derive(Debug, Clone, Copy)]
enum Method {
    Get,
    Post,
    Delete,
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn format() -> Value {
    json!({"type": "string", "enum": ["json", "csv"], "default": "json"})
}

/// The slug of a Cargo, as bodies have it.
fn slug() -> Value {
    Slug::json_schema(&mut SchemaGenerator::default()).to_value()
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}
