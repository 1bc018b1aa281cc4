//! `/island` and `/fabric`: requests of Islands, and of users who read the fabric.

use island_protocol::ids::HostId;
use island_protocol_api::{
    Enroll, HostCredentials, HostView, IslandCheck, Pairing, WatchCredentials, claim::IslandRequest,
    recommendation::Recommendations,
};
use serde_json::json;

use crate::{call::Call, client::Client, request::Request};

impl Client {
    /// `GET /island/recommendations`: models to download; needs no key.
    pub fn recommendations(&self, host: HostId) -> Request<Recommendations> {
        let call = Call::get("read recommendations", &["island", "recommendations"]);
        Request::plain(self, call.query("host_id", Some(host)))
    }

    /// `POST /island/enroll`. A signature is accepted once, so sign again to retry.
    pub fn enroll(&self, body: &Enroll) -> Request<HostCredentials> {
        Request::data(self, Call::post("enroll the Island", &["island", "enroll"], body))
    }

    /// `POST /island/pairings`: a code for the Island's owner. A signature is accepted once, so sign again to retry.
    pub fn start_pairing(&self, body: &Enroll) -> Request<Pairing> {
        Request::data(self, Call::post("request a code", &["island", "pairings"], body))
    }

    /// `POST /hosts/pair`: adds the Island that shows the code to the key's account.
    pub fn pair_host(&self, code: &str) -> Request<HostView> {
        Request::data(self, Call::post("pair the Island", &["hosts", "pair"], &json!({ "code": code })))
    }

    /// `POST /island/leave`. A signature is accepted once, so sign again to retry.
    pub fn leave(&self, body: &IslandRequest) -> Request<()> {
        Request::data(self, Call::post("leave the network", &["island", "leave"], body))
    }

    /// `POST /island/credentials`. A signature is accepted once, so sign again to retry.
    pub fn renew_credentials(&self, body: &IslandRequest) -> Request<HostCredentials> {
        Request::data(self, Call::post("renew the Island's credentials", &["island", "credentials"], body))
    }

    /// `POST /island/check`: runs one free job on the Island and returns its progress; takes up to a minute.
    pub fn check_island(&self, body: &IslandRequest) -> Request<IslandCheck> {
        Request::data(self, Call::post("run a job on this Island", &["island", "check"], body))
    }

    /// `POST /fabric/credentials`: short-lived access for [`FabricWatch`](crate::fabric::FabricWatch).
    pub fn watch_credentials(&self) -> Request<WatchCredentials> {
        let call = Call::post("request fabric credentials", &["fabric", "credentials"], &json!({}));
        Request::data(self, call.harmless())
    }
}
