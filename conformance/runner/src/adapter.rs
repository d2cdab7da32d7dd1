//! Runs a program under test and talks newline-delimited JSON to it (ADAPTER.md).
//!
//! The program is foreign: it may hang, die, flood, or answer something else than it was asked. None of that may
//! hang the runner, cost it unbounded memory, or look like a pass. So every wait has a limit, every line and the
//! kept stderr have a length, and the first break of the protocol ends the process: what it says afterwards is
//! worth nothing.

mod end;
mod error;
mod hello;
mod place;
mod pool;

pub use error::{AdapterError, Tail};
pub use hello::{Hello, Implementation};
pub use pool::AdapterPool;

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use crate::case::Role;
use crate::lock::lock;
use end::BadEnds;

/// The protocol version that this runner speaks.
pub const PROTOCOL: u64 = 1;
/// What a program says to a command that it does not know (ADAPTER.md).
pub(crate) const UNKNOWN_COMMAND: &str = "unknown_command";
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
/// A stderr on which nothing came for this long has said what it had to say.
const QUIET: Duration = Duration::from_millis(20);
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

#[derive(Debug, Default)]
struct State {
    pending: HashMap<String, oneshot::Sender<Map<String, Value>>>,
    next_id: u64,
    /// Set once; from then on nothing is sent any more.
    ended: Option<End>,
    /// Somebody was told how it ended, so that it is in the report.
    told: bool,
    stderr: Vec<u8>,
    /// Bytes of stderr in all.
    said: u64,
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
    /// Where a bad end is written down.
    ends: Arc<BadEnds>,
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
            hello: Hello::default(),
            state,
            stdin: tokio::sync::Mutex::new(Some(stdin)),
            child: tokio::sync::Mutex::new(child),
            ends: Arc::default(),
        };
        let greeting = serde_json::json!({"cmd": "hello", "protocol": PROTOCOL});
        let reply = adapter
            .request(greeting, limit)
            .await
            .map_err(|error| AdapterError::Start(error.to_string()))?;
        adapter.hello = match Hello::read(reply, role) {
            Ok(hello) => hello,
            Err(what) => {
                let stderr = adapter.last_words().await;
                return Err(AdapterError::Start(format!("{what}{stderr}")));
            }
        };
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

    /// The same, once it has been quiet for a moment: it is read beside the replies, and what was said before one may come in
    /// after it.
    pub(crate) async fn last_words(&self) -> Tail {
        let said = || lock(&self.state).said;
        let quiet = async {
            let mut before = said();
            loop {
                tokio::time::sleep(QUIET).await;
                let now = said();
                if now == before {
                    return;
                }
                before = now;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS_LIMIT, quiet).await;
        self.stderr_tail()
    }

    /// Sends a command (an object with `cmd`, without `id`).
    ///
    /// # Errors
    /// The program has ended or does not read.
    pub async fn send(&self, command: Value) -> Result<Pending, AdapterError> {
        let name = name_of(&command);
        match self.write(command).await {
            Written::Sent(pending) => Ok(pending),
            Written::Ended => Err(self.ended(&name).await),
            Written::NotRead => Err(self.hung(&name, COMMAND_LIMIT)),
        }
    }

    async fn write(&self, mut command: Value) -> Written {
        let name = name_of(&command);
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
            return Written::Ended;
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
            Ok(true) => Written::Sent(Pending {
                id,
                command: name,
                reply,
            }),
            Ok(false) => Written::Ended,
            Err(_) => Written::NotRead,
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
                    // The protocol's own word for what it does not offer needs no explanation.
                    let stderr = match error.as_str() {
                        UNKNOWN_COMMAND => self.stderr_tail(),
                        _ => self.last_words().await,
                    };
                    Err(AdapterError::Refused {
                        command,
                        error,
                        stderr,
                    })
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

    /// As [`Adapter::reply`], where `left` is what is left of a case that may take `limit` in all.
    ///
    /// # Errors
    /// The same; a miss names the limit of the case, which is the one that somebody has set.
    pub(crate) async fn reply_in_case(
        &self,
        pending: Pending,
        left: Duration,
        limit: Duration,
    ) -> Result<Map<String, Value>, AdapterError> {
        self.reply(pending, left).await.map_err(|error| match error {
            AdapterError::Hung { command, stderr, .. } => AdapterError::OutOfTime {
                command,
                limit_ms: limit.as_millis(),
                stderr,
            },
            other => other,
        })
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
        match self.write(command).await {
            Written::Sent(pending) => pending.reply.await.is_ok(),
            Written::Ended | Written::NotRead => false,
        }
    }

    fn hung(&self, command: &str, limit: Duration) -> AdapterError {
        AdapterError::Hung {
            command: command.to_owned(),
            limit_ms: limit.as_millis(),
            stderr: self.stderr_tail(),
        }
    }

    async fn ended(&self, command: &str) -> AdapterError {
        let ended = {
            let mut state = lock(&self.state);
            state.told = true;
            state.ended.clone()
        };
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
}

/// What became of a command that was to be sent.
enum Written {
    Sent(Pending),
    /// There is nobody any more to send it to.
    Ended,
    /// It was not read within [`COMMAND_LIMIT`].
    NotRead,
}

fn name_of(command: &Value) -> String {
    command
        .get("cmd")
        .and_then(Value::as_str)
        .unwrap_or("?")
        .to_owned()
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
        state.said += n as u64;
        state.stderr.extend_from_slice(&chunk[..n]);
        let over = state.stderr.len().saturating_sub(STDERR_TAIL_BYTES);
        state.stderr.drain(..over);
    }
}
