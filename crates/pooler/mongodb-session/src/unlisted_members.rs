//! Replica set members that the configuration does not list. No request goes to such a member, and if it is elected, no
//! write finds a primary, so the configuration is warned, once for each. Poolhouse does not connect to them by itself:
//! their names are those by which members know each other, and may be unreachable from here.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::MongoDb;

/// The members that the configuration has been warned of.
#[derive(Default)]
pub struct UnlistedMembers(Mutex<BTreeSet<Arc<str>>>);

pub struct ConfiguredHost {
    pub name: Arc<str>,
    pub own_name: Option<Arc<str>>,
}

impl UnlistedMembers {
    /// Notes the members of `now` as reported. Returns those that were not before.
    fn replace_reported(&self, now: BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newly_unlisted = now.difference(&reported).cloned().collect();
        *reported = now;
        newly_unlisted
    }
}

/// The members that match no host. Empty while a host that may match one has not reported its own name.
fn unlisted(members: &[Arc<str>], hosts: &[ConfiguredHost]) -> BTreeSet<Arc<str>> {
    let is = |name: &str, member: &str| name.eq_ignore_ascii_case(member);
    let is_named = |host: &ConfiguredHost| members.iter().any(|member| is(&host.name, member));
    if hosts.iter().any(|host| host.own_name.is_none() && !is_named(host)) {
        return BTreeSet::new();
    }
    let is_listed = |member: &str| {
        hosts
            .iter()
            .any(|host| is(&host.name, member) || host.own_name.as_ref().is_some_and(|own_name| is(own_name, member)))
    };
    members.iter().filter(|member| !is_listed(member)).cloned().collect()
}

impl MongoDb {
    /// A primary has sent its list of members.
    pub(crate) fn report_unlisted_members(&self) {
        if !self.directory.lists_members() {
            return;
        }
        let names: Vec<_> =
            self.directory.hosts().into_iter().map(|host| (host, self.directory.host_name(host))).collect();
        let now = {
            let topology = self.topology();
            let members = topology.members();
            if members.is_empty() {
                return;
            }
            let listed = |(host, name)| ConfiguredHost { name, own_name: topology.own_name(host) };
            unlisted(members, &names.into_iter().map(listed).collect::<Vec<_>>())
        };
        self.unlisted.replace_reported(now).iter().for_each(|member| self.directory.note_unlisted(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> Vec<Arc<str>> {
        names.map(Arc::from).to_vec()
    }

    fn found(members: &[Arc<str>], hosts: &[(&str, Option<&str>)]) -> Vec<String> {
        let listed = |(name, own_name): &(&str, Option<&str>)| ConfiguredHost {
            name: Arc::from(*name),
            own_name: own_name.map(Arc::from),
        };
        let hosts: Vec<_> = hosts.iter().map(listed).collect();
        unlisted(members, &hosts).iter().map(|member| member.to_string()).collect()
    }

    #[test]
    fn a_member_that_the_set_names_and_the_configuration_does_not_is_found() {
        let members = names(["a:1", "b:1", "c:1"]);
        assert_eq!(found(&members, &[("a:1", Some("a:1")), ("B:1", Some("b:1"))]), ["c:1"]);
        assert_eq!(found(&members, &[("a:1", Some("a:1")), ("b:1", None), ("c:1", None)]), [] as [&str; 0]);
        assert_eq!(found(&[], &[("a:1", None)]), [] as [&str; 0]);
    }

    #[test]
    fn a_host_may_have_another_name_here_than_in_its_set() {
        let members = names(["a:1", "b:1", "c:1"]);
        assert_eq!(found(&members, &[("10.0.0.1:1", Some("a:1")), ("10.0.0.2:1", Some("b:1"))]), ["c:1"]);
        let with_one_away = [("10.0.0.1:1", Some("a:1")), ("10.0.0.2:1", Some("b:1")), ("10.0.0.3:1", None)];
        assert_eq!(found(&members, &with_one_away), [] as [&str; 0], "it may be the third");
    }
}
