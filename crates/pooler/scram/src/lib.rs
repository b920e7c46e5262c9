//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677) for both ends, and SCRAM-SHA-1 for clients: bytes in,
//! bytes out.
//!
//! It knows no connection, no protocol that carries the exchange and no source of randomness: nonces and secrets are
//! arguments. The stored form of a verifier is PostgreSQL's. No type here shows a secret in its `Debug` output.
#![forbid(unsafe_code)]

mod binding;
mod client;
mod crypto;
mod derivation;
mod login_keys;
mod message;
mod mock;
mod prepare;
mod server;
mod sha1;
mod verifier;

pub use binding::{ChannelBinding, Mechanism};
pub use client::{Client, KeyCache};
pub use crypto::equal;
pub use derivation::{Derivation, DerivationQueue, Hash};
pub use login_keys::LoginKeys;
pub use message::{BindingFlag, Error};
pub use mock::Mock;
pub use server::{Server, user_of};
pub use sha1::Sha1Client;
pub use verifier::{DEFAULT_ITERATIONS, MAX_ITERATIONS, Shape, Verifier, VerifierError, Verifiers};
