//! What became of a command.

pub(super) enum Outcome {
    /// It was consumed.
    Taken,
    /// It stays in the input until something has happened.
    Waits,
}
