//! A short run of the example `kill9` against the real program: five kills under load.

#[allow(
    clippy::disallowed_methods,
    dead_code,
    reason = "shares its code with an example"
)]
#[path = "../../examples/kill9/storm.rs"]
mod storm;

use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_undone_is_done_over_five_kills() {
    let program = |profile: &str, data: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff-server"));
        command.args(["--profile", profile, "--data", data]);
        command.args(["--listen", "127.0.0.1:0", "--log", "error"]);
        command
    };
    let report = storm::run(5, 7, program, |_, _| {}).await;
    assert!(report.holds(), "{report}");
}

#[tokio::test]
async fn a_server_that_forgets_is_caught() {
    let program = |profile: &str, data: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff-server"));
        let elsewhere = format!("{data}-{}", uuid::Uuid::new_v4());
        command.args(["--profile", profile, "--data", &elsewhere]);
        command.args(["--listen", "127.0.0.1:0", "--log", "error"]);
        command
    };
    let report = storm::run(1, 2, program, |_, _| {}).await;
    assert!(
        !report.holds() && report.lost.len() == report.acknowledged,
        "{report}"
    );
}
