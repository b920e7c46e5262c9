//! Prepared statements: a client finds its own on whichever server it gets, and none of anybody else's. `unnamed` and `named` follow them
//! in its messages, `deallocate` answers DEALLOCATE, and `replan` repeats a request whose table has changed.

pub(crate) mod deallocate;
pub(crate) mod named;
pub(crate) mod replan;
pub(crate) mod unnamed;
