//! A pool of connections that measures how long statements wait for one and how long they take.

use fail::fail_point;
use futures::{
    FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream, stream::BoxStream,
};
use sqlx::{
    Any, AnyPool, Either, Error, Execute, Executor, SqlStr, Transaction,
    any::{AnyQueryResult, AnyRow, AnyStatement, AnyTypeInfo},
    pool::PoolConnection,
};
use tokio::time::Instant;

use super::open::{BEATING, COUNTING, READING};
use island_coordinator_domain::metrics::{PoolUse, Storage};

/// Connections to the database. Clones share them.
#[derive(Debug, Clone)]
pub struct Pool {
    connections: AnyPool,
    /// What the pool is for, if it is measured, or fails in tests.
    name: Option<&'static str>,
    measured: Option<PoolUse>,
}

impl Pool {
    /// A pool that measures nothing.
    pub(super) fn new(connections: AnyPool) -> Self {
        Self { connections, name: None, measured: None }
    }

    /// Names the pool without measuring it.
    pub(super) fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Measures the use of the pool under this name.
    pub(super) fn measured(self, metrics: &Storage, name: &'static str) -> Self {
        Self { name: Some(name), measured: Some(metrics.pool(name)), ..self }
    }

    /// The pool itself.
    pub(super) fn connections(&self) -> &AnyPool {
        &self.connections
    }

    /// Waits for a connection.
    pub async fn acquire(&self) -> Result<PoolConnection<Any>, Error> {
        // Logged here, because not every caller logs what it repeats.
        if self.name == Some(READING) {
            fail_point!("store.read", |_| {
                tracing::warn!("a read fails: a failure that a test injected");
                Err(Error::PoolClosed)
            });
        }
        if self.name == Some(COUNTING) {
            fail_point!("store.count", |_| {
                tracing::warn!("a counter fails: a failure that a test injected");
                Err(Error::PoolClosed)
            });
        }
        if self.name == Some(BEATING) {
            fail_point!("store.heartbeat", |_| {
                tracing::warn!("a heartbeat fails: a failure that a test injected");
                Err(Error::PoolClosed)
            });
        }
        let requested = Instant::now();
        let acquired = self.connections.acquire().await;
        if let Some(measured) = &self.measured {
            measured.acquired(requested);
        }
        acquired
    }

    /// Waits for a connection and begins a transaction.
    pub(super) async fn begin(&self) -> Result<Transaction<'static, Any>, Error> {
        self.connections.begin().await
    }

    /// Connections, and those among them that are idle.
    pub(super) fn size(&self) -> (u32, usize) {
        (self.connections.size(), self.connections.num_idle())
    }

    /// Closes every connection.
    pub(super) async fn close(&self) {
        self.connections.close().await;
    }

    /// Measures a statement.
    async fn measure<T>(&self, statement: impl Future<Output = T>) -> T {
        let begin = Instant::now();
        let result = statement.await;
        if let Some(measured) = &self.measured {
            measured.executed(begin);
        }
        result
    }
}

impl<'p> Executor<'p> for &'p Pool {
    type Database = Any;

    // The rows are read before the first one is returned: callers collect them anyway.
    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<AnyQueryResult, AnyRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Any>,
    {
        let rows = async move {
            let mut conn = self.acquire().await?;
            self.measure(conn.fetch_many(query).try_collect::<Vec<_>>()).await
        };
        stream::once(rows).map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<AnyRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Any>,
    {
        let row = async move {
            let mut conn = self.acquire().await?;
            self.measure(conn.fetch_optional(query)).await
        };
        row.boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [AnyTypeInfo],
    ) -> BoxFuture<'e, Result<AnyStatement, Error>>
    where
        'p: 'e,
    {
        async move { self.acquire().await?.prepare_with(sql, parameters).await }.boxed()
    }
}
