//! Made-up windows, one for each symptom, and healthy ones that resemble them: what is found, and what is not.

mod driver_files;
mod driver_leaks;
mod forecasts;
mod healthy;
mod mongodb;
mod outages;
mod pgbouncer;
mod pooler;
mod postgres;
mod random_load;
mod recordings;
mod redis;
mod scrapes;
mod support;
