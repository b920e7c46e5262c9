//! Has hosts of databases that are configured by a name follow what name servers say, for as long as Poolhouse serves.

use std::sync::Arc;

use crate::{
    reload::Reloader,
    seeds::{LATEST, SOONEST, renewed},
};

/// Until the process ends.
pub async fn follow_names(reloader: Arc<Reloader>) {
    let mut wait = SOONEST;
    loop {
        tokio::time::sleep(wait).await;
        let looking = Arc::clone(&reloader);
        wait = tokio::task::spawn_blocking(move || look(&looking)).await.unwrap_or(SOONEST);
    }
}

/// Looks once, and says when to look again.
fn look(reloader: &Reloader) -> std::time::Duration {
    if reloader.in_force().databases.iter().all(|database| database.srv.is_none()) {
        return LATEST;
    }
    reloader.follow(renewed)
}
