//! Prepared statements: a client finds its own on whichever server it gets, and no other client's. `unnamed` and
//! `named` follow them in its messages, `deallocate` answers DEALLOCATE, `replan` repeats a request whose table has
//! changed, and `told` sees to it that no server means something else by a statement than its client was told.

pub(crate) mod deallocate;
pub(crate) mod named;
pub(crate) mod replan;
pub(crate) mod told;
pub(crate) mod unnamed;
