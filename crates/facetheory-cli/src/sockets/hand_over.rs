//! Hand-over: a new process takes the listening sockets over from the one that it replaces.
//!
//! A process offers its sockets at a path, on a Unix socket. A new process that is started with the same path connects,
//! receives the sockets (the open files themselves, also that of the Unix socket), and gets ready. The old process accepts all
//! connections meanwhile. When the new process is ready it says so, and the old one stops accepting. Both use one socket with one
//! backlog, so no connection is refused or lost. If the new process fails before it is ready, the old one goes on.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpListener as StdListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{ACCEPT_PAUSE, ADMIN, CLIENTS, Sockets, Source, descriptors};

/// The first line of the message with the sockets. The names of the sockets follow, one in each line.
const GREETING: &str = "facetheory hand-over 1";
/// The name of the Unix socket itself.
const HAND_OVER: &str = "hand-over";
/// The new process is ready.
const READY: u8 = b'R';
/// The old process stops accepting connections.
const STOPPED: u8 = b'S';
/// The old process goes on, since the new one took too long.
const TOO_LATE: u8 = b'L';
/// How long the old process waits for the new one to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the new process waits for a message of the old one.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The part of a process in hand-overs: it may replace another process, and offers its sockets to the next one.
#[derive(Debug)]
pub(crate) struct HandOver {
    path: PathBuf,
    /// Where the sockets are offered.
    listener: UnixListener,
    /// The process that this one replaces. Until [`HandOver::replace_predecessor`] it serves, and this process may still fail.
    predecessor: Option<UnixStream>,
}

impl HandOver {
    /// Receives the sockets of the process that offers them at a path. If there is none, the path is this process's own.
    pub(super) async fn begin(path: &Path) -> Result<(Sockets, HandOver)> {
        HandOver::at(path).await.with_context(|| format!("--hand-over {} cannot be used", path.display()))
    }

    async fn at(path: &Path) -> Result<(Sockets, HandOver)> {
        let predecessor = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) => {
                match error.kind() {
                    ErrorKind::NotFound => {}
                    // The process that opened it has exited.
                    ErrorKind::ConnectionRefused if fs::symlink_metadata(path)?.file_type().is_socket() => {
                        fs::remove_file(path).context("cannot remove the old socket")?;
                    }
                    ErrorKind::ConnectionRefused => bail!("the file is not a socket; choose another path"),
                    _ => return Err(error.into()),
                }
                let (path, listener) = (path.to_owned(), open_listener(path)?);
                return Ok((Sockets::default(), HandOver { path, listener, predecessor: None }));
            }
        };
        let received = timeout(RESPONSE_TIMEOUT, descriptors::receive(&predecessor)).await;
        let received = received.map_err(io::Error::from).flatten();
        let (message, files) = received.context("the process there sends no sockets")?;
        let (sockets, listener) = sockets_of(&message, files).context(
            "the process there sends something else than the sockets of a gateway; stop it before this one is started",
        )?;
        listener.set_nonblocking(true)?;
        let (path, listener) = (path.to_owned(), UnixListener::from_std(listener)?);
        Ok((sockets, HandOver { path, listener, predecessor: Some(predecessor) }))
    }

    /// Tells the predecessor, if there is one, that this process accepts connections from now on.
    pub(crate) async fn replace_predecessor(&mut self) -> Result<()> {
        let Some(mut predecessor) = self.predecessor.take() else { return Ok(()) };
        let answer = async {
            predecessor.write_all(&[READY]).await?;
            predecessor.read_u8().await
        };
        match timeout(RESPONSE_TIMEOUT, answer).await {
            Ok(Ok(STOPPED)) => Ok(()),
            // This process has the sockets.
            Ok(Err(error)) => {
                tracing::info!(%error, "the previous process exited before the hand-over was complete");
                Ok(())
            }
            Ok(Ok(TOO_LATE)) => bail!(
                "this process was not ready within {START_TIMEOUT:?}, so the previous one goes on serving; start again"
            ),
            Ok(Ok(_)) | Err(_) => bail!(
                "the previous process does not complete the hand-over, and may still be serving; stop it, or start again"
            ),
        }
    }

    /// Hands the sockets over to the first process that asks for them and gets ready, and then cancels `handed_over`. Ends when
    /// `stop` is cancelled.
    pub(crate) async fn offer(
        self,
        clients: OwnedFd,
        admin: Option<OwnedFd>,
        handed_over: CancellationToken,
        stop: CancellationToken,
    ) {
        while let Some(accepted) = stop.run_until_cancelled(self.listener.accept()).await {
            let handed = match accepted {
                // A process that is getting ready may finish, although this one stops.
                Ok((successor, _)) => self.hand_over(successor, &clients, admin.as_ref()).await,
                Err(error) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    Err(anyhow!(error).context("cannot accept connections"))
                }
            };
            match handed {
                Ok(()) => return handed_over.cancel(),
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "the sockets were not handed over; this process goes on serving"
                ),
            }
        }
        // The path belongs to this process: a successor would have ended the loop.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "cannot remove the socket of the hand-over");
        }
    }

    /// Sends the sockets to another process, and waits until it is ready.
    async fn hand_over(
        &self,
        mut successor: UnixStream,
        clients: &OwnedFd,
        admin: Option<&OwnedFd>,
    ) -> Result<()> {
        let (peer, own) = (successor.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
        ensure!(
            peer == own || peer == 0,
            "user {peer} asked for them; only user {own}, which this process runs as, and root may take them"
        );
        let mut message = format!("{GREETING}\n{HAND_OVER}\n{CLIENTS}\n");
        let mut files = vec![self.listener.as_fd(), clients.as_fd()];
        if let Some(admin) = admin {
            message.push_str(&format!("{ADMIN}\n"));
            files.push(admin.as_fd());
        }
        descriptors::send(&successor, &message, &files)
            .await
            .context("the new process does not take them")?;
        let Ok(ready) = timeout(START_TIMEOUT, successor.read_u8()).await else {
            // If this fails, the new process has exited.
            let _ = successor.write_all(&[TOO_LATE]).await;
            bail!("the new process was not ready within {START_TIMEOUT:?}");
        };
        let ready = ready.context("the new process exited before it was ready; its log says why")?;
        ensure!(ready == READY, "the new process sent {ready} instead of {READY}");
        successor.write_all(&[STOPPED]).await.context("the new process exited as soon as it was ready")
    }
}

/// Gives the received files their names.
fn sockets_of(message: &str, files: Vec<OwnedFd>) -> Result<(Sockets, StdUnixListener)> {
    let (greeting, names) = message.split_once('\n').context("it sent no sockets")?;
    ensure!(greeting == GREETING, "it begins with {greeting:?} instead of {GREETING:?}");
    let names: Vec<&str> = names.lines().collect();
    ensure!(names.len() == files.len(), "it sent {} names and {} sockets", names.len(), files.len());
    let mut sockets = Sockets { source: Source::Predecessor, ..Sockets::default() };
    let mut listener = None;
    for (name, file) in names.into_iter().zip(files) {
        match name {
            HAND_OVER => listener = Some(StdUnixListener::from(file)),
            _ => sockets.insert(name, StdListener::from(file))?,
        }
    }
    Ok((sockets, listener.context("its Unix socket is missing")?))
}

/// Opens the Unix socket. Only the user of this process may connect.
fn open_listener(path: &Path) -> Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .context("cannot restrict its permissions")?;
    Ok(listener)
}
