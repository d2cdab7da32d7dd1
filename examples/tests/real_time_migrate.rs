//! The migration example does what it says: nobody who moved comes back early. (The program fails where one does.)

use std::process::Command;

#[test]
fn after_the_move_nobody_comes_back_early() {
    let output = Command::new(env!("CARGO_BIN_EXE_migrate"))
        .args(["--callers", "10"])
        .output()
        .expect("the program was built with its test");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let after: Vec<&str> = said.lines().filter(|line| line.contains("after: ")).collect();
    assert!(after.len() >= 2, "{said}");
    assert!(after.iter().all(|line| line.contains("0 of 10")), "{said}");
}
