//! The pool settings that the search varies.

use std::time::Duration;

/// All other settings stay as given, or follow by rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Sizes {
    pub max_size: u32,
    pub min_size: u32,
    #[serde(serialize_with = "seconds")]
    pub max_idle_time: Option<Duration>,
}

pub(crate) fn seconds<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&time.map(|time| time.as_secs_f64()), to)
}

impl Sizes {
    /// The settings for people, in the time of the real service.
    pub fn words(&self, compression: f64) -> String {
        let idle = self.max_idle_time.map_or("off".to_owned(), |time| crate::words::time(time.mul_f64(compression)));
        format!("max_size {}, min_size {}, max_idle_time {idle}", self.max_size, self.min_size)
    }
}
