//! Tag sets of read preferences. A read goes to the members that have all tags of the first set that any member has.
//! See the drivers' specification "Server Selection".

use crate::bson::{Document, Malformed, Value};

/// Limits of tag sets in a read preference, of tags in a set, and of a tag's length in bytes.
pub const MAX_TAG_SETS: usize = 20;
const MAX_TAGS: usize = 20;
const MAX_TAG_LENGTH: usize = 256;

pub type TagSet = Vec<(Box<str>, Box<str>)>;

/// The members that match the first set that any of them matches. `tags_of` gives the tags of a member.
pub fn allowed<'t>(sets: &[TagSet], members: Vec<usize>, tags_of: impl Fn(usize) -> &'t TagSet) -> Vec<usize> {
    if sets.is_empty() {
        return members;
    }
    let having = |set: &TagSet| -> Vec<usize> {
        let has_all = |member: &usize| set.iter().all(|tag| tags_of(*member).contains(tag));
        members.iter().copied().filter(has_all).collect()
    };
    sets.iter().map(having).find(|found| !found.is_empty()).unwrap_or_default()
}

pub fn read(document: Document<'_>) -> Result<TagSet, Malformed> {
    let mut set = TagSet::new();
    for element in document.elements() {
        let element = element?;
        let value = element.value()?.text().ok_or(Malformed("a tag that is no string"))?;
        if set.len() == MAX_TAGS || element.name.len() + value.len() > MAX_TAG_LENGTH {
            return Err(Malformed("too many tags, or too long ones"));
        }
        set.push((element.name.into(), value.into()));
    }
    Ok(set)
}

/// The tags of a member. Malformed ones count as none.
pub fn of_member(value: Value<'_>) -> TagSet {
    value.document().and_then(|tags| read(tags).ok()).unwrap_or_default()
}
