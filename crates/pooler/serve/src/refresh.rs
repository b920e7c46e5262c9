//! Looks up the hosts of `mongodb+srv://` names from time to time, and applies changes.

use std::sync::Arc;

use crate::{
    reload::Reloader,
    seeds::{MAX_REFRESH_INTERVAL, MIN_REFRESH_INTERVAL, look_up_hosts_again},
};

pub async fn follow_names(reloader: Arc<Reloader>) {
    let mut wait = MIN_REFRESH_INTERVAL;
    loop {
        tokio::time::sleep(wait).await;
        let shared = Arc::clone(&reloader);
        wait = tokio::task::spawn_blocking(move || refresh(&shared)).await.unwrap_or(MIN_REFRESH_INTERVAL);
    }
}

/// Looks up all names once. Returns the time until the next lookup.
fn refresh(reloader: &Reloader) -> std::time::Duration {
    if reloader.in_force().databases.iter().all(|database| database.srv.is_none()) {
        return MAX_REFRESH_INTERVAL;
    }
    reloader.replace_config_with(look_up_hosts_again)
}
