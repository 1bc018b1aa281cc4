//! `island-update`: looks for a release, and installs it when the Island runs no job.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use clap::{Parser, Subcommand};
use ed25519_dalek::SigningKey;
use island_daemon::{chain::Chain, config as settings, files::write_atomic, telemetry};
use island_update::{
    apply::{self, Applied},
    config::{Config, ENV_PREFIX},
    debian::Debian,
    fetch::{self, Web},
    judge::{self, Verdict},
    machine::Machine as _,
    manifest::{self, Manifest, PublicKey, Release},
    record::Record,
};
use semver::Version;
use serde::Serialize;
use time::OffsetDateTime;

#[derive(Debug, Parser)]
#[command(version, about = "Keeps an Island's package up to date from signed releases")]
struct Cli {
    /// Settings file.
    #[arg(long, default_value = "/etc/island/update.toml")]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Report whether a newer release exists.
    Check,
    /// Install a newer release once no job runs, and restore the former version if it does not start.
    Apply,
    /// For makers of releases: generate a key.
    Keygen {
        /// File for the secret key; the public key is printed.
        key: PathBuf,
    },
    /// For makers of releases: sign a release made of Debian packages.
    Sign(Sign),
}

#[derive(Debug, clap::Args)]
struct Sign {
    /// Secret key; several can be given, all of which sign.
    #[arg(long, required = true)]
    key: Vec<PathBuf>,
    /// File for the manifest.
    #[arg(long)]
    out: PathBuf,
    /// Version of the packages.
    #[arg(long)]
    version: Version,
    /// Oldest version that may still run.
    #[arg(long)]
    floor: Option<Version>,
    /// Number of the release: one more than the last.
    #[arg(long)]
    number: u64,
    /// Channel.
    #[arg(long, default_value = "stable")]
    channel: String,
    /// Days for which it may be the newest release.
    #[arg(long, default_value_t = 90)]
    days: i64,
    /// A package, such as `x86_64-deb=island-agent_0.2.0_amd64.deb`; it is expected beside the manifest.
    #[arg(long = "file", required = true, value_name = "TARGET=PATH")]
    files: Vec<String>,
}

#[derive(Serialize)]
struct NoFlags {}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Keygen { key } => keygen(&key),
        Command::Sign(options) => sign(&options),
        Command::Check => with_config(&cli.config, false),
        Command::Apply => with_config(&cli.config, true),
    };
    match done {
        Ok(line) => {
            let written = writeln!(io::stdout(), "{line}");
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("island-update: {error}");
            ExitCode::FAILURE
        }
    }
}

fn with_config(path: &Path, install: bool) -> Result<String, String> {
    let config = settings::load::<Config>(Some(path), ENV_PREFIX, &NoFlags {});
    let config =
        config.and_then(|config| config.validate().map(|()| config)).map_err(|error| error.to_string())?;
    telemetry::init(config.log, "info");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let updated = runtime.map_err(|error| error.to_string())?.block_on(update(&config, install));
    updated.map_err(|error| Chain(&*error).to_string())
}

type Failure = Box<dyn std::error::Error>;

/// The folder of the record cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("use the record in {0}")]
struct Unusable(PathBuf, #[source] io::Error);

async fn update(config: &Config, install: bool) -> Result<String, Failure> {
    let (folder, machine) = (&config.state_dir, Debian { agent_config: config.agent_config.clone() });
    let unusable = |error| Unusable(folder.clone(), error);
    fs::create_dir_all(folder).map_err(unusable)?;
    let Some(_lock) = Record::lock(folder).map_err(unusable)? else {
        return Err("another run of island-update has not ended".into());
    };
    let record = Record::read(folder).map_err(unusable)?;
    if install && record.pending.is_some() {
        // An earlier run was interrupted: its installation is completed first.
        return Ok(described(&apply::settle(&machine, folder, record, config.patience().start).await?));
    }
    let web = Web::new()?;
    let (from, bytes) = web.manifest(&config.manifest).await?;
    let (installed, now) = (machine.installed().await?, OffsetDateTime::now_utc().unix_timestamp());
    let (verdict, record) = judge::judge(&bytes, &config.trust(), &record, &installed, now)?;
    record.write(folder).map_err(unusable)?;
    let (version, file) = match verdict {
        Verdict::UpToDate => return Ok(format!("{installed} is the newest")),
        Verdict::Failed(version) => {
            return Ok(format!("{version} did not start here before: {installed} stays"));
        }
        Verdict::Install { version, file } => (version, file),
    };
    if !install {
        return Ok(format!("{version} may be installed over {installed}: island-update apply"));
    }
    let package = web.file(&from, &file, folder).await?;
    let applied = apply::apply(&machine, folder, record, version, &package, config.patience(), now).await?;
    if !matches!(applied, Applied::Busy(_) | Applied::Postponed(_)) {
        fs::remove_file(&package)?;
    }
    if let Applied::TakenBack(_) = applied {
        Err(described(&applied).into())
    } else {
        Ok(described(&applied))
    }
}

fn described(applied: &Applied) -> String {
    match applied {
        Applied::Done(version) => format!("{version} runs"),
        Applied::Busy(jobs) => format!("{jobs} jobs still run; the next run tries again"),
        Applied::Postponed(version) => format!("{version} was not installed; the next run tries again"),
        Applied::TakenBack(version) => format!("{version} did not start: the former version is restored"),
    }
}

fn keygen(path: &Path) -> Result<String, String> {
    if path.exists() {
        return Err(format!("{} exists, and a key is never replaced", path.display()));
    }
    let seed: [u8; 32] = rand::random();
    let key = SigningKey::from_bytes(&seed);
    write_atomic(path, BASE64.encode(seed).as_bytes(), 0o600)
        .map_err(|error| format!("write {}: {error}", path.display()))?;
    Ok(PublicKey::of(&key).to_string())
}

fn sign(options: &Sign) -> Result<String, String> {
    let keys = options.key.iter().map(|path| read_key(path)).collect::<Result<Vec<_>, _>>()?;
    let files = options.files.iter().map(|file| listed(file)).collect::<Result<BTreeMap<_, _>, _>>()?;
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let release = Release {
        product: "island-agent".to_owned(),
        channel: options.channel.clone(),
        number: options.number,
        version: options.version.clone(),
        floor: options.floor.clone().unwrap_or(Version::new(0, 0, 0)),
        issued_at: now,
        expires_at: now + options.days * 24 * 3600,
        files,
    };
    let manifest =
        serde_json::to_vec_pretty(&Manifest::sign(&release, &keys)).map_err(|error| error.to_string())?;
    write_atomic(&options.out, &manifest, 0o644)
        .map_err(|error| format!("write {}: {error}", options.out.display()))?;
    Ok(format!("release {} of {} signed by {} keys", options.number, options.version, keys.len()))
}

fn read_key(path: &Path) -> Result<SigningKey, String> {
    let failed = |why: String| format!("read the key {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let seed: Option<[u8; 32]> = BASE64.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
    seed.map(|seed| SigningKey::from_bytes(&seed)).ok_or_else(|| failed("it is not a key".to_owned()))
}

fn listed(file: &str) -> Result<(String, manifest::File), String> {
    let (target, path) = file.split_once('=').ok_or_else(|| format!("{file:?} must be TARGET=PATH"))?;
    let path = Path::new(path);
    let failed = |error: std::io::Error| format!("read {}: {error}", path.display());
    let size = fs::metadata(path).map_err(failed)?.len();
    let sha256 = fetch::hash(path).map_err(failed)?;
    let name = path.file_name().and_then(|name| name.to_str());
    let url = name.ok_or_else(|| format!("{file:?} has no name"))?.to_owned();
    Ok((target.to_owned(), manifest::File { url, size, sha256 }))
}
