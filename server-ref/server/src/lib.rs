//! The reference admission server: bounded queues, honest refusals, a profile in YAML.
//!
//! A contract is only as clear as a server one can run against it. This one does real work in a bounded pool (it
//! sleeps, for as long as it is told or as its class usually takes), and answers everything it cannot take by the
//! overload contract. Use it to develop a caller, as a peer in a conformance run, or as the model for a service.
//!
//! | route | answer |
//! |---|---|
//! | `POST /v1/work` `{"class","payload","duration_ms"}` | waits for the work, 200 |
//! | `GET`, `HEAD /v1/work` | the same without a body: class from `Overload-Task-Class`, for a time drawn of it; of the quickest class where none is named |
//! | `POST /v1/tasks` | 202 + `Location`; `outcome=defer` when it is put off |
//! | `GET /v1/tasks/{id}` | the task's state, with `Retry-After` until it has ended |
//! | `GET /v1/dead-letters` | the caller's non-sheddable tasks that did not end well, newest first |
//! | `GET /openapi.json` | the description of all this ([`api`]), outside admission too |
//! | `GET /healthz`, `GET /metrics` | outside admission (ADM-18) |
//! | `GET /admin/admission` | on a metrics listener of its own, or where `observe.admin` says so: state, queues, callers |
//! | `POST /fixtures/{name}` | test fixtures, only where they are switched on |
//!
//! # Order of a request
//!
//! 1. Head: media type and coding, declared length, no query (415, 413, 422). These need nobody's place and cost nothing.
//! 2. With `Overload-Task-Class` in the head: admission, before a byte of the body is read. A refusal is answered at
//!    once and the body drained within a bound (SEC-05).
//! 3. Body: read up to the limit, parsed, each member checked (400, 413, 422).
//! 4. Without a class in the head: admission now. The most that such a refusal has read is the body limit.
//! 5. Its turn, the work, the answer.
//!
//! # What is promised
//!
//! A 202 for non-sheddable work means that it is on the disk ([`ServerConfig::data`], `--data DIR`): written before the
//! answer, and again when it has ended. A restart, after a crash or not, puts what had not ended back into the queue with its
//! own deadline, over the queue's bound if need be. Work that was running runs again, so execution is at least once; the key
//! makes it once in effect, where the work itself knows it. Late work still runs, unless `late_ms` says that it is of no use
//! by then. What failed or came too late is a dead letter of its owner. Without a data directory such a task is refused as bad
//! input; while the disk does not write, with the private code `x_not_durable` (503, retry=after), and everything else
//! goes on. Critical and deferrable tasks are kept in memory.
//!
//! An `Idempotency-Key` is one operation for (tenant, key), route, class and body, for 24 h (ADM-20): a repeat skips admission
//! and gets the first one's task, or the first one's answer, for which it waits; anything else under that key is 422. The
//! keys of non-sheddable tasks are on the disk with them. What was never started, or got no answer that stands, gives its
//! key back. Anonymous callers share one tenant, and so their keys.
//!
//! A validation error never carries an overload code, whether the server is overloaded or not (SRV-18).

mod admin;
pub mod api;
mod app;
mod background;
mod burn;
pub mod burst;
mod clock;
pub mod config;
mod durable;
mod entry;
mod fixtures;
mod keys;
mod listen;
pub mod observe;
mod once;
mod problem;
mod reload;
mod request;
mod routes;
mod server;
pub mod shown;
mod submit;
mod tasks;
mod telemetry;
mod worker;

pub use config::{ConfigError, LoadError, Rights, ServerConfig};
pub use durable::BadRecord;
pub use fixtures::{FixtureError, Fixtures, ForcedReject};
pub use observe::{Observe, ObserveError};
pub use reload::{ReloadError, Reloaded, Reloader};
pub use server::{Server, StartError};
