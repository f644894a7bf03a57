//! Lambda freezes the process between two invocations: nothing may be pending then.

use std::time::Duration;

use crate::events::{Streamed, function_url};
use crate::fixture::Setup;
use crate::runtime_api::Part;
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::wait_for;

const PAGE: &str = "/pages/a";
/// The time of an invocation whose response must begin before the function cancels it, also on a busy machine.
const BUSY: Duration = Duration::from_secs(20);

#[test]
fn a_stale_page_is_published_before_the_process_may_be_frozen() {
    Setup::on_each_store(|setup| {
        assert_eq!(setup.get(PAGE).state(), "miss");
        setup.invalidate(PAGE);
        let gate = Gate::default();
        setup.origin.respond(PAGE, ScriptedResponse::page(&[], "<p>new</p>").after(&gate));
        let stale = setup.get(PAGE);
        assert_eq!((stale.state(), stale.text()), ("stale", format!("<p>{PAGE}, render 1</p>")));

        // The client has its whole response, but the invocation has not ended: the page is being rendered.
        wait_for("the background render", || (setup.origin.requests_for(PAGE).len() == 2).then_some(()));
        assert_eq!(setup.store.locks().len(), 1, "its lease is held");
        assert!(!setup.api.is_idle());
        gate.open();

        setup.api.wait_until_idle();
        setup.function.freeze();
        assert_eq!(setup.store.locks().len(), 0, "the lease is released");
        wait_for("the log of the stale response", || {
            let is_stale = |line: &str| line.contains(PAGE) && line.contains("\"stale\"");
            setup.function.log().lines().any(is_stale).then_some(())
        });
        let (_other, api) = setup.another();
        let hit = Streamed::receive(&api.invoke(function_url(PAGE)));
        assert_eq!(
            (hit.state(), hit.text()),
            ("hit", "<p>new</p>".to_owned()),
            "other processes have the page"
        );
        assert_eq!(setup.origin.requests_for(PAGE).len(), 2);

        setup.function.thaw();
        let hit = setup.get(PAGE);
        assert_eq!((hit.state(), hit.text()), ("hit", "<p>new</p>".to_owned()));
    });
}

#[test]
fn a_render_that_does_not_end_is_cancelled_before_the_invocation_times_out() {
    let setup = Setup::start();
    assert_eq!(setup.get(PAGE).state(), "miss");
    setup.invalidate(PAGE);
    let never = Gate::default();
    setup.origin.respond(PAGE, ScriptedResponse::page(&[], "").after(&never));
    let call = setup.api.invoke_within(BUSY, function_url(PAGE));
    assert_eq!(Streamed::receive(&call).state(), "stale");
    setup.api.wait_until_idle();
    setup.function.freeze();
    assert_eq!(setup.store.locks().len(), 0, "the lease is released");
    setup.function.thaw();
    wait_for("a warning", || {
        setup.function.log().contains("work in the background was cancelled").then_some(())
    });
    never.open();
    setup.origin.respond(PAGE, ScriptedResponse::page(&[], "<p>new</p>"));
    wait_for("a later request regenerates the page", || {
        (setup.get(PAGE).text() == "<p>new</p>").then_some(())
    });
}

/// An endless response.
fn endless() -> ScriptedResponse {
    let head =
        "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";
    ScriptedResponse::raw(head).then_endlessly("endless ".repeat(1000))
}

#[test]
fn an_endless_response_is_cut_off_before_the_invocation_times_out() {
    let setup = Setup::start();
    setup.origin.respond("/endless", endless());
    assert_eq!(setup.get(PAGE).status, 200);
    let call = setup.api.invoke_within(BUSY, function_url("/endless"));
    assert!(call.is_cut_off(), "the response must not look complete");
    setup.api.wait_until_idle();
    assert_eq!(setup.get(PAGE).state(), "hit");
}

#[test]
fn a_client_that_does_not_read_does_not_delay_the_end_of_the_invocation() {
    let setup = Setup::start();
    setup.origin.respond("/endless", endless());
    assert_eq!(setup.get(PAGE).status, 200);
    setup.api.wait_until_idle();
    setup.api.set_reading(false);
    let call = setup.api.invoke_within(Duration::from_secs(4), function_url("/endless"));
    setup.api.wait_until_idle();
    assert!(matches!(call.next(), Part::Head(_)));
    setup.api.set_reading(true);
    assert_eq!(setup.get(PAGE).state(), "hit");
    wait_for("an error in the log", || {
        setup.function.log().contains("did not read the response").then_some(())
    });
}

#[test]
fn a_request_that_gets_no_response_ends_before_the_invocation_times_out() {
    let setup = Setup::start();
    let never = Gate::default();
    setup.origin.respond(PAGE, ScriptedResponse::page(&[], "").after(&never));
    let call = setup.api.invoke_within(Duration::from_secs(4), function_url(PAGE));
    let response = Streamed::receive(&call);
    assert_eq!(response.status, 504, "{}", response.text());
    setup.api.wait_until_idle();
    setup.function.freeze();
    assert_eq!(setup.store.locks().len(), 0, "the lease of the miss is released");
    never.open();
}
