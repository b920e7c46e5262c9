//! Whole dialogues between clients, Poolhouse and servers, in bytes.

#[path = "session/dialogues.rs"]
mod dialogues;
#[path = "session/encryption.rs"]
mod encryption;
#[path = "session/hostile.rs"]
mod hostile;
#[path = "session/listeners.rs"]
mod listeners;
#[path = "session/logins.rs"]
mod logins;
#[path = "session/lookups.rs"]
mod lookups;
#[path = "session/state.rs"]
mod state;
#[path = "session/statements.rs"]
mod statements;
#[path = "session/world.rs"]
mod world;
