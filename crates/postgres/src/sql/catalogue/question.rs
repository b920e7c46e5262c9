//! What a server is asked about its database's catalogue.

use crate::sql::parameters::write_literal;

/// Extensions whose functions do harm only if they are called with the wrong arguments: to have them does none.
pub(super) const TO_BE_CALLED: &[&str] = &["dblink", "isn", "postgres_fdw", "tablefunc", "xml2"];

/// Columns of stored expressions, with the words for where they are.
const EXPRESSIONS: [&str; 10] = [
    "SELECT concat('statistics ', stxname), stxexprs::text FROM pg_statistic_ext WHERE oid >= 16384 AND stxexprs IS NOT NULL",
    "SELECT concat('rule of ', ev_class::regclass), concat(ev_action, ev_qual) FROM pg_rewrite WHERE oid >= 16384",
    "SELECT concat('default in ', adrelid::regclass), adbin::text FROM pg_attrdef WHERE oid >= 16384",
    "SELECT concat('constraint ', conname), conbin::text FROM pg_constraint WHERE oid >= 16384 AND conbin IS NOT NULL",
    "SELECT concat('policy ', polname), concat(polqual, polwithcheck) FROM pg_policy WHERE oid >= 16384",
    "SELECT concat('trigger ', tgname), tgqual::text FROM pg_trigger WHERE oid >= 16384 AND tgqual IS NOT NULL",
    "SELECT concat('index ', indexrelid::regclass), concat(indexprs, indpred) FROM pg_index WHERE indexrelid >= 16384 \
     AND (indexprs IS NOT NULL OR indpred IS NOT NULL)",
    "SELECT concat('type ', typname), typdefaultbin::text FROM pg_type WHERE oid >= 16384 AND typdefaultbin IS NOT NULL",
    "SELECT concat('function ', proname), proargdefaults::text FROM pg_proc WHERE oid >= 16384 AND proargdefaults IS NOT NULL",
    "SELECT concat('partitions of ', partrelid::regclass), partexprs::text FROM pg_partitioned_table WHERE partexprs IS NOT NULL",
];

/// The functions that an aggregate calls.
const OF_AGGREGATE: &str = "ARRAY[aggtransfn, aggfinalfn, aggcombinefn, aggmtransfn, aggminvtransfn, aggmfinalfn]";

/// Catalogues whose rows matter, and the columns that name them.
const MARKED: [(&str, &str); 15] = [
    ("pg_statistic_ext", "oid"),
    ("pg_proc", "oid"),
    ("pg_rewrite", "oid"),
    ("pg_attrdef", "oid"),
    ("pg_constraint", "oid"),
    ("pg_policy", "oid"),
    ("pg_trigger", "oid"),
    ("pg_index", "indexrelid"),
    ("pg_type", "oid"),
    ("pg_operator", "oid"),
    ("pg_cast", "oid"),
    ("pg_aggregate", "aggfnoid"),
    ("pg_event_trigger", "oid"),
    ("pg_extension", "oid"),
    ("pg_partitioned_table", "partrelid"),
];

/// The SQL. Its rows have seven columns: what they are about (a function, `t` if it is a trigger's, `n` if it can be called with one
/// argument and so by notation), schema, name, language, source, SET clauses, extension. Of a function or an aggregate that calls another without
/// a source that says so (`c`): its schema, the other's name, and in the place of a source its own name.
pub(super) fn question(version: u32, mark: &[u8]) -> Vec<u8> {
    let mut sql = String::from(GUARD);
    // Each row's transaction and number, summed up: any change shows, but by a chance of one in millions.
    let marks: Vec<String> = MARKED
        .iter()
        .map(|(table, oid)| {
            format!(
                "(SELECT concat(count(*), '.', sum((xmin::text::bigint * 31 + {oid}::oid::bigint) % 1000003)) FROM {table} \
                 WHERE {oid}::oid >= 16384)"
            )
        })
        .collect();
    let current = format!("SELECT concat_ws(' ', {}) AS mark", marks.join(", "));
    sql.push_str(&format!("SELECT 'm', '', mark, '', '', '', '' FROM ({current}) AS now;"));
    // The rest is not executed where nothing has changed.
    let mut literal = Vec::new();
    write_literal(&mut literal, mark);
    let literal = String::from_utf8(literal).expect("a literal is ASCII");
    let changed = format!("(SELECT mark FROM ({current}) AS now) <> {literal}");
    sql.push_str(&format!(
        "SELECT CASE WHEN p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype) THEN 't' \
         WHEN p.prokind = 'f' AND p.pronargs > 0 AND p.pronargs - p.pronargdefaults <= 1 THEN 'n' ELSE 'f' END, n.nspname, p.proname, l.lanname, p.prosrc, array_to_string(p.proconfig, chr(10)), e.extname \
         FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_language AS l ON l.oid = p.prolang \
         LEFT JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' \
         LEFT JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid \
         WHERE p.oid >= 16384 AND p.prokind IN ('f', 'p', 'w') AND n.nspname !~ '^pg_temp' AND {changed};"
    ));
    let mut expressions = EXPRESSIONS.join(" UNION ALL ");
    if version >= 14 {
        expressions.push_str(
            " UNION ALL SELECT concat('function ', proname), prosqlbody::text FROM pg_proc AS p WHERE oid >= 16384 AND prosqlbody IS NOT NULL",
        );
        expressions.push_str(ALL_BUT_XML2);
    }
    let bodies = if version >= 14 { "concat(prosqlbody, proargdefaults)" } else { "proargdefaults::text" };
    sql.push_str(&format!(
        "SELECT DISTINCT 'c', n.nspname, called.proname, '', p.proname, '', '' FROM \
         (SELECT oid, (regexp_matches({bodies}, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g'))[1]::oid \
         FROM pg_proc WHERE oid >= 16384 AND {changed} \
         UNION ALL SELECT aggfnoid, unnest({OF_AGGREGATE})::oid FROM pg_aggregate WHERE aggfnoid::oid >= 16384 AND {changed}) \
         AS c(caller, called) JOIN pg_proc AS p ON p.oid = c.caller JOIN pg_namespace AS n ON n.oid = p.pronamespace \
         JOIN pg_proc AS called ON called.oid = c.called WHERE called.provolatile = 'v' OR called.oid >= 16384;"
    ));
    let extensions = TO_BE_CALLED.join("', '");
    sql.push_str(&format!(
        "WITH e(place, tree) AS MATERIALIZED (SELECT * FROM ({expressions}) AS all_of_them WHERE {changed}) \
         SELECT 'x', '', p.proname, '', min(c.place), '', '' FROM \
         (SELECT DISTINCT place, (regexp_matches(tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g'))[1]::oid FROM e \
         UNION ALL SELECT concat('operator ', oprname), oprcode::oid FROM pg_operator WHERE oid >= 16384 AND {changed} \
         UNION ALL SELECT concat('cast to ', casttarget::regtype), castfunc FROM pg_cast WHERE oid >= 16384 AND {changed} \
         UNION ALL SELECT concat('aggregate ', aggfnoid), unnest({OF_AGGREGATE})::oid FROM pg_aggregate WHERE aggfnoid::oid >= 16384 AND {changed}) \
         AS c(place, function) JOIN pg_proc AS p ON p.oid = c.function WHERE p.oid < 16384 OR p.proname = 'set_limit' OR EXISTS (SELECT FROM pg_depend AS d \
         JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid WHERE d.classid = 'pg_proc'::regclass \
         AND d.objid = p.oid AND d.deptype = 'e' AND e.extname IN ('{extensions}')) GROUP BY p.proname \
         UNION ALL SELECT 'x', '', 'an update of pg_settings', '', place, '', '' FROM e \
         WHERE tree ~ concat(':relid ', 'pg_settings'::regclass::oid, '\\M');COMMIT"
    ));
    sql.into_bytes()
}

/// Of xml2, some functions call others in C that are called the same; from PostgreSQL 18 on, not by a text.
const ALL_BUT_XML2: &str = " AND NOT (proname IN ('xpath_list', 'xpath_nodeset') AND EXISTS (SELECT FROM pg_depend AS d \
    JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid WHERE d.classid = 'pg_proc'::regclass \
    AND d.objid = p.oid AND d.deptype = 'e' AND e.extname = 'xml2'))";

/// Whatever the session has set does not matter to what follows, up to COMMIT. Its statements end within the usual connect_time, after which the
/// server would be given up.
const GUARD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE;SET LOCAL SESSION AUTHORIZATION DEFAULT;\
    SET LOCAL ROLE NONE;SET LOCAL search_path = pg_catalog, pg_temp;SET LOCAL statement_timeout = '1500ms';SET LOCAL lock_timeout = '1s';\
    SET LOCAL jit = off;SET LOCAL standard_conforming_strings = on;SET LOCAL client_encoding = SQL_ASCII;";
