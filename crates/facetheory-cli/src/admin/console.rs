//! The start page of the console, and the configuration.

use axum::Json;
use axum::response::Html;
use serde_json::Value;

use super::AdminState;
use super::problem::Problem;

/// The start page of the console
#[utoipa::path(
    get, path = "/", operation_id = "console", tag = "process",
    responses((status = 200, description = "An HTML page", body = String, content_type = "text/html")),
)]
pub(super) async fn show() -> Html<&'static str> {
    Html(
        "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>FaceTheory</title>
<h1>FaceTheory</h1>
<ul>
<li>Health: <a href=\"/readyz\">readiness</a>, <a href=\"/healthz\">liveness</a>
<li><a href=\"/metrics\">Metrics</a> (Prometheus)
<li><a href=\"/api/v1/entries\">Cached pages</a>
<li><a href=\"/api/v1/config\">Configuration</a>
<li><a href=\"/api/v1/openapi.json\">API description</a> (OpenAPI)
</ul>
",
    )
}

/// The configuration as last read, with the command line and defaults applied
#[utoipa::path(
    get, path = "/api/v1/config", operation_id = "configuration", tag = "process",
    responses(
        (status = 200, description = "All settings, including defaults. After a reload, they include changed settings that take effect only after a restart (`listen`, `store`, `gc`).", body = Value),
        (status = "4XX", description = "The request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn configuration(admin: AdminState) -> Json<Value> {
    Json(Value::clone(&admin.effective_config.load()))
}
