//! Queries on JSON, in the language of jq.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use jaq_core::{
    Compiler, Ctx, Vars, data,
    load::{self, Arena, File, Loader, span},
    unwrap_valr,
};
use jaq_json::{Val, read};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
struct Input {
    json: Value,
    query: String,
    #[serde(default = "thousand")]
    limit: usize,
}

#[derive(Serialize)]
struct Answer {
    results: Vec<Value>,
    count: usize,
    truncated: bool,
}

fn thousand() -> usize {
    1000
}

/// What is wrong with a query, and where.
fn fault(query: &str, expected: &str, part: &str) -> Error {
    let at = query[..span(query, part).start].chars().count();
    Error::invalid(format!("query: {expected} at character {at}"))
}

fn syntax(query: &str, errors: &load::Errors<&str, ()>) -> Error {
    match errors.first().map(|(_, error)| error) {
        Some(load::Error::Lex(errors)) => match errors.first() {
            Some((expected, part)) => fault(query, &format!("expected {}", expected.as_str()), part),
            None => Error::invalid("query: cannot be read"),
        },
        Some(load::Error::Parse(errors)) => match errors.first() {
            Some((expected, part)) => fault(query, &format!("expected {}", expected.as_str()), part),
            None => Error::invalid("query: cannot be read"),
        },
        _ => Error::invalid("query: modules cannot be imported here"),
    }
}

fn query(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let code = input.query.as_str();
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let arena = Arena::default();
    let modules =
        Loader::new(defs).load(&arena, File { code, path: () }).map_err(|errors| syntax(code, &errors))?;
    let filter = Compiler::default().with_funs(funs).compile(modules).map_err(|errors| {
        let first = errors.first().and_then(|(_, undefined)| undefined.first());
        first.map_or_else(
            || Error::invalid("query: cannot be compiled"),
            |(name, kind)| Error::invalid(format!("query: there is no {} {name}", kind.as_str())),
        )
    })?;
    let value = read::parse_single(input.json.to_string().as_bytes()).or_invalid("json")?;
    let ctx = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut found = filter.id.run((ctx, value)).map(unwrap_valr);
    let mut results = Vec::new();
    for value in found.by_ref().take(input.limit) {
        let value = value.map_err(|error| Error::invalid(format!("query: {error}")))?;
        // jaq has values that JSON lacks: NaN, bytes, keys that are not strings.
        results.push(serde_json::from_str(&value.to_string()).or_invalid("a result that JSON cannot hold")?);
    }
    let truncated = found.next().is_some();
    Ok(Answer { count: results.len(), results, truncated })
}

fn main() -> ExitCode {
    run(query)
}
