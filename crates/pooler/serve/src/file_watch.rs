//! Watches the files that a configuration names: passwords, certificates and keys. When they have changed, they are
//! read again, so that a renewal needs no signal. Looks at their metadata every few seconds, through symbolic links: a
//! Kubernetes secret is renewed by another target of a link. Reads no file itself.

use std::{collections::BTreeMap, fs::metadata, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc, time::Duration};

use upstream::Root;

use crate::{
    config::{ClientAuth, Config},
    reload::Reloader,
};

/// How often the files are looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// What tells two states of a file apart; `None` if there is no such file.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// The files and their states.
type Stamps = BTreeMap<PathBuf, Stamp>;

pub async fn watch_files(reloader: Arc<Reloader>) {
    let mut watch = Watch::new(stamps(&reloader.in_force()));
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let shared = Arc::clone(&reloader);
        let Ok(now) = tokio::task::spawn_blocking(move || stamps(&shared.in_force())).await else { continue };
        if !watch.has_settled(now) {
            continue;
        }
        tracing::info!("files of passwords or certificates have changed, and are read again");
        let shared = Arc::clone(&reloader);
        let _ = tokio::task::spawn_blocking(move || shared.reload_named_files()).await;
    }
}

/// What was seen of the files.
struct Watch {
    /// The states that the configuration in force was read from, as far as is known.
    known: Stamps,
    /// Other states, which may be those of files that are being written.
    changing: Option<Stamps>,
}

impl Watch {
    fn new(known: Stamps) -> Self {
        Self { known, changing: None }
    }

    /// Whether the files have changed, and have not gone on changing since the look before. Files that a reload has
    /// added or removed are no change.
    fn has_settled(&mut self, now: Stamps) -> bool {
        let differs = now.iter().any(|(path, stamp)| self.known.get(path).is_some_and(|known| known != stamp));
        if !differs {
            (self.known, self.changing) = (now, None);
            return false;
        }
        if self.changing.as_ref() != Some(&now) {
            self.changing = Some(now);
            return false;
        }
        (self.known, self.changing) = (now, None);
        true
    }
}

/// The files that a configuration names, without itself.
fn named_files(config: &Config) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(source) = &config.source {
        files.extend(source.secret_files.iter().filter(|path| **path != source.path).cloned());
    }
    for tls in config.listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
        files.extend([tls.cert.clone(), tls.key.clone()]);
        if let ClientAuth::Optional(authority) | ClientAuth::Required(authority) = &tls.clients {
            files.push(authority.clone());
        }
    }
    for tls in config.databases.iter().map(|database| &database.tls) {
        if let Some(Root::File(root)) = &tls.root {
            files.push(root.clone());
        }
        files.extend(tls.identity.iter().flat_map(|(cert, key)| [cert.clone(), key.clone()]));
    }
    files
}

fn stamps(config: &Config) -> Stamps {
    let stamp = |path: &PathBuf| {
        let seen = metadata(path).ok()?;
        Some((seen.dev(), seen.ino(), seen.size(), seen.mtime(), seen.mtime_nsec()))
    };
    named_files(config).into_iter().map(|path| (path.clone(), stamp(&path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(files: &[(&str, u64)]) -> Stamps {
        files.iter().map(|(path, size)| (PathBuf::from(path), Some((0, 0, *size, 0, 0)))).collect()
    }

    #[test]
    fn a_change_counts_once_it_has_settled() {
        let mut watch = Watch::new(seen(&[("a", 1)]));
        assert!(!watch.has_settled(seen(&[("a", 1)])));
        assert!(!watch.has_settled(seen(&[("a", 2)])), "it may still be written");
        assert!(!watch.has_settled(seen(&[("a", 3)])));
        assert!(watch.has_settled(seen(&[("a", 3)])));
        assert!(!watch.has_settled(seen(&[("a", 3)])), "once");
    }

    #[test]
    fn files_of_another_configuration_are_no_change() {
        let mut watch = Watch::new(seen(&[("a", 1)]));
        assert!(!watch.has_settled(seen(&[("b", 2)])));
        assert!(!watch.has_settled(seen(&[("b", 3)])));
        assert!(watch.has_settled(seen(&[("b", 3)])));
    }
}
