//! Runs a program under test and talks newline-delimited JSON to it (ADAPTER.md).
//!
//! The program is foreign: it may hang, die, flood, or answer something else than it was asked. None of that may
//! hang the runner, cost it unbounded memory, or look like a pass. So every wait has a limit, every line and the
//! kept stderr have a length, and the first break of the protocol ends the process: what it says afterwards is
//! worth nothing.

mod error;
mod pool;

pub use error::{AdapterError, Tail};
pub use pool::AdapterPool;

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use crate::case::Role;
use crate::lock::lock;

/// The protocol version that this runner speaks.
pub const PROTOCOL: u64 = 1;
/// The longest line that is read from a program.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// How much of the end of stderr is kept.
pub const STDERR_TAIL_BYTES: usize = 8 << 10;
/// How long a program may take to answer `hello`; it may be compiled by its own command first.
pub const HELLO_LIMIT: Duration = Duration::from_secs(300);
/// How long a command that needs no traffic may take (`configure`, `fixture`, `parse`, `metrics`, `cancel`).
pub const COMMAND_LIMIT: Duration = Duration::from_secs(5);
/// How often a program that broke is started again in one run.
pub const MAX_RESTARTS: u32 = 8;
/// How long the end of a dead program's stderr is waited for.
const LAST_WORDS_LIMIT: Duration = Duration::from_millis(500);
/// How long a program may take to go away after `stop`.
pub const STOP_LIMIT: Duration = Duration::from_secs(3);

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterCommand {
    program: String,
    args: Vec<String>,
}

impl AdapterCommand {
    /// Splits a command line into words as a shell would, without running a shell.
    ///
    /// # Errors
    /// The line is empty or has an unclosed quote.
    pub fn parse(line: &str) -> Result<Self, AdapterError> {
        let mut words = shlex::split(line).unwrap_or_default().into_iter();
        match words.next() {
            Some(program) => Ok(Self {
                program,
                args: words.collect(),
            }),
            None => Err(AdapterError::Command(line.to_owned())),
        }
    }
}

/// What a program says about itself.
#[derive(Debug, Clone, Deserialize)]
pub struct Hello {
    /// The protocol version; must be [`PROTOCOL`].
    pub protocol: u64,
    /// `client`, `server` or `relay`.
    pub role: String,
    /// Name and version, for the report.
    pub implementation: Implementation,
    /// The contract versions that it speaks; must hold 1.
    #[serde(default)]
    pub contract_versions: Vec<u64>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// Name and version of a program under test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Implementation {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// How it is configured, in its own words; a survey shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    pending: HashMap<String, oneshot::Sender<Map<String, Value>>>,
    next_id: u64,
    /// Set once; from then on nothing is sent any more.
    ended: Option<End>,
    stderr: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// It closed its stdout, which is how a program ends.
    Closed,
    /// We killed it.
    Killed,
    Broke(String),
}

/// A running program under test.
#[derive(Debug)]
pub struct Adapter {
    hello: Hello,
    state: Arc<Mutex<State>>,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    child: tokio::sync::Mutex<Child>,
}

/// A command that was sent and whose reply is awaited.
#[derive(Debug)]
#[must_use = "a reply that nobody awaits is never judged"]
pub struct Pending {
    /// The id of the command, which `cancel` names.
    pub id: String,
    command: String,
    reply: oneshot::Receiver<Map<String, Value>>,
}

impl Adapter {
    /// Starts the program and exchanges `hello`, which may take at most `limit`.
    ///
    /// # Errors
    /// [`AdapterError::Start`] with the reason, whatever it was.
    pub async fn start(command: &AdapterCommand, role: Role, limit: Duration) -> Result<Self, AdapterError> {
        let mut process = Command::new(&command.program);
        process
            .args(&command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        process.kill_on_drop(true);
        #[cfg(unix)]
        process.process_group(0); // `cargo run` and shells have children of their own, which must end with them
        let mut child = process
            .spawn()
            .map_err(|error| AdapterError::Start(format!("{}: {error}", command.program)))?;
        let gone = || AdapterError::Start("its pipes are not there".to_owned());
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let stdout = child.stdout.take().ok_or_else(gone)?;
        let stderr = child.stderr.take().ok_or_else(gone)?;
        let state = Arc::new(Mutex::new(State::default()));
        let words = tokio::spawn(keep_tail(stderr, Arc::clone(&state)));
        tokio::spawn(read_replies(stdout, words, Arc::clone(&state)));
        let mut adapter = Self {
            hello: Hello {
                protocol: 0,
                role: String::new(),
                implementation: Implementation::default(),
                contract_versions: Vec::new(),
                capabilities: Vec::new(),
            },
            state,
            stdin: tokio::sync::Mutex::new(Some(stdin)),
            child: tokio::sync::Mutex::new(child),
        };
        let greeting = serde_json::json!({"cmd": "hello", "protocol": PROTOCOL});
        let reply = adapter
            .request(greeting, limit)
            .await
            .map_err(|error| AdapterError::Start(error.to_string()))?;
        adapter.hello = check_hello(reply, role)?;
        Ok(adapter)
    }

    /// What the program said about itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// True when the program declared the capability.
    pub fn can(&self, capability: &str) -> bool {
        self.hello.capabilities.iter().any(|have| have == capability)
    }

    /// False once the program has ended or broken the protocol.
    pub fn is_alive(&self) -> bool {
        lock(&self.state).ended.is_none()
    }

    /// The end of its stderr so far.
    pub fn stderr_tail(&self) -> Tail {
        Tail(String::from_utf8_lossy(&lock(&self.state).stderr).into_owned())
    }

    /// Sends a command (an object with `cmd`, without `id`).
    ///
    /// # Errors
    /// The program has ended or does not read.
    pub async fn send(&self, mut command: Value) -> Result<Pending, AdapterError> {
        let name = command
            .get("cmd")
            .and_then(Value::as_str)
            .unwrap_or("?")
            .to_owned();
        let (sender, reply) = oneshot::channel();
        let id = {
            let mut state = lock(&self.state);
            state.next_id += 1;
            let id = state.next_id.to_string();
            let running = state.ended.is_none();
            running.then(|| {
                state.pending.insert(id.clone(), sender);
                id
            })
        };
        let Some(id) = id else {
            return Err(self.ended(&name).await);
        };
        command["id"] = Value::String(id.clone());
        let line = format!("{command}\n");
        let write = async {
            let mut stdin = self.stdin.lock().await;
            match stdin.as_mut() {
                Some(stdin) => stdin.write_all(line.as_bytes()).await.is_ok() && stdin.flush().await.is_ok(),
                None => false,
            }
        };
        match tokio::time::timeout(COMMAND_LIMIT, write).await {
            Ok(true) => Ok(Pending {
                id,
                command: name,
                reply,
            }),
            Ok(false) => Err(self.ended(&name).await),
            Err(_) => Err(self.hung(&name, COMMAND_LIMIT)),
        }
    }

    /// Awaits the reply of a command, for at most `limit`. A program that misses the limit is killed.
    ///
    /// # Errors
    /// It hung, died, broke the protocol or refused.
    pub async fn reply(&self, pending: Pending, limit: Duration) -> Result<Map<String, Value>, AdapterError> {
        let Pending { command, reply, .. } = pending;
        match tokio::time::timeout(limit, reply).await {
            Ok(Ok(reply)) => match reply.get("error") {
                None | Some(Value::Null) => Ok(reply),
                Some(error) => {
                    let error = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
                    Err(AdapterError::Refused { command, error })
                }
            },
            Ok(Err(_)) => Err(self.ended(&command).await),
            Err(_) => {
                let error = self.hung(&command, limit);
                self.kill().await;
                Err(error)
            }
        }
    }

    /// Sends a command and awaits its reply.
    ///
    /// # Errors
    /// As [`Adapter::send`] and [`Adapter::reply`].
    pub async fn request(&self, command: Value, limit: Duration) -> Result<Map<String, Value>, AdapterError> {
        let pending = self.send(command).await?;
        self.reply(pending, limit).await
    }

    /// Sends a command and waits until it is answered, whatever the answer is. False when there will be none. Unlike
    /// [`Adapter::request`] it has no limit and kills nobody: it only looks.
    pub(crate) async fn answers(&self, command: Value) -> bool {
        match self.send(command).await {
            Ok(pending) => pending.reply.await.is_ok(),
            Err(_) => false,
        }
    }

    /// Ends the program: `stop`, then the end of its stdin, then a kill. Never waits longer than [`STOP_LIMIT`] twice.
    pub async fn stop(&self) {
        if self.is_alive()
            && let Ok(pending) = self.send(serde_json::json!({"cmd": "stop"})).await
        {
            let _ = tokio::time::timeout(STOP_LIMIT, pending.reply).await;
        }
        self.stdin.lock().await.take();
        let mut child = self.child.lock().await;
        if tokio::time::timeout(STOP_LIMIT, child.wait()).await.is_err() {
            kill_group(&child);
            let _ = child.kill().await;
        }
    }

    /// Ends the process at once.
    pub(crate) async fn kill(&self) {
        end(&self.state, End::Killed); // first: its pipes close with it, and that is then no news
        self.stdin.lock().await.take();
        let mut child = self.child.lock().await;
        kill_group(&child);
        let _ = child.kill().await;
    }

    fn hung(&self, command: &str, limit: Duration) -> AdapterError {
        AdapterError::Hung {
            command: command.to_owned(),
            limit_ms: limit.as_millis(),
            stderr: self.stderr_tail(),
        }
    }

    async fn ended(&self, command: &str) -> AdapterError {
        let ended = lock(&self.state).ended.clone();
        let how = match &ended {
            Some(End::Broke(_)) => String::new(),
            Some(End::Killed) => "was killed by this runner".to_owned(),
            Some(End::Closed) | None => self.last_breath().await,
        };
        let stderr = self.stderr_tail();
        match ended {
            Some(End::Broke(what)) => AdapterError::Broke { what, stderr },
            _ => AdapterError::Died {
                command: command.to_owned(),
                how,
                stderr,
            },
        }
    }

    /// How a program ended that closed its pipes: the process itself may take a moment longer.
    async fn last_breath(&self) -> String {
        let wait = async { self.child.lock().await.wait().await };
        match tokio::time::timeout(LAST_WORDS_LIMIT, wait).await {
            Ok(Ok(status)) => format!("ended ({status})"),
            Ok(Err(error)) => format!("ended (its exit status cannot be read: {error})"),
            Err(_) => "closed its pipes without ending".to_owned(),
        }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        kill_group(self.child.get_mut());
    }
}

/// Kills a program and whatever it started. Does nothing once it has been reaped, so that no other process that got
/// its number is hit.
fn kill_group(child: &Child) {
    #[cfg(unix)]
    if let Some(pid) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    #[cfg(not(unix))]
    let _ = child; // the leader alone is killed by its owner
}

fn check_hello(reply: Map<String, Value>, role: Role) -> Result<Hello, AdapterError> {
    let start = |what: String| AdapterError::Start(what);
    let hello: Hello = serde_json::from_value(Value::Object(reply))
        .map_err(|error| start(format!("its answer to `hello` is not one: {error}")))?;
    if hello.protocol != PROTOCOL {
        return Err(start(format!(
            "it speaks protocol {}; this runner speaks {PROTOCOL}",
            hello.protocol
        )));
    }
    if hello.role != role.word() {
        return Err(start(format!(
            "its role is {:?}; asked for was {:?}",
            hello.role,
            role.word()
        )));
    }
    if !hello.contract_versions.contains(&1) {
        return Err(start(format!(
            "contract_versions is {:?}; 1 is not among them",
            hello.contract_versions
        )));
    }
    Ok(hello)
}

fn end(state: &Mutex<State>, why: End) {
    let mut state = lock(state);
    state.ended.get_or_insert(why);
    state.pending.clear(); // drops the senders: whoever waits learns it at once
}

async fn read_replies(
    stdout: ChildStdout,
    last_words: tokio::task::JoinHandle<()>,
    state: Arc<Mutex<State>>,
) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    let why = loop {
        match read_line(&mut reader, &mut line).await {
            Ok(true) => {
                if let Err(what) = take_reply(&line, &state) {
                    break End::Broke(what);
                }
            }
            Ok(false) => break End::Closed,
            Err(what) => break End::Broke(what),
        }
    };
    if why == End::Closed {
        // A program that dies closes both at once, and its last words are read by another task: they belong to the story.
        // Something that it left behind may hold its stderr open, so the wait has a limit.
        let _ = tokio::time::timeout(LAST_WORDS_LIMIT, last_words).await;
    }
    end(&state, why);
}

/// Reads one line without its end. False at the end of the stream.
async fn read_line<R: AsyncRead + Unpin>(
    reader: &mut BufReader<R>,
    line: &mut Vec<u8>,
) -> Result<bool, String> {
    line.clear();
    let limit = MAX_LINE_BYTES as u64 + 1;
    let read = (&mut *reader)
        .take(limit)
        .read_until(b'\n', line)
        .await
        .map_err(|error| error.to_string())?;
    if read == 0 {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MAX_LINE_BYTES {
        return Err(format!("a line of more than {MAX_LINE_BYTES} bytes"));
    }
    Ok(true)
}

fn take_reply(line: &[u8], state: &Mutex<State>) -> Result<(), String> {
    let shown = || String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let reply: Map<String, Value> = serde_json::from_slice(line)
        .map_err(|error| format!("not a JSON object ({error}): {:?}", shown()))?;
    let Some(id) = reply.get("id").and_then(Value::as_str) else {
        return Err(format!("a reply without an id: {:?}", shown()));
    };
    match lock(state).pending.remove(id) {
        Some(waiting) => {
            let _ = waiting.send(reply); // the waiting side may have given up; then nobody is interested
            Ok(())
        }
        None => Err(format!(
            "a reply whose id {id:?} was not asked for or was answered before: {:?}",
            shown()
        )),
    }
}

async fn keep_tail(mut stderr: impl AsyncRead + Unpin, state: Arc<Mutex<State>>) {
    let mut chunk = [0_u8; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut chunk).await {
        let mut state = lock(&state);
        state.stderr.extend_from_slice(&chunk[..n]);
        let over = state.stderr.len().saturating_sub(STDERR_TAIL_BYTES);
        state.stderr.drain(..over);
    }
}
