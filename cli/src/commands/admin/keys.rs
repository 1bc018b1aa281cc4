//! `island admin keys`.

use anyhow::Result;
use island_protocol::ids::ApiKeyId;
use island_protocol_api::admin::Reason;

use crate::{
    args::AccountKeys,
    commands::{api_keys::table, select},
    failure::Usage,
    output::Output,
    settings::Settings,
};

pub(super) async fn run(command: AccountKeys, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    match command {
        AccountKeys::List { account } => {
            let account = select::account(&client, &account).await?;
            let answer = client.keys_of_account(account).answer().await?;
            if output.is_json() {
                return output.json(&answer.body);
            }
            table(&answer.value, output)
        }
        AccountKeys::Revoke { key, reason } => {
            let id: ApiKeyId = key.parse().map_err(|_| Usage(format!("'{key}' is not the id of a key")))?;
            let answer = client.revoke_key_of_account(id, &Reason { reason }).answer().await?;
            if output.is_json() {
                return output.json(&answer.body);
            }
            output.line(&format!("{} revoked", answer.value.id))
        }
    }
}
