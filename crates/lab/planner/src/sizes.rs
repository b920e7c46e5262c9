//! The settings of a pool that are looked for.

use std::time::Duration;

/// Settings that are looked for; everything else is as given, or follows from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Sizes {
    /// Most connections of a pool.
    pub max_size: u32,
    /// Connections that are kept.
    pub min_size: u32,
    /// When an idle one is closed; null: never.
    #[serde(serialize_with = "seconds")]
    pub max_idle_time: Option<Duration>,
}

fn seconds<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&time.map(|time| time.as_secs_f64()), to)
}

impl Sizes {
    /// In words, with the times of the real service, of which a second of the simulation stands for so many.
    pub fn words(&self, compression: f64) -> String {
        let idle = self.max_idle_time.map_or("off".to_owned(), |time| crate::words::time(time.mul_f64(compression)));
        format!("max_size {}, min_size {}, max_idle_time {idle}", self.max_size, self.min_size)
    }
}
