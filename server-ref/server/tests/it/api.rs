//! The API description says what is sent, and the checked-in one is the generated one.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::{Peer, send};

fn contract(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../conformance/contract")
        .join(file)
}

fn generated() -> Value {
    serde_json::to_value(holdoff_server::api::document()).unwrap()
}

const REGENERATE: &str = "UPDATE_OPENAPI=1 cargo test -p holdoff-server --test it the_checked_in_description";

#[test]
fn the_checked_in_description_is_the_generated_one() {
    let path = contract("openapi.yaml");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        let yaml = serde_saphyr::to_string(&generated()).unwrap();
        let head = format!(
            "# Made from server-ref/server/src/api.rs; do not edit. To make it anew:\n# {REGENERATE}\n"
        );
        std::fs::write(&path, head + &yaml).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let checked_in: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(checked_in, generated(), "differs; {REGENERATE}");
    assert_eq!(checked_in["openapi"], "3.1.0");
}

/// What the authority and the description both can say about a member.
fn said(schema: &Value) -> Value {
    // An inlined list of words beside a description stands alone in a list of its own.
    let schema = ["allOf", "oneOf"]
        .iter()
        .find_map(|key| schema[*key].get(0))
        .unwrap_or(schema);
    let mut said = json!({});
    for key in ["minimum", "maximum", "pattern", "minLength", "maxLength"] {
        if !schema[key].is_null() {
            said[key] = match schema[key].as_f64() {
                Some(number) => json!(number),
                None => schema[key].clone(),
            };
        }
    }
    if let Some(words) = schema["enum"]
        .as_array()
        .filter(|words| words.iter().all(Value::is_string))
    {
        said["enum"] = json!(words.iter().filter_map(Value::as_str).collect::<BTreeSet<_>>());
    }
    said
}

#[test]
fn the_described_body_agrees_with_the_schema_that_judges_it() {
    let text = std::fs::read_to_string(contract("overload.schema.json")).unwrap();
    let authority: Value = serde_json::from_str(&text).unwrap();
    let document = generated();
    let described = &document["components"]["schemas"]["Overload"];
    let names = |schema: &Value| -> BTreeSet<String> {
        schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(names(described), names(&authority));
    let required = |schema: &Value| -> BTreeSet<String> {
        let all = schema["required"].as_array().unwrap();
        all.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(required(described), required(&authority));
    for name in names(&authority) {
        let (is, ought) = (&described["properties"][&name], &authority["properties"][&name]);
        match name.as_str() {
            // A number with three values, one with one, and a list that grows: said in other words.
            "status" => assert_eq!(
                (said(is), &ought["enum"]),
                (
                    json!({"minimum": 429.0, "maximum": 504.0}),
                    &json!([429, 503, 504])
                )
            ),
            "contract_version" => assert_eq!(
                (said(is), &ought["const"]),
                (json!({"minimum": 1.0, "maximum": 1.0}), &json!(1))
            ),
            "code" => {
                for code in holdoff_contract::Code::REGISTERED {
                    let known = ought["anyOf"][0]["enum"].as_array().unwrap();
                    assert!(known.contains(&json!(code.as_str())), "{code}");
                }
            }
            _ => assert_eq!(said(is), said(ought), "{name}"),
        }
        if let Some(kind) = ought["type"].as_str() {
            assert_eq!(is["type"], kind, "{name}");
        }
    }
}

#[tokio::test]
async fn what_is_sent_has_the_members_and_fields_that_the_description_lists() {
    let peer = Peer::start(json!({"queue": 0})).await;
    let document = peer.get("/openapi.json").await.json();
    assert_eq!(document, generated());
    let members = |name: &str| document["components"]["schemas"][name]["properties"].clone();
    let covered = |name: &str, body: &Value| {
        for member in body.as_object().unwrap().keys() {
            assert!(!members(name)[member].is_null(), "{name} has no {member}");
        }
    };
    covered("Worked", &send(peer.work(1)).await.json());
    covered("Problem", &send(peer.post("/v1/work", &json!([]))).await.json());
    covered("Health", &peer.get("/healthz").await.json());
    let task = send(peer.post("/v1/tasks", &json!({"class": "t", "duration_ms": 1}))).await;
    covered("Accepted", &task.json());
    peer.until_empty().await;
    covered("TaskView", &peer.get(task.header("location")).await.json());
    let held = peer.occupy().await;
    let refused = send(peer.work(1)).await;
    covered("Overload", &refused.json());
    let response = &document["components"]["responses"]["ServiceUnavailable"];
    let listed: BTreeSet<String> = response["headers"]
        .as_object()
        .unwrap()
        .keys()
        .map(|name| name.to_lowercase())
        .collect();
    for name in &listed {
        assert!(
            refused.headers.contains_key(name.as_str()),
            "{name} is listed and not sent"
        );
    }
    let every_route = document["paths"].as_object().unwrap();
    for (path, item) in every_route
        .iter()
        .filter(|(path, _)| path.starts_with("/v1/") && !path.contains('{'))
    {
        for (method, operation) in item.as_object().unwrap() {
            for status in ["429", "503"] {
                let answer = &operation["responses"][status]["$ref"];
                assert!(answer.is_string(), "{method} {path} does not list {status}");
            }
        }
    }
    peer.fixtures.hold_workers(false);
    for done in held {
        done.await.unwrap();
    }
    peer.stop().await;
}
