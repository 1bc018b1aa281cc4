//! Ends of jobs and the account that earns from all of them.

use sqlx::{AssertSqlSafe, Executor as _};

use crate::support::{
    island::{Island, completed, token},
    network::Network,
    soon,
};

/// Completes one job of the consumer on this Island.
async fn complete(network: &Network, island: &mut Island) -> String {
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(soon("the end", island.end(run.key, run.first_event + 1, completed(1, 1))).await.committed);
    id
}

async fn uncounted(pool: &sqlx::AnyPool) -> i64 {
    let statement =
        "SELECT (SELECT COUNT(*) FROM uncounted_entries) + (SELECT COUNT(*) FROM uncounted_karma)";
    sqlx::query_scalar(statement).fetch_one(pool).await.expect("count")
}

#[tokio::test]
async fn a_job_ends_while_its_earner_and_its_island_are_locked() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let pool = network.sql().await;
    let mut held = pool.begin().await.expect("begun");
    // As the end of another job of the same owner, whose commit takes long.
    let locks = format!(
        "SELECT id FROM accounts WHERE id = '{owner}' FOR NO KEY UPDATE; \
         UPDATE balances SET amount = amount, entries = entries WHERE ledger = 'account:{owner}'; \
         UPDATE hosts SET karma_ms = karma_ms WHERE id = '{}';",
        island.id,
        owner = network.owner.id
    );
    held.execute(sqlx::raw_sql(AssertSqlSafe(locks))).await.expect("locked");
    let ids = [complete(&network, &mut island).await, complete(&network, &mut island).await];
    for id in &ids {
        assert_eq!(network.job(id).await["status"], "completed");
    }
    assert!((network.credits(&network.owner).await - 2.0).abs() < 1e-9, "what is not counted yet is shown");
    network.audit().await;
    held.rollback().await.expect("released");
    let counted = async {
        while uncounted(&pool).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the earnings in their balance", counted).await;
    assert!((network.credits(&network.owner).await - 2.0).abs() < 1e-9);
    let total: i64 = sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT entries FROM balances WHERE ledger = 'account:{}'",
        network.owner.id
    )))
    .fetch_one(&pool)
    .await
    .expect("entries");
    assert_eq!(total, 2);
    network.audit().await;
    pool.close().await;
}
