//! Messages of clients, and their sections.

use mongodb_session::{
    bson::{Document, Malformed, length},
    wire::{self, Answers, CHECKSUM_PRESENT, HEADER, Header, MORE_TO_COME, Op},
};

pub enum Next {
    Incomplete,
    /// With its length.
    Whole(usize),
    Malformed,
}

pub struct Request<'a> {
    pub answers: Answers,
    pub silent: bool,
    pub body: Document<'a>,
    /// Documents in other sections, with the names of these.
    pub beside: Vec<(&'a str, Document<'a>)>,
}

pub fn next(bytes: &[u8]) -> Next {
    match Header::read(bytes) {
        None => Next::Incomplete,
        Some(Err(_)) => Next::Malformed,
        Some(Ok(header)) if header.length <= bytes.len() => Next::Whole(header.length),
        Some(Ok(_)) => Next::Incomplete,
    }
}

impl<'a> Request<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let header = Header::read(message).ok_or(Malformed("no message"))??;
        let answers = Answers { id: header.id, old: header.op == Op::Query };
        match header.op {
            Op::Query => {
                let (_, body) = wire::query(message)?;
                Ok(Self { answers, silent: false, body, beside: Vec::new() })
            }
            Op::Msg => {
                let flags = wire::flags(message).ok_or(Malformed("no flags"))?;
                if flags & 0xffff & !MORE_TO_COME != 0 {
                    return Err(Malformed(if flags & CHECKSUM_PRESENT != 0 {
                        "a checksum"
                    } else {
                        "an unknown flag"
                    }));
                }
                let (body, beside) = sections(&message[HEADER + 4..])?;
                Ok(Self { answers, silent: flags & MORE_TO_COME != 0, body, beside })
            }
            _ => Err(Malformed("an opcode of old")),
        }
    }
}

/// The body, and the documents of other sections with the names of these.
type Sections<'a> = (Document<'a>, Vec<(&'a str, Document<'a>)>);

fn sections(mut bytes: &[u8]) -> Result<Sections<'_>, Malformed> {
    let (mut body, mut beside) = (None, Vec::new());
    while let Some((kind, rest)) = bytes.split_first() {
        match kind {
            0 if body.is_none() => {
                let (document, behind) = Document::split(rest)?;
                (body, bytes) = (Some(document), behind);
            }
            1 => {
                let length = length(rest).filter(|length| (5..=rest.len()).contains(length));
                let (section, behind) = rest.split_at(length.ok_or(Malformed("a section's length"))?);
                let name = section[4..].iter().position(|byte| *byte == 0).ok_or(Malformed("a section's name"))?;
                let (name, mut documents) = section[4..].split_at(name);
                let name = std::str::from_utf8(name).map_err(|_| Malformed("a section's name"))?;
                documents = &documents[1..];
                while !documents.is_empty() {
                    let (document, behind) = Document::split(documents)?;
                    beside.push((name, document));
                    documents = behind;
                }
                bytes = behind;
            }
            _ => return Err(Malformed("a section's kind")),
        }
    }
    Ok((body.ok_or(Malformed("no body"))?, beside))
}
