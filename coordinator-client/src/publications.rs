//! `/publications`, and their review by operators.

use island_protocol::ids::PublicationId;
use island_protocol_api::{
    Page,
    admin::Reason,
    publication::{Publication, PublicationDetails, PublicationState, SubmitPublication},
};

use crate::{call::Call, client::Client, request::Request};

impl Client {
    /// `POST /publications`: submits a Cargo for review.
    pub fn publish(&self, manifest: String) -> Request<Publication> {
        let body = SubmitPublication { manifest };
        Request::data(self, Call::post_once("submit the Cargo", &["publications"], &body))
    }

    /// `GET /publications`: the account's own, newest first.
    pub fn publications(&self, limit: u64, offset: u64) -> Request<Page<Publication>> {
        let call = Call::get("list the publications", &["publications"]);
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

    /// `GET /publications/:id`.
    pub fn publication(&self, id: PublicationId) -> Request<PublicationDetails> {
        Request::data(self, Call::get("read the publication", &["publications", &id.to_string()]))
    }

    /// `DELETE /publications/:id`: it is no longer reviewed, or no longer served.
    pub fn withdraw_publication(&self, id: PublicationId) -> Request<Publication> {
        Request::data(self, Call::delete("withdraw the publication", &["publications", &id.to_string()]))
    }

    /// `GET /admin/publications`: those of all accounts, newest first; only those in one state, if one is given.
    pub fn all_publications(
        &self,
        state: Option<PublicationState>,
        limit: u64,
        offset: u64,
    ) -> Request<Page<Publication>> {
        let call = Call::get("list the publications", &["admin", "publications"]);
        let call = call.query("state", state.map(PublicationState::as_str));
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

    /// `GET /admin/publications/:id`, of any account.
    pub fn any_publication(&self, id: PublicationId) -> Request<PublicationDetails> {
        let path = ["admin", "publications", &id.to_string()];
        Request::data(self, Call::get("read the publication", &path))
    }

    /// `POST /admin/publications/:id/approve`: its Cargo is served.
    pub fn approve_publication(&self, id: PublicationId, reason: &Reason) -> Request<Publication> {
        let path = ["admin", "publications", &id.to_string(), "approve"];
        Request::data(self, Call::post("approve the publication", &path, reason).harmless())
    }

    /// `POST /admin/publications/:id/reject`: its Cargo is not served, or no longer.
    pub fn reject_publication(&self, id: PublicationId, reason: &Reason) -> Request<Publication> {
        let path = ["admin", "publications", &id.to_string(), "reject"];
        Request::data(self, Call::post("reject the publication", &path, reason).harmless())
    }
}
