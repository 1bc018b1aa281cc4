//! Sorts versions and picks those that satisfy a requirement.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    versions: Vec<String>,
    requirement: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    /// From the lowest to the highest.
    sorted: Vec<Parts>,
    invalid: Vec<Invalid>,
    /// Versions that satisfy the requirement; all without one.
    matching: Vec<String>,
    highest: Option<String>,
    highest_matching: Option<String>,
}

#[derive(Serialize)]
struct Parts {
    version: String,
    major: u64,
    minor: u64,
    patch: u64,
    prerelease: String,
    build: String,
}

#[derive(Serialize)]
struct Invalid {
    version: String,
    reason: String,
}

fn sort(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let wanted = input.requirement.as_deref().map(VersionReq::parse).transpose().or_invalid("requirement")?;
    let mut versions = Vec::new();
    let mut invalid = Vec::new();
    for text in input.versions {
        match Version::parse(text.strip_prefix('v').unwrap_or(&text)) {
            Ok(version) => versions.push(version),
            Err(error) => invalid.push(Invalid { version: text, reason: error.to_string() }),
        }
    }
    versions.sort();
    let fits = |version: &&Version| wanted.as_ref().is_none_or(|wanted| wanted.matches(version));
    let matching: Vec<String> = versions.iter().filter(fits).map(ToString::to_string).collect();
    Ok(Answer {
        highest: versions.last().map(ToString::to_string),
        highest_matching: matching.last().cloned(),
        matching,
        sorted: versions.into_iter().map(parts).collect(),
        invalid,
    })
}

fn parts(version: Version) -> Parts {
    Parts {
        version: version.to_string(),
        major: version.major,
        minor: version.minor,
        patch: version.patch,
        prerelease: version.pre.to_string(),
        build: version.build.to_string(),
    }
}

fn main() -> ExitCode {
    run(sort)
}
