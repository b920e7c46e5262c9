//! One server's view of its database's catalogue, which all servers of the database share: the assessment at the grant,
//! and DDL of the open transaction. `sql::catalogue` tells what a catalogue could do to sessions.

use std::sync::Arc;

use crate::sql::{Catalogue, Reading, catalogue::Assessment};

/// One server's view of its database's catalogue.
pub(crate) struct CatalogueView {
    shared: Arc<Catalogue>,
    /// The assessment when the present holder was granted the server.
    at_grant: Assessment,
    /// Functions that the configuration calls harmless.
    trusted_functions: Arc<[String]>,
    /// The open transaction has run DDL.
    has_ddl: bool,
}

/// What functions of a database may have done to a session since its server was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SinceGrant {
    /// All functions were known to be harmless all the time.
    Harmless,
    /// Some may have changed settings and the like.
    MayTouchState,
    /// Some may also have prepared or deallocated statements.
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

    pub(crate) fn begin_ddl(&mut self) {
        if !std::mem::replace(&mut self.has_ddl, true) {
            self.shared.begin_change();
        }
    }

    /// The transaction has ended: its DDL holds for all sessions now, or was rolled back.
    pub(crate) fn end_ddl(&mut self) {
        if std::mem::take(&mut self.has_ddl) {
            self.shared.end_change();
        }
    }

    /// What the server is to be asked about its catalogue now, if anything.
    pub(crate) fn next_reading(&self) -> Option<Reading> {
        Catalogue::begin_reading(&self.shared, self.trusted_functions.clone())
    }
}
