//! `[freeze]`: when the process of the load is stopped and continued.

use arrivals::Window;
use settings::Section;

use crate::plan;

pub(super) const KEYS: &[&str] = &["first", "length", "every"];

pub(super) fn read(section: &Section<'_>) -> Option<Window> {
    if !section.has("length") {
        section.error("", "[freeze] needs a `length`: how long the process stands still");
    }
    let every = section.duration_on("every");
    plan::window(section.duration_on("first"), section.duration_on("length")?, every)
        .map_err(|message| section.error("every", message))
        .ok()
}
