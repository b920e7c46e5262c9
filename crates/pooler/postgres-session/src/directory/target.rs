//! Which of several hosts will do: `target_session_attrs`, in libpq's words. A server tells by what it reports (from
//! PostgreSQL 14 on) or, if it reports nothing, by its answer to a query. Opens no connection.

use crate::wire::message::read_row;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Target {
    #[default]
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// A standby, if there is one; otherwise any server.
    PreferStandby,
}

impl Target {
    /// Whether an error that says "read only" means that the server is the wrong one.
    pub fn is_for_writes(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Primary)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::PreferStandby => "prefer-standby",
        }
    }

    /// Whether a server fits, by its own report; the error says why it does not.
    pub(crate) fn judge(self, traits: &Traits) -> Result<Fit, String> {
        let (Some(standby), Some(read_only)) = (traits.standby, traits.read_only) else {
            return Ok(if self == Self::Any { Fit::Yes } else { Fit::Unknown });
        };
        let fits = match self {
            Self::Any => true,
            Self::ReadWrite => !standby && !read_only,
            Self::ReadOnly => standby || read_only,
            Self::Primary => !standby,
            Self::Standby | Self::PreferStandby => standby,
        };
        if fits {
            return Ok(Fit::Yes);
        }
        let is = match (standby, read_only) {
            (true, _) => "a standby",
            (false, true) => "read-only by default",
            (false, false) => "a primary that takes writes",
        };
        Err(format!("the server is {is}, and target_session_attrs asks for {}", self.as_str()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Traits {
    pub(crate) standby: Option<bool>,
    /// Transactions are read-only unless they say otherwise.
    pub(crate) read_only: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    Yes,
    Unknown,
}

/// The query for a server that reports neither trait; it has two columns.
pub(crate) const QUESTION: &[u8] =
    b"SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')";

impl Traits {
    /// From the reported values of two parameters.
    pub(crate) fn reported(in_hot_standby: Option<&[u8]>, default_transaction_read_only: Option<&[u8]>) -> Self {
        Self { standby: in_hot_standby.map(is_on), read_only: default_transaction_read_only.map(is_on) }
    }

    /// From the body of the DataRow that answers [`QUESTION`].
    pub(crate) fn answered(body: &[u8]) -> Option<Self> {
        let [standby, read_only] = read_row(body)?;
        Some(Self { standby: Some(is_on(standby?)), read_only: Some(is_on(read_only?)) })
    }
}

fn is_on(value: &[u8]) -> bool {
    value == b"on" || value == b"t"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(target: Target) -> Vec<bool> {
        let kinds = [(false, false), (false, true), (true, true)];
        let traits = |(standby, read_only)| Traits { standby: Some(standby), read_only: Some(read_only) };
        kinds.into_iter().map(|kind| target.judge(&traits(kind)).is_ok()).collect()
    }

    #[test]
    fn each_target_is_met_by_the_servers_it_names() {
        // A primary; a primary with default_transaction_read_only; a standby.
        assert_eq!(fits(Target::Any), [true, true, true]);
        assert_eq!(fits(Target::ReadWrite), [true, false, false]);
        assert_eq!(fits(Target::ReadOnly), [false, true, true]);
        assert_eq!(fits(Target::Primary), [true, true, false]);
        assert_eq!(fits(Target::Standby), [false, false, true]);
        assert_eq!(fits(Target::PreferStandby), [false, false, true]);
    }

    #[test]
    fn a_server_that_reports_nothing_must_be_asked() {
        let silent = Traits::reported(None, None);
        assert_eq!(Target::Primary.judge(&silent), Ok(Fit::Unknown));
        assert_eq!(Target::Any.judge(&silent), Ok(Fit::Yes));
        let row = b"\0\x02\0\0\0\x01f\0\0\0\x03off";
        assert_eq!(Traits::answered(row), Some(Traits { standby: Some(false), read_only: Some(false) }));
    }

    #[test]
    fn a_malformed_answer_is_no_answer() {
        for row in
            [&b""[..], b"\0\x02", b"\0\x01\0\0\0\x01t", b"\0\x02\0\0\0\x09t", b"\0\x02\xff\xff\xff\xff\0\0\0\x01t"]
        {
            assert_eq!(Traits::answered(row), None);
        }
    }
}
