//! Response bodies: cached, passed through, or partly read and then passed through.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

use crate::engine::{MemoryBudget, MemoryPermit};

/// The error of any service or body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of polling a body.
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A body of any type.
pub(crate) type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// The body of a response of [`IsrService`](crate::IsrService).
///
/// ```
/// use http_body::Body as _;
///
/// assert_eq!(facetheory::IsrBody::from("hello").size_hint().exact(), Some(5));
/// ```
#[derive(Debug)]
pub struct IsrBody(Kind);

#[derive(Debug)]
enum Kind {
    /// A body in memory.
    Whole(Option<Bytes>),
    /// No body, in place of one of this length: for HEAD and 304.
    Unsent(SizeHint),
    /// The body of the origin. The parts that were read before come first.
    Passed { first: [Bytes; 2], rest: AnyBody },
}

impl IsrBody {
    /// No body, in place of one of this length, so that a server does not announce a length of zero.
    pub(crate) fn unsent(length: SizeHint) -> Self {
        IsrBody(Kind::Unsent(length))
    }

    /// Returns the bytes that are sent, if they are in memory.
    pub(crate) fn in_memory(&self) -> Bytes {
        match &self.0 {
            Kind::Whole(Some(bytes)) => bytes.clone(),
            Kind::Whole(None) | Kind::Unsent(_) | Kind::Passed { .. } => Bytes::new(),
        }
    }

    /// A body that is passed through.
    pub(crate) fn passed(rest: AnyBody) -> Self {
        IsrBody::begun([Bytes::new(), Bytes::new()], rest)
    }

    /// A body that is passed through after its first bytes were read.
    pub(crate) fn begun(first: [Bytes; 2], rest: AnyBody) -> Self {
        IsrBody(Kind::Passed { first, rest })
    }
}

impl<T: Into<Bytes>> From<T> for IsrBody {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        IsrBody(Kind::Whole((!bytes.is_empty()).then_some(bytes)))
    }
}

impl Body for IsrBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Unsent(_) => Poll::Ready(None),
            Kind::Passed { first, rest } => match first.iter_mut().find(|bytes| !bytes.is_empty()) {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(first))))),
                None => Pin::new(rest).poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Unsent(_) => true,
            Kind::Passed { first, rest } => first.iter().all(Bytes::is_empty) && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Unsent(length) => *length,
            Kind::Passed { first, rest } => {
                let first = first.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
                let mut hint = rest.size_hint();
                if let Some(upper) = hint.upper() {
                    hint.set_upper(first + upper);
                }
                hint.set_lower(first + hint.lower());
                hint
            }
        }
    }
}

/// The result of reading a body.
#[derive(Debug)]
pub(crate) enum Collected {
    Whole(Bytes),
    /// It is longer than the limit. This is the whole body, to be passed through.
    TooLong(IsrBody),
    /// It does not fit into the memory budget. This is the whole body, to be passed through.
    MemoryFull(IsrBody),
    /// It was cut off.
    Broken(BoxError),
}

/// Reads a body into memory, as far as the budget permits and unless it is longer than the limit.
pub(crate) async fn collect(mut body: AnyBody, limit: u64, memory: &Arc<MemoryBudget>) -> Collected {
    let announced = body.size_hint().lower();
    if announced > limit {
        return Collected::TooLong(IsrBody::passed(body));
    }
    let first = if announced > 0 { announced } else { MIN_BUFFER_BYTES.min(limit) };
    let Some(mut read) = Buffer::new(memory, first).await else {
        return Collected::MemoryFull(IsrBody::passed(body));
    };
    loop {
        let chunk = match body.frame().await {
            None => return Collected::Whole(read.bytes()),
            Some(Err(error)) => return Collected::Broken(error),
            // Trailers are not cached.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => chunk,
                Err(_) => continue,
            },
        };
        let length = (read.bytes.len() + chunk.len()) as u64;
        if length > limit {
            return Collected::TooLong(IsrBody::begun([read.bytes(), chunk], body));
        }
        if !read.reserve(memory, length, limit) {
            return Collected::MemoryFull(IsrBody::begun([read.bytes(), chunk], body));
        }
        read.bytes.extend_from_slice(&chunk);
    }
}

/// The first size of the buffer for a body of unknown length.
const MIN_BUFFER_BYTES: u64 = 8 * 1024;

/// The bytes that were read: in one buffer, so that many small chunks take no more memory than their bytes, and with a permit
/// for its whole capacity.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    permit: MemoryPermit,
}

impl Buffer {
    async fn new(memory: &Arc<MemoryBudget>, capacity: u64) -> Option<Self> {
        let permit = memory.acquire(capacity).await?;
        Some(Buffer { bytes: Vec::with_capacity(usize::try_from(capacity).ok()?), permit })
    }

    /// Makes room for this many bytes in all. Returns whether the budget permits it. It does not wait: it holds bytes, for
    /// which others may be waiting.
    fn reserve(&mut self, memory: &Arc<MemoryBudget>, length: u64, limit: u64) -> bool {
        if length <= self.bytes.capacity() as u64 {
            return true;
        }
        // Twice as much, so that few copies are made. While the bytes are copied, both buffers exist.
        let capacity = length.saturating_mul(2).min(limit);
        let (Some(permit), Ok(more)) =
            (memory.try_acquire(capacity), usize::try_from(capacity - self.bytes.len() as u64))
        else {
            return false;
        };
        self.bytes.reserve_exact(more);
        self.permit = permit;
        true
    }

    fn bytes(mut self) -> Bytes {
        self.bytes.shrink_to_fit();
        self.permit.attach(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::{Full, StreamBody};

    fn body(chunks: &'static [&'static str]) -> AnyBody {
        let frames = chunks.iter().map(|chunk| Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))));
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    /// A body that announces its length.
    fn announced(length: usize) -> AnyBody {
        Full::new(Bytes::from(vec![b'x'; length])).map_err(|never| match never {}).boxed_unsync()
    }

    #[tokio::test]
    async fn chunks_are_joined_in_order_and_empty_ones_are_ignored() {
        let memory = MemoryBudget::new(1 << 20);
        for (chunks, expected) in [
            (&[][..], ""),
            (&["", ""], ""),
            (&["abc"], "abc"),
            (&["", "abc", ""], "abc"),
            (&["a", "", "b", "c"], "abc"),
        ] {
            match collect(body(chunks), 3, &memory).await {
                Collected::Whole(bytes) => {
                    assert_eq!(bytes, expected, "{chunks:?}");
                    assert_eq!(memory.used(), expected.len() as u64, "{chunks:?}");
                }
                other => panic!("{chunks:?}: {other:?}"),
            }
            assert_eq!(memory.used(), 0, "{chunks:?}");
        }
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_passed_through_from_its_start() {
        let memory = MemoryBudget::new(1 << 20);
        let Collected::TooLong(body) = collect(body(&["ab", "cd", "ef"]), 3, &memory).await else {
            panic!("six bytes are longer than the limit")
        };
        assert!(!body.is_end_stream() && body.size_hint().lower() >= 4);
        assert_eq!(body.collect().await.expect("all of it").to_bytes(), "abcdef");
    }

    #[tokio::test]
    async fn nothing_is_read_of_a_body_that_announces_to_be_too_long() {
        let memory = MemoryBudget::new(1 << 20);
        let collected = collect(announced(101), 100, &memory).await;
        assert!(matches!(collected, Collected::TooLong(_)));
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_fit_into_the_budget_is_passed_through_from_its_start() {
        let memory = MemoryBudget::new(20_000);
        // Its length is known, so that it waits until there is room for all of it.
        let held = memory.count(10_001);
        let Collected::MemoryFull(body) = collect(announced(10_000), u64::MAX, &memory).await else {
            panic!("only 9,999 bytes are left")
        };
        assert_eq!(body.collect().await.expect("all of it").to_bytes().len(), 10_000);
        let (collected, ()) =
            tokio::join!(collect(announced(10_000), u64::MAX, &memory), async { drop(held) });
        assert!(matches!(&collected, Collected::Whole(bytes) if bytes.len() == 10_000), "{collected:?}");
        // Its length is not known: what was read of it counts until it is sent.
        let piece = Bytes::from(vec![b'x'; 6_000]);
        let frames = [piece.clone(), piece.clone(), piece].map(|piece| Ok(Frame::data(piece)));
        let unknown = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let Collected::MemoryFull(body) = collect(unknown, u64::MAX, &memory).await else {
            panic!("10,000 of 20,000 bytes are used")
        };
        assert_eq!(memory.used(), 16_000);
        assert_eq!(body.collect().await.expect("all of it").to_bytes().len(), 18_000);
        assert_eq!(memory.used(), 10_000);
    }

    #[test]
    fn a_body_that_is_not_sent_has_a_length() {
        let body = IsrBody::unsent(SizeHint::with_exact(5));
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(5));
    }
}
