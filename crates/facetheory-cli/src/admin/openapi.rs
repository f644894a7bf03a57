//! The OpenAPI document, made of the handlers and of what they take and give.

use axum::Json;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{console, entries, health, metrics, operations, versions};

/// Everything that the admin listener answers.
#[derive(Debug, OpenApi)]
#[openapi(
    info(title = "FaceTheory admin", description = "What an operator sees and does of a FaceTheory gateway. Times are epoch seconds."),
    paths(
        console::show,
        console::configuration,
        health::lives,
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

/// The token, where one is required.
#[derive(Debug)]
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The admin token, where the listener requires one"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// This document.
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

    /// What the document says: the methods of each address.
    fn told() -> BTreeMap<String, BTreeSet<String>> {
        let document = serde_json::to_value(Document::openapi()).expect("a document");
        let paths = document["paths"].as_object().expect("addresses");
        let methods = |path: &Value| {
            path.as_object().expect("methods").keys().map(|name| name.to_uppercase()).collect()
        };
        paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
    }

    /// What the router answers: a method that it does not have makes it name those that it has.
    async fn answered() -> BTreeMap<String, BTreeSet<String>> {
        let router = admin::tests::site().await;
        let mut answered = BTreeMap::new();
        for (path, _) in admin::routes() {
            let request =
                Request::patch(path).header("host", "localhost").body(Body::empty()).expect("a request");
            let response = router.clone().oneshot(request).await.expect("a response");
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
            let allow = response.headers()["allow"].to_str().expect("a text").to_owned();
            let methods = allow.split(',').map(str::trim).filter(|method| *method != "HEAD");
            answered.insert(path.to_owned(), methods.map(str::to_owned).collect());
        }
        answered
    }

    #[tokio::test]
    async fn every_route_is_in_the_document_and_nothing_else() {
        assert_eq!(told(), answered().await);
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let document = serde_json::to_value(Document::openapi()).expect("a document");
        let paths = document["paths"].as_object().expect("addresses").values();
        let operations: Vec<&str> = paths
            .flat_map(|path| path.as_object().expect("methods").values())
            .map(|operation| operation["operationId"].as_str().expect("a name"))
            .collect();
        let distinct: BTreeSet<&str> = operations.iter().copied().collect();
        assert_eq!(distinct.len(), operations.len(), "{operations:?}");
    }
}
