//! `facetheory lambda`: the gateway as an AWS Lambda function.
//!
//! Lambda freezes the process whenever it waits for the next event, so nothing may be left in the background then: an
//! invocation ends when its response is sent *and* the work that it caused is done or handed over to a queue.

mod event;
mod function;
mod http_event;
mod queue;
mod regenerate;
mod response;
mod runtime_api;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use facetheory::RegenerationQueue;

use self::function::Function;
use self::queue::SqsQueue;
use self::runtime_api::RuntimeApi;
use crate::config::QueueUrl;
use crate::serve::{self, Settings};
use crate::{config, log};

/// The file name under which Lambda starts an executable, without arguments.
const BOOTSTRAP: &str = "bootstrap";
/// The environment variable with the directory of the function's files.
const TASK_ROOT: &str = "LAMBDA_TASK_ROOT";
/// The environment variable with the URL of the queue, which overrides the configuration file.
const QUEUE_URL: &str = "FACETHEORY_QUEUE_URL";
const CONFIG_FILE: &str = "facetheory.toml";

/// Run the gateway as an AWS Lambda function.
///
/// Handles events of Function URLs and Application Load Balancers, regenerates the pages that SQS messages name, and
/// collects garbage when a schedule sends {"facetheory": "gc"}.
/// An executable with the name `bootstrap` runs this command when it is started without arguments.
///
/// Without --table and --bodies the environment names the store (FACETHEORY_CACHE_TABLE_NAME, FACETHEORY_ISR_BUCKET).
/// FACETHEORY_QUEUE_URL overrides `queue_url` in [lambda].
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory lambda --origin https://origin.example.com --table dynamodb:pages --bodies s3://bucket/isr
  facetheory lambda --config /opt/facetheory.toml")]
pub(crate) struct Arguments {
    /// URL of the origin
    #[arg(long, value_name = "URL")]
    origin: Option<config::Origin>,
    /// Configuration file [default: facetheory.toml of the function, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    store: serve::StoreLocation,
    #[command(flatten)]
    log: log::Arguments,
}

/// Whether the process was started by Lambda as `bootstrap`, without arguments.
pub(crate) fn is_bootstrap(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let program = arguments.next().unwrap_or_default();
    Path::new(&program).file_name().is_some_and(|name| name == BOOTSTRAP) && arguments.next().is_none()
}

/// Handles invocations until the process is terminated.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let api = RuntimeApi::from_environment(|name| std::env::var(name).ok())?;
    match start(arguments, &api).await {
        Ok(function) => function.run().await,
        Err(error) => {
            api.fail_init(&format!("{error:#}")).await;
            Err(error)
        }
    }
}

/// Reads the configuration, and opens the store and the queue.
async fn start(arguments: &Arguments, api: &RuntimeApi) -> Result<Function> {
    let settings = Settings::read(&serve_arguments(arguments, std::env::var_os(TASK_ROOT)))?;
    let log = log::start(&arguments.log, settings.config.log.format)?;
    let store = &settings.config.store;
    ensure!(
        store.data.is_some() || !serve::is_embedded(store)?,
        "no store is configured; name it with `table` and `bodies` in [store] of facetheory.toml, or with \
         FACETHEORY_CACHE_TABLE_NAME and FACETHEORY_ISR_BUCKET"
    );
    let queue: Option<Arc<dyn RegenerationQueue>> = match queue_url(&settings)? {
        Some(url) => Some(Arc::new(SqsQueue::open(url).await?)),
        None => None,
    };
    let builder = serve::open(store, &settings.config.timeouts).await?;
    let builder = builder.replaced_retention(settings.config.gc.replaced);
    Function::new(api.clone(), &settings, builder, queue, log)
}

/// Returns the options of `serve` that this command shares.
fn serve_arguments(arguments: &Arguments, task_root: Option<OsString>) -> serve::Arguments {
    let Arguments { origin, config, store, .. } = arguments.clone();
    let in_root = task_root.map(|root| Path::new(&root).join(CONFIG_FILE)).filter(|file| file.exists());
    let mut serve = serve::Arguments::default();
    (serve.origin, serve.config, serve.store) = (origin, config.or(in_root), store);
    serve
}

fn queue_url(settings: &Settings) -> Result<Option<QueueUrl>> {
    match std::env::var(QUEUE_URL).ok().filter(|url| !url.trim().is_empty()) {
        Some(url) => {
            let url = url.trim().parse().map_err(|error: String| anyhow!(error));
            url.map(Some).with_context(|| format!("the environment variable {QUEUE_URL} is invalid"))
        }
        None => Ok(settings.config.lambda.queue_url.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_with_the_name_bootstrap_is_a_function_unless_it_has_arguments() {
        let is = |arguments: &[&str]| is_bootstrap(arguments.iter().map(OsString::from));
        assert!(is(&["/var/task/bootstrap"]) && is(&["bootstrap"]));
        for other in [&["/usr/bin/facetheory"][..], &["/var/task/bootstrap", "serve"], &[]] {
            assert!(!is(other), "{other:?}");
        }
    }

    #[test]
    fn the_configuration_of_the_function_is_used_unless_another_is_named() {
        let arguments = |config: Option<&str>| Arguments {
            origin: None,
            config: config.map(PathBuf::from),
            store: serve::StoreLocation::default(),
            log: log::Arguments::default(),
        };
        let root = tempfile::tempdir().expect("a directory");
        let found = |config| serve_arguments(&arguments(config), Some(root.path().into())).config;
        assert_eq!(found(None), None, "the file does not exist");
        std::fs::write(root.path().join(CONFIG_FILE), "").expect("a file");
        assert_eq!(found(None), Some(root.path().join(CONFIG_FILE)));
        assert_eq!(found(Some("other.toml")), Some("other.toml".into()));
    }
}
