//! Sends open files with a message over a Unix socket (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The most files in a message.
const MAX_FILES: usize = 8;
/// The longest message.
const MAX_BYTES: usize = 512;

/// Sends a message with files.
pub(super) async fn send(stream: &UnixStream, message: &str, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let sent = stream.async_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many files for a message"));
        }
        let message = [IoSlice::new(message.as_bytes())];
        Ok(sendmsg(stream, &message, &mut control, SendFlags::empty())?)
    });
    if sent.await? < message.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "a message was sent in part"));
    }
    Ok(())
}

/// Receives a message and its files. An empty message means that the other process has closed the connection.
pub(super) async fn receive(stream: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [0; MAX_BYTES];
            let received =
                recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty())?;
            let mut files = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    files.extend(received);
                }
            }
            let message = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
            Ok((message, files))
        })
        .await
}
