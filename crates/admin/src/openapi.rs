//! The OpenAPI document: the table of routes and the types of the API, written out.
//!
//! Spec: OpenAPI Specification 3.1.

use api::plan::{Applied, Plan};
use api::problem::Problem;
use serde_json::{Map, Value, json};

use crate::route::{self, Field, Gives, Needs, Route, Shape, of};

/// The document of these routes.
pub(crate) fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method.as_str().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tarn",
            "version": "1",
            "description": "The administration of an iSCSI target. See docs/reference/api.md. A name in the query, a \
                            field in a body, or a body that an operation does not list is an error (400), and nothing \
                            is done.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "paths": paths,
        "x-store-kinds": store_kinds(),
        "components": {
            "schemas": schemas(routes),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"token": []}],
    })
}

/// What clients need to know to write a STORE.
fn store_kinds() -> Vec<Value> {
    let kind = |row: &config::KindRow| {
        let options = config::OPTIONS
            .iter()
            .filter(|option| row.takes(option.option));
        json!({
            "word": row.word,
            "place": row.place_word(),
            "shown": row.shown.0,
            "title": row.title,
            "meaning": row.meaning,
            "options": options.map(|option| option.word).collect::<Vec<_>>(),
        })
    };
    config::KINDS.iter().map(kind).collect()
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.about,
        "operationId": operation_id(route),
        "responses": responses(route),
    });
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(shape) = route.takes {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": reference(shape)}},
        });
    }
    match route.needs {
        Needs::Nothing => operation["security"] = json!([]),
        Needs::Role(role) => operation["x-role"] = json!(role),
    }
    operation
}

/// As `put_luns_id`.
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches(api::PREFIX);
    let words = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let method = route.method.as_str().to_lowercase();
    std::iter::once(method.as_str())
        .chain(words)
        .collect::<Vec<_>>()
        .join("_")
}

/// Names in paths that are numbers, and their largest values.
const PATH_NUMBERS: &[(&str, u64)] = &[
    ("revision", u64::MAX),
    ("session", u64::MAX),
    ("lun", u16::MAX as u64),
];

fn parameters(route: &Route) -> Vec<Value> {
    let segments = route.path.split('/');
    let names = segments.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names.map(path_parameter).collect();
    parameters.extend(route.fields().map(query_parameter));
    if route.conditional {
        parameters.push(json!({
            "name": "If-Match",
            "in": "header",
            "description": "The ETag of the revision that the change must start from.",
            "schema": {"type": "string", "pattern": "^\"[0-9]{1,18}\"$"},
        }));
    }
    parameters
}

fn path_parameter(name: &str) -> Value {
    let number = PATH_NUMBERS.iter().find(|(own, _)| *own == name);
    let schema = number.map_or_else(
        || json!({"type": "string", "minLength": 1}),
        |(_, most)| number_up_to(*most),
    );
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}

fn query_parameter(field: &Field) -> Value {
    let schema = match field.value {
        route::Value::Text => json!({"type": "string"}),
        route::Value::Number(most) => number_up_to(most),
        route::Value::Flag => json!({"type": "boolean"}),
    };
    json!({
        "name": field.name,
        "in": "query",
        "required": field.required,
        "description": field.about,
        "schema": schema,
    })
}

fn number_up_to(most: u64) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": most})
}

fn responses(route: &Route) -> Value {
    let mut success = json!({"description": "Done."});
    match route.gives {
        Gives::Nothing => {}
        Gives::One(shape) => success["content"] = json_content(&reference(shape)),
        Gives::Many(shape) => {
            let list = json!({"type": "array", "items": reference(shape)});
            success["content"] = json_content(&list);
        }
        Gives::Json => success["content"] = json_content(&json!({"type": "object"})),
        Gives::Texts(kinds) => {
            let content = kinds.iter().map(|kind| {
                let content = json!({"schema": {"type": "string"}});
                ((*kind).to_owned(), content)
            });
            success["content"] = Value::Object(content.collect());
        }
        Gives::File(kind) => success["content"] = json!({kind: {}}),
    }
    if route.tagged {
        success["headers"] = json!({"ETag": {
            "description": "The revision, in quotes.",
            "schema": {"type": "string"},
        }});
    }
    let mut responses = Map::new();
    for status in route.statuses() {
        responses.insert(status.to_string(), success.clone());
    }
    if route.conditional {
        let either = [of::<Applied>(), of::<Plan>()].map(reference);
        success["content"] = json_content(&json!({"anyOf": either}));
        responses.insert("200".to_owned(), success);
    }
    let schema = reference(of::<Problem>());
    let problem = json!({
        "description": "Why not.",
        "content": {"application/problem+json": {"schema": schema}},
    });
    responses.insert("default".to_owned(), problem);
    responses.into()
}

fn json_content(schema: &Value) -> Value {
    json!({"application/json": {"schema": schema}})
}

fn reference(shape: Shape) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", (shape.name)())})
}

fn schemas(routes: &[Route]) -> Map<String, Value> {
    let mut schemas = Vec::new();
    (of::<Problem>().collect)(&mut schemas);
    for route in routes {
        let given = match route.gives {
            Gives::One(shape) | Gives::Many(shape) => Some(shape),
            Gives::Nothing | Gives::Json | Gives::Texts(_) | Gives::File(_) => None,
        };
        for shape in route.takes.into_iter().chain(given) {
            (shape.collect)(&mut schemas);
        }
    }
    schemas.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::routes::ROUTES;

    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match value {
                        Value::String(name) if key == "$ref" => {
                            found.insert(name);
                        }
                        Value::Null
                        | Value::Bool(_)
                        | Value::Number(_)
                        | Value::String(_)
                        | Value::Array(_)
                        | Value::Object(_) => references(value, found),
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document = document(ROUTES);
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for name in found {
            let pointer = name.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{name}");
        }
    }

    /// A misspelt field that is ignored makes another change than the one that was meant.
    #[test]
    fn every_object_that_a_body_may_have_refuses_fields_it_does_not_list() {
        let mut schemas = Vec::new();
        let taken = ROUTES.iter().filter_map(|route| route.takes);
        taken.for_each(|shape| (shape.collect)(&mut schemas));
        assert!(schemas.len() > 10, "{}", schemas.len());
        for (name, schema) in schemas {
            if schema.get("properties").is_some() {
                assert_eq!(schema["additionalProperties"], json!(false), "{name}");
            }
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let names: BTreeSet<String> = ROUTES.iter().map(operation_id).collect();
        assert_eq!(names.len(), ROUTES.len());
        assert!(names.contains("put_targets_name_luns_lun"), "{names:?}");
    }

    /// `specs` and `views` have types that could collide by name.
    #[test]
    fn schemas_of_one_name_are_one() {
        let mut all = Vec::new();
        for route in ROUTES {
            if let Gives::One(shape) | Gives::Many(shape) = route.gives {
                (shape.collect)(&mut all);
            }
            if let Some(shape) = route.takes {
                (shape.collect)(&mut all);
            }
        }
        for (name, schema) in &all {
            for (other, own) in &all {
                assert!(name != other || schema == own, "{name}");
            }
        }
    }

    /// The console's types are made of it. To take over what the code says: `BLESS=1 cargo test -p admin openapi`.
    #[test]
    fn the_document_that_is_kept_is_that_of_the_code() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let text = serde_json::to_string_pretty(&document(ROUTES)).unwrap() + "\n";
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(file, text).unwrap();
        } else {
            let kept = std::fs::read_to_string(file).unwrap();
            assert!(
                kept == text,
                "docs/openapi.json is not what the code says; run BLESS=1 cargo test -p admin openapi, then make web"
            );
        }
    }
}
