use std::{fmt::Write as _, path::PathBuf};

use island_protocol::{
    cargo::Published,
    ids::{AccountId, PublicationId},
    time::Timestamp,
};
use uuid::Uuid;

use super::*;
use crate::placement::Nearness;

/// A small valid Cargo file.
pub(crate) fn cargo_toml(slug: &str, ram_mb: u64, extra: &str) -> String {
    format!(
        "slug = \"{slug}\"\nname = \"{slug}\"\ndescription = \"for tests\"\ncategory = \"llm\"\n\
         runtime_type = \"llmcpp\"\nprice_per_job = 0.5\nrequired_vram_mb = 0\nrequired_ram_mb = {ram_mb}\n{extra}\n\
         [input_schema]\ntype = \"object\"\nrequired = [\"prompt\"]\nadditionalProperties = false\n\
         [input_schema.properties.prompt]\ntype = \"string\"\n\
         [output_schema]\ntype = \"string\"\n\
         [example]\ninput = {{ prompt = \"hello\" }}\n"
    )
}

fn folder(files: &[(&str, String)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    for (name, text) in files {
        fs::create_dir_all(folder.path().join(name).parent().expect("parent")).expect("make folder");
        fs::write(folder.path().join(name), text).expect("write");
    }
    let path = folder.path().to_owned();
    (folder, path)
}

fn faults(files: &[(&str, String)]) -> Vec<String> {
    let (_folder, path) = folder(files);
    match Catalogue::load(&path, false) {
        Err(CatalogueError::Faulty(faults)) => {
            let strip = |fault: &Fault| fault.to_string().replace(&format!("{}/", path.display()), "");
            faults.iter().map(strip).collect()
        }
        other => panic!("expected faults, got {other:?}"),
    }
}

#[test]
fn loads_and_resolves_local_files() {
    let model = "model_url = \"file://m.gguf\"\naliases = [\"small\"]";
    let files = [("a.toml", cargo_toml("a", 100, model)), ("fixtures/sim.toml", cargo_toml("sim", 1, ""))];
    let (_folder, path) = folder(&files);
    fs::write(path.join("m.gguf"), b"x").expect("write");
    let catalogue = Catalogue::load(&path, false).expect("valid");
    let cargo = catalogue.named("small").expect("alias");
    assert_eq!(
        cargo.spec.artifacts[0].url,
        format!("file://{}", path.canonicalize().expect("path").join("m.gguf").display())
    );
    assert!(catalogue.get("sim").is_none());
    assert!(Catalogue::load(&path, true).expect("valid").get("sim").is_some());
}

#[test]
fn unbuilt_cargos_are_left_out_and_built_files_get_their_hash() {
    let model = |name: &str| format!("model_url = \"file://built/{name}.wasm\"");
    let files = [
        ("Cargo.toml", "[workspace]".to_owned()),
        ("wasm/Cargo.toml", "[package]".to_owned()),
        ("wasm/a.toml", cargo_toml("a", 1, &model("a"))),
        ("wasm/b.toml", cargo_toml("b", 1, &model("b"))),
        ("built/a.wasm", "hello".to_owned()),
    ];
    let (_folder, path) = folder(&files);
    let catalogue = Catalogue::load(&path, false).expect("valid");
    assert!(catalogue.get("b").is_none());
    let artifact = &catalogue.get("a").expect("built").spec.artifacts[0];
    assert_eq!(artifact.size_bytes, Some(5));
    let hello = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(artifact.sha256, Some(hello.parse().expect("digest")));
    // The hash that the build wrote beside the file saves reading it; one of an older file is ignored.
    let (file, note) = (path.join("built/a.wasm"), path.join("built/a.wasm.sha256"));
    let other = "ab".repeat(32);
    fs::write(&note, format!("{other}\n")).expect("note");
    let read =
        || Catalogue::load(&path, false).expect("valid").get("a").expect("built").spec.artifacts[0].sha256;
    assert_eq!(read(), Some(format!("sha256:{other}").parse().expect("digest")));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().append(true).open(file).and_then(|file| file.set_modified(later)).expect("date");
    assert_eq!(read(), Some(hello.parse().expect("digest")));
}

#[test]
fn a_file_is_hashed_once() {
    let (_folder, path) = folder(&[("built/image.tar", "hello".to_owned())]);
    let image = path.join("built/image.tar");
    let mut hashes = artifacts::Hashes::default();
    let mut read = |slug: &str| {
        let text = cargo_toml(slug, 1, "model_url = \"file://built/image.tar\"");
        let parsed = file::parse(&path.join("a.toml"), &path, &text, Origin::Operator, &mut hashes);
        let (cargo, _) = parsed.expect("valid").expect("built");
        cargo.spec.artifacts[0].sha256.expect("a hash")
    };
    let first = read("a");
    let modified = |time| {
        let file = fs::File::options().append(true).open(&image).expect("open");
        file.set_modified(time).expect("set its time");
    };
    // Another content of the same length and time would show in the hash if it were read.
    let written = fs::metadata(&image).and_then(|about| about.modified()).expect("a time");
    fs::write(&image, "jello").expect("write");
    modified(written);
    assert_eq!(read("b"), first);
    modified(written + std::time::Duration::from_secs(1));
    assert_ne!(read("c"), first, "a file that was changed is read again");
}

#[test]
fn every_problem_is_reported_with_file_and_line() {
    let unknown = cargo_toml("a", 1, "tint = \"red\"");
    assert_eq!(faults(&[("a.toml", unknown)]).len(), 1);
    let typo = faults(&[("a.toml", cargo_toml("a", 1, "tint = \"red\""))]);
    assert!(typo[0].starts_with("a.toml:9: unknown field `tint`"), "{typo:?}");

    let wrong = cargo_toml("A b", 1, "onnx_task_type = \"x\"\nmodel_url = \"ftp://x\"\nmodel_hash = \"12\"")
        .replace("prompt = \"hello\"", "text = 1");
    let found = faults(&[("b.toml", wrong)]);
    let lines: Vec<&str> = found.iter().map(|fault| fault.split(": ").next().expect("place")).collect();
    assert_eq!(lines, ["b.toml:1", "b.toml:9", "b.toml:10", "b.toml:11", "b.toml:20"], "{found:#?}");
}

#[test]
fn a_container_declares_hosts_and_ports_and_only_in_the_highest_tier() {
    let engine = |tier: &str, egress: &str| {
        let extra = format!("{tier}\n[engine]\ncommand = [\"/x\"]\negress = {egress}");
        cargo_toml("a", 1, &extra).replace("runtime_type = \"llmcpp\"", "runtime_type = \"container\"")
    };
    let elevated = "sandbox_tier = \"elevated\"";
    let (_folder, path) = folder(&[("a.toml", engine(elevated, "[\"a.org:443\", \"b.org:80\"]"))]);
    let catalogue = Catalogue::load(&path, false).expect("valid");
    assert_eq!(catalogue.get("a").expect("there").spec.egress().expect("places").len(), 2);
    for (tier, egress, why) in [
        (elevated, "[\"a.org\"]", "not a valid host:port"),
        (elevated, "[\"127.0.0.1:80\"]", "not a valid host name"),
        (elevated, "[\"localhost:80\"]", "not a valid host name"),
        (elevated, "[1]", "not a valid host:port"),
        ("sandbox_tier = \"standard\"", "[\"a.org:443\"]", "needs sandbox_tier"),
        ("", "[\"a.org:443\"]", "needs sandbox_tier"),
    ] {
        let found = faults(&[("a.toml", engine(tier, egress))]);
        assert!(found.len() == 1 && found[0].starts_with("a.toml:1") && found[0].contains(why), "{found:?}");
    }
}

#[test]
fn graphs_that_run_on_the_processor_request_no_gpu() {
    let entry = |files: &str, vram: &str| {
        let extra = format!(
            "onnx_task_type = \"x\"\n[repository]\nurl = \"hf://a/b\"\nfiles = [\"config.json\", {files}]"
        );
        let entry = cargo_toml("a", 1, &extra).replace("\"llmcpp\"", "\"onnx\"");
        entry.replace("required_vram_mb = 0", &format!("required_vram_mb = {vram}"))
    };
    let integers = "\"onnx/encoder_model_quantized.onnx\", \"onnx/decoder_model_int8.onnx\"";
    let found = faults(&[("a.toml", entry(integers, "100"))]);
    assert!(found.len() == 1 && found[0].starts_with("a.toml:7: required_vram_mb must be 0"), "{found:?}");
    let half = "\"onnx/model_quantized.onnx\", \"onnx/model_fp16.onnx\"";
    for valid in [entry(integers, "0"), entry(half, "100")] {
        let (_folder, path) = folder(&[("a.toml", valid)]);
        assert!(Catalogue::load(&path, false).expect("valid").get("a").is_some());
    }
}

#[test]
fn slugs_and_aliases_are_unique() {
    let files = [
        ("a.toml", cargo_toml("a", 1, "aliases = [\"x\"]")),
        ("b.toml", cargo_toml("b", 1, "aliases = [\"x\"]")),
        ("c.toml", cargo_toml("a", 1, "")),
    ];
    let found = faults(&files);
    assert!(found[0].starts_with("b.toml:9") && found[1].starts_with("c.toml:1"), "{found:?}");
}

#[test]
fn input_errors_name_the_field() {
    let (_folder, path) = folder(&[("a.toml", cargo_toml("a", 1, ""))]);
    let catalogue = Catalogue::load(&path, false).expect("valid");
    let cargo = catalogue.get("a").expect("there");
    let field = |input| cargo.check_input(&input).expect_err("violation").field;
    assert_eq!(field(serde_json::json!({})), "prompt");
    assert_eq!(field(serde_json::json!({"prompt": 1})), "prompt");
    assert_eq!(field(serde_json::json!({"prompt": "", "more": 1})), "more");
}

fn models() -> (tempfile::TempDir, Catalogue) {
    let files: Vec<(&str, String)> = vec![
        ("1.toml", cargo_toml("llm-chat", 50, "")),
        ("2.toml", cargo_toml("half-b", 700, "aliases = [\"half\"]")),
        ("3.toml", cargo_toml("three-b", 3_200, "")),
        ("4.toml", cargo_toml("seven-b", 6_100, "")),
        ("5.toml", cargo_toml("nine-b", 8_200, "")),
        ("6.toml", cargo_toml("large", 20_000, "")),
        (
            "7.toml",
            cargo_toml("sim", 1, "")
                .replace("[input_schema]\n", "[engine]\nsimulated = true\n[input_schema]\n"),
        ),
    ];
    let (folder, path) = folder(&files);
    let catalogue = Catalogue::load(&path, false).expect("valid");
    (folder, catalogue)
}

fn choice(catalogue: &Catalogue, model: &str, usable: &[(&str, Nearness)]) -> String {
    let usable = usable.iter().map(|(slug, near)| (slug.parse().expect("slug"), *near)).collect();
    choice::choose(catalogue, model, &usable).expect("some model").entry.slug.to_string()
}

/// The catalogue of [`models`], and a published model of this slug and size.
fn with_published(slug: &str, ram_mb: u64) -> Catalogue {
    let (folder, catalogue) = models();
    let mut cargo = manifest::read(folder.path(), &cargo_toml(slug, ram_mb, "")).expect("a valid manifest");
    let (publisher, publication) = (AccountId(Uuid::nil()), PublicationId(Uuid::nil()));
    let approved_at = Timestamp::from_unix_ms(0);
    cargo.entry.published = Some(Published { publisher, publication, approved_at });
    catalogue.with([Arc::new(cargo)].into_iter())
}

#[test]
fn a_published_model_serves_only_those_who_name_it() {
    let catalogue = with_published("exactly-six-b", 6_000);
    let all = [("exactly-six-b", Nearness::Warm), ("seven-b", Nearness::Remote)];
    assert_eq!(choice(&catalogue, "exactly-six-b", &all), "exactly-six-b");
    assert_eq!(choice(&catalogue, "gpt-4", &all), "seven-b");
    assert_eq!(choice(&catalogue, "whatever", &all), "seven-b");
}

#[test]
fn a_published_cargo_takes_no_name_of_the_operators() {
    for taken in ["half-b", "half"] {
        let catalogue = with_published(taken, 1);
        assert_eq!(catalogue.named(taken).expect("there").spec.required_ram_mb, 700);
        assert_eq!(catalogue.iter().count(), models().1.iter().count());
    }
}

#[test]
fn a_manifest_names_nothing_of_this_machine() {
    let (_folder, path) = folder(&[("secret.bin", "hello".to_owned())]);
    let secret = path.join("secret.bin");
    for file in [
        "model_url = \"file://secret.bin\"".to_owned(),
        format!("model_url = \"file://{}\"", secret.display()),
    ] {
        let found = manifest::read(&path, &cargo_toml("a", 1, &file)).expect_err("faults");
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(shown.iter().all(|fault| fault.starts_with("manifest:9: ")), "{shown:?}");
        assert!(shown.iter().any(|fault| fault.contains("needs its hash")), "it is not measured: {shown:?}");
    }
    let repository = format!("[repository]\nurl = \"file://{}\"\nfiles = [\"secret.bin\"]", path.display());
    let found = manifest::read(&path, &cargo_toml("a", 1, &repository)).expect_err("faults");
    assert!(found.iter().any(|fault| fault.message.contains("needs its hash")), "{found:?}");
    let outside = format!(
        "[[artifacts]]\nname = \"../a\"\nurl = \"https://example.org/a\"\nsha256 = \"{}\"\nsize_bytes = 1",
        "0".repeat(64)
    );
    let found = manifest::read(&path, &cargo_toml("a", 1, &outside)).expect_err("faults");
    assert!(found[0].message.contains("not a path inside"), "{found:?}");
}

/// Schemas that refer to each other twice take a time that doubles with each.
#[test]
fn a_schema_that_refers_to_others_is_refused_before_it_is_used() {
    let mut definitions = String::new();
    for number in 0..60 {
        let next = format!("{{ \"$ref\" = \"#/$defs/d{}\" }}", number + 1);
        let _ = writeln!(definitions, "d{number} = {{ allOf = [{next}, {next}] }}");
    }
    let text = cargo_toml("a", 1, "").replace("[input_schema.properties.prompt]\ntype = \"string\"\n", "");
    let text = text.replace(
        "[output_schema]",
        &format!("[input_schema.properties]\nprompt = {{ \"$ref\" = \"#/$defs/d0\" }}\n[input_schema.\"$defs\"]\n{definitions}d60 = {{}}\n[output_schema]"),
    );
    let found = manifest::read(Path::new("/nonexistent"), &text).expect_err("faults");
    assert!(found.iter().any(|fault| fault.message.contains("input_schema has $ref")), "{found:?}");
}

#[test]
fn well_known_names_mean_models_by_size() {
    let (_folder, catalogue) = models();
    let all: Vec<(&str, Nearness)> = ["llm-chat", "half-b", "three-b", "seven-b", "nine-b", "large"]
        .map(|slug| (slug, Nearness::OnDisk))
        .into();
    let chosen: Vec<String> =
        ["gpt-3.5-turbo", "gpt-4o-mini", "gpt-4", "gpt-4-turbo", "gpt-4o", "half", "sim"]
            .iter()
            .map(|name| choice(&catalogue, name, &all))
            .collect();
    assert_eq!(chosen, ["half-b", "three-b", "seven-b", "nine-b", "large", "half-b", "sim"]);
    // Later names of the same makers mean a size as well, without an alias for each.
    for (name, slug) in [
        ("gpt-5", "large"),
        ("gpt-5.1-2025-11-13", "large"),
        ("claude-sonnet-4-5-20250929", "large"),
        ("claude-opus-4-5", "large"),
        ("gemini-2.5-pro", "large"),
        ("o3", "large"),
        ("claude-3-5-haiku-latest", "seven-b"),
        ("gemini-2.5-flash", "seven-b"),
        ("o1-mini", "seven-b"),
        ("gemini-2.5-flash-lite", "half-b"),
        ("gpt-6-nano", "half-b"),
        ("gpt-3.5-turbo-16k", "half-b"),
        ("minimal", "half-b"),
    ] {
        assert_eq!(choice(&catalogue, name, &all), slug, "{name}");
    }
}

#[test]
fn a_name_meant_for_a_certain_model_means_no_other() {
    let (folder, _) = models();
    fs::write(folder.path().join("8.toml"), cargo_toml("qwen3-8b", 6_000, "aliases = [\"qwen3\"]"))
        .expect("file");
    let painter = cargo_toml("painter", 1, "").replace("category = \"llm\"", "category = \"image\"");
    fs::write(folder.path().join("9.toml"), painter).expect("file");
    let catalogue = Catalogue::load(folder.path(), false).expect("valid");
    let near = |name: &str| choice::mistaken(&catalogue, name);
    for name in [
        "qwen3-8b:floor",
        "qwen/qwen3-8b",
        "Qwen3-8B",
        "hf.co/Qwen/Qwen3-8B-GGUF:Q4_K_M",
        "qwen3-8",
        "qwen3-4b",
    ] {
        assert_eq!(near(name).and_then(|names| names.first().copied()), Some("qwen3-8b"), "{name}");
    }
    assert_eq!(near("qwen3:4b"), Some(vec!["qwen3"]));
    assert_eq!(near("seven-c"), Some(vec!["seven-b"]));
    assert_eq!(near("hf.co/someone/Else-GGUF"), Some(vec![]), "a certain file");
    assert_eq!(near("painter"), Some(vec![]), "it writes no texts");
    for free in [
        "",
        "auto",
        "whatever",
        "my-model",
        "mistralai/mistral-large",
        "openai/gpt-4o",
        "gpt-4o",
        "claude-sonnet-4-5",
        "o3",
    ] {
        assert_eq!(near(free), None, "{free}");
    }
}

#[test]
fn a_model_is_named_by_slug_alias_and_dated_alias() {
    let (folder, _) = models();
    let text = cargo_toml("tuned", 6_000, "aliases = [\"gpt-4o\"]");
    fs::write(folder.path().join("8.toml"), text).expect("file");
    let catalogue = Catalogue::load(folder.path(), false).expect("valid");
    let tuned = catalogue.get("tuned").expect("there");
    let is_named = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| String::from(*name)).collect();
        choice::is_named(&catalogue, &names, tuned)
    };
    assert!(is_named(&["tuned"]) && is_named(&["gpt-4o"]) && is_named(&["gpt-4o-2024-08-06"]));
    assert!(is_named(&["other", "tuned"]));
    assert!(!is_named(&["gpt-4"]) && !is_named(&["half"]) && !is_named(&[]));
}

#[test]
fn the_nearest_size_replaces_a_well_known_model_that_no_island_can_serve() {
    let (_folder, catalogue) = models();
    let on_disk = ["half-b", "three-b", "seven-b"].map(|slug| (slug, Nearness::OnDisk));
    for (name, slug) in [("claude-sonnet-4-5", "seven-b"), ("gpt-4o", "seven-b"), ("whatever", "half-b")] {
        assert_eq!(choice(&catalogue, name, &on_disk), slug, "{name}");
    }
    let warm = [("half-b", Nearness::Warm), ("seven-b", Nearness::OnDisk)];
    assert_eq!(choice(&catalogue, "claude-sonnet-4-5", &warm), "half-b", "what is loaded comes first");
}

#[test]
fn names_of_others_for_speech_and_images_may_have_a_date() {
    for name in ["tts-1", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15"] {
        assert!(choice::is_voice_model(name) && choice::is_reserved(name), "{name}");
    }
    for name in ["dall-e-3", "gpt-image-1.5", "gpt-image-1.5-2025-12-16", "auto"] {
        assert!(choice::is_image_model(name) && choice::is_reserved(name), "{name}");
    }
    for name in ["tts-1-2025", "supertonic-3", "dall-e-3-mine", "sdxl-base"] {
        assert!(!choice::is_voice_model(name) && !choice::is_image_model(name), "{name}");
    }
}

#[test]
fn the_alias_of_a_well_known_model_is_used_where_it_can_be_served() {
    let (folder, _) = models();
    let text = cargo_toml("newest", 20_000, "aliases = [\"gpt-4o\", \"claude-sonnet-4\", \"mine\"]");
    fs::write(folder.path().join("newest.toml"), text).expect("a file");
    let catalogue = Catalogue::load(folder.path(), false).expect("valid");
    let with = [("newest", Nearness::Remote), ("half-b", Nearness::Warm)];
    for name in ["gpt-4o", "gpt-4o-2024-08-06", "claude-sonnet-4-20250514", "claude-sonnet-4-latest", "mine"]
    {
        assert_eq!(choice(&catalogue, name, &with), "newest", "{name}");
    }
    let without = [("half-b", Nearness::Warm)];
    assert_eq!(choice(&catalogue, "gpt-4o-2024-08-06", &without), "half-b");
    assert_eq!(choice(&catalogue, "claude-sonnet-4", &without), "half-b");
    assert_eq!(choice(&catalogue, "mine", &without), "newest", "no other model replaces a named one");
    assert_eq!(choice(&catalogue, "mine-2024-08-06", &with), "half-b", "only names of others have dates");
}

#[test]
fn the_best_usable_model_replaces_an_unknown_name() {
    let (_folder, catalogue) = models();
    let near = |near| [("llm-chat", Nearness::Warm), ("seven-b", near), ("half-b", Nearness::Remote)];
    assert_eq!(choice(&catalogue, "whatever", &near(Nearness::Warm)), "seven-b");
    assert_eq!(choice(&catalogue, "whatever", &near(Nearness::Remote)), "half-b");
    assert_eq!(choice(&catalogue, "gpt-4o", &near(Nearness::Remote)), "seven-b");
    assert_eq!(
        choice(&catalogue, "large", &near(Nearness::Warm)),
        "large",
        "no other model replaces a named one"
    );
    assert_eq!(choice(&catalogue, "whatever", &[("llm-chat", Nearness::Warm)]), "llm-chat");
    assert_eq!(choice(&catalogue, "whatever", &[]), "llm-chat");
    assert_eq!(choice(&catalogue, "large", &[]), "large");
    assert_eq!(choice(&catalogue, "sim", &[("sim", Nearness::OnDisk)]), "sim");
}

#[test]
fn models_that_embed_or_rank_serve_no_chat() {
    let of_task = |task: &str| format!("[engine]\ntask = \"{task}\"\n");
    let entry =
        |slug: &str, task: &str| cargo_toml(slug, 1, "").replace("\"llm\"", "\"text\"") + &of_task(task);
    let files = [
        ("reads.toml", entry("reads", "feature-extraction")),
        ("ranks.toml", entry("ranks", "text-ranking")),
        ("writes.toml", entry("writes", "text-generation")),
    ];
    let (_folder, path) = folder(&files);
    let catalogue = Catalogue::load(&path, false).expect("valid");
    let of = |slug: &str| catalogue.get(slug).expect("a Cargo");
    assert!(of("reads").reads_texts("feature-extraction") && !of("reads").is_chat());
    assert!(of("ranks").reads_texts("text-ranking") && !of("ranks").is_chat());
    assert!(of("writes").is_chat() && !of("writes").reads_texts("feature-extraction"));
}
