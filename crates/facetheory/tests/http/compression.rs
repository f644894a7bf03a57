//! Compressed forms: made once, off the request path, each with its own entity tag.

use facetheory::{Policy, Route, Routes};

use crate::fixture::{INTERVAL, Site};

/// Blocks the only thread that compresses pages until it is dropped.
struct Busy {
    let_go: std::sync::mpsc::Sender<()>,
}

impl Busy {
    fn new() -> Self {
        let (let_go, is_let_go) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || is_let_go.recv());
        Busy { let_go }
    }

    /// Unblocks the thread, and waits until all pages are compressed. The paused clock does not advance.
    async fn end(self, site: &Site) {
        drop(self.let_go);
        site.settle().await;
    }
}

#[test]
fn a_page_is_sent_in_the_coding_that_its_client_prefers() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(sent_in_the_coding_that_its_client_prefers());
}

async fn sent_in_the_coding_that_its_client_prefers() {
    let busy = Busy::new();
    let site = Site::new();
    let page = "<p>hello</p>".repeat(1000);
    // As long as the `no-transform` header below.
    let coded = [("content-type", "text/html"), ("etag", "\"v1\""), ("cache-control", "no-shortform")];
    site.responds(200, &coded, page.clone());
    let first = site.get_with("/a", &[("accept-encoding", "br")]).await;
    assert_eq!((first.state(), first.header("content-encoding")), ("miss", ""));
    assert_eq!(first.header("vary"), "accept-encoding", "it will be coded");
    let second = site.get_with("/a", &[("accept-encoding", "br")]).await;
    assert_eq!(
        (second.state(), second.header("content-encoding")),
        ("hit", ""),
        "the compressed form is not awaited"
    );
    busy.end(&site).await;
    let brotli = site.get_with("/a", &[("accept-encoding", "gzip, br, zstd")]).await;
    assert_eq!((brotli.header("content-encoding"), brotli.header("etag")), ("br", "\"v1-br\""));
    assert_eq!(brotli.header("vary"), "accept-encoding");
    assert!(brotli.body.len() < page.len() / 10);
    assert_eq!(brotli.header("content-length"), brotli.body.len().to_string());
    for (accept, coding) in
        [("gzip", "gzip"), ("zstd", "zstd"), ("br;q=0.1, gzip", "gzip"), ("identity", ""), ("", "")]
    {
        let response = site.get_with("/a", &[("accept-encoding", accept)]).await;
        assert_eq!(response.header("content-encoding"), coding, "{accept}");
        assert_eq!(response.header("vary"), "accept-encoding", "also as it is");
        if coding.is_empty() {
            assert_eq!((response.text(), response.header("etag")), (page.as_str(), "\"v1\""));
        }
    }
    let not_modified =
        site.get_with("/a", &[("accept-encoding", "br"), ("if-none-match", "\"v1-br\"")]).await;
    assert_eq!((not_modified.status, not_modified.header("content-encoding")), (304, ""));
    assert_eq!(site.requests().len(), 1);
    let forms =
        async |accept: &str| site.get_with("/a", &[("accept-encoding", accept)]).await.body.len() as u64;
    let forms = forms("br").await + forms("zstd").await + forms("gzip").await;
    let plain = Site::new();
    let uncoded = [("content-type", "text/html"), ("etag", "\"v1\""), ("cache-control", "no-transform")];
    plain.responds(200, &uncoded, page.clone());
    plain.get("/a").await;
    let ((_, coded), (_, uncoded)) = (site.isr.in_memory(), plain.isr.in_memory());
    assert_eq!(coded, uncoded + forms, "the forms count");
}

#[tokio::test(start_paused = true)]
async fn a_page_is_compressed_when_a_client_accepts_it_and_then_after_each_regeneration() {
    let site = Site::new();
    let render = |text: &str| site.responds(200, &[("content-type", "text/html")], text.repeat(1000));
    render("<p>one</p>");
    for accept in ["", "identity", "deflate", "br;q=0"] {
        site.get_with("/a", &[("accept-encoding", accept)]).await;
        site.settle().await;
    }
    let coding = async || {
        let response = site.get_with("/a", &[("accept-encoding", "br")]).await;
        site.settle().await;
        response.header("content-encoding").to_owned()
    };
    assert_eq!(coding().await, "", "nobody accepted a compressed form before");
    assert_eq!(coding().await, "br");
    render("<p>two</p>");
    tokio::time::advance(INTERVAL).await;
    // The stale page is served while the next one is rendered, in the background.
    assert_eq!(coding().await, "br");
    let next = site.get_with("/a", &[("accept-encoding", "br")]).await;
    assert_eq!((next.state(), next.header("content-encoding")), ("hit", "br"));
    assert_eq!(site.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn small_pages_pictures_and_no_transform_are_never_compressed() {
    let site = Site::new();
    for (path, headers, page) in [
        ("/short", &[("content-type", "text/html")][..], "short".to_owned()),
        ("/image", &[("content-type", "image/png")][..], "x".repeat(5000)),
        (
            "/untouched",
            &[("content-type", "text/html"), ("cache-control", "public; no-transform")][..],
            "x".repeat(5000),
        ),
    ] {
        let headers: Vec<(&'static str, &'static str)> = headers.to_vec();
        site.responds(200, &headers, page);
        for _ in 0..100 {
            let response = site.get_with(path, &[("accept-encoding", "br")]).await;
            assert_eq!((response.header("content-encoding"), response.header("vary")), ("", ""), "{path}");
            site.settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_follows_its_origin_is_not_sent_in_the_compressed_form_of_an_earlier_rule() {
    let before = Site::with([Route::new("/a", Policy::every(INTERVAL))]);
    let page = "<p>hello</p>".repeat(1000);
    let headers = [("content-type", "text/html"), ("cache-control", "max-age=3600")];
    before.responds(200, &headers, page.clone());
    before.get_with("/a", &[("accept-encoding", "br")]).await;
    before.settle().await;
    let compressed = before.get_with("/a", &[("accept-encoding", "br")]).await;
    assert_eq!(compressed.header("content-encoding"), "br");
    // The engine finds the same bytes, and reuses the body with its compressed forms.
    let after = before.with_routes(Routes::new([Route::follow_origin("/a")]).expect("a route"));
    after.responds(200, &headers, page.clone());
    for state in ["miss", "hit"] {
        let response = after.get_with("/a", &[("accept-encoding", "br")]).await;
        assert_eq!((response.state(), response.header("content-encoding")), (state, ""));
        assert_eq!(response.header("content-length"), page.len().to_string());
        assert_eq!(response.text(), page);
    }
}
