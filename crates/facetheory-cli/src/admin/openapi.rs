//! The OpenAPI document, generated from the handlers.

use axum::Json;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{console, entries, health, metrics, operations, versions};

/// All operations of the admin listener.
#[derive(Debug, OpenApi)]
#[openapi(
    info(title = "FaceTheory admin", description = "Inspect, purge, regenerate and roll back the pages of a FaceTheory gateway. Times are epoch seconds."),
    paths(
        console::show,
        console::configuration,
        health::live,
        health::ready,
        metrics::show,
        show,
        entries::list,
        entries::show,
        versions::history,
        versions::body,
        versions::diff,
        operations::roll_back,
        operations::unpin,
        operations::invalidate,
        operations::regenerate,
    ),
    modifiers(&Bearer),
    security((), ("bearer" = [])),
)]
pub(super) struct Document;

/// Adds the bearer token as a security scheme.
#[derive(Debug)]
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The admin token, if the listener requires one"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// This document
#[utoipa::path(
    get, path = "/api/v1/openapi.json", operation_id = "document", tag = "process",
    responses((status = 200, description = "This document", body = serde_json::Value)),
)]
pub(super) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use axum::body::Body;
    use http::{Request, StatusCode};
    use serde_json::Value;
    use tower::ServiceExt as _;

    use super::*;
    use crate::admin;

    /// Returns the methods of each path in the document.
    fn documented() -> BTreeMap<String, BTreeSet<String>> {
        let document = serde_json::to_value(Document::openapi()).expect("a document");
        let paths = document["paths"].as_object().expect("paths");
        let methods = |path: &Value| {
            path.as_object().expect("methods").keys().map(|name| name.to_uppercase()).collect()
        };
        paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
    }

    /// Returns the methods of each path in the router, from the `Allow` header of a response to another method.
    async fn routed() -> BTreeMap<String, BTreeSet<String>> {
        let router = admin::tests::site().await;
        let mut routed = BTreeMap::new();
        for (path, _) in admin::routes() {
            let request =
                Request::patch(path).header("host", "localhost").body(Body::empty()).expect("a request");
            let response = router.clone().oneshot(request).await.expect("a response");
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
            let allow = response.headers()["allow"].to_str().expect("a text").to_owned();
            let methods = allow.split(',').map(str::trim).filter(|method| *method != "HEAD");
            routed.insert(path.to_owned(), methods.map(str::to_owned).collect());
        }
        routed
    }

    #[tokio::test]
    async fn the_document_contains_exactly_the_routes() {
        assert_eq!(documented(), routed().await);
    }

    #[test]
    fn operation_ids_are_unique() {
        let document = serde_json::to_value(Document::openapi()).expect("a document");
        let paths = document["paths"].as_object().expect("paths").values();
        let operations: Vec<&str> = paths
            .flat_map(|path| path.as_object().expect("methods").values())
            .map(|operation| operation["operationId"].as_str().expect("a name"))
            .collect();
        let distinct: BTreeSet<&str> = operations.iter().copied().collect();
        assert_eq!(distinct.len(), operations.len(), "{operations:?}");
    }
}
