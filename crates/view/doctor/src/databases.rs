//! Examines databases other than PostgreSQL of which nothing is known but what they tell themselves.

use crate::{
    diagnosis::{Diagnosis, Source},
    mongodb::MongoWindow,
    redis::RedisWindow,
    symptoms,
};

/// Examines a MongoDB's window.
pub fn examine_mongodb(window: &MongoWindow) -> Diagnosis {
    let looked_at = match window.ends() {
        Some((_, last)) => {
            let mongos = if last.process.starts_with("mongos") { " (mongos)" } else { "" };
            format!("{} connections of MongoDB {}{mongos}", last.current, last.version)
        }
        None => "nothing".to_owned(),
    };
    let unseen = symptoms::mongodb::unseen(window);
    nothing(Source::MongoDb, looked_at, window.lasts().as_secs_f64(), unseen).with(symptoms::mongodb::examine(window))
}

/// Examines a Redis's window.
pub fn examine_redis(window: &RedisWindow) -> Diagnosis {
    let looked_at = match window.ends() {
        Some((_, last)) => format!("{} connections of Redis {}", last.connected, last.version),
        None => "nothing".to_owned(),
    };
    let unseen = symptoms::redis::unseen(window);
    nothing(Source::Redis, looked_at, window.lasts().as_secs_f64(), unseen).with(symptoms::redis::examine(window))
}

fn nothing(of: Source, looked_at: String, window_s: f64, unseen: Vec<String>) -> Diagnosis {
    Diagnosis {
        of,
        looked_at,
        window_s,
        pools: 0,
        is_quiet: false,
        findings: Vec::new(),
        undecided: Vec::new(),
        unseen,
    }
}
