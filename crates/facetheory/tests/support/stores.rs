//! Where the processes of a run keep their pages. The program of such a test is its own child.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::Failed;
use tabletheory::{DynamoSettings, DynamoTable, Random as _, SystemRandom};
use tempfile::TempDir;

use crate::support::setting;

/// Tells a process that it is a child, and what it is to do.
const ROLE: &str = "FACETHEORY_TEST_ROLE";

/// Where the pages of a run are, and what its processes need to know to get there.
pub(crate) struct Place {
    pub(crate) table: String,
    pub(crate) bodies: String,
    /// For what processes tell each other in files.
    pub(crate) directory: PathBuf,
    /// What tells children how to reach the servers; in a child it is in its environment already.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Deletes the directory in the end, where it was made.
    _made: Option<TempDir>,
}

impl Place {
    /// One SQLite file, and bodies in files.
    pub(crate) fn on_sqlite() -> Result<Place, Failed> {
        let made = tempfile::tempdir()?;
        let place = made.path().display();
        Ok(Place {
            table: format!("sqlite:{place}/table.db"),
            bodies: format!("file:{place}/bodies"),
            directory: made.path().to_owned(),
            environment: vec![],
            _made: Some(made),
        })
    }

    /// DynamoDB and S3, with a table of its own.
    pub(crate) fn on_servers() -> Result<Place, Failed> {
        let made = tempfile::tempdir()?;
        let name = format!("facetheory-processes-{:x}", SystemRandom.next_u64());
        Ok(Place {
            bodies: format!("s3://{}/{name}", setting("FACETHEORY_TEST_S3_BUCKET")),
            table: format!("dynamodb:{name}"),
            directory: made.path().to_owned(),
            environment: vec![
                ("AWS_ENDPOINT_URL_DYNAMODB", setting("FACETHEORY_TEST_DYNAMODB_ENDPOINT")),
                ("AWS_ENDPOINT_URL_S3", setting("FACETHEORY_TEST_S3_ENDPOINT")),
                ("AWS_ACCESS_KEY_ID", setting("AWS_ACCESS_KEY_ID")),
                ("AWS_SECRET_ACCESS_KEY", setting("AWS_SECRET_ACCESS_KEY")),
                ("AWS_REGION", "us-east-1".to_owned()),
            ],
            _made: Some(made),
        })
    }

    /// What this process is to do and where, if it is a child.
    pub(crate) fn of_child() -> Option<(String, Place)> {
        let role = std::env::var(ROLE).ok()?;
        let argument = |index: usize| std::env::args().nth(index).expect("an argument");
        let directory = Path::new(&argument(3)).to_owned();
        let (table, bodies) = (argument(1), argument(2));
        Some((role, Place { table, bodies, directory, environment: vec![], _made: None }))
    }

    /// A child that is to do this here.
    pub(crate) fn command(&self, role: &str) -> Result<Command, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([&self.table, &self.bodies]).arg(&self.directory).env(ROLE, role);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Lets a child do one thing, and fails as it does.
    pub(crate) fn run(&self, role: &str) -> Result<(), Failed> {
        let status = self.command(role)?.stdin(Stdio::null()).spawn()?.wait()?;
        if status.success() { Ok(()) } else { Err(format!("it could not {role}; why is above").into()) }
    }

    /// Makes the table, where it does not make itself.
    pub(crate) async fn make_table(&self) -> Result<(), Failed> {
        if let Some(name) = self.table.strip_prefix("dynamodb:") {
            let table = DynamoTable::connect(name, DynamoSettings::default()).await?;
            table.create_table_if_missing().await?;
        }
        Ok(())
    }
}

/// Does what a child is to do. The environment of a process says how to reach the servers, so everything that does is
/// done by children.
pub(crate) fn be_a_child(work: impl Future<Output = Result<(), Failed>>) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            std::io::stderr().write_all(format!("{failed:?}\n").as_bytes()).expect("somebody listens");
            ExitCode::FAILURE
        }
    }
}
