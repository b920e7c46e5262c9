//! What is wrong between clients, pools and a database: from looks at a running Poolhouse over some time, names symptoms with the evidence, the
//! rival cause that it rules out, and the setting to change. No I/O and no clock.
//!
//! ```text
//! window     looks over some time, and what they tell of each pool
//! symptoms   one file for each kind of trouble: what decides it
//! finding    what is said of a symptom: present, or undecided and what would decide it
//! diagnosis  all of that together, as text and as JSON
//! ```
#![forbid(unsafe_code)]

mod diagnosis;
mod finding;
mod symptoms;
mod window;

pub use diagnosis::{Diagnosis, examine};
pub use finding::{Finding, Setting, Symptom, Undecided};
pub use window::{Observation, Window};
