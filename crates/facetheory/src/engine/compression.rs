//! Compressed forms of a page: made once for each body, in the background, when a client accepts one.

#[cfg(feature = "compression")]
mod codecs;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::memory::Entry;
use super::metrics::MemoryUse;
use super::{CachedPage, Engine, Isr, MemoryBudget};
use crate::PageKey;

#[cfg(feature = "compression")]
use codecs::CODECS;
#[cfg(not(feature = "compression"))]
const CODECS: &[(Coding, Codec)] = &[];

/// Compresses bytes with one coding; `None` if that fails.
type Codec = fn(&[u8]) -> Option<Vec<u8>>;

/// A compressed form is dropped if it saves less than one part in this many.
const MIN_SAVING: usize = 20;
/// Shorter pages fit into one packet together with their headers, so compressing them gains nothing.
const MIN_BYTES: usize = 1024;
/// A content coding that pages are sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// Uncompressed.
    Identity,
    Brotli,
    Zstd,
    Gzip,
}

/// The compressed forms of a body, at most one for each coding.
pub(super) type CompressedForms = Vec<(Coding, Bytes)>;

/// Compresses bytes with all codecs; `None` if a form may not fit into the memory budget.
fn compress(bytes: &[u8], budget: &Arc<MemoryBudget>) -> Option<CompressedForms> {
    let limit = bytes.len() - bytes.len() / MIN_SAVING;
    let mut forms = CompressedForms::new();
    for (coding, codec) in CODECS {
        // While a form is made, its buffer may become as long as the bytes.
        let permit = budget.try_acquire(bytes.len() as u64)?;
        if let Some(mut form) = codec(bytes).filter(|form| form.len() < limit) {
            form.shrink_to_fit();
            forms.push((*coding, permit.attach(form)));
        }
    }
    Some(forms)
}

/// Whether a page of this type and size is worth compressing. Types that are compressed already (images, fonts,
/// archives) only get longer.
fn is_compressible(content_type: Option<&str>, bytes: usize) -> bool {
    let Some(essence) = content_type.and_then(|text| text.split(';').next()) else { return false };
    let essence = essence.trim().to_ascii_lowercase();
    let is_compressible = match essence.split_once('/').unwrap_or(("", &essence)) {
        ("text", _)
        | ("application", "javascript" | "json" | "rtf" | "wasm" | "x-javascript" | "xml" | "yaml")
        | ("font", "otf" | "ttf")
        | ("image", "bmp" | "vnd.microsoft.icon" | "x-icon") => true,
        (_, subtype) => subtype.ends_with("+json") || subtype.ends_with("+xml"),
    };
    is_compressible && bytes >= MIN_BYTES
}

impl CachedPage {
    /// Whether this page is worth compressing and may be: its type and size, and its origin permitting.
    pub(super) fn is_compressible(&self) -> bool {
        let forbids_transformation = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("cache-control")
                && value.split([',', ';']).any(|directive| {
                    let name = directive.split('=').next().unwrap_or_default();
                    name.trim().eq_ignore_ascii_case("no-transform")
                })
        };
        // An origin that controls how its responses are cached also controls their content coding.
        !self.follows_origin()
            && is_compressible(self.content_type(), self.bytes().len())
            && !self.generation().content.headers.iter().any(forbids_transformation)
    }

    /// Whether this page has compressed forms or will get some. A downstream cache must know that the response
    /// depends on `Accept-Encoding` even before they are ready.
    pub(crate) fn has_or_gets_compressed_forms(&self) -> bool {
        self.body.compressed.get().map_or_else(|| self.is_compressible(), |forms| !forms.is_empty())
    }

    /// Whether this page may be compressed, and has not been compressed yet.
    pub(crate) fn lacks_compressed_forms(&self) -> bool {
        !CODECS.is_empty()
            && self.body.compressed.get().is_none()
            && !self.body.is_being_compressed.load(Ordering::Relaxed)
            && self.is_compressible()
    }
}

impl Isr {
    /// Compresses a page in the background, because a client accepts a compressed form of it. Later clients get that form.
    pub(crate) fn compress(&self, page: &PageKey, served: &Arc<CachedPage>) {
        let entry = self.engine.memory.get(page).filter(|entry| Arc::ptr_eq(&entry.page, served));
        if let Some(entry) = entry {
            self.engine.compress(page, &entry);
        }
    }
}

impl Engine {
    /// Compresses a page in the background if it is worth it and not done yet.
    ///
    /// If too many pages are waiting to be compressed, this one is sent uncompressed.
    pub(super) fn compress(self: &Arc<Self>, page: &PageKey, entry: &Arc<Entry>) {
        // A page in memory can be served without a runtime, but not compressed.
        if !entry.page.lacks_compressed_forms() || Handle::try_current().is_err() {
            return;
        }
        let Ok(queued) = self.compression_queue.clone().try_acquire_owned() else { return };
        if entry.page.body.is_being_compressed.swap(true, Ordering::Relaxed) {
            return;
        }
        let (engine, page, entry) = (self.clone(), page.clone(), entry.clone());
        self.tasks.spawn(async move {
            let Ok(_permit) = engine.compressions.clone().acquire_owned().await else { return };
            let bytes = entry.page.bytes().clone();
            let budget = engine.memory.budget.clone();
            let compressing = tokio::task::spawn_blocking(move || compress(&bytes, &budget));
            // Otherwise the process is stopping.
            let Some(Ok(forms)) = engine.abandon_token().run_until_cancelled(compressing).await else {
                return;
            };
            let Some(forms) = forms else {
                engine.metrics.memory_full(MemoryUse::Compression);
                // It is tried again when a client accepts a compressed form.
                entry.page.body.is_being_compressed.store(false, Ordering::Relaxed);
                return;
            };
            // Nobody else sets it.
            let _ = entry.page.body.compressed.set(forms);
            engine.memory.update_weight(&page, &entry);
            drop(queued);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_compressible_and_images_are_not() {
        let compressible = |content_type| is_compressible(Some(content_type), MIN_BYTES);
        for yes in
            ["text/html", "Text/HTML; charset=utf-8", "application/ld+json", "image/svg+xml", "font/ttf"]
        {
            assert!(compressible(yes), "{yes}");
        }
        for no in ["image/png", "video/mp4", "font/woff2", "application/zip", "application/octet-stream", ""]
        {
            assert!(!compressible(no), "{no}");
        }
        assert!(!is_compressible(Some("text/html"), MIN_BYTES - 1), "too short");
        assert!(!is_compressible(None, MIN_BYTES));
    }

    #[test]
    fn a_page_with_no_transform_is_not_compressible() {
        let page = |cache_control: &str| {
            let mut generation = crate::protocol::Generation::new("a.html", 1, 60);
            generation.content.content_type = Some("text/html".into());
            generation.content.headers = vec![("cache-control".into(), cache_control.into())];
            let body = crate::Body { bytes: "x".repeat(MIN_BYTES).into(), ..crate::Body::default() };
            CachedPage::new(crate::protocol::Meta::of(generation), body)
        };
        assert!(page("public").is_compressible());
        assert!(!page("public, No-Transform").is_compressible());
    }
}

#[cfg(all(test, feature = "compression"))]
mod codec_tests {
    use super::*;
    use crate::{Bodies, Isr, PageStore, Pages, Policy, Rendered};
    use std::io::Read as _;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn shutdown_does_not_wait_for_pages_that_are_queued_for_compression() {
        let table = Arc::new(tabletheory::MemoryTable::new());
        let isr = Isr::new(Pages::new(PageStore::new(table), Bodies::memory()));
        let permit = isr.engine.compressions.clone().acquire_owned().await.expect("a permit");
        let (page, policy) = (PageKey::new("/").expect("a page"), Policy::every(Duration::from_secs(60)));
        let render = |_| async { Ok(Rendered::html("<p>hello</p>".repeat(1000))) };
        let result = isr.get(&page, &policy, render).await.expect("a page");
        assert_eq!(isr.engine.tasks.len(), 0, "no client has accepted a compressed form");
        let crate::GetResult::Page(served) = result else { panic!("not rendered") };
        for _ in 0..2 {
            isr.compress(&page, &served.page);
            assert_eq!(isr.engine.tasks.len(), 1, "the page is queued for compression, once");
        }
        let stopped =
            tokio::time::timeout(Duration::from_secs(60), isr.shut_down(Duration::from_secs(30))).await;
        assert_eq!(stopped, Ok(true), "no work was aborted");
        drop(permit);
    }

    #[test]
    fn every_compressed_form_decompresses_to_the_page() {
        let page = "<p>hello</p>".repeat(1000).into_bytes();
        let budget = MemoryBudget::new(1 << 20);
        let forms = compress(&page, &budget).expect("there is memory");
        assert_eq!(budget.used(), forms.iter().map(|(_, form)| form.len() as u64).sum::<u64>());
        let codings: Vec<Coding> = forms.iter().map(|(coding, _)| *coding).collect();
        assert_eq!(codings, [Coding::Brotli, Coding::Zstd, Coding::Gzip]);
        let mut plain = Vec::new();
        brotli::BrotliDecompress(&mut &*forms[0].1, &mut plain).expect("brotli");
        assert_eq!(plain, page);
        assert_eq!(zstd::bulk::decompress(&forms[1].1, page.len()).expect("zstd"), page);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*forms[2].1).read_to_end(&mut plain).expect("gzip");
        assert_eq!(plain, page);
        assert!(forms.iter().map(|(_, form)| form.len()).sum::<usize>() < page.len() / 10);
    }

    #[test]
    fn incompressible_bytes_have_no_compressed_forms() {
        let random = tabletheory::SeededRandom::new(1);
        let noise: Vec<u8> =
            (0..1000).flat_map(|_| tabletheory::Random::next_u64(&random).to_le_bytes()).collect();
        let budget = MemoryBudget::new(1 << 20);
        assert_eq!(compress(&noise, &budget), Some(Vec::new()));
        assert_eq!(compress(b"", &budget), Some(Vec::new()));
    }

    #[test]
    fn a_page_is_not_compressed_without_memory_for_all_forms() {
        let page = "<p>hello</p>".repeat(1000).into_bytes();
        let budget = MemoryBudget::new(page.len() as u64);
        assert_eq!(compress(&page, &budget), None);
        assert_eq!(budget.used(), 0, "nothing is left over");
    }
}
