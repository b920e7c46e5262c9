//! Random requests to PostgreSQL that touch no other client's objects, so that the reference knows every answer.

use crate::{product::checked_protocol::Request, random::Rng};

pub(super) struct Requests {
    number: usize,
    user: &'static str,
    pins: bool,
    /// It asks for replication, and so for a dedicated server.
    replicates: bool,
    /// Part of its name in the ledger. It changes after a fault, when the fate of its last rows is unknown.
    alias: u32,
    next_row: i64,
    value: u32,
    /// The transaction status after the last request.
    pub(super) status: u8,
    /// Its last request parsed the unnamed statement and did not bind it, so the pooler has to keep it.
    parsed: bool,
    /// Its rows that are in the ledger for certain.
    pub(super) acknowledged: Vec<i64>,
}

/// A message with its length in front.
pub(super) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind], &length[..], body].concat()
}

fn text(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| [part, &b"\0"[..]].concat()).collect()
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &text(&[sql.as_bytes()]))
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', &[text(&[name.as_bytes(), sql.as_bytes()]), vec![0, 0]].concat())
}

fn bind(portal: &str, name: &str, arguments: &[&str]) -> Vec<u8> {
    let mut body = text(&[portal.as_bytes(), name.as_bytes()]);
    body.extend([0, 0]);
    body.extend((arguments.len() as u16).to_be_bytes());
    for argument in arguments {
        body.extend((argument.len() as u32).to_be_bytes());
        body.extend(argument.as_bytes());
    }
    body.extend([0, 0]);
    message(b'B', &body)
}

fn execute(portal: &str, rows: u32) -> Vec<u8> {
    message(b'E', &[text(&[portal.as_bytes()]), rows.to_be_bytes().to_vec()].concat())
}

fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind][..], &text(&[name.as_bytes()])].concat())
}

fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind][..], &text(&[name.as_bytes()])].concat())
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

/// A statement by the extended protocol, without a Sync.
fn run(sql: &str, arguments: &[&str], described: bool) -> Vec<u8> {
    let describe = if described { describe(b'P', "") } else { Vec::new() };
    [parse("", sql), bind("", "", arguments), describe, execute("", 0)].concat()
}

impl Requests {
    pub(super) fn new(number: usize, user: &'static str, (pins, replicates): (bool, bool)) -> Self {
        Self {
            number,
            user,
            pins,
            replicates,
            alias: 0,
            next_row: 1,
            value: 0,
            status: b'I',
            parsed: false,
            acknowledged: Vec::new(),
        }
    }

    /// Its name in the ledger.
    pub(super) fn who(&self) -> String {
        format!("p{}x{}", self.number, self.alias)
    }

    pub(super) fn change_alias(&mut self) {
        self.alias += 1;
        self.acknowledged.clear();
    }

    /// The parameters of its next connection.
    pub(super) fn begin(&mut self, rng: &mut Rng) -> Vec<(String, String)> {
        (self.status, self.parsed) = (b'I', false);
        let mut parameters = vec![("user".into(), self.user.into()), ("database".into(), "sim".into())];
        if self.replicates {
            parameters.push(("replication".into(), "database".into()));
            return parameters;
        }
        if rng.percent(30) {
            parameters.push(("application_name".into(), format!("player {}", self.number)));
        }
        if rng.percent(20) {
            parameters.push(("options".into(), format!("-c app.tenant=start{}", self.number)));
        }
        parameters
    }

    pub(super) fn next(&mut self, rng: &mut Rng) -> Request {
        if rng.percent(if self.parsed { 60 } else { 4 }) {
            return one(self.draw_unnamed(rng));
        }
        self.parsed = false;
        if self.status != b'I' && rng.percent(if self.status == b'E' { 60 } else { 30 }) {
            return one(self.encode_statement(rng.pick(&["COMMIT", "COMMIT", "ROLLBACK"]), rng));
        }
        match rng.below(100) {
            0..=44 => {
                let sql = if self.status == b'I' { self.draw_sql(rng) } else { self.draw_sql_within_transaction(rng) };
                one(self.encode_statement(&sql, rng))
            }
            45..=54 => one(self.draw_insert(rng)),
            55..=66 => self.draw_prepared(rng),
            67..=71 => self.draw_pipeline(rng),
            72..=74 => self.draw_named_requests(rng),
            75 => self.draw_messages(rng),
            76..=78 => {
                // DISCARD ALL cannot run among other statements of a text.
                let several: Vec<String> =
                    (0..2 + rng.below(3)).map(|_| self.draw_sql_within_transaction(rng)).collect();
                one(query(&several.join("; ").replace("DISCARD ALL", "RESET ALL")))
            }
            79..=82 => self.draw_copy(rng),
            83..=86 => one(self.encode_statement("BEGIN", rng)),
            87..=89 => one(query("SELECT pg_sleep(0.003)")),
            90 => one(query("")),
            91..=93 => {
                let sql = self.draw_forgetting_sql(rng);
                one(self.encode_statement(&sql, rng))
            }
            _ if self.pins => {
                let sql = self.draw_pinning_sql(rng);
                one(self.encode_statement(&sql, rng))
            }
            _ => {
                let sql = self.draw_sql_within_transaction(rng);
                one(self.encode_statement(&sql, rng))
            }
        }
    }

    /// A statement, by the simple or the extended protocol.
    fn encode_statement(&mut self, sql: &str, rng: &mut Rng) -> Vec<u8> {
        if rng.percent(60) { query(sql) } else { [run(sql, &[], rng.percent(50)), sync()].concat() }
    }

    fn new_value(&mut self) -> u32 {
        self.value += 1;
        self.value
    }

    /// A statement that does not pin.
    fn draw_sql(&mut self, rng: &mut Rng) -> String {
        let name = rng.pick(&["app.tenant", "app.user", "application_name", "work_mem", "statement_timeout"]);
        let value = match name {
            "work_mem" => format!("{}MB", 4 + rng.below(3)),
            "statement_timeout" => format!("{}s", 500 + rng.below(3)),
            _ => format!("v{}of{}", self.new_value(), self.number),
        };
        let n = self.number;
        match rng.below(22) {
            0..=3 => format!("SET {name} = '{value}'"),
            4 => format!("SET LOCAL {name} = '{value}'"),
            5 => format!("RESET {name}"),
            6 => rng.pick(&["RESET ALL", "DISCARD ALL", "RESET ALL", "DEALLOCATE ALL"]).to_owned(),
            7 => format!("SELECT set_config('{name}', '{value}', {})", rng.pick(&["true", "false"])),
            8..=10 => format!("SELECT current_setting('{name}', true)"),
            11 => format!("SHOW {}", rng.pick(&["application_name", "work_mem", "statement_timeout"])),
            12..=13 => format!("SELECT count(*) FROM ledger WHERE who = '{}'", self.who()),
            14 => "SELECT 1/0".into(),
            15 => rng.pick(&["COMMIT", "ROLLBACK", "BEGIN"]).to_owned(),
            16 => format!("NOTIFY c{n}, 'n{}'", self.new_value()),
            17 => format!("LISTEN c{n}"),
            18 => format!("UNLISTEN {}", rng.pick(&["*", &format!("c{n}")])),
            19 => format!("SELECT pg_advisory_xact_lock({n})"),
            _ => format!("SELECT 'text {} of {n}'", self.new_value()),
        }
    }

    /// Draws a statement for a transaction that may fail, without LISTEN and UNLISTEN: the pooler assumes that the
    /// failure undoes any of these near it.
    fn draw_sql_within_transaction(&mut self, rng: &mut Rng) -> String {
        loop {
            let sql = self.draw_sql(rng);
            if !sql.starts_with("UNLISTEN") && !sql.starts_with("LISTEN") {
                return sql;
            }
        }
    }

    /// A statement that pins the client to its server.
    fn draw_pinning_sql(&mut self, rng: &mut Rng) -> String {
        let n = self.number;
        match rng.below(14) {
            0 | 1 => "CREATE TEMP TABLE t (v text)".into(),
            2 => "INSERT INTO t VALUES ('mine')".into(),
            3 => "SELECT count(*) FROM t".into(),
            4 => "DROP TABLE t".into(),
            5 => format!("SELECT pg_advisory_lock({n})"),
            6 => format!("SELECT pg_advisory_unlock({n})"),
            7 => format!("PREPARE q AS SELECT 'prepared {n}'"),
            8 => "EXECUTE q".into(),
            9 => "DEALLOCATE q".into(),
            10 => format!("DECLARE h CURSOR WITH HOLD FOR SELECT 'held {n}'"),
            11 => "FETCH h".into(),
            12 => "CLOSE h".into(),
            _ => "SELECT count(*) FROM t".into(),
        }
    }

    fn new_row(&mut self) -> i64 {
        self.next_row += 1;
        self.next_row - 1
    }

    fn draw_insert(&mut self, rng: &mut Rng) -> Vec<u8> {
        let (who, row) = (self.who(), self.new_row());
        if rng.percent(50) {
            return self.encode_statement(&format!("INSERT INTO ledger VALUES ('{who}', {row})"), rng);
        }
        [run("INSERT INTO ledger VALUES ($1, $2)", &[&who, &row.to_string()], false), sync()].concat()
    }

    fn draw_prepared(&mut self, rng: &mut Rng) -> Request {
        let name = rng.pick(&["a", "b"]);
        // The texts differ by name: with two names for one text, an error may quote either.
        let sql = match (rng.below(3), name) {
            (0, "a") => "SELECT $1",
            (0, _) => "SELECT $1 ",
            (1, "a") => "SELECT 'shared'",
            (1, _) => "SELECT 'other'",
            (_, "a") => "SELECT current_setting('app.tenant', true)",
            _ => "SELECT current_setting('app.user', true)",
        };
        let arguments: &[&str] = if rng.percent(50) { &["bound"] } else { &[] };
        let again = || [bind("", name, arguments), execute("", 0), sync()].concat();
        one(match rng.below(8) {
            0..=1 => [close(b'S', name), parse(name, sql), sync()].concat(),
            2 => [parse(name, sql), describe(b'S', name), sync()].concat(),
            3..=5 => again(),
            6 => [describe(b'S', name), sync()].concat(),
            _ => [close(b'S', name), sync()].concat(),
        })
    }

    /// Requests with the unnamed statement, some with an error before it is replaced.
    fn draw_unnamed(&mut self, rng: &mut Rng) -> Vec<u8> {
        let sql = rng.pick(&["SELECT $1", "SELECT 'first'", "SELECT 'second'"]);
        let arguments: &[&str] = if rng.percent(30) { &["bound"] } else { &[] };
        let fails = [bind("", "nosuch", &[]), execute("", 0)].concat();
        let (parts, parsed) = match rng.below(8) {
            0..=3 if self.parsed => ([bind("", "", arguments), execute("", 0)].concat(), false),
            4..=5 if self.parsed => ([fails, parse("", sql)].concat(), true),
            6 => ([parse("", sql), fails].concat(), true),
            _ => (parse("", sql), true),
        };
        self.parsed = parsed;
        [parts, sync()].concat()
    }

    /// A statement that removes prepared statements.
    fn draw_forgetting_sql(&mut self, rng: &mut Rng) -> String {
        rng.pick(&["DEALLOCATE a", "DEALLOCATE b", "DEALLOCATE ALL"]).to_owned()
    }

    /// Several requests with named statements up to one Sync, and perhaps a DEALLOCATE after it.
    fn draw_named_requests(&mut self, rng: &mut Rng) -> Request {
        let mut bytes = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let name = rng.pick(&["a", "b"]);
            let sql = if name == "a" { "SELECT 'shared'" } else { "SELECT 'other'" };
            bytes.extend(match rng.below(10) {
                0..=2 => parse(name, sql),
                3..=4 => [close(b'S', name), parse(name, sql)].concat(),
                5..=6 => [bind("", name, &[]), execute("", 0)].concat(),
                7 => describe(b'S', name),
                8 => run(&self.draw_forgetting_sql(rng), &[], false),
                _ => run("SELECT 1/0", &[], false),
            });
        }
        bytes.extend(sync());
        if rng.percent(40) {
            bytes.extend(query(&self.draw_forgetting_sql(rng)));
            return Request { bytes, answers: 2 };
        }
        one(bytes)
    }

    /// Several requests up to one Sync, some with an error in the middle.
    fn draw_pipeline(&mut self, rng: &mut Rng) -> Request {
        let mut bytes = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let sql = match rng.below(6) {
                0 => format!("INSERT INTO ledger VALUES ('{}', {})", self.who(), self.new_row()),
                1 => "SELECT 1/0".to_owned(),
                2 => rng.pick(&["BEGIN", "COMMIT"]).to_owned(),
                _ => self.draw_sql_within_transaction(rng),
            };
            bytes.extend(run(&sql, &[], rng.percent(30)));
            if sql == "DISCARD ALL" {
                // Statements after it in the same pipeline see the settings of the server's start, not the client's.
                bytes.extend(if rng.percent(50) { run("SELECT 1/0", &[], false) } else { Vec::new() });
                break;
            }
            if rng.percent(10) {
                bytes.extend(message(b'H', b""));
            }
        }
        bytes.extend(sync());
        if rng.percent(20) {
            bytes.extend(query("SELECT 'behind'"));
            return Request { bytes, answers: 2 };
        }
        one(bytes)
    }

    /// Messages in any order: PostgreSQL has an answer to all of them.
    fn draw_messages(&mut self, rng: &mut Rng) -> Request {
        let mut bytes = Vec::new();
        for _ in 0..2 + rng.below(14) {
            let (name, portal) = (rng.pick(&["a", "b"]), rng.pick(&["", "", "p"]));
            let sql = match rng.below(12) {
                0 => "BEGIN".to_owned(),
                1 | 2 => rng.pick(&["COMMIT", "ROLLBACK"]).to_owned(),
                3 => "SELECT 1/0".to_owned(),
                4 => format!("INSERT INTO ledger VALUES ('{}', {})", self.who(), self.new_row()),
                5 => format!("SELECT count(*) FROM ledger WHERE who = '{}'", self.who()),
                6 => "SELECT $1".to_owned(),
                7 => "rubbish".to_owned(),
                8 => String::new(),
                _ => format!("SELECT 'text {} of {}'", self.new_value(), self.number),
            };
            let arguments: &[&str] = if sql.contains("$1") { &["bound"] } else { &[] };
            // A named statement may be executed twice, so it inserts no row. The texts differ by name: with two names
            // for one text, an error may quote either.
            let named = if sql.starts_with("INSERT") { "SELECT 'named'" } else { &*sql };
            let named = if name == "a" { named.to_owned() } else { format!("{named} ") };
            bytes.extend(match rng.below(20) {
                0..=3 => query(&sql.replace("$1", "'none'")),
                4..=5 => parse(name, &named),
                6 => [parse(name, &named), bind(portal, name, arguments), execute(portal, 0)].concat(),
                // The pooler keeps the unnamed statement only for clients that use it at once.
                7..=8 => [parse("", &sql), bind(portal, "", arguments), execute(portal, 0)].concat(),
                9 => bind(portal, name, rng.pick(&[&[][..], &["bound"]])),
                10 => describe(b'P', portal),
                11..=12 => execute(portal, rng.below(2) as u32),
                13 => {
                    if rng.percent(50) {
                        close(b'S', name)
                    } else {
                        close(b'P', portal)
                    }
                }
                14 => message(b'H', b""),
                15 => [query("COPY ledger FROM STDIN"), self.new_copy_data()].concat(),
                16 => [run("COPY ledger FROM STDIN", &[], false), self.new_copy_data(), sync()].concat(),
                // Without a COPY these messages have no effect.
                17 => {
                    let (kind, body) = rng.pick(&[(b'd', &b"stray\n"[..]), (b'c', b""), (b'f', b"stray\0")]);
                    message(kind, body)
                }
                _ => sync(),
            });
        }
        bytes.extend(sync());
        // The state of the unnamed statement is unknown now.
        self.parsed = false;
        Request { bytes, answers: Request::AS_MANY_AS_COME }
    }

    /// A row for a COPY, and its end.
    fn new_copy_data(&mut self) -> Vec<u8> {
        let row = format!("{}\t{}\n", self.who(), self.new_row());
        [message(b'd', row.as_bytes()), message(b'c', b"")].concat()
    }

    /// Rows by COPY, some with errors.
    fn draw_copy(&mut self, rng: &mut Rng) -> Request {
        if rng.percent(20) {
            return one(query("COPY (SELECT 'out') TO STDOUT"));
        }
        let rows: String = (0..1 + rng.below(3)).map(|_| format!("{}\t{}\n", self.who(), self.new_row())).collect();
        let data = if rng.percent(20) { "rubbish\n".to_owned() } else { rows };
        let end = if rng.percent(15) { message(b'f', b"no\0") } else { message(b'c', b"") };
        let sql = "COPY ledger FROM STDIN";
        if rng.percent(60) {
            return one([query(sql), message(b'd', data.as_bytes()), end].concat());
        }
        let copy = [run(sql, &[], false), message(b'd', data.as_bytes()), end, sync()].concat();
        if rng.percent(20) {
            return Request { bytes: [copy, query(&self.draw_forgetting_sql(rng))].concat(), answers: 2 };
        }
        one(copy)
    }
}

fn one(bytes: Vec<u8>) -> Request {
    Request { bytes, answers: 1 }
}
