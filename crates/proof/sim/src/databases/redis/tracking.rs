//! CLIENT TRACKING: connections are told when keys change that they have read, or whose names begin in a certain way.
//! Redirection is recorded, and sends nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{Connection, Done, Redis, Refusal, Reply, clients::is_on, numbers::required, session::Tracking};

/// Who is to be told of what.
#[derive(Default)]
pub struct Invalidations {
    /// Who has read what, in whatever database.
    readers: BTreeMap<Vec<u8>, BTreeSet<Connection>>,
    /// What the connection that is at work has to hear when it is done; `None`: that all has changed.
    own: Vec<Option<Vec<u8>>>,
    /// What has changed since those were told who hear of names: and by whom.
    changed: BTreeMap<Vec<u8>, Option<Connection>>,
}

/// No client is told of a key twice.
fn overlap(given: &[Vec<u8>], present: &BTreeSet<Vec<u8>>) -> Option<Refusal> {
    for (place, prefix) in given.iter().enumerate() {
        let overlaps = |other: &&Vec<u8>| other.starts_with(prefix) || prefix.starts_with(other);
        let among = |what: &str, other: &[u8]| {
            let before = Refusal::quoting("ERR Prefix '", prefix, &format!("' overlaps with {what} '"));
            Refusal::quoting("", other, "'. Prefixes for a single client must not overlap.").behind(before)
        };
        if let Some(other) = present.iter().find(overlaps) {
            return Some(among("an existing prefix", other));
        }
        if let Some(other) = given[place + 1..].iter().find(overlaps) {
            return Some(among("another provided prefix", other));
        }
    }
    None
}

impl Redis {
    /// A connection has read these keys.
    pub(super) fn remember(&mut self, me: Connection, keys: &[Vec<u8>]) {
        let Some(tracking) = &self.sessions[&me].tracking else { return };
        let [broadcasts, opts_in, opts_out, _] = tracking.options;
        let unwanted = (opts_in && tracking.caching != Some(true)) || (opts_out && tracking.caching == Some(false));
        if broadcasts || unwanted {
            return;
        }
        for key in keys {
            self.invalidations.readers.entry(key.clone()).or_default().insert(me);
        }
    }

    pub(super) fn invalidate(&mut self, key: &[u8]) {
        let by = self.at_work;
        if self.sessions.values().any(|session| session.tracking.as_ref().is_some_and(|tracking| tracking.options[0])) {
            self.invalidations.changed.insert(key.to_vec(), by);
        }
        for reader in self.invalidations.readers.remove(key).unwrap_or_default() {
            let tracking = self.sessions.get(&reader).and_then(|session| session.tracking.as_ref());
            match tracking.map(|tracking| tracking.options) {
                None | Some([true, ..]) => {}
                Some([_, _, _, true]) if by == Some(reader) => {}
                Some(_) if by == Some(reader) => self.invalidations.own.push(Some(key.to_vec())),
                Some(_) => self.tell_changed(reader, Some(&[key])),
            }
        }
    }

    pub(super) fn invalidate_all(&mut self) {
        self.invalidations.readers.clear();
        let trackers = self.sessions.iter().filter(|(_, session)| session.tracking.is_some());
        for tracker in trackers.map(|(tracker, _)| *tracker).collect::<Vec<_>>() {
            if self.at_work == Some(tracker) {
                self.invalidations.own.push(None);
            } else {
                self.tell_changed(tracker, None);
            }
        }
    }

    fn tell_changed(&mut self, to: Connection, keys: Option<&[&[u8]]>) {
        let Some(session) = self.sessions.get(&to) else { return };
        // The old version of the protocol has no words for it.
        let redirects = session.tracking.as_ref().is_some_and(|tracking| tracking.redirect.is_some());
        if session.version == 2 || redirects {
            return;
        }
        let mut reply = Reply::new(session.version);
        reply.push(2);
        reply.text("invalidate");
        match keys {
            Some(keys) => reply.texts(keys.iter()),
            None => reply.null(),
        }
        self.push(to, reply.bytes);
    }

    /// The command that a connection was at has been carried out: it hears what it has changed itself.
    pub(super) fn tell_own_changes(&mut self, me: Connection) {
        for key in std::mem::take(&mut self.invalidations.own) {
            match key {
                Some(key) => self.tell_changed(me, Some(&[&key])),
                None => self.tell_changed(me, None),
            }
        }
    }

    /// Those who hear of names are told.
    pub(super) fn broadcast(&mut self) {
        let changed = std::mem::take(&mut self.invalidations.changed);
        if changed.is_empty() {
            return;
        }
        let mut wishes: BTreeMap<Vec<u8>, Vec<(Connection, bool)>> = BTreeMap::new();
        for (me, session) in &self.sessions {
            for prefix in session.tracking.iter().flat_map(|tracking| &tracking.prefixes) {
                let no_loop = session.tracking.as_ref().is_some_and(|tracking| tracking.options[3]);
                wishes.entry(prefix.clone()).or_default().push((*me, no_loop));
            }
        }
        for (prefix, trackers) in wishes {
            for (me, no_loop) in trackers {
                let meant =
                    changed.iter().filter(|(key, by)| key.starts_with(&prefix) && !(no_loop && **by == Some(me)));
                let meant: Vec<&[u8]> = meant.map(|(key, _)| key.as_slice()).collect();
                if !meant.is_empty() {
                    self.tell_changed(me, Some(&meant));
                }
            }
        }
    }

    pub(super) fn client_tracking(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let (mut wanted, mut given) = (Tracking::default(), Vec::new());
        let mut rest = &words[3..];
        while let [option, behind @ ..] = rest {
            rest = match (&*option.to_ascii_uppercase(), behind) {
                (b"REDIRECT", [id, behind @ ..]) => {
                    if wanted.redirect.is_some() {
                        return Err("ERR A client can only redirect to a single other client".into());
                    }
                    let id = required(id)? as u64;
                    if !self.sessions.contains_key(&id) {
                        return Err("ERR The client ID you want redirect to does not exist".into());
                    }
                    wanted.redirect = Some(id);
                    behind
                }
                (b"PREFIX", [prefix, behind @ ..]) => {
                    given.push(prefix.clone());
                    wanted.prefixes.insert(prefix.clone());
                    behind
                }
                (word, _) => {
                    let known = [&b"BCAST"[..], b"OPTIN", b"OPTOUT", b"NOLOOP"].iter().position(|known| *known == word);
                    wanted.options[known.ok_or("ERR syntax error")?] = true;
                    behind
                }
            };
        }
        let session = self.session(me);
        if !is_on(&words[2], "on", "off")? {
            session.tracking = None;
            reply.ok();
            return Ok(());
        }
        let [broadcasts, opts_in, opts_out, _] = wanted.options;
        if !broadcasts && !wanted.prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        if let Some(before) = &session.tracking {
            if before.options[0] != broadcasts {
                return Err("ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
                            and then re-enabling it with a different mode."
                    .into());
            }
            if (opts_in && before.options[2]) || (opts_out && before.options[1]) {
                return Err("ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
                            and then re-enabling it with a different mode."
                    .into());
            }
        }
        if broadcasts && (opts_in || opts_out) {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
        }
        if opts_in && opts_out {
            return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
        }
        let present = session.tracking.iter().flat_map(|tracking| &tracking.prefixes);
        if let Some(why) = overlap(&given, &present.cloned().collect()) {
            return Err(why);
        }
        let before = session.tracking.take().map(|before| before.prefixes).unwrap_or_default();
        if broadcasts && wanted.prefixes.is_empty() {
            wanted.prefixes.insert(Vec::new());
        }
        wanted.prefixes.extend(before);
        session.tracking = Some(wanted);
        reply.ok();
        Ok(())
    }

    pub(super) fn client_caching(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let Some(tracking) = &mut self.session(me).tracking else {
            return Err("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
                        OPTOUT mode enabled"
                .into());
        };
        let yes = is_on(&words[2], "yes", "no")?;
        if yes && !tracking.options[1] {
            return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".into());
        }
        if !yes && !tracking.options[2] {
            return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into());
        }
        tracking.caching = Some(yes);
        reply.ok();
        Ok(())
    }

    pub(super) fn client_getredir(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.number(self.redirection(me));
        Ok(())
    }

    pub(super) fn redirection(&self, me: Connection) -> i64 {
        self.sessions[&me].tracking.as_ref().map_or(-1, |tracking| tracking.redirect.map_or(0, |id| id as i64))
    }

    pub(super) fn client_trackinginfo(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        let mut flags = vec!["off"];
        let mut prefixes = Vec::new();
        if let Some(tracking) = &self.sessions[&me].tracking {
            flags = vec!["on"];
            let caching = (tracking.caching == Some(true), tracking.caching == Some(false));
            let [broadcasts, opts_in, opts_out, no_loop] = tracking.options;
            let named = [
                (broadcasts, "bcast"),
                (opts_in, "optin"),
                (opts_in && caching.0, "caching-yes"),
                (opts_out, "optout"),
                (opts_out && caching.1, "caching-no"),
                (no_loop, "noloop"),
            ];
            flags.extend(named.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)));
            prefixes.extend(tracking.prefixes.iter().cloned());
        }
        reply.map(3);
        reply.text("flags");
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.text(flag));
        reply.text("redirect");
        reply.number(self.redirection(me));
        reply.text("prefixes");
        reply.texts(prefixes.iter());
        Ok(())
    }
}
