//! The program: its exit codes, its words, its stop.

use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff-server"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

pub(crate) async fn output(args: &[&str]) -> Output {
    let run = program().args(args).output();
    tokio::time::timeout(Duration::from_secs(4), run)
        .await
        .expect("it ends")
        .unwrap()
}

pub(crate) fn profile(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Starts it on a free port and returns its address as it prints it.
pub(crate) async fn start(args: &[&str]) -> (Child, String) {
    let mut child = program()
        .args(["--listen", "127.0.0.1:0", "--log", "warn"])
        .args(args)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(Duration::from_secs(4), lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let url = line
        .strip_prefix("listening on ")
        .expect("it says where")
        .to_owned();
    (child, url)
}

async fn terminate(child: &Child) {
    let pid = child.id().expect("it runs").to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .await
            .unwrap()
            .success()
    );
}

#[tokio::test]
async fn sigterm_finishes_accepted_work_and_exits_with_0() {
    let (mut child, url) = start(&[]).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = serde_json::json!({"duration_ms": 400});
    let slow = tokio::spawn(client.post(format!("{url}/v1/work")).json(&body).send());
    // It runs once the gauges say so.
    for _ in 0..400 {
        let page = client
            .get(format!("{url}/metrics"))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        if page.contains("overload_workers_busy 1") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    terminate(&child).await;
    assert_eq!(
        slow.await.unwrap().unwrap().status(),
        200,
        "accepted work is finished"
    );
    let status = tokio::time::timeout(Duration::from_secs(4), child.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_does_not_wait_for_the_drain() {
    let (mut child, url) = start(&[]).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = serde_json::json!({"duration_ms": 60_000});
    let endless = client
        .post(format!("{url}/v1/work"))
        .header("overload-deadline-ms", "60000")
        .json(&body);
    let endless = tokio::spawn(endless.send());
    let until = async |words: &str, path: &str| {
        for _ in 0..400 {
            let page = client
                .get(format!("{url}{path}"))
                .send()
                .await
                .unwrap()
                .text()
                .await
                .unwrap();
            if page.contains(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{path} never said {words}");
    };
    until("overload_workers_busy 1", "/metrics").await;
    terminate(&child).await;
    until("draining", "/healthz").await;
    terminate(&child).await;
    let status = tokio::time::timeout(Duration::from_secs(2), child.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(endless.await.unwrap().is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn at_the_end_of_the_drain_every_call_is_answered_draining_and_the_program_ends() {
    let profile = profile(
        "workers: 1\nclasses: { t: { mean_ms: 1, p95_ms: 2, deadline_ms: 60000 } }\nserver: { drain_ms: 300 }\n",
    );
    let (mut child, url) = start(&["--profile", profile.path().to_str().unwrap()]).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = |ms: u64| {
        let body = serde_json::json!({"class": "t", "duration_ms": ms});
        tokio::spawn(client.post(format!("{url}/v1/work")).json(&body).send())
    };
    let begun = post(60_000);
    says(&url, "/metrics", "overload_workers_busy 1").await;
    // A class that is measured at 1 ms lets this one in behind it.
    let queued = post(1);
    says(&url, "/metrics", "overload_queue_depth{tier=\"deferrable\"} 1").await;
    // A third has sent its head and not its body.
    let mut slow = tokio::net::TcpStream::connect(url.trim_start_matches("http://"))
        .await
        .unwrap();
    let head =
        "POST /v1/work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    tokio::io::AsyncWriteExt::write_all(&mut slow, head.as_bytes())
        .await
        .unwrap();
    terminate(&child).await;
    for (call, applied) in [(begun, "maybe"), (queued, "no")] {
        let answer = call.await.unwrap().expect("an answer, not a reset");
        assert_eq!(answer.status(), 503);
        let signal = answer.headers()["overload-signal"].to_str().unwrap().to_owned();
        let words = format!("code=draining, retry=elsewhere, applied={applied}");
        assert!(signal.contains(&words), "{signal} should say {words}");
        let body: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(
            (&body["code"], &body["applied"]),
            (&"draining".into(), &applied.into())
        );
    }
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut slow, &mut answer)
        .await
        .unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("code=draining, retry=elsewhere, applied=no"),
        "{answer}"
    );
    let status = tokio::time::timeout(Duration::from_secs(4), child.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn metrics_can_have_a_listener_of_their_own() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let (child, url) = start(&["--metrics-listen", &free]).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let own = client.get(format!("http://{free}/metrics")).send().await.unwrap();
    assert!(
        own.text()
            .await
            .unwrap()
            .contains("agent_queue_estimated_work_seconds")
    );
    assert_eq!(
        client
            .get(format!("{url}/metrics"))
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    terminate(&child).await;
}

/// Waits until a page says so.
#[cfg(unix)]
async fn says(url: &str, path: &str, words: &str) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut page = String::new();
    for _ in 0..400 {
        page = client
            .get(format!("{url}{path}"))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        if page.contains(words) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{path} never said {words}: {page}");
}

#[cfg(unix)]
#[tokio::test]
async fn sighup_takes_a_new_profile_and_refuses_a_bad_one_with_file_key_value_and_limit() {
    let mut file = profile("workers: 3\n");
    let path = file.path().to_str().unwrap().to_owned();
    let (mut child, url) = start(&["--profile", &path]).await;
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut hangup = async |text: &str| {
        file.as_file_mut().set_len(0).unwrap();
        std::io::Seek::rewind(file.as_file_mut()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let pid = child.id().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args(["-HUP", &pid])
                .status()
                .await
                .unwrap()
                .success()
        );
    };
    says(&url, "/metrics", "overload_workers 3").await;
    hangup("workers: 5\nclasses: { new: { mean_ms: 5 } }\nanonymous: { tiers: [deferrable] }\n").await;
    says(&url, "/metrics", "overload_workers 5").await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let work = client
        .post(format!("{url}/v1/work"))
        .header("overload-tier", "non-sheddable");
    let answer = work
        .json(&serde_json::json!({"class": "new", "duration_ms": 1}))
        .send()
        .await
        .unwrap();
    let signal = answer.headers()["overload-signal"].to_str().unwrap().to_owned();
    assert!(signal.contains("tier=deferrable"), "new rights: {signal}");
    says(&url, "/metrics", "task_class=\"new\"").await;
    let mut next = async || {
        tokio::time::timeout(Duration::from_secs(4), log.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap()
    };
    let first = next().await;
    assert!(first.contains("no data directory"), "{first}");
    hangup("workers: 0\n").await;
    let said = next().await;
    for word in ["ERROR", &path, "workers is 0", "must be"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    hangup("workers: 6\nserver: { drain_ms: 77 }\n").await;
    let said = next().await;
    assert!(said.contains("WARN") && said.contains("next start"), "{said}");
    says(&url, "/metrics", "overload_workers 6").await;
}

/// A limit on the size of files, with the signal that goes with it ignored, is a full disk for this process.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_refuses_non_sheddable_tasks_and_loses_none_while_the_others_go_on() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().to_str().unwrap();
    let profile = profile("workers: 64\nclasses: { t: { mean_ms: 1, p95_ms: 2, deadline_ms: 60000 } }\n");
    let profile = profile.path().to_str().unwrap();
    let script = "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"";
    let args = [
        "--listen",
        "127.0.0.1:0",
        "--log",
        "warn",
        "--profile",
        profile,
        "--data",
        folder,
    ];
    let mut command = Command::new("bash");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_holdoff-server")])
        .args(args);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let line = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .next_line()
        .await
        .unwrap()
        .unwrap();
    let url = line.strip_prefix("listening on ").unwrap().to_owned();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    // The key makes the record large, so that the file is full soon.
    let submit = async |n: usize, tier: &str| {
        let task = serde_json::json!({"class": "t", "duration_ms": 1});
        let request = client
            .post(format!("{url}/v1/tasks"))
            .header("overload-tier", tier);
        let key = format!("\"{n}-{}\"", "k".repeat(240));
        request
            .header("idempotency-key", key)
            .json(&task)
            .send()
            .await
            .unwrap()
    };
    let mut kept = Vec::new();
    let refused = loop {
        let sent = kept.len();
        assert!(sent < 40_000, "the file never filled");
        let answers =
            futures_util::future::join_all((0..64).map(|n| submit(sent + n, "non-sheddable"))).await;
        let (taken, refused): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status() == 202);
        kept.extend(
            taken
                .iter()
                .map(|answer| answer.headers()["location"].to_str().unwrap().to_owned()),
        );
        if let Some(refused) = refused.into_iter().next() {
            break refused;
        }
    };
    assert_eq!(refused.status(), 503);
    let signal = refused.headers()["overload-signal"].to_str().unwrap();
    assert!(signal.contains("code=x_not_durable, retry=after"), "{signal}");
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(
        submit(99_999, "deferrable").await.status(),
        202,
        "the others go on"
    );
    says(&url, "/healthz", "\"journal\":\"failing\"").await;
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = log.next_line().await.unwrap().unwrap();
    assert!(said.contains("tasks.redb") && said.contains("full"), "{said}");
    child.kill().await.unwrap();
    let (_child, url) = start(&["--profile", profile, "--data", folder]).await;
    for location in &kept {
        let task = client.get(format!("{url}{location}")).send().await.unwrap();
        assert_eq!(task.status(), 200, "{location} is lost");
    }
    says(&url, "/healthz", "\"journal\":\"ok\"").await;
}
