//! What a server is asked about its database's catalogue: all of it at once where it is small, otherwise by parts, each
//! of which takes the server some milliseconds. Whether anything has changed is told by a mark of all rows that matter,
//! which is computed once for a question.

use crate::sql::parameters::write_literal;

/// Extensions whose functions do harm only when called with certain arguments.
pub(super) const HARMFUL_IF_CALLED: &[&str] = &["dblink", "isn", "postgres_fdw", "tablefunc", "xml2"];

/// A table of the system catalogue, and which of its rows matter.
struct Table {
    name: &'static str,
    /// The column that numbers its rows.
    oid: &'static str,
    /// The condition of rows that matter.
    which: &'static str,
    /// Words for the place of a stored expression, and the expression.
    tree: Option<(&'static str, &'static str)>,
    /// Words for the place of named functions, and those functions.
    functions: Option<(&'static str, &'static str)>,
}

const fn of_trees(
    name: &'static str,
    oid: &'static str,
    which: &'static str,
    place: &'static str,
    tree: &'static str,
) -> Table {
    Table { name, oid, which, tree: Some((place, tree)), functions: None }
}

const fn of_functions(name: &'static str, oid: &'static str, place: &'static str, functions: &'static str) -> Table {
    Table { name, oid, which: "true", tree: None, functions: Some((place, functions)) }
}

/// The functions that an aggregate calls.
const OF_AGGREGATE: &str =
    "unnest(ARRAY[aggtransfn, aggfinalfn, aggcombinefn, aggmtransfn, aggminvtransfn, aggmfinalfn])::oid";

/// The table of functions and procedures.
const FUNCTIONS: &str = "pg_proc";

const AGGREGATES: &str = "pg_aggregate";

static TABLES: [Table; 15] = [
    of_trees("pg_statistic_ext", "oid", "stxexprs IS NOT NULL", "concat('statistics ', stxname)", "stxexprs::text"),
    of_trees(FUNCTIONS, "oid", "true", "concat('function ', proname)", "proargdefaults::text"),
    of_trees("pg_rewrite", "oid", "true", "concat('rule of ', ev_class::regclass)", "concat(ev_action, ev_qual)"),
    of_trees("pg_attrdef", "oid", "true", "concat('default in ', adrelid::regclass)", "adbin::text"),
    of_trees("pg_constraint", "oid", "conbin IS NOT NULL", "concat('constraint ', conname)", "conbin::text"),
    of_trees("pg_policy", "oid", "true", "concat('policy ', polname)", "concat(polqual, polwithcheck)"),
    of_trees("pg_trigger", "oid", "tgqual IS NOT NULL", "concat('trigger ', tgname)", "tgqual::text"),
    of_trees(
        "pg_index",
        "indexrelid",
        "(indexprs IS NOT NULL OR indpred IS NOT NULL)",
        "concat('index ', indexrelid::regclass)",
        "concat(indexprs, indpred)",
    ),
    of_trees("pg_type", "oid", "typdefaultbin IS NOT NULL", "concat('type ', typname)", "typdefaultbin::text"),
    of_trees(
        "pg_partitioned_table",
        "partrelid",
        "partexprs IS NOT NULL",
        "concat('partitions of ', partrelid::regclass)",
        "partexprs::text",
    ),
    of_functions("pg_operator", "oid", "concat('operator ', oprname)", "oprcode::oid"),
    of_functions("pg_cast", "oid", "concat('cast to ', casttarget::regtype)", "castfunc"),
    of_functions(AGGREGATES, "aggfnoid", "concat('aggregate ', aggfnoid)", OF_AGGREGATE),
    // Of these the functions are read, and what belongs to an extension.
    Table { name: "pg_event_trigger", oid: "oid", which: "true", tree: None, functions: None },
    Table { name: "pg_extension", oid: "oid", which: "true", tree: None, functions: None },
];

/// Most rows that are read in one query; a larger catalogue is read by parts.
pub(super) const MAX_AT_ONCE: usize = 3_000;

/// Most rows of a part: the server needs about ten milliseconds for them.
const MAX_OF_PART: usize = 400;

/// The position of a reading by parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    table: usize,
    /// The last row that was read.
    after: u32,
}

impl Part {
    pub(super) const FIRST: Self = Self { table: 0, after: FIRST_OWN - 1 };

    /// The next part, behind the row `last`, or in the next table without one. `None` after the last table.
    pub(super) fn next(self, last: Option<u32>) -> Option<Self> {
        let next = match last {
            Some(after) => Self { after, ..self },
            None => Self { table: self.table + 1, ..Self::FIRST },
        };
        (next.table < TABLES.len()).then_some(next)
    }
}

/// The lowest number of an object that did not come with PostgreSQL.
const FIRST_OWN: u32 = 16_384;

/// The query for the whole catalogue. Its rows have seven columns: a kind (`f` for a function, `t` of a trigger, `n` if
/// it can be called with one argument by notation), schema, name, language, source, SET clauses, extension. A call that
/// no source shows (`c`) has the caller's schema, the called name, and the caller's name as the source. The mark (`m`)
/// comes first, with the number of rows as the source: if these are too many, or if nothing has changed since `mark`,
/// the rest is not executed.
pub(super) fn question(version: u32, mark: &[u8]) -> Vec<u8> {
    // Each row's transaction and number, summed up: any change shows, but by a chance of one in millions.
    let marks: Vec<String> = TABLES
        .iter()
        .enumerate()
        .map(|(number, Table { name, oid, which, .. })| {
            format!(
                "SELECT {number} AS i, count(*) AS c, sum((xmin::text::bigint * 31 + {oid}::oid::bigint) % 1000003) \
                 AS s \
                 FROM {name} WHERE {oid}::oid >= {FIRST_OWN} AND {which}"
            )
        })
        .collect();
    let mut literal = Vec::new();
    write_literal(&mut literal, mark);
    let literal = String::from_utf8(literal).expect("a literal is ASCII");
    let mut sql = String::from(GUARD);
    sql.push_str(&format!(
        "WITH marks AS MATERIALIZED ({}), now AS MATERIALIZED (SELECT string_agg(concat(c, '.', s), ' ' ORDER BY i) \
         AS mark, sum(c) AS n FROM marks) \
         SELECT 'm', '', mark, '', n::text, set_config('poolhouse.reads', CASE WHEN mark <> {literal} AND n <= \
         {MAX_AT_ONCE} THEN 'on' ELSE 'off' END, true), '' \
         FROM now;",
        marks.join(" UNION ALL ")
    ));
    push_rows(&mut sql, version, &TABLES, |_| "current_setting('poolhouse.reads') = 'on'".to_owned());
    sql.push_str("COMMIT");
    sql.into_bytes()
}

/// The query for a part. Its rows are the same, but the first (`b`) names the last row that was read, if more may
/// follow.
pub(super) fn question_of_part(version: u32, part: Part) -> Vec<u8> {
    let Part { table, after } = part;
    let table = &TABLES[table];
    let Table { name, oid, which, .. } = table;
    let mut sql = String::from(GUARD);
    sql.push_str(&format!(
        "SELECT 'b', '', CASE WHEN count(*) = {MAX_OF_PART} THEN max(o)::text END, '', '', \
         set_config('poolhouse.last', coalesce(max(o), 0)::text, true), '' FROM \
         (SELECT {oid}::oid AS o FROM {name} WHERE {oid}::oid > {after} AND {which} ORDER BY {oid}::oid LIMIT \
         {MAX_OF_PART}) AS part;"
    ));
    let within = |oid: &str| format!("{oid} > {after} AND {oid} <= current_setting('poolhouse.last')::oid");
    push_rows(&mut sql, version, std::slice::from_ref(table), within);
    sql.push_str("COMMIT");
    sql.into_bytes()
}

/// Appends the statements that return the rows of these tables whose number fulfils a condition.
fn push_rows(sql: &mut String, version: u32, tables: &[Table], condition: impl Fn(&str) -> String) {
    let has = |name: &str| tables.iter().any(|table| table.name == name);
    let of_functions = has(FUNCTIONS).then(|| condition("p.oid"));
    let of_aggregates = has(AGGREGATES).then(|| condition("aggfnoid::oid"));
    sql.push_str(&of_functions.as_deref().map(functions).unwrap_or_default());
    push_calls(sql, version, of_functions.as_deref(), of_aggregates.as_deref());
    let (mut trees, mut called) = (Vec::new(), Vec::new());
    for table in tables {
        let Table { name, oid, which, .. } = table;
        let which = format!("{oid}::oid >= {FIRST_OWN} AND {which} AND {}", condition(&format!("{oid}::oid")));
        if let Some((place, tree)) = table.tree {
            trees.push(format!("SELECT {place}, {tree} FROM {name} AS p WHERE {which}"));
        }
        if let Some((place, functions)) = table.functions {
            called.push(format!("SELECT {place}, {functions} FROM {name} WHERE {which}"));
        }
        if *name == FUNCTIONS && version >= 14 {
            trees.push(format!(
                "SELECT concat('function ', proname), prosqlbody::text FROM pg_proc AS p WHERE {which} AND \
                 prosqlbody IS NOT NULL{ALL_BUT_XML2}"
            ));
        }
    }
    push_expressions(sql, &trees, &called);
}

fn functions(condition: &str) -> String {
    format!(
        "SELECT CASE WHEN p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype) THEN 't' \
         WHEN p.prokind = 'f' AND p.pronargs > 0 AND p.pronargs - p.pronargdefaults <= 1 THEN 'n' ELSE 'f' END, \
         n.nspname, p.proname, l.lanname, p.prosrc, array_to_string(p.proconfig, chr(10)), e.extname \
         FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_language AS l ON l.oid = p.prolang \
         LEFT JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' \
         LEFT JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid \
         WHERE p.oid >= {FIRST_OWN} AND p.prokind IN ('f', 'p', 'w') AND n.nspname !~ '^pg_temp' AND {condition};"
    )
}

/// Appends calls that no source shows.
fn push_calls(sql: &mut String, version: u32, of_functions: Option<&str>, of_aggregates: Option<&str>) {
    let bodies = if version >= 14 { "concat(prosqlbody, proargdefaults)" } else { "proargdefaults::text" };
    let functions = of_functions.map(|condition| {
        format!(
            "SELECT p.oid, (regexp_matches({bodies}, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g'))[1]::oid \
             FROM pg_proc AS p WHERE p.oid >= {FIRST_OWN} AND {condition}"
        )
    });
    let aggregates = of_aggregates.map(|condition| {
        format!(
            "SELECT aggfnoid::oid, {OF_AGGREGATE} FROM pg_aggregate WHERE aggfnoid::oid >= {FIRST_OWN} AND {condition}"
        )
    });
    let all: Vec<String> = functions.into_iter().chain(aggregates).collect();
    if !all.is_empty() {
        sql.push_str(&format!(
            "SELECT DISTINCT 'c', n.nspname, called.proname, '', p.proname, '', '' FROM ({}) AS c(caller, called) \
             JOIN pg_proc AS p ON p.oid = c.caller JOIN pg_namespace AS n ON n.oid = p.pronamespace \
             JOIN pg_proc AS called ON called.oid = c.called WHERE called.provolatile = 'v' OR called.oid >= \
             {FIRST_OWN};",
            all.join(" UNION ALL ")
        ));
    }
}

/// Appends calls by stored expressions, operators and the like.
fn push_expressions(sql: &mut String, trees: &[String], called: &[String]) {
    if trees.is_empty() && called.is_empty() {
        return;
    }
    let trees = if trees.is_empty() { "SELECT '', '' WHERE false".to_owned() } else { trees.join(" UNION ALL ") };
    let called: String = called.iter().map(|one| format!(" UNION ALL {one}")).collect();
    let extensions = HARMFUL_IF_CALLED.join("', '");
    sql.push_str(&format!(
        "WITH e(place, tree) AS MATERIALIZED ({trees}) SELECT 'x', '', p.proname, '', min(c.place), '', '' FROM \
         (SELECT DISTINCT place, (regexp_matches(tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', \
         'g'))[1]::oid FROM e{called}) \
         AS c(place, function) JOIN pg_proc AS p ON p.oid = c.function WHERE p.oid < {FIRST_OWN} OR p.proname = \
         'set_limit' OR EXISTS (SELECT FROM pg_depend AS d \
         JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid WHERE d.classid = \
         'pg_proc'::regclass \
         AND d.objid = p.oid AND d.deptype = 'e' AND e.extname IN ('{extensions}')) GROUP BY p.proname \
         UNION ALL SELECT 'x', '', 'an update of pg_settings', '', place, '', '' FROM e \
         WHERE tree ~ concat(':relid ', 'pg_settings'::regclass::oid, '\\M');"
    ));
}

/// Some functions of xml2 call C functions of the same name; from PostgreSQL 18 on, not by a text.
const ALL_BUT_XML2: &str = " AND NOT (proname IN ('xpath_list', 'xpath_nodeset') AND EXISTS (SELECT FROM pg_depend \
AS d \
    JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid WHERE d.classid = \
    'pg_proc'::regclass \
    AND d.objid = p.oid AND d.deptype = 'e' AND e.extname = 'xml2'))";

/// Makes what follows, up to COMMIT, independent of the session's settings. Its statements end within the usual
/// connect_time, after which the server would be given up.
const GUARD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE;SET LOCAL SESSION \
AUTHORIZATION DEFAULT;\
    SET LOCAL ROLE NONE;SET LOCAL search_path = pg_catalog, pg_temp;SET LOCAL statement_timeout = '1500ms';SET LOCAL \
    lock_timeout = '1s';\
    SET LOCAL jit = off;SET LOCAL standard_conforming_strings = on;SET LOCAL client_encoding = SQL_ASCII;";
