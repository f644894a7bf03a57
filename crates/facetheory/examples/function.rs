//! A slow function, cached without HTTP: concurrent calls run it once, and it runs again when its result is stale.
//!
//! `cargo run -p facetheory --example function`

use std::time::Duration;

use facetheory::{GetResult, Isr, PageKey, Policy, RenderError, Rendered};

/// A slow computation.
async fn report(month: u32) -> Result<Rendered, RenderError> {
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(Rendered::html(format!("the figures of month {month}")))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> facetheory::Result<()> {
    let isr = Isr::open("memory:", "memory:").await?.build();
    let policy = Policy::every(Duration::from_secs(60));
    for month in [11, 11, 12, 11] {
        let key = PageKey::new(format!("report/{month}"))?;
        match isr.get(&key, &policy, move |_| report(month)).await? {
            GetResult::Page(served) => {
                println!("{}: {}", served.state, String::from_utf8_lossy(served.page.bytes()));
            }
            GetResult::Bypass(reason) => println!("not from the cache: {}", reason.as_str()),
        }
    }
    isr.shut_down(Duration::from_secs(10)).await;
    Ok(())
}
