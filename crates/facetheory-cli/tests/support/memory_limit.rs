//! A limit on the memory of a process, as a container has it.

use std::path::{Path, PathBuf};

/// A control group (cgroup) with a memory limit, which kills its process at the limit. Deleted when this is dropped.
pub(crate) struct MemoryLimit(PathBuf);

/// The memory controller of each version of control groups: its directory, the file of the limit, and a file that shows that the
/// controller is there.
const CONTROLLERS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.limit_in_bytes"),
];

impl MemoryLimit {
    /// Limits the memory of a process, without swap. Where control groups cannot be created, which takes root, this only says
    /// so: the tests also compare the peak of the resident memory with the limit.
    pub(crate) fn of(pid: u32, bytes: u64) -> Option<MemoryLimit> {
        let limit = CONTROLLERS.iter().find_map(|controller| MemoryLimit::create(controller, pid, bytes));
        if limit.is_none() {
            super::print(
                "SKIPPED: no control group with a memory limit can be created here; only the peak is tested",
            );
        }
        limit
    }

    fn create((root, limit, present): &(&str, &str, &str), pid: u32, bytes: u64) -> Option<MemoryLimit> {
        let directory = Path::new(root).join(format!("facetheory-test-{pid}"));
        std::fs::create_dir(&directory).ok()?;
        let created = MemoryLimit(directory);
        if !created.0.join(present).exists() {
            return None;
        }
        std::fs::write(created.0.join(limit), bytes.to_string()).ok()?;
        // Absent without swap accounting.
        let _ = std::fs::write(created.0.join("memory.swap.max"), "0");
        std::fs::write(created.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(created)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Fails while the process is alive; an empty group without processes is harmless.
        let _ = std::fs::remove_dir(&self.0);
    }
}
