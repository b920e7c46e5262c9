//! Answers like a MongoDB that has nothing to do: `hello`, and one small document to everything else. For measuring
//! what lies between it and its clients (`make bench-mongodb`). A thread for each connection.
//!
//! `responder PORT`

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use mongodb_session::{
    bson::{Document, Value, Writer},
    wire::{self, Answers, Body, HEADER, Header, MAX_MESSAGE, Op},
};

/// Bytes of the document that is always found.
const VALUE: usize = 100;
/// A thread that only echoes needs little.
const STACK: usize = 128 * 1024;

fn main() -> io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("responder PORT");
    for connection in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let connection = connection?;
        connection.set_nodelay(true)?;
        thread::Builder::new().stack_size(STACK).spawn(move || serve(connection))?;
    }
    Ok(())
}

/// Until the other side ends it, or says what cannot be understood.
fn serve(mut connection: TcpStream) -> Option<()> {
    let (mut input, mut filled, mut out) = (vec![0; 16 * 1024], 0, Vec::new());
    loop {
        let read = connection.read(&mut input[filled..]).ok().filter(|read| *read > 0)?;
        filled += read;
        let mut at = 0;
        while let Some(header) = Header::read(&input[at..filled]) {
            let header = header.ok()?;
            if header.length > filled - at {
                input.resize(input.len().max(header.length.min(MAX_MESSAGE)), 0);
                break;
            }
            answer(&input[at..at + header.length], &header, &mut out)?;
            at += header.length;
        }
        input.copy_within(at..filled, 0);
        filled -= at;
        connection.write_all(&out).ok()?;
        out.clear();
    }
}

fn answer(message: &[u8], header: &Header, out: &mut Vec<u8>) -> Option<()> {
    let document = match header.op {
        Op::Query => wire::query(message).ok()?.1,
        Op::Msg => match wire::body(message, header).ok()? {
            Body::At(range) => Document::read(message.get(range)?).ok()?,
            Body::Needs(_) => return None,
        },
        _ => return None,
    };
    assert!(message.len() >= HEADER);
    let answers = Answers { id: header.id, old: header.op == Op::Query };
    let name = document.elements().next()?.ok()?.name;
    wire::answer(out, answers, |answer| match name {
        "isMaster" | "ismaster" | "hello" => hello(answer),
        "find" | "aggregate" => found(document, answer),
        _ => _ = answer.int32("n", 1).double("ok", 1.0),
    });
    Some(())
}

fn hello(answer: &mut Writer<'_>) {
    answer.bool("ismaster", true).bool("isWritablePrimary", true).bool("helloOk", true);
    answer.int32("maxBsonObjectSize", 16 << 20).int32("maxMessageSizeBytes", MAX_MESSAGE as i32);
    answer.int32("maxWriteBatchSize", 100_000).int32("logicalSessionTimeoutMinutes", 30);
    answer.int32("minWireVersion", 0).int32("maxWireVersion", 21).double("ok", 1.0);
}

fn found(command: Document<'_>, answer: &mut Writer<'_>) {
    let collection = command.elements().next().and_then(|first| first.ok()?.value().ok()?.text()).unwrap_or("");
    let database = command.get("$db").ok().flatten().and_then(Value::text).unwrap_or("");
    answer.document("cursor", |cursor| {
        cursor.array("firstBatch", |batch| {
            batch.document("0", |one| _ = one.int32("_id", 1).text("value", &"x".repeat(VALUE)));
        });
        cursor.int64("id", 0).text("ns", &format!("{database}.{collection}"));
    });
    answer.double("ok", 1.0);
}
