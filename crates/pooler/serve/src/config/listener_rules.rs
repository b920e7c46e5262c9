//! The keys of a listener about what clients of PostgreSQL may send, and what they are told.

use postgres_session::ListenerRules;
use settings::Section;

/// Keys of `[[listener]]`.
pub const RULE_KEYS: &[&str] = &[
    "max_message_size",
    "refuse_simple_queries",
    "wait_notice_time",
    "login_notice",
    "allow_startup_parameters",
    "ignore_startup_parameters",
];

/// Shortest `max_message_size`: most answers that no application limits itself must pass.
const MIN_MESSAGE_SIZE: u32 = 1024;

/// Longest message of the protocol.
const MAX_MESSAGE_SIZE: u32 = i32::MAX as u32;

/// Longest text that clients are told at their login, in bytes.
const MAX_NOTICE: usize = 1000;

pub fn listener_rules(section: &Section<'_>) -> ListenerRules {
    let login_notice = section.string("login_notice").filter(|notice| !notice.is_empty());
    if login_notice.as_ref().is_some_and(|notice| notice.len() > MAX_NOTICE || notice.contains('\0')) {
        section.error("login_notice", format!("`login_notice`: this must be a text of at most {MAX_NOTICE} bytes"));
    }
    ListenerRules {
        max_message_size: section.number("max_message_size", MIN_MESSAGE_SIZE..=MAX_MESSAGE_SIZE),
        refuse_simple_queries: section.truth("refuse_simple_queries").unwrap_or(false),
        wait_notice_time: section.duration("wait_notice_time").flatten(),
        login_notice: login_notice.map(Into::into),
        allowed_parameters: section.texts("allow_startup_parameters").map(Into::into),
        ignored_parameters: section.texts("ignore_startup_parameters").unwrap_or_default().into(),
    }
}

/// Reports these keys in the section of a listener whose clients do not speak PostgreSQL's protocol.
pub fn refuse_keys(section: &Section<'_>) {
    for key in RULE_KEYS.iter().filter(|key| section.has(key)) {
        section.error(key, format!("`{key}` is for listeners of PostgreSQL"));
    }
}
