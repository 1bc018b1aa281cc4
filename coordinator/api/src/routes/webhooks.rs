//! Webhooks.

use island_protocol_api::{
    Data, Page,
    key::Scope,
    problem::Code,
    webhook::{CreateWebhook, CreatedWebhook, DeletedWebhook, Delivery, Webhook},
};
use serde_json::json;

use super::{Routes, uuid};
use crate::{native::webhooks, openapi::operation::Operation};

const CREATE: &str = "Events of the account's jobs, responses and batches are posted to the address as JSON, with `id`, `type`, `created_at` and `data.id`. The \
     headers `webhook-id`, `webhook-timestamp` and `webhook-signature` are those of Standard Webhooks. An event is delivered when the address answers \
     with a 2xx status within some seconds; redirections are not followed. Otherwise it is sent again, with growing pauses, for three days, and an address \
     that has failed for so long is disabled until a test event is delivered. An event may arrive more than once, with the same id, and events may arrive in \
     any order. Requests of batches cause no events of jobs.";

fn on_webhook(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed("Webhooks", id, summary, scope)
        .segment("id", "The webhook.", &uuid())
        .fails(&[Code::WebhookNotFound])
}

pub(super) fn add(routes: Routes) -> Routes {
    let example =
        json!({"url": "https://example.org/events", "events": ["job.completed", "batch.completed"]});
    routes
        .post(
            "/webhooks",
            webhooks::create,
            Operation::keyed("Webhooks", "createWebhook", "Send events to an address", Scope::Write)
                .about(CREATE)
                .takes::<CreateWebhook>(Some(example))
                .fails(&[Code::TooManyWebhooks])
                .answers::<CreatedWebhook>(201, "The webhook, and the key of its signatures"),
        )
        .get(
            "/webhooks",
            webhooks::list,
            Operation::keyed("Webhooks", "listWebhooks", "The account's webhooks, oldest first", Scope::Read)
                .answers::<Data<Vec<Webhook>>>(200, "The webhooks"),
        )
        .get(
            "/webhooks/{id}",
            webhooks::get,
            on_webhook("getWebhook", "One webhook", Scope::Read)
                .answers::<Data<Webhook>>(200, "The webhook"),
        )
        .delete(
            "/webhooks/{id}",
            webhooks::delete,
            on_webhook("deleteWebhook", "Delete a webhook", Scope::Write)
                .about("Events that were not delivered are not sent any more.")
                .answers::<Data<DeletedWebhook>>(200, "The webhook was deleted"),
        )
        .post(
            "/webhooks/{id}/secret",
            webhooks::replace_secret,
            on_webhook("replaceWebhookSecret", "Replace the secret of a webhook", Scope::Write)
                .about("For a day, events have the signatures of both secrets.")
                .answers::<CreatedWebhook>(200, "The webhook, and the new key of its signatures"),
        )
        .post(
            "/webhooks/{id}/test",
            webhooks::test,
            on_webhook("testWebhook", "Send a test event", Scope::Write)
                .about("The event is `webhook.test`. If it is delivered, a webhook that was disabled is enabled again.")
                .answers::<Data<Delivery>>(202, "The event that will be sent"),
        )
        .get(
            "/webhooks/{id}/deliveries",
            webhooks::deliveries,
            on_webhook("listWebhookDeliveries", "The events of a webhook, newest first", Scope::Read)
                .paged()
                .answers::<Page<Delivery>>(200, "A page of deliveries"),
        )
}
