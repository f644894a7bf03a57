//! The stores that the processes of a test share. The test program starts itself as its child processes.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::Failed;
use tabletheory::{DynamoSettings, DynamoTable, Random as _, SystemRandom};
use tempfile::TempDir;

use crate::support::server_variable;

/// Environment variable that tells a process that it is a child, and its role.
const ROLE: &str = "FACETHEORY_TEST_ROLE";

/// The addresses of the table and the bodies of a test, for all its processes.
pub(crate) struct Stores {
    pub(crate) table: String,
    pub(crate) bodies: String,
    /// A directory for files that the processes share.
    pub(crate) directory: PathBuf,
    /// Environment variables that children need to reach the servers; empty in a child, which has inherited them.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Deletes the directory when it is dropped, in the process that created it.
    _temp: Option<TempDir>,
}

impl Stores {
    /// One SQLite file, and bodies in files.
    pub(crate) fn on_sqlite() -> Result<Stores, Failed> {
        let temp = tempfile::tempdir()?;
        let directory = temp.path().display();
        Ok(Stores {
            table: format!("sqlite:{directory}/table.db"),
            bodies: format!("file:{directory}/bodies"),
            directory: temp.path().to_owned(),
            environment: vec![],
            _temp: Some(temp),
        })
    }

    /// A new table in DynamoDB, and bodies in S3.
    pub(crate) fn on_servers() -> Result<Stores, Failed> {
        let temp = tempfile::tempdir()?;
        let name = format!("facetheory-processes-{:x}", SystemRandom.next_u64());
        Ok(Stores {
            bodies: format!("s3://{}/{name}", server_variable("FACETHEORY_TEST_S3_BUCKET")),
            table: format!("dynamodb:{name}"),
            directory: temp.path().to_owned(),
            environment: vec![
                ("AWS_ENDPOINT_URL_DYNAMODB", server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT")),
                ("AWS_ENDPOINT_URL_S3", server_variable("FACETHEORY_TEST_S3_ENDPOINT")),
                ("AWS_ACCESS_KEY_ID", server_variable("AWS_ACCESS_KEY_ID")),
                ("AWS_SECRET_ACCESS_KEY", server_variable("AWS_SECRET_ACCESS_KEY")),
                ("AWS_REGION", "us-east-1".to_owned()),
            ],
            _temp: Some(temp),
        })
    }

    /// The role and the stores of this process, if it is a child.
    pub(crate) fn for_child() -> Option<(String, Stores)> {
        let role = std::env::var(ROLE).ok()?;
        let argument = |index: usize| std::env::args().nth(index).expect("an argument");
        let directory = Path::new(&argument(3)).to_owned();
        let (table, bodies) = (argument(1), argument(2));
        Some((role, Stores { table, bodies, directory, environment: vec![], _temp: None }))
    }

    /// The command that starts a child with this role.
    pub(crate) fn command(&self, role: &str) -> Result<Command, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([&self.table, &self.bodies]).arg(&self.directory).env(ROLE, role);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Runs a child with this role to its end.
    pub(crate) fn run(&self, role: &str) -> Result<(), Failed> {
        let status = self.command(role)?.stdin(Stdio::null()).spawn()?.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the child with the role {role} failed; its output is above").into())
        }
    }

    /// Creates the table in DynamoDB; SQLite creates its own.
    pub(crate) async fn create_table(&self) -> Result<(), Failed> {
        if let Some(name) = self.table.strip_prefix("dynamodb:") {
            let table = DynamoTable::connect(name, DynamoSettings::default()).await?;
            table.create_table_if_missing().await?;
        }
        Ok(())
    }
}

/// Runs the work of a child. Only children use the stores, since the environment variables for the servers must be set
/// before a process starts.
pub(crate) fn run_child(work: impl Future<Output = Result<(), Failed>>) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            std::io::stderr().write_all(format!("{failed:?}\n").as_bytes()).expect("standard error is open");
            ExitCode::FAILURE
        }
    }
}
