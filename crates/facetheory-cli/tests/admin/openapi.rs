//! Responses match the OpenAPI document.

use serde_json::{Value, json};

use crate::process::{Gateway, Origin, Response};

/// Resolves a reference.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).expect("a schema"),
        None => schema,
    }
}

/// Checks that a value has the required fields and no others, and the right types.
fn check(document: &Value, schema: &Value, value: &Value, place: &str) {
    let schema = resolved(document, schema);
    let choices = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(choices) = choices {
        let is_null = |choice: &&Value| choice["type"] == "null";
        if value.is_null() {
            assert!(choices.iter().any(|choice| is_null(&choice)), "{place} is null");
        } else if let Some(choice) =
            choices.iter().find(|choice| !is_null(choice) && !choice["enum"].is_array())
        {
            check(document, choice, value, place);
        }
        return;
    }
    if let Some(parts) = schema["allOf"].as_array() {
        // Each part has its own fields, so only the required ones can be checked.
        for part in parts {
            let part = resolved(document, part);
            for name in part["required"].as_array().into_iter().flatten() {
                assert!(value.get(name.as_str().expect("a name")).is_some(), "{place} lacks {name}");
            }
        }
        return;
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(kinds.contains(&kind), "{place} is of type {kind}, and should be {kinds:?}");
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{place} is {value}");
    }
    for item in value.as_array().into_iter().flatten() {
        check(document, &schema["items"], item, place);
    }
    if let (Some(fields), Some(documented)) = (value.as_object(), schema["properties"].as_object()) {
        for name in schema["required"].as_array().into_iter().flatten() {
            assert!(fields.contains_key(name.as_str().expect("a name")), "{place} lacks {name}");
        }
        for (name, field) in fields {
            let schema =
                documented.get(name).unwrap_or_else(|| panic!("{place} has {name}, which is not documented"));
            check(document, schema, field, &format!("{place}.{name}"));
        }
    }
}

#[test]
fn responses_match_the_document() {
    let gateway = Gateway::start(&Origin::start());
    let document = gateway.get("/api/v1/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    gateway.client_get("/a");
    let url = gateway.url("/a");
    let matches = |method: &str, path: &str, response: &Response| {
        let responses = &document["paths"][path][method]["responses"];
        let range = format!("{}XX", response.status / 100);
        let documented = responses.get(response.status.to_string()).or(responses.get(&range));
        let documented = documented
            .unwrap_or_else(|| panic!("{path} returns {}, which is not documented", response.status));
        let kind = response.header("content-type").split(';').next().expect("a type");
        let schema = &documented["content"][kind]["schema"];
        assert!(schema.is_object(), "{path} returns {kind}, which is not documented: {documented}");
        check(&document, schema, &response.json(), path);
    };
    for (path, response) in [
        ("/readyz", gateway.get("/readyz")),
        ("/api/v1/entries", gateway.get("/api/v1/entries?limit=1")),
        ("/api/v1/entries", gateway.get("/api/v1/entries?limit=x")),
        ("/api/v1/entry", gateway.get_page("entry", "/a")),
        ("/api/v1/entry", gateway.get_page("entry", "/absent")),
        ("/api/v1/history", gateway.get_page("history", "/a")),
        ("/api/v1/diff", gateway.get_page("diff", "/a&from=VER%231&to=VER%232")),
        ("/api/v1/config", gateway.get("/api/v1/config")),
    ] {
        matches("get", path, &response);
    }
    for (path, response) in [
        ("/api/v1/invalidate", gateway.post("/api/v1/invalidate", &json!({ "url": url }))),
        ("/api/v1/invalidate", gateway.post("/api/v1/invalidate", &json!({ "none": url }))),
        ("/api/v1/unpin", gateway.post("/api/v1/unpin", &json!({ "url": url }))),
        ("/api/v1/rollback", gateway.post("/api/v1/rollback", &json!({ "url": url, "version": "VER#1" }))),
        ("/api/v1/regenerate", gateway.regenerate("one", "/b")),
        ("/api/v1/regenerate", gateway.regenerate("one", "/c")),
    ] {
        matches("post", path, &response);
    }
}

#[test]
fn the_console_links_to_the_endpoints() {
    let gateway = Gateway::start(&Origin::start());
    let page = gateway.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let links: Vec<&str> =
        page.body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() >= 5);
    for link in links {
        assert_eq!(gateway.get(link).status, 200, "{link}");
    }
    gateway.get("/elsewhere").problem(404);
    let wrong = crate::process::Request::get("/api/v1/entries").method("DELETE", "").send(&gateway.admin);
    wrong.problem(405);
    assert_eq!(wrong.header("allow"), "get,head");
}
