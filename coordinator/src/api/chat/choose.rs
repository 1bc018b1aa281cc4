//! Which models may serve a chat, in order.

use std::{collections::HashMap, sync::Arc};

use island_protocol::{
    preferences::{Preferences, Sort},
    problem::Code,
};
use tokio::time::Instant;

use super::request::Chat;
use crate::{
    api::{Api, ApiError},
    catalogue::{Cargo, Catalogue, choice},
    placement::{self, Selection},
};

/// The Cargos to try, the preferred one first. Never empty.
///
/// One name means what [`choice::choose`] makes of it. Of several names those that the catalogue does not know are left out.
pub(in crate::api) fn candidates(api: &Api, chat: &Chat) -> Result<Vec<Arc<Cargo>>, ApiError> {
    let catalogue = api.execution.context().catalogue();
    let usable = usable(api, &catalogue, chat);
    let choose = |name: &str| choice::choose(&catalogue, name, &usable).cloned();
    let mut found: Vec<Arc<Cargo>> = Vec::new();
    for name in chat.models.iter().filter(|name| choice::is_known(&catalogue, name)) {
        let chosen = choose(name).filter(|cargo| !found.iter().any(|one| Arc::ptr_eq(one, cargo)));
        found.extend(chosen);
    }
    if found.is_empty() {
        found.extend(choose(chat.models.first().map(String::as_str).unwrap_or_default()));
    }
    if found.is_empty() {
        return Err(absent());
    }
    let Preferences { sort, quantizations, .. } = &chat.preferences;
    if !quantizations.is_empty() {
        found.retain(|cargo| {
            let known = cargo.quantization().unwrap_or_default();
            quantizations.iter().any(|wanted| wanted.eq_ignore_ascii_case(&known))
        });
        if found.is_empty() {
            let message = "no requested model has one of these quantizations";
            return Err(ApiError::field(Code::ValidationError, "preferences.quantizations", message));
        }
    }
    if *sort == Some(Sort::Price) {
        found.sort_by_key(|cargo| cargo.spec.usual_price());
    }
    Ok(found)
}

/// The error of a catalogue without language models.
pub(in crate::api) fn absent() -> ApiError {
    ApiError::new(Code::NoIslandAvailable, "the catalogue has no language model")
}

/// How near the files of each model are to the nearest Island that may serve it now.
fn usable(api: &Api, catalogue: &Catalogue, chat: &Chat) -> choice::Usable {
    let mut usable = HashMap::new();
    let islands = api.execution.context().fleet.snapshot(Instant::now());
    let suits = |cargo: &&Arc<Cargo>| {
        cargo.is_chat() && (cargo.sees() || !chat.has_images) && (cargo.takes_sounds() || !chat.has_sounds)
    };
    let selection = Selection { preferences: chat.preferences.clone(), ..Selection::default() };
    for cargo in catalogue.own().filter(suits) {
        let nearest = if chat.preferences.is_default() {
            islands.nearest(&cargo.spec)
        } else {
            let found = islands.candidates();
            found.filter_map(|island| placement::usable_by(&cargo.spec, &selection, &island).ok()).min()
        };
        usable.extend(nearest.map(|nearest| (cargo.entry.slug.clone(), nearest)));
    }
    usable
}
