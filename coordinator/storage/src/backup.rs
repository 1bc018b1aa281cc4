//! Backups: a file of the embedded kind of database, whichever kind is backed up. It is a consistent picture of one
//! moment, taken while coordinators go on. A backup of one kind can be restored to the other.
//!
//! A restored database is older than the network. So every open job gets an epoch that none of its attempts had: what
//! Islands still run for it, or report later, is of an earlier epoch and has no effect. The coordinators of the backup
//! are forgotten, and the first one that starts takes their jobs over.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use futures::TryStreamExt as _;
use island_daemon::files::{create_private, give_to_owner_of_folder};
use sqlx::{AssertSqlSafe, Row as _, sqlite::SqliteConnectOptions};

use super::ledger::Audit;
use super::{
    Connection, Dialect, Pool, QueryContext as _, Row, StoreError, integer, ledger, migrations, open,
};
use island_coordinator_domain::config::{Database, DatabaseUrl};

/// Added to the epoch of every open job: more than any job is assigned in the time since a backup.
const EPOCHS: i64 = 1 << 32;
/// Rows of one statement.
const BATCH: usize = 100;
/// Tables that are not copied: those that describe a database itself, and what was alive.
const NOT_COPIED: [&str; 3] = ["_sqlx_migrations", "compatibility", "coordinators"];
/// Tables to which others refer; they are copied first.
const FIRST: [&str; 4] = ["accounts", "jobs", "files", "webhooks"];
/// Filled by a trigger on another table; copied last.
const LAST: &str = "uncounted_entries";

/// Why there is no backup, or no restored database.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target exists.
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// The database has no file.
    #[error("there is no database {0}")]
    Missing(PathBuf),
    /// The server's database is in use.
    #[error("the database has accounts already: restore to an empty one")]
    NotEmpty,
    /// It was migrated by another version.
    #[error(
        "the database has migration {found} and this program {known}: use the version of the coordinators"
    )]
    Version { found: i64, known: i64 },
    /// The books do not balance.
    #[error("the ledger is damaged: {0}")]
    Unbalanced(Audit),
    /// A file cannot be written.
    #[error("write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes a backup of the database to `file`, which must not exist. The file is complete and on disk when it has its
/// name.
pub async fn backup(settings: &Database, file: &Path) -> Result<(), BackupError> {
    let file = absent(file)?;
    let partial = partial(&file);
    remove(&partial)?;
    // Inputs and outputs of jobs are in it, and its folder may be open to others.
    create_private(&partial).map_err(|source| BackupError::Write { path: partial.clone(), source })?;
    let copied = match &settings.url {
        Some(url) => copy_from_server(url, &partial).await,
        None => copy_file(&settings.path, &partial).await,
    };
    if copied.is_err() {
        // The reason why there is no backup matters more than why its beginning remains.
        _ = remove(&partial);
    }
    copied?;
    finish(&partial, &file)
}

/// Creates the database from a backup. Its file must not exist, or the server's database must be empty.
pub async fn restore(settings: &Database, file: &Path) -> Result<(), BackupError> {
    let target = match &settings.url {
        None => Some(absent(&settings.path)?),
        Some(_) => None,
    };
    if !file.is_file() {
        return Err(BackupError::Missing(file.to_owned()));
    }
    // Migrated and changed in a copy, so that the backup remains as it is.
    let copy = partial(target.as_deref().unwrap_or(file));
    remove(&copy)?;
    fs::copy(file, &copy).map_err(|source| BackupError::Write { path: copy.clone(), source })?;
    let pool = file_pool(&copy, false).await?;
    let prepared = prepare(&pool).await;
    let loaded = match (&prepared, &settings.url) {
        (Ok(()), Some(url)) => load_server(&pool, url).await,
        _ => Ok(()),
    };
    pool.close().await;
    prepared?;
    loaded?;
    match target {
        Some(target) => finish(&copy, &target),
        None => remove(&copy),
    }
}

/// The absolute path, if nothing has it.
fn absent(path: &Path) -> Result<PathBuf, BackupError> {
    let path =
        std::path::absolute(path).map_err(|source| BackupError::Write { path: path.to_owned(), source })?;
    if path.exists() { Err(BackupError::Exists(path)) } else { Ok(path) }
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Removes the file of an interrupted try.
fn remove(path: &Path) -> Result<(), BackupError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(BackupError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Syncs the file, and gives it its name.
fn finish(partial: &Path, file: &Path) -> Result<(), BackupError> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let named = give_to_owner_of_folder(partial)
        .and_then(|()| fs::File::open(partial)?.sync_all())
        .and_then(|()| fs::rename(partial, file))
        .and_then(|()| fs::File::open(folder)?.sync_all());
    named.map_err(|source| BackupError::Write { path: file.to_owned(), source })
}

/// One connection to a file, with a journal that leaves no other files behind.
async fn file_pool(path: &Path, create: bool) -> Result<Pool, StoreError> {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(create);
    open::pool(
        &options,
        1,
        &["PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000; PRAGMA journal_mode = DELETE;"],
    )
    .await
}

/// SQLite copies what was committed when the statement began.
async fn copy_file(database: &Path, to: &Path) -> Result<(), BackupError> {
    if !database.is_file() {
        return Err(BackupError::Missing(database.to_owned()));
    }
    let options = SqliteConnectOptions::new().filename(database);
    let pool = open::pool(&options, 1, &["PRAGMA busy_timeout = 60000;"]).await?;
    let copied = sqlx::query("VACUUM INTO $1").bind(to.display().to_string()).execute(&pool).await;
    pool.close().await;
    copied.context("copy the database")?;
    Ok(())
}

async fn copy_from_server(url: &DatabaseUrl, to: &Path) -> Result<(), BackupError> {
    let (from, into) = (open::postgres_pool(url, 1, &[open::POSTGRES_PATIENT])?, file_pool(to, true).await?);
    let copied = async {
        let found =
            sqlx::query("SELECT MAX(version) AS version FROM _sqlx_migrations").fetch_one(&from).await;
        let found = integer(&found.context("read the version of the database")?, "version")?;
        let known = migrations::newest(Dialect::Postgres);
        if found != known {
            return Err(BackupError::Version { found, known });
        }
        migrations::run(Dialect::Sqlite, &into).await?;
        let mut reading = from.acquire().await.context("connect to the database")?;
        // All tables as they are at one moment.
        let begun = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        sqlx::query(begun).execute(&mut *reading).await.context("begin to read")?;
        let mut writing = into.begin().await.context("begin to write")?;
        copy_tables(&mut reading, &mut writing).await?;
        writing.commit().await.context("commit the copy")?;
        sqlx::query("ROLLBACK").execute(&mut *reading).await.context("end reading")?;
        Ok(())
    };
    let copied = copied.await;
    into.close().await;
    from.close().await;
    copied
}

/// Migrates a copy of a backup to this version, checks its books, and moves every open job on.
async fn prepare(pool: &Pool) -> Result<(), BackupError> {
    migrations::run(Dialect::Sqlite, pool).await?;
    let audit = ledger::audit(pool).await?;
    if audit != Audit::SOUND {
        return Err(BackupError::Unbalanced(audit));
    }
    let mut tx = pool.begin().await.context("begin to change the copy")?;
    // An attempt that was assigned may have executed since, so that it is not offered again as one that never was.
    sqlx::query(
        "UPDATE jobs SET epoch = epoch + $1, \
         status = CASE WHEN status = 'queued' AND host_id IS NOT NULL THEN 'running' ELSE status END \
         WHERE status IN ('submitted', 'pending', 'queued', 'running')",
    )
    .bind(EPOCHS)
    .execute(&mut *tx)
    .await
    .context("move the open jobs on")?;
    sqlx::query("DELETE FROM coordinators").execute(&mut *tx).await.context("forget the coordinators")?;
    tx.commit().await.context("commit the changes of the copy")?;
    Ok(())
}

async fn load_server(from: &Pool, url: &DatabaseUrl) -> Result<(), BackupError> {
    let into = open::postgres_pool(url, 1, &[open::POSTGRES_PATIENT])?;
    let loaded = async {
        migrations::run(Dialect::Postgres, &into).await?;
        let mut reading = from.acquire().await.context("read the backup")?;
        let mut writing = into.begin().await.context("begin to write")?;
        let accounts = sqlx::query("SELECT COUNT(*) AS n FROM accounts").fetch_one(&mut *writing).await;
        if integer(&accounts.context("count accounts")?, "n")? > 0 {
            return Err(BackupError::NotEmpty);
        }
        copy_tables(&mut reading, &mut writing).await?;
        writing.commit().await.context("commit the restored database")?;
        let audit = ledger::audit(&into).await?;
        if audit == Audit::SOUND { Ok(()) } else { Err(BackupError::Unbalanced(audit)) }
    };
    let loaded = loaded.await;
    into.close().await;
    loaded
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Real,
}

#[derive(Debug)]
struct Table {
    name: String,
    columns: Vec<(String, Kind)>,
}

/// The tables to copy, with those first to which others refer. Read from the embedded database of the two.
async fn tables(conn: &mut Connection) -> Result<Vec<Table>, StoreError> {
    let rows =
        sqlx::query("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
            .fetch_all(&mut *conn)
            .await
            .context("list the tables")?;
    let mut names: Vec<String> =
        rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>().context("read a column")?;
    names.retain(|name| !NOT_COPIED.contains(&name.as_str()));
    names.sort_by_key(|name| {
        let place = FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len());
        (name == LAST, place, name.clone())
    });
    let mut tables = Vec::with_capacity(names.len());
    for name in names {
        let statement = format!("SELECT name, type FROM pragma_table_info('{name}')");
        let rows =
            sqlx::query(AssertSqlSafe(statement)).fetch_all(&mut *conn).await.context("list the columns")?;
        let columns = rows.iter().map(column).collect::<Result<_, _>>()?;
        tables.push(Table { name, columns });
    }
    Ok(tables)
}

fn column(row: &Row) -> Result<(String, Kind), StoreError> {
    let name: String = row.try_get("name").context("read a column")?;
    let kind: String = row.try_get("type").context("read a column")?;
    let kind = match kind.as_str() {
        "TEXT" => Kind::Text,
        "BIGINT" => Kind::Integer,
        "DOUBLE PRECISION" => Kind::Real,
        _ => return Err(StoreError::Corrupt { what: "type of a column" }),
    };
    Ok((name, kind))
}

/// Copies all rows between an embedded database and a server's; the target has the tables.
async fn copy_tables(from: &mut Connection, to: &mut Connection) -> Result<(), StoreError> {
    let embedded = if Dialect::of(from) == Dialect::Sqlite { &mut *from } else { &mut *to };
    let tables = tables(embedded).await?;
    // What migrations wrote into an empty database is copied as well.
    for table in tables.iter().rev() {
        let statement = format!("DELETE FROM {}", table.name);
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *to).await.context("clear a table")?;
    }
    for table in &tables {
        if table.name == LAST {
            // A trigger wrote a row for each copied entry that was ever deferred.
            sqlx::query("DELETE FROM uncounted_entries").execute(&mut *to).await.context("clear a table")?;
        }
        copy_table(from, to, table).await?;
    }
    // Triggers counted the copied rows a second time.
    for statement in [
        "UPDATE accounts SET jobs = (SELECT COUNT(*) FROM jobs \
         WHERE jobs.account_id = accounts.id AND jobs.only_host IS NULL)",
        "UPDATE balances SET entries = (SELECT COUNT(*) FROM ledger_entries \
         WHERE ledger_entries.ledger = balances.ledger) \
         - (SELECT COUNT(*) FROM uncounted_entries WHERE uncounted_entries.ledger = balances.ledger)",
    ] {
        sqlx::query(statement).execute(&mut *to).await.context("count the copied rows")?;
    }
    Ok(())
}

async fn copy_table(from: &mut Connection, to: &mut Connection, table: &Table) -> Result<(), StoreError> {
    let names: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let statement = format!("SELECT {names} FROM {}", table.name);
    let mut rows = sqlx::query(AssertSqlSafe(statement)).fetch(from).try_chunks(BATCH);
    loop {
        let batch = rows.try_next().await.map_err(|error| error.1).context("read a table")?;
        let Some(batch) = batch else { return Ok(()) };
        insert(to, table, &names, &batch).await?;
    }
}

async fn insert(to: &mut Connection, table: &Table, names: &str, rows: &[Row]) -> Result<(), StoreError> {
    let width = table.columns.len();
    let places = |row: usize| {
        let places: Vec<String> = (1..=width).map(|column| format!("${}", row * width + column)).collect();
        format!("({})", places.join(", "))
    };
    let values: Vec<String> = (0..rows.len()).map(places).collect();
    let statement = format!("INSERT INTO {} ({names}) VALUES {}", table.name, values.join(", "));
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for row in rows {
        for (index, (_, kind)) in table.columns.iter().enumerate() {
            query = match kind {
                Kind::Text => query.bind(row.try_get::<Option<String>, _>(index).context("read a column")?),
                Kind::Integer => query.bind(row.try_get::<Option<i64>, _>(index).context("read a column")?),
                Kind::Real => query.bind(row.try_get::<Option<f64>, _>(index).context("read a column")?),
            };
        }
    }
    query.execute(to).await.context("write a table")?;
    Ok(())
}
