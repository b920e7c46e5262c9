//! The operator's SQL for new servers, as one server has it. What is done about it is told in `login::connect_query`.

use std::sync::Arc;

/// The `connect_query` of one server. Few have one, so it is in a box.
pub(crate) struct ConnectQuery(Option<Box<Query>>);

struct Query {
    sql: Arc<str>,
    /// It makes more than settings, such as temporary tables.
    makes_objects: bool,
}

impl ConnectQuery {
    pub(crate) fn new(sql: Option<Arc<str>>) -> Self {
        Self(sql.map(|sql| Box::new(Query { sql, makes_objects: false })))
    }

    pub(crate) fn sql(&self) -> Option<&Arc<str>> {
        self.0.as_ref().map(|query| &query.sql)
    }

    /// It was found to make more than settings.
    pub(crate) fn note_objects(&mut self) {
        if let Some(query) = &mut self.0 {
            query.makes_objects = true;
        }
    }

    pub(crate) fn makes_objects(&self) -> bool {
        self.0.as_ref().is_some_and(|query| query.makes_objects)
    }

    /// The SQL that has to run again after a cleaning.
    pub(crate) fn to_repeat(&self) -> Option<&Arc<str>> {
        self.sql().filter(|_| self.makes_objects())
    }
}
