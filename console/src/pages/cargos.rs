//! The catalogue, and forms from which jobs are submitted.

use axum::{
    extract::Path,
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
};
use island_protocol::cargo::{CargoEntry, Category};
use island_protocol_api::{CargoList, Data, JobView, PREFIX, PageMeta, SubmittedJob, WorkloadView};
use serde_json::{Map, Value, json};

use super::megabytes;
use crate::{
    backend::{ApiFailure, encoded},
    input::{self, WHOLE},
    posted::{Posted, idempotency_key},
    texts::t,
    view::{Block, Card, Cell, Field, Form, Kind, Pager, Tone},
    web::{Member, Visit, blocks_page, described, failed, not_found},
};

/// Cargos in one page.
const PAGE: usize = 48;
/// Field with the priority of the job.
const PRIORITY: &str = ".priority";

/// `GET /console/cargos`.
pub(super) async fn list(visit: Visit) -> Response {
    let answers = futures::try_join!(visit.api.bare::<CargoList>("/cargos"), visit.who());
    let (cargos, who) = match answers {
        Ok(answers) => answers,
        Err(failure) => return failed(&visit, None, failure, "/"),
    };
    let search = visit.param("q").unwrap_or_default().to_lowercase();
    let category = visit.param("category").unwrap_or_default();
    let is_shown = |cargo: &&CargoEntry| {
        let text = format!("{} {} {}", cargo.slug, cargo.name, cargo.description).to_lowercase();
        let is_category = category.is_empty() || cargo.category.is_some_and(|of| of.as_str() == category);
        is_category && search.split_whitespace().all(|word| text.contains(word))
    };
    let shown: Vec<&CargoEntry> = cargos.cargos.iter().filter(is_shown).collect();
    let offset = visit.offset();
    let cards: Vec<Card> = shown.iter().skip(offset as usize).take(PAGE).map(|cargo| card(cargo)).collect();
    let meta = PageMeta { total: shown.len() as u64, limit: PAGE as u64, offset };
    let address = format!("/console/cargos?q={}&category={}&", encoded(&search), encoded(category));
    let mut categories = vec![(String::new(), t("cargos.all").to_owned())];
    categories.extend(Category::ALL.iter().map(|category| {
        (category.as_str().to_owned(), t(&format!("category.{}", category.as_str())).to_owned())
    }));
    let filter = Form::filter(
        "/console/cargos",
        vec![
            Field::line("q", t("cargos.search")).value(visit.param("q").unwrap_or_default()),
            Field::new("category", t("cargos.category"), Kind::Choice(categories)).value(category),
        ],
    );
    let mut blocks = vec![Block::Form(filter)];
    blocks.push(if cards.is_empty() {
        Block::Notice(Tone::Plain, t("cargos.none").to_owned())
    } else {
        Block::Cards(cards)
    });
    blocks.extend(Pager::new(&address, meta).map(Block::Pager));
    let mut frame = visit.frame(t("cargos.title"), who.as_ref());
    frame.is_wide = true;
    blocks_page(frame, t("cargos.lead").to_owned(), blocks)
}

/// The names of all Cargos in programs, which a form suggests; none for a part of a page.
pub(super) async fn slugs(visit: &Visit) -> Vec<String> {
    if visit.is_partial {
        return Vec::new();
    }
    let cargos = visit.api.bare::<CargoList>("/cargos").await.map(|list| list.cargos).unwrap_or_default();
    cargos.iter().map(|cargo| cargo.slug.to_string()).collect()
}

fn card(cargo: &CargoEntry) -> Card {
    let mut badges = vec![(Tone::Plain, cargo.runtime_type.to_string())];
    if let Some(category) = cargo.category {
        badges.push((Tone::Plain, t(&format!("category.{}", category.as_str())).to_owned()));
    }
    if cargo.published.is_some() {
        badges.push((Tone::Warn, t("cargos.published").to_owned()));
    }
    Card {
        href: format!("/console/cargos/{}", encoded(&cargo.slug.to_string())),
        title: cargo.name.clone(),
        note: cargo.slug.to_string(),
        text: cargo.description.clone(),
        badges,
        facts: vec![(t("cargos.price").to_owned(), Cell::number(super::prices(cargo)))],
    }
}

/// `GET /console/cargos/:slug`.
pub(super) async fn get(visit: Visit, Path(slug): Path<String>) -> Response {
    let who = match visit.who().await {
        Ok(who) => who,
        Err(failure) => return failed(&visit, None, failure, "/console/cargos"),
    };
    if let Some(who) = who {
        let member = Member { visit, who };
        let input = match member.visit.param("job") {
            Some(job) => member.visit.api.get(&format!("/jobs/{}", encoded(job))).await.ok(),
            None => None,
        };
        let input = input.map(|job: JobView| job.input).unwrap_or_default();
        return show(&member, &slug, &input, None, None).await;
    }
    let cargos: CargoList = match visit.api.bare("/cargos").await {
        Ok(cargos) => cargos,
        Err(failure) => return failed(&visit, None, failure, "/console/cargos"),
    };
    let Some(cargo) = cargos.cargos.iter().find(|cargo| cargo.slug.to_string() == slug) else {
        return not_found(&visit, None);
    };
    let sign_in = format!("/console/sign-in?next={}", encoded(&visit.path));
    let blocks = vec![facts(cargo), Block::Links(vec![(sign_in, t("cargos.sign_in").to_owned())])];
    blocks_page(visit.frame(cargo.name.clone(), None), cargo.description.clone(), blocks)
}

fn facts(cargo: &CargoEntry) -> Block {
    let mut facts = vec![
        (t("cargos.slug").to_owned(), Cell::Code(cargo.slug.to_string())),
        (t("cargos.price").to_owned(), Cell::number(super::prices(cargo))),
        (t("cargos.engine").to_owned(), Cell::text(cargo.runtime_type.to_string())),
        (t("cargos.memory").to_owned(), Cell::text(megabytes(cargo.required_ram_mb))),
    ];
    if cargo.required_vram_mb > 0 {
        facts.push((t("cargos.gpu_memory").to_owned(), Cell::text(megabytes(cargo.required_vram_mb))));
    }
    if let Some(published) = &cargo.published {
        facts.push((t("cargos.publisher").to_owned(), Cell::Code(published.publisher.to_string())));
    }
    Block::Facts(facts)
}

/// What was entered, and the field and message of what is wrong with it.
type Wrong<'a> = (&'a Posted, String, String);

/// The page of a Cargo. `before` is the input of an earlier job, with which its form begins, or empty.
async fn show(
    member: &Member,
    slug: &str,
    before: &Map<String, Value>,
    wrong: Option<Wrong<'_>>,
    status: Option<StatusCode>,
) -> Response {
    let path = format!("/workloads/{}", encoded(slug));
    let cargo: WorkloadView = match member.visit.api.get(&path).await {
        Ok(cargo) => cargo,
        Err(failure) => return member.failed(failure, "/console/cargos"),
    };
    let action = format!("/console/cargos/{}", encoded(slug));
    let entered = wrong.as_ref().map(|(posted, _, _)| *posted);
    let example = cargo.example.as_ref().map(|example| example.get("input").unwrap_or(example));
    let again = (!before.is_empty()).then(|| input::again(&cargo.input_schema, example, before));
    let begun = again.as_ref().map(|input| json!({"input": input}));
    let mut fields = input::fields(&cargo.input_schema, begun.as_ref().or(cargo.example.as_ref()), entered);
    let example = again.as_ref().or(example);
    let mut blocks = vec![facts(&cargo.entry)];
    if let Some((_, param, message)) = &wrong {
        // A nested field is shown at the property that contains it.
        let name = param.trim_start_matches("input.").split(['.', '[', '/']).find(|part| !part.is_empty());
        match fields.iter_mut().find(|field| Some(field.name.as_str()) == name) {
            Some(field) => {
                field.error.clone_from(message);
                field.is_extra = false;
            }
            None => blocks.push(Block::Notice(Tone::Bad, message.clone())),
        }
    }
    if !cargo.is_enabled {
        blocks.push(Block::Notice(Tone::Warn, t("cargos.disabled").to_owned()));
    }
    let priority = Kind::Number { step: "1".to_owned(), min: "0".to_owned(), max: "100".to_owned() };
    let mut priority = Field::new(PRIORITY, t("cargos.priority"), priority)
        .help(t("cargos.priority_help"))
        .value(entered.map_or("", |posted| posted.get(PRIORITY)));
    priority.is_extra = true;
    fields.push(priority);
    fields.push(idempotency_key());
    let form = Form { has_files: true, ..Form::post(&action, t("cargos.submit"), fields) };
    if cargo.input_schema["properties"]["messages"].is_object() {
        let chat = format!("/console/chat?model={}", encoded(slug));
        blocks.push(Block::Links(vec![(chat, t("cargos.chat").to_owned())]));
    }
    blocks.push(Block::Panel(t("cargos.run").to_owned(), vec![Block::Form(form)]));
    let whole = entered.and_then(|posted| posted.some(WHOLE)).map(str::to_owned);
    let whole = whole.or_else(|| serde_json::to_string_pretty(example?).ok()).unwrap_or_default();
    let whole = Field::new(WHOLE, t("cargos.json"), Kind::Code).value(whole);
    let as_json = Form::post(&action, t("cargos.submit"), vec![whole, idempotency_key()]);
    blocks.push(Block::Fold(t("cargos.as_json").to_owned(), vec![Block::Form(as_json)]));
    let as_call = if again.is_some() { "cargos.job_as_call" } else { "cargos.as_call" };
    blocks.push(Block::Fold(
        t(as_call).to_owned(),
        calls(slug, &cargo.input_schema, example, &member.visit.origin),
    ));
    let schema = |name: &str, schema: &Value| {
        Block::Pre(name.to_owned(), serde_json::to_string_pretty(schema).unwrap_or_default())
    };
    blocks.push(Block::Fold(
        t("cargos.schemas").to_owned(),
        vec![
            schema(t("cargos.input_schema"), &cargo.input_schema),
            schema(t("cargos.output_schema"), &cargo.output_schema),
        ],
    ));
    let mut response = member.page(cargo.entry.name.clone(), cargo.entry.description.clone(), blocks);
    if let Some(status) = status {
        *response.status_mut() = status;
    }
    response
}

/// The same call for programs. Files are named instead of shown.
fn calls(slug: &str, schema: &Value, example: Option<&Value>, origin: &str) -> Vec<Block> {
    let shown = |name: &str, value: &Value| match value {
        _ if !input::is_encoded(schema, name) => value.clone(),
        Value::Array(files) => files.iter().map(|_| json!("BASE64")).collect(),
        _ => json!("BASE64"),
    };
    let input: Map<String, Value> = example
        .and_then(Value::as_object)
        .map(|input| input.iter().map(|(name, value)| (name.clone(), shown(name, value))).collect())
        .unwrap_or_default();
    let body = serde_json::to_string(&json!({"workload": slug, "input": input})).unwrap_or_default();
    let input = serde_json::to_string(&input).unwrap_or_default();
    // Within single quotes of a shell, only the quote itself is special.
    let quoted = |text: &str| text.replace('\'', "'\\''");
    // Strings of JSON are strings of Python once JSON reads them.
    let python = serde_json::to_string(&body).unwrap_or_default();
    let variables = format!(
        "export API_URL='{}{PREFIX}' API_KEY=ak_…\nexport SERVICE_API_URL='{}' SERVICE_API_KEY=$API_KEY",
        quoted(origin),
        quoted(origin)
    );
    vec![
        Block::Copy(t("cargos.variables").to_owned(), variables),
        Block::Copy(
            "curl".to_owned(),
            format!(
                "curl -H \"Authorization: Bearer $API_KEY\" -H \"Content-Type: application/json\" \\\n  $API_URL/jobs -d '{}'",
                quoted(&body)
            ),
        ),
        Block::Copy(
            "Python".to_owned(),
            format!(
                "import json, os, requests\n\njob = requests.post(\n    os.environ[\"API_URL\"] + \"/jobs\",\n    headers={{\"Authorization\": \"Bearer \" + os.environ[\"API_KEY\"]}},\n    json=json.loads({python}),\n).json()[\"data\"]\nprint(job[\"id\"])"
            ),
        ),
        Block::Copy(
            "island".to_owned(),
            format!("island jobs submit --workload {slug} --input '{}'", quoted(&input)),
        ),
    ]
}

/// `POST /console/cargos/:slug`: submits a job.
pub(super) async fn submit(member: Member, Path(slug): Path<String>, posted: Posted) -> Response {
    let path = format!("/workloads/{}", encoded(&slug));
    let cargo: WorkloadView = match member.visit.api.get(&path).await {
        Ok(cargo) => cargo,
        Err(failure) => return member.failed(failure, "/console/cargos"),
    };
    let input = match input::read(&cargo.input_schema, cargo.example.as_ref(), &posted) {
        Ok(input) => input,
        Err((field, message)) => {
            let status = Some(StatusCode::UNPROCESSABLE_ENTITY);
            return show(&member, &slug, &Map::new(), Some((&posted, field, message)), status).await;
        }
    };
    let mut body = json!({"workload": slug, "input": input});
    if let Some(priority) = posted.number(PRIORITY) {
        body["priority"] = priority;
    }
    match member.visit.api.post_with::<Data<SubmittedJob>>("/jobs", &body, posted.idempotency()).await {
        Ok(Data { data }) => Redirect::to(&format!("/console/jobs/{}", data.id)).into_response(),
        Err(ApiFailure::Refused { status, problem }) if status.is_client_error() => {
            let (message, param) = (described(&problem).0, problem.param.unwrap_or_default());
            show(&member, &slug, &Map::new(), Some((&posted, param, message)), Some(status)).await
        }
        Err(failure) => member.failed(failure, &member.visit.path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_name_files_and_show_everything_else() {
        let schema = json!({"properties": {
            "image": {"type": "string", "contentEncoding": "base64"},
            "pdfs": {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}},
            "text": {"type": "string"},
        }});
        let text = "it's ".repeat(40);
        let example = json!({"image": "iVBORw0KGgo=", "pdfs": ["JVBERi0=", "JVBERi0="], "text": text});
        let calls = calls("some-cargo", &schema, Some(&example), "https://island.example.org");
        let of = |name: &str| {
            calls.iter().find_map(|block| match block {
                Block::Copy(caption, text) if caption == name => Some(text.as_str()),
                _ => None,
            })
        };
        let command = of("island").expect("a command");
        let input = format!(
            "{{\"image\":\"BASE64\",\"pdfs\":[\"BASE64\",\"BASE64\"],\"text\":\"{}\"}}",
            text.replace('\'', "'\\''")
        );
        assert_eq!(command, format!("island jobs submit --workload some-cargo --input '{input}'"));
        assert!(of("curl").is_some_and(|curl| curl.contains("it'\\''s")));
        let variables = of(t("cargos.variables")).expect("variables");
        assert!(variables.contains("API_URL='https://island.example.org/api/v1'"), "{variables}");
    }
}
