//! Dialogues between clients, Poolhouse and servers of PostgreSQL, in bytes: the real worker in a rig.

#[path = "dialogues/dedicated.rs"]
mod dedicated;
#[path = "dialogues/defaults.rs"]
mod defaults;
#[path = "dialogues/descriptions.rs"]
mod descriptions;
#[path = "dialogues/encryption.rs"]
mod encryption;
#[path = "dialogues/hostile.rs"]
mod hostile;
#[path = "dialogues/limits.rs"]
mod limits;
#[path = "dialogues/listeners.rs"]
mod listeners;
#[path = "dialogues/logins.rs"]
mod logins;
#[path = "dialogues/lookups.rs"]
mod lookups;
#[path = "dialogues/pins.rs"]
mod pins;
#[path = "dialogues/relay.rs"]
mod relay;
#[path = "dialogues/rules.rs"]
mod rules;
#[path = "dialogues/state.rs"]
mod state;
#[path = "dialogues/statements.rs"]
mod statements;
#[path = "dialogues/support.rs"]
mod support;
#[path = "dialogues/unnamed.rs"]
mod unnamed;
