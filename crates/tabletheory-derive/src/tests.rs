//! Error messages of invalid models, and the code of valid ones.

use crate::expand::expand;
use crate::naming::{CASES, convert, nearest};

/// Returns all error messages of a model, one per line; empty if it is valid.
fn errors_of(model: &str) -> String {
    let input = syn::parse_str(model).expect("valid Rust");
    match expand(&input) {
        Ok(_) => String::new(),
        Err(errors) => errors.into_iter().map(|error| error.to_string()).collect::<Vec<_>>().join("\n"),
    }
}

/// A model with keys and these fields.
fn with_key(fields: &str) -> String {
    format!("struct Page {{ #[model(pk)] pk: String, #[model(sk)] sk: String, {fields} }}")
}

const FIELD_OPTIONS: &str =
    "The options of a field are pk, sk, ttl, version, created_at, updated_at, omitempty, rename, with";

#[test]
fn the_error_of_an_invalid_field_says_what_to_do() {
    let models = [
        // Unknown and malformed options.
        ("#[model(omitemtpy)] etag: String", format!("field `etag`: unknown option `omitemtpy`; did you mean `omitempty`? {FIELD_OPTIONS}")),
        ("#[model(primary_index)] etag: String", format!("field `etag`: unknown option `primary_index`. {FIELD_OPTIONS}")),
        ("#[model(a::b)] etag: String", format!("field `etag`: unknown option `a::b`. {FIELD_OPTIONS}")),
        ("#[model(omitempty = true)] etag: String", "field `etag`: the option `omitempty` takes no value".into()),
        ("#[model(ttl = \"60\")] ttl: i64", "field `ttl`: the option `ttl` takes no value".into()),
        ("#[model(rename)] etag: String", "field `etag`: the option `rename` needs a string, as in rename = \"…\"".into()),
        ("#[model(rename = 3)] etag: String", "field `etag`: the option `rename` needs a string, as in rename = \"…\"".into()),
        ("#[model(with = \"not a path\")] tags: Vec<String>", "field `tags`: with = \"not a path\" is not the path of a module".into()),
        ("#[model(omitempty, omitempty)] etag: String", "field `etag`: the option `omitempty` is given twice".into()),
        ("#[model(rename = \"a\")] #[model(rename = \"b\")] etag: String", "field `etag`: the option `rename` is given twice".into()),
        ("#[model(ttl, ttl)] ttl: i64", "field `ttl`: the option `ttl` is given twice".into()),
        // Roles.
        ("#[model(version, ttl)] number: i64", "field `number`: the field has the role version, so it cannot have the role ttl too".into()),
        ("#[model(pk)] other: String", "field `other`: the field `pk` has the role pk already".into()),
        ("#[model(version)] a: i64, #[model(version)] b: i64", "field `b`: the field `a` has the role version already".into()),
        ("#[model(ttl)] ttl: String", "field `ttl`: the role ttl needs an integer of up to 64 bits or an Option of one, not String".into()),
        ("#[model(version)] version: Option<f64>", "field `version`: the role version needs an integer of up to 64 bits or an Option of one, not Option<f64>".into()),
        ("#[model(created_at)] created: std::time::SystemTime", "field `created`: the role created_at needs an integer of up to 64 bits, a String, or an Option of one of them, not std::time::SystemTime".into()),
        ("#[model(updated_at)] updated: u128", "field `updated`: the role updated_at needs an integer of up to 64 bits, a String, or an Option of one of them, not u128".into()),
        ("#[model(version, with = \"a::b\")] version: i64", "field `version`: the role version is a plain number, which excludes `with`".into()),
        ("#[model(created_at)] a: String, #[model(updated_at)] b: i64", "struct `Page`: the field `a` stores its time as text and the field `b` as a number; make both a String or both an integer".into()),
        ("#[model(created_at, with = \"a::b\")] created: String", "field `created`: the role created_at is a plain number or string, which excludes `with`".into()),
        // Names.
        ("#[model(ttl, rename = \"expires\")] ttl: i64", "field `ttl`: the attribute of the role ttl is always named `ttl`; it cannot be renamed to `expires`".into()),
        ("ttl: i64", "field `ttl`: the attribute `ttl` belongs to the role ttl; mark the field with #[model(ttl)] or rename it".into()),
        ("#[model(rename = \"pk\")] id: String", "field `id`: the attribute `pk` belongs to the role pk; mark the field with #[model(pk)] or rename it".into()),
        ("#[model(rename = \"\")] etag: String", "field `etag`: an attribute's name cannot be empty".into()),
        ("etag: String, #[model(rename = \"etag\")] tag: String", "field `tag`: its attribute is named `etag`, like that of the field `etag`".into()),
    ];
    for (fields, message) in models {
        assert_eq!(errors_of(&with_key(fields)), message, "of {fields}");
    }
    let long = format!("#[model(rename = \"{}\")] etag: String", "x".repeat(256));
    assert_eq!(
        errors_of(&with_key(&long)),
        "field `etag`: the attribute's name has 256 bytes; the limit is 255"
    );
}

#[test]
fn the_error_of_an_invalid_struct_says_what_to_do() {
    let models = [
        (
            "struct Page { #[model(sk)] sk: String }",
            "struct `Page`: no field is the partition key; mark a String with #[model(pk)]",
        ),
        (
            "struct Page { #[model(pk)] pk: String }",
            "struct `Page`: no field is the sort key; mark a String with #[model(sk)]",
        ),
        (
            "struct Page {}",
            "struct `Page`: no field is the partition key; mark a String with #[model(pk)]\n\
             struct `Page`: no field is the sort key; mark a String with #[model(sk)]",
        ),
        (
            "struct Page { pk: String, #[model(sk)] sk: String }",
            "field `pk`: the attribute `pk` belongs to the role pk; mark the field with #[model(pk)] or rename it",
        ),
        (
            "struct Page { #[model(pk)] pk: u64, #[model(sk)] sk: String }",
            "field `pk`: the role pk needs a String, not u64",
        ),
        (
            "struct Page { #[model(pk)] pk: String, #[model(sk)] sk: Option<String> }",
            "field `sk`: the role sk needs a String, not Option<String>",
        ),
        (
            "struct Page { #[model(pk, omitempty)] pk: String, #[model(sk)] sk: String }",
            "field `pk`: a key is never left out, so the role pk excludes `omitempty`",
        ),
        (
            "struct Page { #[model(pk)] pk: String, #[model(sk, with = \"m\")] sk: String }",
            "field `sk`: the role sk is a plain string, which excludes `with`",
        ),
        (
            "struct Page { #[model(pk, rename = \"id\")] id: String, #[model(sk)] sk: String }",
            "field `id`: the attribute of the role pk is always named `pk`; it cannot be renamed to `id`",
        ),
        ("struct Page(String, String);", "`Page` is a tuple struct; a model is a struct with named fields"),
        ("struct Page;", "`Page` is a struct without fields; a model is a struct with named fields"),
        ("enum Page { Full }", "`Page` is an enum; a model is a struct with named fields"),
        ("union Page { a: u8 }", "`Page` is a union; a model is a struct with named fields"),
        (
            "struct Page<T> { #[model(pk)] pk: String, #[model(sk)] sk: String, body: T }",
            "struct `Page`: a model cannot be generic; make a struct for each kind of row",
        ),
        (
            "struct Page<'a> { #[model(pk)] pk: String, #[model(sk)] sk: String, body: &'a str }",
            "struct `Page`: a model cannot be generic; make a struct for each kind of row",
        ),
        (
            "#[model(table_envy = \"T\")] struct Page {}",
            "struct `Page`: unknown option `table_envy`; did you mean `table_env`? The options of a struct are table_env, rename_all",
        ),
        (
            "#[model(table_env = \"\")] struct Page {}",
            "struct `Page`: table_env is empty; name an environment variable",
        ),
        (
            "#[model(table_env)] struct Page {}",
            "struct `Page`: the option `table_env` needs a string, as in table_env = \"…\"",
        ),
        (
            "#[model(rename_all = \"camelcase\")] struct Page {}",
            "struct `Page`: unknown case `camelcase`; did you mean `camelCase`? The cases are camelCase, PascalCase, \
             snake_case, SCREAMING_SNAKE_CASE, kebab-case",
        ),
        ("#[model] struct Page {}", "expected attribute arguments in parentheses: #[model(...)]"),
    ];
    for (model, message) in models {
        assert_eq!(errors_of(model), message, "of {model}");
    }
}

#[test]
fn one_compiler_run_reports_all_invalid_fields() {
    let model =
        with_key("#[model(omit)] a: String, #[model(ttl)] ttl: bool, #[model(rename = \"\")] b: String");
    let errors = errors_of(&model);
    let fields: Vec<_> = errors.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(fields, ["field `a`", "field `ttl`", "field `b`"]);
}

#[test]
fn valid_models_have_no_errors() {
    let valid = [
        "#[model(ttl, omitempty)] expires: i64",
        "#[model(ttl, rename = \"ttl\")] expires: Option<u32>",
        "#[model(version, rename = \"v\")] version: std::option::Option<i64>",
        "#[model(with = \"serde_dynamo::string_set\", omitempty)] tags: Vec<String>",
        "r#type: String, #[serde(skip)] other: u8",
        "#[model(created_at)] a: String, #[model(updated_at, omitempty)] b: Option<String>",
        "#[model()] nothing: ()",
    ];
    for fields in valid {
        assert_eq!(errors_of(&with_key(fields)), "", "of {fields}");
    }
    let longest = format!("#[model(rename = \"{}\")] etag: String", "x".repeat(255));
    assert_eq!(errors_of(&with_key(&longest)), "");
}

#[test]
fn a_field_gives_a_typed_attribute_with_its_visibility() {
    let model = with_key("pub s3_key: String, pub(crate) etag: Option<String>, r#type: u8");
    let code = expand(&syn::parse_str(&model).unwrap()).unwrap().to_string();
    for constant in [
        "pub const S3_KEY : :: tabletheory :: Attr < String >",
        "pub (crate) const ETAG : :: tabletheory :: Attr < String >",
        "const TYPE : :: tabletheory :: Attr < u8 > = :: tabletheory :: Attr :: new (\"type\")",
    ] {
        assert!(code.contains(constant), "{constant} is not in {code}");
    }
}

#[test]
fn rename_all_converts_names() {
    let cases = CASES.map(|(_, case)| convert("lease_expires_at", case));
    assert_eq!(
        cases,
        ["leaseExpiresAt", "LeaseExpiresAt", "lease_expires_at", "LEASE_EXPIRES_AT", "lease-expires-at"]
    );
    // Only `_` separates words; upper and lower case are not distinguished.
    let cases = CASES.map(|(_, case)| convert("lease_URL", case));
    assert_eq!(cases, ["leaseUrl", "LeaseUrl", "lease_url", "LEASE_URL", "lease-url"]);
    let [(_, camel), _, (_, snake), ..] = CASES;
    assert_eq!(convert("leaseURL", snake), "leaseurl");
    assert_eq!(convert("_private", camel), "private");
    assert_eq!(convert("_", camel), "");
}

#[test]
fn only_a_similar_word_is_suggested() {
    assert_eq!(nearest("omitempy", &["omitempty", "rename"]), Some("omitempty"));
    assert_eq!(nearest("renme", &["omitempty", "rename"]), Some("rename"));
    assert_eq!(nearest("index", &["pk", "omitempty"]), None);
}
