//! The API description: OpenAPI 3.1, made from code, served at `GET /openapi.json` (SRV-29).
//!
//! A caller's author who does not know that a route can refuse writes no handling for it. So every route that asks
//! admission lists 429 and 503 beside each other, with the schema and the fields of the contract, from one place: a
//! route cannot have one and lack the other. `conformance/contract/openapi.yaml` is this document; a test compares.

pub mod schema;

use schema::{Accepted, Health, Overload, Problem, Task, TaskView, Worked};
use serde_json::json;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, Header, HeaderBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem,
    PathsBuilder, Ref, Required, Response, ResponseBuilder, SecurityRequirement,
};

const PROBLEM: &str = "application/problem+json";
const JSON: &str = "application/json";
/// Greatest delay and deadline in ms (CONTRACT sections 2 and 3).
const DAY_MS: f64 = 86_400_000.0;

fn text() -> Object {
    ObjectBuilder::new().schema_type(Type::String).build()
}

fn integer(least: f64, most: f64) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(least))
        .maximum(Some(most))
        .build()
}

fn field(description: &str, schema: Object) -> Header {
    HeaderBuilder::new()
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

fn retry_after() -> Header {
    field(
        "Seconds to wait, rounded up; on every refusal that did nothing.",
        integer(1.0, 86_400.0),
    )
}

fn retry_after_ms() -> Header {
    field("The same in milliseconds.", integer(1.0, DAY_MS))
}

fn signal() -> Header {
    let description = "RFC 9651 Dictionary, v=1: code, retry, applied, after and max in ms, scope, tier; \
                       degraded, outcome and tier on successes.";
    HeaderBuilder::new()
        .description(Some(description))
        .schema(Some(
            ObjectBuilder::new()
                .schema_type(Type::String)
                .max_length(Some(512))
                .build(),
        ))
        .example(Some(json!(
            "v=1, code=queue_full, retry=after, applied=no, after=1740, max=2300, tier=deferrable"
        )))
        .build()
}

fn content(name: &str) -> utoipa::openapi::Content {
    ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(name)))
        .build()
}

/// A refusal by the contract.
fn refusal(description: &str, quotas: bool) -> Response {
    let mut response = ResponseBuilder::new()
        .description(description)
        .content(PROBLEM, content("Overload"))
        .header("Retry-After", retry_after())
        .header("retry-after-ms", retry_after_ms())
        .header("Overload-Signal", signal())
        .header("Cache-Control", field("Always no-store.", text()));
    if quotas {
        let quota = "With rate_limited: draft-ietf-httpapi-ratelimit-headers.";
        response = response
            .header("RateLimit", field(quota, text()))
            .header("RateLimit-Policy", field(quota, text()));
    }
    response.build()
}

fn plain(description: &str, name: &str) -> ResponseBuilder {
    ResponseBuilder::new()
        .description(description)
        .content(JSON, content(name))
}

fn problem(description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM, content("Problem"))
        .build()
}

fn asks(name: &str, description: &str, schema: Object) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

/// The request fields of CONTRACT section 3.
fn request_fields() -> Vec<Parameter> {
    let tiers = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(["critical", "non-sheddable", "deferrable"]))
        .build();
    let class = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[a-z][a-z0-9._-]{0,63}$"))
        .build();
    vec![
        asks(
            "Overload-Deadline-Ms",
            "What is left of the call's time.",
            integer(0.0, DAY_MS),
        ),
        asks(
            "Overload-Tier",
            "Lowered to the caller's right; default deferrable.",
            tiers,
        ),
        asks(
            "Overload-Task-Class",
            "Kind of work; an unknown one is reckoned as the slowest.",
            class,
        ),
        asks(
            "Overload-Tenant",
            "Whose work; counts from trusted hops only.",
            text(),
        ),
        asks(
            "Overload-Attempt",
            "Which attempt of the call, for statistics.",
            integer(1.0, 255.0),
        ),
        asks(
            "Overload-Cost-Ms",
            "Estimated cost; clamped to what the class usually takes.",
            integer(0.0, DAY_MS),
        ),
        asks(
            "Idempotency-Key",
            "Key of the operation: a repeat gets the first answer.",
            text(),
        ),
    ]
}

/// A route that asks admission: its successes, and every way it can say no.
fn admitted(id: &str, summary: &str, with_body: bool, success: (&str, Response)) -> Operation {
    let refused = |name: &str| Ref::from_response_name(name);
    let mut operation = OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .parameters(Some(request_fields()))
        .security(SecurityRequirement::new("bearer", Vec::<String>::new()))
        .security(SecurityRequirement::default())
        .response(success.0, success.1)
        .response("429", refused("TooManyRequests"))
        .response("503", refused("ServiceUnavailable"));
    if with_body {
        let body = RequestBodyBuilder::new().content(JSON, content("Task")).build();
        operation = operation
            .request_body(Some(body))
            .response(
                "400",
                problem("The body is not JSON, or broke off; or Content-Type is there twice."),
            )
            .response("408", problem("The body did not arrive in time."))
            .response("413", problem("The body is too large."))
            .response(
                "415",
                problem("The body is not declared as JSON in UTF-8, or it is compressed."),
            );
    }
    let what = if with_body {
        "A member is wrong or there twice, the request has a query, or an empty server could not admit it."
    } else {
        "The request has a query, or an empty server could not admit it."
    };
    operation.response("422", problem(what)).build()
}

fn read(id: &str, summary: &str, responses: Vec<(&str, Response)>) -> Operation {
    let operation = OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary));
    responses
        .into_iter()
        .fold(operation, |operation, (status, response)| {
            operation.response(status, response)
        })
        .build()
}

fn one(method: HttpMethod, operation: Operation) -> PathItem {
    PathItem::new(method, operation)
}

/// The whole document.
pub fn document() -> OpenApi {
    let worked = || {
        plain("Done.", "Worked")
            .header("Overload-Signal", signal())
            .build()
    };
    let bare = admitted(
        "getWork",
        "Work without a body; waits for it.",
        false,
        ("200", worked()),
    );
    let head = admitted(
        "headWork",
        "The head that GET would have.",
        false,
        (
            "200",
            ResponseBuilder::new()
                .description("Done.")
                .header("Overload-Signal", signal())
                .build(),
        ),
    );
    let mut work = one(
        HttpMethod::Post,
        admitted("work", "Work; waits for it.", true, ("200", worked())),
    );
    work.merge_operations(one(HttpMethod::Get, bare));
    work.merge_operations(one(HttpMethod::Head, head));
    let accepted = plain(
        "Accepted, or put off (outcome=defer in Overload-Signal).",
        "Accepted",
    )
    .header("Location", field("Where the task can be followed.", text()))
    .header("Retry-After", retry_after())
    .header("retry-after-ms", retry_after_ms())
    .header("Overload-Signal", signal())
    .build();
    let submit = admitted("submitTask", "Work behind a Location.", true, ("202", accepted));
    let followed = plain("The task; Retry-After until it has ended.", "TaskView")
        .header("Retry-After", retry_after())
        .header("retry-after-ms", retry_after_ms())
        .build();
    let mut follow = read(
        "getTask",
        "How a task is doing.",
        vec![
            ("200", followed),
            ("404", problem("No task that this server remembers.")),
        ],
    );
    let id = ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)))
        .build();
    let id = ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(id))
        .build();
    follow.parameters = Some(vec![id.into()]);
    let text_page = ResponseBuilder::new()
        .description("Prometheus text.")
        .content("text/plain", ContentBuilder::new().schema(Some(text())).build())
        .build();
    let any_object = ObjectBuilder::new().schema_type(Type::Object).build();
    let described = ResponseBuilder::new()
        .description("This document.")
        .content(JSON, ContentBuilder::new().schema(Some(any_object)).build())
        .build();
    let health = read(
        "health",
        "Outside admission.",
        vec![("200", plain("It answers.", "Health").build())],
    );
    let paths = PathsBuilder::new()
        .path("/v1/work", work)
        .path("/v1/tasks", one(HttpMethod::Post, submit))
        .path("/v1/tasks/{id}", one(HttpMethod::Get, follow))
        .path("/healthz", one(HttpMethod::Get, health))
        .path(
            "/metrics",
            one(
                HttpMethod::Get,
                read("metrics", "Outside admission.", vec![("200", text_page)]),
            ),
        )
        .path(
            "/openapi.json",
            one(
                HttpMethod::Get,
                read("api", "Outside admission.", vec![("200", described)]),
            ),
        );
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let components = ComponentsBuilder::new()
        .schema_from::<Overload>()
        .schema_from::<Problem>()
        .schema_from::<Task>()
        .schema_from::<Worked>()
        .schema_from::<Accepted>()
        .schema_from::<TaskView>()
        .schema_from::<Health>()
        .response(
            "TooManyRequests",
            refusal(
                "The caller's own limit: tenant_limit, rate_limited, retry_throttled.",
                true,
            ),
        )
        .response(
            "ServiceUnavailable",
            refusal("Overload: any other code of the contract.", false),
        )
        .security_scheme("bearer", bearer);
    let info = InfoBuilder::new()
        .title("Holdoff reference server")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Bounded admission with honest refusals. What a refusal means and what a caller does about it is the overload \
             contract, version 1 (conformance/contract/CONTRACT.md).",
        ))
        .license(Some(utoipa::openapi::License::new("MIT OR Apache-2.0")));
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths.build())
        .components(Some(components.build()))
        .build()
}
