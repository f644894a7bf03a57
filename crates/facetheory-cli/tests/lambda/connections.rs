//! Connections that were closed while the process was frozen.

use crate::fixture::Setup;
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::proxy::Proxy;
use crate::support::store::{Store, s3_endpoint, server_variable};

#[test]
fn requests_succeed_after_the_origin_has_closed_its_connections() {
    let setup = Setup::start();
    let close = Gate::default();
    let page = ScriptedResponse::page(&["cache-control: no-store"], "one").then_wait(&close).then_close();
    setup.origin.respond("/a", page);
    assert_eq!(setup.get("/a").text(), "one");
    setup.api.wait_until_idle();
    setup.function.freeze();
    close.open();
    setup.origin.respond("/a", ScriptedResponse::page(&["cache-control: no-store"], "two"));
    let call = setup.api.invoke(crate::events::function_url("/a"));
    setup.function.thaw();
    let response = crate::events::Streamed::receive(&call);
    assert_eq!((response.status, response.text()), (200, "two".to_owned()));
}

#[test]
fn requests_succeed_after_dynamodb_and_s3_have_closed_their_connections() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let dynamodb = Proxy::start(&runtime, &server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let s3 = Proxy::start(&runtime, &s3_endpoint());
    let store = Store::at(&dynamodb.endpoint(), &s3.endpoint());
    store.create_table();
    let setup = Setup::start_on(store, tempfile::tempdir().expect("a directory"), "", &[]);
    for round in 0..3 {
        let target = format!("/pages/{round}");
        assert_eq!(setup.get(&target).state(), "miss");
        setup.api.wait_until_idle();
        setup.function.freeze();
        dynamodb.close_all();
        s3.close_all();
        let call = setup.api.invoke(crate::events::function_url(&format!("{target}?new")));
        setup.function.thaw();
        assert_eq!(crate::events::Streamed::receive(&call).state(), "miss", "{}", setup.function.log());
        assert_eq!(setup.get(&target).state(), "hit", "{}", setup.function.log());
    }
}
