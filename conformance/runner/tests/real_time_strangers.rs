//! The runner against programs as strangers bring them: what is wrong with one is said in a sentence, with its last words, in
//! bounded time. Real processes, sockets and time.
#![expect(clippy::expect_used, reason = "a helper of a test that cannot go on says why")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Duration;

use holdoff_conformance::clock;

const HELLO: &str = r#"printf '{"id":"1","protocol":1,"role":"ROLE","implementation":{"name":"stranger","version":"0"},"contract_versions":[1],"capabilities":["force_reject"]}\n'"#;
/// What every program here says on its stderr before it goes wrong.
const LAST_WORDS: &str = "the pool has no connection left";

/// One call, and one question that takes no traffic.
const CASES: &str = "
schema: overload-cases/1
cases:
  - id: one
    title: An overload is waited out.
    requirements: [CLI-01]
    limit_ms: 2000
    client:
      calls:
        - script: [{reject: {code: queue_full, after: 60, max: 100}}, {status: 200}]
          expect: {requests: 2, result: {kind: response, status: 200}}
  - id: read
    title: A success is no overload.
    requirements: [CLI-01]
    limit_ms: 10000
    client:
      parse:
        - {status: 200, headers: [], now: 0, expect: {overload: false}}
";

struct Ran {
    code: Option<i32>,
    text: String,
    took: Duration,
}

fn runner(args: &[&str]) -> Ran {
    let begun = clock::now();
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_holdoff-conformance"))
        .args(args)
        .output()
        .expect("the runner starts");
    Ran {
        code: status.code(),
        text: String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr),
        took: clock::now().saturating_duration_since(begun),
    }
}

/// Judges a shell script in a role.
fn judged(role: &str, filter: &str, script: &str) -> Ran {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("adapter.sh");
    std::fs::write(&file, script).expect("the script is written");
    let adapter = format!("sh {}", file.display());
    let cases = dir.path().join("cases");
    std::fs::create_dir(&cases).expect("a directory");
    std::fs::write(cases.join("cases.yaml"), CASES).expect("the cases are written");
    let cases = cases.display().to_string();
    let mut args = vec![role, "--adapter", &adapter, "--filter", filter];
    if role == "client" {
        args.extend(["--cases", &cases]);
    }
    runner(&args)
}

/// A script that greets, says [`LAST_WORDS`], and then does `body`.
fn greets(role: &str, body: &str) -> String {
    let hello = HELLO.replace("ROLE", role);
    format!("read -r hello\n{hello}\necho '{LAST_WORDS}' >&2\n{body}\n")
}

#[track_caller]
fn says(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}", ran.text);
    for word in words {
        assert!(ran.text.contains(word), "{word:?} in:\n{}", ran.text);
    }
}

const ON: &str = "while read -r line; do :; done";

#[test]
fn a_greeting_that_is_none_is_shown_with_the_end_of_stderr() {
    let right = HELLO.replace("ROLE", "client");
    for (hello, why) in [
        (
            right.replace(r#""protocol":1"#, r#""protocol":7"#),
            "it speaks protocol 7",
        ),
        (
            right.replace(r#""role":"client""#, r#""role":"server""#),
            "its role is \"server\"",
        ),
        (right.replace(r#""protocol":1,"#, ""), "missing field `protocol`"),
        (right.replace("[1]", "[2]"), "contract_versions is [2]"),
    ] {
        let ran = judged(
            "client",
            "one",
            &format!("read -r hello\necho '{LAST_WORDS}' >&2\n{hello}\n{ON}\n"),
        );
        says(&ran, 2, &[why, LAST_WORDS]);
    }
}

#[test]
fn a_command_that_is_answered_with_an_error_or_without_a_result_is_shown_with_the_end_of_stderr() {
    let configured = r#"read -r line; printf '{"id":"2","ok":true}\n'"#;
    let call = |answer: &str| {
        format!(
            r#"{configured}
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":"\([0-9]*\)".*/\1/')
  case $line in
    *'"call"'*) printf '{{"id":"%s",{answer}}}\n' "$id" ;;
    *) printf '{{"id":"%s","error":"unknown_command"}}\n' "$id" ;;
  esac
done"#
        )
    };
    let refused = format!(r#"read -r line; printf '{{"id":"2","error":"no such knob"}}\n'; {ON}"#);
    for (body, why) in [
        (refused, "refused `configure`: no such knob"),
        (call(r#""error":"it would not""#), "refused `call`: it would not"),
        (call(r#""ok":true"#), "a reply to `call` without a `result`"),
    ] {
        says(
            &judged("client", "one", &greets("client", &body)),
            1,
            &[why, LAST_WORDS],
        );
    }
    let running = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", running.local_addr().expect("bound"));
    answer_all(running);
    let body = format!(
        r#"read -r line; printf '{{"id":"2","url":"{url}"}}\n'; read -r line; printf '{{"id":"3","error":"stuck"}}\n'; {ON}"#
    );
    let ran = judged("server", "SRV-12-no-store", &greets("server", &body));
    says(&ran, 1, &["refused `fixture`: stuck", LAST_WORDS]);
}

/// A port that is taken and where nobody listens: unlike a port that was let go, nobody else can get it meanwhile.
fn bound() -> (tokio::net::TcpSocket, std::net::SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let place = socket.local_addr().expect("bound");
    (socket, place)
}

/// Answers 404 to everything.
fn answer_all(listener: TcpListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
            let _ = stream.read(&mut [0_u8; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
}

#[test]
fn a_start_that_leads_nowhere_is_one_sentence_with_the_end_of_stderr() {
    let (_bound, closed) = bound();
    let nobody = format!(r#""url":"http://{closed}""#);
    for (answer, why) in [
        (r#""ok":true"#, "the answer to `start` has no url"),
        (r#""url":7"#, "7 is no text"),
        (r#""url":"nowhere""#, "nowhere cannot be probed"),
        (
            nobody.as_str(),
            "nobody listens at the url in the answer to `start`: cannot connect to",
        ),
    ] {
        let body = format!("read -r line; printf '%s\\n' '{{\"id\":\"2\",{answer}}}'; {ON}");
        let ran = judged("server", "PLAIN-rejects-are-whole", &greets("server", &body));
        says(&ran, 1, &[why, LAST_WORDS]);
        assert!(ran.text.matches("cannot connect").count() <= 1, "{}", ran.text);
    }
}

#[test]
fn a_call_whose_case_ran_out_of_time_names_the_limit_of_the_case() {
    let body = format!(r#"read -r line; printf '{{"id":"2","ok":true}}\n'; {ON}"#);
    let ran = judged("client", "one", &greets("client", &body));
    let why = "did not answer `call` before the time of the case ran out (its limit is 2000 ms)";
    says(&ran, 1, &[why, LAST_WORDS]);
}

/// A client that answers the one question of the case `read` rightly, and does this at `stop`.
fn ends(how: &str) -> Ran {
    let body = format!(
        r#"read -r line; printf '{{"id":"2","result":{{"overload":false}}}}\n'; read -r stop; {how}"#
    );
    judged("client", "read", &greets("client", &body))
}

#[test]
fn a_client_that_is_right_and_ends_badly_passes_with_a_warning_in_bounded_time() {
    let well = ends(r#"printf '{"id":"3","ok":true}\n'"#);
    says(&well, 0, &["conformant"]);
    assert!(!well.text.contains("warning:"), "{}", well.text);
    for (how, why) in [
        ("exit 3", "ended (exit status: 3) instead of answering `stop`"),
        (
            r#"printf '{"id":"3","ok":true}\n'; exit 3"#,
            "answered `stop`, but then ended with exit status: 3",
        ),
        ("kill -9 $$", "instead of answering `stop`"),
        ("cat > /dev/null", "did not answer `stop` within 3000 ms"),
        (
            r#"printf '{"id":"3","error":"busy"}\n'"#,
            "answered `stop` with the error \"busy\"",
        ),
        (
            r#"printf '{"id":"3","ok":true}\n'; exec sleep 60"#,
            "was still there 3000 ms later",
        ),
    ] {
        let ran = ends(how);
        says(&ran, 0, &["warning: the adapter ", why, LAST_WORDS]);
        assert!(ran.took < Duration::from_secs(12), "{how}: {:?}", ran.took);
    }
}

#[test]
fn a_program_that_ends_by_itself_between_two_cases_passes_with_a_warning() {
    let body = r#"read -r line; printf '{"id":"2","result":{"overload":false}}\n'; exit 0"#;
    let ran = judged("client", "read", &greets("client", body));
    says(
        &ran,
        0,
        &["warning: the adapter ended (exit status: 0)", "`stop`"],
    );
}

#[test]
fn a_server_that_listens_and_never_answers_is_known_after_one_look() {
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", deaf.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let held: Vec<_> = deaf.incoming().collect();
        drop(held);
    });
    let ran = runner(&["server", "--url", &url]);
    let why = "accepts connections and does not answer: nothing came to a plain GET within 10 s";
    says(&ran, 1, &[why, "NOT conformant"]);
    assert!(!ran.text.contains("0 of 0"), "{}", ran.text);
    assert!(ran.took < Duration::from_secs(30), "{:?}", ran.took);
}

#[test]
fn a_server_that_starts_beside_the_run_is_waited_for() {
    let (socket, place) = bound();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let listener = socket
                .listen(64)
                .expect("it listens")
                .into_std()
                .expect("a listener");
            listener.set_nonblocking(false).expect("it blocks");
            answer_all(listener);
        });
    });
    let ran = runner(&[
        "server",
        "--url",
        &format!("http://{place}"),
        "--filter",
        "PLAIN-odd-tiers",
    ]);
    says(&ran, 1, &["saw 0 of"]);
}
