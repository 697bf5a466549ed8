//! The OpenAPI document, made from the table of endpoints.

use axum::routing::get;
use serde_json::{Map, Value, json};

use crate::answer::answer;
use crate::endpoint::{Access, Endpoint, JSON};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![Endpoint::read("/openapi.json", "This document.", get(async || answer(openapi())))]
}

/// The document that `/openapi.json` answers and `docs/openapi.json` keeps.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in crate::handlers::endpoints() {
        let operations = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        if let Value::Object(operations) = operations {
            operations.insert(endpoint.method.as_str().to_lowercase(), operation(&endpoint));
        }
    }
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Admin HTTP of the master",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Paths and shapes of the peer's admin server, and more. Every GET answers HEAD. Values in \
                            queries are percent-decoded; + is a plus sign. Unknown paths and methods answer 404.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": error_schema()}, "securitySchemes": {"token": {
            "type": "http", "scheme": "bearer", "description": "Only with the setting admin_token.",
        }}},
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({"description": "Done", "content": {short(endpoint.answer): {}}}));
    for (code, meaning) in endpoint.codes {
        let error = json!({JSON_TYPE: {"schema": {"$ref": "#/components/schemas/Error"}}});
        let body = json!({"description": meaning, "content": error});
        responses.insert(code.to_string(), body);
    }
    if endpoint.access == Access::Write {
        responses.insert("401".to_owned(), json!({"description": "No token, or a wrong one (setting admin_token)"}));
        responses
            .insert("403".to_owned(), json!({"description": "Only at another address (setting admin_write_port)"}));
    }
    let parameters: Vec<Value> = endpoint
        .parameters
        .iter()
        .map(|p| {
            json!({
                "name": p.name, "in": "query", "required": p.required, "description": p.about,
                "schema": {"type": p.kind},
            })
        })
        .collect();
    let mut operation = json!({"summary": endpoint.about, "parameters": parameters, "responses": responses});
    if let Value::Object(fields) = &mut operation {
        if let Some(example) = endpoint.body {
            let example: Value = serde_json::from_str(example).unwrap_or_default();
            fields.insert("requestBody".to_owned(), json!({"content": {JSON_TYPE: {"example": example}}}));
        }
        if endpoint.access == Access::Write {
            fields.insert("security".to_owned(), json!([{}, {"token": []}]));
        }
    }
    operation
}

const JSON_TYPE: &str = "application/json";

/// A content type without its parameters; JSON is what most answer.
fn short(content_type: &str) -> &str {
    if content_type == JSON { JSON_TYPE } else { content_type.split(';').next().unwrap_or(content_type) }
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "success": {"type": "boolean"},
            "error_code": {"type": "integer", "description": "The peer's error number, below zero"},
            "error_message": {"type": "string"},
        },
    })
}
