//! Response bodies: cached, passed through, or partly read and then passed through.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

/// The error of any service or body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

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
    /// The body of the origin. The part that was read before comes first.
    Passed { first: Option<Bytes>, rest: AnyBody },
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
        IsrBody(Kind::Passed { first: None, rest })
    }

    /// A body that is passed through after its first bytes were read.
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
                let (first, mut hint) = (length(first), rest.size_hint());
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
    /// It was cut off.
    Broken(BoxError),
}

/// Reads a body, unless it is longer than the limit.
pub(crate) async fn collect(mut body: AnyBody, limit: u64) -> Collected {
    let mut read = Read::default();
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
        read.add(chunk);
        if read.length() > limit {
            return Collected::TooLong(IsrBody::begun(read.bytes(), body));
        }
    }
}

/// The chunks that were read: one chunk as it came, several copied together, so that many small chunks take no more memory
/// than their bytes.
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
    async fn chunks_are_joined_in_order_and_empty_ones_are_ignored() {
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
    async fn a_body_that_is_too_long_is_passed_through_from_its_start() {
        let Collected::TooLong(body) = collect(body(&["ab", "cd", "ef"]), 3).await else {
            panic!("six bytes are longer than the limit")
        };
        assert!(!body.is_end_stream() && body.size_hint().lower() >= 4);
        assert_eq!(body.collect().await.expect("all of it").to_bytes(), "abcdef");
    }

    #[test]
    fn a_body_that_is_not_sent_has_a_length() {
        let body = IsrBody::unsent(SizeHint::with_exact(5));
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(5));
    }
}
