//! Tells systemd how it goes, if systemd asked: ready, stopping, and that the driver still answers.

use std::time::Duration;

use sd_notify::{NotifyState, notify};

/// Clients are served from now on.
pub fn ready() {
    tell(NotifyState::Ready);
}

/// The configuration is being read again; [`ready`] follows.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell_all(&[NotifyState::Reloading, now]),
        Err(_) => tell(NotifyState::Reloading),
    }
}

/// This process is the service's main one from now on.
pub fn main_process() {
    tell(NotifyState::MainPid(std::process::id()));
}

pub fn stopping() {
    tell(NotifyState::Stopping);
}

/// Reports life twice per period for as long as the driver answers in that time; returns at once if nobody asked.
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

async fn answers(handle: &driver::Handle, patience: Duration) -> bool {
    let handle = handle.clone();
    tokio::task::spawn_blocking(move || handle.answers(patience)).await.unwrap_or(false)
}

fn tell(state: NotifyState<'_>) {
    tell_all(&[state]);
}

fn tell_all(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}
