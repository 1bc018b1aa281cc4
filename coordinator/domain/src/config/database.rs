//! Location of the database. The password in an address is never shown.

use std::{fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sqlx::any::AnyConnectOptions;

/// Replaces a password.
const HIDDEN: &str = "***";

/// SQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// File of the embedded database, created if absent.
    pub path: PathBuf,
    /// PostgreSQL instead of the file, for several coordinators: `postgres://user@host/name`. The password may also come
    /// from `PGPASSWORD` or `~/.pgpass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<DatabaseUrl>,
    /// Maximum connections to PostgreSQL.
    pub connections: u32,
}

impl Default for Database {
    fn default() -> Self {
        Self { path: "island.db".into(), url: None, connections: 10 }
    }
}

/// The address of a PostgreSQL database. Its password is hidden in logs and by `config show`.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

/// Not an address of a PostgreSQL database. The text is left out of the message because it may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a database URL looks like postgres://user@host/name")]
pub struct NotADatabaseUrl;

impl DatabaseUrl {
    /// The address with its password.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl FromStr for DatabaseUrl {
    type Err = NotADatabaseUrl;

    fn from_str(text: &str) -> Result<Self, NotADatabaseUrl> {
        let options: AnyConnectOptions = text.parse().map_err(|_| NotADatabaseUrl)?;
        let known = matches!(options.database_url.scheme(), "postgres" | "postgresql");
        if known { Ok(Self(text.to_owned())) } else { Err(NotADatabaseUrl) }
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(options) = self.0.parse::<AnyConnectOptions>() else { return f.write_str(HIDDEN) };
        let mut url = options.database_url;
        if url.password().is_some() && url.set_password(Some(HIDDEN)).is_err() {
            return f.write_str(HIDDEN);
        }
        let pairs: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| {
                let value = if name == "password" { HIDDEN.to_owned() } else { value.into_owned() };
                (name.into_owned(), value)
            })
            .collect();
        if !pairs.is_empty() {
            url.query_pairs_mut().clear().extend_pairs(pairs);
        }
        f.write_str(url.as_str())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for DatabaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DatabaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://me:s3cret@host:5432/island",
            "postgres://me@host/island?password=s3cret&sslmode=require",
        ] {
            let parsed: DatabaseUrl = url.parse().expect("a URL");
            let settings = Database { url: Some(parsed.clone()), ..Database::default() };
            for shown in [parsed.to_string(), format!("{settings:?}"), island_daemon::config::show(&settings)]
            {
                assert!(shown.contains("host") && !shown.contains("s3cret"), "{shown}");
            }
            assert_eq!(parsed.secret(), url);
        }
    }

    #[test]
    fn an_invalid_address_is_refused_without_being_repeated() {
        for text in ["mysql://me:s3cret@host/island", "s3cret", "sqlite://island.db"] {
            let error =
                toml::from_str::<Database>(&format!("url = {text:?}")).expect_err("not a PostgreSQL address");
            assert!(error.message().contains("postgres://"), "{error}");
            assert!(!error.message().contains("s3cret"), "{error}");
        }
    }
}
