//! The service's own words for its refusals, from the profile's file to a caller of the SDK (CLI-26).

use holdoff_contract::{Applied, Code};
use serde_json::json;

use crate::common::{Peer, send};

const WORDS: &str = r#"
[[refusals]]
code = "concurrency_limit"
status = [503]
header = { name = "x-error", value = "busy" }
body = { pointer = "/error/type", value = "busy" }
delay = { header = "x-wait", unit = "s" }
applied = "no"
"#;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[tokio::test]
async fn the_words_of_the_profiles_file_are_said_beside_the_contracts_and_read_back_by_them() {
    let words = file(WORDS);
    let peer = Peer::start(json!({"queue": 0, "server": {"vocabulary": words.path()}})).await;
    let held = peer.occupy().await;
    let answer = send(peer.work(1)).await;
    let contract = answer.overload();
    assert_eq!(
        (answer.header("x-error"), &answer.json()["error"]["type"]),
        ("busy", &json!("busy"))
    );
    assert_eq!(answer.header("x-wait"), answer.header("retry-after"));
    // A caller that knows these words alone reads the same refusal.
    let vocabulary: holdoff_contract::vocabulary::Vocabulary = toml::from_str(WORDS).unwrap();
    let mut headers = http::HeaderMap::new();
    for name in ["x-error", "x-wait"] {
        headers.insert(name, answer.headers[name].clone());
    }
    let options = holdoff_contract::read::ReadOptions {
        now: std::time::SystemTime::UNIX_EPOCH,
        compat: holdoff_contract::read::Compat::Off,
    };
    let body = json!({"error": answer.json()["error"]}).to_string();
    let read = vocabulary
        .head(answer.status, &headers, &options)
        .finish(Some(body.as_bytes()));
    let own = read.into_overload().expect("an overload");
    for overload in [&contract, &own] {
        assert_eq!(
            (&overload.code, overload.applied),
            (&Some(Code::ConcurrencyLimit), Applied::No)
        );
    }
    peer.fixtures.hold_workers(false);
    for done in held {
        assert_eq!(done.await.unwrap().status, 200);
    }
    peer.stop().await;
}

#[tokio::test]
async fn words_that_cannot_be_used_are_named_with_file_and_reason_and_the_server_does_not_start() {
    let unknown = WORDS.replace("[503]", "[200]");
    for (text, reason) in [
        (unknown.as_str(), "200"),
        ("[[refusal]]", "refusal"),
        ("=", "line 1, column 1"),
    ] {
        let words = file(text);
        let profile = json!({"server": {"vocabulary": words.path()}});
        let config = holdoff_server::ServerConfig::from_json(&profile).unwrap();
        let error = holdoff_server::Server::bind(config)
            .await
            .unwrap_err()
            .to_string();
        for word in ["server.vocabulary", words.path().to_str().unwrap(), reason] {
            assert!(error.contains(word), "{text}: {error} should say {word}");
        }
    }
}
