//! Compressed forms of a page: made once for each body, off the request path.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;

use super::Engine;
use super::memory::Entry;
use crate::http::Coding;
use crate::protocol::key::PageKey;

/// The levels that pay off for what is made once and sent often.
const BROTLI_QUALITY: i32 = 5;
/// How far back a form may refer, as a power of two: as far as the page goes, within what decoders have to support.
const BROTLI_WINDOWS: std::ops::RangeInclusive<u32> = 10..=22;
const ZSTD_LEVEL: i32 = 6;
const GZIP_LEVEL: u32 = 6;
/// A form that saves less than this part of the page is not worth a header.
const LEAST_SAVING: usize = 20;

/// The compressed forms of a body. One that is hardly shorter is none.
#[derive(Debug)]
pub(super) struct Codings {
    forms: Vec<(Coding, Bytes)>,
}

impl Codings {
    fn of(bytes: &[u8]) -> Self {
        let most = bytes.len() - bytes.len() / LEAST_SAVING;
        let forms =
            [(Coding::Brotli, brotli(bytes)), (Coding::Zstd, zstd(bytes)), (Coding::Gzip, gzip(bytes))];
        let worth = |(coding, form): (Coding, Option<Vec<u8>>)| {
            let mut form = form.filter(|form| form.len() < most)?;
            form.shrink_to_fit();
            Some((coding, Bytes::from(form)))
        };
        Codings { forms: forms.into_iter().filter_map(worth).collect() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Coding> {
        self.forms.iter().map(|(coding, _)| *coding)
    }

    pub(super) fn get(&self, coding: Coding) -> Option<&Bytes> {
        self.forms.iter().find(|(other, _)| *other == coding).map(|(_, bytes)| bytes)
    }

    pub(super) fn weight(&self) -> usize {
        self.forms.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

// Writing to memory does not fail; if it did, the page would be sent as it is.

fn brotli(bytes: &[u8]) -> Option<Vec<u8>> {
    let parameters = brotli::enc::BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: brotli_window(bytes.len()),
        size_hint: bytes.len(),
        ..Default::default()
    };
    let mut form = Vec::new();
    brotli::BrotliCompress(&mut &*bytes, &mut form, &parameters).ok()?;
    Some(form)
}

/// The encoder takes memory in proportion to the window, and most pages are small.
fn brotli_window(bytes: usize) -> i32 {
    let needed = usize::BITS - bytes.leading_zeros();
    i32::try_from(needed.clamp(*BROTLI_WINDOWS.start(), *BROTLI_WINDOWS.end())).unwrap_or(i32::MAX)
}

fn zstd(bytes: &[u8]) -> Option<Vec<u8>> {
    zstd::bulk::compress(bytes, ZSTD_LEVEL).ok()
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

impl Engine {
    /// Makes the compressed forms of a page in the background, if it is worth it and nobody has.
    ///
    /// Where too many pages wait for theirs, this one is sent as it is.
    pub(super) fn code(self: &Arc<Self>, page: &PageKey, entry: &Arc<Entry>) {
        if entry.page.has_codings() || !entry.page.is_worth_coding() {
            return;
        }
        let Ok(place) = self.coding_queue.clone().try_acquire_owned() else { return };
        let (engine, page, entry) = (self.clone(), page.clone(), entry.clone());
        self.tasks.spawn(async move {
            let Ok(_turn) = engine.coding.clone().acquire_owned().await else { return };
            let bytes = entry.page.bytes().clone();
            let coding = tokio::task::spawn_blocking(move || Codings::of(&bytes));
            let Some(Ok(codings)) = engine.abandon.run_until_cancelled(coding).await else { return };
            entry.page.set_codings(codings);
            engine.memory.weigh_again(&page, &entry);
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bodies, Isr, PageStore, Pages, Policy, Rendered};
    use std::io::Read as _;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_end_does_not_wait_for_pages_that_are_not_compressed_yet() {
        let table = Arc::new(tabletheory::MemoryTable::new());
        let isr = Isr::new(Pages::new(PageStore::new(table), Bodies::memory()));
        let turn = isr.engine.coding.clone().acquire_owned().await.expect("a turn");
        let (page, policy) = (PageKey::new("/").expect("a page"), Policy::every(Duration::from_secs(60)));
        let render = |_| async { Ok(Rendered::html("<p>hello</p>".repeat(1000))) };
        let _ = isr.get(&page, &policy, render).await.expect("a page");
        assert_eq!(isr.engine.tasks.len(), 1, "its forms wait for their turn");
        let ended =
            tokio::time::timeout(Duration::from_secs(60), isr.shut_down(Duration::from_secs(30))).await;
        assert_eq!(ended, Ok(true), "nothing that matters was given up");
        drop(turn);
    }

    #[test]
    fn every_form_gives_the_page_back() {
        let page = "<p>hello</p>".repeat(1000).into_bytes();
        let codings = Codings::of(&page);
        assert_eq!(codings.all().collect::<Vec<_>>(), [Coding::Brotli, Coding::Zstd, Coding::Gzip]);
        let form = |coding| codings.get(coding).expect("a form").clone();
        let mut plain = Vec::new();
        brotli::BrotliDecompress(&mut &*form(Coding::Brotli), &mut plain).expect("brotli");
        assert_eq!(plain, page);
        assert_eq!(zstd::bulk::decompress(&form(Coding::Zstd), page.len()).expect("zstd"), page);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*form(Coding::Gzip)).read_to_end(&mut plain).expect("gzip");
        assert_eq!(plain, page);
        assert!(codings.weight() < page.len() / 10);
    }

    #[test]
    fn what_cannot_be_made_shorter_is_sent_as_it_is() {
        let random = tabletheory::SeededRandom::new(1);
        let noise: Vec<u8> =
            (0..1000).flat_map(|_| tabletheory::Random::next_u64(&random).to_le_bytes()).collect();
        assert_eq!(Codings::of(&noise).all().count(), 0);
        assert_eq!(Codings::of(b"").all().count(), 0);
    }
}
