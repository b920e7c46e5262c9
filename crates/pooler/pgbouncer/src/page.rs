//! The table of docs/pgbouncer-settings.md: every setting of PgBouncer's manual, and what becomes of it.

use crate::{
    ini::SectionName,
    known::{Fate, Known, TomlKey, known},
};

const SECTIONS: [(&str, SectionName); 4] = [
    ("[pgbouncer]", SectionName::PgBouncer),
    ("[databases]", SectionName::Databases),
    ("[users]", SectionName::Users),
    ("[peers]", SectionName::Peers),
];

/// The names of the settings of a section (`[users]`), in the order of the table.
pub fn names(section: &str) -> Vec<&'static str> {
    let found = SECTIONS.iter().find(|(name, _)| *name == section);
    found.map(|(_, section)| known(*section).iter().map(|known| known.name).collect()).unwrap_or_default()
}

/// The table, in Markdown.
pub fn table() -> String {
    let all = || SECTIONS.iter().flat_map(|(_, section)| known(*section));
    let count = |wanted: fn(Fate) -> bool| all().filter(|known| wanted(known.fate)).count();
    let mut text = format!(
        "Of {} settings {} are the same, {} are different, {} are accepted without effect, and {} are refused.\n",
        all().count(),
        count(|fate| fate == Fate::Same),
        count(|fate| matches!(fate, Fate::Different(_))),
        count(|fate| matches!(fate, Fate::Accepted(_))),
        count(|fate| matches!(fate, Fate::Refused(_))),
    );
    for (title, section) in SECTIONS {
        text.push_str(&format!("\n| `{title}` | | in a `poolhouse.toml` |\n|-|-|-|\n"));
        for known in known(section) {
            text.push_str(&format!("| `{}` | {} | {} |\n", known.name, fate(known), keys(known.toml)));
        }
    }
    text
}

fn fate(known: &Known) -> String {
    match known.fate {
        Fate::Same => "same".to_owned(),
        Fate::Different(why) => format!("different because {why}"),
        Fate::Accepted(why) => format!("accepted, no effect because {why}"),
        Fate::Refused(why) => format!("refused because {why}"),
    }
}

fn keys(keys: &[TomlKey]) -> String {
    let show = |(section, key): &TomlKey| match *section {
        "url" => format!("`{key}` in the URL"),
        "listener" | "database" | "user" | "peer" => format!("`[[{section}]] {key}`"),
        _ => format!("`[{section}] {key}`"),
    };
    let shown: Vec<String> = keys.iter().map(show).collect();
    if shown.is_empty() { "–".to_owned() } else { shown.join(", ") }
}
