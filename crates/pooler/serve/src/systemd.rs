//! Notifications for systemd, if it asked for them: ready, reloading, stopping, watchdog.

use std::time::Duration;

use sd_notify::{NotifyState, notify};

pub fn notify_ready() {
    tell(NotifyState::Ready);
}

/// A reload has begun; [`notify_ready`] ends it.
pub fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell_all(&[NotifyState::Reloading, now]),
        Err(_) => tell(NotifyState::Reloading),
    }
}

/// Makes this process the service's main one.
pub fn notify_main_process() {
    tell(NotifyState::MainPid(std::process::id()));
}

pub fn notify_stopping() {
    tell(NotifyState::Stopping);
}

/// Notifies the watchdog twice per period while the driver answers in time. Returns at once without a watchdog.
pub async fn watchdog(handle: driver::Handle) {
    let Some(period) = sd_notify::watchdog_enabled().map(|period| period / 2).filter(|period| !period.is_zero()) else {
        return;
    };
    let mut clock = tokio::time::interval(period);
    loop {
        clock.tick().await;
        if answers(&handle, period).await {
            tell(NotifyState::Watchdog);
        } else {
            tracing::error!("the workers do not answer: not telling systemd that all is well");
        }
    }
}

async fn answers(handle: &driver::Handle, timeout: Duration) -> bool {
    let handle = handle.clone();
    tokio::task::spawn_blocking(move || handle.answers(timeout)).await.unwrap_or(false)
}

fn tell(state: NotifyState<'_>) {
    tell_all(&[state]);
}

fn tell_all(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}
