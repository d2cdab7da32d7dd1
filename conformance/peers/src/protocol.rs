//! The adapter protocol: one JSON object a line on stdin, replies in any order on stdout, stderr for humans.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

/// Longest command line taken; a longer one is answered with an error and skipped.
const MAX_LINE: usize = 4 * 1024 * 1024;
/// Commands under way at once.
const MAX_RUNNING: usize = 20_000;
/// For calls that are cancelled at the end to be answered, 1 s: ten times what a client may take for it. Those that take
/// longer are dropped without an answer.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A program under test.
pub trait Adapter: Send + Sync + 'static {
    /// The members of the `hello` reply, without id and protocol.
    fn hello(&self) -> Value;

    /// Answers one command: the members of the reply, without its id. `command` has `cmd` and `id`.
    fn answer(&self, cmd: &str, command: Value) -> impl Future<Output = Value> + Send;

    /// The program ends: whatever waits is to be ended, so that its command is answered.
    fn stop(&self) {}
}

/// Reads commands until `stop` or the end of stdin. Calls that are under way then are cancelled and answered, and `stop`
/// is answered last.
///
/// # Errors
/// When stdin or stdout fails.
pub async fn serve<A: Adapter>(adapter: A) -> anyhow::Result<()> {
    let adapter = Arc::new(adapter);
    let (replies, outbox) = mpsc::channel::<Value>(1024);
    let writer = tokio::spawn(write_all(outbox));
    let mut running = JoinSet::new();
    let mut stop = None;
    let mut lines = FramedRead::new(tokio::io::stdin(), LinesCodec::new_with_max_length(MAX_LINE));
    while let Some(line) = lines.next().await {
        while running.try_join_next().is_some() {}
        let command = match line {
            Ok(_) if running.len() >= MAX_RUNNING => {
                Err(format!("more than {MAX_RUNNING} commands are running"))
            }
            Ok(line) => parse(&line),
            Err(LinesCodecError::MaxLineLengthExceeded) => Err(format!("line longer than {MAX_LINE} bytes")),
            Err(LinesCodecError::Io(error)) => return Err(error.into()),
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                replies.send(with_id(Value::Null, bad_command(error))).await?;
                continue;
            }
        };
        let id = command.get("id").cloned().unwrap_or(Value::Null);
        let cmd = command
            .get("cmd")
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned();
        if cmd == "stop" {
            stop = Some(id);
            break;
        }
        // Calls overlap; everything else takes effect in the order it was said.
        if cmd == "call" {
            let (adapter, replies) = (Arc::clone(&adapter), replies.clone());
            running.spawn(async move {
                let reply = adapter.answer(&cmd, command).await;
                // The writer only goes away when stdout is closed: nobody is left to tell.
                let _ = replies.send(with_id(id, reply)).await;
            });
            continue;
        }
        let reply = if cmd == "hello" {
            let mut hello = adapter.hello();
            hello["protocol"] = json!(1);
            hello
        } else {
            adapter.answer(&cmd, command).await
        };
        replies.send(with_id(id, reply)).await?;
    }
    adapter.stop();
    let answered = async { while running.join_next().await.is_some() {} };
    // Whoever does not end is dropped.
    let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
    running.shutdown().await;
    if let Some(id) = stop {
        replies.send(with_id(id, json!({"ok": true}))).await?;
    }
    drop(replies);
    writer.await??;
    Ok(())
}

fn parse(line: &str) -> Result<Value, String> {
    let command: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    if command.is_object() {
        Ok(command)
    } else {
        Err("not an object".into())
    }
}

fn with_id(id: Value, reply: Value) -> Value {
    let mut members = Map::new();
    members.insert("id".into(), id);
    if let Value::Object(rest) = reply {
        members.extend(rest);
    }
    Value::Object(members)
}

async fn write_all(mut outbox: mpsc::Receiver<Value>) -> anyhow::Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(reply) = outbox.recv().await {
        let mut line = serde_json::to_vec(&reply)?;
        line.push(b'\n');
        stdout.write_all(&line).await?;
        if outbox.is_empty() {
            stdout.flush().await?;
        }
    }
    stdout.flush().await?;
    Ok(())
}

/// The reply to a command this adapter does not know.
pub fn unknown_command() -> Value {
    json!({"error": "unknown_command"})
}

/// The reply to a command whose members are wrong.
pub fn bad_command(error: impl std::fmt::Display) -> Value {
    json!({"error": format!("bad_command: {error}")})
}
