//! Cache keys, compared with values that JavaScript computed (`golden/keys.mjs`): the default ones, and those of TypeScript
//! services.

use std::sync::Arc;
use std::time::Duration;

use facetheory::{Bodies, Isr, IsrLayer, PageStore, Pages, Policy, Query, Route, Routes, TenantFrom};
use http::Request;
use http::uri::Scheme;
use serde_json::Value;
use tabletheory::MemoryTable;
use tower::Layer as _;

/// Returns the cache key of the request that a vector describes, in the default form or in that of TypeScript services.
fn cache_key(vector: &Value, is_default: bool) -> String {
    let text = |name: &str| vector[name].as_str();
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    let headers: Vec<(String, Vec<String>)> = vector["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, values)| (name.clone(), texts(values)))
        .collect();
    let mut route = Route::new(text("pattern").expect("a pattern"), Policy::every(Duration::from_secs(60)))
        .headers(headers.iter().map(|(name, _)| name))
        .cookies(texts(&vector["listed"]));
    if vector["only"].is_array() {
        route = route.query(Query::only(texts(&vector["only"])));
    }
    let uri = match text("query") {
        Some(query) => format!("{}?{query}", text("path").expect("a path")),
        None => text("path").expect("a path").to_owned(),
    };
    let mut request = Request::get(uri);
    if let Some(host) = text("host") {
        request = request.header("host", host);
    }
    if vector["https"] == true {
        request = request.extension(Scheme::HTTPS);
    }
    if let Some(tenant) = text("tenant") {
        route = route.tenant(TenantFrom::TrustedHeader("x-tenant-id".into()));
        request = request.header("x-tenant-id", tenant);
    }
    for (name, value) in
        headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)))
    {
        request = request.header(name, value);
    }
    if let Some(cookie) = text("cookie") {
        request = request.header("cookie", cookie);
    }
    let mut routes = Routes::new([route]).expect("a route");
    if text("host").is_none() {
        routes = routes.of_one_site("example.com").expect("a site");
    }
    if !is_default {
        routes = routes.facetheory_ts_keys(Scheme::HTTPS).expect("a route");
    }
    let pages = Pages::new(PageStore::new(Arc::new(MemoryTable::new())), Bodies::memory());
    let service = IsrLayer::new(Isr::new(pages), routes).layer("any service");
    let resolved = service.resolve(&request.body(()).expect("a request").into_parts().0);
    resolved.page().map_or_else(|| "no page".to_owned(), |page| page.cache_key().to_owned())
}

#[tokio::test]
async fn cache_keys_equal_those_of_typescript_services() {
    let vectors: Value = serde_json::from_str(include_str!("../golden/keys.json")).expect("the file is JSON");
    let vectors = vectors["facetheory_ts"].as_array().expect("a list");
    assert!(vectors.len() > 40);
    for vector in vectors {
        assert_eq!(
            cache_key(vector, false),
            vector["cache_key"].as_str().expect("a key"),
            "{}",
            vector["name"]
        );
    }
}

#[tokio::test]
async fn default_cache_keys_are_built_as_in_the_file() {
    let vectors: Value = serde_json::from_str(include_str!("../golden/keys.json")).expect("the file is JSON");
    for vector in vectors["default"].as_array().expect("a list") {
        assert_eq!(
            cache_key(vector, true),
            vector["cache_key"].as_str().expect("a key"),
            "{}",
            vector["name"]
        );
    }
}

#[tokio::test]
async fn a_query_that_would_give_the_key_of_another_path_is_not_cached() {
    let key = |path: &str, query: Option<&str>| {
        cache_key(&serde_json::json!({ "pattern": "/docs/{page*}", "path": path, "query": query }), false)
    };
    assert_eq!(key("/docs/a/b", None), "default::/docs/{page*}?page=a%2Fb");
    for query in ["page=a%2Fb", "page=a/b", "x=1&page=a", "page", "p%61ge=a"] {
        assert_eq!(key("/docs", Some(query)), "no page", "{query}");
    }
    assert_eq!(key("/docs", Some("pages=a")), "default::/docs/{page*}?pages=a");
    assert_eq!(key("/docs/a", Some("page=b")), "default::/docs/{page*}?page=a&page=b");
}
