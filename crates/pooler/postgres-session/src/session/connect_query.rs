//! The operator's SQL for new servers, as one server has it. What is done about it is told in `login::connect_query`.

use std::sync::Arc;

/// The `connect_query` of one server.
pub(crate) struct ConnectQuery {
    sql: Option<Arc<str>>,
    /// It makes more than settings, such as temporary tables.
    makes_objects: bool,
}

impl ConnectQuery {
    pub(crate) fn new(sql: Option<Arc<str>>) -> Self {
        Self { sql, makes_objects: false }
    }

    pub(crate) fn sql(&self) -> Option<&Arc<str>> {
        self.sql.as_ref()
    }

    /// It was found to make more than settings.
    pub(crate) fn note_objects(&mut self) {
        self.makes_objects = true;
    }

    pub(crate) fn makes_objects(&self) -> bool {
        self.makes_objects
    }

    /// The SQL that has to run again after a cleaning.
    pub(crate) fn to_repeat(&self) -> Option<&Arc<str>> {
        self.sql.as_ref().filter(|_| self.makes_objects)
    }
}
