//! Background threads.

use std::thread::{Builder, JoinHandle};

use crate::error::{Error, Result};

/// A named thread, joined on drop. Its owner must make the thread end before that, by closing the channel that it reads.
#[derive(Debug)]
pub(super) struct Worker {
    name: &'static str,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn spawn(name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<Self> {
        let thread = Builder::new().name(name.into()).spawn(run).map_err(|cause| {
            Error::unavailable(format!("the thread {name} cannot be started")).caused_by(cause)
        })?;
        Ok(Worker { name, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(thread = self.name, "background thread panicked");
        }
    }
}
