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
    /// It comes from the renderer as it is sent; what was read of it before comes first.
    Passed { first: Option<Bytes>, rest: AnyBody },
}

impl IsrBody {
    pub(crate) fn empty() -> Self {
        IsrBody(Kind::Whole(None))
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
            Kind::Passed { first, rest } => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
                None => Pin::new(rest).poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Passed { first, rest } => first.is_none() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(length(bytes)),
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
    let mut chunks: Vec<Bytes> = Vec::new();
    let mut length = 0;
    loop {
        let chunk = match body.frame().await {
            None => return Collected::Whole(joined(chunks)),
            Some(Err(error)) => return Collected::Broken(error),
            // Trailers are about one transfer, and are not kept.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => chunk,
                Err(_) => continue,
            },
        };
        length += chunk.len() as u64;
        chunks.push(chunk);
        if length > limit {
            return Collected::TooLong(IsrBody::begun(joined(chunks), body));
        }
    }
}

fn joined(mut chunks: Vec<Bytes>) -> Bytes {
    if chunks.len() == 1 {
        return chunks.remove(0);
    }
    chunks.concat().into()
}
