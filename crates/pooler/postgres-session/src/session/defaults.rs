//! The question which reported parameters have the session's own values. A reported value may have been set in the
//! session, or may be what all sessions begin with since the database's configuration was reloaded.
//!
//! PostgreSQL reports only what differs from its last report, and an idle session reports nothing. So a report is at
//! first this server's value, and its origin has to be asked for.

use seam::Verdict;

use crate::{
    sql::{Pairs, Settings, write_literal},
    wire::read_row,
};

/// The source of a value that was set in the session.
const SESSION: &[u8] = b"session";

/// Sources of values that a role or a database has.
const OF_ROLE: [&[u8]; 3] = [b"database", b"user", b"database user"];

/// What follows the answer about the defaults of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterDefaults {
    /// The server has just logged in, and its defaults differ from those of earlier servers.
    Start,
    /// The server becomes ready.
    Ready,
    /// The server returns to its pool.
    Release(Verdict),
    /// The holder's transaction is over, and the server is given back.
    Finish,
    /// A client was just granted the server.
    Grant,
}

pub(crate) struct DefaultsQuestion {
    pub(crate) then: AfterDefaults,
    /// Names that the server has answered about.
    answered: Vec<Box<[u8]>>,
    /// Names of parameters that were set in the session, or that may have been.
    set: Vec<Box<[u8]>>,
    /// Names of parameters that a role or a database has set.
    pub(crate) of_role: Vec<Box<[u8]>>,
}

/// The query for a session with these settings.
pub(crate) fn write(settings: &Settings) -> Vec<u8> {
    let names: Vec<&[u8]> = settings.reported.iter().map(|(name, _)| name).filter(|name| is_plain(name)).collect();
    // Where a value is spelt in two ways, case is the difference.
    let mut sql = b"/* poolhouse: defaults */ SELECT name, source, \
        pg_catalog.lower(setting) OPERATOR(pg_catalog.=) pg_catalog.lower(reset_val) \
        FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) ANY ("
        .to_vec();
    write_literal(&mut sql, &[&b"{"[..], &names.join(&b','), &b"}"[..]].concat());
    sql.extend_from_slice(b"::pg_catalog.text[])");
    sql
}

fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
}

impl DefaultsQuestion {
    pub(crate) fn new(then: AfterDefaults) -> Self {
        Self { then, answered: Vec::new(), set: Vec::new(), of_role: Vec::new() }
    }

    pub(crate) fn take_row(&mut self, body: &[u8]) -> Option<()> {
        let columns = read_row::<3>(body)?;
        let (name, source) = (columns[0]?, columns[1].unwrap_or_default());
        self.answered.push(name.into());
        if source == SESSION || columns[2] != Some(b"t") {
            self.set.push(name.into());
        } else if OF_ROLE.contains(&source) {
            self.of_role.push(name.into());
        }
        Some(())
    }

    /// The reported settings that were set in the session.
    pub(crate) fn set_of(&self, settings: &Settings) -> Pairs {
        let is_of = |names: &[Box<[u8]>], name: &[u8]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        settings.reported.iter().filter(|(name, _)| is_of(&self.set, name) || !is_of(&self.answered, name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::row_body;

    #[test]
    fn what_is_not_known_to_be_the_servers_own_counts_as_set() {
        let pairs =
            [("DateStyle", "ISO, DMY"), ("TimeZone", "CET"), ("IntervalStyle", "postgres"), ("x", "1"), ("y", "2")];
        let reported = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let settings = Settings::new(reported, Pairs::default());
        let mut question = DefaultsQuestion::new(AfterDefaults::Ready);
        for columns in [
            ["DateStyle", "configuration file", "t"],
            ["TimeZone", "session", "t"],
            ["IntervalStyle", "user", "t"],
            ["x", "default", "f"],
        ] {
            question.take_row(&row_body(&columns.map(Some))).unwrap();
        }
        let set: Vec<_> = question.set_of(&settings).iter().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(set, [b"TimeZone".to_vec(), b"x".to_vec(), b"y".to_vec()]);
        assert_eq!(question.of_role, [Box::from(*b"IntervalStyle")]);
        for bad in [&b""[..], b"\0\x02", b"\0\x03\0\0\0\x09ab"] {
            assert!(question.take_row(bad).is_none());
        }
        assert!(write(&settings).ends_with(b"ANY ('{DateStyle,TimeZone,IntervalStyle,x,y}'::pg_catalog.text[])"));
    }
}
