//! Members of a replica set that the set itself names and the configuration does not: no request ever goes there, and
//! if one of them is elected, no write finds a primary. So the configuration is told of them, each once. Nobody
//! connects to them by himself: the names are those by which the members know each other, which Poolhouse may not be
//! able to reach.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::MongoDb;

/// Those that have been told of.
#[derive(Default)]
pub struct Unlisted(Mutex<BTreeSet<Arc<str>>>);

/// A host that is configured.
pub struct Listed {
    pub name: Arc<str>,
    /// What it calls itself, if it has told.
    pub me: Option<Arc<str>>,
}

impl Unlisted {
    /// These are unlisted now: those of them of which nothing has been told.
    fn news(&self, now: BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = now.difference(&told).cloned().collect();
        *told = now;
        news
    }
}

/// Of these members those that are none of the hosts, whatever these are called here. None while a host that may be one
/// of them has not told what it calls itself.
fn unlisted(members: &[Arc<str>], hosts: &[Listed]) -> BTreeSet<Arc<str>> {
    let is = |name: &str, member: &str| name.eq_ignore_ascii_case(member);
    let is_named = |host: &Listed| members.iter().any(|member| is(&host.name, member));
    if hosts.iter().any(|host| host.me.is_none() && !is_named(host)) {
        return BTreeSet::new();
    }
    let is_listed = |member: &str| {
        hosts.iter().any(|host| is(&host.name, member) || host.me.as_ref().is_some_and(|me| is(me, member)))
    };
    members.iter().filter(|member| !is_listed(member)).cloned().collect()
}

impl MongoDb {
    /// A primary has told which members its set has.
    pub(crate) fn look_for_unlisted(&self) {
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
            let listed = |(host, name)| Listed { name, me: topology.own_name(host) };
            unlisted(members, &names.into_iter().map(listed).collect::<Vec<_>>())
        };
        self.unlisted.news(now).iter().for_each(|member| self.directory.note_unlisted(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> Vec<Arc<str>> {
        names.map(Arc::from).to_vec()
    }

    fn found(members: &[Arc<str>], hosts: &[(&str, Option<&str>)]) -> Vec<String> {
        let listed = |(name, me): &(&str, Option<&str>)| Listed { name: Arc::from(*name), me: me.map(Arc::from) };
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

    #[test]
    fn each_is_told_of_once_and_again_when_it_has_been_listed_meanwhile() {
        let told = Unlisted::default();
        let set = |given: &[&str]| given.iter().map(|name| Arc::from(*name)).collect::<BTreeSet<Arc<str>>>();
        assert_eq!(told.news(set(&["b:1", "c:1"])).len(), 2);
        assert_eq!(told.news(set(&["b:1", "c:1"])).len(), 0);
        assert_eq!(told.news(set(&["c:1"])).len(), 0);
        assert_eq!(told.news(set(&["b:1", "c:1"])), names(["b:1"]));
    }
}
