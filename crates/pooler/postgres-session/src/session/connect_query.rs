//! The operator's SQL for new servers, as one server has it.

use std::sync::Arc;

pub(crate) struct ConnectQuery(Option<Box<Query>>);

struct Query {
    sql: Arc<str>,
    /// The SQL makes more than settings, such as temporary tables.
    makes_objects: bool,
}

impl ConnectQuery {
    pub(crate) fn new(sql: Option<Arc<str>>) -> Self {
        Self(sql.map(|sql| Box::new(Query { sql, makes_objects: false })))
    }

    pub(crate) fn sql(&self) -> Option<&Arc<str>> {
        self.0.as_ref().map(|query| &query.sql)
    }

    /// The SQL was found to make more than settings.
    pub(crate) fn note_objects(&mut self) {
        if let Some(query) = &mut self.0 {
            query.makes_objects = true;
        }
    }

    pub(crate) fn makes_objects(&self) -> bool {
        self.0.as_ref().is_some_and(|query| query.makes_objects)
    }

    /// The SQL, if it has to run again after a cleaning.
    pub(crate) fn to_repeat(&self) -> Option<&Arc<str>> {
        self.sql().filter(|_| self.makes_objects())
    }
}
