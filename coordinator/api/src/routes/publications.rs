//! Cargos that accounts publish, and their review.

use island_protocol_api::{
    Data, Page,
    admin::Reason,
    key::Scope,
    problem::Code,
    publication::{Publication, PublicationDetails, PublicationState, SubmitPublication},
};
use serde_json::json;

use super::{Routes, uuid};
use crate::{
    native::{admin::publications as review, publications},
    openapi::operation::Operation,
};

/// A manifest that has all required keys.
const EXAMPLE: &str = "slug = \"my-model\"\nname = \"My model\"\ndescription = \"Answers.\"\ncategory = \"llm\"\n\
     runtime_type = \"llmcpp\"\nprice_per_job = 0.5\nrequired_vram_mb = 0\nrequired_ram_mb = 2000\n\
     model_url = \"https://example.org/my-model.gguf\"\n\
     model_hash = \"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\"\nmodel_size_bytes = 1500000000\n\
     [input_schema]\ntype = \"object\"\n[output_schema]\ntype = \"string\"\n[example.input]\nprompt = \"hello\"\n";

fn on_own(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    on_publication("Catalogue", id, summary, scope)
}

fn on_publication(tag: &'static str, id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed(tag, id, summary, scope)
        .segment("id", "The publication.", &uuid())
        .fails(&[Code::PublicationNotFound])
}

fn reviewed(id: &'static str, summary: &'static str) -> Operation {
    on_publication("Operators", id, summary, Scope::Write)
        .fails(&[Code::PublicationAlreadyFinal])
        .takes::<Reason>(Some(json!({"reason": "its model was tried"})))
        .answers::<Data<Publication>>(200, "The publication after the review")
}

pub(super) fn add(routes: Routes) -> Routes {
    [own, of_all].into_iter().fold(routes, |routes, part| part(routes))
}

fn own(routes: Routes) -> Routes {
    routes
        .post(
            "/publications",
            publications::submit::create,
            Operation::keyed("Catalogue", "submitPublication", "Submit a Cargo for review", Scope::Write)
                .about("It is served once an operator has approved it. Until then an earlier version goes on being served.")
                .idempotent()
                .fails(&[Code::InvalidManifest, Code::SlugTaken, Code::TooManyPublications])
                .takes::<SubmitPublication>(Some(json!({"manifest": EXAMPLE})))
                .answers::<Data<Publication>>(201, "The publication, which waits for review"),
        )
        .get(
            "/publications",
            publications::list,
            Operation::keyed(
                "Catalogue",
                "listPublications",
                "The Cargos that this account submitted, newest first",
                Scope::Read,
            )
            .paged()
            .answers::<Page<Publication>>(200, "A page of publications"),
        )
        .get(
            "/publications/{id}",
            publications::get,
            on_own("getPublication", "One publication with its manifest", Scope::Read)
                .answers::<Data<PublicationDetails>>(200, "The publication"),
        )
        .delete(
            "/publications/{id}",
            publications::withdraw,
            on_own("withdrawPublication", "Withdraw a publication", Scope::Write)
                .about("It is no longer reviewed, or no longer served. Jobs that were accepted go on.")
                .fails(&[Code::PublicationAlreadyFinal])
                .answers::<Data<Publication>>(200, "The publication, which is withdrawn"),
        )
}

fn of_all(routes: Routes) -> Routes {
    let states: Vec<_> = PublicationState::ALL.iter().map(|state| state.as_str()).collect();
    routes
        .get(
            "/admin/publications",
            review::list,
            Operation::keyed(
                "Operators",
                "listAllPublications",
                "The Cargos that accounts submitted, newest first",
                Scope::Read,
            )
            .paged()
            .query("state", false, "Only those in this state.", &json!({"type": "string", "enum": states}))
            .query("account", false, "Only those of this account.", &uuid())
            .answers::<Page<Publication>>(200, "A page of publications"),
        )
        .get(
            "/admin/publications/{id}",
            review::get,
            on_publication("Operators", "getAnyPublication", "A publication with its manifest", Scope::Read)
                .answers::<Data<PublicationDetails>>(200, "The publication"),
        )
        .post(
            "/admin/publications/{id}/approve",
            review::approve,
            reviewed("approvePublication", "Serve a Cargo that an account submitted")
                .about("It takes the place of its version before.")
                .fails(&[Code::InvalidManifest, Code::SlugTaken]),
        )
        .post(
            "/admin/publications/{id}/reject",
            review::reject,
            reviewed("rejectPublication", "Refuse to serve a Cargo, or to serve it any longer")
                .about("Its publisher is shown the reason. Jobs that were accepted go on."),
        )
}
