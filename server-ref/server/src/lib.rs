//! The reference admission server: bounded queues, honest refusals, a profile in YAML.
//!
//! A contract is only as clear as a server one can run against it. This one does real work in a bounded pool (it
//! sleeps, for as long as it is told or as its class usually takes), and answers everything it cannot take by the
//! overload contract. Use it to develop a caller, as a peer in a conformance run, or as the model for a service.
//!
//! | route | answer |
//! |---|---|
//! | `POST /v1/work` `{"class","payload","duration_ms"}` | waits for the work, 200 |
//! | `GET`, `HEAD /v1/work` | the same without a body: class from `Overload-Task-Class` |
//! | `POST /v1/tasks` | 202 + `Location`; `outcome=defer` when it is put off |
//! | `GET /v1/tasks/{id}` | the task's state, with `Retry-After` until it has ended |
//! | `GET /healthz`, `GET /metrics` | outside admission (ADM-18) |
//! | `GET /admin/admission` | on a metrics listener of its own, or where `observe.admin` says so: state, queues, callers |
//! | `POST /fixtures/{name}` | test fixtures, only where they are switched on |
//!
//! # Order of a request
//!
//! 1. Head: media type, declared length (415, 413). These need nobody's place and cost nothing.
//! 2. With `Overload-Task-Class` in the head: admission, before a byte of the body is read. A refusal is answered at
//!    once and the body drained within a bound (SEC-05).
//! 3. Body: read up to the limit, parsed, each member checked (400, 413, 422).
//! 4. Without a class in the head: admission now. The most that such a refusal has read is the body limit.
//! 5. Its turn, the work, the answer.
//!
//! A task with an `Idempotency-Key` whose key is known skips admission: (tenant, key) is one task, in memory, for 24 h or
//! until the task is forgotten; a repeat gets its place, another payload 422 (ADM-20). A task that was never started
//! gives its key back, so that the caller can try again.
//!
//! A validation error never carries an overload code, whether the server is overloaded or not (SRV-18).

mod admin;
mod app;
pub mod burst;
mod clock;
pub mod config;
mod entry;
mod fixtures;
mod listen;
pub mod observe;
mod problem;
mod request;
mod routes;
mod server;
mod tasks;
mod telemetry;
mod worker;

pub use config::{ConfigError, Rights, ServerConfig};
pub use fixtures::{FixtureError, Fixtures, ForcedReject};
pub use observe::{Observe, ObserveError};
pub use server::{Server, StartError};
