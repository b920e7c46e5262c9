//! Scripts that hold commands of MongoDB.

use ::mongodb_session::bson::{Document, Value};

use super::*;

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Scripts, ScriptError> {
    let variables: Vec<_> = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Scripts::of_mongodb(&[(("x".to_owned(), text), 1)], &variables, 42)
}

fn words(document: Document<'_>) -> String {
    let one = |element: ::mongodb_session::bson::Element<'_>| {
        let value = match element.value().unwrap() {
            Value::Document(inner) => words(inner),
            Value::Array(inner) => format!("[{}]", words(inner)),
            other => format!("{other:?}"),
        };
        format!("{}={value}", element.name)
    };
    document.elements().map(|element| one(element.unwrap())).collect::<Vec<_>>().join(" ")
}

/// The commands of one operation.
fn of(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let scripts = read(text, variables).unwrap_or_else(|error| panic!("{error}"));
    let mut client = scripts.client(3);
    client.begin(&scripts);
    let mut asked = Vec::new();
    loop {
        match client.next(&scripts) {
            Step::Request(request) => {
                let mut written = Vec::new();
                client.write_document(&scripts, request, "app", &mut written).unwrap();
                asked.push(words(Document::read(&written).unwrap()));
            }
            Step::End => return asked,
            other => panic!("{other:?}"),
        }
    }
}

fn mistake(text: &str) -> String {
    read(text, &[]).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_document_keeps_its_order_and_its_types() {
    let text = r#"
        # a comment
        {"z": 1, "a": 5000000000, "d": 1.5, "t": true, "n": null,
         "list": [1, {"$numberLong": "7"}], "at": {"$date": 9}, "id": {"$oid": "0102030405060708090a0b0c"}}
        {"ping": 1, "$db": "admin"}
    "#;
    let told = of(text, &[]);
    assert_eq!(
        told[0],
        "z=Int32(1) a=Int64(5000000000) d=Double(1.5) t=Bool(true) n=Null list=[0=Int32(1) 1=Int64(7)] at=Time(9) \
         id=ObjectId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]) $db=Text(\"app\")"
    );
    assert_eq!(told[1], "ping=Int32(1) $db=Text(\"admin\")");
}

#[test]
fn variables_stand_for_values_and_in_strings() {
    let text =
        "\\set n 3 + 4\n{\"find\":\"c-:n-:other\",\"filter\":{\"_id\"::n,\"a\":[:n, :text ,:number]},\"ok\":true}";
    assert_eq!(
        of(text, &[("text", "it"), ("number", "12")]),
        ["find=Text(\"c-7-:other\") filter=_id=Int32(7) a=[0=Int32(7) 1=Text(\"it\") 2=Int32(12)] ok=Bool(true) \
             $db=Text(\"app\")"]
    );
}

#[test]
fn what_is_wrong_is_told_at_its_place() {
    for (text, words) in [
        ("{\"a\": 1", "no end"),
        ("PING", "such as {\"ping\": 1}"),
        ("{}", "has a name"),
        ("{\"a\" 1}", "no JSON"),
        ("{\"hello\": 1}", "every connection says it once"),
        ("{\"find\": \"c\", \"tailable\": true}", "tailable"),
        ("{\"find\": \"c\", \"lsid\": {}}", "session"),
        ("{\"a\": {\"$date\": \"now\"}}", "no $date"),
        ("{\"a\": {\"$oid\": \"+f+f+f+f+f+f+f+f+f+f+f+f\"}}", "no $oid"),
        ("{\"find\": \":quoted\", \"filter\": {\"_id\": :unset}}", "the variable :unset is used and never set"),
        ("{\"a\": {\"$uuid\": \"x\"}}", "not available"),
        ("{\"a\": 1}\n\\gset", "MongoDB gives none"),
        ("\\sleep 1", ""),
    ] {
        if words.is_empty() {
            assert!(read(text, &[]).is_ok());
        } else {
            let told = mistake(text);
            assert!(told.contains(words), "{text}: {told}");
        }
    }
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(200), "]".repeat(200));
    let told = mistake(&deep);
    assert!(told.contains("within one another") || told.contains("recursion"), "{told}");
}

#[test]
fn the_built_in_scripts_are_right() {
    for text in [MONGODB_PING, MONGODB_FIND_ONE, MONGODB_INSERT, MONGODB_UPDATE, MONGODB_AGGREGATE] {
        assert_eq!(of(text, &[("documents", "100"), ("value", "x")]).len(), 1);
    }
}
