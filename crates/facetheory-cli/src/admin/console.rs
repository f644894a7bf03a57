//! The console, for now: a plain page that leads to everything else.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Html;
use serde_json::Value;

use super::Admin;
use super::problem::Problem;

/// A page for people, with links to what there is.
#[utoipa::path(
    get, path = "/", operation_id = "console", tag = "process",
    responses((status = 200, description = "A page for people", body = String, content_type = "text/html")),
)]
pub(super) async fn show() -> Html<&'static str> {
    Html(
        "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>FaceTheory</title>
<h1>FaceTheory</h1>
<p>This is the console, for now: what it will show is here to be read.</p>
<ul>
<li><a href=\"/readyz\">whether visitors can be served</a>, <a href=\"/healthz\">whether the process lives</a>
<li><a href=\"/metrics\">metrics</a>
<li><a href=\"/api/v1/entries\">pages</a>
<li><a href=\"/api/v1/config\">the configuration, as it was understood</a>
<li><a href=\"/api/v1/openapi.json\">everything that there is, as an OpenAPI document</a>
</ul>
",
    )
}

/// The configuration, as it was understood.
#[utoipa::path(
    get, path = "/api/v1/config", operation_id = "configuration", tag = "process",
    responses(
        (status = 200, description = "What the gateway goes by", body = Value),
        (status = "4XX", description = "What is wrong", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn configuration(State(admin): State<Arc<Admin>>) -> Json<Value> {
    Json((admin.configuration)())
}
