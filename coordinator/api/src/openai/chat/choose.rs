//! Which models may serve a chat, in order.

use std::{collections::HashMap, sync::Arc};

use island_protocol_api::{
    preferences::{Preferences, Sort},
    problem::Code,
};

use super::request::Chat;
use crate::{
    Api, ApiError,
    native::availability::{Allowed, other_quantization},
};
use island_coordinator_domain::catalogue::{Cargo, Catalogue, choice};

/// Maximum characters of a name in an error.
const MAX_NAME: usize = 100;

/// The Cargos to try, the preferred one first. Never empty.
///
/// A single name is resolved by [`choice::choose`], unless it was meant for a certain model and is not its name. Of several names those
/// that the catalogue does not know are left out.
pub(crate) fn candidates(api: &Api, allowed: &Allowed, chat: &Chat) -> Result<Vec<Arc<Cargo>>, ApiError> {
    let catalogue = api.catalogue();
    let usable = usable(allowed, &catalogue, chat);
    let choose = |name: &str| choice::choose(&catalogue, name, &usable).cloned();
    let mut found: Vec<Arc<Cargo>> = Vec::new();
    for name in chat.models.iter().filter(|name| choice::is_known(&catalogue, name)) {
        let chosen = choose(name).filter(|cargo| !found.iter().any(|one| Arc::ptr_eq(one, cargo)));
        found.extend(chosen);
    }
    if found.is_empty() {
        let name = chat.models.first().map(String::as_str).unwrap_or_default();
        if let Some(nearest) = choice::mistaken(&catalogue, name) {
            return Err(unknown(name, &nearest));
        }
        found.extend(choose(name));
    }
    if found.is_empty() {
        return Err(absent());
    }
    let Preferences { sort, quantizations, .. } = &chat.preferences;
    found.retain(|cargo| cargo.is_stored_as(quantizations));
    if found.is_empty() {
        return Err(other_quantization());
    }
    if *sort == Some(Sort::Price) {
        found.sort_by_key(|cargo| cargo.spec.usual_price());
    }
    Ok(found)
}

/// The error for a name that was meant for a certain model and is not its name.
fn unknown(name: &str, nearest: &[&str]) -> ApiError {
    let name: String = name.chars().take(MAX_NAME).collect();
    let next = if nearest.is_empty() {
        "GET /models lists the models".to_owned()
    } else {
        format!("nearest names: {}", nearest.join(", "))
    };
    ApiError::field(Code::ModelNotFound, "model", format!("there is no language model {name:?}; {next}"))
}

/// The error of a catalogue without language models.
pub(crate) fn absent() -> ApiError {
    ApiError::new(Code::NoIslandAvailable, "the catalogue has no language model")
}

/// How near the files of each model are to the nearest Island that may serve it now.
fn usable(allowed: &Allowed, catalogue: &Catalogue, chat: &Chat) -> choice::Usable {
    let mut usable = HashMap::new();
    let suits = |cargo: &&Arc<Cargo>| {
        cargo.is_chat()
            && (cargo.sees() || !chat.has_images)
            && (cargo.takes_sounds() || !chat.has_sounds)
            && chat.setting_without_use(cargo).is_none()
    };
    for cargo in catalogue.own().filter(suits) {
        let nearest = allowed.nearest(cargo);
        usable.extend(nearest.map(|nearest| (cargo.entry.slug.clone(), nearest)));
    }
    usable
}
