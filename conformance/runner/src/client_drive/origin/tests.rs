//! The origin over real sockets.

use super::*;

fn step(status: u16, repeat: Repeat) -> Step {
    Step {
        status: Some(status),
        repeat,
        ..Step::default()
    }
}

#[test]
fn a_script_goes_step_by_step_and_ends_in_plain_successes() {
    let steps = Arc::new(vec![step(503, Repeat::Times(2)), step(429, Repeat::Times(1))]);
    let mut route = Route {
        steps,
        step: 0,
        used: 0,
    };
    let statuses: Vec<_> = (0..5).map(|_| route.next().status.unwrap()).collect();
    assert_eq!(statuses, [503, 503, 429, 200, 200]);
}

#[test]
fn a_step_that_repeats_forever_is_never_left() {
    let steps = Arc::new(vec![step(
        503,
        Repeat::Word(super::super::script::RepeatWord::Forever),
    )]);
    let mut route = Route {
        steps,
        step: 0,
        used: 0,
    };
    assert!((0..100).all(|_| route.next().status == Some(503)));
}

#[tokio::test]
async fn real_time_a_client_that_reads_nothing_takes_little_of_an_endless_body() {
    let origin = Origin::open(Duration::ZERO).unwrap();
    let endless = Step {
        endless: Some(Endless::Fast),
        ..step(503, Repeat::Times(1))
    };
    origin.route("/c/first-0".to_owned(), Arc::new(vec![endless]));
    let base = origin.base(Port::Main).trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(base).await.unwrap();
    let ask = b"GET /c/first-0 HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let taken = || origin.log().exchanges.first().map_or(0, |it| it.body_written);
    let mut before = 0;
    while before == 0 || taken() > before {
        before = taken();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(before < 1 << 20, "{before} bytes");
}

#[tokio::test]
async fn who_counts_from_an_answer_waits_for_it_and_gives_up_where_none_comes() {
    use tokio::io::AsyncReadExt as _;
    let origins = [Origin::open(Duration::ZERO).unwrap()];
    origins[0].route(
        "/c/first-0".to_owned(),
        Arc::new(vec![step(503, Repeat::Times(1))]),
    );
    let base = origins[0]
        .base(Port::Main)
        .trim_start_matches("http://")
        .to_owned();
    let asked = async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let asked = clock::now();
        let mut stream = TcpStream::connect(base).await.unwrap();
        let ask = b"GET /c/first-0 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        asked
    };
    let far = clock::now() + Duration::from_secs(10);
    let answer = crate::client_drive::first_answer(&origins, "/c/first-", far, || false);
    let (asked, answered) = tokio::join!(asked, answer);
    assert!(asked <= answered && answered < far);

    let soon = clock::now() + Duration::from_millis(20);
    let none = crate::client_drive::first_answer(&origins, "/c/second-", soon, || false).await;
    assert!(none >= soon);
    let over = crate::client_drive::first_answer(&origins, "/c/second-", far, || true).await;
    assert!(over < far);
}

/// Sends these bytes to a port of an origin that answers with a long reject, reads a part of the answer where there is one, and
/// resets the connection.
async fn strays_after_a_reset(sent: &[u8]) -> WireLog {
    use tokio::io::AsyncReadExt as _;
    let origin = Origin::open(Duration::ZERO).unwrap();
    let long = Step {
        text: Some("x".repeat(200_000)),
        ..step(503, Repeat::Times(1))
    };
    origin.route("/c/a".to_owned(), Arc::new(vec![long]));
    let place = origin.base(Port::Main).trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(place).await.unwrap();
    stream.write_all(sent).await.unwrap();
    if sent.ends_with(b"\r\n\r\n") {
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
    }
    // Closing with a part unread is what makes a reset of it; this makes sure.
    stream.set_zero_linger().unwrap();
    drop(stream);
    let until = clock::now() + Duration::from_secs(5);
    while origin.log().main.open > 0 || origin.log().main.accepted == 0 {
        assert!(clock::now() < until, "the connection is still open");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    origin.log()
}

#[tokio::test]
async fn a_connection_that_is_reset_after_an_answer_was_dropped_and_asked_for_nothing() {
    let log = strays_after_a_reset(b"GET /c/a HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!((log.exchanges.len(), log.told_strays()), (1, "none".to_owned()));
    let log = strays_after_a_reset(b"").await;
    assert_eq!((log.exchanges.len(), log.told_strays()), (0, "none".to_owned()));
}

#[tokio::test]
async fn a_request_that_breaks_off_is_told_with_its_cause_and_not_in_the_words_of_the_system_alone() {
    for (sent, part) in [
        (&b"GET /c/a HT"[..], "whose head broke off"),
        (
            b"POST /c/a HTTP/1.1\r\ncontent-length: 9\r\n\r\nhal",
            "whose body broke off",
        ),
        (
            b"POST /c/a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4",
            "whose chunked body broke off",
        ),
    ] {
        let told = strays_after_a_reset(sent).await.told_strays();
        assert!(
            told.contains(part) && told.contains("the client's side"),
            "{told}"
        );
    }
}

#[test]
fn what_is_seen_many_times_is_told_once_with_its_count() {
    let mut log = WireLog::default();
    for _ in 0..12 {
        log.stray("GET /favicon.ico".to_owned());
    }
    log.stray("GET /other".to_owned());
    assert_eq!(log.told_strays(), "12 x GET /favicon.ico; GET /other");
}
