//! The prediction as an HTML page without external resources: settings, reasons, and charts of each simulation.

use ::report::html::{self, Notes, Part, Tile};

use crate::prediction::Prediction;

pub fn page(prediction: &Prediction) -> String {
    let notes = notes(prediction);
    let results = prediction.results();
    html::report(&[Part::Notes(&notes), Part::Runs(&results)])
}

fn notes(prediction: &Prediction) -> Notes {
    let answer = prediction.answer.iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let mut lists = vec![
        ("Answer".to_owned(), answer),
        (
            "Why".to_owned(),
            prediction.reasons.iter().map(|reason| format!("{}: {}", reason.about, reason.text)).collect(),
        ),
    ];
    if !prediction.assumed.is_empty() {
        lists.push(("Assumed".to_owned(), prediction.assumed.clone()));
    }
    let texts = prediction.fragments.iter().map(|fragment| (prediction.heading(fragment), fragment.text.clone()));
    Notes {
        title: format!("Plan: {}", prediction.name),
        tiles: tiles(prediction),
        warnings: prediction.warnings.clone(),
        lists,
        texts: texts.collect(),
    }
}

fn tiles(prediction: &Prediction) -> Vec<Tile> {
    let Some(settings) = &prediction.settings else { return Vec::new() };
    let bad = prediction.is_hopeless();
    let tile = |label, value: String, note: String| Tile { label, value, unit: "", note, bad };
    let time = |time: Option<std::time::Duration>| time.map_or("off".to_owned(), crate::words::time);
    let each =
        if settings.instances > 1 { format!("in each of {} instances", settings.instances) } else { String::new() };
    vec![
        tile(
            "Max size",
            settings.max_size.to_string(),
            if bad { "misses the objectives".to_owned() } else { each.clone() },
        ),
        tile("Min size", settings.min_size.to_string(), each),
        tile("Idle time", time(settings.max_idle_time), String::new()),
        tile("Life time", time(settings.max_life_time), String::new()),
        tile("Wait time", time(settings.max_wait_time), String::new()),
        tile("Connecting", settings.max_connecting.to_string(), "at a time".to_owned()),
    ]
}
