//! Conversion of models to and from rows.

#[path = "support/row.rs"]
mod row;

use std::collections::BTreeMap;
use std::env::VarError;
use std::error::Error as _;

use row::{CacheLease, CacheMetadata, Document, NOW, lease, metadata};
use serde::{Deserialize, Serialize};
use tabletheory::{Attr, Error, Item, Kind, Model, Roles, Value};

/// Returns the message with its sources.
fn full_message(error: &Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}

#[test]
fn rows_have_exactly_the_attributes_of_the_wire_format() {
    let full = r#"{"etag":{"S":"\"abc123\""},"generated_at":{"N":"1700000000"},"pk":{"S":"CACHE#1"},"revalidate_seconds":{"N":"60"},"s3_key":{"S":"pages/1.html"},"sk":{"S":"META"},"ttl":{"N":"1700086400"}}"#;
    assert_eq!(metadata().to_item().unwrap().to_json(), full);
    assert_eq!(CacheMetadata::from_item(Item::from_json(full).unwrap()).unwrap(), metadata());

    let held = r#"{"lease_expires_at":{"N":"1700000030"},"lease_token":{"S":"t-1"},"pk":{"S":"CACHE#1"},"sk":{"S":"LOCK"}}"#;
    assert_eq!(lease("t-1").to_item().unwrap().to_json(), held);
    assert_eq!(CacheLease::from_item(Item::from_json(held).unwrap()).unwrap(), lease("t-1"));
}

#[test]
fn omitempty_fields_are_not_stored_and_are_read_as_defaults() {
    let bare = CacheMetadata { etag: String::new(), ttl: 0, ..metadata() };
    let item = bare.to_item().unwrap();
    assert_eq!((item.get("etag"), item.get("ttl")), (None, None));
    assert_eq!(CacheMetadata::from_item(item).unwrap(), bare);
}

#[derive(Model, Clone, Debug, Default, PartialEq)]
#[model(rename_all = "camelCase")]
struct Mixed {
    #[model(pk)]
    partition: String,
    #[model(sk)]
    sort: String,
    content_type: String,
    #[model(rename = "x-Headers", omitempty)]
    headers: BTreeMap<String, String>,
    #[model(with = "tabletheory::string_set", omitempty)]
    tags: Vec<String>,
    #[model(with = "tabletheory::number_set")]
    statuses: Option<Vec<u16>>,
    #[model(omitempty)]
    is_pinned: bool,
    #[model(omitempty)]
    pages: Vec<u32>,
    ratio: f64,
    state: State,
    #[model(omitempty)]
    note: Option<String>,
    r#type: Option<u8>,
    #[model(with = "reversed")]
    secret: String,
    alias: Maybe,
    nested: Option<Origin>,
}

/// An `Option` that the macro does not recognize.
type Maybe = Option<String>;

#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
#[serde(rename_all = "UPPERCASE")]
enum State {
    #[default]
    Started,
    Failed,
}

impl From<State> for Value {
    fn from(state: State) -> Value {
        Value::from(if state == State::Started { "STARTED" } else { "FAILED" })
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Origin {
    host: String,
    retries: Option<u8>,
}

/// A `with` module whose function takes `&str` instead of `&String`.
mod reversed {
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text.chars().rev().collect::<String>())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        Ok(String::deserialize(deserializer)?.chars().rev().collect())
    }
}

fn mixed() -> Mixed {
    Mixed { partition: "P".into(), sort: "S".into(), secret: "abc".into(), ..Mixed::default() }
}

#[test]
fn a_model_of_defaults_stores_only_required_fields() {
    let item = mixed().to_item().unwrap();
    let names: Vec<&str> = item.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["contentType", "pk", "ratio", "secret", "sk", "state"]);
    assert_eq!(Mixed::from_item(item).unwrap(), mixed());
}

#[test]
fn fields_of_every_kind_survive_a_round_trip_under_their_attribute_names() {
    let full = Mixed {
        headers: BTreeMap::from([("vary".into(), "accept".into())]),
        tags: vec!["news".into(), "sport".into()],
        statuses: Some(vec![200, 404]),
        is_pinned: true,
        pages: vec![1, 2],
        ratio: -0.5,
        state: State::Failed,
        note: Some("seen".into()),
        alias: Some("a".into()),
        nested: Some(Origin { host: "example.org".into(), retries: None }),
        ..mixed()
    };
    let item = full.to_item().unwrap();
    let type_of = |name: &str| item.get(name).map(Value::type_name);
    assert_eq!(type_of("x-Headers"), Some("M"));
    assert_eq!(type_of("tags"), Some("SS"));
    assert_eq!(type_of("statuses"), Some("NS"));
    assert_eq!(item.get("isPinned"), Some(&true.into()));
    assert_eq!(item.get("state"), Some(&"FAILED".into()));
    assert_eq!(item.get("secret"), Some(&"cba".into()));
    assert_eq!(Mixed::from_item(item).unwrap(), full);
}

#[test]
fn constants_have_the_stored_names_and_value_types() {
    assert_eq!(Mixed::PARTITION.is("P").to_string(), r#"pk = "P""#);
    assert_eq!(Mixed::CONTENT_TYPE.begins_with("text/").to_string(), r#"begins_with(contentType, "text/")"#);
    assert_eq!(Mixed::HEADERS.exists().to_string(), "attribute_exists(x-Headers)");
    assert_eq!(Mixed::STATE.is(State::Failed).to_string(), r#"state = "FAILED""#);
    // The type without `Option`.
    let note: Attr<String> = Mixed::NOTE;
    assert_eq!(note.is("seen").to_string(), r#"note = "seen""#);
}

#[test]
fn a_model_has_a_name_and_roles() {
    assert_eq!(Document::NAME, "Document");
    let roles = Roles {
        ttl: None,
        version: Some("version"),
        created_at: Some("created"),
        updated_at: Some("updated"),
        ..Roles::default()
    };
    assert_eq!(Document::ROLES, roles);
    assert_eq!(CacheLease::ROLES, Roles { ttl: Some("ttl"), ..Roles::default() });
}

/// Models whose types come from another macro, which wraps them in invisible groups.
macro_rules! expiring {
    ($name:ident, $ty:ty) => {
        #[derive(Model, Clone, Debug, PartialEq)]
        struct $name {
            #[model(pk)]
            pk: String,
            #[model(sk)]
            sk: String,
            #[model(ttl)]
            ttl: $ty,
        }
    };
}

expiring!(Expiring, i64);
expiring!(MaybeExpiring, Option<u32>);

#[test]
fn types_may_come_from_another_macro() {
    let always = Expiring { pk: "P".into(), sk: "S".into(), ttl: NOW };
    let item = always.to_item().expect("a row");
    assert_eq!(item.get("ttl"), Some(&NOW.into()));
    assert_eq!(Expiring::from_item(item).expect("the same row"), always);
    let never = MaybeExpiring { pk: "P".into(), sk: "S".into(), ttl: None };
    let item = never.to_item().expect("a row");
    assert_eq!(item.get("ttl"), None);
    assert_eq!(MaybeExpiring::from_item(item).expect("the same row"), never);
    let seconds: Attr<u32> = MaybeExpiring::TTL;
    assert_eq!(seconds.is(5_u32).to_string(), "ttl = 5");
}

#[test]
fn a_row_of_another_writer_needs_only_required_attributes() {
    let mut item = metadata().to_item().unwrap();
    item.remove("etag");
    item.set("ttl", Value::Null);
    item.set("content_type", "text/html");
    item.set("headers", Value::M(BTreeMap::new()));
    let page = CacheMetadata::from_item(item).unwrap();
    assert_eq!(page, CacheMetadata { etag: String::new(), ttl: 0, ..metadata() });
}

#[test]
fn the_error_of_an_unreadable_row_names_row_and_attribute() {
    let read = |change: &dyn Fn(&mut Item)| {
        let mut item = metadata().to_item().unwrap();
        change(&mut item);
        let error = CacheMetadata::from_item(item).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        full_message(&error)
    };
    let missing = read(&|item| drop(item.remove("generated_at")));
    assert_eq!(missing, "CacheMetadata META of CACHE#1: attribute `generated_at` is missing");
    assert_eq!(
        read(&|item| item.set("generated_at", "yesterday")),
        "CacheMetadata META of CACHE#1: attribute `generated_at` is of type S and cannot be read as i64: Expected num"
    );
    assert_eq!(
        read(&|item| item.set("revalidate_seconds", Value::N("0.5".parse().unwrap()))),
        "CacheMetadata META of CACHE#1: attribute `revalidate_seconds` is of type N and cannot be read as i64: \
         Failed to parse '0.5' as an integer: invalid digit found in string"
    );
    assert_eq!(
        read(&|item| item.set("s3_key", Value::Null)),
        "CacheMetadata META of CACHE#1: attribute `s3_key` is of type NULL and cannot be read as String: \
         Expected string"
    );
    assert_eq!(
        read(&|item| item.set("etag", 5)),
        "CacheMetadata META of CACHE#1: attribute `etag` is of type N and cannot be read as String: Expected string"
    );
    assert_eq!(read(&|item| drop(item.remove("sk"))), "CacheMetadata: the item has no `sk`");
    assert_eq!(
        read(&|item| item.set("pk", 1)),
        "CacheMetadata: the key attribute `pk` is of type N; it must be S"
    );
}

#[test]
fn the_error_of_an_unwritable_row_names_row_and_attribute() {
    let twice = Mixed { tags: vec!["a".into(), "a".into()], ..mixed() };
    assert_eq!(
        full_message(&twice.to_item().unwrap_err()),
        "Mixed S of P: attribute `tags` cannot be written: a set has the same member twice"
    );
    let none = Mixed { statuses: Some(vec![]), ..mixed() };
    assert_eq!(
        full_message(&none.to_item().unwrap_err()),
        "Mixed S of P: attribute `statuses` cannot be written: a set is empty; leave the attribute out instead"
    );
    assert!(Mixed { ratio: f64::NAN, ..mixed() }.to_item().is_err());
}

#[test]
fn the_name_of_the_table_comes_from_the_environment() {
    let error = |variable: Result<String, VarError>| {
        CacheMetadata::table_name_from(|_| variable).unwrap_err().to_string()
    };
    let name = CacheMetadata::table_name_from(|variable| Ok(format!("${variable}"))).unwrap();
    assert_eq!(name, "$FACETHEORY_CACHE_TABLE_NAME");
    assert_eq!(
        error(Err(VarError::NotPresent)),
        "the environment variable FACETHEORY_CACHE_TABLE_NAME is not set; it names the table of CacheMetadata"
    );
    assert!(error(Ok(String::new())).contains("is empty"));
    assert!(error(Err(VarError::NotUnicode("x".into()))).contains("is not UTF-8"));
    assert!(Document::table_name().unwrap_err().to_string().contains("#[model(table_env"));
}
