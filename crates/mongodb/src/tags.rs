//! Tags of members, and the sets of tags in read preferences. A read goes to members that have all tags of a set: of the first set that
//! any member has. See the drivers' specification "Server Selection".

use crate::bson::{Document, Malformed, Value};

/// Lists of sets that are remembered. Applications have a few.
const MAX_LISTS: usize = 1_000;
/// Sets of a list, and tags of a set.
const MAX_OF_LIST: usize = 50;

/// Names and values.
pub type TagSet = Vec<(Box<str>, Box<str>)>;

/// A list of sets, by its number. The first one is the empty list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tags(u32);

/// The lists that have been seen.
#[derive(Default)]
pub struct TagSets(Vec<Vec<TagSet>>);

impl TagSets {
    /// The number of a list; `None` if there are too many, or too many sets in it.
    pub fn intern(&mut self, sets: Vec<TagSet>) -> Option<Tags> {
        if sets.is_empty() {
            return Some(Tags::default());
        }
        let place = self.0.iter().position(|known| *known == sets).or_else(|| {
            let fits = self.0.len() < MAX_LISTS && sets.len() <= MAX_OF_LIST;
            fits.then(|| {
                self.0.push(sets);
                self.0.len() - 1
            })
        });
        place.map(|place| Tags(place as u32 + 1))
    }

    /// Of these members those that a list allows: `tags_of` gives the tags of one.
    pub fn allowed<'t>(&self, tags: Tags, members: Vec<usize>, tags_of: impl Fn(usize) -> &'t TagSet) -> Vec<usize> {
        let Some(sets) = (tags.0 as usize).checked_sub(1).and_then(|place| self.0.get(place)) else { return members };
        let having = |set: &TagSet| -> Vec<usize> {
            let has_all = |member: &usize| set.iter().all(|tag| tags_of(*member).contains(tag));
            members.iter().copied().filter(has_all).collect()
        };
        sets.iter().map(having).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

/// The tags that a document names.
pub fn read(document: Document<'_>) -> Result<TagSet, Malformed> {
    let mut set = TagSet::new();
    for element in document.elements() {
        let element = element?;
        let value = element.value()?.text().ok_or(Malformed("a tag that is no string"))?;
        if set.len() == MAX_OF_LIST {
            return Err(Malformed("too many tags"));
        }
        set.push((element.name.into(), value.into()));
    }
    Ok(set)
}

/// Those of a member, which may name whatever it likes.
pub fn of_member(value: Value<'_>) -> TagSet {
    value.document().and_then(|tags| read(tags).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tags: &[(&str, &str)]) -> TagSet {
        tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_first_set_that_a_member_has_is_taken() {
        let members = [set(&[("dc", "a"), ("use", "reports")]), set(&[("dc", "b")])];
        let mut all = TagSets::default();
        let allowed = |all: &TagSets, tags| all.allowed(tags, vec![0, 1], |member| &members[member]);
        let none = all.intern(Vec::new()).unwrap();
        assert_eq!(allowed(&all, none), [0, 1]);
        let both = all.intern(vec![set(&[("dc", "b"), ("use", "reports")]), set(&[("dc", "b")])]).unwrap();
        assert_eq!(allowed(&all, both), [1]);
        let any = all.intern(vec![set(&[("dc", "c")]), set(&[])]).unwrap();
        assert_eq!(allowed(&all, any), [0, 1]);
        let nobody = all.intern(vec![set(&[("dc", "c")])]).unwrap();
        assert!(allowed(&all, nobody).is_empty());
        assert_eq!(all.intern(vec![set(&[("dc", "c")])]), Some(nobody));
    }
}
