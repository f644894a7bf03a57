//! Listening sockets, which may come from another process: from the service manager, or from the process that this one
//! replaces. While some process holds a socket open, no connection to it is refused.

mod activation;
mod descriptors;
mod hand_over;

use std::io::ErrorKind::AddrInUse;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::net::TcpListener;

pub(crate) use hand_over::HandOver;

/// The names of the sockets, in `FileDescriptorName=` and in a hand-over.
const CLIENTS: &str = "clients";
const ADMIN: &str = "admin";

/// The pause after a failed `accept`, such as for lack of file descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The listening sockets that this process did not open itself.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    source: Source,
    clients: Option<StdListener>,
    admin: Option<StdListener>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// There are none.
    #[default]
    None,
    /// The service manager: it decides on which addresses the process listens.
    ServiceManager,
    /// The process that this one replaces. It may have had other addresses.
    Predecessor,
}

/// The address of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenAddress {
    pub(crate) address: SocketAddr,
    /// It is not configured.
    pub(crate) is_default: bool,
    /// The option of the command line that sets it.
    pub(crate) option: &'static str,
}

impl ListenAddress {
    /// Whether a socket listens on this address. Port 0 is any port.
    fn is_of(&self, actual: SocketAddr) -> bool {
        let address = self.address;
        address.ip() == actual.ip() && (address.port() == 0 || address.port() == actual.port())
    }

    async fn bind(self) -> Result<TcpListener> {
        let ListenAddress { address, option, .. } = self;
        TcpListener::bind(address).await.map_err(|error| {
            let remedy = match error.kind() {
                AddrInUse => format!(
                    "is in use by another program; choose another one with {option}, such as 127.0.0.1:0"
                ),
                _ => format!("cannot be listened on; {option} sets it"),
            };
            anyhow::Error::new(error).context(format!("the address {address} {remedy}"))
        })
    }
}

/// Whether [`Sockets::clients`] or [`Sockets::admin`] failed because another program has the address.
pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == AddrInUse)
}

impl Sockets {
    /// Takes the sockets that the service manager passed, or those of the process that offers them at this path. That process
    /// goes on serving until [`HandOver::replace_predecessor`].
    pub(crate) async fn inherit(hand_over: Option<&Path>) -> Result<(Self, Option<HandOver>)> {
        let sockets = activation::take()?;
        let Some(path) = hand_over else { return Ok((sockets, None)) };
        ensure!(
            sockets.source == Source::None,
            "--hand-over (`hand_over`) and sockets of the service manager exclude each other: remove --hand-over, since the \
             service manager holds the sockets open during a restart"
        );
        let (sockets, hand_over) = HandOver::begin(path).await?;
        Ok((sockets, Some(hand_over)))
    }

    /// Adds a socket that has a name.
    fn insert(&mut self, name: &str, socket: StdListener) -> Result<()> {
        let place = match name {
            CLIENTS => &mut self.clients,
            ADMIN => &mut self.admin,
            _ => bail!("a socket is named {name:?}; the names are {CLIENTS} and {ADMIN}"),
        };
        ensure!(place.is_none(), "two sockets are named {name}; one socket is possible");
        *place = Some(socket);
        Ok(())
    }

    /// Listens for clients: on an inherited socket, or on one that is opened now.
    pub(crate) async fn clients(&mut self, wanted: ListenAddress) -> Result<TcpListener> {
        ensure!(
            self.clients.is_some() || self.source != Source::ServiceManager,
            "the service manager passed no socket for clients; name one with FileDescriptorName={CLIENTS}"
        );
        let inherited = self.clients.take();
        self.listen(inherited, wanted).await
    }

    /// Listens for operators: on an inherited socket, or on one that is opened now.
    pub(crate) async fn admin(&mut self, wanted: ListenAddress) -> Result<TcpListener> {
        let inherited = self.admin.take();
        self.listen(inherited, wanted).await
    }

    async fn listen(&self, inherited: Option<StdListener>, wanted: ListenAddress) -> Result<TcpListener> {
        let Some(inherited) = inherited else { return wanted.bind().await };
        let actual = inherited.local_addr().context("cannot read the address of an inherited socket")?;
        if !wanted.is_of(actual) {
            if self.source == Source::Predecessor {
                // The configuration of the predecessor had another address.
                return wanted.bind().await;
            }
            let ListenAddress { address, option, is_default } = wanted;
            ensure!(
                is_default,
                "the socket of the service manager listens on {actual}, but {option} is {address}; remove {option} and its key \
                 in the configuration file, or change ListenStream= of the socket unit"
            );
        }
        inherited.set_nonblocking(true).context("cannot set up an inherited socket")?;
        TcpListener::from_std(inherited).context("cannot use an inherited socket")
    }

    /// Checks that every socket of the service manager is used: connections to others would wait for ever.
    pub(crate) fn finish(self) -> Result<()> {
        ensure!(
            self.admin.is_none() || self.source != Source::ServiceManager,
            "the service manager passed a socket named {ADMIN}, but the admin listener is off; remove the socket or \
             --admin off"
        );
        Ok(())
    }
}
