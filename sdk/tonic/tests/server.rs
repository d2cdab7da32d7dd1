//! The server layer over services in memory.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;

use holdoff_contract::write::{self, Audience};
use holdoff_contract::{Code, Hint, Overload, ServiceState};
use holdoff_tonic::{Inbound, ServerLayer, StatusExt};
use http::{Request, Response};
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, ServiceExt, service_fn};

fn call(content_type: &str, lines: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder()
        .uri("/a.B/C")
        .header("content-type", content_type);
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

/// What an admission layer below answers.
async fn refused_in_http(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    let overload = Overload {
        hint: Hint::Window {
            delay: Duration::from_millis(1740),
            max: Duration::from_millis(2300),
        },
        state: Some(ServiceState::Shedding),
        ..Overload::new(Code::TierShed)
    };
    let encoded = write::overload(&overload, Audience::Trusted);
    let body = Body::new(http_body_util::Full::new(encoded.body));
    let mut response = Response::new(body);
    *response.status_mut() = encoded.status;
    *response.headers_mut() = encoded.headers;
    Ok(response)
}

#[tokio::test]
async fn a_refusal_in_http_from_a_layer_below_becomes_one_in_grpc() {
    for (layer, state) in [
        (ServerLayer::new(), None),
        (ServerLayer::trusted(), Some(ServiceState::Shedding)),
    ] {
        let service = layer.layer(service_fn(refused_in_http));
        let response = service
            .oneshot(call("application/grpc+proto", &[]))
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        assert!(http_body::Body::is_end_stream(response.body()), "trailers only");
        assert!(response.headers().get("retry-after").is_none());
        let status = Status::from_header_map(response.headers()).unwrap();
        let overload = status.overload().unwrap();
        assert_eq!((overload.code, overload.hop), (Some(Code::TierShed), 0));
        assert_eq!(overload.state, state);
        assert!(matches!(overload.hint, Hint::Window { max, .. } if max == Duration::from_millis(2300)));
    }
}

#[tokio::test]
async fn what_is_no_grpc_call_is_left_alone_but_knows_its_request() {
    let service = ServerLayer::new().layer(service_fn(refused_in_http));
    let response = service.oneshot(call("application/json", &[])).await.unwrap();
    assert_eq!(response.status(), 503);

    let echo = service_fn(|request: Request<Body>| async move {
        let inbound = request.extensions().get::<Inbound>().unwrap();
        let left = inbound.time_left().unwrap();
        Ok::<_, Infallible>(Response::new(left.as_millis().to_string()))
    });
    let service = ServerLayer::new().layer(echo);
    let request = call("application/json", &[("overload-deadline-ms", "0")]);
    assert_eq!(service.oneshot(request).await.unwrap().body(), "0");
}

#[tokio::test]
async fn a_status_of_the_handlers_own_goes_out_as_it_is() {
    let own = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Status::not_found("nobody").into_http::<Body>())
    });
    let response = ServerLayer::new()
        .layer(own)
        .oneshot(call("application/grpc", &[]))
        .await
        .unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::NotFound, "nobody")
    );
}
