//! The start of a function.

use crate::events::{Streamed, function_url};
use crate::function::Function;
use crate::runtime_api::RuntimeApi;
use crate::support::origin::Origin;
use crate::support::wait_for;

#[test]
fn an_executable_named_bootstrap_reads_the_configuration_of_the_function() {
    let (api, origin, directory) =
        (RuntimeApi::start(), Origin::start(), tempfile::tempdir().expect("a directory"));
    let config = format!(
        "origin = \"http://{}\"\n[store]\ntable = \"memory:\"\nbodies = \"memory:\"\n[routes]\n\"/**\" = {{ isr = \"1h\" }}\n",
        origin.address
    );
    std::fs::write(directory.path().join("facetheory.toml"), config).expect("a file");
    let function = Function::bootstrap(&api, directory.path());
    let page = Streamed::receive(&api.invoke(function_url("/a")));
    assert_eq!((page.status, page.state()), (200, "miss"), "{}", function.log());
}

#[test]
fn an_invalid_configuration_is_reported_to_lambda_and_ends_the_process() {
    for (arguments, variables, what) in [
        (&[][..], &[][..], "no origin"),
        (&["--origin", "http://127.0.0.1:9"], &[], "no store"),
        (
            &["--origin", "http://127.0.0.1:9", "--table", "memory:", "--bodies", "memory:"],
            &[("FACETHEORY_QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/1/pages.fifo")],
            "standard queue",
        ),
        (
            &["--origin", "http://127.0.0.1:9", "--table", "memory:", "--bodies", "memory:"],
            &[("FACETHEORY_QUEUE_URL", "pages")],
            "FACETHEORY_QUEUE_URL",
        ),
    ] {
        let api = RuntimeApi::start();
        let variables: Vec<(&str, String)> =
            variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut function = Function::start(&api, &variables, arguments);
        assert!(!function.wait().success());
        let errors = api.init_errors();
        let [error] = &errors[..] else { panic!("{errors:?}: {}", function.log()) };
        assert!(error["errorMessage"].as_str().is_some_and(|text| text.contains(what)), "{error}");
        wait_for("the error on standard error", || function.log().contains(what).then_some(()));
    }
}
