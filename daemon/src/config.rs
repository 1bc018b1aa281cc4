//! Configuration: flags over environment over a TOML file over defaults.
//!
//! A program describes its settings as one `serde` struct with `#[serde(default, deny_unknown_fields)]` on each
//! section. [`load`] merges the layers; a wrong key or value names the file or variable it came from.

use std::path::{Path, PathBuf};

use figment::{
    Figment, Profile, Provider as _, Source,
    error::Kind,
    providers::{Env, Format, Serialized, Toml},
    value::{Dict, Value},
};
use serde::{Serialize, de::DeserializeOwned};

/// Exit code for a configuration that cannot be used (`EX_USAGE`).
pub const EXIT_BAD_CONFIG: u8 = 64;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The named file is not there.
    #[error("config file {0} does not exist")]
    Missing(PathBuf),
    /// A key is unknown or a value does not fit.
    #[error("bad configuration: {0}")]
    Bad(String),
    /// Values fit one by one, but not together.
    #[error("bad configuration: {0}")]
    Invalid(String),
}

/// Loads settings of type `T`.
///
/// `file` must exist when given. Environment variables are `<prefix><SECTION>__<KEY>`, such as
/// `ISLAND_AGENT_CACHE__MAX_GB`. `flags` holds what was given on the command line: a struct whose absent options are
/// skipped when serialized.
pub fn load<T: Serialize + DeserializeOwned + Default>(
    file: Option<&Path>,
    prefix: &str,
    flags: &impl Serialize,
) -> Result<T, ConfigError> {
    let mut layers = Figment::from(Serialized::defaults(T::default()));
    if let Some(file) = file {
        if !file.is_file() {
            return Err(ConfigError::Missing(file.to_owned()));
        }
        layers = layers.merge(Toml::file_exact(file));
    }
    extract(&layers.merge(environment(prefix)).merge(Serialized::defaults(flags)))
}

/// Loads settings of type `T` from the text of a file that is not written yet, and from the environment.
pub fn load_text<T: Serialize + DeserializeOwned + Default>(
    text: &str,
    prefix: &str,
) -> Result<T, ConfigError> {
    let layers = Figment::from(Serialized::defaults(T::default())).merge(Toml::string(text));
    extract(&layers.merge(environment(prefix)))
}

/// The variables that are settings. `<prefix>CONFIG_FILE` names the file of settings instead.
fn environment(prefix: &str) -> Env {
    Env::prefixed(prefix).ignore(&["config_file"]).split("__")
}

fn extract<T: DeserializeOwned>(layers: &Figment) -> Result<T, ConfigError> {
    let first = match layers.extract() {
        Ok(settings) => return Ok(settings),
        Err(error) => error,
    };
    let mut problems = problems::<T>(layers);
    if problems.is_empty() {
        // It concerns no key: a file is not TOML.
        problems = first.into_iter().map(|problem| located(&problem)).collect();
    }
    Err(ConfigError::Bad(problems.join("; ")))
}

/// Settings as TOML, for `config show`.
pub fn show<T: Serialize>(settings: &T) -> String {
    toml::to_string_pretty(settings).unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
}

/// Every problem with its key, and the file, variable or option that it came from. Reading ends at the first one, so the settings are
/// read again without the keys that are wrong.
fn problems<T: DeserializeOwned>(layers: &Figment) -> Vec<String> {
    let (mut found, mut removed) = (Vec::new(), Vec::<Vec<String>>::new());
    let values = layers.data().ok().and_then(|mut all| all.remove(&Profile::Default));
    let Some(mut left) = values else { return found };
    loop {
        let values = Value::from(left.clone());
        let Err(error) = T::deserialize(&values) else { return found };
        let mut is_smaller = false;
        for mut problem in error {
            problem.metadata = layers.find_metadata(&problem.path.join(".")).cloned();
            // A key that was wrong is not missing.
            let is_known = matches!(problem.kind, Kind::MissingField(_))
                && removed.iter().any(|path| path.starts_with(&problem.path));
            if !is_known {
                found.push(located(&problem));
            }
            is_smaller |= remove(&mut left, &problem.path);
            removed.push(problem.path);
        }
        if !is_smaller {
            return found;
        }
    }
}

/// Removes the value of a key, or the list that contains it. Returns whether there was one.
fn remove(values: &mut Dict, key: &[String]) -> bool {
    match key {
        [] => false,
        [name] => values.remove(name).is_some(),
        [name, inner @ ..] => match values.get_mut(name) {
            Some(Value::Dict(_, values)) => remove(values, inner),
            _ => values.remove(name).is_some(),
        },
    }
}

fn located(problem: &figment::Error) -> String {
    let key = problem.path.join(".");
    let Some(metadata) = &problem.metadata else { return format!("{key}: {}", problem.kind) };
    match &metadata.source {
        Some(Source::File(path)) => format!("{}: {key}: {}", path.display(), problem.kind),
        // The location in our code that figment reports for options means nothing to users.
        Some(Source::Code(_)) => format!("option for {key}: {}", problem.kind),
        _ => {
            let profile = problem.profile.clone().unwrap_or_default();
            format!("variable {}: {}", metadata.interpolate(&profile, &problem.path), problem.kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        listen: String,
        cache: Cache,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Cache {
        max_gb: u64,
    }

    impl Default for Cache {
        fn default() -> Self {
            Self { max_gb: 20 }
        }
    }

    #[derive(Serialize)]
    struct Flags {
        #[serde(skip_serializing_if = "Option::is_none")]
        listen: Option<&'static str>,
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).expect("write");
        (folder, path)
    }

    #[test]
    fn flags_win_over_the_file_and_defaults_fill_the_rest() {
        let (_folder, path) = file("listen = 'from file'");
        let flags = Flags { listen: Some("from flag") };
        let settings: Settings = load(Some(&path), "ISLAND_TEST_CONFIG_", &flags).expect("load");
        assert_eq!(settings, Settings { listen: "from flag".into(), cache: Cache { max_gb: 20 } });
        let settings: Settings =
            load(Some(&path), "ISLAND_TEST_CONFIG_", &Flags { listen: None }).expect("load");
        assert_eq!(settings.listen, "from file");
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it_and_the_file() {
        let (_folder, path) = file("[cache]\nmax_gigs = 3");
        let error =
            load::<Settings>(Some(&path), "ISLAND_TEST_CONFIG_", &Flags { listen: None }).expect_err("typo");
        let text = error.to_string();
        assert!(text.contains("config.toml: cache.max_gigs: unknown field"), "{text}");
    }

    #[test]
    fn every_problem_is_named_once_with_its_file() {
        #[derive(Debug, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct More {
            listen: String,
            cache: Cache,
            pair: Option<Pair>,
        }
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Pair {
            one: u64,
            two: u64,
        }
        let (_folder, path) = file("listn = 'a'\n[cache]\nmax_gb = 'x'\nmin = 1\n[pair]\none = 'y'\ntwo = 2");
        let error =
            load::<More>(Some(&path), "ISLAND_TEST_CONFIG_", &Flags { listen: None }).expect_err("typos");
        let text = error.to_string();
        for problem in
            ["listn: unknown", "cache.max_gb: invalid type", "cache.min: unknown", "pair.one: invalid type"]
        {
            assert_eq!(text.matches(&format!("config.toml: {problem}")).count(), 1, "{problem}: {text}");
        }
        assert_eq!(text.matches("config.toml").count(), 4, "a key that is wrong is not missing: {text}");

        let (_folder, path) = file("listen = ");
        let broken = load::<Settings>(Some(&path), "ISLAND_TEST_CONFIG_", &Flags { listen: None });
        assert!(matches!(broken, Err(ConfigError::Bad(_))), "it is not TOML");
    }

    #[test]
    fn an_invalid_option_is_an_error_without_a_location_in_the_code() {
        #[derive(Serialize)]
        struct Wrong {
            listen: u64,
        }
        let error =
            load::<Settings>(None, "ISLAND_TEST_CONFIG_", &Wrong { listen: 3 }).expect_err("a number");
        let text = error.to_string();
        assert!(text.contains("option for listen: invalid type") && !text.contains(".rs"), "{text}");
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let gone = load::<Settings>(Some(Path::new("/no/such.toml")), "X_", &Flags { listen: None });
        assert!(matches!(gone, Err(ConfigError::Missing(_))));
    }
}
