//! What the name of a run-time parameter tells of it: whether it can be written and taken as it stands, and what the
//! parameter rules. It knows no values and no session.

use crate::sql::harmless;

/// Longest name of a parameter that is noted.
pub(crate) const MAX_NAME: usize = 255;

/// Settings that change neither what a text means nor the types of its results.
const HARMLESS: [&str; 24] = [
    "application_name",
    "client_min_messages",
    "constraint_exclusion",
    "cursor_tuple_fraction",
    "deadlock_timeout",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_cache_size",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "jit",
    "lock_timeout",
    "log_min_duration_statement",
    "log_min_messages",
    "log_statement",
    "maintenance_work_mem",
    "plan_cache_mode",
    "random_page_cost",
    "statement_timeout",
    "synchronous_commit",
    "temp_buffers",
    "transaction_timeout",
    "work_mem",
];

/// Settings that rule what names mean, or who acts: PostgreSQL compares them before it reuses a plan.
const COMPARED: [&str; 8] = [
    "authorization",
    "characteristics",
    "client_encoding",
    "names",
    "role",
    "schema",
    "search_path",
    "session_authorization",
];

/// Settings that some users may set but not see.
const NOT_SHOWN: [&str; 3] = ["dynamic_library_path", "extension_control_path", "session_preload_libraries"];

/// Whether the server hides a parameter from most users.
pub(crate) fn is_hidden_setting(name: &[u8]) -> bool {
    NOT_SHOWN.iter().any(|hidden| is(name, hidden))
}

/// Whether a parameter may rule how constants are read.
pub(crate) fn rules_reading(name: &[u8]) -> bool {
    let known = name.contains(&b'.') || is_harmless(name);
    rules_function_compiling(name) || !known && !COMPARED.iter().any(|compared| is(name, compared))
}

/// Whether a parameter may rule how a session compiles a PL/pgSQL function, which it does once.
pub(crate) fn rules_function_compiling(name: &[u8]) -> bool {
    const OF_LANGUAGE: &[u8] = b"plpgsql.";
    let of_language = name.get(..OF_LANGUAGE.len()).is_some_and(|start| start.eq_ignore_ascii_case(OF_LANGUAGE));
    of_language || is(name, "standard_conforming_strings")
}

/// Whether a parameter changes neither what a text means nor the types of its results.
pub(crate) fn is_harmless(name: &[u8]) -> bool {
    HARMLESS.iter().any(|harmless| is(name, harmless)) || name.to_ascii_lowercase().starts_with(b"enable_")
}

/// Whether SET and RESET can name a parameter in any session: other bytes than ASCII differ by encoding, and long parts
/// are cut off.
pub(crate) fn can_be_named(name: &[u8]) -> bool {
    name.is_ascii() && name.split(|&byte| byte == b'.').all(|part| part.len() <= harmless::MAX_NAME)
}

/// Whether the name of a parameter can be taken as it stands: no part is doubled, escaped or continued.
pub(crate) fn is_verbatim(name: &[u8]) -> bool {
    name.len() <= MAX_NAME && may_be_name(name)
}

/// Whether a value of any length may be the name of a parameter.
pub(crate) fn may_be_name(value: &[u8]) -> bool {
    let of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$') || *byte >= 0x80;
    !value.is_empty() && value.iter().all(of_name)
}

fn is(word: &[u8], other: &str) -> bool {
    word.eq_ignore_ascii_case(other.as_bytes())
}
