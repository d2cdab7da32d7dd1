//! The layer around somebody else's axum service: this is how a service protects itself.

use axum::Router;
use axum::routing::get;
use holdoff_admission::Profile;
use holdoff_admission_tower::{Admission, AdmissionLayer, Gate};
use reqwest::Client;

#[tokio::test]
async fn an_axum_service_is_protected_by_one_layer_and_its_health_is_outside() {
    let admission = Admission::start(Profile::default(), None).unwrap();
    let app = Router::new()
        .route(
            "/hello/{name}",
            get(|axum::extract::Path(name): axum::extract::Path<String>| async { name }),
        )
        .route_layer(AdmissionLayer::new(Gate::new(admission.clone())))
        .route("/healthz", get(|| async { "ok" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let running = tokio::spawn(async move { axum::serve(listener, app).await });
    let client = Client::builder().no_proxy().build().unwrap();
    let served = client.get(format!("{url}/hello/you")).send().await.unwrap();
    assert_eq!(
        (served.status().as_u16(), served.text().await.unwrap().as_str()),
        (200, "you")
    );
    admission.drain();
    let refused = client.get(format!("{url}/hello/you")).send().await.unwrap();
    assert_eq!(refused.status(), 503);
    let signal = refused.headers()["overload-signal"].to_str().unwrap().to_owned();
    assert!(signal.contains("code=draining"), "{signal}");
    assert_eq!(
        client
            .get(format!("{url}/healthz"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    assert_eq!(admission.snapshot().tickets, 0);
    running.abort();
}
