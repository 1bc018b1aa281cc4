//! `POST /rerank`: runs a job of a Cargo that scores documents, waits for it, and orders them.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{
    problem::Code,
    rerank::{
        DocumentText, RankedDocument, RerankDocument, RerankMeta, RerankRequest, RerankTokens, Reranking,
    },
};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::{
    Api, ApiError,
    http::{auth::Caller, body},
    native::availability::Allowed,
    openai::one_job::{self, Ability, Answered},
};
use island_coordinator_domain::catalogue::{Cargo, choice};

pub(crate) const RANKS: Ability =
    Ability { does: "ranks documents", is_of: |cargo| cargo.reads_texts("text-ranking") };

/// Orders documents by their relevance to a query.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    request: Result<body::Keyed, ApiError>,
) -> Result<Json<Reranking>, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        answer(&api, caller, fields.parse()?).await.map(Json)
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(api: &Arc<Api>, caller: Caller, request: RerankRequest) -> Result<Reranking, ApiError> {
    let RerankRequest { model, query, documents, top_n, return_documents, preferences } = request;
    let preferences = preferences.unwrap_or_default();
    let documents: Vec<String> = documents.into_iter().map(RerankDocument::into_text).collect();
    let cargo = choose(api, &model, &Allowed::by_preferences(api, caller.account, &preferences))?;
    let input = input(query, &documents);
    let Answered { job, output, usage } = one_job::run(api, caller, &cargo, input, None, preferences).await?;
    let scores = output.get("scores").and_then(|scores| Vec::<f64>::deserialize(scores).ok());
    let scores = scores.filter(|scores| scores.len() == documents.len()).ok_or_else(|| {
        ApiError::new(Code::JobFailed, "the output does not have one score for each document")
    })?;
    let limit = top_n.map_or(usize::MAX, |limit| limit as usize);
    let mut results = ranked(&scores, limit);
    if return_documents {
        for result in &mut results {
            let text = documents[result.index as usize].clone();
            result.document = Some(DocumentText { text });
        }
    }
    let tokens = RerankTokens { input_tokens: usage.prompt_tokens, output_tokens: usage.completion_tokens };
    Ok(Reranking {
        id: format!("rerank-{}", job.id),
        object: "list".to_owned(),
        model: job.workload.to_string(),
        results,
        usage,
        meta: RerankMeta { tokens },
    })
}

/// The Cargo with this name. For names of others: the one that has it as an alias, if an Island can serve that one, otherwise the
/// nearest of the operators' that an Island can serve.
fn choose(api: &Api, model: &str, allowed: &Allowed) -> Result<Arc<Cargo>, ApiError> {
    let catalogue = api.catalogue();
    if !choice::is_ranking_model(model) || catalogue.get(model).is_some() {
        return RANKS.named(&catalogue, model);
    }
    let alias = catalogue.named(model).map(|cargo| cargo.entry.slug.clone());
    // `None` sorts first, so compare its presence first.
    let nearest = catalogue.own().filter(|cargo| (RANKS.is_of)(cargo)).min_by_key(|cargo| {
        let near = allowed.nearest(cargo);
        let is_other = alias.as_ref() != Some(&cargo.entry.slug);
        (near.is_none(), is_other, near, cargo.entry.required_ram_mb, cargo.entry.slug.as_str())
    });
    nearest.cloned().ok_or_else(|| RANKS.absent())
}

/// The input of a job.
fn input(query: String, documents: &[String]) -> Map<String, Value> {
    [("query".to_owned(), query.into()), ("documents".to_owned(), json!(documents))].into_iter().collect()
}

/// The best `limit` documents by their scores, without their texts.
fn ranked(scores: &[f64], limit: usize) -> Vec<RankedDocument> {
    let mut all: Vec<RankedDocument> = (0..)
        .zip(scores)
        .map(|(index, &relevance_score)| RankedDocument { index, relevance_score, document: None })
        .collect();
    all.sort_by(|one, other| other.relevance_score.total_cmp(&one.relevance_score));
    all.truncate(limit);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_documents_come_first_and_equal_ones_keep_their_order() {
        let order = |limit| -> Vec<u32> {
            ranked(&[0.25, 0.5, 0.25, 0.75], limit).iter().map(|result| result.index).collect()
        };
        assert_eq!(order(usize::MAX), [3, 1, 0, 2]);
        assert_eq!(order(2), [3, 1]);
        assert_eq!(ranked(&[], 5), []);
    }
}
