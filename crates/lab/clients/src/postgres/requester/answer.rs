//! Reading the answer to one request, up to its ReadyForQuery, in whatever pieces it arrives. Rows are counted and
//! thrown away: only a message that the caller asked for is put together, and never more than a bound.

use std::fmt;

use postgres_session::{
    Fault,
    messages::{Failure, HEADER, Header, LARGE_LIMIT, back, take_text, take_u16, take_value},
};

/// Longest message that is put together: an error, or a row that the caller asked for.
const MAX_KEPT: u32 = 256 * 1024;
/// Bytes of all rows that are kept of one answer: their values, and of each the name of its column, which is kept with
/// it.
const MAX_KEPT_ROWS: usize = 32 * 1024 * 1024;
/// What a value that is kept takes besides its bytes and its column's name.
const VALUE: usize = size_of::<(Box<str>, Option<Box<str>>)>();
/// Longest text of an error that is kept.
const MAX_ERROR_TEXT: usize = 1000;
/// Columns of a row that is kept, as PostgreSQL has at most.
const MAX_COLUMNS: usize = 1664;

/// Columns of a row: name and value, `None` for NULL.
pub type Row = Vec<(Box<str>, Option<Box<str>>)>;

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Rows, of all statements together.
    pub rows: u64,
    pub error: Option<SqlError>,
    /// The state of the transaction after the request.
    pub status: TransactionStatus,
    /// The first rows of the last result, as many as were to be kept and fit into 32 MiB.
    pub kept: Vec<Row>,
    /// Rows of the last result that had any columns.
    pub last_rows: u64,
    /// A statement was prepared.
    pub(super) parsed: bool,
}

impl Answer {
    /// Rows of the last result that are not kept.
    pub fn rows_left_out(&self) -> u64 {
        self.last_rows.saturating_sub(self.kept.len() as u64)
    }

    /// The first row of the last result, if one was to be kept and there is one.
    pub fn row(&self) -> Option<&Row> {
        self.kept.first()
    }
}

/// Whether a transaction is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransactionStatus {
    #[default]
    Idle,
    Open,
    /// Yes, and it can only be rolled back.
    Failed,
}

/// An error of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlError {
    /// The SQLSTATE; `None` if the server gave none that could be one.
    pub code: Option<[u8; 5]>,
    /// The server closes the connection.
    pub fatal: bool,
    /// For people; shortened if it is long.
    pub message: Box<str>,
}

impl SqlError {
    /// From the body of an ErrorResponse.
    pub(super) fn read(body: &[u8]) -> Self {
        let mut failure = Failure::read(body);
        let code = failure.sqlstate();
        if let Some(end) = (0..=MAX_ERROR_TEXT).rev().find(|end| failure.message.is_char_boundary(*end)) {
            failure.message.truncate(end);
        }
        Self { code, fatal: failure.fatal, message: failure.message.into() }
    }

    /// The SQLSTATE as a text; `?????` where there is none.
    pub fn code(&self) -> &str {
        self.code.as_ref().map_or("?????", |code| std::str::from_utf8(code).expect("only ASCII is taken"))
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code())
    }
}

#[derive(Default)]
pub(super) struct Reader {
    /// Of the request under way, or the last one.
    pub(super) answer: Answer,
    /// Why the server closes the connection, if it has said so without a request.
    pub(super) farewell: Option<SqlError>,
    awaits_answer: bool,
    /// Rows of the last result that are kept at most.
    max_rows: usize,
    /// Bytes of the rows that are kept.
    kept_bytes: usize,
    /// Names of the columns of the result at hand.
    columns: Vec<Box<str>>,
    /// The beginning of a message that is not complete.
    partial: Vec<u8>,
    /// Bytes still to come that are of no interest.
    skip: usize,
}

impl Reader {
    /// A request is sent: an answer is due.
    pub(super) fn begin(&mut self) {
        assert!(!self.awaits_answer, "one request after the other");
        self.awaits_answer = true;
        (self.max_rows, self.kept_bytes) = (0, 0);
        let status = self.answer.status;
        self.answer = Answer { status, ..Answer::default() };
    }

    pub(super) fn keep_rows(&mut self, max_rows: usize) {
        assert!(self.awaits_answer, "a row belongs to a request");
        self.max_rows = max_rows;
    }

    pub(super) fn awaits_answer(&self) -> bool {
        self.awaits_answer
    }

    /// Takes input; true as soon as the request is answered.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Result<bool, Fault> {
        loop {
            if self.skip > 0 {
                let skipped = self.skip.min(input.len());
                *input = &input[skipped..];
                self.skip -= skipped;
                if self.skip > 0 {
                    return Ok(false);
                }
            }
            let answered = match self.partial.is_empty() {
                true => self.take_whole(input)?,
                false => self.take_piece(input)?,
            };
            match answered {
                Some(true) => return Ok(true),
                Some(false) => {}
                None => return Ok(false),
            }
        }
    }

    /// Looks at a message that begins with the input. `None`: it is not complete.
    fn take_whole(&mut self, input: &mut &[u8]) -> Result<Option<bool>, Fault> {
        let bytes = *input;
        let Some(header) = Header::read(bytes) else {
            self.partial.extend_from_slice(bytes);
            *input = &[];
            return Ok(None);
        };
        let total = self.check_length(header)?;
        if !self.is_assembled(header.kind) {
            self.note_type(header.kind)?;
            let here = total.min(bytes.len());
            *input = &bytes[here..];
            self.skip = total - here;
            return Ok(Some(false));
        }
        let Some(message) = bytes.get(..total) else {
            self.partial.extend_from_slice(bytes);
            *input = &[];
            return Ok(None);
        };
        *input = &bytes[total..];
        self.take_message(header.kind, &message[HEADER..]).map(Some)
    }

    /// The same for one whose beginning has come before.
    fn take_piece(&mut self, input: &mut &[u8]) -> Result<Option<bool>, Fault> {
        if !self.fill(input, HEADER) {
            return Ok(None);
        }
        let header = Header::read(&self.partial).expect("the header is complete");
        let total = self.check_length(header)?;
        if !self.is_assembled(header.kind) {
            self.note_type(header.kind)?;
            self.skip = total - self.partial.len();
            self.partial.clear();
            return Ok(Some(false));
        }
        if !self.fill(input, total) {
            return Ok(None);
        }
        let message = std::mem::take(&mut self.partial);
        self.take_message(header.kind, &message[HEADER..]).map(Some)
    }

    /// Puts input behind the beginning until that has `length` bytes; false if it has not.
    fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.partial.len()).min(input.len());
        self.partial.extend_from_slice(&input[..missing]);
        *input = &input[missing..];
        self.partial.len() >= wanted
    }

    /// Whether a message of this kind is put together, and not only noted.
    fn is_assembled(&self, kind: u8) -> bool {
        match kind {
            back::READY_FOR_QUERY | back::ERROR_RESPONSE => true,
            back::ROW_DESCRIPTION => self.max_rows > 0,
            back::DATA_ROW => self.answer.kept.len() < self.max_rows && self.kept_bytes < MAX_KEPT_ROWS,
            _ => false,
        }
    }

    /// The bytes of a message, if that can be.
    fn check_length(&self, header: Header) -> Result<usize, Fault> {
        let possible = match header.kind {
            back::READY_FOR_QUERY => header.length == 5,
            kind if self.is_assembled(kind) => (4..=MAX_KEPT).contains(&header.length),
            _ => (4..=LARGE_LIMIT).contains(&header.length),
        };
        match possible {
            true => Ok(header.total()),
            false => Err(Fault::violation(format!(
                "the server sent a message of type 0x{:02X} with {} bytes, which cannot be",
                header.kind, header.length
            ))),
        }
    }

    /// A message of which only the type is of interest.
    fn note_type(&mut self, kind: u8) -> Result<(), Fault> {
        match kind {
            back::NOTICE_RESPONSE | back::PARAMETER_STATUS | back::NOTIFICATION_RESPONSE => return Ok(()),
            _ if !self.awaits_answer => {}
            back::DATA_ROW => {
                self.answer.rows += 1;
                self.answer.last_rows += 1;
                return Ok(());
            }
            back::ROW_DESCRIPTION => {
                self.answer.last_rows = 0;
                return Ok(());
            }
            back::PARSE_COMPLETE => {
                self.answer.parsed = true;
                return Ok(());
            }
            back::COMMAND_COMPLETE
            | back::BIND_COMPLETE
            | back::CLOSE_COMPLETE
            | back::NO_DATA
            | back::EMPTY_QUERY_RESPONSE
            | back::PORTAL_SUSPENDED
            | back::PARAMETER_DESCRIPTION
            | back::COPY_OUT_RESPONSE
            | back::COPY_DATA
            | back::COPY_DONE => return Ok(()),
            back::COPY_IN_RESPONSE | back::COPY_BOTH_RESPONSE => {
                return Err(Fault::violation("COPY FROM STDIN cannot be used here: there is nothing to send"));
            }
            _ => {}
        }
        Err(Fault::violation(format!("the server sent a message of type 0x{kind:02X} out of turn")))
    }

    /// A whole message; true if it ends the answer.
    fn take_message(&mut self, kind: u8, body: &[u8]) -> Result<bool, Fault> {
        match kind {
            back::ERROR_RESPONSE => {
                match self.awaits_answer {
                    true if self.answer.error.is_some() => {}
                    true => self.answer.error = Some(SqlError::read(body)),
                    false => self.farewell = Some(SqlError::read(body)),
                }
                Ok(false)
            }
            back::READY_FOR_QUERY if !self.awaits_answer => {
                Err(Fault::violation("the server is ready without a request"))
            }
            back::READY_FOR_QUERY => {
                self.answer.status = match body {
                    b"I" => TransactionStatus::Idle,
                    b"T" => TransactionStatus::Open,
                    b"E" => TransactionStatus::Failed,
                    _ => return Err(Fault::violation("the server is ready in a state that there is not")),
                };
                self.awaits_answer = false;
                Ok(true)
            }
            back::ROW_DESCRIPTION => {
                self.note_type(kind)?;
                self.answer.kept.clear();
                self.kept_bytes = 0;
                self.columns = read_columns(body).ok_or_else(|| malformed("RowDescription"))?;
                Ok(false)
            }
            back::DATA_ROW => {
                self.note_type(kind)?;
                let values = read_values(body).ok_or_else(|| malformed("DataRow"))?;
                if values.len() != self.columns.len() {
                    return Err(Fault::violation("the server sent a row that does not fit its description"));
                }
                let names: usize = self.columns.iter().map(|name| name.len() + VALUE).sum();
                self.kept_bytes += body.len() + names;
                self.answer.kept.push(self.columns.iter().cloned().zip(values).collect());
                Ok(false)
            }
            kind => unreachable!("a message of type 0x{kind:02X} is not put together"),
        }
    }
}

fn malformed(what: &str) -> Fault {
    Fault::violation(format!("the server sent a malformed {what}"))
}

/// The names in a RowDescription.
fn read_columns(mut body: &[u8]) -> Option<Vec<Box<str>>> {
    let mut columns = Vec::new();
    for _ in 0..take_count(&mut body)? {
        columns.push(String::from_utf8_lossy(take_text(&mut body)?).into());
        // Table, attribute, type, its length and modifier, format.
        body = body.get(4 + 2 + 4 + 2 + 4 + 2..)?;
    }
    body.is_empty().then_some(columns)
}

/// The values in a DataRow.
fn read_values(mut body: &[u8]) -> Option<Vec<Option<Box<str>>>> {
    let mut values = Vec::new();
    for _ in 0..take_count(&mut body)? {
        values.push(take_value(&mut body)?.map(|value| String::from_utf8_lossy(value).into()));
    }
    body.is_empty().then_some(values)
}

fn take_count(body: &mut &[u8]) -> Option<usize> {
    take_u16(body).map(usize::from).filter(|count| *count <= MAX_COLUMNS)
}
