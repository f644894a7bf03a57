//! Garbage collection by a schedule.

use serde_json::json;

use crate::fixture::Setup;
use crate::support::origin::ScriptedResponse;

const GC: &str = r#"{"facetheory": "gc"}"#;

#[test]
fn a_schedule_runs_garbage_collection_once_per_interval() {
    let setup = Setup::start_on_servers("[gc]\ninterval = \"1d\"\n", &[]);
    assert_eq!(setup.get("/pages/a").state(), "miss");
    assert_eq!(setup.api.invoke(GC).json(), json!({ "gc": "finished" }));
    setup.api.wait_until_idle();
    setup.function.freeze();
    assert_eq!(setup.store.locks().len(), 0, "no lease is held");
    setup.function.thaw();
    assert_eq!(setup.api.invoke(GC).json(), json!({ "gc": "not-due" }));
    setup.origin.respond("/pages/a", ScriptedResponse::page(&[], "new"));
    assert_eq!(setup.get("/pages/a").state(), "hit", "bodies in use are not deleted");
}

#[test]
fn garbage_collection_is_an_error_unless_it_is_enabled() {
    let setup = Setup::start();
    let error = setup.api.invoke(GC).error();
    assert_eq!(error["errorType"], "FaceTheory.GcFailed");
    assert!(
        error["errorMessage"].as_str().is_some_and(|text| text.contains("`interval` in [gc]")),
        "{error}"
    );
}
