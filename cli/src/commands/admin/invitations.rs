//! `island admin invitations`.

use anyhow::{Result, bail};
use island_protocol::time::Timestamp;
use island_protocol_api::signup::{self, Invitation};

use crate::{
    args::{CreateInvitation, Invitations, Paging, Why},
    commands::select,
    output::{Column, Output, text},
    settings::Settings,
};

const COLUMNS: [Column; 7] = [
    Column::of("id").id(),
    Column::of("credits"),
    Column::of("used"),
    Column::of("state"),
    Column::of("created").drop(3),
    Column::of("expires").drop(2),
    Column::of("reason").cut().drop(1),
];

pub(super) async fn run(command: Invitations, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Invitations::List(page) => list(&page, settings, output).await,
        Invitations::Create(wanted) => create(wanted, settings, output).await,
        Invitations::Revoke { invitation, why } => revoke(&invitation, why, settings, output).await,
    }
}

async fn list(page: &Paging, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.invitations(page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let now = text::now();
    let rows = answer.value.data.iter().map(|invitation| {
        vec![
            invitation.id.to_string(),
            text::credits(invitation.credits),
            format!("{} / {}", invitation.used, invitation.uses),
            state(invitation, now).into(),
            output.moment(invitation.created_at),
            text::or_dash(invitation.expires_at.map(|expires| output.moment(expires))),
            invitation.reason.clone(),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No invitations.")
}

/// Whether an account can be created with it, or why not.
fn state(invitation: &Invitation, now: Timestamp) -> &'static str {
    if invitation.revoked_at.is_some() {
        "revoked"
    } else if invitation.expires_at.is_some_and(|expires| expires <= now) {
        "expired"
    } else if invitation.used >= invitation.uses {
        "used up"
    } else {
        "valid"
    }
}

async fn create(wanted: CreateInvitation, settings: &Settings, output: &Output) -> Result<()> {
    let CreateInvitation { credits, uses, expires, reason } = wanted;
    let expires_at = expires.map(|expires| expires.moment(text::now()));
    let body = signup::CreateInvitation { credits, uses, expires_at, reason };
    let answer = settings.client()?.create_invitation(&body).answer().await?;
    let Invitation { id, credits, uses, .. } = &answer.value.data;
    let Some(code) = &answer.value.code else {
        // The first answer was lost in transit, and a code is returned only once.
        bail!(
            "invitation {id} was created, but its code was lost on the way: \
             `island admin invitations revoke {id} --reason lost`, then create another"
        );
    };
    if output.is_json() {
        output.json(&answer.body)?;
    } else {
        output.line(code)?;
    }
    let accounts = if *uses == 1 { "account" } else { "accounts" };
    output.note(&format!("created invitation {id} for {uses} {accounts} with {}", text::amount(*credits)));
    output.warn("this is the only time the code is shown");
    Ok(())
}

async fn revoke(invitation: &str, why: Why, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let invitation = select::invitation(&client, invitation).await?;
    let answer = client.revoke_invitation(invitation, &why.into()).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("invitation {} revoked", answer.value.id))
}

#[cfg(test)]
mod tests {
    use island_protocol::{credits::MicroCredits, ids::InvitationId};

    use super::*;

    #[test]
    fn states() {
        let (past, now, future) = (1_000, 2_000, 3_000);
        let at = Timestamp::from_unix_ms;
        let state_of = |used, expires: Option<i64>, revoked: Option<i64>| {
            let invitation = Invitation {
                id: InvitationId(uuid::Uuid::nil()),
                credits: MicroCredits::ONE,
                uses: 2,
                used,
                reason: "why".into(),
                created_at: at(0),
                expires_at: expires.map(at),
                revoked_at: revoked.map(at),
            };
            state(&invitation, at(now))
        };
        assert_eq!(state_of(1, Some(future), None), "valid");
        assert_eq!(state_of(1, None, None), "valid");
        assert_eq!(state_of(2, Some(future), None), "used up");
        assert_eq!(state_of(1, Some(past), None), "expired");
        assert_eq!(state_of(2, Some(past), Some(past)), "revoked");
    }
}
