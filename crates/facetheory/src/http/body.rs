//! The body of a response: kept, passed through, or begun to be kept and passed through after all.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

/// What anything in a stack of services may fail with.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body of anyone's, whatever its type.
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
    /// All of it is here.
    Whole(Option<Bytes>),
    /// None is sent, though there may be one of this length: for HEAD and 304.
    Unsent(SizeHint),
    /// It comes from the renderer as it is sent; what was read of it before comes first.
    Passed { first: Option<Bytes>, rest: AnyBody },
}

impl IsrBody {
    /// No body, in the place of one of this length. Servers that tell the length of a body by themselves must not say that
    /// it is zero.
    pub(crate) fn unsent(length: SizeHint) -> Self {
        IsrBody(Kind::Unsent(length))
    }

    /// The body of an answer that is not ours to keep.
    pub(crate) fn passed(rest: AnyBody) -> Self {
        IsrBody(Kind::Passed { first: None, rest })
    }

    /// The same, of which this much was read before.
    pub(crate) fn begun(first: Bytes, rest: AnyBody) -> Self {
        IsrBody(Kind::Passed { first: Some(first), rest })
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Unsent(_) => Poll::Ready(None),
            Kind::Passed { first, rest } => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
                None => Pin::new(rest).poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Unsent(_) => true,
            Kind::Passed { first, rest } => first.is_none() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(length(bytes)),
            Kind::Unsent(length) => *length,
            Kind::Passed { first, rest } => {
                let (first, rest) = (length(first), rest.size_hint());
                let mut hint = SizeHint::new();
                hint.set_lower(first + rest.lower());
                if let Some(upper) = rest.upper() {
                    hint.set_upper(first + upper);
                }
                hint
            }
        }
    }
}

/// What came of reading a body.
#[derive(Debug)]
pub(crate) enum Collected {
    Whole(Bytes),
    /// It is longer than the limit. This is all of it, to be passed on.
    TooLong(IsrBody),
    /// It broke off.
    Broken(BoxError),
}

/// Reads a body, unless it is longer than the limit.
pub(crate) async fn collect(mut body: AnyBody, limit: u64) -> Collected {
    let mut read = Read::default();
    loop {
        let chunk = match body.frame().await {
            None => return Collected::Whole(read.bytes()),
            Some(Err(error)) => return Collected::Broken(error),
            // Trailers are about one transfer, and are not kept.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => chunk,
                Err(_) => continue,
            },
        };
        read.add(chunk);
        if read.length() > limit {
            return Collected::TooLong(IsrBody::begun(read.bytes(), body));
        }
    }
}

/// What was read so far: the only chunk as it came, several in one piece, so that many small ones take no more memory than
/// their bytes.
#[derive(Debug, Default)]
struct Read {
    only: Bytes,
    several: Vec<u8>,
}

impl Read {
    fn add(&mut self, chunk: Bytes) {
        if self.length() == 0 {
            self.only = chunk;
            return;
        }
        self.several.extend_from_slice(&std::mem::take(&mut self.only));
        self.several.extend_from_slice(&chunk);
    }

    fn length(&self) -> u64 {
        (self.only.len() + self.several.len()) as u64
    }

    fn bytes(mut self) -> Bytes {
        if self.several.is_empty() {
            return self.only;
        }
        self.several.shrink_to_fit();
        self.several.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::StreamBody;

    fn body(chunks: &'static [&'static str]) -> AnyBody {
        let frames = chunks.iter().map(|chunk| Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))));
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    #[tokio::test]
    async fn chunks_are_joined_in_order_and_empty_ones_count_for_nothing() {
        for (chunks, expected) in [
            (&[][..], ""),
            (&["", ""], ""),
            (&["abc"], "abc"),
            (&["", "abc", ""], "abc"),
            (&["a", "", "b", "c"], "abc"),
        ] {
            match collect(body(chunks), 3).await {
                Collected::Whole(bytes) => assert_eq!(bytes, expected, "{chunks:?}"),
                other => panic!("{chunks:?}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_passed_on_from_its_beginning() {
        let Collected::TooLong(body) = collect(body(&["ab", "cd", "ef"]), 3).await else {
            panic!("six bytes are more than three")
        };
        assert!(!body.is_end_stream() && body.size_hint().lower() >= 4);
        assert_eq!(body.collect().await.expect("all of it").to_bytes(), "abcdef");
    }

    #[test]
    fn what_is_not_sent_has_its_length_all_the_same() {
        let body = IsrBody::unsent(SizeHint::with_exact(5));
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(5));
    }
}
