//! `/webhooks`: addresses that are sent events, signed as Standard Webhooks describes.

use island_protocol::{
    ids::{DeliveryId, WebhookId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
pub enum EventType {
    /// A job completed.
    #[serde(rename = "job.completed")]
    #[strum(serialize = "job.completed")]
    JobCompleted,
    /// A job failed, or its time ran out.
    #[serde(rename = "job.failed")]
    #[strum(serialize = "job.failed")]
    JobFailed,
    /// A job was cancelled.
    #[serde(rename = "job.cancelled")]
    #[strum(serialize = "job.cancelled")]
    JobCancelled,
    /// Every request of a batch has ended.
    #[serde(rename = "batch.completed")]
    #[strum(serialize = "batch.completed")]
    BatchCompleted,
    /// A batch failed.
    #[serde(rename = "batch.failed")]
    #[strum(serialize = "batch.failed")]
    BatchFailed,
    /// The window of a batch ended before its requests.
    #[serde(rename = "batch.expired")]
    #[strum(serialize = "batch.expired")]
    BatchExpired,
    /// A batch was cancelled.
    #[serde(rename = "batch.cancelled")]
    #[strum(serialize = "batch.cancelled")]
    BatchCancelled,
    /// A stored response is complete.
    #[serde(rename = "response.completed")]
    #[strum(serialize = "response.completed")]
    ResponseCompleted,
    /// A stored response reached its maximum length.
    #[serde(rename = "response.incomplete")]
    #[strum(serialize = "response.incomplete")]
    ResponseIncomplete,
    /// A stored response failed.
    #[serde(rename = "response.failed")]
    #[strum(serialize = "response.failed")]
    ResponseFailed,
    /// A stored response was cancelled.
    #[serde(rename = "response.cancelled")]
    #[strum(serialize = "response.cancelled")]
    ResponseCancelled,
    /// The account requested a test of the webhook.
    #[serde(rename = "webhook.test")]
    #[strum(serialize = "webhook.test")]
    WebhookTest,
}

impl EventType {
    /// Every type.
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// `POST /webhooks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// Address that events are posted to. It begins with `https://`.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 2048)))]
    pub url: String,
    /// Events that are sent.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 32)))]
    pub events: Vec<EventType>,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Webhook {
    /// Id of the webhook.
    pub id: WebhookId,
    /// Address that events are posted to.
    pub url: String,
    /// Events that are sent.
    pub events: Vec<EventType>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Since when every delivery has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// When it was disabled, because deliveries had failed for too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
}

/// Answer to `POST /webhooks` and `POST /webhooks/:id/secret`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CreatedWebhook {
    /// The webhook.
    pub data: Webhook,
    /// Key of its signatures, `whsec_` and base64. Only this answer contains it.
    pub secret: String,
}

/// Answer to `DELETE /webhooks/:id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeletedWebhook {
    /// Id of the webhook.
    pub id: WebhookId,
    /// `true`.
    pub deleted: bool,
}

/// State of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryState {
    /// It will be tried, for the first time or again.
    Pending,
    /// The address answered with a 2xx status.
    Delivered,
    /// It is not tried any longer.
    Failed,
}

/// One event for one webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Delivery {
    /// Id of the event, which the header `webhook-id` contains: the same for every attempt.
    pub id: DeliveryId,
    /// What the event is about.
    pub event: EventType,
    /// Id of the job, the batch, the response, or the webhook that is tested.
    pub subject: String,
    /// State.
    pub state: DeliveryState,
    /// Number of attempts.
    pub attempts: u32,
    /// HTTP status of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<u16>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Time of the event.
    pub created_at: Timestamp,
    /// Time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// When it was delivered or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// The body that is sent to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Event {
    /// Id of the event, as in the header `webhook-id`.
    pub id: DeliveryId,
    /// `event`.
    pub object: String,
    /// Unix seconds.
    pub created_at: i64,
    /// What the event is about.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// What ended.
    pub data: EventData,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EventData {
    /// Id of the job, the batch, the response, or the webhook that is tested.
    pub id: String,
}
