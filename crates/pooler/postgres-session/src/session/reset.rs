//! Requests that a server got in an amended form, and what their client is told of the answers.

use crate::{
    sql::{
        Tag,
        reset::{self, Amended},
    },
    wire::take_text,
};

/// Most portals, and most names of statements, that are remembered of one server.
const MAX_REMEMBERED: usize = 64;

/// Requests that a server got in an amended form.
#[derive(Default)]
pub(crate) struct AmendedRequests {
    /// An amended Query, which is the only request under way.
    query: Option<Amended>,
    /// Answers so far that were SET or RESET.
    answered: usize,
    /// Answers to statements of ours that come next.
    ours: u8,
    /// Portals of amended statements.
    portals: Vec<(Box<[u8]>, Tag)>,
    /// Names of statements that reset a parameter, in session mode, where statements are not followed otherwise.
    names: Vec<(Box<[u8]>, ResetEffect)>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct ResetEffect {
    /// The statement is amended, and its answer told as that of this tag.
    pub(crate) amended: Option<Tag>,
    /// A survey has to find out what the statement did.
    pub(crate) unclear: bool,
}

/// What the client receives in place of a CommandComplete.
pub(crate) enum ToldCompletion {
    Same,
    Nothing,
    As(Tag),
}

impl AmendedRequests {
    /// The only request under way is an amended Query.
    pub(crate) fn has_query(&self) -> bool {
        self.query.is_some()
    }

    /// An amended Query is forwarded, and nothing else is under way.
    pub(crate) fn begin_query(&mut self, query: Amended) {
        (self.query, self.answered, self.ours) = (Some(query), 0, 0);
    }

    /// The tag that the client is told for an Execute of this portal.
    pub(crate) fn tag_of(&self, portal: &[u8]) -> Option<Tag> {
        self.portals.iter().find(|(known, _)| **known == *portal).map(|(_, tag)| *tag)
    }

    /// Named statements are known that reset a parameter.
    pub(crate) fn has_named(&self) -> bool {
        !self.names.is_empty()
    }

    /// How the statement of this name resets a parameter.
    pub(crate) fn effect_of(&self, name: &[u8]) -> ResetEffect {
        let known = self.names.iter().find(|(known, _)| **known == *name);
        known.map(|(_, resetting)| *resetting).unwrap_or_default()
    }

    /// A Bind of this portal is forwarded, of a statement with this mark.
    pub(crate) fn note_bind(&mut self, portal: &[u8], mark: Option<Tag>) {
        self.portals.retain(|(known, _)| **known != *portal);
        if let Some(tag) = mark.filter(|_| self.portals.len() < MAX_REMEMBERED) {
            self.portals.push((portal.into(), tag));
        }
    }

    /// A Parse of this name is forwarded. The server may refuse or discard it and keep the former statement. So what is
    /// known of that stays, unless the new statement `may_be_taken` for it, or the former one is certainly replaced.
    pub(crate) fn note_parse(&mut self, name: &[u8], resetting: ResetEffect, may_be_taken: bool, is_replaced: bool) {
        if let Some((_, known)) = self.names.iter_mut().find(|(known, _)| **known == *name) {
            known.amended = if may_be_taken { resetting.amended } else { resetting.amended.or(known.amended) };
            known.unclear = resetting.unclear || (known.unclear && !is_replaced);
        } else if (resetting.unclear || resetting.amended.is_some()) && self.names.len() < MAX_REMEMBERED {
            self.names.push((name.into(), resetting));
        }
    }

    /// Takes the tag of a CommandComplete.
    pub(crate) fn translate_completion(&mut self, tag: &[u8]) -> ToldCompletion {
        let Some(query) = &self.query else { return ToldCompletion::Same };
        if let Some(tag) = reset::tag_of_amended(&query.text) {
            return ToldCompletion::As(tag);
        }
        if self.ours > 0 {
            self.ours -= 1;
            return ToldCompletion::Nothing;
        }
        if tag == b"SET\0" || tag == b"RESET\0" {
            self.ours = query.behind.get(self.answered).copied().unwrap_or_default();
            self.answered += 1;
        }
        ToldCompletion::Same
    }

    /// The body of an error with its position in the client's own text, if that differs.
    pub(crate) fn relocate(&self, body: &[u8]) -> Option<Vec<u8>> {
        let query = self.query.as_ref()?;
        let mut rest = body;
        while let Some((&field, mut after)) = rest.split_first().filter(|(field, _)| **field != 0) {
            let at = body.len() - after.len();
            let value = take_text(&mut after)?;
            if field == b'P' {
                let position: usize = std::str::from_utf8(value).ok()?.parse().ok()?;
                let own = query.original(position).to_string();
                return Some([&body[..at], own.as_bytes(), &body[at + value.len()..]].concat());
            }
            rest = after;
        }
        None
    }

    pub(crate) fn end_query(&mut self) {
        self.query = None;
    }
}
