//! Chooses the Cargo for OpenAI's names of models that transcribe speech.
//!
//! Each name means any Cargo for speech that an Island can serve: Whisper models of several languages before others, as
//! clients of these names expect languages, translation and times; then the nearest; then the one of the size that the
//! name suggests.

use std::sync::Arc;

use crate::{catalogue::Cargo, placement::Nearness};

/// The names, and the size in megabytes of main memory that each suggests.
const WELL_KNOWN: [(&str, u64); 3] =
    [("whisper-1", 800), ("gpt-4o-mini-transcribe", 500), ("gpt-4o-transcribe", u64::MAX)];

/// The size that a name of OpenAI suggests, with or without a date.
pub fn size_of(name: &str) -> Option<u64> {
    let name = super::undated(name);
    WELL_KNOWN.iter().find(|(known, _)| *known == name).map(|(_, size)| *size)
}

/// The Cargo among `cargos` for this size. Returns `None` only if none of them transcribes.
pub fn choose<'c>(
    cargos: impl Iterator<Item = &'c Arc<Cargo>>,
    size: u64,
    nearness: impl Fn(&Cargo) -> Option<Nearness>,
) -> Option<&'c Arc<Cargo>> {
    cargos.filter(|cargo| cargo.transcribes()).min_by_key(|cargo| {
        let near = nearness(cargo);
        let distance = cargo.entry.required_ram_mb.abs_diff(size);
        // `None` sorts first, so compare its presence first.
        (near.is_none(), !is_whisper(cargo), near, distance, cargo.entry.slug.as_str())
    })
}

/// Whether the model is a Whisper of several languages. Its files are not read here, so its names decide.
fn is_whisper(cargo: &Cargo) -> bool {
    let files = cargo.spec.artifacts.iter().map(|file| file.url.as_str());
    let is_english = |name: &str| name.ends_with("-en") || name.contains(".en/") || name.contains(".en:");
    let names: Vec<&str> = files.chain([cargo.entry.slug.as_str()]).collect();
    names.iter().any(|name| name.contains("whisper")) && !names.iter().any(|name| is_english(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::manifest;

    fn cargo(slug: &str, task: &str, ram_mb: u64) -> Arc<Cargo> {
        let manifest = format!(
            "slug = {slug:?}\nname = \"x\"\ndescription = \"x\"\ncategory = \"audio\"\nruntime_type = \"onnx\"\n\
             onnx_task_type = {task:?}\nprice_per_job = 1\nrequired_vram_mb = 0\nrequired_ram_mb = {ram_mb}\n\
             [input_schema]\n[output_schema]\n[example]\ninput = {{}}\n"
        );
        let folder = tempfile::tempdir().expect("temporary folder");
        Arc::new(manifest::read(folder.path(), &manifest).expect("a valid manifest"))
    }

    #[test]
    fn names_of_openai_mean_the_nearest_whisper_of_their_size() {
        use Nearness::{OnDisk, Remote, Warm};
        let speech = "automatic-speech-recognition";
        let all = [
            cargo("moonshine", speech, 800),
            cargo("whisper-tiny-en", speech, 800),
            cargo("whisper-base", speech, 500),
            cargo("whisper-small", speech, 900),
            cargo("whisper-large", speech, 3_000),
            cargo("whisper-voice", "text-to-speech", 800),
        ];
        let chosen = |name: &str, usable: &[(&str, Nearness)]| {
            let near = |cargo: &Cargo| {
                usable.iter().find(|(slug, _)| *slug == cargo.entry.slug.as_str()).map(|(_, near)| *near)
            };
            let chosen = choose(all.iter(), size_of(name)?, near)?;
            Some(chosen.entry.slug.to_string())
        };
        let remote =
            ["moonshine", "whisper-base", "whisper-small", "whisper-large"].map(|slug| (slug, Remote));
        assert_eq!(chosen("whisper-1", &remote).as_deref(), Some("whisper-small"));
        assert_eq!(chosen("gpt-4o-mini-transcribe", &remote).as_deref(), Some("whisper-base"));
        assert_eq!(chosen("gpt-4o-transcribe", &remote).as_deref(), Some("whisper-large"));
        assert_eq!(chosen("gpt-4o-mini-transcribe-2025-12-15", &remote).as_deref(), Some("whisper-base"));
        let near = [
            ("moonshine", Warm),
            ("whisper-tiny-en", Warm),
            ("whisper-base", OnDisk),
            ("whisper-small", Remote),
        ];
        assert_eq!(chosen("whisper-1", &near).as_deref(), Some("whisper-base"));
        assert_eq!(chosen("whisper-1", &near[..2]).as_deref(), Some("moonshine"));
        assert_eq!(
            chosen("whisper-1", &[]).as_deref(),
            Some("whisper-small"),
            "with the reason why it cannot be served"
        );
        assert_eq!(chosen("whisper-base", &near), None, "no name of OpenAI's");
        assert_eq!(choose(all[5..].iter(), 0, |_| Some(Warm)).map(|cargo| cargo.number), None);
    }
}
