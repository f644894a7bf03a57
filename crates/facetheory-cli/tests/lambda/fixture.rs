//! A function in front of an origin, and a gateway on the same store through which a test invalidates pages.

use std::path::Path;

use tempfile::TempDir;

use crate::events::{HOST, Streamed, function_url};
use crate::function::Function;
use crate::runtime_api::RuntimeApi;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::site::with_long_timeouts;
use crate::support::store::Store;

/// Pages below `/pages` are cached by a rule, except private ones, and changes of other processes are noticed at once. Other paths follow the
/// origin's headers.
const CONFIG: &str = "[routes]\n\"/pages/**\" = { isr = \"1h\" }\n\"/pages/private/**\" = false\n[store]\nmetadata_max_age = \"0s\"\n";

/// A function with everything around it. The processes are declared first, since they must stop before the rest.
pub(crate) struct Setup {
    pub(crate) function: Function,
    pub(crate) api: RuntimeApi,
    pub(crate) origin: Origin,
    pub(crate) store: Store,
    directory: TempDir,
}

impl Setup {
    /// Starts a function on an embedded store.
    pub(crate) fn start() -> Setup {
        Setup::start_with("", &[])
    }

    /// Starts a function on an embedded store, with more configuration and environment variables.
    pub(crate) fn start_with(config: &str, environment: &[(&str, String)]) -> Setup {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::in_directory(directory.path());
        Setup::start_on(store, directory, config, environment)
    }

    /// Starts a function on DynamoDB and S3.
    pub(crate) fn start_on_servers(config: &str, environment: &[(&str, String)]) -> Setup {
        let directory = tempfile::tempdir().expect("a directory");
        Setup::start_on(Store::on_servers(), directory, config, environment)
    }

    /// Tells the same story on an embedded store, and on DynamoDB and S3.
    pub(crate) fn on_each_store(story: impl Fn(Setup)) {
        story(Setup::start());
        story(Setup::start_on_servers("", &[]));
    }

    pub(crate) fn start_on(
        store: Store,
        directory: TempDir,
        config: &str,
        environment: &[(&str, String)],
    ) -> Setup {
        let (api, origin) = (RuntimeApi::start(), Origin::start());
        let config = with_long_timeouts(&format!("{CONFIG}{config}"));
        std::fs::write(directory.path().join("facetheory.toml"), config).expect("a file");
        let function = start(&api, &origin, &store, directory.path(), environment);
        Setup { function, api, origin, store, directory }
    }

    /// Starts another function on the same store, with its own runtime API.
    pub(crate) fn another(&self) -> (Function, RuntimeApi) {
        let api = RuntimeApi::start();
        (start(&api, &self.origin, &self.store, self.directory.path(), &[]), api)
    }

    /// Sends a GET through the Function URL.
    pub(crate) fn get(&self, target: &str) -> Streamed {
        Streamed::receive(&self.api.invoke(function_url(target)))
    }

    /// Makes a page stale, through the admin API of a gateway on the same store.
    pub(crate) fn invalidate(&self, target: &str) {
        let directory = tempfile::tempdir().expect("a directory");
        let gateway = Gateway::start_on(
            &self.store,
            directory.path(),
            self.origin.address,
            &with_long_timeouts(CONFIG),
        );
        let response =
            gateway.admin_post("/api/v1/invalidate", &format!(r#"{{ "url": "https://{HOST}{target}" }}"#));
        assert!(response.text().contains("stale"), "{}", response.text());
    }
}

fn start(
    api: &RuntimeApi,
    origin: &Origin,
    store: &Store,
    directory: &Path,
    environment: &[(&str, String)],
) -> Function {
    let variables: Vec<(&str, String)> = store.environment.iter().chain(environment).cloned().collect();
    let (origin, config) = (format!("http://{}", origin.address), directory.join("facetheory.toml"));
    let config = config.display().to_string();
    let arguments =
        ["--origin", &origin, "--config", &config, "--table", &store.table, "--bodies", &store.bodies];
    Function::start(api, &variables, &arguments)
}
