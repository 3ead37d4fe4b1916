//! `pagelab-contract DIR`: writes the JSON schemas of the request and the record, and the table of strategies, into DIR.

use std::path::Path;
use std::process::ExitCode;

use pagelab_abi::plan::StrategyKind;
use pagelab_contract::{record, request};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Widths of Rust's numbers are not the contract's: what is read is checked against other copies of the same types.
fn without_widths(schema: &mut Schema) {
    for key in ["format", "minimum", "maximum"] {
        schema.remove(key);
    }
}

/// A choice of constants, each with a description, as the list of them: generators of code know what to do with that.
fn as_list(schema: &mut Schema) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let constants: Vec<Value> = choices
        .iter()
        .flat_map(|choice| match (choice.get("const"), choice.get("enum")) {
            (Some(one), _) => vec![one.clone()],
            (None, Some(Value::Array(several))) => several.clone(),
            _ => Vec::new(),
        })
        .collect();
    if constants.len() >= choices.len() {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), Value::Array(constants));
    }
}

fn document<T: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12()
        .with_transform(RecursiveTransform(without_widths))
        .with_transform(RecursiveTransform(as_list));
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let text = serde_json::to_string_pretty(&schema).expect("schemas are JSON");
    text + "\n"
}

/// The table of strategies, for what Python shows of them.
fn strategies() -> String {
    let row = |kind: &StrategyKind| {
        let facts = kind.facts();
        let parameters = facts.parameters.iter().map(|one| json!([one.name(), one.takes()])).collect::<Vec<_>>();
        json!({"name": facts.name, "summary": facts.summary, "example": facts.example, "parameters": parameters})
    };
    json!(StrategyKind::ALL.iter().map(row).collect::<Vec<_>>()).to_string()
}

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: pagelab-contract DIR");
        return ExitCode::from(2);
    };
    let documents = [
        ("record-1.json", document::<record::Record>()),
        ("request-1.json", document::<request::Request>()),
        ("strategies.json", strategies()),
    ];
    for (name, text) in documents {
        let path = Path::new(&directory).join(name);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("pagelab-contract: cannot write {}: {error}", path.display());
            return ExitCode::from(4);
        }
    }
    ExitCode::SUCCESS
}
