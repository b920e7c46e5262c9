//! What a configuration for MongoDB cannot say.

use settings::Section;

use super::{Database, FALLBACK, Mode, redis::refuse_foreign};

/// A `[[database]]` of MongoDB: one deployment, whose databases have no rules of their own.
pub fn database(section: &Section<'_>, mut database: Database) -> Option<Database> {
    refuse_foreign(section, &["max_pinned"]);
    if section.has("name") && database.name != FALLBACK {
        section.error("name", "clients of MongoDB name a database in each command: leave `name` out");
        return None;
    }
    database.name = FALLBACK.to_owned();
    // What [pool] says of these is meant for the databases of PostgreSQL in the same file.
    (database.pool.mode, database.pool.connect_query) = (Mode::default(), None);
    Some(database)
}
