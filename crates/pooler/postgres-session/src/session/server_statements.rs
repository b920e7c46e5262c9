//! The named prepared statements of one server: those of ours, those of its holder under names of its own, and the
//! portals that matter for either.

use std::sync::Arc;

use crate::{
    exchange::Exchange,
    session::{
        our_statements::{BoundLast, HolderNames, OurStatements},
        replan::RepeatableRequest,
        request::Arrived,
        statements::Statement,
    },
};

/// Most portals of a pipeline that are known to deallocate all statements.
const MAX_FORGETTING: usize = 64;

#[derive(Default)]
pub(crate) struct ServerStatements {
    /// Statements under names of ours, once there have been any.
    ours: Option<Box<OurStatements>>,
    /// Names that the holder has given to statements which it may have there.
    holder_names: HolderNames,
    /// The portal bound last, if a Describe of it may tell the client something new.
    bound_last: Option<Box<BoundLast>>,
    /// Portals of statements that deallocate all prepared statements.
    forgetting: Vec<Box<[u8]>>,
    /// The last request, if it may have to be repeated.
    replan: Option<Box<RepeatableRequest>>,
}

impl ServerStatements {
    /// A client is granted the server, which owes nothing.
    #[inline]
    pub(crate) fn begin_lease(&mut self) {
        self.forgetting = Vec::new();
        self.holder_names = HolderNames::default();
        self.bound_last = None;
        self.begin_transaction();
    }

    /// No transaction is open, and so no portal.
    #[inline]
    pub(crate) fn begin_transaction(&mut self) {
        if let Some(ours) = &mut self.ours {
            ours.begin_transaction();
        }
    }

    #[inline]
    pub(crate) fn end_pipeline(&mut self) {
        if let Some(ours) = &mut self.ours {
            ours.end_pipeline();
        }
    }
}

impl ServerStatements {
    pub(crate) fn ours(&self) -> Option<&OurStatements> {
        self.ours.as_deref()
    }

    pub(crate) fn ours_mut(&mut self) -> Option<&mut OurStatements> {
        self.ours.as_deref_mut()
    }

    pub(crate) fn ours_or_new(&mut self) -> &mut OurStatements {
        self.ours.get_or_insert_default()
    }

    /// The server was told to deallocate everything, outside of any transaction.
    pub(crate) fn drop_ours(&mut self) {
        (self.ours, self.bound_last) = (None, None);
    }

    /// A DEALLOCATE ALL or DISCARD ALL of the holder was answered.
    pub(crate) fn forget_all(&mut self) {
        if let Some(ours) = &mut self.ours {
            ours.clear();
        }
        self.holder_names = HolderNames::default();
    }

    /// A text may have deallocated any of our statements.
    pub(crate) fn doubt_all(&mut self) {
        if let Some(ours) = &mut self.ours {
            ours.doubt_all();
        }
    }
}

impl ServerStatements {
    /// A Parse is forwarded under the client's own name.
    pub(crate) fn note_holder_name(&mut self, name: &[u8]) {
        self.holder_names.add(name);
        self.ours_or_new().has_clients = true;
    }

    /// A Close of that name is forwarded.
    pub(crate) fn remove_holder_name(&mut self, name: &[u8]) {
        self.holder_names.remove(name);
    }

    /// The server may have a statement to which the holder gave this name.
    pub(crate) fn may_have_holder_name(&self, name: &[u8]) -> bool {
        self.holder_names.may_have(name)
    }

    /// A client may have parsed a statement under its own name since the statements were dropped last.
    pub(crate) fn may_have_clients(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| ours.has_clients)
    }
}

impl ServerStatements {
    pub(crate) fn note_bound_last(&mut self, bound: BoundLast) {
        self.bound_last = Some(Box::new(bound));
    }

    /// Takes what was bound last, if it is this portal.
    pub(crate) fn take_bound_last(&mut self, portal: Option<&[u8]>) -> Option<Box<BoundLast>> {
        self.bound_last.take_if(|last| portal == Some(&*last.portal))
    }

    #[inline]
    pub(crate) fn has_bound_last(&self) -> bool {
        self.bound_last.is_some()
    }

    #[inline]
    pub(crate) fn forget_bound_last(&mut self) {
        self.bound_last = None;
    }

    /// A Bind of this portal is forwarded; `forgets`: its statement deallocates all statements.
    #[inline]
    pub(crate) fn note_bound(&mut self, portal: impl FnOnce() -> Box<[u8]>, forgets: bool) {
        if forgets || self.has_deallocating() {
            let portal = portal();
            self.forgetting.retain(|known| *known != portal);
            if forgets && self.forgetting.len() < MAX_FORGETTING {
                self.forgetting.push(portal);
            }
        }
    }

    /// Portals are known that deallocate all statements.
    #[inline]
    pub(crate) fn has_deallocating(&self) -> bool {
        !self.forgetting.is_empty()
    }

    pub(crate) fn is_deallocating(&self, portal: &[u8]) -> bool {
        self.forgetting.iter().any(|known| **known == *portal)
    }
}

impl ServerStatements {
    pub(crate) fn keep_request(&mut self, exchange: &Exchange, statement: &Arc<Statement>, parts: [&[u8]; 4]) {
        RepeatableRequest::keep(&mut self.replan, exchange, statement, parts);
    }

    /// Follows a message of the client's, which may belong to the kept request.
    #[inline]
    pub(crate) fn follow_request(&mut self, message: &Arrived<'_>) {
        if let Some(replan) = &mut self.replan
            && replan.is_kept()
        {
            replan.follow(message);
        }
    }

    /// The server has refused the kept request, which is sent again once the server is ready: the client's next request
    /// waits, or it would be answered first.
    #[inline]
    pub(crate) fn is_about_to_repeat(&self) -> bool {
        self.replan.as_ref().is_some_and(|replan| replan.is_refused())
    }

    /// Decides whether the request is to be repeated in place of passing this error on.
    pub(crate) fn decide_repeat(&mut self, exchange: &Exchange, error: &[u8]) -> bool {
        self.replan.as_mut().is_some_and(|replan| replan.decide_repeat(exchange, error))
    }

    /// The request that is to be repeated, now that the server is ready.
    pub(crate) fn take_refused(&mut self) -> Option<Box<RepeatableRequest>> {
        self.replan.take_if(|replan| replan.is_refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::statements::tests::statements;

    #[test]
    fn a_describe_of_a_portal_finds_no_statement_that_was_dropped_since_its_bind() {
        let statement = statements(1).remove(0);
        let mut server = ServerStatements::default();
        server.ours_or_new().parse(&statement);
        server.note_bound_last(BoundLast { portal: Box::default(), name: Box::from(*b"s"), statement });
        server.drop_ours();
        assert!(server.take_bound_last(Some(b"")).is_none());
    }
}
