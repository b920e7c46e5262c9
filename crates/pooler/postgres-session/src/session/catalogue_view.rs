//! What one server's session has to do with the catalogue of its database, which all servers of the database share:
//! what was known of it when the holder got the server, and whether the open transaction changes it. What a catalogue
//! could do to sessions is told in `sql::catalogue`.

use std::sync::Arc;

use crate::sql::catalogue::{Assessment, Catalogue, Reading};

/// One server's view of its database's catalogue.
pub(crate) struct CatalogueView {
    shared: Arc<Catalogue>,
    /// What was known when the present holder got the server.
    at_grant: Assessment,
    /// Functions that the configuration calls harmless.
    trusted_functions: Arc<[String]>,
    /// The open transaction has run DDL.
    has_ddl: bool,
}

/// What a database's functions may have done to a session since it was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SinceGrant {
    /// They were known to be harmless all the time.
    Harmless,
    /// Some may have changed settings and the like.
    MayTouchState,
    /// Some may have prepared or deallocated statements, too.
    MayTouchStatements,
}

impl CatalogueView {
    pub(crate) fn new(shared: Arc<Catalogue>, trusted_functions: Arc<[String]>) -> Self {
        Self { at_grant: shared.assessment(), shared, trusted_functions, has_ddl: false }
    }

    /// What is known of the database, whichever server learned it.
    #[inline]
    pub(crate) fn shared(&self) -> &Catalogue {
        &self.shared
    }

    #[inline]
    pub(crate) fn begin_lease(&mut self) {
        self.at_grant = self.shared.assessment();
    }

    pub(crate) fn since_grant(&self) -> SinceGrant {
        let now = self.shared.assessment();
        match now == self.at_grant {
            true if now.is_clean() => SinceGrant::Harmless,
            true if !self.shared.prepares() => SinceGrant::MayTouchState,
            _ => SinceGrant::MayTouchStatements,
        }
    }

    /// A transaction runs DDL.
    pub(crate) fn begin_ddl(&mut self) {
        if !std::mem::replace(&mut self.has_ddl, true) {
            self.shared.begin_change();
        }
    }

    /// The transaction is over: its DDL holds for all sessions now, or was rolled back.
    pub(crate) fn end_ddl(&mut self) {
        if std::mem::take(&mut self.has_ddl) {
            self.shared.end_change();
        }
    }

    /// What the server is to be asked of its catalogue now, if anything.
    pub(crate) fn next_reading(&self) -> Option<Reading> {
        Catalogue::ask(&self.shared, self.trusted_functions.clone())
    }
}
