//! `POST /moderations`: runs jobs of a Cargo that classifies texts, and maps its labels to categories.
//!
//! A Cargo moderates if its manifest maps labels to categories, in `[engine.moderation]`. Each text is judged whole: what the model cannot
//! take at once is judged in pieces, and a category applies to a text as much as to the piece to which it applies most.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use island_protocol::ids::JobId;
use island_protocol_api::{
    moderations::{CATEGORIES, Moderation, ModerationRequest, Moderations},
    preferences::Preferences,
    problem::Code,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    Api, ApiError,
    http::{auth::Caller, body},
    native::availability::Allowed,
    openai::one_job::{self, Ability, Answered},
};
use island_coordinator_domain::catalogue::{Cargo, choice};

/// Maximum number of characters of all texts.
const MAX_CHARACTERS: usize = 100_000;
/// Number of characters of a piece that models usually take at once.
const PIECE: usize = 2_000;
/// Number of characters that every model takes.
const SMALLEST: usize = 100;
/// Jobs of a request that run at one time.
const AT_ONCE: usize = 4;
/// Score from which on a category applies.
const THRESHOLD: f64 = 0.5;

pub(crate) const MODERATES: Ability =
    Ability { does: "moderates", is_of: |cargo| !cargo.moderation().is_empty() };

/// Scores by category.
type Scores = BTreeMap<String, f64>;

/// Judges texts.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    request: Result<body::Keyed, ApiError>,
) -> Result<Json<Moderations>, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        answer(&api, caller, fields.parse()?).await.map(Json)
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(api: &Arc<Api>, caller: Caller, request: ModerationRequest) -> Result<Moderations, ApiError> {
    let texts = texts(&request.input);
    if texts.iter().map(|text| text.chars().count()).sum::<usize>() > MAX_CHARACTERS {
        let message = format!("the texts may have {MAX_CHARACTERS} characters");
        return Err(ApiError::field(Code::ValidationError, "input", message));
    }
    let preferences = request.preferences.unwrap_or_default();
    let allowed = Allowed::by_preferences(api, caller.account, &preferences);
    let judge = Judge { api, caller, cargo: choose(api, request.model.as_deref(), &allowed)?, preferences };
    let categories = judge.cargo.moderation();
    let pieces: Vec<(usize, String)> = texts
        .iter()
        .enumerate()
        .flat_map(|(index, text)| pieces(text, PIECE).into_iter().map(move |piece| (index, piece)))
        .collect();
    let judged = stream::iter(pieces).map(async |(index, piece)| {
        let (job, scores) = judge.judge(&categories, piece).await?;
        Ok::<_, ApiError>((index, job, scores))
    });
    let judged: Vec<(usize, JobId, Scores)> = judged.buffered(AT_ONCE).try_collect().await?;
    let id = judged.first().map(|(_, job, _)| format!("modr-{job}")).unwrap_or_default();
    let mut scores = vec![Scores::new(); texts.len()];
    for (index, _, of_piece) in judged {
        raise(&mut scores[index], of_piece);
    }
    let results = scores.iter().map(verdict).collect();
    Ok(Moderations { id, model: judge.cargo.entry.slug.to_string(), results })
}

/// The Cargo with this name. For OpenAI's names: the nearest of the operators' that an Island can serve.
fn choose(api: &Api, model: Option<&str>, allowed: &Allowed) -> Result<Arc<Cargo>, ApiError> {
    let catalogue = api.catalogue();
    if let Some(model) = model.filter(|model| !model.is_empty() && !choice::is_moderation_model(model)) {
        return MODERATES.named(&catalogue, model);
    }
    // `None` sorts first, so compare its presence first.
    let nearest = catalogue.own().filter(|cargo| (MODERATES.is_of)(cargo)).min_by_key(|cargo| {
        let near = allowed.nearest(cargo);
        (near.is_none(), near, cargo.entry.slug.as_str())
    });
    nearest.cloned().ok_or_else(|| MODERATES.absent())
}

/// The texts of an input.
fn texts(input: &Value) -> Vec<String> {
    match input {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) if list.iter().all(Value::is_string) => {
            list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        }
        Value::Array(parts) => {
            // Parts of one message have one verdict.
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            vec![texts.join("\n")]
        }
        _ => Vec::new(),
    }
}

/// What judges the texts of a request.
#[derive(Debug)]
struct Judge<'a> {
    api: &'a Arc<Api>,
    caller: Caller,
    cargo: Arc<Cargo>,
    preferences: Preferences,
}

impl Judge<'_> {
    async fn run(&self, piece: &str) -> Result<Answered, ApiError> {
        let input = Map::from_iter([("text".to_owned(), piece.into())]);
        one_job::run(self.api, self.caller, &self.cargo, input, None, self.preferences.clone()).await
    }

    /// The scores of a text, and the job that judged its beginning. A piece that has too many tokens is halved.
    async fn judge(
        &self,
        categories: &BTreeMap<String, String>,
        text: String,
    ) -> Result<(JobId, Scores), ApiError> {
        let (mut scores, mut first) = (Scores::new(), None);
        let mut left = vec![text];
        while let Some(piece) = left.pop() {
            let Answered { job, output, .. } = match self.run(&piece).await {
                Ok(answered) => answered,
                Err(error) if is_too_long(&error) && piece.chars().count() > SMALLEST => {
                    let half = piece.chars().count().div_ceil(2);
                    left.extend(pieces(&piece, half).into_iter().rev());
                    continue;
                }
                Err(error) => return Err(error),
            };
            first.get_or_insert(job.id);
            raise(&mut scores, of_labels(&output, categories)?);
        }
        let first = first.ok_or_else(|| ApiError::new(Code::JobFailed, "no piece of the text was judged"))?;
        Ok((first, scores))
    }
}

fn is_too_long(error: &ApiError) -> bool {
    matches!(error.code(), Code::ContextLengthExceeded | Code::InvalidInput)
}

/// The scores of the categories that the labels of an output mean.
fn of_labels(output: &Value, categories: &BTreeMap<String, String>) -> Result<Scores, ApiError> {
    #[derive(Deserialize)]
    struct Label {
        label: String,
        score: f64,
    }
    let labels = output.get("scores").and_then(|labels| Vec::<Label>::deserialize(labels).ok());
    let labels = labels.ok_or_else(|| ApiError::new(Code::JobFailed, "the output has no scores"))?;
    let mut scores = Scores::new();
    for Label { label, score } in labels {
        if let Some(category) = categories.get(&label) {
            raise(&mut scores, Scores::from([(category.clone(), score)]));
        }
    }
    Ok(scores)
}

/// Raises scores to those that are higher.
fn raise(scores: &mut Scores, others: Scores) {
    for (category, score) in others {
        let known = scores.entry(category).or_insert(score);
        *known = known.max(score);
    }
}

fn verdict(scores: &Scores) -> Moderation {
    let mut verdict = Moderation::default();
    let others = scores.keys().map(String::as_str).filter(|category| !CATEGORIES.contains(category));
    for category in CATEGORIES.into_iter().chain(others) {
        let score = scores.get(category).copied();
        let applies = score.map(|score| score >= THRESHOLD);
        verdict.flagged |= applies == Some(true);
        let types = score.map(|_| "text".to_owned()).into_iter().collect();
        verdict.categories.insert(category.to_owned(), applies);
        verdict.category_scores.insert(category.to_owned(), score);
        verdict.category_applied_input_types.insert(category.to_owned(), types);
    }
    verdict
}

/// A text in pieces of at most `size` characters, cut at white space where a piece has some in its second half.
fn pieces(text: &str, size: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((end, _)) = rest.char_indices().nth(size) {
        let at = rest[..end].rfind(char::is_whitespace).filter(|&at| at >= end / 2 && at > 0).unwrap_or(end);
        let (piece, after) = rest.split_at(at);
        pieces.push(piece.to_owned());
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(rest.to_owned());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_short_and_lose_nothing(text in "[a-zé \\n]{0,400}", size in 1_usize..50) {
            let pieces = pieces(&text, size);
            prop_assert_eq!(pieces.concat(), text);
            prop_assert!(pieces.iter().all(|piece| (1..=size).contains(&piece.chars().count())));
        }
    }

    #[test]
    fn a_text_is_cut_between_words() {
        assert_eq!(pieces("one two three", 9), ["one two", " three"]);
        assert_eq!(pieces("a bcdefghij", 4), ["a bc", "defg", "hij"]);
    }

    #[test]
    fn labels_become_categories_and_what_is_not_judged_is_null() {
        let categories = [("toxic", "harassment"), ("insult", "harassment"), ("spam", "advertising")];
        let categories = categories.map(|(label, category)| (label.to_owned(), category.to_owned())).into();
        let output = json!({"scores": [
            {"label": "insult", "score": 0.9}, {"label": "toxic", "score": 0.2}, {"label": "spam", "score": 0.1},
            {"label": "other", "score": 1.0},
        ]});
        let verdict = verdict(&of_labels(&output, &categories).expect("scores"));
        assert!(verdict.flagged);
        assert_eq!(
            (verdict.categories["harassment"], verdict.category_scores["harassment"]),
            (Some(true), Some(0.9))
        );
        assert_eq!(verdict.categories["advertising"], Some(false), "categories of its own are reported, too");
        assert_eq!((verdict.categories["self-harm"], verdict.category_scores["self-harm"]), (None, None));
        assert_eq!(verdict.category_applied_input_types["harassment"], ["text"]);
        assert!(
            verdict.category_applied_input_types["sexual"].is_empty()
                && !verdict.categories.contains_key("other")
        );
        assert!(of_labels(&json!({}), &categories).is_err());
    }

    #[test]
    fn parts_of_a_message_are_one_text() {
        assert_eq!(texts(&json!("a")), ["a"]);
        assert_eq!(texts(&json!(["a", "b"])), ["a", "b"]);
        assert_eq!(texts(&json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])), ["a\nb"]);
    }
}
