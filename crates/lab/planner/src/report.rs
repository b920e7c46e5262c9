//! What people see of a prediction: text for a terminal, JSON, a page. Decides nothing.

pub mod page;
pub mod text;
