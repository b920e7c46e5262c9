//! Looks up the hosts of `mongodb+srv://` names from time to time, and applies changes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    reload::Reloader,
    seeds::{DoubtedNames, MAX_REFRESH_INTERVAL, MIN_REFRESH_INTERVAL, look_up_hosts_again},
};

pub async fn follow_names(reloader: Arc<Reloader>) {
    let mut wait = MIN_REFRESH_INTERVAL;
    let doubted = Arc::new(Mutex::new(DoubtedNames::new()));
    loop {
        tokio::time::sleep(wait).await;
        let (shared, doubted) = (Arc::clone(&reloader), Arc::clone(&doubted));
        let refresh = move || refresh(&shared, &mut doubted.lock().unwrap_or_else(PoisonError::into_inner));
        wait = tokio::task::spawn_blocking(refresh).await.unwrap_or(MIN_REFRESH_INTERVAL);
    }
}

/// Looks up all names once. Returns the time until the next lookup.
fn refresh(reloader: &Reloader, doubted: &mut DoubtedNames) -> std::time::Duration {
    if reloader.in_force().databases.iter().all(|database| database.srv.is_none()) {
        return MAX_REFRESH_INTERVAL;
    }
    reloader.replace_config_with(|in_force| look_up_hosts_again(in_force, doubted))
}
