//! A model of a PostgreSQL backend, as far as the order of its answers goes: which message is answered by what, what
//! an error skips, what COPY IN swallows. What a statement does is told by its text.

#![allow(dead_code)]

use std::collections::{BTreeMap, btree_map::Entry};

/// The backend.
pub struct Backend {
    input: Vec<u8>,
    /// Sent by it and not delivered.
    pub output: Vec<u8>,
    status: u8,
    skipping: bool,
    copy: Option<Copy>,
    /// It has closed the connection.
    pub dead: bool,
    /// Messages of the extended protocol since the last Sync.
    unsynced: bool,
    /// Named statements and their texts.
    named: BTreeMap<String, String>,
    /// The text of the portal that was made of a named statement.
    portal: Option<String>,
}

#[derive(Clone, Copy)]
struct Copy {
    extended: bool,
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            input: Vec::new(),
            output: Vec::new(),
            status: b'I',
            skipping: false,
            copy: None,
            dead: false,
            unsynced: false,
            named: BTreeMap::new(),
            portal: None,
        }
    }
}

impl Backend {
    /// It waits for a first message: everything read, everything said, no transaction.
    pub fn is_pristine(&self) -> bool {
        self.input.is_empty()
            && self.output.is_empty()
            && self.status == b'I'
            && !self.skipping
            && !self.unsynced
            && self.copy.is_none()
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        if self.dead {
            return;
        }
        self.input.extend_from_slice(bytes);
        while !self.dead && self.input.len() >= 5 {
            let length = u32::from_be_bytes(self.input[1..5].try_into().unwrap()) as usize;
            if self.input.len() < 1 + length {
                break;
            }
            let message: Vec<u8> = self.input.drain(..1 + length).collect();
            self.handle(message[0], &message[5..]);
        }
    }

    fn say(&mut self, kind: u8, body: &[u8]) {
        self.output.push(kind);
        self.output.extend((body.len() as u32 + 4).to_be_bytes());
        self.output.extend(body);
    }

    fn ready(&mut self) {
        if self.status == b'I' {
            self.portal = None;
        }
        let status = self.status;
        self.say(b'Z', &[status]);
    }

    fn error(&mut self, extended: bool) {
        self.refuse("42601", "wrong", extended);
    }

    fn refuse(&mut self, code: &str, message: &str, extended: bool) {
        self.say(b'E', format!("SERROR\0VERROR\0C{code}\0M{message}\0\0").as_bytes());
        if self.status == b'T' {
            self.status = b'E';
        }
        self.copy = None;
        if extended {
            self.skipping = true;
        } else {
            self.ready();
        }
    }

    fn handle(&mut self, kind: u8, body: &[u8]) {
        if let Some(copy) = self.copy {
            return match kind {
                b'd' if body.starts_with(b"bad") => self.error(copy.extended),
                b'd' | b'H' | b'S' => {}
                b'c' => {
                    self.copy = None;
                    self.say(b'C', b"COPY 1\0");
                    if !copy.extended {
                        self.ready();
                    }
                }
                b'f' => self.error(copy.extended),
                _ => {
                    self.say(b'E', b"SFATAL\0VFATAL\0C08P01\0Mlost\0\0");
                    self.dead = true;
                }
            };
        }
        if self.skipping && kind != b'S' {
            return;
        }
        let text: String = body.iter().map(|&b| char::from(b)).filter(|c| c.is_ascii_alphabetic()).collect();
        match kind {
            b'Q' => {
                self.unsynced = false;
                self.named.remove("");
                self.statement(&text, false);
            }
            b'F' => {
                self.unsynced = false;
                self.say(b'V', &[0; 4]);
                self.ready();
            }
            b'S' => {
                self.skipping = false;
                self.unsynced = false;
                self.ready();
            }
            b'P' | b'B' | b'C' | b'D' | b'E' => {
                self.unsynced = true;
                if self.about_named(kind, body) {
                    return;
                }
                match kind {
                    _ if text == "err" => self.error(true),
                    b'P' => self.say(b'1', b""),
                    b'B' => self.say(b'2', b""),
                    b'C' => self.say(b'3', b""),
                    b'D' if text == "s" => {
                        self.say(b't', &[0; 2]);
                        self.say(b'T', &[0; 2]);
                    }
                    b'D' => self.say(b'n', b""),
                    _ => self.statement(&text, true),
                }
            }
            _ => {}
        }
    }

    /// Handles a message about a named statement, whose body is as PostgreSQL has it; false if it is another.
    fn about_named(&mut self, kind: u8, body: &[u8]) -> bool {
        let mut texts = body.split(|&byte| byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        if !body.contains(&0) {
            if kind == b'B' {
                self.portal = None;
            }
            return false;
        }
        if kind == b'D' && body[0] == b'P' {
            self.say(b'n', b"");
            return true;
        }
        let name = match kind {
            b'B' => texts.nth(1).unwrap_or_default(),
            b'D' | b'C' => texts.next().unwrap_or_default().get(1..).unwrap_or_default().to_owned(),
            b'P' => texts.next().unwrap_or_default(),
            _ => {
                match self.portal.clone() {
                    Some(text) => self.statement(&text, true),
                    None => self.refuse("34000", "no portal", true),
                }
                return true;
            }
        };
        if kind == b'C' {
            self.named.remove(&name);
            self.say(b'3', b"");
        } else if self.status == b'E' && !self.ends(kind, &name, texts.clone().next()) {
            self.refuse("25P02", "aborted", true);
        } else if kind == b'P' {
            let text = texts.next().unwrap_or_default();
            if text == "wrong" {
                self.error(true);
            } else if name.is_empty() {
                self.named.insert(name, text);
                self.say(b'1', b"");
            } else if let Entry::Vacant(place) = self.named.entry(name.clone()) {
                place.insert(text);
                self.say(b'1', b"");
            } else {
                self.refuse("42P05", &format!("prepared statement \"{name}\" already exists"), true);
            }
        } else if let Some(text) = self.named.get(&name) {
            if kind == b'B' {
                self.portal = Some(text.clone());
                self.say(b'2', b"");
            } else {
                self.say(b't', &[0; 2]);
                self.say(b'T', &[0; 2]);
            }
        } else {
            self.refuse("26000", &format!("prepared statement \"{name}\" does not exist"), true);
        }
        true
    }

    /// A message about a statement that ends a transaction, with the text of a Parse.
    fn ends(&self, kind: u8, name: &str, parsed: Option<String>) -> bool {
        let text = if kind == b'P' { parsed } else { self.named.get(name).cloned() };
        text.as_deref() == Some("end")
    }

    fn statement(&mut self, text: &str, extended: bool) {
        let text = &text.replace(' ', "");
        match text.as_str() {
            _ if text == "err" || (self.status == b'E' && text != "end") => return self.error(extended),
            "copy" => {
                self.say(b'G', &[0; 3]);
                self.copy = Some(Copy { extended });
                return;
            }
            // A trigger fails after CopyInResponse and before any data is read.
            "copytrigger" => {
                self.say(b'G', &[0; 3]);
                return self.error(extended);
            }
            "out" => {
                self.say(b'H', &[0; 3]);
                self.say(b'd', b"line");
                self.say(b'c', b"");
                self.say(b'C', b"COPY 1\0");
            }
            "begin" => {
                self.status = b'T';
                self.say(b'C', b"BEGIN\0");
            }
            "end" => {
                self.status = b'I';
                self.say(b'C', b"COMMIT\0");
            }
            "" | "empty" => self.say(b'I', b""),
            _ => {
                if !extended {
                    self.say(b'T', &[0; 2]);
                }
                self.say(b'D', text.repeat(50).as_bytes());
                self.say(b'N', b"SNOTICE\0\0");
                self.say(b'C', b"SELECT 1\0");
            }
        }
        if !extended {
            self.ready();
        }
    }
}
