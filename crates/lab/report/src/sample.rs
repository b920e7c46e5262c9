//! A made-up result for tests, with a value in every field.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::result::{About, BenchResult, ConnectPhases, Connections, FORMAT, Measured, Percentiles, Second, Step};

/// Two steps with errors, drops and waits.
pub(crate) fn full(name: &str) -> BenchResult {
    let step = |name: &str, from_s| Step { name: name.to_owned(), from_s, measured: measured() };
    BenchResult {
        format: FORMAT,
        name: name.to_owned(),
        about: About {
            started: 1_795_327_845,
            seed: 7,
            shape: "open".to_owned(),
            load: "open loop, 100/s, then 300/s".to_owned(),
            asks: Some("order.sql, simple protocol".to_owned()),
            way: Some("answers 200ms late for 2s every 20s, first after 7s".to_owned()),
            scenario: Some("What the sample shows, and what to look at.".to_owned()),
            compression: Some(75.0),
            columns: vec!["done".to_owned()],
            doctor: vec!["it was healthy".to_owned()],
            pool: "max_size 20".to_owned(),
            target: "postgres://app@127.0.0.1/sample".to_owned(),
            server: Some("SampleSQL 1.0".to_owned()),
            version: "0.0.0".to_owned(),
            machine: "2 x a made-up processor".to_owned(),
            command: Some("poolhouse bench sample.toml".to_owned()),
        },
        total: measured(),
        steps: vec![step("100/s", 5.0), step("300/s", 35.0)],
        series: (0..65).map(second).collect(),
        error_texts: BTreeMap::from([("a made-up error (SQLSTATE 40001)".to_owned(), 3)]),
        interrupted: false,
        warnings: vec!["Something must be known.".to_owned()],
    }
}

fn measured() -> Measured {
    let counts = |list: &[(&str, u64)]| {
        list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<BTreeMap<_, _>>()
    };
    Measured {
        requests: 12_000,
        errors: counts(&[("check-out timeout", 12), ("sqlstate 40001", 3)]),
        dropped: 4,
        finished: 12_000,
        duration_s: 60.0,
        response_ms: Some(percentiles(2.0)),
        service_ms: Some(percentiles(1.0)),
        issue_ms: Some(percentiles(0.6)),
        pool_wait_ms: Some(percentiles(0.5)),
        front_wait_ms: None,
        connect_ms: ConnectPhases {
            tcp: Some(percentiles(0.1)),
            tls: Some(percentiles(2.0)),
            total: Some(percentiles(7.0)),
            ..ConnectPhases::default()
        },
        connections: Connections {
            created: 30,
            created_for: counts(&[("rotation", 10), ("burst", 20)]),
            closed: counts(&[("idle", 5)]),
            failed: counts(&[("connect refused", 2)]),
            most: 25,
            last: 20,
        },
        generator_cpu_s: Some(4.2),
    }
}

fn percentiles(scale: f64) -> Percentiles {
    let [min, mean, p50, p90, p95, p99, p999, max] =
        [0.5, 1.2, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0].map(|value| value * scale);
    Percentiles { count: 12_000, min, mean, p50, p90, p95, p99, p999, max, histogram: None }
}

fn second(at: u32) -> Second {
    Second {
        at_s: at.into(),
        arrived: 200,
        requests: 198,
        errors: 1,
        dropped: 1,
        p50_ms: Some(2.0),
        p99_ms: Some(9.0),
        max_ms: Some(20.0),
        connections: 20,
        in_use: 7,
        waiting: u32::from(at.is_multiple_of(10)),
        created: u32::from(at == 0) * 20,
    }
}

/// The names in the first column of the table below `<!-- fields:NAME -->` of a page of the documentation.
pub(crate) fn documented_fields(page: &str, name: &str) -> BTreeSet<String> {
    let path = format!("{}/../../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the page exists");
    let table = text.split(&format!("<!-- fields:{name} -->\n")).nth(1).unwrap_or_else(|| panic!("no table {name}"));
    let rows = table.lines().take_while(|line| line.starts_with('|')).filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().expect("a name").to_owned()).collect()
}

pub(crate) fn fields(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

#[test]
fn every_field_of_a_result_file_is_documented_and_no_other() {
    let documented = |name| documented_fields("measuring.md", name);
    let file = serde_json::to_value(full("a sample")).unwrap();
    let measured = serde_json::to_value(measured()).unwrap();
    assert_eq!(fields(&measured), documented("measured"));
    assert_eq!(&fields(&file) - &fields(&measured), documented("file"));
    assert_eq!(&fields(&file["steps"][0]) - &fields(&measured), documented("step"));
    for (value, name) in [
        (&file["about"], "about"),
        (&file["connect_ms"], "connect_ms"),
        (&file["connections"], "connections"),
        (&file["response_ms"], "percentiles"),
        (&file["series"][0], "second"),
    ] {
        assert_eq!(fields(value), documented(name), "{name}");
    }
}
