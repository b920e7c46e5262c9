//! Ident maps: which user of a system, or which name in a certificate, may log in as which user of the database.

use std::{collections::HashMap, sync::Arc};

use super::lines::{self, Wrong};

/// One map: pairs of a system's user and a user of the database; `None` is each user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdentMap {
    pairs: Vec<(String, Option<String>)>,
}

impl IdentMap {
    /// Whether `system_user` may log in as `user`.
    pub fn allows(&self, system_user: &str, user: &str) -> bool {
        let allows =
            |(from, to): &(String, Option<String>)| from == system_user && to.as_ref().is_none_or(|to| to == user);
        self.pairs.iter().any(allows)
    }
}

/// The maps of a file, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdentMaps(HashMap<String, Arc<IdentMap>>);

impl IdentMaps {
    /// Reads an ident file. All errors are returned.
    pub fn parse(text: &str) -> Result<Self, Vec<Wrong>> {
        let mut maps: HashMap<String, IdentMap> = HashMap::new();
        let mut wrongs = Vec::new();
        for line in lines::read(text).map_err(|wrong| vec![wrong])? {
            match pair(&line) {
                Ok((map, pair)) => maps.entry(map).or_default().pairs.push(pair),
                Err(wrong) => wrongs.push(wrong),
            }
        }
        if !wrongs.is_empty() {
            return Err(wrongs);
        }
        Ok(Self(maps.into_iter().map(|(name, map)| (name, Arc::new(map))).collect()))
    }

    pub fn get(&self, name: &str) -> Option<&Arc<IdentMap>> {
        self.0.get(name)
    }
}

/// The map's name, and the pair of a line.
fn pair(line: &[lines::Field]) -> Result<(String, (String, Option<String>)), Wrong> {
    if let Some(token) = line[0].first().filter(|token| token.text.starts_with("include") && !token.quoted) {
        return Err(token.wrong("an ident file cannot include others: write the lines here"));
    }
    let last = line.last().and_then(|field| field.last()).expect("a line has a field");
    let [map, system_user, user] = line else {
        return Err(last.wrong("a line has three fields: the map's name, the system's user, and the database's user"));
    };
    for field in [map, system_user, user] {
        if let [_, more, ..] = &field[..] {
            return Err(more.wrong("a list is not supported here: write a line for each"));
        }
    }
    let (map, system_user, user) = (&map[0], &system_user[0], &user[0]);
    for token in [system_user, user] {
        if !token.quoted && token.text.starts_with('/') {
            return Err(token.wrong("regular expressions are not supported: write a line for each user"));
        }
    }
    if !user.quoted && user.text.starts_with('+') {
        return Err(user.wrong("groups are not supported: write a line for each user"));
    }
    let to = (!user.is("all")).then(|| user.text.clone());
    Ok((map.text.clone(), (system_user.text.clone(), to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_pairs_and_all_stands_for_each_user() {
        let maps = IdentMaps::parse("m root app # root\nm backup \"all\"\nadmins ops all\n").unwrap();
        let map = maps.get("m").unwrap();
        assert!(map.allows("root", "app") && !map.allows("root", "web") && !map.allows("app", "app"));
        assert!(map.allows("backup", "all") && !map.allows("backup", "app"));
        assert!(maps.get("admins").unwrap().allows("ops", "anyone") && maps.get("n").is_none());
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for (text, word) in [
            ("m root", "three fields"),
            ("m root app web", "three fields"),
            ("m /^r.*$ app", "regular expressions"),
            ("m root +staff", "groups"),
            ("m root app,web", "list"),
            ("include more", "include"),
        ] {
            let wrongs = IdentMaps::parse(text).unwrap_err();
            assert!(wrongs[0].message.contains(word), "{text}: {wrongs:?}");
        }
    }
}
