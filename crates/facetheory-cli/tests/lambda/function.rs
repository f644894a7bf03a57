//! The function as a child process that can be frozen.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use crate::runtime_api::RuntimeApi;
use crate::support::wait_for;

/// A function process, killed when this is dropped.
pub(crate) struct Function {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Function {
    /// Starts the binary.
    pub(crate) fn start(api: &RuntimeApi, environment: &[(&str, String)], arguments: &[&str]) -> Function {
        let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory"));
        command.arg("lambda").args(arguments);
        Function::spawn(command, api, environment)
    }

    /// Starts the binary as Lambda does: with the name `bootstrap`, without arguments, in the directory of the function.
    pub(crate) fn bootstrap(api: &RuntimeApi, directory: &Path) -> Function {
        let bootstrap = directory.join("bootstrap");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_facetheory"), &bootstrap).expect("a link");
        let root = directory.display().to_string();
        Function::spawn(Command::new(bootstrap), api, &[("LAMBDA_TASK_ROOT", root)])
    }

    fn spawn(mut command: Command, api: &RuntimeApi, environment: &[(&str, String)]) -> Function {
        let mut child = command
            .env("AWS_LAMBDA_RUNTIME_API", api.address.to_string())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (log, mut errors) = (Arc::new(Mutex::new(String::new())), child.stderr.take().expect("a pipe"));
        let collected = log.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut piece) {
                collected.lock().expect("not poisoned").push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        Function { child, log }
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("not poisoned").clone()
    }

    /// Freezes the process, as Lambda does between two invocations.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.child.id());
        wait_for("the process is frozen", || {
            let stat = std::fs::read_to_string(&stat).expect("a running process");
            // Only the program name, in parentheses, may contain spaces.
            stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T')).then_some(())
        });
    }

    /// Lets a frozen process run again.
    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    /// Terminates it, and returns once it has exited.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Waits until it has exited.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the function exits", || self.child.try_wait().expect("a process"))
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill starts");
        assert!(sent.success(), "the function has exited: {}", self.log());
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
