//! Every setting of PgBouncer's manual, and what becomes of it here. Translates nothing: `translate` does what these
//! tables say.

mod general;
mod of_entries;

pub use self::{
    general::GENERAL,
    of_entries::{DATABASE, DATABASE_UNDOCUMENTED, PEER, USER},
};
use crate::{ini::SectionName, values::Kind};

/// A key of a `poolhouse.toml`: its section (`url`: a parameter of a database's URL) and its name.
pub type TomlKey = (&'static str, &'static str);

/// What becomes of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It does here what it does there.
    Same,
    /// It is translated, and does something else in the way that this says.
    Different(&'static str),
    /// It is taken, and has no effect, for this reason.
    Accepted(&'static str),
    /// It is refused unless it has its default: the reason, and what to do instead.
    Refused(&'static str),
}

/// A setting of the manual.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub name: &'static str,
    /// The value without the setting, as it would stand in the file.
    pub default: &'static str,
    pub kind: Kind,
    /// What it is translated to.
    pub toml: &'static [TomlKey],
    pub fate: Fate,
}

impl Known {
    const fn new(name: &'static str, default: &'static str, kind: Kind, toml: &'static [TomlKey], fate: Fate) -> Self {
        Self { name, default, kind, toml, fate }
    }

    /// Whether a value asks for what happens without the setting.
    pub fn is_default(&self, value: &str) -> bool {
        use crate::values::{number, time};
        match self.kind {
            Kind::Number => number(value) == number(self.default),
            Kind::Time => time(value) == time(self.default),
            Kind::Word(_) => value.eq_ignore_ascii_case(self.default),
            Kind::Text => value == self.default,
        }
    }
}

/// Settings of `[pgbouncer]` that take a restart to change.
const FIXED: &[&str] = &[
    "conffile",
    "disable_pqexec",
    "job_name",
    "listen_addr",
    "listen_backlog",
    "listen_port",
    "pidfile",
    "pkt_buf",
    "resolv_conf",
    "service_name",
    "so_reuseport",
    "tcp_defer_accept",
    "tcp_keepalive",
    "tcp_keepcnt",
    "tcp_keepidle",
    "tcp_keepintvl",
    "tcp_socket_buffer",
    "tcp_user_timeout",
    "track_extra_parameters",
    "unix_socket_dir",
    "unix_socket_group",
    "unix_socket_mode",
    "user",
];

/// Whether a setting of `[pgbouncer]` can change while the process runs.
pub fn can_change(name: &str) -> bool {
    !FIXED.contains(&name)
}

/// The settings of a section.
pub fn known(section: SectionName) -> &'static [Known] {
    match section {
        SectionName::PgBouncer => GENERAL,
        SectionName::Databases => DATABASE,
        SectionName::Users => USER,
        SectionName::Peers => PEER,
    }
}

/// The setting of this name.
pub fn find(section: SectionName, name: &str) -> Option<&'static Known> {
    let undocumented = if section == SectionName::Databases { DATABASE_UNDOCUMENTED } else { &[] };
    known(section).iter().chain(undocumented).find(|known| known.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTIONS: [SectionName; 4] =
        [SectionName::PgBouncer, SectionName::Databases, SectionName::Users, SectionName::Peers];

    #[test]
    fn each_setting_stands_once_and_admits_its_default() {
        for section in SECTIONS {
            for (at, setting) in known(section).iter().enumerate() {
                assert!(known(section)[..at].iter().all(|other| other.name != setting.name), "{}", setting.name);
                let is_unset = setting.default.is_empty() && section != SectionName::PgBouncer;
                assert!(is_unset || setting.kind.admits(setting.default), "{}", setting.name);
            }
        }
    }
}
