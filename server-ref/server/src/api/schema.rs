//! The documents that go over the wire, for their descriptions only: what is sent is written by the code that sends it, and
//! tests hold the two against each other. The authority for [`Overload`] is `overload.schema.json`.
#![allow(dead_code, reason = "described, never made")]

use utoipa::ToSchema;

/// The body of a refusal (CONTRACT section 2). Members may be added within v1: ignore what you do not know.
#[derive(ToSchema)]
pub struct Overload {
    /// `urn:overload:v1:<code>`; a name, never fetched.
    #[schema(pattern = "^urn:overload:v1:[a-z][a-z0-9_]{1,62}$")]
    r#type: String,
    #[schema(min_length = 1)]
    title: String,
    /// The status actually sent: 429, 503, or 504 from a relay.
    #[schema(minimum = 429, maximum = 504)]
    status: u16,
    #[schema(nullable = false)]
    detail: Option<String>,
    /// The decision, for logs.
    #[schema(
        nullable = false,
        pattern = "^urn:uuid:[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
    )]
    instance: Option<String>,
    /// 1.
    #[schema(minimum = 1, maximum = 1)]
    contract_version: u8,
    /// A code of the registry, or a private one that starts with x_.
    #[schema(pattern = "^[a-z][a-z0-9_]{1,62}$", example = "queue_full")]
    code: String,
    #[schema(inline)]
    retry: Retry,
    #[schema(inline)]
    applied: Applied,
    /// Least time to wait. There whenever retry is after.
    #[schema(nullable = false, minimum = 1, maximum = 86400000)]
    retry_after_ms: Option<u64>,
    /// End of the window to come back in.
    #[schema(nullable = false, minimum = 1, maximum = 86460000)]
    retry_after_max_ms: Option<u64>,
    #[schema(nullable = false, inline)]
    scope: Option<Scope>,
    /// To trusted callers.
    #[schema(nullable = false, inline)]
    state: Option<State>,
    #[schema(nullable = false, inline)]
    tier: Option<Tier>,
    #[schema(nullable = false, inline)]
    outcome: Option<Outcome>,
    /// Hops towards the dependency that decided.
    #[schema(nullable = false, minimum = 0, maximum = 16)]
    hop: Option<u8>,
    /// deadline_unattainable only: the smallest deadline that would have been admitted.
    #[schema(nullable = false, minimum = 1, maximum = 86400000)]
    min_deadline_ms: Option<u64>,
    /// To trusted callers.
    #[schema(nullable = false, minimum = 0)]
    predicted_wait_ms: Option<u64>,
    /// Who decided, where hop > 0; to trusted callers.
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    origin: Option<String>,
}

/// May the caller come back?
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum Retry {
    After,
    Elsewhere,
    No,
}

/// Can something have been done?
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum Applied {
    No,
    Maybe,
}

/// What else the hint speaks for.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum Scope {
    Request,
    Tenant,
    Service,
}

/// State of admission.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum State {
    Normal,
    Congested,
    Shedding,
    Recovering,
}

/// Effective tier.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
enum Tier {
    Critical,
    NonSheddable,
    Deferrable,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum Outcome {
    Defer,
}

/// A validation error (RFC 9457); it never carries a code of the contract.
#[derive(ToSchema)]
pub struct Problem {
    r#type: String,
    title: String,
    status: u16,
    detail: String,
    /// What is wrong.
    #[schema(nullable = false)]
    field: Option<String>,
    #[schema(nullable = false)]
    value: Option<String>,
    /// What is allowed.
    #[schema(nullable = false)]
    limit: Option<String>,
}

/// Work to do.
#[derive(ToSchema)]
pub struct Task {
    /// Kind of work; absent or unknown: reckoned as the slowest.
    #[schema(pattern = "^[a-z][a-z0-9._-]{0,63}$")]
    class: Option<String>,
    /// Anything; it counts by its size.
    #[schema(value_type = Option<Object>)]
    payload: Option<serde_json::Value>,
    /// How long it takes; absent: drawn from what the class declares, or the quickest class where none that is known is named.
    #[schema(minimum = 0)]
    duration_ms: Option<u64>,
}

/// Work that was done.
#[derive(ToSchema)]
pub struct Worked {
    class: String,
    #[schema(inline)]
    tier: Tier,
    waited_ms: u64,
    predicted_wait_ms: u64,
    service_ms: u64,
}

/// A task that was accepted.
#[derive(ToSchema)]
pub struct Accepted {
    id: uuid::Uuid,
    #[schema(inline)]
    state: TaskState,
    class: String,
    #[schema(inline)]
    tier: Tier,
}

/// A task.
#[derive(ToSchema)]
pub struct TaskView {
    id: uuid::Uuid,
    #[schema(inline)]
    state: TaskState,
    class: String,
    #[schema(inline)]
    tier: Tier,
    /// Why it was not done.
    #[schema(nullable = false)]
    code: Option<String>,
    #[schema(nullable = false)]
    waited_ms: Option<u64>,
    #[schema(nullable = false)]
    service_ms: Option<u64>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum TaskState {
    Queued,
    Running,
    Done,
    Failed,
    Expired,
    Evicted,
}

/// The server answers.
#[derive(ToSchema)]
pub struct Health {
    /// ok, or draining.
    status: String,
    #[schema(inline)]
    state: State,
    /// Where non-sheddable work is kept: none, ok, or failing.
    journal: String,
}
